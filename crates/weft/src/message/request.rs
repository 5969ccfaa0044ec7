//! Requests, in the form that applications use.

mod fields;
#[cfg(feature = "tower")]
mod parts;

use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::LINK;
use http::{Extensions, Method, StatusCode, Version};
use tokio::sync::watch;

use crate::message::body::Body;
use crate::message::fields::Fields;
use crate::message::record_data::RecordData;
use crate::message::response::{Response, field_value};
use crate::peer::{Peer, TlsSession};
use weft_proto::headers::Headers;
use weft_proto::http1::parse::{self, Span};
use weft_proto::semantics::path::{Segments, decode, decode_segments};

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

/// The request line and the header fields. Cloning and moving it is cheap.
#[derive(Clone, Debug, Default)]
pub struct RequestHead(Arc<Inner>);

#[derive(Clone, Debug, Default)]
struct Inner {
    method: Method,
    /// The method that the client sent, if middleware has replaced it.
    received_method: Option<Method>,
    target: Span,
    /// Path and query of the target, as received. This is a copy: the head is stored as bytes,
    /// which would have to be validated as UTF-8 on each access.
    original: String,
    /// Path and query set by middleware, which replace the original ones.
    rewritten: Option<Box<str>>,
    /// End of the path, and start of the query, in `rewritten` or `original`.
    path_end: usize,
    /// Length of the prefix that the application is mounted under.
    mount: usize,
    authority: Option<Span>,
    version: Version,
    headers: Headers,
    decoded: OnceLock<Vec<String>>,
}

/// The state that a connection shares with its requests.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) peer: Peer,
    shutdown: Arc<ShutdownSignal>,
    /// Number of the current exchange. Only the task of the connection changes it.
    exchange: AtomicU32,
    interim: Mutex<Vec<Interim>>,
    /// Set if `interim` may not be empty. It nearly always is empty, and checking a flag is cheaper
    /// than locking.
    has_interim: AtomicBool,
    /// Values that middleware has set for the record of an exchange.
    record_parts: Mutex<Option<Box<RecordParts>>>,
    /// Set once `record_parts` was: most connections never need it.
    has_record_parts: AtomicBool,
    /// Set while the final response is sent, from the first wait for its body.
    is_responding: AtomicBool,
}

/// Values that middleware has set for the [`Record`](crate::Record) of an exchange.
#[derive(Clone, Debug)]
pub(crate) struct RecordParts {
    exchange: u32,
    /// The client in place of the peer.
    pub(crate) client: Option<Peer>,
    pub(crate) data: Option<Arc<dyn RecordData>>,
}

/// A queued interim response.
#[derive(Debug)]
pub(crate) struct Interim {
    /// Number of the exchange of its request.
    exchange: u32,
    pub(crate) status: StatusCode,
    pub(crate) fields: Fields,
}

/// Receiver of the shutdown of the server, with its grace periods.
pub(crate) type ShutdownSignal = watch::Receiver<Option<Drain>>;

/// The grace periods of a shutdown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drain {
    /// Maximum time for requests in flight to complete.
    pub(crate) grace: Duration,
    /// Time in which an idle connection may send one more request, which is its last.
    pub(crate) idle_grace: Duration,
}

impl Shared {
    pub(crate) fn new(peer: Peer, shutdown: Arc<ShutdownSignal>) -> Arc<Shared> {
        let (exchange, interim, has_interim) = Default::default();
        let (record_parts, has_record_parts, is_responding) = Default::default();
        Arc::new(Shared {
            peer,
            shutdown,
            exchange,
            interim,
            has_interim,
            record_parts,
            has_record_parts,
            is_responding,
        })
    }

    /// Creates the shared state of the connection after its TLS handshake.
    pub(crate) fn with_tls(&self, session: TlsSession) -> Arc<Shared> {
        let peer = Peer { tls: Some(Arc::new(session)), ..self.peer.clone() };
        Shared::new(peer, self.shutdown.clone())
    }

