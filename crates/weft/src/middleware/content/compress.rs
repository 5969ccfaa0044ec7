//! Content coding of responses, and its effects on their fields.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE,
};
use http::{HeaderName, Method, StatusCode};

use crate::app::{Application, Middleware};
use crate::clock::wall;
use crate::compression::{Coding, Encoder, Levels, is_available, is_compressible};
use crate::disk::{CodedCopy, NewCopy};
use crate::message::body::Body;
use crate::message::payload::Payload;
use crate::message::representation::{self, ResponseContext};
use crate::message::request::Request;
use crate::message::request_head::RequestHead;
use crate::message::response::Response;
use crate::middleware::content::copied_body::CopiedBody;
use crate::middleware::content::encoded::{BUDGET_BYTES, EncodedBody};
use crate::random::random_boundary;
use weft_proto::list::list_members;
use weft_proto::semantics::accept;

/// Maximum length of a stored response whose compressed form is kept.
const MAX_COPIED_BYTES: usize = 256 << 10;

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
/// let app = page.wrap(Compress::new());
/// let request = "GET / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip, br\r\n\r\n";
/// let reply = testing::call(app, testing::request(request));
/// assert_eq!(reply.header("content-encoding"), Some("gzip"));
/// assert_eq!(reply.header("vary"), Some("accept-encoding"));
/// assert!(reply.body.len() < 200);
/// ```
///
/// Responses of compressible media types are compressed (text, JSON, XML, scripts, WebAssembly
/// and similar), from [`min_bytes`](Compress::min_bytes) on. Excluded are responses with
/// `Content-Encoding`, `Content-Range`, `Cache-Control: no-transform` or a digest of their
/// bytes, responses with status 204, 205, 206 or 304, and files for requests with `Range`.
///
/// Bodies of up to 32 KiB that are in memory are compressed in one step, unless the result is
/// not smaller. All others are compressed as a stream, in steps of 32 KiB between which other
/// connections are served; a step takes 0.1 to 0.5 ms. The encoder is flushed whenever the
/// application's stream is pending, so server-sent events are delivered without delay. If a
/// body fails, the response is cut off; trailers are passed on.
///
/// The compressed form of a response of up to 256 KiB that a cache has in memory (feature `cache`)
/// is kept with it.
///
/// `Vary: accept-encoding` is added also to responses sent without a coding. A strong `ETag`
/// becomes weak (RFC 9110 §8.8.1); `Content-Length` and `Accept-Ranges` are removed.
/// Preconditions on files are evaluated here, so that the weak tag is recognized; applications
/// with their own evaluation should use the weak comparison, as RFC 9110 §13.1.2 requires.
///
/// An active stream holds an encoder of 0.4 MiB (gzip), 0.7 MiB (zstd) or 2 MiB (brotli), so
/// their number has [a limit](Compress::max_streams).
///
/// # Secrets
/// Over TLS, the length of a compressed page reveals similarities between its parts. A page that
/// contains input from its request next to a secret, such as a CSRF token, can be made to
/// disclose the secret (the BREACH attack). Set `Cache-Control: no-transform` on such a page, or
/// mask the secret differently in each response.
#[derive(Debug)]
pub struct Compress {
    min_bytes: u64,
    max_streams: usize,
    codings: Vec<Coding>,
    levels: Levels,
    /// Counts active streams: the strong count is one higher than their number.
    streams: Arc<()>,
}

/// Each clone, and so each worker, has its own stream count.
impl Clone for Compress {
    fn clone(&self) -> Compress {
        Compress { codings: self.codings.clone(), streams: Arc::default(), ..*self }
    }
}

impl Default for Compress {
    fn default() -> Compress {
        // Ordered by compression per CPU time; see `compression` for the measurements.
        let codings = [Coding::Zstd, Coding::Gzip, Coding::Brotli];
        let (min_bytes, max_streams) = (1_024, 256);
        let levels = Levels::default();
        Compress { min_bytes, max_streams, codings: Vec::new(), levels, streams: Arc::default() }
            .codings(codings)
    }
}

impl Middleware for Compress {
    async fn call(&self, request: Request, next: &impl Application) -> Response {
        let head = request.head().clone();
        let response = next.call(request).await;
        self.apply(&head, response)
    }
}

impl Compress {
    /// Compresses with the default settings.
    pub fn new() -> Compress {
        Compress::default()
    }

