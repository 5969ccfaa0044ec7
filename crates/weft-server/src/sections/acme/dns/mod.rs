//! Changes of TXT records for validations by the DNS (RFC 8555 §8.4).

mod acme_dns; // changes by an acme-dns server
mod message; // messages of dynamic updates
mod program; // changes by a program of the operator
mod tsig; // keys that sign messages
mod update; // changes by dynamic updates

use std::fmt;
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::time::Duration;

use weft_acme::{ChallengeKind, DnsFuture, DnsProvider, TxtRecord};
use weft_config::{
    ConfigLocation, ConfigResult, Key, Located, Problem, ValueKind, quoted, quoted_path, show_time,
};
use weft_upstream::UpstreamUrl;

use super::AcmeConfig;

/// Values of the keys about changes of the DNS. At most one method is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DnsConfig {
    program: Option<Located<PathBuf>>,
    /// Host and port.
    server: Option<Located<String>>,
    key: Option<Located<PathBuf>>,
    acme_dns: Option<Located<String>>,
    acme_dns_accounts: Option<Located<PathBuf>>,
    /// Time until all servers of a zone have a change.
    pub(super) delay: Duration,
}

impl Default for DnsConfig {
    fn default() -> DnsConfig {
        DnsConfig {
            program: None,
            server: None,
            key: None,
            acme_dns: None,
            acme_dns_accounts: None,
            delay: Duration::from_secs(5),
        }
    }
}

impl DnsConfig {
    pub(super) fn is_set(&self) -> bool {
        self.program.is_some() || self.server.is_some() || self.acme_dns.is_some()
    }

    /// Returns the method that changes the DNS, which `dns-01` needs.
    pub(crate) fn method(&self) -> Option<DnsMethod> {
        self.methods().into_iter().next().map(|(_, method)| method)
    }

    /// Returns the methods with all of their keys.
    fn methods(&self) -> Vec<(&ConfigLocation, DnsMethod)> {
        let DnsConfig { program, server, key, acme_dns, acme_dns_accounts, .. } = self;
        let program =
            program.iter().map(|path| (&path.location, DnsMethod::Program(path.value.clone())));
        let update = server.iter().zip(key).map(|(server, key)| {
            let (server_address, key) = (server.value.clone(), key.value.clone());
            (&server.location, DnsMethod::Update { server: server_address, key })
        });
        let acme_dns = acme_dns.iter().zip(acme_dns_accounts).map(|(url, accounts)| {
            let (url_text, accounts) = (url.value.clone(), accounts.value.clone());
            (&url.location, DnsMethod::AcmeDns { url: url_text, accounts })
        });
        program.chain(update).chain(acme_dns).collect()
    }

    /// Reports keys that need another key, and keys that exclude each other.
    pub(super) fn check(&self, challenges: &[Located<ChallengeKind>], problems: &mut Vec<Problem>) {
        match (&self.server, &self.key) {
            (Some(server), None) => problems.push(server.problem("`dns_server` needs `dns_key`")),
            (None, Some(key)) => problems.push(key.problem("`dns_key` needs `dns_server`")),
            (Some(_), Some(_)) | (None, None) => {}
        }
        match (&self.acme_dns, &self.acme_dns_accounts) {
            (Some(url), None) => problems.push(url.problem("`acme_dns` needs `acme_dns_accounts`")),
            (None, Some(path)) => {
                problems.push(path.problem("`acme_dns_accounts` needs `acme_dns`"));
            }
            (Some(_), Some(_)) | (None, None) => {}
        }
        let needs_dns = challenges.iter().find(|kind| kind.value == ChallengeKind::Dns01);
        if let (Some(kind), false) = (needs_dns, self.is_set()) {
            problems.push(kind.problem("dns-01 needs `dns_program`, `dns_server` or `acme_dns`"));
        }
        if let [_, (location, _), ..] = &*self.methods() {
            let message = "only one of `dns_program`, `dns_server` and `acme_dns` is possible";
            problems.push(Problem { location: (*location).clone(), message: message.to_owned() });
        }
    }
}

pub(super) const PROGRAM: Key<AcmeConfig> = Key {
    name: "dns_program",
    flag: "acme-dns-program",
    argument: "FILE",
    help: "program that adds and removes the TXT record of a validation by dns-01; its \
           arguments are the name and the value",
    kind: ValueKind::Path(|acme, path| acme.dns.program = Some(path)),
    show: |acme| quoted_path(acme.dns.program.as_ref()),
};

