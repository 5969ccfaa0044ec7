//! Conversion of requests and responses to and from the types of the `http` crate.

use std::any::Any;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Uri, Version};
use http_body::{Body as _, Frame, SizeHint};

use crate::clock::wall;
use crate::error::{Error, ErrorKind, Result};
use crate::message::body::{Body, into_body_error};
use crate::message::connection::Connection;
use crate::message::fields::{Field, Fields};
use crate::message::into_response::IntoResponse;
use crate::message::payload;
use crate::message::payload::Payload;
use crate::message::representation::{self, ResponseContext};
use crate::message::request::Request;
use crate::message::request_head::RequestHead;
use crate::message::response::Response;
use crate::random::random_boundary;
use crate::tower::maps::HeaderMapCache;
use crate::tower::upgrade_extension::UpgradeExtension;
use crate::tower::{BoxError, head};
use weft_proto::http1::framing::{self, content_length};

/// Converts a request for a service. `into_body` creates the service's type of bodies from a body
/// that is not empty. The result is stored in `converted`, a new request, because large values are
/// moved otherwise.
///
/// # Errors
/// `Malformed` if the target is not a valid URI for `http`, `HeadTooLarge` if there are more fields
/// than its map can hold.
#[inline(always)]
pub(crate) fn to_http_request<B>(
    maps: &HeaderMapCache,
    request: Request,
    converted: &mut http::Request<B>,
    into_body: impl FnOnce(Body) -> B,
) -> Result<()> {
    let (head, body, connection, mut extensions) = request.into_components();
    *converted.uri_mut() = uri(&head, &connection)?;
    let headers = maps.get(head.headers()).map_err(|_| too_many_fields())?;
    // An empty map has no memory to free, but the compiler does not know that it is empty.
    mem::forget(mem::replace(converted.headers_mut(), headers));
    *converted.method_mut() = head.method().clone();
    *converted.version_mut() = head.version();
    if extensions.is_empty() {
        extensions = maps.extensions();
    }
    extensions.insert(connection);
    *converted.extensions_mut() = extensions;
    if !body.is_empty() {
        *converted.body_mut() = into_body(body);
    }
    Ok(())
}

/// Returns the target, with the changes by middleware, as a slice of the head. Over HTTP/2 it has a
/// scheme and an authority, which clients send apart from the path (RFC 9113 §8.3.1).
#[inline]
fn uri(head: &RequestHead, connection: &Connection) -> Result<Uri> {
    let target = head.received_uri();
    let uri = match head.rewritten() {
        // Returned at once, because most requests are such, and a URI is large.
        None if head.version() < Version::HTTP_2 => return target.map_err(|_| no_uri()),
        None => target.map_err(|_| no_uri())?,
        Some(local) => with_local(target.unwrap_or_default(), local).ok_or_else(no_uri)?,
    };
    let is_local = || uri.path().starts_with('/') && uri.authority().is_none();
    if head.version() >= Version::HTTP_2
        && is_local()
        && let Some(authority) = head.shared_authority()
        && let Ok(authority) = Authority::from_maybe_shared(authority)
    {
        let mut parts = uri.into_parts();
        parts.scheme = Some(if connection.is_secure() { Scheme::HTTPS } else { Scheme::HTTP });
        parts.authority = Some(authority);
        return Ok(Uri::from_parts(parts).expect("all parts are present"));
    }
    Ok(uri)
}

/// Replaces path and query.
fn with_local(target: Uri, local: &str) -> Option<Uri> {
    let mut parts = target.into_parts();
    // A prefix was all of the path: to an application it is the root.
    let local = if local.is_empty() { "/" } else { local };
    parts.path_and_query = Some(PathAndQuery::try_from(local).ok()?);
    Uri::from_parts(parts).ok()
}

fn no_uri() -> Error {
    Error::malformed("the request target is no URI")
}

fn too_many_fields() -> Error {
    Error::new(ErrorKind::HeadTooLarge, "too many fields")
}

