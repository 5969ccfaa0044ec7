//! TXT records for validations by the DNS (RFC 8555 §8.4), which exist for the time of an order.

mod acme_dns; // changes by an acme-dns server
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
    /// An acme-dns server, with its accounts in a file.
    AcmeDns { url: String, accounts: PathBuf },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Add,
    Remove,
}

/// A TXT record, which is removed when this value is dropped.
pub(super) struct TxtRecord {
    provider: DnsProvider,
    domain: String,
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
        let domain = name.domain().to_owned();
        provider.change(Change::Add, &domain, &value).await?;
        let record = TxtRecord { provider, domain, value };
        sleep(settings.delay).await;
        Ok(record)
    }
}

impl Drop for TxtRecord {
    fn drop(&mut self) {
        let Ok(runtime) = Handle::try_current() else { return };
        let TxtRecord { provider, domain, value } = self;
        let (provider, domain, value) =
            (provider.clone(), std::mem::take(domain), std::mem::take(value));
        runtime.spawn(async move {
            if let Err(reason) = provider.change(Change::Remove, &domain, &value).await {
                log::warn!("cannot remove the TXT record {}: {reason}", record_name(&domain));
            }
        });
    }
}

fn record_name(domain: &str) -> String {
    format!("_acme-challenge.{domain}")
}

impl DnsProvider {
    async fn change(&self, change: Change, domain: &str, value: &str) -> Result<(), String> {
        let name = record_name(domain);
        match self {
            DnsProvider::Program(path) => {
                program::run(path, change, [&name, value], program::TIME_LIMIT).await
            }
            DnsProvider::Update { server, key } => {
                update::update(server, key, change, &name, value).await
            }
            DnsProvider::AcmeDns { url, accounts } => match change {
                Change::Add => acme_dns::set(url, accounts, domain, value).await,
                Change::Remove => Ok(()),
            },
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
            DnsProvider::AcmeDns { url, accounts } => {
                write!(f, "records are set by {url} with the accounts {}", accounts.display())
            }
        }
    }
}