    /// Sets the minimum length in bytes of compressed bodies of known length. Default: 1,024;
    /// a shorter body fits into one packet with its head even uncompressed.
    pub fn min_bytes(self, bytes: u64) -> Compress {
        Compress { min_bytes: bytes, ..self }
    }

    /// Sets the maximum number of streams that each worker compresses concurrently; further
    /// streams are sent uncompressed. Default: 256, at most 120 to 420 MiB with the default
    /// codings.
    pub fn max_streams(self, streams: usize) -> Compress {
        Compress { max_streams: streams, ..self }
    }

    /// Sets the supported codings in order of preference, which decides if the client has none.
    /// Default: zstd, gzip, brotli, ordered by compression per CPU time: for streams, zstd takes
    /// about the time of gzip for smaller output, and brotli takes more time. A coding is ignored
    /// if its feature (`brotli`, `gzip`, `zstd`) is disabled.
    pub fn codings(self, codings: impl Into<Vec<Coding>>) -> Compress {
        let mut codings = codings.into();
        codings.retain(|&coding| is_available(coding));
        Compress { codings, ..self }
    }

    /// Sets the level of gzip, from 1 (fast) to 9 (small); values outside that range are limited to
    /// it. Default: 2, which takes less time than zlib's level 1 for smaller output. Level 5 takes
    /// two to three times as long as level 2; its output is an eighth to a fifth smaller.
    pub fn gzip_level(self, level: u32) -> Compress {
        Compress { levels: Levels { gzip: level.clamp(1, 9) }, ..self }
    }

    fn apply(&self, head: &RequestHead, mut response: Response) -> Response {
        if response.status == StatusCode::NOT_MODIFIED && may_be_compressible(&response) {
            // A 304 has the same `Vary` and `ETag` as the 200 would have (RFC 9110 §15.4.5).
            response.add_vary("accept-encoding");
            if accept::coding(head.headers(), &self.codings).is_some() {
                response.weaken_etag();
            }
        }
        if !self.should_compress(head.method(), &response) {
            return response;
        }
        response.add_vary("accept-encoding");
        let is_file = matches!(response.payload, Payload::File(_));
        // A range selects from the uncoded bytes (RFC 9110 §14.2); the engine applies it.
        if is_file && head.headers().get_bytes("range").is_some() {
            return response;
        }
        let Some(coding) = accept::coding(head.headers(), &self.codings) else { return response };
        if is_file {
            // The engine evaluates preconditions only for files, and the payload becomes a stream.
            let moment = ResponseContext { now: wall::now(), boundary: random_boundary };
            response = representation::complete_file_response(head, response, &moment);
            if response.status == StatusCode::NOT_MODIFIED {
                response.weaken_etag();
            }
            if !matches!(response.payload, Payload::File(_)) {
                return response;
            }
        }
        self.compress(head.method(), coding, response)
    }

    /// Returns true if a response is compressed for clients that accept a coding.
    fn should_compress(&self, method: &Method, response: &Response) -> bool {
        let has_suitable_status = match response.status {
            StatusCode::NO_CONTENT
            | StatusCode::RESET_CONTENT
            | StatusCode::PARTIAL_CONTENT
            | StatusCode::NOT_MODIFIED => false,
            status => !status.is_informational(),
        };
        let content_type = response.header(CONTENT_TYPE.as_str());
        has_suitable_status
            && content_type.is_some_and(|value| is_compressible(value.as_bytes()))
            && !response
                .headers
                .iter()
                .any(|(name, value)| forbids_compression(name, value.as_bytes()))
            && match body_length(method, response) {
                Ok(length) => length.is_none_or(|length| length >= self.min_bytes.max(1)),
                Err(()) => false,
            }
    }

    fn compress(&self, method: &Method, coding: Coding, response: Response) -> Response {
        let copies = match &response.payload {
            Payload::File(file) if *method != Method::HEAD => file.copies.clone(),
            _ => None,
        };
        // Only gzip has levels.
        let level = if coding == Coding::Gzip { self.levels.gzip } else { 0 };
        let key = (coding.token(), level);
        match copies.as_ref().and_then(|copies| copies.get(key)) {
            Some(CodedCopy::Complete(bytes)) => coded(response, coding, bytes.into()),
            Some(CodedCopy::NotSmaller) => response,
            _ => {
                let length = response.length().unwrap_or(u64::MAX) as usize;
                let copies = copies.filter(|_| length <= MAX_COPIED_BYTES);
                let copy = copies.and_then(|copies| copies.begin(key, length));
                self.compress_anew(method, coding, response, copy)
            }
        }
    }

