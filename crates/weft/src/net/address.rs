//! Addresses to listen on, and addresses of listening sockets.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::error::{Error, ErrorKind, Result};

/// Address to listen on: `host:port`, `:port` (all addresses of the machine), `[v6]:port`,
/// `[*]:port` (all IPv6 addresses) or `unix:PATH`. With port 0 the system chooses a free port.
/// `Display` writes the text that `FromStr` parses.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Address {
    /// All addresses of the machine, IPv4 and IPv6.
    Any(u16),
    /// All IPv6 addresses of the machine, beside listeners of IPv4 with the same port
    /// (`IPV6_V6ONLY`). On a machine without IPv6 there is no listener.
    AnyIpv6(u16),
    /// A host name or IP address, and a port.
    Host(String),
    /// A Unix socket.
    Unix(PathBuf),
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Address> {
        let invalid = || {
            let reason = format!(
                "`{text}` is no address to listen on; expected host:port, :port, [v6]:port or unix:PATH"
            );
            Error::new(ErrorKind::Listen, reason)
        };
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() { Err(invalid()) } else { Ok(Address::Unix(path.into())) };
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(invalid)?;
        let port: u16 = port.parse().map_err(|_| invalid())?;
        match host {
            "" => Ok(Address::Any(port)),
            "[*]" => Ok(Address::AnyIpv6(port)),
            host if host.contains(':') && !host.starts_with('[') => Err(invalid()),
            _ => Ok(Address::Host(text.to_owned())),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Any(port) => write!(f, ":{port}"),
            Address::AnyIpv6(port) => write!(f, "[*]:{port}"),
            Address::Host(text) => f.write_str(text),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Address of a listening socket: `http://ADDRESS:PORT`, `https://ADDRESS:PORT`, `unix:PATH` or
/// `https+unix:PATH`. `Display` writes the text that `FromStr` parses.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LocalAddress {
    /// A TCP socket.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
    /// A TCP socket whose connections use TLS.
    Tls(SocketAddr),
    /// A Unix socket whose connections use TLS.
    UnixTls(PathBuf),
}

impl LocalAddress {
    /// Returns the address of a TCP socket.
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            LocalAddress::Tcp(address) | LocalAddress::Tls(address) => Some(*address),
            LocalAddress::Unix(_) | LocalAddress::UnixTls(_) => None,
        }
    }

    /// Returns the path of a Unix socket.
    pub fn path(&self) -> Option<&Path> {
        match self {
            LocalAddress::Unix(path) | LocalAddress::UnixTls(path) => Some(path),
            LocalAddress::Tcp(_) | LocalAddress::Tls(_) => None,
        }
    }

    /// Returns true if the socket's connections use TLS.
    pub fn is_secure(&self) -> bool {
        matches!(self, LocalAddress::Tls(_) | LocalAddress::UnixTls(_))
    }

    /// Returns the same address with TLS.
    pub(super) fn with_tls(self) -> LocalAddress {
        match self {
            LocalAddress::Tcp(address) => LocalAddress::Tls(address),
            LocalAddress::Unix(path) => LocalAddress::UnixTls(path),
            with_tls => with_tls,
        }
    }
}

impl fmt::Display for LocalAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LocalAddress::Tcp(address) => write!(f, "http://{address}"),
            LocalAddress::Unix(path) => write!(f, "unix:{}", path.display()),
            LocalAddress::Tls(address) => write!(f, "https://{address}"),
            LocalAddress::UnixTls(path) => write!(f, "https+unix:{}", path.display()),
        }
    }
}

impl FromStr for LocalAddress {
    type Err = Error;

    fn from_str(text: &str) -> Result<LocalAddress> {
        let tcp = |address: &str| address.parse::<SocketAddr>().ok();
        let unix = |path: &str| (!path.is_empty()).then(|| PathBuf::from(path));
        let parsed = if let Some(address) = text.strip_prefix("http://") {
            tcp(address).map(LocalAddress::Tcp)
        } else if let Some(address) = text.strip_prefix("https://") {
            tcp(address).map(LocalAddress::Tls)
        } else if let Some(path) = text.strip_prefix("https+unix:") {
            unix(path).map(LocalAddress::UnixTls)
        } else {
            text.strip_prefix("unix:").and_then(unix).map(LocalAddress::Unix)
        };
        parsed.ok_or_else(|| {
            let reason = format!(
                "`{text}` is no address of a listening socket; expected http://IP:PORT, \
                 https://IP:PORT, unix:PATH or https+unix:PATH"
            );
            Error::new(ErrorKind::Listen, reason)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_listen_addresses() {
        for (text, address) in [
            (":80", Some(Address::Any(80))),
            ("localhost:0", Some(Address::Host("localhost:0".into()))),
            ("127.0.0.1:8080", Some(Address::Host("127.0.0.1:8080".into()))),
            ("[::1]:8080", Some(Address::Host("[::1]:8080".into()))),
            ("[*]:8080", Some(Address::AnyIpv6(8080))),
            ("unix:/run/weft", Some(Address::Unix("/run/weft".into()))),
            ("unix:", None),
            ("8080", None),
            ("localhost", None),
            ("localhost:http", None),
            ("localhost:65536", None),
            ("::1:8080", None),
            ("", None),
        ] {
            assert_eq!(text.parse::<Address>().ok(), address, "{text:?}");
            if let Some(address) = address {
                assert_eq!(address.to_string(), text);
            }
        }
    }

    #[test]
    fn parses_the_addresses_of_sockets_that_it_writes() {
        let ip = SocketAddr::from(([127, 0, 0, 1], 80));
        for (text, address) in [
            ("http://127.0.0.1:80", Some(LocalAddress::Tcp(ip))),
            ("https://127.0.0.1:80", Some(LocalAddress::Tls(ip))),
            ("http://[::1]:80", Some(LocalAddress::Tcp("[::1]:80".parse().unwrap()))),
            ("unix:/run/weft", Some(LocalAddress::Unix("/run/weft".into()))),
            ("https+unix:/run/weft", Some(LocalAddress::UnixTls("/run/weft".into()))),
            ("127.0.0.1:80", None),
            ("http://localhost:80", None),
            ("http://127.0.0.1", None),
            ("unix:", None),
            ("https+unix:", None),
            ("", None),
        ] {
            assert_eq!(text.parse::<LocalAddress>().ok(), address, "{text:?}");
            if let Some(address) = address {
                assert_eq!(address.to_string(), text);
            }
        }
    }
}
