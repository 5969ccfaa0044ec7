//! Changes of TXT records for validations by the DNS (RFC 8555 §8.4).

mod acme_dns; // changes by an acme-dns server
mod message; // messages of dynamic updates
mod program; // changes by a program of the operator
mod tsig; // keys that sign messages
mod update; // changes by dynamic updates

use std::fmt;
use std::path::PathBuf;

use weft_acme::{DnsFuture, DnsProvider, TxtRecord};

/// Way to change the DNS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DnsMethod {
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

impl DnsProvider for DnsMethod {
    fn add<'a>(&'a self, record: &'a TxtRecord) -> DnsFuture<'a> {
        Box::pin(self.change(Change::Add, record))
    }

    fn remove<'a>(&'a self, record: &'a TxtRecord) -> DnsFuture<'a> {
        Box::pin(self.change(Change::Remove, record))
    }
}

impl DnsMethod {
    async fn change(&self, change: Change, record: &TxtRecord) -> Result<(), String> {
        let TxtRecord { domain, name, value } = record;
        match self {
            DnsMethod::Program(path) => {
                program::run(path, change, [name, value], program::TIME_LIMIT).await
            }
            DnsMethod::Update { server, key } => {
                update::update(server, key, change, name, value).await
            }
            DnsMethod::AcmeDns { url, accounts } => match change {
                Change::Add => acme_dns::set(url, accounts, domain, value).await,
                Change::Remove => Ok(()),
            },
        }
    }
}

/// Describes the change, for `weft check`.
impl fmt::Display for DnsMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DnsMethod::Program(path) => write!(f, "records are set by {}", path.display()),
            DnsMethod::Update { server, key } => {
                write!(f, "records are set by updates of {server} with the key {}", key.display())
            }
            DnsMethod::AcmeDns { url, accounts } => {
                write!(f, "records are set by {url} with the accounts {}", accounts.display())
            }
        }
    }
}
