//! The head of a request, and its changes by middleware.

mod fields; // replaced fields
#[cfg(feature = "tower")]
mod slices; // parts as slices of the text

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::{Method, Version};

use weft_proto::headers::Headers;
use weft_proto::http1::parse::{self, Span};
use weft_proto::semantics::path::{Segments, decode, decode_segments};

/// The request line and the header fields. Cloning and moving it is cheap.
#[derive(Clone, Debug, Default)]
pub struct RequestHead {
    inner: Arc<Inner>,
    /// Length of the prefix that the application is mounted under. Outside of `inner`, because most
    /// applications are mounted while the server holds the head, too.
    mount: usize,
}

#[derive(Clone, Debug, Default)]
struct Inner {
    method: Method,
    /// The method that the client sent, if middleware has replaced it. Boxed, as what follows,
    /// because few requests need it, and a client may keep many waiting.
    received_method: Option<Box<Method>>,
    target: Span,
    /// Path and query of the target, as received. This is a copy: the head is stored as bytes,
    /// which would have to be validated as UTF-8 on each access.
    original: String,
    /// Path and query set by middleware, which replace the original ones.
    rewritten: Option<Box<str>>,
    /// End of the path, and start of the query, in `rewritten` or `original`.
    path_end: usize,
    authority: Option<Span>,
    version: Version,
    headers: Headers,
    /// The decoded segments of the whole path.
    decoded: OnceLock<Box<[String]>>,
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
        RequestHead { inner: Arc::new(inner), mount: 0 }
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
        self.mount = 0;
        let parts = self.unique_inner();
        // Otherwise released together with the text.
        parts.original.shrink_to(MAX_RETAINED_TARGET_BYTES);
        std::mem::swap(&mut parts.method, &mut parsed.method);
        parts.received_method = None;
        parts.version = parsed.version;
        parts.target = parsed.target;
        parts.authority = authority;
        parts.rewritten = None;
        parts.original.clear();
        parts.original.push_str(as_text(path_and_query.of(&text)));
        parts.path_end = path_end(&parts.original);
        parts.headers.replace(text, parsed);
        parts.decoded.take();
    }

    /// Releases the text of the head if it is a slice of the input buffer. Returns false if the
    /// application still holds the head, and with it the text.
    #[inline]
    pub(crate) fn release_text(&mut self) -> bool {
        let Some(inner) = Arc::get_mut(&mut self.inner) else { return false };
        inner.headers.clear();
        if inner.original.capacity() > MAX_RETAINED_TARGET_BYTES {
            inner.original = String::new();
            inner.path_end = 0;
        }
        true
    }

    fn unique_inner(&mut self) -> &mut Inner {
        if Arc::strong_count(&self.inner) > 1 {
            self.inner = Arc::default();
        }
        Arc::get_mut(&mut self.inner).expect("a new Arc is not shared")
    }

    /// Returns the parts for a change by middleware. They are copied if they are shared.
    fn changed(&mut self) -> &mut Inner {
        Arc::make_mut(&mut self.inner)
    }

    /// The method. Functions that are applications get GET for HEAD, so that they need not
    /// distinguish them; [`received_method`](RequestHead::received_method) does.
    #[inline]
    pub fn method(&self) -> &Method {
        &self.inner.method
    }

    /// Replaces the method. The received one is kept.
    pub(crate) fn set_method(&mut self, method: Method) {
        let head = self.changed();
        let former = std::mem::replace(&mut head.method, method);
        head.received_method.get_or_insert_with(|| Box::new(former));
    }

    /// Replaces path and query, which start with a slash. The mount prefix remains.
    pub(super) fn set_path_and_query(&mut self, path_and_query: Box<str>) {
        assert!(path_and_query.starts_with('/'), "a path starts with a slash: {path_and_query:?}");
        let rewritten = match self.mount() {
            "" => path_and_query,
            mount => [mount, &*path_and_query].concat().into(),
        };
        let inner = self.changed();
        inner.path_end = path_end(&rewritten);
        inner.rewritten = Some(rewritten);
        inner.decoded = OnceLock::new();
    }

    /// Moves the first `bytes` bytes of the path, which end at the end of a segment, to the mount
    /// prefix.
    pub(super) fn take_prefix(&mut self, bytes: usize) {
        let rest = self.path_and_query().get(bytes..);
        let ends_segment = |rest: &str| rest.is_empty() || rest.starts_with(['/', '?']);
        let is_valid = bytes == 0 || rest.is_some_and(ends_segment);
        assert!(is_valid, "a prefix of {bytes} bytes ends inside a segment");
        self.mount += bytes;
    }

    /// The method that the client sent. It determines the effect of preconditions and ranges, and
    /// if the response has a body.
    #[inline]
    pub fn received_method(&self) -> &Method {
        self.inner.received_method.as_deref().unwrap_or(&self.inner.method)
    }

    /// The HTTP version of the request.
    #[inline]
    pub fn version(&self) -> Version {
        self.inner.version
    }

    /// The header fields.
    #[inline]
    pub fn headers(&self) -> &Headers {
        &self.inner.headers
    }

    /// The value of the first field with this name, a text or a `HeaderName`, if it is UTF-8:
    /// `headers().get(name)`.
    #[inline]
    pub fn header(&self, name: impl AsRef<str>) -> Option<&str> {
        self.headers().get(name)
    }

    /// The request target as received, in any of its forms (RFC 9112 §3.2).
    #[inline]
    pub fn target(&self) -> &str {
        self.text(self.inner.target)
    }

    /// The path, percent-encoded as received. `*` for the asterisk form, empty for the authority
    /// form; any other empty path is returned as `/` (RFC 9110 §4.2.3).
    #[inline]
    pub fn path(&self) -> &str {
        match &self.mounted()[self.mount..self.inner.path_end] {
            "" if self.inner.method != Method::CONNECT => "/",
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
    #[inline]
    pub fn full_path(&self) -> &str {
        match &self.mounted()[..self.inner.path_end] {
            "" if self.inner.method != Method::CONNECT => "/",
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
        self.mounted().get(self.inner.path_end + 1..)
    }

    /// The segments of the path, each percent-decoded, so that routing can be a
    /// `match` on a slice: `/` is `[]`, `/a/` is `["a", ""]`, and
    /// `/buenos/d%C3%ADas` is `["buenos", "días"]`.
    pub fn segments(&self) -> Segments<'_> {
        let below_mount = || {
            let all = self.inner.decoded.get_or_init(|| decode_segments(self.full_path()).into());
            &all[self.mount().matches('/').count()..]
        };
        Segments::new(self.path(), below_mount)
    }

    /// The authority of the request: the authority in the target, if there is one (RFC 9112
    /// §3.2.2), otherwise the `Host` field. `None` if there is neither.
    pub fn authority(&self) -> Option<&str> {
        match self.inner.authority {
            Some(authority) => Some(self.text(authority)),
            None => self.inner.headers.get("host"),
        }
    }

    /// The [authority](RequestHead::authority) as bytes, which are not validated as UTF-8.
    #[inline]
    pub fn authority_bytes(&self) -> Option<&[u8]> {
        match self.inner.authority {
            Some(authority) => Some(authority.of(self.inner.headers.text())),
            None => self.inner.headers.get_bytes("host"),
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
    #[inline]
    pub fn mount(&self) -> &str {
        &self.mounted()[..self.mount]
    }

    /// Path and query.
    #[inline]
    pub(crate) fn path_and_query(&self) -> &str {
        &self.mounted()[self.mount..]
    }

    /// The mount prefix, path and query.
    #[inline]
    fn mounted(&self) -> &str {
        self.inner.rewritten.as_deref().unwrap_or(&self.inner.original)
    }

    /// Path and query as received, if middleware has changed them, such as doubled slashes.
    #[cfg(feature = "cache")]
    pub(crate) fn path_and_query_before_changes(&self) -> Option<&str> {
        let rewritten = self.inner.rewritten.as_deref()?;
        Some(&*self.inner.original).filter(|original| *original != rewritten)
    }

    /// Path and query as received, without the changes of middleware.
    pub(crate) fn original_path_and_query(&self) -> &str {
        &self.inner.original
    }

    #[inline]
    fn text(&self, span: Span) -> &str {
        as_text(span.of(self.inner.headers.text()))
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
    // A search for a `char` prepares more than these short names are worth.
    let find = |wanted| authority.bytes().position(|b| b == wanted);
    let end = match find(b']') {
        Some(bracket) => bracket + 1,
        None => find(b':').unwrap_or(authority.len()),
    };
    let host = &authority[..end];
    host.strip_suffix('.').unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_capacity_of_long_target() {
        let mut head = RequestHead::default();
        for (bytes, is_retained) in
            [(MAX_RETAINED_TARGET_BYTES, true), (8 * MAX_RETAINED_TARGET_BYTES, false)]
        {
            head.unique_inner().original = String::with_capacity(bytes);
            assert!(head.release_text());
            assert_eq!(head.inner.original.capacity() == bytes, is_retained, "{bytes}");
        }
    }

    #[test]
    fn each_request_has_its_own_path() {
        let mut head = RequestHead::default();
        let long = "/l".repeat(MAX_RETAINED_TARGET_BYTES);
        let long = format!("GET {long} HTTP/1.1");
        for (line, is_changed, path, query) in [
            ("GET /a?b HTTP/1.1", true, "/a", Some("b")),
            ("GET /a?b HTTP/1.1", false, "/a", Some("b")),
            ("GET /a?b HTTP/1.1", false, "/a", Some("b")),
            ("GET /a?b HTTP/1.1", false, "/a", Some("b")),
            ("GET http://b/a?b HTTP/1.1", false, "/a", Some("b")),
            ("GET /a?b HTTP/1.1", false, "/a", Some("b")),
            ("GET /a HTTP/1.1", false, "/a", None),
            (&*long, false, &long[4..long.len() - 9], None),
            ("CONNECT a:80 HTTP/1.1", false, "", None),
            ("GET /a?b HTTP/1.1", true, "/a", Some("b")),
        ] {
            let text = format!("{line}\r\nHost: a\r\n\r\n");
            let limits = parse::Limits { request_line: 8_000, head: 8_000, fields: 10 };
            let mut parsed = parse::ParsedHead::new();
            parsed.read(text.as_bytes(), &limits).unwrap();
            let framed = weft_proto::http1::framing::request(&parsed, text.as_bytes()).unwrap();
            head.set_parsed(&mut parsed, text.into(), (framed.authority, framed.local));
            assert_eq!((head.path(), head.query()), (path, query), "{line}");
            #[cfg(feature = "tower")]
            assert_eq!(head.received_uri().unwrap(), line.split(' ').nth(1).unwrap());
            if is_changed {
                head.set_path_and_query("/changed/by?middleware".into());
                assert_eq!(head.path(), "/changed/by");
            }
            head.release_text();
        }
    }

    #[test]
    fn changes_of_a_held_head_are_its_own() {
        let request = crate::testing::request("GET /b HTTP/1.1\r\nHost: a\r\n\r\n");
        let head = request.head().clone();
        let mut held = head.clone();
        held.set_path_and_query("/changed".into());
        held.set_method(Method::PUT);
        assert_eq!((head.method(), head.path()), (&Method::GET, "/b"));
        let mut held = head.clone();
        held.replace_fields(&[("c", b"d")]).unwrap();
        assert_eq!((head.headers().get("c"), held.headers().get("c")), (None, Some("d")));
    }

    #[test]
    fn a_mount_does_not_copy_the_head() {
        let request = crate::testing::request("GET /a%20b/c%20d/e?f HTTP/1.1\r\nHost: a\r\n\r\n");
        let head = request.head().clone();
        let mut mounted = head.clone();
        mounted.take_prefix("/a%20b".len());
        assert!(Arc::ptr_eq(&head.inner, &mounted.inner));
        assert_eq!(*mounted.segments(), ["c d", "e"]);
        assert_eq!(*head.segments(), ["a b", "c d", "e"]);
        mounted.take_prefix("/c%20d".len());
        assert_eq!((mounted.mount(), mounted.path()), ("/a%20b/c%20d", "/e"));
        mounted.set_path_and_query("/g%20h".into());
        assert_eq!(*mounted.segments(), ["g h"]);
        assert_eq!(mounted.full_path(), "/a%20b/c%20d/g%20h");
        assert_eq!(*head.segments(), ["a b", "c d", "e"]);
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
