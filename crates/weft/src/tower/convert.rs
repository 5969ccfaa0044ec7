//! Requests and responses, from Weft's form to that of the `http` crate and back.

use std::any::Any;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue, Uri};
use http_body::{Frame, SizeHint};

use crate::clock::wall;
use crate::error::{Error, ErrorKind, Result};
use crate::message::body::{Body, failed};
use crate::message::fields::Fields;
use crate::message::payload;
use crate::message::representation::{self, Moment};
use crate::message::request::{Head, Request};
use crate::message::response::{Payload, Response};
use crate::message::upgrade::Carried;
use crate::proto::http1::framing;
use crate::proto::semantics::range::random_boundary;
use crate::tower::maps::Maps;
use crate::tower::{BoxError, head};

/// A request for a service.
///
/// # Errors
/// `Malformed` for a target that is no URI to `http`, `HeadTooLarge` for more fields than its
/// map holds.
pub(super) fn to_http_request(maps: &Maps, request: Request) -> Result<http::Request<Body>> {
    let (head, body, connection, extensions) = request.dissolve();
    let mut request = http::Request::new(body);
    *request.method_mut() = head.method().clone();
    *request.version_mut() = head.version();
    *request.uri_mut() = uri(&head)?;
    *request.headers_mut() = maps.get(head.headers()).map_err(|_| too_many_fields())?;
    *request.extensions_mut() = extensions;
    request.extensions_mut().insert(connection);
    Ok(request)
}

/// The target with what middleware has made of it, as a part of the head's bytes.
fn uri(head: &Head) -> Result<Uri> {
    let target = Uri::from_maybe_shared(head.shared_target());
    let uri = match (target, head.rewritten()) {
        (target, None) => target.ok(),
        (target, Some(local)) => {
            let mut parts = target.unwrap_or_default().into_parts();
            parts.path_and_query = PathAndQuery::try_from(local).ok();
            parts.path_and_query.is_some().then(|| Uri::from_parts(parts).ok()).flatten()
        }
    };
    uri.ok_or_else(|| Error::malformed("the request target is no URI"))
}

fn too_many_fields() -> Error {
    Error::new(ErrorKind::HeadTooLarge, "too many fields")
}

/// A request that a service was given. If it was one of ours, `known` is its head.
///
/// # Errors
/// `Malformed` for a URI that is no request target, `HeadTooLarge` for fields that are larger
/// than any head may be.
pub(super) fn from_http_request<B>(
    request: http::Request<B>,
    known: Option<Head>,
) -> Result<Request>
where
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let (mut parts, body) = request.into_parts();
    let head = head::from_parts(&parts, known)?;
    let body = own(body).unwrap_or_else(Body::from_http_body);
    let connection = parts.extensions.remove();
    let mut request = Request::assemble((head, body), connection, parts.extensions);
    if *request.method() != parts.method {
        request.set_method(parts.method);
    }
    let local = parts.uri.path_and_query().map_or("", PathAndQuery::as_str);
    // An empty path is the same as `/` (RFC 9110 §4.2.3).
    let is_same = local == request.head().local() || local == request.path();
    if local.starts_with('/') && !is_same {
        request.set_path_and_query(local);
    }
    Ok(request)
}

/// A response for a service. What a request says of a file's version and of its parts is
/// heeded here, for the engine will not see the file.
pub(super) fn to_http_response(head: &Head, response: Response) -> http::Response<Body> {
    let moment = Moment { now: wall::now(), boundary: random_boundary };
    plain(representation::answer(head, response, &moment))
}

/// A response that has nothing to do with a file's version. Its length, if it is known, is
/// written down, for the bodies of some layers do not hand on what they know of it.
pub(super) fn plain(response: Response) -> http::Response<Body> {
    let length = response.length().filter(|_| !framing::is_bodiless(response.status));
    let Response { status, headers, payload, extensions } = response;
    let (body, upgrade) = payload::to_body(payload);
    let mut response = http::Response::new(body);
    *response.status_mut() = status;
    *response.extensions_mut() = extensions;
    if let Some(upgrade) = upgrade {
        response.extensions_mut().insert(Carried::new(upgrade));
    }
    for (name, value) in headers.into_vec() {
        response.headers_mut().append(name, value);
    }
    if let Some(length) = length {
        response.headers_mut().entry(CONTENT_LENGTH).or_insert(length.into());
    }
    response
}

/// For handlers of frameworks that speak of responses in the terms of the crate `http`. A file
/// becomes a stream, and the engine has no part in its validators and ranges any more; a
/// connection that is handed over rides in the extensions, to [`app`](super::app).
impl From<Response> for http::Response<Body> {
    fn from(response: Response) -> http::Response<Body> {
        plain(response)
    }
}

