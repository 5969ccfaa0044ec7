//! Requests, in the form that applications use.

mod changes; // fields and body, as middleware changes them
#[cfg(feature = "tower")]
mod parts;
mod prepared; // requests of tests

use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;
use http::header::LINK;
use http::{Extensions, Method, StatusCode};

use crate::error::Result;
use crate::message::body::Body;
use crate::message::connection::{Connection, HalfClose, RequestContext};
use crate::message::fields::Fields;
use crate::message::record_data::RecordData;
use crate::message::request_head::RequestHead;
use crate::message::response::{Response, field_value};
use crate::message::shutdown::Shutdown;
use crate::peer::{Peer, TlsSession};

/// A request: its [`RequestHead`], to which it dereferences, its body and its peer.
///
/// ```
/// use weft::{Request, Response};
///
/// async fn greet(request: Request) -> Response {
///     match (request.method().as_str(), &*request.segments()) {
///         ("GET", ["hello", name]) => Response::text(format!("Hello, {name}!\n")),
///         _ => Response::not_found(),
///     }
/// }
/// # weft::testing::get(greet, "/hello/d%C3%ADas").assert_text("Hello, días!\n");
/// ```
#[derive(Debug)]
pub struct Request {
    head: RequestHead,
    body: Body,
    connection: Connection,
    extensions: Extensions,
}

impl Request {
    #[inline]
    pub(crate) fn new(head: RequestHead, body: Body, shared: Arc<RequestContext>) -> Request {
        let connection = Connection::new(shared);
        Request { head, body, connection, extensions: Extensions::new() }
    }

    /// The head. It can be cloned and kept after the request is passed on.
    #[inline]
    pub fn head(&self) -> &RequestHead {
        &self.head
    }

    /// The connection, with the peer that middleware has set.
    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// The other end of the connection, or the client of a proxy, if middleware has
    /// [set](Request::set_peer) it.
    #[inline]
    pub fn peer(&self) -> &Peer {
        self.connection.peer()
    }

    /// The other end of the connection itself, even if middleware has [set](Request::set_peer)
    /// another peer.
    ///
    /// ```
    /// let mut request = weft::testing::request("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    /// request.set_peer("192.0.2.1:80".parse().unwrap());
    /// assert!(request.peer().address().is_some());
    /// assert_eq!(request.connection_peer().address(), None);
    /// ```
    pub fn connection_peer(&self) -> &Peer {
        self.connection.original_peer()
    }

    /// Returns the verified certificates of the client, in DER, its own first. Empty without TLS,
    /// without client authentication, and if middleware has [set](Request::set_peer) another peer:
    /// the certificate of a proxy is not the certificate of its client.
    ///
    /// ```
    /// let request = weft::testing::request("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    /// assert!(request.client_certificates().is_empty());
    /// ```
    pub fn client_certificates(&self) -> &[Bytes] {
        let session = self.connection_peer().tls().filter(|_| !self.connection.is_peer_set());
        session.map_or(&[], TlsSession::peer_certificates)
    }

    /// Returns true if the connection uses TLS, or, if middleware has
    /// [set](Request::set_secure) it, if the client of a proxy uses HTTPS.
    ///
    /// ```
    /// let request = weft::testing::request("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    /// assert_eq!((request.is_secure(), request.scheme()), (false, "http"));
    /// ```
    pub fn is_secure(&self) -> bool {
        self.connection.is_secure()
    }

