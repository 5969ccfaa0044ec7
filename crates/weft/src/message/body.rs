//! Message bodies: empty, bytes, or a stream that is read on demand.

#[cfg(feature = "tower")]
mod into_file;
mod reader;

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_core::Stream;
use http::HeaderMap;
use http_body::{Body as _, Frame, SizeHint};

use crate::disk::File;
use crate::disk::{FileBody, PIECE_BYTES};
use crate::error::{Error, ErrorKind, Result};
use crate::exclusive::Exclusive;
use weft_proto::headers::Headers;

/// The body of a request or of a response.
///
/// The body of a request is *pulled*: it reads from the connection only when the next chunk is
/// polled, so a slow application slows down its client, and memory use stays constant. A body can
/// be moved to another task or thread. Dropping it returns the input to the connection.
///
/// ```
/// use weft::{Request, Response};
///
/// async fn count(mut request: Request) -> weft::Result<usize> {
///     let mut bytes = 0;
///     while let Some(chunk) = request.body().chunk().await? {
///         bytes += chunk.len();
///     }
///     Ok(bytes)
/// }
/// # let _ = count;
/// ```
///
/// # Memory
///
/// The body of a response is kept until the client has received it. A client decides how long that
/// takes: it may read slowly, or open 128 streams of HTTP/2 and keep their windows closed until
/// [`stall_timeout`](crate::Settings::stall_timeout). The engine bounds the content that it obtains
/// itself: files are read, and streams are polled, when the client can receive more. It cannot
/// bound bytes that the application has already made, so the kind of a body determines its cost:
///
/// - [`Bytes`] that responses share, such as `Bytes::from_static` and clones, are not copied: any
///   number of responses costs one content.
/// - Bytes that are made for each request, such as a `String` or a `Vec<u8>`, exist once per open
///   response. 128 streams with a page of 1 MiB are 128 MiB per connection.
/// - A [stream](Body::stream) that produces its pieces when it is polled costs one piece, and a
///   [file](crate::Response::from_file) less than that.
///
/// Large content that differs by request should therefore be a stream or a file.
/// [`Settings::max_concurrent_streams`](crate::Settings::max_concurrent_streams),
/// [`max_connections_per_peer`](crate::Settings::max_connections_per_peer) and the middleware
/// [`ConcurrencyLimit`](crate::middleware::ConcurrencyLimit) bound the number of open responses.
#[derive(Default)]
pub struct Body(Kind);

#[derive(Default)]
enum Kind {
    #[default]
    Empty,
    Bytes(Bytes),
    Inbound(Box<dyn Inbound>),
    Stream(Exclusive<BoxBody>, Option<Box<StreamLimit>>),
    File(Box<FileBody>),
    /// A body in memory or a stream that exceeds a limit set later, and the limit.
    TooLarge(u64),
    /// A body that a framework has removed from a response to HEAD. Its length is unknown.
    Removed,
}

/// The limit that [`Body::set_limit`] has set for a stream.
struct StreamLimit {
    bytes: u64,
    /// Number of bytes that the stream may still produce.
    remaining: u64,
}

impl StreamLimit {
    /// Counts bytes of the stream.
    fn count(&mut self, bytes: usize) -> Result<(), u64> {
        self.remaining = self.remaining.checked_sub(bytes as u64).ok_or(self.bytes)?;
        Ok(())
    }
}

/// The content of a request as a protocol version delivers it.
pub(crate) trait Inbound: Send + Sync {
    /// Polls for the next piece of content; `None` is its end.
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>>>;

    /// Number of remaining bytes, if the client declared it.
    fn length(&self) -> Option<u64>;

    /// Replaces the limit for the remaining bytes.
    fn set_limit(&mut self, bytes: u64);

    /// Lifts limits of the settings.
    fn lift_limits(&mut self, lifted: LiftedLimits);

    /// Replaces the minimum rate for the remaining bytes.
    fn set_min_rate(&mut self, bytes_per_second: u32, stall_timeout: Duration);

    /// Returns the trailer fields, after the end of the content.
    fn trailers(&self) -> Option<&Headers>;

    /// Takes the trailer fields.
    fn take_trailers(&mut self) -> Option<Headers>;
}