    /// Resets the state for the next request. Returns `false` if the application still holds it
    /// for the previous request.
    pub(crate) fn try_reset(self: &mut Arc<Shared>) -> bool {
        let Some(shared) = Arc::get_mut(self) else { return false };
        shared.interim.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
        *shared.has_interim.get_mut() = false;
        *shared.has_record_parts.get_mut() = false;
        true
    }

    pub(crate) fn shutdown(self: &Arc<Shared>) -> Shutdown {
        Shutdown(self.clone())
    }

    /// Begins the next exchange of a connection that shares its state with one request after the
    /// other. Interim responses of the requests before, which tasks may still hold, are not sent.
    pub(crate) fn begin_exchange(&self) {
        self.exchange.store(self.exchange.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// Returns `true` while the final response of the current exchange is sent, from the first wait
    /// for its body.
    pub(crate) fn is_responding(&self) -> bool {
        self.is_responding.load(Relaxed)
    }

    pub(crate) fn set_responding(&self, is_responding: bool) {
        self.is_responding.store(is_responding, Relaxed);
    }

    /// Takes the interim responses of the current exchange.
    #[inline]
    pub(crate) fn take_interim(&self) -> Option<Vec<Interim>> {
        self.has_interim.load(Acquire).then(|| self.take_queued_interim())
    }

    #[cold]
    fn take_queued_interim(&self) -> Vec<Interim> {
        let mut queue = self.lock_interim();
        self.has_interim.store(false, Relaxed);
        let mut interim = std::mem::take(&mut *queue);
        let current = self.exchange.load(Relaxed);
        interim.retain(|interim| interim.exchange == current);
        interim
    }

    /// Changes the values for the record of an exchange, unless it has ended.
    fn update_record_parts(&self, exchange: u32, update: impl FnOnce(&mut RecordParts)) {
        if exchange != self.exchange.load(Relaxed) {
            return;
        }
        let mut parts = self.lock_record_parts();
        match &mut *parts {
            Some(parts) if parts.exchange == exchange && self.has_record_parts.load(Relaxed) => {
                update(parts);
            }
            former => {
                let mut parts = RecordParts { exchange, client: None, data: None };
                update(&mut parts);
                *former = Some(Box::new(parts));
            }
        }
        self.has_record_parts.store(true, Release);
    }

    /// Returns `true` if middleware has set values for the record of this or an earlier exchange.
    #[inline]
    pub(crate) fn has_record_parts(&self) -> bool {
        self.has_record_parts.load(Acquire)
    }

    /// Returns the values for the record of the current exchange, if middleware has set any.
    #[inline]
    pub(crate) fn record_parts(&self) -> Option<RecordParts> {
        if !self.has_record_parts() {
            return None;
        }
        let current = self.exchange.load(Relaxed);
        self.lock_record_parts().as_deref().filter(|parts| parts.exchange == current).cloned()
    }

    fn lock_record_parts(&self) -> MutexGuard<'_, Option<Box<RecordParts>>> {
        self.record_parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues an interim response of the request of an exchange. Another exchange may begin at the
    /// same time, so that [`take_interim`](Shared::take_interim) compares the numbers again.
    fn queue_interim(&self, interim: Interim) {
        if interim.exchange != self.exchange.load(Relaxed) {
            return;
        }
        let mut queue = self.lock_interim();
        self.has_interim.store(true, Release);
        match queue.last_mut() {
            Some(last)
                if (last.exchange, last.status, StatusCode::EARLY_HINTS)
                    == (interim.exchange, interim.status, interim.status) =>
            {
                last.fields.to_mut().extend(interim.fields.iter().cloned());
            }
            _ => queue.push(interim),
        }
    }

    fn lock_interim(&self) -> MutexGuard<'_, Vec<Interim>> {
        self.interim.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Notifies a long-running response of the server's shutdown, so that it can end on its own.
///
/// ```
/// # async fn example(request: weft::Request) {
/// let mut shutdown = request.shutdown();
/// tokio::select! {
///     () = shutdown.requested() => { /* send the last event */ }
///     // event = next_event() => { … }
/// }
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Shutdown(Arc<Shared>);

impl Shutdown {
    /// Waits until a shutdown of the server is requested.
    pub async fn requested(&mut self) {
        // Cloned only here: all workers update the same count of receivers.
        let mut shutdown = ShutdownSignal::clone(&self.0.shutdown);
        if shutdown.wait_for(Option::is_some).await.is_err() {
            // The sender was dropped: no shutdown can follow.
            std::future::pending().await
        }
    }

    /// Returns `true` if a shutdown of the server was requested.
    pub fn is_requested(&self) -> bool {
        self.0.shutdown.borrow().is_some()
    }
}

/// The connection of a request: its peer, and the server's shutdown. It is an extension of the
/// requests that a [tower service](crate::tower) receives.
#[derive(Clone, Debug)]
pub struct Connection {
    shared: Arc<Shared>,
    /// Number of the exchange of the request.
    exchange: u32,
    /// Peer set by middleware, which replaces that of the connection.
    peer: Option<Box<Peer>>,
    /// Set by middleware if the client of a proxy uses HTTPS, or does not.
    is_secure: Option<bool>,
}

impl Connection {
    /// The same as [`Request::peer`].
    pub fn peer(&self) -> &Peer {
        self.peer.as_deref().unwrap_or(&self.shared.peer)
    }

    /// The same as [`Request::is_secure`].
    pub fn is_secure(&self) -> bool {
        self.is_secure.unwrap_or(self.shared.peer.tls.is_some())
    }

    /// The same as [`Request::shutdown`].
    pub fn shutdown(&self) -> Shutdown {
        self.shared.shutdown()
    }
}

impl Request {
    pub(crate) fn new(head: RequestHead, body: Body, shared: Arc<Shared>) -> Request {
        let exchange = shared.exchange.load(Relaxed);
        let connection = Connection { shared, exchange, peer: None, is_secure: None };
        Request { head, body, connection, extensions: Extensions::new() }
    }

    /// The head. It can be cloned and kept after the request is passed on.
    pub fn head(&self) -> &RequestHead {
        &self.head
    }

    /// The other end of the connection, or the client of a proxy, if middleware has
    /// [set](Request::set_peer) it.
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
        &self.connection.shared.peer
    }

    /// Returns `true` if the connection uses TLS, or, if middleware has
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
            self.queue_interim(StatusCode::EARLY_HINTS, fields);
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
            self.queue_interim(status, fields);
        }
    }