/// Converts a request from a service. `original` is the head of the request that it was converted
/// from, if any.
///
/// # Errors
/// `Malformed` if the URI is not a valid request target, `HeadTooLarge` if the fields exceed the
/// maximum size of a head.
pub(super) fn from_http_request<B>(
    request: http::Request<B>,
    original: Option<RequestHead>,
) -> Result<Request>
where
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let (mut parts, body) = request.into_parts();
    let head = head::from_parts(&parts, original)?;
    let body = downcast(body).unwrap_or_else(Body::from_http_body);
    let connection = parts.extensions.remove();
    let mut request = Request::from_components((head, body), connection, parts.extensions);
    if *request.method() != parts.method {
        request.set_method(parts.method);
    }
    let local = parts.uri.path_and_query().map_or("", PathAndQuery::as_str);
    // An empty path is the same as `/` (RFC 9110 §4.2.3).
    let is_same = local == request.head().path_and_query() || local == request.path();
    if local.starts_with('/') && !is_same {
        request.set_path_and_query(local);
    }
    Ok(request)
}

/// Converts a response for a service. The preconditions and ranges of the request are evaluated
/// here for a file, because the engine does not see the file.
pub(super) fn to_http_response(head: &RequestHead, response: Response) -> http::Response<Body> {
    let moment = ResponseContext { now: wall::now(), boundary: random_boundary };
    to_http_response_as_is(representation::complete_file_response(head, response, &moment))
}

/// Converts a response without evaluating preconditions and ranges. If the length is known, a
/// `Content-Length` field is set, because the bodies of some layers do not forward their size.
pub(super) fn to_http_response_as_is(response: Response) -> http::Response<Body> {
    let length = response.length().filter(|_| !framing::is_bodiless(response.status));
    let Response { status, headers, payload, extensions, .. } = response;
    let (body, upgrade) = payload::to_body(payload);
    let mut response = http::Response::new(body);
    *response.status_mut() = status;
    *response.extensions_mut() = extensions;
    if let Some(upgrade) = upgrade {
        response.extensions_mut().insert(UpgradeExtension::new(upgrade));
    }
    for (name, value) in headers.into_vec() {
        response.headers_mut().append(name, value);
    }
    if let Some(length) = length {
        response.headers_mut().entry(CONTENT_LENGTH).or_insert(length.into());
    }
    response
}

/// For handlers of frameworks that use the response type of the crate `http`. A file becomes a
/// stream, and the engine no longer evaluates its validators and ranges. An upgrade is carried in
/// the extensions to [`app`](super::app).
impl From<Response> for http::Response<Body> {
    fn from(response: Response) -> http::Response<Body> {
        to_http_response_as_is(response)
    }
}

/// For handlers and middleware that have a response of the crate `http`, such as one that a client
/// has received. A field `Content-Length` must be the length of the body.
///
/// ```
/// use weft::{Request, Response};
///
/// async fn hello(_: Request) -> http::Response<String> {
///     http::Response::builder().header("x-a", "b").body("Hello\n".to_owned()).unwrap()
/// }
/// let response = weft::testing::get(hello, "/");
/// assert_eq!(response.header("x-a"), Some("b"));
/// response.assert_text("Hello\n");
/// let response = Response::from(http::Response::new(weft::Body::from("text")));
/// assert_eq!(response.length(), Some(4));
/// ```
impl<B> From<http::Response<B>> for Response
where
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    fn from(response: http::Response<B>) -> Response {
        from_http_response(false, response, from_http_body)
    }
}

impl<B> IntoResponse for http::Response<B>
where
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    fn into_response(self) -> Response {
        self.into()
    }
}

/// Converts a response from a service, to `HEAD` or to another method.
#[inline]
pub(super) fn from_http_response<B>(
    is_head: bool,
    response: http::Response<B>,
    into_body: impl FnOnce(B) -> Body,
) -> Response {
    let (mut parts, body) = response.into_parts();
    let upgrade = parts.extensions.remove::<UpgradeExtension>().and_then(|carried| carried.take());
    let body = match into_body(body) {
        // Frameworks remove the body of a response to HEAD. An empty body would be sent with
        // `Content-Length: 0`, which would be the length of the response to GET (RFC 9110 §8.6).
        // Nor is it known that GET would have `Transfer-Encoding`.
        body if is_head && body.is_end_stream() => Body::removed(),
        body => body,
    };
    let length = body.length();
    Response {
        status: parts.status,
        headers: fields(parts.headers, length),
        payload: match upgrade {
            Some(upgrade) => Payload::Upgrade(upgrade),
            None => to_payload(body),
        },
        extensions: parts.extensions,
        is_generated_error: false,
        has_invalid_field: false,
    }
}

