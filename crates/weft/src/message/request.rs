//! A request as an application sees it.

#[cfg(feature = "tower")]
mod parts;

use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::LINK;
use http::{Extensions, Method, StatusCode, Version};
use tokio::sync::watch;

use crate::message::body::Body;
use crate::message::fields::Fields;
use crate::message::response::{Response, field_value};
use crate::peer::{Peer, TlsSession};
use weft_proto::headers::Headers;
use weft_proto::http1::parse::{self, Span};
use weft_proto::semantics::path::{Segments, decode, decode_segments};

/// A request: its [`RequestHead`], which it derefs to, its body, and who sent it.
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

/// The request line and the fields. It is cheap to clone, and to move.
#[derive(Clone, Debug, Default)]
pub struct RequestHead(Arc<Parts>);

#[derive(Clone, Debug, Default)]
struct Parts {
    method: Method,
    target: Span,
    /// The part of the target that names something on this server: path and query. A copy,
    /// for the bytes of the head are no text, and would have to be checked whenever it is
    /// asked for.
    sent: String,
    /// What stands in place of that, if middleware has said so.
    rewritten: Option<Box<str>>,
    /// Where the path ends in what stands, and the query begins.
    path_end: usize,
    /// How many bytes of it are taken away: the prefix that the application is mounted under.
    mount: usize,
    authority: Option<Span>,
    version: Version,
    headers: Headers,
    decoded: OnceLock<Vec<String>>,
}

/// What a connection and its requests share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) peer: Peer,
    stop: Arc<Stop>,
    interim: Mutex<Vec<Interim>>,
    /// Whether there may be one: nearly always not, and to look is cheaper than to lock.
    has_interim: AtomicBool,
}

/// An interim response that waits to go out.
#[derive(Debug)]
pub(crate) struct Interim {
    pub(crate) status: StatusCode,
    pub(crate) fields: Fields,
}

/// Tells when the server is to stop, and how.
pub(crate) type Stop = watch::Receiver<Option<Drain>>;

/// How a server stops.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drain {
    /// How long it waits for what is under way.
    pub(crate) grace: Duration,
    /// How long a connection at rest may still bring a request, which is its last.
    pub(crate) idle_grace: Duration,
}

impl Shared {
    pub(crate) fn new(peer: Peer, stop: Arc<Stop>) -> Arc<Shared> {
        let (interim, has_interim) = Default::default();
        Arc::new(Shared { peer, stop, interim, has_interim })
    }

    /// The same on a connection that TLS was agreed on for.
    pub(crate) fn secured(&self, session: TlsSession) -> Arc<Shared> {
        let peer = Peer { address: self.peer.address, tls: Some(Arc::new(session)) };
        Shared::new(peer, self.stop.clone())
    }

    /// Makes it fit for the next request; `false` if somebody still has it for this one.
    pub(crate) fn renew(self: &mut Arc<Shared>) -> bool {
        let Some(own) = Arc::get_mut(self) else { return false };
        own.interim.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
        *own.has_interim.get_mut() = false;
        true
    }

    pub(crate) fn shutdown(self: &Arc<Shared>) -> Shutdown {
        Shutdown(self.clone())
    }

    #[inline]
    pub(crate) fn take_interim(&self) -> Option<Vec<Interim>> {
        if !self.has_interim.load(Acquire) {
            return None;
        }
        let mut interim = self.lock_interim();
        self.has_interim.store(false, Relaxed);
        Some(std::mem::take(&mut *interim))
    }

    /// The interim responses, to be added to.
    fn interim(&self) -> MutexGuard<'_, Vec<Interim>> {
        let interim = self.lock_interim();
        self.has_interim.store(true, Release);
        interim
    }

    fn lock_interim(&self) -> MutexGuard<'_, Vec<Interim>> {
        self.interim.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells a long response that the server is to stop, so that it can end by itself.
///
/// ```
/// # async fn example(request: weft::Request) {
/// let mut shutdown = request.shutdown();
/// tokio::select! {
///     () = shutdown.requested() => { /* say goodbye */ }
///     // event = next_event() => { … }
/// }
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Shutdown(Arc<Shared>);

impl Shutdown {
    /// Waits until the server is to stop.
    pub async fn requested(&mut self) {
        // Cloned here and not sooner: the workers share the count of receivers.
        let mut stop = Stop::clone(&self.0.stop);
        if stop.wait_for(Option::is_some).await.is_err() {
            // Nobody is left who could stop the server.
            std::future::pending().await
        }
    }

