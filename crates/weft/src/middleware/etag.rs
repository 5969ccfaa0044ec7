//! Answers that the client has already are not sent again.

use std::hash::{DefaultHasher, Hash, Hasher};

use http::header::{CACHE_CONTROL, ETAG, LAST_MODIFIED};
use http::{Method, StatusCode};

use crate::app::{Application, Middleware};
use crate::clock::wall;
use crate::message::representation;
use crate::message::request::{Head, Request};
use crate::message::response::{Payload, Response};
use crate::proto::headers::members;

/// Gives answers to GET and HEAD an entity-tag (RFC 9110 §8.8.3), and sends 304 to a client
/// that has the same answer already (`If-None-Match`, §13.1.2). The answer is still made each
/// time; what is saved is its way to the client.
///
/// ```
/// use weft::middleware::ETag;
/// use weft::{Application, Request, Response, testing};
///
/// async fn page(_: Request) -> Response { Response::html("<p>The same each time") }
///
/// let app = page.with(ETag::new());
/// let first = testing::get(app.clone(), "/");
/// let tag = first.header("etag").unwrap();
///
/// let again = format!("GET / HTTP/1.1\r\nHost: a\r\nIf-None-Match: {tag}\r\n\r\n");
/// let reply = testing::call(app, testing::request(again));
/// assert_eq!((reply.status.as_u16(), reply.body.len()), (304, 0));
/// ```
///
/// Tagged are bodies of status 200 that are known at once, up to
/// [`max_bytes`](ETag::max_bytes), unless they are not to be stored (`Cache-Control:
/// no-store`). Streams are not. Where the application has set `ETag` or `Last-Modified`
/// itself, the request is judged by those, for any body. Files are the engine's own affair.
///
/// The tag is a hash of 64 bits and the length. That another version of a page has the same
/// by chance is as likely as one in 10¹⁹. Someone who writes the page can make two versions
/// that have, but then shows an old one only to those who have seen it.
///
/// [`Compress`](super::Compress) is to stand before this, so that bytes are compared before
/// they are compressed; then [`weak`](ETag::weak) fits, which `Compress` makes of all tags.
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
    /// Strong tags for bodies of up to 256 KiB.
    pub fn new() -> ETag {
        ETag::default()
    }

    /// The length in bytes up to which a body is hashed, at about 1 GB/s. Default: 256 KiB.
    pub fn max_bytes(self, bytes: usize) -> ETag {
        ETag { max_bytes: bytes, ..self }
    }

    /// Makes weak tags: the same in meaning, but not promised to be in each byte.
    pub fn weak(self) -> ETag {
        ETag { is_weak: true, ..self }
    }

    fn answer(&self, head: &Head, mut response: Response) -> Response {
        let says = |name: &str| response.header(name).is_some();
        if !says(ETAG.as_str())
            && let Some(tag) = self.tag(&response)
        {
            response.set_header(ETAG, tag);
        } else if !says(ETAG.as_str()) && !says(LAST_MODIFIED.as_str()) {
            return response;
        }
        representation::judged(head, response, wall::now())
    }

    fn tag(&self, response: &Response) -> Option<String> {
        let Payload::Body(body) = &response.payload else { return None };
        let bytes = body.as_bytes().filter(|bytes| bytes.len() <= self.max_bytes)?;
        let cache = response.headers.iter().filter(|(name, _)| *name == CACHE_CONTROL);
        let mut said = cache.flat_map(|(_, value)| members(value.as_bytes()));
        if said.any(|directive| directive.eq_ignore_ascii_case(b"no-store")) {
            return None;
        }
        // Its keys are always the same, so that all workers and all runs agree.
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        let mark = if self.is_weak { "W/" } else { "" };
        Some(format!("{mark}\"{:x}-{:016x}\"", bytes.len(), hasher.finish()))
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
            (StatusCode::OK, Payload::Body(_)) => self.answer(&head, response),
            _ => response,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::body::Body;
    use crate::testing::{Reply, call, request};
    use bytes::Bytes;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    /// A stream that ends at once.
    struct Nothing;

    impl futures_core::Stream for Nothing {
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
            "/stream" => Response::body(Body::stream(Nothing)),
            "/empty" => Response::text(""),
            _ => Response::not_found(),
        }
    }

    fn ask(etag: ETag, method: &str, path: &str, field: &str) -> Reply {
        let field = if field.is_empty() { String::new() } else { format!("{field}\r\n") };
        let head = format!("{method} {path} HTTP/1.1\r\nHost: a\r\n{field}\r\n");
        call(app.with(etag), request(head))
    }

    #[test]
    fn tags() {
        let tag = |etag: ETag, method: &str, path: &str| {
            ask(etag, method, path, "").header("etag").map(str::to_owned)
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
    fn preconditions() {
        let a = ask(ETag::new(), "GET", "/a", "").header("etag").unwrap().to_owned();
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
            let reply = ask(ETag::new(), method, path, field);
            assert_eq!(reply.status, status, "{method} {path} {field}");
            assert_eq!(reply.body.is_empty(), status == 304, "{method} {path} {field}");
        }
        let unchanged = ask(ETag::new(), "GET", "/a", &none_match);
        assert_eq!(unchanged.header("etag"), Some(&*a));
        assert_eq!(unchanged.header("cache-control"), Some("max-age=5"));
        assert_eq!(unchanged.header("content-type"), None);
    }
}