pub(super) const SERVER: Key<AcmeConfig> = Key {
    name: "dns_server",
    flag: "acme-dns-server",
    argument: "ADDRESS",
    help: "server of the zones, which accepts dynamic updates (RFC 2136) for dns-01 over TCP; \
           the default port is 53",
    kind: ValueKind::Text(|acme, server| {
        check_server(&server)?;
        acme.dns.server = Some(server.map(|server| server_address(&server)));
        Ok(())
    }),
    show: |acme| acme.dns.server.as_ref().map_or_else(String::new, |server| quoted(&server.value)),
};

pub(super) const KEY: Key<AcmeConfig> = Key {
    name: "dns_key",
    flag: "acme-dns-key",
    argument: "FILE",
    help: "key that signs the updates (TSIG with hmac-sha256), as written by tsig-keygen",
    kind: ValueKind::Path(|acme, path| acme.dns.key = Some(path)),
    show: |acme| quoted_path(acme.dns.key.as_ref()),
};

pub(super) const ACME_DNS: Key<AcmeConfig> = Key {
    name: "acme_dns",
    flag: "acme-dns",
    argument: "URL",
    help: "acme-dns server, to which _acme-challenge.NAME is delegated by CNAME, for dns-01",
    kind: ValueKind::Text(|acme, url| {
        url.value.parse::<UpstreamUrl>().map_err(|reason| url.problem(reason))?;
        acme.dns.acme_dns = Some(url.map(|url| url.trim_end_matches('/').to_owned()));
        Ok(())
    }),
    show: |acme| acme.dns.acme_dns.as_ref().map_or_else(String::new, |url| quoted(&url.value)),
};

pub(super) const ACME_DNS_ACCOUNTS: Key<AcmeConfig> = Key {
    name: "acme_dns_accounts",
    flag: "acme-dns-accounts",
    argument: "FILE",
    help: "JSON object of the accounts of the acme-dns server by domain name",
    kind: ValueKind::Path(|acme, path| acme.dns.acme_dns_accounts = Some(path)),
    show: |acme| quoted_path(acme.dns.acme_dns_accounts.as_ref()),
};

pub(super) const DELAY: Key<AcmeConfig> = Key {
    name: "dns_delay",
    flag: "acme-dns-delay",
    argument: "TIME",
    help: "delay between the change of the DNS and the validation, for all of its servers to \
           have the change",
    kind: ValueKind::Time(|acme, time| acme.dns.delay = time),
    show: |acme| quoted(&show_time(acme.dns.delay)),
};

/// Method that changes the DNS.
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
        let TxtRecord { domain, name, value, .. } = record;
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

/// Splits a host from its port, which is 53 by default.
fn server_address(text: &str) -> String {
    let has_port = text.rsplit_once(':').is_some_and(|(host, port)| {
        port.parse::<u16>().is_ok() && (!host.contains(':') || host.ends_with(']'))
    });
    match (has_port, text.parse::<Ipv6Addr>()) {
        (_, Ok(address)) => format!("[{address}]:53"),
        (true, _) => text.to_owned(),
        (false, _) => format!("{text}:53"),
    }
}

fn check_server(server: &Located<String>) -> ConfigResult {
    let is_server = server_address(&server.value).parse::<http::uri::Authority>().is_ok_and(|it| {
        !it.host().is_empty() && it.port_u16().is_some() && !it.as_str().contains('@')
    });
    match is_server {
        true => Ok(()),
        false => Err(server.problem(format!(
            "expected an address such as ns.example.org or 192.0.2.1:53, found {:?}",
            server.value
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dns_servers_have_port_53_by_default() {
        for (text, expected) in [
            ("ns.example.org", Some("ns.example.org:53")),
            ("ns.example.org:5353", Some("ns.example.org:5353")),
            ("192.0.2.1", Some("192.0.2.1:53")),
            ("2001:db8::1", Some("[2001:db8::1]:53")),
            ("[2001:db8::1]", Some("[2001:db8::1]:53")),
            ("[2001:db8::1]:54", Some("[2001:db8::1]:54")),
            ("", None),
            ("a b", None),
            ("a:x", None),
            ("a:70000", None),
            ("key@a", None),
        ] {
            let server = Located::without_location(text.to_owned());
            let found = check_server(&server).ok().map(|()| server_address(text));
            assert_eq!(found.as_deref(), expected, "{text}");
        }
    }
}
