//! Access by the address of the client.

use std::net::IpAddr;
use std::sync::Arc;

use http::StatusCode;

use crate::app::{Application, Middleware};
use crate::message::request::Request;
use crate::message::response::Response;
use weft_proto::proxy_protocol::IpNetwork;

/// Refuses requests by the address of the client, with 403.
///
/// ```
/// use weft::middleware::AddressFilter;
/// use weft::{Application, Request, Response, testing};
///
/// async fn hello(_: Request) -> Response { Response::text("Hello\n") }
///
/// let allowed = ["10.0.0.0/8".parse()?, "::1".parse()?];
/// let app = hello.wrap(AddressFilter::new().allow(allowed).deny(["10.6.6.6".parse()?]));
/// let status = |address: &str| {
///     let mut request = testing::request("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
///     request.set_peer(address.parse().unwrap());
///     testing::call(app.clone(), request).status.as_u16()
/// };
/// assert_eq!(status("10.0.0.1:5000"), 200);
/// assert_eq!(status("10.6.6.6:5000"), 403);
/// assert_eq!(status("192.0.2.1:5000"), 403);
/// # Ok::<(), weft::Error>(())
/// ```
///
/// A denied network is refused even inside an allowed one. Without allowed networks every address
/// is allowed that is not denied. A peer on a Unix socket has no address: it is refused if there
/// are allowed networks. Behind a proxy, place [`RealAddress`](crate::middleware::RealAddress)
/// first.
#[derive(Clone, Debug, Default)]
pub struct AddressFilter {
    allowed: Arc<[IpNetwork]>,
    denied: Arc<[IpNetwork]>,
}

impl AddressFilter {
    /// Creates the middleware, which allows every address.
    pub fn new() -> AddressFilter {
        AddressFilter::default()
    }

    /// Allows only these networks.
    pub fn allow(self, networks: impl IntoIterator<Item = IpNetwork>) -> AddressFilter {
        AddressFilter { allowed: networks.into_iter().collect(), ..self }
    }

    /// Refuses these networks.
    pub fn deny(self, networks: impl IntoIterator<Item = IpNetwork>) -> AddressFilter {
        AddressFilter { denied: networks.into_iter().collect(), ..self }
    }

    /// Returns true if a client with this address is allowed; `None` is a client on a Unix socket.
    pub fn allows(&self, address: Option<IpAddr>) -> bool {
        let contains = |list: &[IpNetwork]| {
            address.is_some_and(|address| list.iter().any(|network| network.contains(address)))
        };
        !contains(&self.denied) && (self.allowed.is_empty() || contains(&self.allowed))
    }
}

impl Middleware for AddressFilter {
    async fn call(&self, request: Request, next: &impl Application) -> Response {
        match self.allows(request.peer().address().map(|address| address.ip())) {
            true => next.call(request).await,
            false => StatusCode::FORBIDDEN.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn denied_networks_take_precedence() {
        let networks = |list: &str| {
            list.split_whitespace().map(|text| text.parse().unwrap()).collect::<Vec<IpNetwork>>()
        };
        // Allowed and denied networks, an address, and whether it is allowed.
        for (allowed, denied, address, expected) in [
            ("", "", "192.0.2.1", true),
            ("", "", "", true),
            ("192.0.2.0/24", "", "192.0.2.1", true),
            ("192.0.2.0/24", "", "::ffff:192.0.2.1", true),
            ("192.0.2.0/24", "", "192.0.3.1", false),
            ("192.0.2.0/24", "", "::1", false),
            ("192.0.2.0/24 ::1", "", "::1", true),
            ("192.0.2.0/24", "", "", false),
            ("192.0.2.0/24", "192.0.2.1", "192.0.2.1", false),
            ("192.0.2.1", "192.0.2.0/24", "192.0.2.1", false),
            ("", "192.0.2.0/24", "192.0.2.1", false),
            ("", "192.0.2.0/24", "192.0.3.1", true),
            ("", "192.0.2.0/24", "", true),
        ] {
            let filter = AddressFilter::new().allow(networks(allowed)).deny(networks(denied));
            let address = (!address.is_empty()).then(|| address.parse().unwrap());
            assert_eq!(filter.allows(address), expected, "{allowed} | {denied} | {address:?}");
        }
    }
}
