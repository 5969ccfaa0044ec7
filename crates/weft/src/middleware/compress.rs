//! Which responses are compressed, and what that does to their fields.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE,
    ETAG,
};
use http::{HeaderName, Method, StatusCode};

use crate::app::{Application, Middleware};
use crate::clock::wall;
use crate::compression::{Coding, Encoder, is_compressible};
use crate::message::body::Body;
use crate::message::representation::{self, Moment};
use crate::message::request::{Head, Request};
use crate::message::response::{Payload, Response};
use crate::middleware::encoded::{Encoded, TURN_BYTES};
use crate::proto::headers::members;
use crate::proto::semantics::accept;
use crate::proto::semantics::range::random_boundary;

/// Compresses responses for clients that accept it (`Accept-Encoding`, RFC 9110 §12.5.3).
///
/// ```
/// use weft::middleware::Compress;
/// use weft::{Application, Request, Response, testing};
///
/// async fn page(_: Request) -> Response {
///     Response::html("<p>Warp and weft.".repeat(1_000))
/// }
///
/// let app = page.with(Compress::new());
/// let request = "GET / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip, br\r\n\r\n";
/// let reply = testing::call(app, testing::request(request));
/// assert_eq!(reply.header("content-encoding"), Some("gzip"));
/// assert_eq!(reply.header("vary"), Some("accept-encoding"));
/// assert!(reply.body.len() < 200);
/// ```
///
/// What has a type that is worth it is compressed: text, JSON, XML, scripts, WebAssembly and
/// the like, with at least [`min_bytes`](Compress::min_bytes). Left as they are: responses
/// with `Content-Encoding`, `Content-Range`, `Cache-Control: no-transform` or a digest of
/// their bytes; of status 204, 205, 206 and 304; and files of which a `Range` is asked for.
///
/// Bodies of up to 32 KiB that are known at once are compressed at once, unless that would
/// not make them smaller. All others are compressed as they come, 32 KiB before other
/// connections get their turn, which takes 0.1 to 0.5 ms. Whenever the application's stream
/// has to wait, what it gave so far goes out, so server-sent events arrive as they are made.
/// A body that fails is cut, and trailers follow as they would.
///
/// `Vary: accept-encoding` is added also where the client got the bytes as they are. A strong
/// `ETag` becomes weak (RFC 9110 §8.8.1), `Content-Length` and `Accept-Ranges` are taken away.
/// Preconditions on files are judged here, so that the weak tag is recognised; an application
/// that judges its own should compare weakly, as RFC 9110 §13.1.2 asks for.
///
/// A stream under way holds an encoder of 0.4 MiB (gzip), 0.7 MiB (zstd) or 2 MiB (brotli),
/// so their number has [a limit](Compress::max_streams).
///
/// # Secrets
/// Over TLS, the length of a compressed page tells whether parts of it are alike. A page that
/// shows what its request said beside a secret, such as a token against forged requests, can
/// be made to give the secret away (the attack called BREACH). Give such a page
/// `Cache-Control: no-transform`, or mask the secret anew in each response.
#[derive(Debug)]
pub struct Compress {
    min_bytes: u64,
    max_streams: usize,
    offered: Vec<Coding>,
    /// There is one more of these than streams under way.
    streams: Arc<()>,
}

/// Each clone, and so each worker, counts its own streams.
impl Clone for Compress {
    fn clone(&self) -> Compress {
        Compress { offered: self.offered.clone(), streams: Arc::default(), ..*self }
    }
}

impl Default for Compress {
    fn default() -> Compress {
        // The best for what it costs first; see `coding.rs` for the measurements.
        let offered = vec![Coding::Zstd, Coding::Gzip, Coding::Brotli];
        Compress { min_bytes: 1_024, max_streams: 256, offered, streams: Arc::default() }
    }
}

impl Middleware for Compress {
    async fn call(&self, request: Request, next: &impl Application) -> Response {
        let head = request.head().clone();
        let response = next.call(request).await;
        self.answer(&head, response)
    }
}

impl Compress {
    /// Compression with the defaults.
    pub fn new() -> Compress {
        Compress::default()
    }

    /// The length in bytes from which on a body is compressed, if it is known beforehand.
    /// Default: 1,024, which with its head fits a packet as it is.
    pub fn min_bytes(self, bytes: u64) -> Compress {
        Compress { min_bytes: bytes, ..self }
    }

    /// How many streams each worker compresses at a time; any further ones go out as they
    /// are. Default: 256, with the default codings 100 to 520 MiB at worst.
    pub fn max_streams(self, streams: usize) -> Compress {
        Compress { max_streams: streams, ..self }
    }

    /// The codings that there are, of which the client chooses; where it does not mind, the
    /// first. Default: zstd, gzip, brotli. That is by what they give for their time: for
    /// streams zstd takes a third of the time of gzip, and brotli is not smaller.
    pub fn codings(self, offered: impl Into<Vec<Coding>>) -> Compress {
        Compress { offered: offered.into(), ..self }
    }