    fn queue_interim(&self, status: StatusCode, fields: Fields) {
        let Connection { shared, exchange, .. } = &self.connection;
        shared.queue_interim(Interim { exchange: *exchange, status, fields });
    }

    /// The body, for reading in place.
    pub fn body(&mut self) -> &mut Body {
        &mut self.body
    }

    /// Splits the request into head and body, so that a `match` on the segments of the head can
    /// pass the body on.
    pub fn into_parts(self) -> (RequestHead, Body) {
        (self.head, self.body)
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
    ///     let answer = is_permitted(request.without_body()).await;
    ///     if answer.status().is_success() { Response::text("Hello\n") } else { answer }
    /// }
    /// assert_eq!(testing::get(app, "/public").status, 200);
    /// assert_eq!(testing::get(app, "/private").status, 403);
    /// ```
    pub fn without_body(&self) -> Request {
        let Connection { shared, exchange, peer, is_secure } = self.connection.clone();
        // Half of all numbers away from that of the exchange in progress.
        let exchange = exchange ^ 1 << 31;
        let connection = Connection { shared, exchange, peer, is_secure };
        let (head, body) = (self.head.clone(), Body::empty());
        Request { head, body, connection, extensions: Extensions::new() }
    }

    /// Returns the body.
    pub fn into_body(self) -> Body {
        self.body
    }

    /// Sets the method for the middleware and application that follow. The presence of a response
    /// body still depends on the method that the client sent.
    pub fn set_method(&mut self, method: Method) {
        self.head.set_method(method);
    }

    /// Sets path and query (`/path?query`, percent-encoded) for the middleware and application that
    /// follow. [`target`](RequestHead::target) does not change.
    ///
    /// # Panics
    /// If it does not start with a slash.
    pub fn set_path_and_query(&mut self, path_and_query: impl Into<Box<str>>) {
        let path_and_query = path_and_query.into();
        assert!(path_and_query.starts_with('/'), "a path starts with a slash: {path_and_query:?}");
        let rewritten = match self.head.mount() {
            "" => path_and_query,
            mount => [mount, &*path_and_query].concat().into(),
        };
        let inner = Arc::make_mut(&mut self.head.0);
        inner.path_end = path_end(&rewritten);
        inner.rewritten = Some(rewritten);
        inner.decoded = OnceLock::new();
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
        let rest = self.head.path_and_query().get(bytes..);
        let ends_segment = |rest: &str| rest.is_empty() || rest.starts_with(['/', '?']);
        let is_valid = bytes == 0 || rest.is_some_and(ends_segment);
        assert!(is_valid, "a prefix of {bytes} bytes ends inside a segment");
        let inner = Arc::make_mut(&mut self.head.0);
        inner.mount += bytes;
        inner.decoded = OnceLock::new();
    }

    /// Sets the address of the peer for the middleware and application that follow, as received
    /// from a trusted proxy. The TLS session remains that of the connection. The
    /// [`Record`](crate::Record) of the request has this address, too.
    pub fn set_peer(&mut self, address: SocketAddr) {
        let Connection { shared, exchange, .. } = &self.connection;
        let peer = Peer { address: Some(address), ..shared.peer.clone() };
        shared.update_record_parts(*exchange, |parts| parts.client = Some(peer.clone()));
        self.connection.peer = Some(Box::new(peer));
    }

    /// Sets data for the [`Record`](crate::Record) of the request, which replaces former data.
    /// Without such data, a request costs nothing for it.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use weft::{Application, Hooks, Next, Record, RecordData, Request, Response};
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
        let Connection { shared, exchange, .. } = &self.connection;
        shared.update_record_parts(*exchange, |parts| parts.data = Some(data));
    }