    /// The scheme of the request: `https` if it [uses TLS](Request::is_secure), otherwise
    /// `http`.
    pub fn scheme(&self) -> &'static str {
        if self.is_secure() { "https" } else { "http" }
    }

    /// Returns a handle that tells if the client has shut down its sending direction.
    pub fn half_close(&self) -> HalfClose {
        self.connection.half_close()
    }

    /// Returns a handle that is notified of the server's shutdown.
    pub fn shutdown(&self) -> Shutdown {
        self.connection.shutdown()
    }

    /// Sends an interim response 103 (Early Hints, RFC 8297) with these values of `Link`, so that
    /// the client can start to fetch the resources that the response refers to. It is sent when the
    /// future of the application is next pending, at the latest before the response. HTTP/1.0
    /// clients receive none.
    ///
    /// ```
    /// # use weft::{Request, Response};
    /// async fn page(request: Request) -> Response {
    ///     request.early_hints(["</style.css>; rel=preload; as=style"]);
    ///     let page = render().await;
    ///     Response::html(page)
    /// }
    /// # async fn render() -> String { String::new() }
    /// # weft::testing::get(page, "/").assert_text("");
    /// ```
    pub fn early_hints<L: AsRef<[u8]>>(&self, links: impl IntoIterator<Item = L>) {
        let links = links.into_iter().map(|link| (LINK, field_value(link.as_ref())));
        let fields = Fields::Owned(links.collect());
        if !fields.is_empty() {
            self.connection.queue_interim(StatusCode::EARLY_HINTS, fields);
        }
    }

    /// Sends status and fields of an interim response (RFC 9110 §15.2), at the same time as
    /// [`early_hints`](Request::early_hints). The body is ignored. Three kinds of status are not
    /// sent: 100, which the engine sends when the body is read, 101, which is a final response, and
    /// any status other than 1xx.
    ///
    /// ```
    /// # use weft::{Request, Response, StatusCode};
    /// async fn long(request: Request) -> Response {
    ///     request.interim(Response::new(StatusCode::PROCESSING));
    ///     Response::text(work().await)
    /// }
    /// # async fn work() -> String { String::new() }
    /// # weft::testing::get(long, "/").assert_text("");
    /// ```
    pub fn interim(&self, response: Response) {
        let Response { status, headers: fields, .. } = response;
        let is_reserved = [StatusCode::CONTINUE, StatusCode::SWITCHING_PROTOCOLS].contains(&status);
        if status.is_informational() && !is_reserved {
            self.connection.queue_interim(status, fields);
        }
    }

    /// The body, for reading in place.
    #[inline]
    pub fn body(&mut self) -> &mut Body {
        &mut self.body
    }

    /// Returns a request with the same head and connection, without body and extensions, to ask
    /// another application about this one. Its interim responses are not sent.
    ///
    /// ```
    /// use weft::{Application, Request, Response, testing};
    ///
    /// async fn is_permitted(question: Request) -> Response {
    ///     Response::new(if question.path() == "/public" { 200 } else { 403 }.try_into().unwrap())
    /// }
    ///
    /// async fn app(request: Request) -> Response {
    ///     let response = is_permitted(request.without_body()).await;
    ///     if response.status().is_success() { Response::text("Hello\n") } else { response }
    /// }
    /// assert_eq!(testing::get(app, "/public").status, 200);
    /// assert_eq!(testing::get(app, "/private").status, 403);
    /// ```
    pub fn without_body(&self) -> Request {
        let (head, body) = (self.head.clone(), Body::empty());
        let connection = self.connection.without_exchange();
        Request { head, body, connection, extensions: Extensions::new() }
    }

    /// Returns the body.
    #[inline]
    pub fn into_body(self) -> Body {
        self.body
    }

    /// Sets the method for the middleware and application that follow. The presence of a response
    /// body still depends on the method that the client sent.
    pub fn set_method(&mut self, method: Method) {
        self.head.set_method(method);
    }

    /// Changes HEAD to GET for a function, whose response is sent without content.
    #[inline]
    pub(crate) fn handle_head_as_get(&mut self) {
        if *self.method() == Method::HEAD {
            self.set_method(Method::GET);
        }
    }

    /// Sets path and query (`/path?query`, percent-encoded) for the middleware and application that
    /// follow. [`target`](RequestHead::target) does not change.
    ///
    /// # Panics
    /// If it does not start with a slash.
    pub fn set_path_and_query(&mut self, path_and_query: impl Into<Box<str>>) {
        self.head.set_path_and_query(path_and_query.into());
    }

    /// Replaces the fields with the names of `added`, which are lowercase; an empty value removes a
    /// field. The head is copied.
    ///
    /// # Errors
    /// [`HeadTooLarge`](crate::ErrorKind::HeadTooLarge) if the fields exceed the maximum size of a
    /// head.
    pub(crate) fn replace_fields(&mut self, added: &[(&str, &[u8])]) -> Result<()> {
        self.head.replace_fields(added)
    }

    /// Removes the first `bytes` bytes of the path for the middleware and application that follow.
    /// The application is mounted under this prefix, and finds it in
    /// [`mount`](RequestHead::mount). The middleware [`Mount`](crate::middleware::Mount) calls it;
    /// so can a custom router.
    ///
    /// ```
    /// let mut request = weft::testing::request("GET /api/users HTTP/1.1\r\nHost: a\r\n\r\n");
    /// request.take_prefix("/api".len());
    /// assert_eq!((request.mount(), request.path()), ("/api", "/users"));
    /// ```
    ///
    /// # Panics
    /// If the prefix does not end at the end of a segment.
    pub fn take_prefix(&mut self, bytes: usize) {
        self.head.take_prefix(bytes);
    }

    /// Sets the address of the peer for the middleware and application that follow, as received
    /// from a trusted proxy. The request keeps the TLS session of the connection. The
    /// [`Record`](crate::hooks::Record) of the request has this address, too.
    pub fn set_peer(&mut self, address: SocketAddr) {
        self.connection.set_peer(address);
    }

    /// Sets data for the [`Record`](crate::hooks::Record) of the request, which replaces former
    /// data. Without such data, a request costs nothing for it.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use weft::hooks::{Record, RecordData};
    /// use weft::{Application, Hooks, Next, Request, Response};
    ///
    /// #[derive(Debug)]
    /// struct Tenant(String);
    ///
    /// impl RecordData for Tenant {}
    ///
    /// async fn find_tenant(request: Request, next: Next<'_>) -> Response {
    ///     let tenant = request.host().unwrap_or_default().to_owned();
    ///     request.set_record_data(Arc::new(Tenant(tenant)));
    ///     next.call(request).await
    /// }
    ///
    /// struct Log;
    ///
    /// impl Hooks for Log {
    ///     fn on_response(&self, record: &Record<'_>) {
    ///         if let Some(Tenant(name)) = record.data() {
    ///             println!("{name}: {}", record.status);
    ///         }
    ///     }
    /// }
    /// ```
    pub fn set_record_data(&self, data: Arc<dyn RecordData>) {
        self.connection.set_record_data(data);
    }

    /// Sets whether the client uses HTTPS for the middleware and application that follow, as
    /// received from a trusted proxy.
    pub fn set_secure(&mut self, is_secure: bool) {
        self.connection.set_secure(is_secure);
    }

    /// Values that middleware has attached to the request, by type.
    #[inline]
    pub fn extensions(&self) -> &Extensions {
        &self.extensions
    }

    /// Mutable [`extensions`](Request::extensions).
    pub fn extensions_mut(&mut self) -> &mut Extensions {
        &mut self.extensions
    }
}

