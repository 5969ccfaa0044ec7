//! Entity-tags and 304 responses.

use std::hash::{DefaultHasher, Hash, Hasher};

use http::header::{CACHE_CONTROL, ETAG, LAST_MODIFIED};
use http::{Method, StatusCode};

use crate::app::{Application, Middleware};
use crate::clock::wall;
use crate::message::payload::Payload;
use crate::message::representation;
use crate::message::request::Request;
use crate::message::request_head::RequestHead;
use crate::message::response::Response;
use weft_proto::list::list_members;

/// Adds an entity-tag (RFC 9110 §8.8.3) to responses to GET and HEAD, and sends 304 to
/// clients that already have the same response (`If-None-Match`, §13.1.2). The application still
/// builds each response; only its transfer is saved.
///
/// ```
/// use weft::middleware::ETag;
/// use weft::{Application, Request, Response, testing};
///
/// async fn page(_: Request) -> Response { Response::html("<p>The same each time") }
///
/// let app = page.wrap(ETag::new());
/// let first = testing::get(app.clone(), "/");
/// let tag = first.header("etag").unwrap();
///
/// let again = format!("GET / HTTP/1.1\r\nHost: a\r\nIf-None-Match: {tag}\r\n\r\n");
/// let reply = testing::call(app, testing::request(again));
/// assert_eq!((reply.status.as_u16(), reply.body.len()), (304, 0));
/// ```
///
/// A tag is added to responses of status 200 with a body in memory of up to
/// [`max_bytes`](ETag::max_bytes), except with `Cache-Control: no-store`; never to streams. If
/// the application has set `ETag` or `Last-Modified` itself, preconditions are evaluated against
/// these fields, for any body. The engine handles files itself.
///
/// The tag consists of a 64-bit hash and the length. The probability that another version of a
/// page has the same tag by chance is one in 10¹⁹. An author of the page can construct two
/// versions with the same tag, but only clients with the old version would then keep it.
///
/// Place [`Compress`](crate::middleware::Compress) in front of this, so that tags are computed from
/// the uncompressed bytes; [`weak`](ETag::weak) is then suitable, because `Compress` makes all tags
/// weak.
#[derive(Clone, Copy, Debug)]
pub struct ETag {
    max_bytes: usize,
    is_weak: bool,
}

impl Default for ETag {
    fn default() -> ETag {
        ETag { max_bytes: 256 << 10, is_weak: false }
    }
}

impl ETag {
    /// Adds strong tags to bodies of up to 256 KiB.
    pub fn new() -> ETag {
        ETag::default()
    }

    /// Sets the maximum length in bytes of hashed bodies. Hashing runs at about 1 GB/s. Default:
    /// 256 KiB.
    pub fn max_bytes(self, bytes: usize) -> ETag {
        ETag { max_bytes: bytes, ..self }
    }

    /// Creates weak tags: the responses are equivalent, but not necessarily byte for byte.
    pub fn weak(self) -> ETag {
        ETag { is_weak: true, ..self }
    }

    fn apply(&self, head: &RequestHead, mut response: Response) -> Response {
        let has_field = |name: &str| response.header(name).is_some();
        if !has_field(ETAG.as_str())
            && let Some(tag) = self.tag(&response)
        {
            response.set_header(ETAG, tag);
        } else if !has_field(ETAG.as_str()) && !has_field(LAST_MODIFIED.as_str()) {
            return response;
        }
        representation::evaluate_preconditions(head, response, wall::now())
    }

    fn tag(&self, response: &Response) -> Option<String> {
        let Payload::Body(body) = &response.payload else { return None };
        let bytes = body.as_bytes().filter(|bytes| bytes.len() <= self.max_bytes)?;
        let cache_control = response.headers.iter().filter(|(name, _)| *name == CACHE_CONTROL);
        let mut directives = cache_control.flat_map(|(_, value)| list_members(value.as_bytes()));
        if directives.any(|directive| directive.eq_ignore_ascii_case(b"no-store")) {
            return None;
        }
        // This hasher has fixed keys, so that all workers and all runs compute the same tag.
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        let prefix = if self.is_weak { "W/" } else { "" };
        Some(format!("{prefix}\"{:x}-{:016x}\"", bytes.len(), hasher.finish()))
    }
}

