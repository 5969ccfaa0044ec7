//! Values that name an address to listen on.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use crate::error::Result;
use crate::net::address::Address;

/// A value that names an [`Address`] to listen on.
///
/// | value | example |
/// | --- | --- |
/// | text that `Address` parses | `"127.0.0.1:8080"`, `":8080"`, `"unix:/run/app.sock"` |
/// | host and port | `("127.0.0.1", 8080)`, `(Ipv6Addr::LOCALHOST, 8080)` |
/// | [`SocketAddr`] | `SocketAddr::from(([127, 0, 0, 1], 8080))` |
/// | [`Address`] | `Address::Any(8080)` |
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an address to listen on",
    label = "expected an address here",
    note = "an address is a text such as `127.0.0.1:8080`, `:8080`, `[::1]:8080` or `unix:PATH`, a \
            pair of host and port, a `SocketAddr` or a `weft::net::Address`",
    note = "a listening socket is added by `Server::listener(socket.try_into()?)`"
)]
pub trait IntoAddress {
    /// Converts the value.
    ///
    /// # Errors
    /// [`Listen`](crate::ErrorKind::Listen) if the text is not an address.
    fn into_address(self) -> Result<Address>;
}

impl IntoAddress for Address {
    fn into_address(self) -> Result<Address> {
        Ok(self)
    }
}

/// Implements the trait for types whose text is an address.
macro_rules! into_address {
    ($($text:ty),*) => {
        $(impl IntoAddress for $text {
            fn into_address(self) -> Result<Address> {
                self.to_string().parse()
            }
        })*
    };
}

into_address!(&str, String, &String, SocketAddr, SocketAddrV4, SocketAddrV6);

impl IntoAddress for (&str, u16) {
    fn into_address(self) -> Result<Address> {
        let (host, port) = self;
        match host.parse::<Ipv6Addr>() {
            Ok(address) => (address, port).into_address(),
            Err(_) => format!("{host}:{port}").parse(),
        }
    }
}

impl IntoAddress for (String, u16) {
    fn into_address(self) -> Result<Address> {
        (&*self.0, self.1).into_address()
    }
}

/// Implements the trait for an IP address and a port.
macro_rules! into_address_with_port {
    ($($ip:ty),*) => {
        $(impl IntoAddress for ($ip, u16) {
            fn into_address(self) -> Result<Address> {
                SocketAddr::from(self).into_address()
            }
        })*
    };
}

into_address_with_port!(IpAddr, Ipv4Addr, Ipv6Addr);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn converts_texts_pairs_and_addresses() {
        let local = SocketAddr::from(([127, 0, 0, 1], 80));
        for (address, expected) in [
            ("127.0.0.1:80".into_address(), "127.0.0.1:80"),
            (String::from(":80").into_address(), ":80"),
            ((&String::from("[::1]:80")).into_address(), "[::1]:80"),
            ("unix:/a".into_address(), "unix:/a"),
            (local.into_address(), "127.0.0.1:80"),
            (Address::Any(1).into_address(), ":1"),
            (("localhost", 80).into_address(), "localhost:80"),
            (("::1", 80).into_address(), "[::1]:80"),
            ((String::from("0.0.0.0"), 80).into_address(), "0.0.0.0:80"),
            ((IpAddr::from([127, 0, 0, 1]), 80).into_address(), "127.0.0.1:80"),
            ((Ipv6Addr::LOCALHOST, 80).into_address(), "[::1]:80"),
        ] {
            assert_eq!(address.unwrap().to_string(), expected);
        }
        for invalid in ["80".into_address(), ("unix", 80).into_address().and("x".into_address())] {
            assert_eq!(invalid.unwrap_err().kind(), crate::ErrorKind::Listen);
        }
    }
}