    /// Sets whether the client uses HTTPS for the middleware and application that follow, as received
    /// from a trusted proxy.
    pub fn set_secure(&mut self, is_secure: bool) {
        self.connection.is_secure = Some(is_secure);
    }

    /// Values that middleware has attached to the request, by type.
    pub fn extensions(&self) -> &Extensions {
        &self.extensions
    }

    /// Mutable [`extensions`](Request::extensions).
    pub fn extensions_mut(&mut self) -> &mut Extensions {
        &mut self.extensions
    }
}

/// The same as [`Request::into_parts`].
impl From<Request> for (RequestHead, Body) {
    fn from(request: Request) -> (RequestHead, Body) {
        request.into_parts()
    }
}

impl Deref for Request {
    type Target = RequestHead;

    fn deref(&self) -> &RequestHead {
        &self.head
    }
}

impl RequestHead {
    #[inline]
    pub(crate) fn new(
        method: Method,
        version: Version,
        target: Span,
        (authority, path_and_query): (Option<Span>, Span),
        headers: Headers,
    ) -> RequestHead {
        let original = as_text(path_and_query.of(headers.text())).to_owned();
        let path_end = path_end(&original);
        let rest = Inner::default();
        let inner =
            Inner { method, target, original, path_end, authority, version, headers, ..rest };
        RequestHead(Arc::new(inner))
    }

    /// Replaces this head with the one that was parsed from `text`. The allocation is reused,
    /// unless the application still holds the previous head. The parser gets the field list of the
    /// previous head in exchange.
    pub(crate) fn set_parsed(
        &mut self,
        parsed: &mut parse::ParsedHead,
        text: Bytes,
        (authority, path_and_query): (Option<Span>, Span),
    ) {
        let parts = self.unique_inner();
        std::mem::swap(&mut parts.method, &mut parsed.method);
        parts.received_method = None;
        parts.version = parsed.version;
        parts.target = parsed.target;
        parts.authority = authority;
        parts.original.clear();
        parts.original.push_str(as_text(path_and_query.of(&text)));
        parts.path_end = path_end(&parts.original);
        parts.headers.replace(text, &mut parsed.fields);
        parts.rewritten = None;
        parts.mount = 0;
        parts.decoded.take();
    }

