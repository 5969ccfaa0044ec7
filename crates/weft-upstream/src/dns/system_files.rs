//! The files of the system about names: `/etc/hosts` and `/etc/resolv.conf`.

use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::PORT;
use super::message::MAX_RECORDS;
use super::query::Servers;

/// Maximum size of a file. Of a larger one, the resolver of the C library finds the names.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Maximum number of servers, as in glibc.
const MAX_SERVERS: usize = 3;

/// Maximum number of search domains, as in Kubernetes.
const MAX_SEARCH_DOMAINS: usize = 32;

/// Paths of the files.
#[derive(Clone, Debug)]
pub struct SystemFiles {
    pub(crate) hosts: Arc<Path>,
    pub(crate) resolv_conf: Arc<Path>,
}

impl Default for SystemFiles {
    fn default() -> SystemFiles {
        let path = |path: &str| PathBuf::from(path).into();
        SystemFiles { hosts: path("/etc/hosts"), resolv_conf: path("/etc/resolv.conf") }
    }
}

impl SystemFiles {
    /// Returns the addresses of a host in `/etc/hosts`.
    pub(crate) fn addresses(&self, host: &str) -> Vec<IpAddr> {
        addresses_in(&read(&self.hosts), host)
    }

    /// Returns the servers in `/etc/resolv.conf`; `None` if there are none.
    pub(crate) fn servers(&self) -> Option<Servers> {
        parse_servers(&read(&self.resolv_conf))
    }
}

/// Reads a file. A file that is absent or too large counts as empty.
fn read(path: &Path) -> String {
    let mut content = Vec::new();
    let file =
        File::open(path).and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut content));
    match file {
        Ok(count) if count as u64 <= MAX_FILE_BYTES => {
            String::from_utf8_lossy(&content).into_owned()
        }
        _ => String::new(),
    }
}

fn addresses_in(hosts: &str, host: &str) -> Vec<IpAddr> {
    let host = host.trim_end_matches('.');
    let address = |line: &str| {
        let mut words = line.split('#').next()?.split_ascii_whitespace();
        let address: IpAddr = words.next()?.parse().ok()?;
        words.any(|name| name.eq_ignore_ascii_case(host)).then_some(address)
    };
    hosts.lines().filter_map(address).take(MAX_RECORDS).collect()
}

fn parse_servers(text: &str) -> Option<Servers> {
    let mut servers = Servers::new(Vec::new());
    for line in text.lines() {
        let line = line.split(['#', ';']).next().unwrap_or_default();
        let mut words = line.split_ascii_whitespace();
        match words.next() {
            Some("nameserver") => {
                // An address with a zone, such as fe80::1%eth0, is left to the C library.
                let address = words.next().and_then(|word| word.parse::<IpAddr>().ok());
                servers.addresses.extend(address.map(|address| SocketAddr::new(address, PORT)));
            }
            // The last of them applies.
            Some("search" | "domain") => {
                servers.search = words.take(MAX_SEARCH_DOMAINS).map(str::to_owned).collect();
                servers.search.retain(|domain| domain != ".");
            }
            Some("options") => words.for_each(|word| set_option(&mut servers, word)),
            _ => {}
        }
    }
    servers.addresses.truncate(MAX_SERVERS);
    (!servers.addresses.is_empty()).then_some(servers)
}

/// Sets an option within the limits of glibc.
fn set_option(servers: &mut Servers, word: &str) {
    let (name, value) = word.split_once(':').unwrap_or((word, ""));
    match (name, value.parse::<u32>()) {
        ("ndots", Ok(number)) => servers.min_dots = number.min(15) as usize,
        ("timeout", Ok(number)) => {
            servers.timeout = Duration::from_secs(number.clamp(1, 30).into());
        }
        ("attempts", Ok(number)) => servers.attempts = number.clamp(1, 5),
        ("use-vc", _) => servers.uses_tcp = true,
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_hosts() {
        let hosts = "127.0.0.1 localhost\n::1 localhost ip6-localhost # loopback\n\
                     10.0.0.1\tDB.example db\n# 10.0.0.2 db\n10.0.0.3 db2 # db\nx db\n";
        for (host, expected) in [
            ("localhost", &["127.0.0.1", "::1"][..]),
            ("db", &["10.0.0.1"]),
            ("DB.EXAMPLE.", &["10.0.0.1"]),
            ("10.0.0.1", &[]),
            ("absent", &[]),
        ] {
            let found = addresses_in(hosts, host);
            let found: Vec<_> = found.iter().map(ToString::to_string).collect();
            assert_eq!(found, expected, "{host}");
        }
        let many = "10.0.0.1 a\n".repeat(1_000);
        assert_eq!(addresses_in(&many, "a").len(), MAX_RECORDS);
    }

    #[test]
    fn reads_servers_and_options() {
        let text = "# comment\nnameserver 10.0.0.53\nnameserver ::1 ; comment\n\
                    nameserver fe80::1%eth0\nnameserver x\ndomain a.example\n\
                    search b.example c.example .\n\
                    options ndots:5 timeout:2 attempts:9 rotate edns0 use-vc\n";
        let servers = parse_servers(text).unwrap();
        let addresses: Vec<_> = servers.addresses.iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["10.0.0.53:53", "[::1]:53"]);
        assert_eq!(servers.search, ["b.example", "c.example"]);
        assert_eq!((servers.min_dots, servers.attempts, servers.uses_tcp), (5, 5, true));
        assert_eq!(servers.timeout, Duration::from_secs(2));
        assert!(parse_servers("search a\n").is_none());
        let many = parse_servers(&"nameserver 10.0.0.1\n".repeat(9)).unwrap();
        assert_eq!(many.addresses.len(), MAX_SERVERS);
        let domains = parse_servers(&format!("nameserver ::1\nsearch {}", "a ".repeat(99)));
        assert_eq!(domains.unwrap().search.len(), MAX_SEARCH_DOMAINS);
    }
}