/// Limits of the settings that do not apply to a body, because a framework has its own. Limits that
/// the application has set for the body remain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LiftedLimits {
    /// The default size. Another size is a setting of the user, and remains.
    #[cfg(feature = "axum")]
    DefaultSize,
    /// The default size and the rate, if the length of the body is unknown.
    SizeAndRateOfStream,
}

type BoxBody = Pin<Box<dyn http_body::Body<Data = Bytes, Error = Error> + Send>>;

impl Body {
    /// Creates an empty body.
    #[inline]
    pub fn empty() -> Body {
        Body(Kind::Empty)
    }

    /// Creates a body from a stream of chunks. Its length is unknown, so it is sent with chunked
    /// transfer coding, or delimited by the close of the connection for HTTP/1.0 clients.
    pub fn stream<S, B, E>(stream: S) -> Body
    where
        S: Stream<Item = Result<B, E>> + Send + 'static,
        B: Into<Bytes>,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        Body::boxed(StreamBody(Box::pin(stream)))
    }

    /// Creates a body from any [`http_body::Body`], with its size hint and its trailers.
    pub fn from_http_body<B>(body: B) -> Body
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        Body::boxed(MapErr(Box::pin(body)))
    }

    /// Boxes a body whose error type is already [`Error`].
    #[inline]
    pub(crate) fn boxed<B>(body: B) -> Body
    where
        B: http_body::Body<Data = Bytes, Error = Error> + Send + 'static,
    {
        Body(Kind::Stream(Exclusive::new(Box::pin(body)), None))
    }

    /// Creates the body of a response to HEAD from which a framework has removed the content.
    #[cfg_attr(not(feature = "tower"), expect(dead_code, reason = "only frameworks remove a body"))]
    pub(crate) fn removed() -> Body {
        Body(Kind::Removed)
    }

    /// Returns true if a framework has removed the content, so that its framing is unknown.
    #[inline]
    pub(crate) fn is_removed(&self) -> bool {
        matches!(self.0, Kind::Removed)
    }

    /// Creates a body from a file, which is read in pieces of at most `max_piece` bytes.
    pub(crate) fn file_in_pieces(file: File, max_piece: usize) -> Body {
        Body(Kind::File(Box::new(FileBody::new(file, max_piece))))
    }

    /// Creates a body from the content of a request.
    pub(crate) fn inbound(source: impl Inbound + 'static) -> Body {
        Body(Kind::Inbound(Box::new(source)))
    }

    /// Returns true if the body is known to be empty.
    #[cfg_attr(not(feature = "tower"), expect(dead_code, reason = "only services get no body"))]
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self.0, Kind::Empty)
    }

    /// Returns true if the body has to be received.
    #[cfg_attr(not(feature = "tower"), expect(dead_code, reason = "only services are watched"))]
    #[inline]
    pub(crate) fn is_inbound(&self) -> bool {
        matches!(self.0, Kind::Inbound(_))
    }

    /// Lifts limits of the settings.
    #[cfg_attr(not(feature = "tower"), expect(dead_code, reason = "only frameworks have limits"))]
    pub(crate) fn lift_limits(&mut self, lifted: LiftedLimits) {
        if let Kind::Inbound(source) = &mut self.0 {
            source.lift_limits(lifted);
        }
    }

    /// Returns the bytes, if the body is in memory. Otherwise returns the body unchanged.
    #[inline]
    pub(crate) fn into_bytes(self) -> Result<Bytes, Body> {
        match self.0 {
            Kind::Empty => Ok(Bytes::new()),
            Kind::Bytes(bytes) => Ok(bytes),
            _ => Err(self),
        }
    }

    /// Returns true if [`take_bytes`](Body::take_bytes) returns the complete body.
    #[inline]
    pub(crate) fn is_in_memory(&self) -> bool {
        matches!(self.0, Kind::Empty | Kind::Bytes(_))
    }

    /// Takes the bytes of a body in memory.
    #[inline]
    pub(crate) fn take_bytes(&mut self) -> Bytes {
        match &mut self.0 {
            Kind::Bytes(bytes) => std::mem::take(bytes),
            _ => Bytes::new(),
        }
    }

    /// Returns the bytes, if the body is in memory and not empty.
    #[inline]
    pub(crate) fn as_bytes(&self) -> Option<&Bytes> {
        match &self.0 {
            Kind::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Returns the next chunk as soon as it is received, or `None` at the end.
    ///
    /// # Errors
    /// [`BodyIncomplete`](ErrorKind::BodyIncomplete) if the peer closes before the end,
    /// [`BodyTooLarge`](ErrorKind::BodyTooLarge) beyond the limit,
    /// [`Malformed`](ErrorKind::Malformed) for invalid chunked coding,
    /// [`TooSlow`](ErrorKind::TooSlow) below the minimum rate. No further data can be read after
    /// an error.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>> {
        poll_fn(|cx| self.poll_chunk(cx)).await
    }

    /// Polls for the next [`chunk`](Body::chunk). Trailers of a stream are skipped.
    pub fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>>> {
        loop {
            return match &mut self.0 {
                Kind::Empty | Kind::Removed => Poll::Ready(Ok(None)),
                Kind::Bytes(bytes) => {
                    let bytes = std::mem::take(bytes);
                    self.0 = Kind::Empty;
                    Poll::Ready(Ok(Some(bytes).filter(|bytes| !bytes.is_empty())))
                }
                Kind::Inbound(source) => source.poll_chunk(cx),
                Kind::TooLarge(limit) => Poll::Ready(Err(too_large(*limit, SET_LIMIT))),
                Kind::Stream(..) | Kind::File(_) => match ready!(self.poll_stream(cx)) {
                    None => Poll::Ready(Ok(None)),
                    Some(Err(error)) => Poll::Ready(Err(error)),
                    Some(Ok(frame)) => match frame.into_data() {
                        Ok(data) => Poll::Ready(Ok(Some(data))),
                        Err(_trailers) => continue,
                    },
                },
            };
        }
    }

    /// Polls for the next frame of a stream or of a file. A stream ends with its trailers: some
    /// bodies produce further frames, or stay pending, when they are polled again.
    fn poll_stream(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>>>> {
        match &mut self.0 {
            Kind::Stream(stream, limit) => {
                let frame = ready!(stream.get_mut().as_mut().poll_frame(cx)?);
                if frame.as_ref().is_some_and(Frame::is_trailers) {
                    self.0 = Kind::Empty;
                    return Poll::Ready(frame.map(Ok));
                }
                let length = frame.as_ref().and_then(Frame::data_ref).map_or(0, Bytes::len);
                if let Some(limit) = limit
                    && let Err(bytes) = limit.count(length)
                {
                    self.0 = Kind::TooLarge(bytes);
                    return Poll::Ready(Some(Err(too_large(bytes, SET_LIMIT))));
                }
                Poll::Ready(frame.map(Ok))
            }
            Kind::File(reader) => Pin::new(reader).poll_frame(cx),
            _ => unreachable!("called only for streams and files"),
        }
    }

    /// Reads the whole body, up to `limit` bytes.
    ///
    /// # Errors
    /// [`BodyTooLarge`](ErrorKind::BodyTooLarge) beyond the limit, and the errors of
    /// [`chunk`](Body::chunk).
    pub async fn collect(self, limit: usize) -> Result<Bytes> {
        self.collect_within(limit, COLLECT_LIMIT).await
    }

    /// Reads the whole body, up to `limit` bytes, the value of `setting`.
    pub(crate) async fn collect_within(
        mut self,
        limit: usize,
        setting: &'static str,
    ) -> Result<Bytes> {
        if self.length().is_some_and(|length| length > limit as u64) {
            return Err(too_large(limit as u64, setting));
        }
        let Some(first) = self.chunk().await? else { return Ok(Bytes::new()) };
        let mut whole = None;
        while let Some(chunk) = self.chunk().await? {
            let whole = whole.get_or_insert_with(|| BytesMut::from(&first[..]));
            if whole.len() + chunk.len() > limit {
                return Err(too_large(limit as u64, setting));
            }
            whole.extend_from_slice(&chunk);
        }
        match whole {
            Some(whole) => Ok(whole.freeze()),
            None if first.len() > limit => Err(too_large(limit as u64, setting)),
            None => Ok(first),
        }
    }

    /// Number of bytes that remain to be read, if known in advance.
    #[inline]
    pub fn length(&self) -> Option<u64> {
        match &self.0 {
            Kind::Empty => Some(0),
            Kind::Bytes(bytes) => Some(bytes.len() as u64),
            Kind::Inbound(source) => source.length(),
            Kind::Stream(stream, _) => stream.lock().size_hint().exact(),
            Kind::File(reader) => reader.size_hint().exact(),
            Kind::TooLarge(_) | Kind::Removed => None,
        }
    }

    /// Sets the maximum size of the unread rest of a request's body. It replaces
    /// [`Settings::max_body_bytes`](crate::Settings), and also applies to a body of unknown length
    /// while the response is sent.
    pub fn set_limit(&mut self, bytes: u64) {
        match &mut self.0 {
            Kind::Inbound(source) => source.set_limit(bytes),
            Kind::Bytes(received) if received.len() as u64 > bytes => {
                self.0 = Kind::TooLarge(bytes);
            }
            Kind::Stream(_, limit) => {
                *limit = Some(Box::new(StreamLimit { bytes, remaining: bytes }))
            }
            _ => {}
        }
    }

    /// Sets the minimum rate at which the client must send the unread rest of a request's body, and
    /// the time credit before the rate applies. They replace
    /// [`Settings::min_bytes_per_second`](crate::Settings::min_bytes_per_second) and
    /// [`stall_timeout`](crate::Settings::stall_timeout), and also apply to a body of unknown
    /// length while the response is sent. With a rate of 0, any byte restores the whole credit.
    /// With a timeout of [`Duration::MAX`] the client may pause for any time, as in a stream of
    /// messages before the response. The middleware [`BodyRate`](crate::middleware::BodyRate) does
    /// the same for an application.
    pub fn set_min_rate(&mut self, bytes_per_second: u32, stall_timeout: Duration) {
        if let Kind::Inbound(source) = &mut self.0 {
            source.set_min_rate(bytes_per_second, stall_timeout);
        }
    }

    /// Trailer fields of a request's body, available after it has been read to its end.
    pub fn trailers(&self) -> Option<&Headers> {
        match &self.0 {
            Kind::Inbound(source) => source.trailers(),
            _ => None,
        }
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Body {
        Body(if bytes.is_empty() { Kind::Empty } else { Kind::Bytes(bytes) })
    }
}

/// The contents of a file, as a stream of known length that does not block the event loop.
/// [`Response::from_file`](crate::Response::from_file) sends a file more efficiently.
impl From<File> for Body {
    fn from(file: File) -> Body {
        match file.in_memory() {
            Some(bytes) => bytes.into(),
            None => Body::file_in_pieces(file, PIECE_BYTES),
        }
    }
}

impl From<&'static str> for Body {
    fn from(text: &'static str) -> Body {
        Bytes::from_static(text.as_bytes()).into()
    }
}

impl From<String> for Body {
    fn from(text: String) -> Body {
        Bytes::from(text).into()
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Body {
        Bytes::from(bytes).into()
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>>>> {
        if let Kind::Stream(..) | Kind::File(_) = self.0 {
            return self.poll_stream(cx);
        }
        if let Some(chunk) = ready!(self.poll_chunk(cx)?) {
            return Poll::Ready(Some(Ok(Frame::data(chunk))));
        }
        let trailers = match &mut self.0 {
            Kind::Inbound(source) => source.take_trailers(),
            _ => None,
        };
        Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(header_map(&trailers)))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Stream(stream, _) => stream.lock().is_end_stream(),
            _ => self.length() == Some(0),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Stream(stream, _) => stream.lock().size_hint(),
            _ => self.length().map_or_else(SizeHint::default, SizeHint::with_exact),
        }
    }
}

fn header_map(headers: &Headers) -> HeaderMap {
    let parsed =
        headers.iter().map(|(name, value)| Some((name.parse().ok()?, value.try_into().ok()?)));
    parsed.flatten().collect()
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Empty => f.write_str("Body(empty)"),
            Kind::Bytes(bytes) => write!(f, "Body({} bytes)", bytes.len()),
            Kind::Inbound(_) => f.write_str("Body(incoming)"),
            Kind::Stream(..) => f.write_str("Body(stream)"),
            Kind::File(_) => f.write_str("Body(file)"),
            Kind::TooLarge(_) => f.write_str("Body(too large)"),
            Kind::Removed => f.write_str("Body(removed)"),
        }
    }
}