    fn compress_anew(
        &self,
        method: &Method,
        coding: Coding,
        mut response: Response,
        copy: Option<NewCopy>,
    ) -> Response {
        let bytes = match &response.payload {
            // The body is not sent. The length of the compressed body would be known only after
            // the compression, so it is omitted (RFC 9110 §9.3.2).
            _ if *method == Method::HEAD => None,
            Payload::Body(body) => body.as_bytes().cloned(),
            Payload::File(file) => file.in_memory(),
            Payload::Parts(_) | Payload::Upgrade(_) => None,
        };
        let body = match bytes {
            Some(bytes) if bytes.len() <= BUDGET_BYTES => {
                let compressed = compress_bytes(coding, self.levels, &bytes);
                if let Some(mut copy) = copy {
                    // Without a result, the copy is the content itself: not smaller.
                    copy.push(compressed.as_ref().unwrap_or(&bytes));
                    copy.finish();
                }
                match compressed {
                    Some(compressed) => Body::from(compressed),
                    None => return response,
                }
            }
            _ if Arc::strong_count(&self.streams) > self.max_streams => return response,
            _ => {
                let length = body_length(method, &response).ok().flatten();
                let source = match std::mem::replace(&mut response.payload, Payload::empty()) {
                    Payload::Body(body) => body,
                    Payload::File(file) => Body::from(Arc::unwrap_or_clone(file)),
                    Payload::Parts(_) | Payload::Upgrade(_) => {
                        unreachable!("parts are created later, and an upgrade has no body")
                    }
                };
                let levels = (coding, self.levels);
                let body =
                    Body::boxed(EncodedBody::new(source, length, levels, self.streams.clone()));
                match copy {
                    Some(copy) => Body::boxed(CopiedBody::new(body, copy)),
                    None => body,
                }
            }
        };
        coded(response, coding, body)
    }
}

/// Returns the response with a compressed body.
fn coded(mut response: Response, coding: Coding, body: Body) -> Response {
    response.payload = Payload::Body(body);
    response.remove_header(CONTENT_LENGTH);
    response.remove_header(ACCEPT_RANGES);
    response.weaken_etag();
    response.with_header(CONTENT_ENCODING, coding.token())
}

/// Returns true if a field forbids changes of the bytes, or describes them so that it would become
/// wrong.
fn forbids_compression(name: &HeaderName, value: &[u8]) -> bool {
    match name {
        &CONTENT_ENCODING | &CONTENT_RANGE => true,
        // RFC 9111 §5.2.2.6.
        &CACHE_CONTROL => {
            list_members(value).any(|directive| directive.eq_ignore_ascii_case(b"no-transform"))
        }
        // RFC 9530 and its predecessors.
        _ => matches!(name.as_str(), "content-digest" | "repr-digest" | "digest" | "content-md5"),
    }
}

/// Returns true if the 200 response that corresponds to a 304 may be compressible. A 304 usually
/// has no `Content-Type`.
fn may_be_compressible(response: &Response) -> bool {
    let content_type = response.header(CONTENT_TYPE.as_str());
    content_type.is_none_or(|value| is_compressible(value.as_bytes()))
        && !response.headers.iter().any(|(name, value)| forbids_compression(name, value.as_bytes()))
}

/// The length of the body, if known; `Err` if the declared length is wrong, an error that the
/// engine has to detect. A response to HEAD may declare the length of a body that it omits.
fn body_length(method: &Method, response: &Response) -> Result<Option<u64>, ()> {
    match (response.declared_length().transpose()?, response.length()) {
        (Some(declared), Some(0)) if *method == Method::HEAD => Ok(Some(declared)),
        (Some(declared), Some(length)) if declared != length => Err(()),
        (declared, length) => Ok(declared.or(length)),
    }
}

/// Compresses `bytes`; `None` if the result is not smaller.
fn compress_bytes(coding: Coding, levels: Levels, bytes: &[u8]) -> Option<Bytes> {
    let mut encoder = Encoder::new(coding, levels).ok()?;
    encoder.write(bytes).ok()?;
    encoder.finish().ok().filter(|compressed| compressed.len() < bytes.len())
}
