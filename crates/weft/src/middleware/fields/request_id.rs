//! Request IDs, to correlate the entries of a request in several logs.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use http::{HeaderName, HeaderValue};

use crate::app::{Application, Middleware};
use crate::message::request::Request;
use crate::message::response::Response;
use crate::peer::Peer;
use weft_proto::proxy_protocol::IpNetwork;

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Assigns an ID to each request. The application finds it in the request's extensions as
/// [`RequestId`], and the client in the response's `X-Request-Id`.
///
/// ```
/// use weft::middleware::{RequestId, RequestIds};
/// use weft::{Application, Request, Response, testing};
///
/// async fn app(request: Request) -> Response {
///     let id: &RequestId = request.extensions().get().unwrap();
///     Response::text(id.as_str().to_owned())
/// }
///
/// let reply = testing::get(app.wrap(RequestIds::new()), "/");
/// assert_eq!(reply.body.len(), 32);
/// reply.assert_text(reply.header("x-request-id").unwrap());
/// ```
///
/// An ID has 32 hexadecimal digits, is unique, and cannot be predicted from others. It is not a
/// secret, because it is sent to the client. The `X-Request-Id` of a request is used only if its
/// peer is [trusted](RequestIds::trust).
#[derive(Debug)]
pub struct RequestIds {
    /// Name of the field.
    name: HeaderName,
    trusted: Vec<IpNetwork>,
    /// Random keys of this clone.
    keys: RandomState,
    next: AtomicU64,
}

/// The ID of a request: 1 to 128 characters that are letters, digits or one of `-_.:+/=@`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(HeaderValue);

/// Each clone, and so each worker, generates IDs with its own keys.
impl Clone for RequestIds {
    fn clone(&self) -> RequestIds {
        RequestIds { name: self.name.clone(), trusted: self.trusted.clone(), ..RequestIds::new() }
    }
}

impl Default for RequestIds {
    fn default() -> RequestIds {
        RequestIds {
            name: X_REQUEST_ID,
            trusted: Vec::new(),
            keys: RandomState::new(),
            next: AtomicU64::new(0),
        }
    }
}

impl RequestIds {
    /// Generates IDs for all requests.
    pub fn new() -> RequestIds {
        RequestIds::default()
    }

    /// Sets the name of the field in requests and responses. Default: `X-Request-Id`.
    pub fn header(self, name: HeaderName) -> RequestIds {
        RequestIds { name, ..self }
    }

    /// Keeps the `X-Request-Id` of requests from peers in these networks if it is valid as a
    /// [`RequestId`]. If the list is not empty, peers on Unix sockets are trusted too. Default:
    /// none.
    ///
    /// The networks apply to the [peer of the connection](Request::connection_peer).
    pub fn trust(self, networks: impl Into<Vec<IpNetwork>>) -> RequestIds {
        RequestIds { trusted: networks.into(), ..self }
    }

    fn id(&self, request: &Request, peer: &Peer) -> RequestId {
        if !self.trusted.is_empty() && is_trusted(&self.trusted, peer) {
            let mut values = request.headers().get_all(self.name.as_str());
            if let (Some(id), None) = (values.next(), values.next())
                && is_valid_id(id)
                && let Ok(id) = HeaderValue::from_bytes(id)
            {
                return RequestId(id);
            }
        }
        self.generate()
    }

    /// Generates an ID from keyed hashes of two numbers that are used only once.
    fn generate(&self) -> RequestId {
        let sequence = self.next.fetch_add(2, Relaxed);
        let halves = [sequence, sequence.wrapping_add(1)].map(|n| self.keys.hash_one(n));
        let mut digits = [0; 32];
        let quarters = halves.into_iter().flat_map(|half| [half as u32, (half >> 32) as u32]);
        for (eight, quarter) in digits.chunks_exact_mut(8).zip(quarters) {
            eight.copy_from_slice(&hex_digits(quarter).to_le_bytes());
        }
        // One allocation for all clones of the value.
        let digits = Bytes::from_owner(digits);
        RequestId(HeaderValue::from_maybe_shared(digits).expect("digits are a valid field value"))
    }
}

/// Returns the hexadecimal digits of a number, the lowest digit in the lowest byte. All digits are
/// computed at the same time.
fn hex_digits(n: u32) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let n = u64::from(n);
    let n = (n | n << 16) & 0x0000_ffff_0000_ffff;
    let n = (n | n << 8) & 0x00ff_00ff_00ff_00ff;
    let nibbles = (n | n << 4) & 0x0f0f_0f0f_0f0f_0f0f;
    // The fifth bit of a byte is set if its nibble is more than nine.
    let letters = (nibbles + 6 * ONES) >> 4 & ONES;
    nibbles + u64::from(b'0') * ONES + letters * u64::from(b'a' - b'0' - 10)
}