    /// Releases the text of the head, which is a slice of the input buffer. Returns `false` if the
    /// application still holds the head, and with it the text.
    pub(crate) fn release_text(&mut self) -> bool {
        let Some(inner) = Arc::get_mut(&mut self.0) else { return false };
        inner.headers.clear();
        if inner.original.capacity() > MAX_RETAINED_TARGET_BYTES {
            inner.original = String::new();
        }
        true
    }

    fn unique_inner(&mut self) -> &mut Inner {
        if Arc::strong_count(&self.0) > 1 {
            self.0 = Arc::default();
        }
        Arc::get_mut(&mut self.0).expect("a new Arc is not shared")
    }

    /// The method.
    pub fn method(&self) -> &Method {
        &self.0.method
    }

    /// Replaces the method. The received one is kept.
    pub(crate) fn set_method(&mut self, method: Method) {
        let head = Arc::make_mut(&mut self.0);
        let former = std::mem::replace(&mut head.method, method);
        head.received_method.get_or_insert(former);
    }

    /// The method that the client sent, which determines the effect of preconditions and ranges and
    /// the presence of a response body.
    pub(crate) fn received_method(&self) -> &Method {
        self.0.received_method.as_ref().unwrap_or(&self.0.method)
    }

    /// The HTTP version of the request.
    pub fn version(&self) -> Version {
        self.0.version
    }

    /// The header fields.
    pub fn headers(&self) -> &Headers {
        &self.0.headers
    }

    /// The request target as received, in any of its forms (RFC 9112 §3.2).
    pub fn target(&self) -> &str {
        self.text(self.0.target)
    }

    /// The path, percent-encoded as received. `*` for the asterisk form, empty for the authority
    /// form; any other empty path is returned as `/` (RFC 9110 §4.2.3).
    pub fn path(&self) -> &str {
        match &self.mounted()[self.0.mount..self.0.path_end] {
            "" if self.0.method != Method::CONNECT => "/",
            path => path,
        }
    }

    /// The whole path: the [`mount`](RequestHead::mount) and the path below it.
    ///
    /// ```
    /// let mut request = weft::testing::request("GET /api/users?a HTTP/1.1\r\nHost: a\r\n\r\n");
    /// request.take_prefix("/api".len());
    /// assert_eq!((request.full_path(), request.path()), ("/api/users", "/users"));
    /// ```
    pub fn full_path(&self) -> &str {
        match &self.mounted()[..self.0.path_end] {
            "" if self.0.method != Method::CONNECT => "/",
            path => path,
        }
    }

    /// The path, percent-decoded as a whole, for display. Use [`segments`](RequestHead::segments)
    /// for routing: in a decoded path, an encoded slash cannot be distinguished from a separator.
    /// Bytes that are not valid UTF-8 are replaced by U+FFFD.
    pub fn decoded_path(&self) -> String {
        String::from_utf8_lossy(&decode(self.path().as_bytes())).into_owned()
    }

    /// The query, after the `?` of the target, percent-encoded as received.
    pub fn query(&self) -> Option<&str> {
        self.mounted().get(self.0.path_end + 1..)
    }

