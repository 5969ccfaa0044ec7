//! A name for each request, by which its traces in several logs are found.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use http::{HeaderName, HeaderValue};

use crate::app::{Application, Middleware};
use crate::message::request::Request;
use crate::message::response::Response;
use crate::peer::Peer;
use crate::proto::proxy_protocol::Network;

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Gives each request an id, which the application finds in its extensions as [`RequestId`]
/// and the client in the response's `X-Request-Id`.
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
/// let reply = testing::get(app.with(RequestIds::new()), "/");
/// assert_eq!(reply.body.len(), 32);
/// reply.assert_text(reply.header("x-request-id").unwrap());
/// ```
///
/// An id is 32 hexadecimal digits, of which no two are alike and none tells about another.
/// It is no secret: the client has it. The `X-Request-Id` of a request is believed only from
/// [trusted](RequestIds::trust) peers.
#[derive(Debug)]
pub struct RequestIds {
    trusted: Vec<Network>,
    /// Random keys of this clone.
    keys: RandomState,
    made: AtomicU64,
}

/// The id of a request: 1 to 128 characters that are letters, digits or one of `-_.:+/=@`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(HeaderValue);

/// Each clone, and so each worker, makes ids with keys of its own.
impl Clone for RequestIds {
    fn clone(&self) -> RequestIds {
        RequestIds { trusted: self.trusted.clone(), ..RequestIds::new() }
    }
}

impl Default for RequestIds {
    fn default() -> RequestIds {
        RequestIds { trusted: Vec::new(), keys: RandomState::new(), made: AtomicU64::new(0) }
    }
}

impl RequestIds {
    /// New ids for all requests.
    pub fn new() -> RequestIds {
        RequestIds::default()
    }

    /// Takes over what peers in these networks say in `X-Request-Id`, if it is fit to be a
    /// [`RequestId`]. If there are any networks, peers on Unix sockets are trusted too.
    /// Default: nobody.
    ///
    /// This is about the other end of the connection, so it has to stand before
    /// [`RealAddress`](super::RealAddress).
    pub fn trust(self, networks: impl Into<Vec<Network>>) -> RequestIds {
        RequestIds { trusted: networks.into(), ..self }
    }

    fn id(&self, request: &Request) -> RequestId {
        if !self.trusted.is_empty() && trusts(&self.trusted, request.peer()) {
            let mut said = request.headers().get_all("x-request-id");
            if let (Some(id), None) = (said.next(), said.next())
                && is_sane(id)
                && let Ok(id) = HeaderValue::from_bytes(id)
            {
                return RequestId(id);
            }
        }
        self.make()
    }

    /// The keyed hashes of a number that does not come again.
    fn make(&self) -> RequestId {
        let number = self.made.fetch_add(2, Relaxed);
        let halves = [number, number.wrapping_add(1)].map(|n| self.keys.hash_one(n));
        let mut digits = [0; 32];
        for (digit, n) in digits.iter_mut().zip(0..) {
            let nibble = halves[n / 16] >> (n % 16 * 4) & 15;
            *digit = b"0123456789abcdef"[nibble as usize];
        }
        RequestId(HeaderValue::from_bytes(&digits).expect("digits are a field's value"))
    }
}

impl Middleware for RequestIds {
    async fn call(&self, mut request: Request, next: &impl Application) -> Response {
        let id = self.id(&request);
        request.extensions_mut().insert(id.clone());
        let mut response = next.call(request).await;
        response.remove_header(X_REQUEST_ID);
        response.headers.to_mut().push((X_REQUEST_ID, id.0));
        response
    }
}

impl RequestId {
    /// The id as text.
    pub fn as_str(&self) -> &str {
        self.0.to_str().expect("an id is ASCII")
    }
}

/// Whether a peer is in one of these networks; one on a Unix socket is in any.
pub(super) fn trusts(networks: &[Network], peer: &Peer) -> bool {
    let ip = peer.address().map(|address| address.ip());
    networks.iter().any(|network| ip.is_none_or(|ip| network.contains(ip)))
}

/// Whether an id can go into logs and fields as it is.
fn is_sane(id: &[u8]) -> bool {
    let fits = |b: &u8| b.is_ascii_alphanumeric() || b"-_.:+/=@".contains(b);
    (1..=128).contains(&id.len()) && id.iter().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use std::collections::HashSet;

    fn id(ids: &RequestIds, fields: &str, peer: &str) -> String {
        let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        let mut request = testing::request(text);
        if !peer.is_empty() {
            request.set_peer(peer.parse().unwrap());
        }
        ids.id(&request).as_str().to_owned()
    }

    #[test]
    fn who_is_believed() {
        let network: Network = "10.0.0.0/8".parse().unwrap();
        let (trusting, wary) = (RequestIds::new().trust([network]), RequestIds::new());
        let long = "x".repeat(128);
        for (ids, value, peer, believed) in [
            (&trusting, "a-1", "10.1.1.1:80", true),
            (&trusting, "a-1", "[::ffff:10.1.1.1]:80", true),
            (&trusting, "a-1", "11.1.1.1:80", false),
            (&trusting, "a-1", "", true),
            (&wary, "a-1", "10.1.1.1:80", false),
            (&wary, "a-1", "", false),
            (&trusting, "Root=1-67:a/b+c@d_e.f", "10.1.1.1:80", true),
            (&trusting, "", "10.1.1.1:80", false),
            (&trusting, "a b", "10.1.1.1:80", false),
            (&trusting, "a\"b", "10.1.1.1:80", false),
            (&trusting, "a\r\nX-Request-Id: b", "10.1.1.1:80", false),
            (&trusting, &long, "10.1.1.1:80", true),
            (&trusting, &format!("{long}x"), "10.1.1.1:80", false),
        ] {
            let got = id(ids, &format!("X-Request-Id: {value}\r\n"), peer);
            assert_eq!(got == value, believed, "{value} from {peer}");
            assert!(believed || got.len() == 32, "{value} from {peer}: {got}");
        }
    }

    #[test]
    fn no_two_are_alike() {
        let first = RequestIds::new();
        let mut seen = HashSet::new();
        for ids in [&first, &first.clone(), &RequestIds::new()] {
            for _ in 0..1_000 {
                let id = ids.make();
                assert!(is_sane(id.0.as_bytes()));
                assert!(seen.insert(id));
            }
        }
    }

    #[test]
    fn the_response_has_it_once() {
        async fn app(_: Request) -> Response {
            Response::text("").with_header(X_REQUEST_ID, "mine")
        }
        let reply = testing::get(crate::Application::with(app, RequestIds::new()), "/");
        let ids = reply.headers.iter().filter(|(name, _)| *name == X_REQUEST_ID);
        assert_eq!(ids.map(|(_, id)| id.len()).collect::<Vec<_>>(), [32]);
    }
}