impl Middleware for ETag {
    async fn call(&self, request: Request, next: &impl Application) -> Response {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return next.call(request).await;
        }
        let head = request.head().clone();
        let response = next.call(request).await;
        match (response.status, &response.payload) {
            (StatusCode::OK, Payload::Body(_)) => self.apply(&head, response),
            _ => response,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::body::Body;
    use crate::testing::{TestResponse, call, request};
    use bytes::Bytes;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    /// A stream that ends at once.
    struct EmptyStream;

    impl futures_core::Stream for EmptyStream {
        type Item = std::io::Result<Bytes>;

        fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
            Poll::Ready(None)
        }
    }

    async fn app(request: Request) -> Response {
        match request.path() {
            "/a" => Response::text("a").with_header(CACHE_CONTROL, "max-age=5"),
            "/b" => Response::text("b"),
            "/secret" => Response::text("a").with_header(CACHE_CONTROL, "private, No-Store"),
            "/own" => Response::text("a").with_header(ETAG, "\"own\""),
            "/weak" => Response::text("a").with_header(ETAG, "W/\"own\""),
            "/date" => Response::text("a".repeat(11))
                .with_header(LAST_MODIFIED, "Sun, 06 Nov 1994 08:49:37 GMT"),
            "/long" => Response::text("0123456789a"),
            "/stream" => Response::from_body(Body::stream(EmptyStream)),
            "/empty" => Response::text(""),
            _ => Response::not_found(),
        }
    }

    fn send(etag: ETag, method: &str, path: &str, field: &str) -> TestResponse {
        let field = if field.is_empty() { String::new() } else { format!("{field}\r\n") };
        let head = format!("{method} {path} HTTP/1.1\r\nHost: a\r\n{field}\r\n");
        call(app.wrap(etag), request(head))
    }

    #[test]
    fn tags_short_storable_bodies() {
        let tag = |etag: ETag, method: &str, path: &str| {
            send(etag, method, path, "").header("etag").map(str::to_owned)
        };
        let strong = |path| tag(ETag::new(), "GET", path);
        let a = strong("/a").unwrap();
        assert!(a.starts_with("\"1-") && a.len() == 20, "{a}");
        assert_eq!(strong("/a").unwrap(), a);
        assert_ne!(strong("/b").unwrap(), a);
        assert_eq!(strong("/own").unwrap(), "\"own\"");
        assert_eq!(tag(ETag::new().weak(), "GET", "/a").unwrap(), format!("W/{a}"));
        assert_eq!(tag(ETag::new(), "HEAD", "/a").unwrap(), a);
        assert_eq!(tag(ETag::new(), "POST", "/a"), None);
        for path in ["/secret", "/stream", "/empty", "/else"] {
            assert_eq!(strong(path), None, "{path}");
        }
        assert!(tag(ETag::new().max_bytes(11), "GET", "/long").is_some());
        assert_eq!(tag(ETag::new().max_bytes(10), "GET", "/long"), None);
    }

    #[test]
    fn evaluates_preconditions() {
        let a = send(ETag::new(), "GET", "/a", "").header("etag").unwrap().to_owned();
        let (none_match, weak) = (format!("If-None-Match: {a}"), format!("If-None-Match: W/{a}"));
        for (method, path, field, status) in [
            ("GET", "/a", &*none_match, 304),
            ("HEAD", "/a", &none_match, 304),
            ("POST", "/a", &none_match, 200),
            ("GET", "/a", &weak, 304),
            ("GET", "/a", "If-None-Match: *", 304),
            ("GET", "/a", "If-None-Match: \"x\"", 200),
            ("GET", "/a", "If-Match: \"x\"", 412),
            ("GET", "/b", &none_match, 200),
            ("GET", "/secret", &none_match, 200),
            ("GET", "/secret", "If-None-Match: *", 200),
            ("GET", "/own", "If-None-Match: \"own\"", 304),
            ("GET", "/weak", "If-None-Match: \"own\"", 304),
            ("GET", "/else", "If-None-Match: *", 404),
            ("GET", "/date", "If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT", 304),
            ("GET", "/date", "If-Modified-Since: Sun, 06 Nov 1994 08:49:36 GMT", 200),
        ] {
            let reply = send(ETag::new(), method, path, field);
            assert_eq!(reply.status, status, "{method} {path} {field}");
            assert_eq!(reply.body.is_empty(), status == 304, "{method} {path} {field}");
        }
        let unchanged = send(ETag::new(), "GET", "/a", &none_match);
        assert_eq!(unchanged.header("etag"), Some(&*a));
        assert_eq!(unchanged.header("cache-control"), Some("max-age=5"));
        assert_eq!(unchanged.header("content-type"), None);
    }
}