    /// The segments of the path, each percent-decoded, so that routing can be a
    /// `match` on a slice: `/` is `[]`, `/a/` is `["a", ""]`, and
    /// `/buenos/d%C3%ADas` is `["buenos", "días"]`.
    pub fn segments(&self) -> Segments<'_> {
        let path = self.path();
        Segments::new(path, || self.0.decoded.get_or_init(|| decode_segments(path)))
    }

    /// The authority of the request: that of the target, if it has one (RFC 9112 §3.2.2), otherwise
    /// the `Host` field. `None` if there is neither.
    pub fn authority(&self) -> Option<&str> {
        match self.0.authority {
            Some(authority) => Some(self.text(authority)),
            None => self.0.headers.get("host"),
        }
    }

    /// The host of the request: the authority without its port, and without the trailing dot of a
    /// fully qualified name. Compare host names case-insensitively; an IPv6 address is in brackets.
    ///
    /// ```
    /// let request = weft::testing::request("GET / HTTP/1.1\r\nHost: Example.org.:8080\r\n\r\n");
    /// assert_eq!(request.host(), Some("Example.org"));
    /// ```
    pub fn host(&self) -> Option<&str> {
        self.authority().map(host)
    }

    /// The prefix removed from the path because the application is mounted under it
    /// ([`Mount`](crate::middleware::Mount), [`StripPrefix`](crate::middleware::StripPrefix)),
    /// as received: empty, or `/prefix`. Links to paths of the application start with it.
    pub fn mount(&self) -> &str {
        &self.mounted()[..self.0.mount]
    }

    /// Path and query.
    pub(crate) fn path_and_query(&self) -> &str {
        &self.mounted()[self.0.mount..]
    }

    /// The mount prefix, path and query.
    fn mounted(&self) -> &str {
        self.0.rewritten.as_deref().unwrap_or(&self.0.original)
    }

    /// Path and query as received, without the changes of middleware.
    pub(crate) fn original_path_and_query(&self) -> &str {
        &self.0.original
    }

    fn text(&self, span: Span) -> &str {
        as_text(span.of(self.0.headers.text()))
    }
}

/// Largest capacity for the target that a head retains between requests.
const MAX_RETAINED_TARGET_BYTES: usize = 1 << 10;

fn as_text(target: &[u8]) -> &str {
    std::str::from_utf8(target).expect("framing rejects a target that is not UTF-8")
}

/// Returns the end of the path in path and query. Searches byte by byte, because paths are short.
fn path_end(path_and_query: &str) -> usize {
    path_and_query.bytes().position(|b| b == b'?').unwrap_or(path_and_query.len())
}

/// Returns an authority without its port and trailing dot.
pub(crate) fn host(authority: &str) -> &str {
    let end = match authority.find(']') {
        Some(bracket) => bracket + 1,
        None => authority.find(':').unwrap_or(authority.len()),
    };
    let host = &authority[..end];
    host.strip_suffix('.').unwrap_or(host)
}

#[cfg(test)]
mod tests {
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
    fn releases_capacity_of_long_target() {
        let mut head = RequestHead::default();
        for (bytes, is_retained) in
            [(MAX_RETAINED_TARGET_BYTES, true), (8 * MAX_RETAINED_TARGET_BYTES, false)]
        {
            head.unique_inner().original = String::with_capacity(bytes);
            assert!(head.release_text());
            assert_eq!(head.0.original.capacity() == bytes, is_retained, "{bytes}");
        }
    }

    #[test]
    fn reset_discards_interim_responses() {
        let mut shared = Shared::new(Peer::default(), Arc::new(watch::channel(None).1));
        let request = |shared: &Arc<Shared>| {
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
        let shared = Shared::new(Peer::default(), Arc::new(watch::channel(None).1));
        let next = || {
            shared.begin_exchange();
            let head = request("GET / HTTP/1.1\r\nHost: a\r\n\r\n").head;
            Request::new(head, Body::empty(), shared.clone())
        };
        let links = |shared: &Shared| -> Vec<_> {
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

    #[test]
    fn host_strips_port_and_trailing_dot() {
        for (authority, name) in [
            ("a", "a"),
            ("A.b:80", "A.b"),
            ("a.:80", "a"),
            ("a:", "a"),
            ("", ""),
            ("[::1]", "[::1]"),
            ("[::1]:80", "[::1]"),
        ] {
            assert_eq!(host(authority), name, "{authority}");
        }
    }
}