    /// Whether the server is to stop.
    pub fn is_requested(&self) -> bool {
        self.0.stop.borrow().is_some()
    }
}

/// What a request knows of its connection: who is at the other end, and whether the server is
/// to stop. It rides in the extensions of the requests that a [tower service](crate::tower)
/// gets.
#[derive(Clone, Debug)]
pub struct Connection {
    shared: Arc<Shared>,
    /// In place of the connection's, if middleware has said so.
    peer: Option<Box<Peer>>,
}

impl Connection {
    /// The same as [`Request::peer`].
    pub fn peer(&self) -> &Peer {
        self.peer.as_deref().unwrap_or(&self.shared.peer)
    }

    /// The same as [`Request::shutdown`].
    pub fn shutdown(&self) -> Shutdown {
        self.shared.shutdown()
    }
}

impl Request {
    pub(crate) fn new(head: RequestHead, body: Body, shared: Arc<Shared>) -> Request {
        let connection = Connection { shared, peer: None };
        Request { head, body, connection, extensions: Extensions::new() }
    }

    /// The head, which can be cloned and kept when the request is handed on.
    pub fn head(&self) -> &RequestHead {
        &self.head
    }

    /// The other end of the connection, or the client that a proxy asks for, where
    /// [that was said](Request::set_peer).
    pub fn peer(&self) -> &Peer {
        self.connection.peer()
    }

    /// Whether the connection is encrypted by TLS. What a proxy in front says of its own
    /// client does not count.
    ///
    /// ```
    /// let request = weft::testing::request("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    /// assert_eq!((request.is_secure(), request.scheme()), (false, "http"));
    /// ```
    pub fn is_secure(&self) -> bool {
        self.connection.shared.peer.tls.is_some()
    }