/// Adapter from a stream of chunks to a body.
struct StreamBody<S>(Pin<Box<S>>);

impl<S, B, E> http_body::Body for StreamBody<S>
where
    S: Stream<Item = Result<B, E>>,
    B: Into<Bytes>,
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>>>> {
        let next = ready!(self.0.as_mut().poll_next(cx));
        Poll::Ready(next.map(|chunk| match chunk {
            Ok(chunk) => Ok(Frame::data(chunk.into())),
            Err(error) => Err(into_body_error(error)),
        }))
    }
}

/// Adapter that converts the errors of a body into [`Error`].
struct MapErr<B>(Pin<Box<B>>);

impl<B> http_body::Body for MapErr<B>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>>>> {
        self.0.as_mut().poll_frame(cx).map_err(into_body_error)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

/// The error of a body over a limit in bytes, the value of `setting`.
#[cold]
pub(crate) fn too_large(limit: u64, setting: &'static str) -> Error {
    let reason = format!("the body is larger than {limit} bytes");
    Error::new(ErrorKind::BodyTooLarge, reason).with_limit(setting)
}

/// The limit that a caller of [`Body::collect`] sets.
const COLLECT_LIMIT: &str = "Body::collect(limit)";

/// The limit that [`Body::set_limit`] has set, also for middleware.
pub(crate) const SET_LIMIT: &str = "Body::set_limit, BodyLimit";

pub(crate) fn wrong_length() -> Error {
    Error::new(ErrorKind::LengthMismatch, "Content-Length is not the length of the body")
}

/// Converts an error of an application's body. An [`Error`] of the engine is returned unchanged,
/// for example if a request body is sent back as the response.
pub(crate) fn into_body_error(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    match error.into().downcast::<Error>() {
        Ok(error) => *error,
        Err(other) => {
            Error::new(ErrorKind::BodyFailed, "the application's body failed").with_source(other)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frameworks such as salvo, and `BodyExt::boxed`, require it.
    #[test]
    fn body_is_sync() {
        fn assert_sync<T: Send + Sync>() {}
        assert_sync::<Body>();
        assert_sync::<crate::Request>();
    }

    #[test]
    fn stream_body_respects_limit() {
        let stream = || {
            let parts = ["abc", "def", "ghi"].map(|part| Ok::<_, Error>(Bytes::from(part)));
            Body::stream(futures_util::stream::iter(parts))
        };
        let mut cx = Context::from_waker(std::task::Waker::noop());
        for (limit, raised_by, expected) in [
            (9, 0, "abc def ghi"),
            (8, 0, "abc def: the body is larger than 8 bytes"),
            (0, 0, ": the body is larger than 0 bytes"),
            (3, 6, "abc def ghi"),
            (3, 5, "abc def: the body is larger than 5 bytes"),
        ] {
            let mut body = stream();
            body.set_limit(limit);
            let mut received = String::new();
            let mut is_raised = false;
            loop {
                match body.poll_chunk(&mut cx) {
                    Poll::Ready(Ok(Some(chunk))) => {
                        let separator = if received.is_empty() { "" } else { " " };
                        received += &format!("{separator}{}", chunk.escape_ascii());
                    }
                    Poll::Ready(Ok(None)) => break,
                    Poll::Ready(Err(error)) => {
                        assert_eq!(error.kind(), ErrorKind::BodyTooLarge);
                        let setting = std::error::Error::source(&error).unwrap().to_string();
                        assert_eq!(setting, format!("the limit is `{SET_LIMIT}`"));
                        assert!(matches!(body.poll_chunk(&mut cx), Poll::Ready(Err(_))));
                        received = format!("{received}: {}", error.reason());
                        break;
                    }
                    Poll::Pending => unreachable!("the stream is always ready"),
                }
                if raised_by > 0 && !std::mem::replace(&mut is_raised, true) {
                    body.set_limit(raised_by);
                }
            }
            assert_eq!(received, expected, "{limit}");
        }
    }
}