/// Head and body of a request, for functions that need no more of it.
impl From<Request> for (RequestHead, Body) {
    fn from(request: Request) -> (RequestHead, Body) {
        (request.head, request.body)
    }
}

impl Deref for Request {
    type Target = RequestHead;

    fn deref(&self) -> &RequestHead {
        &self.head
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::watch;

    use super::*;
    use crate::testing::request;

    #[test]
    fn following_middleware_gets_changed_request() {
        let mut request = request("GET /a%20b?c HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(&*request.segments(), ["a b"]);
        let before = request.head().clone();
        request.set_path_and_query("/x%20y/z?q");
        request.set_method(Method::PUT);
        assert_eq!((request.path(), request.query()), ("/x%20y/z", Some("q")));
        assert_eq!(&*request.segments(), ["x y", "z"]);
        assert_eq!((request.method(), request.target()), (&Method::PUT, "/a%20b?c"));
        assert_eq!((before.method(), before.path()), (&Method::GET, "/a%20b"));
        assert_eq!(request.peer().address(), None);
        let address = SocketAddr::from(([192, 0, 2, 1], 80));
        request.set_peer(address);
        assert_eq!(request.peer().address(), Some(address));
    }

    #[test]
    fn take_prefix_moves_path_segments_to_mount() {
        let mut request = request("GET /a%20b/c/d%20?q HTTP/1.1\r\nHost: a\r\n\r\n");
        let before = request.head().clone();
        request.take_prefix("/a%20b".len());
        assert_eq!((request.mount(), request.path()), ("/a%20b", "/c/d%20"));
        assert_eq!(&*request.segments(), ["c", "d "]);
        request.set_path_and_query("/x/y");
        assert_eq!((request.mount(), request.path(), request.query()), ("/a%20b", "/x/y", None));
        request.take_prefix("/x/y".len());
        assert_eq!((request.mount(), request.path()), ("/a%20b/x/y", "/"));
        assert!(request.segments().is_empty());
        assert_eq!(
            (before.mount(), before.path(), request.original_path_and_query()),
            ("", "/a%20b/c/d%20", "/a%20b/c/d%20?q")
        );
    }

    #[test]
    fn reset_discards_interim_responses() {
        let mut shared = RequestContext::new(Arc::default(), Arc::new(watch::channel(None).1));
        let request = |shared: &Arc<RequestContext>| {
            Request::new(
                request("GET / HTTP/1.1\r\nHost: a\r\n\r\n").head,
                Body::empty(),
                shared.clone(),
            )
        };
        let first = request(&shared);
        first.early_hints(["</a>; rel=preload"]);
        assert!(!shared.try_reset(), "the first request still holds the shared state");
        drop(first);
        assert!(shared.try_reset());
        assert!(shared.take_interim().is_none());
    }

    #[test]
    fn request_of_an_earlier_exchange_sends_no_interim_responses() {
        let shared = RequestContext::new(Arc::default(), Arc::new(watch::channel(None).1));
        let next = || {
            shared.begin_exchange();
            let head = request("GET / HTTP/1.1\r\nHost: a\r\n\r\n").head;
            Request::new(head, Body::empty(), shared.clone())
        };
        let links = |shared: &RequestContext| -> Vec<_> {
            let taken = shared.take_interim().into_iter().flatten();
            taken.flat_map(|interim| interim.fields.to_vec()).map(|(_, value)| value).collect()
        };
        let first = next();
        first.early_hints(["<a>"]);
        let second = next();
        first.early_hints(["<b>"]);
        second.early_hints(["<c>"]);
        first.interim(Response::new(StatusCode::PROCESSING));
        second.early_hints(["<d>"]);
        assert_eq!(links(&shared), ["<c>", "<d>"]);
        first.early_hints(["<e>"]);
        assert!(links(&shared).is_empty());
    }
}
