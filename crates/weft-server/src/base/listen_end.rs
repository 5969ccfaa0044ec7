//! Ends at which the server accepts connections, by which hosts are bound to listeners.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use super::unix_address::UnixAddress;

/// Prefix of an address with TLS in `listen` of a host.
pub(crate) const TLS_PREFIX: &str = "tls://";

/// The server's end of connections.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ListenEnd {
    Tcp(TcpEnd),
    Unix(PathBuf),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum TcpEnd {
    /// One address.
    Address(SocketAddr),
    /// All addresses of IPv4.
    AnyIpv4(u16),
    /// All addresses of IPv6.
    AnyIpv6(u16),
    /// All addresses.
    Any(u16),
}

/// The connections whose requests a host gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HostBinding {
    /// Connections to all addresses that are not bound to other hosts.
    Everywhere,
    Ends(Vec<ListenEnd>),
    /// Connections to these ports, for names that have no host there.
    Ports(Vec<u16>),
}

/// Ports that have a listener with an address of IPv4. With such a port, `[::]:PORT` listens on
/// IPv6 only; otherwise it listens on all addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ipv4Ports(BTreeSet<u16>);

impl Ipv4Ports {
    /// Collects the ports of all addresses to listen on.
    pub(crate) fn new<'a>(addresses: impl IntoIterator<Item = &'a str>) -> Ipv4Ports {
        let ports = addresses.into_iter().flat_map(written_ends).filter_map(|end| match end {
            WrittenEnd::Tcp(IpAddr::V4(_), port) => Some(port),
            _ => None,
        });
        Ipv4Ports(ports.collect())
    }

    /// Returns the ends of an address as it is written in a key `listen`. A name of the DNS and
    /// port 0 have none, because their addresses are not known; `localhost` has two.
    pub(crate) fn ends(&self, address: &str) -> Vec<ListenEnd> {
        let end = |end| match end {
            WrittenEnd::Unix(path) => ListenEnd::Unix(path),
            WrittenEnd::Any(port) => ListenEnd::Tcp(TcpEnd::Any(port)),
            WrittenEnd::Tcp(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port) => {
                ListenEnd::Tcp(TcpEnd::AnyIpv4(port))
            }
            WrittenEnd::Tcp(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port) => {
                ListenEnd::Tcp(match self.0.contains(&port) {
                    true => TcpEnd::AnyIpv6(port),
                    false => TcpEnd::Any(port),
                })
            }
            WrittenEnd::Tcp(address, port) => {
                let address = SocketAddr::new(address.to_canonical(), port);
                ListenEnd::Tcp(TcpEnd::Address(address))
            }
        };
        written_ends(address).into_iter().map(end).collect()
    }
}

/// An address as it is written.
enum WrittenEnd {
    Any(u16),
    Tcp(IpAddr, u16),
    Unix(PathBuf),
}

fn written_ends(address: &str) -> Vec<WrittenEnd> {
    let address = address.strip_prefix(TLS_PREFIX).unwrap_or(address);
    if let Some(socket) = UnixAddress::parse(address) {
        return socket.map(|it| WrittenEnd::Unix(it.path().to_owned())).into_iter().collect();
    }
    let Some((host, port)) = address.rsplit_once(':') else { return Vec::new() };
    let Some(port) = port.parse::<u16>().ok().filter(|port| *port > 0) else { return Vec::new() };
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    match host {
        "" => vec![WrittenEnd::Any(port)],
        host if host.eq_ignore_ascii_case("localhost") => {
            let loopback = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
            loopback.map(|address| WrittenEnd::Tcp(address, port)).into()
        }
        host => {
            host.parse().ok().map(|address| WrittenEnd::Tcp(address, port)).into_iter().collect()
        }
    }
}

impl ListenEnd {
    pub(crate) fn port(&self) -> Option<u16> {
        match self {
            ListenEnd::Tcp(end) => Some(end.port()),
            ListenEnd::Unix(_) => None,
        }
    }

    /// Returns true if a listener of this end accepts all connections of another end.
    pub(crate) fn covers(&self, other: &ListenEnd) -> bool {
        match (self, other) {
            (ListenEnd::Tcp(end), ListenEnd::Tcp(other)) => end.covers(*other),
            _ => self == other,
        }
    }
}