    fn answer(&self, head: &Head, mut response: Response) -> Response {
        if response.status == StatusCode::NOT_MODIFIED && may_stand_for_text(&response) {
            // It says what the whole response would have said (RFC 9110 §15.4.5).
            response.vary_by("accept-encoding");
            if accept::coding(head.headers(), &self.offered).is_some() {
                weaken_etag(&mut response);
            }
        }
        if !self.suits(head.method(), &response) {
            return response;
        }
        response.vary_by("accept-encoding");
        let is_file = matches!(response.payload, Payload::File(_));
        // A range is one of the file's own bytes (RFC 9110 §14.2): the engine has them.
        if is_file && head.headers().get_bytes("range").is_some() {
            return response;
        }
        let Some(coding) = accept::coding(head.headers(), &self.offered) else { return response };
        if is_file {
            // The engine judges preconditions on files alone, which this soon is no more.
            let moment = Moment { now: wall::now(), boundary: random_boundary };
            response = representation::answer(head, response, &moment);
            if response.status == StatusCode::NOT_MODIFIED {
                weaken_etag(&mut response);
            }
            if !matches!(response.payload, Payload::File(_)) {
                return response;
            }
        }
        self.compress(head.method(), coding, response)
    }

    /// Whether a response would be compressed for a client that accepts it.
    fn suits(&self, method: &Method, response: &Response) -> bool {
        let may_be = match response.status {
            StatusCode::NO_CONTENT
            | StatusCode::RESET_CONTENT
            | StatusCode::PARTIAL_CONTENT
            | StatusCode::NOT_MODIFIED => false,
            status => !status.is_informational(),
        };
        let content_type = response.header(CONTENT_TYPE.as_str());
        may_be
            && content_type.is_some_and(|value| is_compressible(value.as_bytes()))
            && !response.headers.iter().any(|(name, value)| forbids(name, value.as_bytes()))
            && match length(method, response) {
                Ok(length) => length.is_none_or(|length| length >= self.min_bytes.max(1)),
                Err(()) => false,
            }
    }

    fn compress(&self, method: &Method, coding: Coding, mut response: Response) -> Response {
        let known = match &response.payload {
            Payload::Body(body) => body.as_bytes().cloned(),
            Payload::File(file) => file.in_memory(),
            Payload::Parts(_) | Payload::Upgrade(_) => None,
        };
        let body = match known {
            Some(bytes) if bytes.len() <= TURN_BYTES => match at_once(coding, &bytes) {
                Some(smaller) => Body::from(smaller),
                None => return response,
            },
            _ if Arc::strong_count(&self.streams) > self.max_streams => return response,
            _ => {
                let length = length(method, &response).ok().flatten();
                let source = match std::mem::replace(&mut response.payload, Payload::empty()) {
                    Payload::Body(body) => body,
                    Payload::File(file) => Body::from(Arc::unwrap_or_clone(file)),
                    Payload::Parts(_) | Payload::Upgrade(_) => {
                        unreachable!("parts are made later, and a handover is no body")
                    }
                };
                Body::own(Encoded::new(source, length, coding, self.streams.clone()))
            }
        };
        response.payload = Payload::Body(body);
        response.remove_header(CONTENT_LENGTH);
        response.remove_header(ACCEPT_RANGES);
        weaken_etag(&mut response);
        response.with_header(CONTENT_ENCODING, coding.token())
    }
}

/// Whether a field says that the bytes are to stay as they are, or something of them that
/// would not be true any more.
fn forbids(name: &HeaderName, value: &[u8]) -> bool {
    match name {
        &CONTENT_ENCODING | &CONTENT_RANGE => true,
        // RFC 9111 §5.2.2.6.
        &CACHE_CONTROL => members(value).any(|said| said.eq_ignore_ascii_case(b"no-transform")),
        // RFC 9530 and what was before it.
        _ => matches!(name.as_str(), "content-digest" | "repr-digest" | "digest" | "content-md5"),
    }
}

/// Whether the response that a 304 stands for may be one that is compressed. Mostly it does not
/// say its type.
fn may_stand_for_text(response: &Response) -> bool {
    let content_type = response.header(CONTENT_TYPE.as_str());
    content_type.is_none_or(|value| is_compressible(value.as_bytes()))
        && !response.headers.iter().any(|(name, value)| forbids(name, value.as_bytes()))
}

/// The length of the body, if it is known; `Err` if the application is wrong about it, which
/// the engine has to see. The answer to HEAD may tell the length of a body that it lacks.
fn length(method: &Method, response: &Response) -> Result<Option<u64>, ()> {
    match (response.declared_length().transpose()?, response.length()) {
        (Some(declared), Some(0)) if *method == Method::HEAD => Ok(Some(declared)),
        (Some(declared), Some(length)) if declared != length => Err(()),
        (declared, length) => Ok(declared.or(length)),
    }
}

/// Bytes compressed, if that makes them smaller.
fn at_once(coding: Coding, bytes: &[u8]) -> Option<Bytes> {
    let mut encoder = Encoder::new(coding).ok()?;
    encoder.write(bytes).ok()?;
    encoder.finish().ok().filter(|compressed| compressed.len() < bytes.len())
}

/// What is compressed is the same in meaning, and not in its bytes (RFC 9110 §8.8.1).
fn weaken_etag(response: &mut Response) {
    let strong = response.header(ETAG.as_str()).filter(|etag| etag.as_bytes().starts_with(b"\""));
    if let Some(strong) = strong {
        let weak = [b"W/", strong.as_bytes()].concat();
        response.set_header(ETAG, weak);
    }
}