/// A file that was passed through unchanged is sent as a file.
#[inline]
fn to_payload(body: Body) -> Payload {
    if body.is_in_memory() {
        // Most bodies are. The result of `into_file` is larger.
        return Payload::Body(body);
    }
    match body.into_file() {
        Ok(file) => Payload::File(Arc::new(file)),
        Err(body) => Payload::Body(body),
    }
}

/// Converts the fields of a response whose body has this length, if known. The engine writes the
/// length itself. A wrong one stays, and is reported.
fn fields(map: HeaderMap, length: Option<u64>) -> Fields {
    let is_written = |name: &HeaderName, value: &HeaderValue| {
        *name == CONTENT_LENGTH && length.is_some() && content_length(value.as_bytes()) == length
    };
    // Most responses have one other field, the type of their content.
    let mut others = map.iter().filter(|(name, value)| !is_written(name, value));
    let common = others.next().and_then(|(name, value)| Fields::find_static(name, value));
    if let Some(common) = common
        && others.next().is_none()
    {
        return Fields::Static(common);
    }
    let mut list: Vec<Field> = Vec::with_capacity(map.len());
    let mut is_length = false;
    for (name, value) in map {
        // The iterator returns the name only for the first of several fields with the same name.
        let name = match (name, list.last()) {
            (Some(name), _) => name,
            (None, Some((name, _))) if !is_length => name.clone(),
            _ => CONTENT_LENGTH,
        };
        is_length = name == CONTENT_LENGTH;
        if !is_written(&name, &value) {
            list.push((name, value));
        }
    }
    Fields::Owned(list)
}

/// Maximum size of a body whose first frame is polled at once, to detect a body of one frame.
const SMALL_BYTES: u64 = 64 << 10;

/// Converts a body. A [`Body`] stays as it is.
pub(super) fn from_http_body<B>(body: B) -> Body
where
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    match downcast(body) {
        Ok(body) => body,
        Err(body) if body.is_end_stream() => Body::empty(),
        Err(body) => from_unpin_body(Box::pin(body)),
    }
}

/// Converts a body. A small body that is available at once becomes its bytes, so that it is sent
/// with its head in one write. Any other body becomes a stream.
pub(crate) fn from_unpin_body<B>(body: B) -> Body
where
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + Unpin + 'static,
{
    if body.is_end_stream() {
        return Body::empty();
    }
    let Some(length) = body.size_hint().exact().filter(|length| *length <= SMALL_BYTES) else {
        return Body::from_http_body(body);
    };
    let mut rest = body;
    // No waker is registered here: the reader of the rest polls again and registers its own.
    let first = match Pin::new(&mut rest).poll_frame(&mut Context::from_waker(Waker::noop())) {
        Poll::Pending => return Body::from_http_body(rest),
        Poll::Ready(None) => return Body::empty(),
        Poll::Ready(Some(first)) => first.map(Frame::into_data).map_err(into_body_error),
    };
    let first = match first {
        Ok(Ok(data)) if rest.is_end_stream() => return data.into(),
        Ok(Ok(data)) => Ok(Frame::data(data)),
        Ok(Err(frame)) => Ok(frame),
        Err(error) => Err(error),
    };
    Body::boxed(PeekedBody { first: Some((first, length)), rest })
}

/// Returns the body as a [`Body`], if it is one.
fn downcast<B: 'static>(body: B) -> std::result::Result<Body, B> {
    let mut body = Some(body);
    match (&mut body as &mut dyn Any).downcast_mut::<Option<Body>>() {
        Some(body) => Ok(body.take().unwrap_or_default()),
        None => Err(body.expect("only a `Body` is taken out")),
    }
}

/// A body whose first frame has been polled already.
struct PeekedBody<B> {
    /// First frame, with the length of the whole body.
    first: Option<(Result<Frame<Bytes>>, u64)>,
    rest: B,
}