/// A response of a service.
pub(super) fn from_http_response<B>(response: http::Response<B>) -> Response
where
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let (mut parts, body) = response.into_parts();
    let upgrade = parts.extensions.remove::<Carried>().and_then(|carried| carried.take());
    let mut fields: Vec<(HeaderName, HeaderValue)> = Vec::with_capacity(parts.headers.len());
    for (name, value) in parts.headers {
        // The map names only the first of several fields of one name.
        let name = name.or_else(|| Some(fields.last()?.0.clone()));
        fields.extend(name.map(|name| (name, value)));
    }
    Response {
        status: parts.status,
        headers: Fields::Own(fields),
        // A file that was handed through is sent as one.
        payload: match (upgrade, from_http_body(body).into_file()) {
            (Some(upgrade), _) => Payload::Upgrade(upgrade),
            (None, Ok(file)) => Payload::File(Arc::new(file)),
            (None, Err(body)) => Payload::Body(body),
        },
        extensions: parts.extensions,
    }
}

/// Bodies of at most so many bytes are looked into, whether they are one piece.
const SMALL_BYTES: u64 = 64 << 10;

/// A body of ours as it is, a small one that is at hand as its bytes, so that it leaves with
/// its head in one write, any other as a stream.
fn from_http_body<B>(body: B) -> Body
where
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let body = match own(body) {
        Ok(own) => return own,
        Err(body) => body,
    };
    if body.is_end_stream() {
        return Body::empty();
    }
    let Some(length) = body.size_hint().exact().filter(|length| *length <= SMALL_BYTES) else {
        return Body::from_http_body(body);
    };
    let mut rest = Box::pin(body);
    // Whoever reads the rest asks again, and is woken then.
    let first = match rest.as_mut().poll_frame(&mut Context::from_waker(Waker::noop())) {
        Poll::Pending => return Body::from_http_body(rest),
        Poll::Ready(None) => return Body::empty(),
        Poll::Ready(Some(first)) => first.map(Frame::into_data).map_err(failed),
    };
    let first = match first {
        Ok(Ok(data)) if rest.is_end_stream() => return data.into(),
        Ok(Ok(data)) => Ok(Frame::data(data)),
        Ok(Err(frame)) => Ok(frame),
        Err(error) => Err(error),
    };
    Body::own(Begun { first: Some((first, length)), rest })
}

/// A body that is one of ours.
fn own<B: 'static>(body: B) -> std::result::Result<Body, B> {
    let mut body = Some(body);
    match (&mut body as &mut dyn Any).downcast_mut::<Option<Body>>() {
        Some(own) => Ok(own.take().unwrap_or_default()),
        None => Err(body.expect("only a body of ours was taken")),
    }
}

/// A body whose first frame was taken off.
struct Begun<B> {
    /// With the length that the body had before.
    first: Option<(Result<Frame<Bytes>>, u64)>,
    rest: Pin<Box<B>>,
}

impl<B: http_body::Body<Data = Bytes, Error: Into<BoxError>>> http_body::Body for Begun<B> {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>>>> {
        match self.first.take() {
            Some((first, _)) => Poll::Ready(Some(first)),
            None => self.rest.as_mut().poll_frame(cx).map_err(failed),
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
    use std::io::Write;

    fn file() -> Response {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"0123456789").unwrap();
        Response::file(File::open(file).unwrap())
    }

    #[test]
    fn a_file_comes_back_as_a_file() {
        let request = request("GET / HTTP/1.1\r\nHost: a\r\nRange: bytes=2-4\r\n\r\n");
        let response = to_http_response(request.head(), file());
        assert_eq!(response.headers()["content-range"], "bytes 2-4/10");
        let back = from_http_response(response);
        let Payload::File(part) = &back.payload else { panic!("{back:?}") };
        assert_eq!(part.read().unwrap(), "234");
        assert_eq!(back.status.as_u16(), 206);
    }

    #[test]
    fn a_head_that_nobody_touched_stays_the_same() {
        let text = "GET /a?b HTTP/1.1\r\nHost: a\r\nX: 1\r\nx: 2\r\nY:\r\n\r\n";
        let original = request(text);
        let head = original.head().clone();
        let there = to_http_request(&Maps::new(), original).unwrap();
        let back = from_http_request(there, Some(head.clone())).unwrap();
        assert_eq!(back.headers().text().as_ptr(), head.headers().text().as_ptr());

        let mut there = to_http_request(&Maps::new(), request(text)).unwrap();
        there.headers_mut().insert("y", HeaderValue::from_static("3"));
        let back = from_http_request(there, Some(head)).unwrap();
        let fields: Vec<_> = back.headers().iter().collect();
        let expected = [("host", "a"), ("x", "1"), ("x", "2"), ("y", "3")];
        assert_eq!(fields, expected.map(|(name, value)| (name, value.as_bytes())));
        assert_eq!((back.target(), back.path(), back.query()), ("/a?b", "/a", Some("b")));
    }
}