    /// The scheme of the connection: `https` if it is [encrypted](Request::is_secure),
    /// otherwise `http`.
    pub fn scheme(&self) -> &'static str {
        if self.is_secure() { "https" } else { "http" }
    }

    /// Tells when the server is to stop.
    pub fn shutdown(&self) -> Shutdown {
        self.connection.shutdown()
    }

    /// Sends an interim response 103 (RFC 8297) with these values of `Link`, so that the
    /// client can begin to fetch what the response will need. It leaves when the
    /// application next waits for something, and at the latest before the response; a
    /// client of HTTP/1.0 gets none.
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
        let mut interim = self.connection.shared.interim();
        match interim.last_mut() {
            Some(Interim { status: StatusCode::EARLY_HINTS, fields }) => {
                fields.to_mut().extend(links);
            }
            _ => {
                let fields = Fields::Owned(links.collect());
                if !fields.is_empty() {
                    interim.push(Interim { status: StatusCode::EARLY_HINTS, fields });
                }
            }
        }
    }

    /// Sends status and fields of an interim response (RFC 9110 §15.2), as
    /// [`early_hints`](Request::early_hints) does; a body has none. Not sent are 100, for
    /// the engine says that when the body is read, 101, which is a response, and whatever is
    /// not 1xx.
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
        let is_ours = [StatusCode::CONTINUE, StatusCode::SWITCHING_PROTOCOLS].contains(&status);
        if status.is_informational() && !is_ours {
            self.connection.shared.interim().push(Interim { status, fields });
        }
    }

    /// The body, to be read in place.
    pub fn body(&mut self) -> &mut Body {
        &mut self.body
    }

    /// The head and the body, each on its own: so a `match` on the head's segments can
    /// hand the body on.
    pub fn into_parts(self) -> (RequestHead, Body) {
        (self.head, self.body)
    }

    /// The body alone.
    pub fn into_body(self) -> Body {
        self.body
    }

    /// Sets the method for whoever sees the request after this. Whether the response has a
    /// body still hangs on the method that the client sent.
    pub fn set_method(&mut self, method: Method) {
        Arc::make_mut(&mut self.head.0).method = method;
    }

    /// Sets path and query (`/path?query`, percent-encoded) for whoever sees the request after
    /// this; [`target`](RequestHead::target) stays what the client sent.
    ///
    /// # Panics
    /// If it does not begin with a slash.
    pub fn set_path_and_query(&mut self, local: impl Into<Box<str>>) {
        let local = local.into();
        assert!(local.starts_with('/'), "a path begins with a slash: {local:?}");
        let whole = match self.head.mount() {
            "" => local,
            mount => [mount, &*local].concat().into(),
        };
        let parts = Arc::make_mut(&mut self.head.0);
        parts.path_end = path_end(&whole);
        parts.rewritten = Some(whole);
        parts.decoded = OnceLock::new();
    }

    /// Takes the first so many bytes of the path away, for whoever sees the request after
    /// this: the application is mounted under them, and finds them in
    /// [`mount`](RequestHead::mount). [`Mount`](crate::middleware::Mount) does this for a prefix; here
    /// is what a router of one's own needs.
    ///
    /// ```
    /// let mut request = weft::testing::request("GET /api/users HTTP/1.1\r\nHost: a\r\n\r\n");
    /// request.take_prefix("/api".len());
    /// assert_eq!((request.mount(), request.path()), ("/api", "/users"));
    /// ```
    ///
    /// # Panics
    /// If they do not end where a segment does.
    pub fn take_prefix(&mut self, bytes: usize) {
        let rest = self.head.local().get(bytes..);
        let ends_segment = |rest: &str| rest.is_empty() || rest.starts_with(['/', '?']);
        let is_sound = bytes == 0 || rest.is_some_and(ends_segment);
        assert!(is_sound, "a prefix of {bytes} bytes cuts a segment");
        let parts = Arc::make_mut(&mut self.head.0);
        parts.mount += bytes;
        parts.decoded = OnceLock::new();
    }

    /// Sets who the other end is, for whoever sees the request after this: a trusted proxy
    /// has said for whom it asks. What is known of TLS stays that of the connection.
    pub fn set_peer(&mut self, address: SocketAddr) {
        let tls = self.connection.shared.peer.tls.clone();
        self.connection.peer = Some(Box::new(Peer { address: Some(address), tls }));
    }

    /// What middleware has to say about the request, by type.
    pub fn extensions(&self) -> &Extensions {
        &self.extensions
    }

    /// The same, to be added to.
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
        (authority, local): (Option<Span>, Span),
        headers: Headers,
    ) -> RequestHead {
        let sent = as_text(local.of(headers.text())).to_owned();
        let path_end = path_end(&sent);
        let rest = Parts::default();
        let parts = Parts { method, target, sent, path_end, authority, version, headers, ..rest };
        RequestHead(Arc::new(parts))
    }

    /// Becomes the head that was parsed of this text, in the memory that it has if nobody else
    /// has kept it. The parser gets the room for its fields in exchange.
    pub(crate) fn renew(
        &mut self,
        parsed: &mut parse::ParsedHead,
        text: Bytes,
        (authority, local): (Option<Span>, Span),
    ) {
        let parts = self.own();
        std::mem::swap(&mut parts.method, &mut parsed.method);
        parts.version = parsed.version;
        parts.target = parsed.target;
        parts.authority = authority;
        parts.sent.clear();
        parts.sent.push_str(as_text(local.of(&text)));
        parts.path_end = path_end(&parts.sent);
        parts.headers.replace(text, &mut parsed.fields);
        parts.rewritten = None;
        parts.mount = 0;
        parts.decoded.take();
    }

    /// Lets go of the text, which is a part of what was read. `false` if somebody else has
    /// kept the head, and with it the text.
    pub(crate) fn forget(&mut self) -> bool {
        let Some(parts) = Arc::get_mut(&mut self.0) else { return false };
        parts.headers.clear();
        if parts.sent.capacity() > MAX_KEPT_TARGET_BYTES {
            parts.sent = String::new();
        }
        true
    }

    fn own(&mut self) -> &mut Parts {
        if Arc::strong_count(&self.0) > 1 {
            self.0 = Arc::default();
        }
        Arc::get_mut(&mut self.0).expect("nobody else has it")
    }

    /// The method.
    pub fn method(&self) -> &Method {
        &self.0.method
    }

    /// The version of the protocol that the request came in.
    pub fn version(&self) -> Version {
        self.0.version
    }

    /// The fields of the head.
    pub fn headers(&self) -> &Headers {
        &self.0.headers
    }

    /// The request target as it was sent, in whichever of its forms (RFC 9112 §3.2).
    pub fn target(&self) -> &str {
        self.text(self.0.target)
    }

    /// The path as it was sent, not decoded. `*` for the asterisk form, empty for
    /// the authority form; an empty path means `/` otherwise (RFC 9110 §4.2.3).
    pub fn path(&self) -> &str {
        match &self.whole()[self.0.mount..self.0.path_end] {
            "" if self.0.method != Method::CONNECT => "/",
            path => path,
        }
    }

    /// The path, percent-decoded as a whole: an encoded slash can no longer be told from
    /// another, so this is to be shown, and [`segments`](RequestHead::segments) to be routed by.
    /// Bytes that are no UTF-8 are shown as U+FFFD.
    pub fn decoded_path(&self) -> String {
        String::from_utf8_lossy(&decode(self.path().as_bytes())).into_owned()
    }

    /// What follows the `?` of the target, not decoded.
    pub fn query(&self) -> Option<&str> {
        self.whole().get(self.0.path_end + 1..)
    }

    /// The segments of the path, each percent-decoded, so that routing can be a
    /// `match` on a slice: `/` is `[]`, `/a/` is `["a", ""]`, and
    /// `/buenos/d%C3%ADas` is `["buenos", "días"]`.
    pub fn segments(&self) -> Segments<'_> {
        let path = self.path();
        Segments::new(path, || self.0.decoded.get_or_init(|| decode_segments(path)))
    }

    /// The authority that the request is for: the target's if it has one
    /// (RFC 9112 §3.2.2), otherwise the `Host` field's. `None` if neither is there.
    pub fn authority(&self) -> Option<&str> {
        match self.0.authority {
            Some(authority) => Some(self.text(authority)),
            None => self.0.headers.get("host"),
        }
    }

    /// The host that the request is for: the authority without its port, and without the dot
    /// at the end of a fully qualified name. Names of hosts compare without regard to case; an
    /// IPv6 address is in its brackets.
    ///
    /// ```
    /// let request = weft::testing::request("GET / HTTP/1.1\r\nHost: Example.org.:8080\r\n\r\n");
    /// assert_eq!(request.host(), Some("Example.org"));
    /// ```
    pub fn host(&self) -> Option<&str> {
        self.authority().map(host)
    }

    /// The start of the path that was taken away because the application is mounted under it
    /// ([`Mount`](crate::middleware::Mount), [`StripPrefix`](crate::middleware::StripPrefix)),
    /// as it was sent: empty, or `/prefix`. Symlinks to paths of the application begin with it.
    pub fn mount(&self) -> &str {
        &self.whole()[..self.0.mount]
    }

    /// Path and query.
    pub(crate) fn local(&self) -> &str {
        &self.whole()[self.0.mount..]
    }

    /// The mount, path and query.
    fn whole(&self) -> &str {
        self.0.rewritten.as_deref().unwrap_or(&self.0.sent)
    }

    /// Path and query as the client sent them, whatever middleware has made of them.
    pub(crate) fn sent(&self) -> &str {
        &self.0.sent
    }

    fn text(&self, span: Span) -> &str {
        as_text(span.of(self.0.headers.text()))
    }
}

