//! Addresses to listen on, and addresses of listening sockets.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::error::{Error, ErrorKind, Result};

/// Address to listen on: `host:port`, `:port` (all addresses of the machine), `[v6]:port` or
/// `unix:PATH`. With port 0 the system chooses a free port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// All addresses of the machine, IPv4 and IPv6.
    Any(u16),
    /// All IPv6 addresses of the machine, beside listeners of IPv4 with the same port
    /// (`IPV6_V6ONLY`). It has no text form. On a machine without IPv6 there is no listener.
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
            host if host.contains(':') && !host.starts_with('[') => Err(invalid()),
            _ => Ok(Address::Host(text.to_owned())),
        }
    }
}

/// Address of a listening socket.
#[derive(Clone, Debug, PartialEq, Eq)]
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
        }
    }
}