impl TcpEnd {
    fn port(self) -> u16 {
        match self {
            TcpEnd::Address(address) => address.port(),
            TcpEnd::AnyIpv4(port) | TcpEnd::AnyIpv6(port) | TcpEnd::Any(port) => port,
        }
    }

    fn covers(self, other: TcpEnd) -> bool {
        let has_ipv4 = |end| match end {
            TcpEnd::Address(address) => address.is_ipv4(),
            end => matches!(end, TcpEnd::AnyIpv4(_) | TcpEnd::Any(_)),
        };
        let has_ipv6 = |end| match end {
            TcpEnd::Address(address) => address.is_ipv6(),
            end => matches!(end, TcpEnd::AnyIpv6(_) | TcpEnd::Any(_)),
        };
        self == other
            || !matches!(self, TcpEnd::Address(_))
                && self.port() == other.port()
                && (has_ipv4(self) || !has_ipv4(other))
                && (has_ipv6(self) || !has_ipv6(other))
    }

    /// Returns the ends that a connection to this address may have, the most specific first.
    pub(crate) fn of_connection(address: SocketAddr) -> [TcpEnd; 3] {
        let (ip, port) = (address.ip().to_canonical(), address.port());
        let of_family = if ip.is_ipv4() { TcpEnd::AnyIpv4(port) } else { TcpEnd::AnyIpv6(port) };
        [TcpEnd::Address(SocketAddr::new(ip, port)), of_family, TcpEnd::Any(port)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_ends() {
        let ends = |addresses: &[&str], address: &str| {
            let ends = Ipv4Ports::new(addresses.iter().copied()).ends(address);
            ends.iter().map(|end| format!("{end:?}")).collect::<Vec<_>>().join(" ")
        };
        let beside_ipv4: &[&str] = &["0.0.0.0:80"];
        for (addresses, address, expected) in [
            (beside_ipv4, "0.0.0.0:80", "Tcp(AnyIpv4(80))"),
            (beside_ipv4, "[::]:80", "Tcp(AnyIpv6(80))"),
            (beside_ipv4, ":80", "Tcp(Any(80))"),
            (beside_ipv4, "[::]:81", "Tcp(Any(81))"),
            (&["127.0.0.1:80"], "[::]:80", "Tcp(AnyIpv6(80))"),
            (&["localhost:80"], "[::]:80", "Tcp(AnyIpv6(80))"),
            (&["[::1]:80"], "[::]:80", "Tcp(Any(80))"),
            (&[], "tls://10.0.0.5:443", "Tcp(Address(10.0.0.5:443))"),
            (&[], "[::ffff:10.0.0.5]:80", "Tcp(Address(10.0.0.5:80))"),
            (&[], "localhost:80", "Tcp(Address(127.0.0.1:80)) Tcp(Address([::1]:80))"),
            (&[], "unix:/run/a b", "Unix(\"/run/a b\")"),
            (&[], "127.0.0.1:0", ""),
            (&[], "a.example:80", ""),
        ] {
            assert_eq!(ends(addresses, address), expected, "{addresses:?} {address}");
        }
    }

    #[test]
    fn listener_of_all_addresses_covers_others() {
        let ports = Ipv4Ports::new(["0.0.0.0:80"]);
        let covers = |one: &str, other: &str| {
            let (one, other) = (ports.ends(one), ports.ends(other));
            one[0].covers(&other[0])
        };
        for (one, other, expected) in [
            (":80", "0.0.0.0:80", true),
            (":80", "[::]:80", true),
            (":80", "127.0.0.1:80", true),
            (":80", "[::1]:80", true),
            (":80", "127.0.0.1:81", false),
            ("0.0.0.0:80", "127.0.0.1:80", true),
            ("0.0.0.0:80", "[::1]:80", false),
            ("0.0.0.0:80", "[::]:80", false),
            ("0.0.0.0:80", ":80", false),
            ("[::]:80", "[::1]:80", true),
            ("[::]:80", "127.0.0.1:80", false),
            ("[::]:81", "127.0.0.1:81", true),
            ("127.0.0.1:80", "127.0.0.1:80", true),
            ("127.0.0.1:80", "127.0.0.2:80", false),
            ("unix:/a", "unix:/a", true),
            ("unix:/a", "unix:/b", false),
        ] {
            assert_eq!(covers(one, other), expected, "{one} {other}");
        }
    }
}