impl Middleware for RequestIds {
    async fn call(&self, mut request: Request, next: &impl Application) -> Response {
        let id = self.id(&request, request.connection_peer());
        request.extensions_mut().insert(id.clone());
        let mut response = next.call(request).await;
        response.remove_header(&self.name);
        response.headers.push((self.name.clone(), id.0.clone()));
        // For hooks and middleware in front of this one.
        response.extensions_mut().insert(id);
        response
    }
}

impl RequestId {
    /// The ID as text.
    pub fn as_str(&self) -> &str {
        self.0.to_str().expect("an ID is ASCII")
    }

    /// The ID as the value of a field.
    pub fn as_value(&self) -> &HeaderValue {
        &self.0
    }
}

/// Returns true if a peer is in one of these networks; a peer on a Unix socket is in any network.
pub(super) fn is_trusted(networks: &[IpNetwork], peer: &Peer) -> bool {
    let ip = peer.address().map(|address| address.ip());
    networks.iter().any(|network| ip.is_none_or(|ip| network.contains(ip)))
}

/// Returns true if an ID is safe in logs and fields without escaping.
fn is_valid_id(id: &[u8]) -> bool {
    let is_allowed = |b: &u8| b.is_ascii_alphanumeric() || b"-_.:+/=@".contains(b);
    (1..=128).contains(&id.len()) && id.iter().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use std::collections::HashSet;

    fn id(ids: &RequestIds, fields: &str, peer: &str) -> String {
        let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        let address = (!peer.is_empty()).then(|| peer.parse().unwrap());
        let peer = Peer { address, ..Peer::default() };
        ids.id(&testing::request(text), &peer).as_str().to_owned()
    }

    #[test]
    fn keeps_valid_ids_of_trusted_peers() {
        let network: IpNetwork = "10.0.0.0/8".parse().unwrap();
        let (trusting, untrusting) = (RequestIds::new().trust([network]), RequestIds::new());
        let long = "x".repeat(128);
        for (ids, value, peer, kept) in [
            (&trusting, "a-1", "10.1.1.1:80", true),
            (&trusting, "a-1", "[::ffff:10.1.1.1]:80", true),
            (&trusting, "a-1", "11.1.1.1:80", false),
            (&trusting, "a-1", "", true),
            (&untrusting, "a-1", "10.1.1.1:80", false),
            (&untrusting, "a-1", "", false),
            (&trusting, "Root=1-67:a/b+c@d_e.f", "10.1.1.1:80", true),
            (&trusting, "", "10.1.1.1:80", false),
            (&trusting, "a b", "10.1.1.1:80", false),
            (&trusting, "a\"b", "10.1.1.1:80", false),
            (&trusting, "a\r\nX-Request-Id: b", "10.1.1.1:80", false),
            (&trusting, &long, "10.1.1.1:80", true),
            (&trusting, &format!("{long}x"), "10.1.1.1:80", false),
        ] {
            let got = id(ids, &format!("X-Request-Id: {value}\r\n"), peer);
            assert_eq!(got == value, kept, "{value} from {peer}");
            assert!(kept || got.len() == 32, "{value} from {peer}: {got}");
        }
    }

    #[test]
    fn formats_hexadecimal_digits() {
        for n in [0, 1, 9, 10, 15, 0x0123_4567, 0x89ab_cdef, 0xfedc_ba98, u32::MAX] {
            let digits: String =
                hex_digits(n).to_le_bytes().iter().rev().map(|&b| b as char).collect();
            assert_eq!(digits, format!("{n:08x}"));
        }
    }

    #[test]
    fn generates_unique_ids() {
        let first = RequestIds::new();
        let mut seen = HashSet::new();
        for ids in [&first, &first.clone(), &RequestIds::new()] {
            for _ in 0..1_000 {
                let id = ids.generate();
                assert!(is_valid_id(id.0.as_bytes()));
                assert!(seen.insert(id));
            }
        }
    }

    #[test]
    fn response_has_exactly_one_id() {
        async fn app(_: Request) -> Response {
            Response::text("").with_header(X_REQUEST_ID, "mine")
        }
        let trace = HeaderName::from_static("x-trace");
        for (name, expected) in [(X_REQUEST_ID, vec![32]), (trace, vec![4, 32])] {
            let ids = RequestIds::new().header(name.clone());
            let reply = testing::get(crate::Application::wrap(app, ids), "/");
            let ids = reply.headers.iter().filter(|(it, _)| *it == X_REQUEST_ID || *it == name);
            assert_eq!(ids.map(|(_, id)| id.len()).collect::<Vec<_>>(), expected);
        }
    }
}