impl<B> http_body::Body for PeekedBody<B>
where
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Unpin,
{
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>>>> {
        match self.first.take() {
            Some((first, _)) => Poll::Ready(Some(first)),
            None => Pin::new(&mut self.rest).poll_frame(cx).map_err(into_body_error),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match &self.first {
            Some((_, length)) => SizeHint::with_exact(*length),
            None => self.rest.size_hint(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::File;
    use crate::testing::request;
    use http::Response as HttpResponse;
    use std::io::Write;

    fn file() -> Response {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"0123456789").unwrap();
        Response::from_file(File::open(file).unwrap())
    }

    #[test]
    fn file_stays_a_file_in_a_round_trip() {
        let request = request("GET / HTTP/1.1\r\nHost: a\r\nRange: bytes=2-4\r\n\r\n");
        let response = to_http_response(request.head(), file());
        assert_eq!(response.headers()["content-range"], "bytes 2-4/10");
        let back = from_http_response(false, response, from_http_body);
        let Payload::File(part) = &back.payload else { panic!("{back:?}") };
        assert_eq!(part.read().unwrap(), "234");
        assert_eq!(back.status.as_u16(), 206);
    }

    #[test]
    fn length_of_the_body_is_no_field_and_a_wrong_one_stays() {
        let fields = |lines: &[(&str, &str)], is_head: bool| {
            let builder = lines.iter().fold(HttpResponse::builder(), |b, (n, v)| b.header(*n, *v));
            let body = Body::from(if is_head { "" } else { "hello" });
            let response = from_http_response(is_head, builder.body(body).unwrap(), from_http_body);
            let text = |(name, value): &(http::HeaderName, HeaderValue)| {
                format!("{name}: {}", value.to_str().unwrap())
            };
            (response.headers.iter().map(text).collect::<Vec<_>>(), response)
        };
        let length = ("content-length", "5");
        for (lines, expected) in [
            (&[length][..], &[][..]),
            (&[("content-type", "text/html"), length], &["content-type: text/html"]),
            (&[("content-length", "6")], &["content-length: 6"]),
            (&[length, ("content-length", "6")], &["content-length: 6"]),
            (&[("a", "1"), length, ("a", "2")], &["a: 1", "a: 2"]),
            (&[("a", "1"), length, ("content-length", "6")], &["a: 1", "content-length: 6"]),
            (
                &[("a", "1"), ("content-type", "application/json")],
                &["a: 1", "content-type: application/json"],
            ),
            (&[("content-length", "x"), ("a", "1")], &["content-length: x", "a: 1"]),
        ] {
            assert_eq!(fields(lines, false).0, expected, "{lines:?}");
        }
        let (fields, response) = fields(&[length], true);
        assert_eq!(fields, ["content-length: 5"]);
        assert_eq!(response.validated_length(true).unwrap(), Some(5));
    }

    #[test]
    fn usual_content_types_need_no_list() {
        let fields = |lines: &[(&str, &str)]| {
            let builder = lines.iter().fold(HttpResponse::builder(), |b, (n, v)| b.header(*n, *v));
            let response = builder.body(Body::empty()).unwrap();
            from_http_response(false, response, from_http_body).headers
        };
        for value in ["text/plain; charset=utf-8", "text/html; charset=utf-8", "application/json"] {
            let only = fields(&[("content-type", value)]);
            assert!(matches!(only, Fields::Static(_)), "{only:?}");
            let line = format!("content-type: {value}\r\n");
            assert_eq!(only.sources().lines, line.as_bytes());
            let two = fields(&[("content-type", value), ("a", "1")]);
            let names: Vec<_> = two.iter().map(|(name, value)| (name.as_str(), value)).collect();
            assert_eq!(
                names,
                [("content-type", &only[0].1), ("a", &HeaderValue::from_static("1"))]
            );
        }
        assert!(matches!(fields(&[("content-type", "text/css")]), Fields::Owned(_)));
    }

    #[test]
    fn unchanged_head_is_reused() {
        let text = "GET /a?b HTTP/1.1\r\nHost: a\r\nX: 1\r\nx: 2\r\nY:\r\n\r\n";
        let original = request(text);
        let head = original.head().clone();
        let convert = |request| {
            let mut converted = http::Request::default();
            let maps = HeaderMapCache::new();
            to_http_request(&maps, request, &mut converted, |body| body).unwrap();
            converted
        };
        let converted = convert(original);
        let back = from_http_request(converted, Some(head.clone())).unwrap();
        assert_eq!(back.headers().text().as_ptr(), head.headers().text().as_ptr());

        let mut converted = convert(request(text));
        converted.headers_mut().insert("y", HeaderValue::from_static("3"));
        let back = from_http_request(converted, Some(head)).unwrap();
        let fields: Vec<_> = back.headers().iter().collect();
        let expected = [("host", "a"), ("x", "1"), ("x", "2"), ("y", "3")];
        assert_eq!(fields, expected.map(|(name, value)| (name, value.as_bytes())));
        assert_eq!((back.target(), back.path(), back.query()), ("/a?b", "/a", Some("b")));
    }
}
