//! TXT records for validations by the DNS (RFC 8555 §8.4), which exist for the time of an order.

mod message; // messages of dynamic updates
mod program; // changes by a program of the operator
mod tsig; // keys that sign messages
mod update; // changes by dynamic updates

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::sleep;

use super::settings::Name;

/// Change of the DNS for validations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DnsSettings {
    pub(crate) provider: DnsProvider,
    /// Time in which all servers of a zone have a change.
    pub(crate) delay: Duration,
}

/// Way to change the DNS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DnsProvider {
    /// Path of a program.
    Program(PathBuf),
    /// Dynamic updates (RFC 2136) of a server, a host and a port, signed with the key of a file.
    Update { server: String, key: PathBuf },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Add,
    Remove,
}

/// A TXT record, which is removed when this value is dropped.
pub(super) struct TxtRecord {
    provider: DnsProvider,
    name: String,
    value: String,
}

impl TxtRecord {
    /// Adds the record of a validation.
    pub(super) async fn add(
        settings: &DnsSettings,
        name: &Name,
        value: String,
    ) -> Result<TxtRecord, String> {
        let provider = settings.provider.clone();
        let name = format!("_acme-challenge.{}", name.domain());
        provider.change(Change::Add, &name, &value).await?;
        let record = TxtRecord { provider, name, value };
        sleep(settings.delay).await;
        Ok(record)
    }
}

impl Drop for TxtRecord {
    fn drop(&mut self) {
        let Ok(runtime) = Handle::try_current() else { return };
        let TxtRecord { provider, name, value } = self;
        let (provider, name, value) =
            (provider.clone(), std::mem::take(name), std::mem::take(value));
        runtime.spawn(async move {
            if let Err(reason) = provider.change(Change::Remove, &name, &value).await {
                log::warn!("cannot remove the TXT record {name}: {reason}");
            }
        });
    }
}

impl DnsProvider {
    async fn change(&self, change: Change, name: &str, value: &str) -> Result<(), String> {
        match self {
            DnsProvider::Program(path) => {
                program::run(path, change, [name, value], program::TIME_LIMIT).await
            }
            DnsProvider::Update { server, key } => {
                update::update(server, key, change, name, value).await
            }
        }
    }
}

/// Describes the change, for `weft check`.
impl fmt::Display for DnsProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DnsProvider::Program(path) => write!(f, "records are set by {}", path.display()),
            DnsProvider::Update { server, key } => {
                write!(f, "records are set by updates of {server} with the key {}", key.display())
            }
        }
    }
}