/// A head that waits for its next request keeps no more room than this for a target.
const MAX_KEPT_TARGET_BYTES: usize = 1 << 10;

fn as_text(target: &[u8]) -> &str {
    std::str::from_utf8(target).expect("framing refuses a target that is no UTF-8")
}

/// Where the path ends in path and query. Byte by byte, for paths are short.
fn path_end(local: &str) -> usize {
    local.bytes().position(|b| b == b'?').unwrap_or(local.len())
}

/// An authority without its port and a final dot.
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
    fn what_middleware_sets_is_seen_after_it() {
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
    fn a_mount_is_taken_away_from_the_path() {
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
            (before.mount(), before.path(), request.sent()),
            ("", "/a%20b/c/d%20", "/a%20b/c/d%20?q")
        );
    }

    #[test]
    fn the_room_of_a_long_target_is_not_kept() {
        let mut head = RequestHead::default();
        for (bytes, is_kept) in [(MAX_KEPT_TARGET_BYTES, true), (8 * MAX_KEPT_TARGET_BYTES, false)]
        {
            head.own().sent = String::with_capacity(bytes);
            assert!(head.forget());
            assert_eq!(head.0.sent.capacity() == bytes, is_kept, "{bytes}");
        }
    }

    #[test]
    fn what_one_request_left_is_not_the_next_ones() {
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
        assert!(!shared.renew(), "the first request still has it");
        drop(first);
        assert!(shared.renew());
        assert!(shared.take_interim().is_none());
    }

    #[test]
    fn hosts() {
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
