//! gRPC-Web, converted to gRPC for the application.

mod base64;

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{BufMut, Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use http_body::Frame;

use self::base64::DecodedBody;
use crate::app::{Application, Middleware};
use crate::error::{Error, Result};
use crate::message::body::Body;
use crate::message::fields::Fields;
use crate::message::payload::Payload;
use crate::message::request::Request;
use crate::message::response::Response;
use weft_proto::semantics::grpc::{
    self, GRPC, GRPC_MESSAGE, GRPC_STATUS, GRPC_STATUS_DETAILS, WebMediaType,
};

/// Converts [gRPC-Web](https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-WEB.md), which the
/// scripts of web pages use, to gRPC: `application/grpc-web` and `application/grpc-web-text`, over
/// any version of HTTP. Other requests pass unchanged.
///
/// ```
/// use weft::header::HeaderName;
/// use weft::middleware::{Cors, Grpc, GrpcWeb};
/// use weft::{Application, Request, Response, header};
///
/// # async fn service(_: Request) -> Response { Response::text("") }
/// // A service of tonic: `let service = weft::tower::app(routes.prepare());`
/// let web_fields = ["x-grpc-web", "x-user-agent", "grpc-timeout"].map(HeaderName::from_static);
/// let cors = Cors::new()
///     .allow_origin("https://app.example")
///     .allow_headers([header::CONTENT_TYPE].into_iter().chain(web_fields));
/// let app = weft::stack(service).with(cors).with(GrpcWeb::new()).with(Grpc::new());
/// # let _ = app;
/// ```
///
/// The trailers of a response become the last frame of its body, even if it has no other frames, so
/// that [`Cors`](crate::middleware::Cors) need not expose them. Bodies are converted piece by
/// piece, and no message is delayed.
#[derive(Clone, Copy, Debug, Default)]
pub struct GrpcWeb(());

/// First byte of the frame with the trailers.
const TRAILERS_FLAG: u8 = 0x80;

impl GrpcWeb {
    /// Converts calls of gRPC-Web.
    pub fn new() -> GrpcWeb {
        GrpcWeb(())
    }

    /// Returns true if this middleware converts a request.
    ///
    /// ```
    /// let request = "POST /s/m HTTP/1.1\r\nHost: a\r\nContent-Type: application/grpc-web+proto\r\n\r\n";
    /// assert!(weft::middleware::GrpcWeb::is_call(&weft::testing::request(request)));
    /// ```
    pub fn is_call(request: &Request) -> bool {
        *request.method() == Method::POST && media_type(request).is_some()
    }
}

impl Middleware for GrpcWeb {
    async fn call(&self, mut request: Request, next: &impl Application) -> Response {
        if !GrpcWeb::is_call(&request) {
            return next.call(request).await;
        }
        let encoding = match convert_request(&mut request) {
            Ok(encoding) => encoding,
            Err(error) => return error.into(),
        };
        convert_response(next.call(request).await, &encoding)
    }
}

fn media_type(request: &Request) -> Option<WebMediaType<'_>> {
    WebMediaType::parse(request.headers().get_bytes("content-type")?)
}

/// The form of a response.
struct Encoding {
    is_text: bool,
    /// Suffix of the media type.
    suffix: Vec<u8>,
}

/// Converts a request to gRPC, and returns the form of its response.
fn convert_request(request: &mut Request) -> Result<Encoding> {
    let received = media_type(request).expect("the caller has recognized the call");
    let accepted = request.headers().bounded_list("accept").find_map(WebMediaType::parse);
    let suffix = received.suffix.to_owned();
    let (is_text, wants_text) =
        (received.is_text, accepted.map_or(received.is_text, |accepted| accepted.is_text));
    let content_type = [GRPC.as_bytes(), &suffix].concat();
    let fields: [(&str, &[u8]); 3] =
        [("content-type", &content_type), ("te", b"trailers"), ("content-length", b"")];
    // The length of a body that is not converted does not change.
    request.replace_fields(&fields[..if is_text { 3 } else { 2 }])?;
    if is_text {
        let body = std::mem::take(request.body());
        *request.body() = Body::boxed(DecodedBody::new(body));
    }
    Ok(Encoding { is_text: wants_text, suffix })
}

/// Converts a response of gRPC. Others, such as pages for errors, are returned unchanged.
fn convert_response(mut response: Response, encoding: &Encoding) -> Response {
    let media_type = response.header(CONTENT_TYPE.as_str()).map(HeaderValue::as_bytes);
    let Some(media_type) = media_type.filter(|value| grpc::is_grpc_media_type(value)) else {
        return response;
    };
    let suffix = match (grpc::format_suffix(media_type), &*encoding.suffix) {
        (b"", b"") => b"+proto",
        (b"", requested) => requested,
        (used, _) => used,
    };
    let name = if encoding.is_text { "application/grpc-web-text" } else { "application/grpc-web" };
    let content_type = [name.as_bytes(), suffix].concat();
    response.set_header(CONTENT_TYPE, content_type);
    response.remove_header(CONTENT_LENGTH);
    let is_text = encoding.is_text;
    let Payload::Body(body) = response.payload else { return response };
    response.payload = Payload::Body(match take_status(&mut response.headers) {
        Some(status) => encode(trailers_frame(&status), is_text).into(),
        None => Body::boxed(EncodedBody { body, is_text, is_complete: false }),
    });
    response
}

/// Takes the status out of a head that has one, because the response has no messages.
fn take_status(fields: &mut Fields) -> Option<HeaderMap> {
    let mut status = HeaderMap::new();
    for name in [GRPC_STATUS, GRPC_MESSAGE, GRPC_STATUS_DETAILS] {
        let value = fields.find(&name, |_| true).map(HeaderValue::from_bytes);
        if let Some(Ok(value)) = value {
            fields.remove(name.as_str());
            status.insert(name, value);
        }
    }
    status.contains_key(GRPC_STATUS).then_some(status)
}

/// Composes the frame with the trailers: lines as in HTTP/1.1, with names in lowercase.
fn trailers_frame(trailers: &HeaderMap) -> Bytes {
    let line_bytes =
        |(name, value): (&HeaderName, &HeaderValue)| name.as_str().len() + value.len() + 4;
    let length: usize = trailers.iter().map(line_bytes).sum();
    let mut frame = BytesMut::with_capacity(5 + length);
    frame.put_u8(TRAILERS_FLAG);
    frame.put_u32(length.try_into().expect("fields are shorter than 4 GiB"));
    for (name, value) in trailers {
        frame.put_slice(name.as_str().as_bytes());
        frame.put_slice(b": ");
        frame.put_slice(value.as_bytes());
        frame.put_slice(b"\r\n");
    }
    frame.freeze()
}

/// Encodes a piece of a body. Each piece of base64 has its own padding: the rest of a group would
/// wait for the next message.
fn encode(piece: Bytes, is_text: bool) -> Bytes {
    if is_text { base64::encode(&piece).into() } else { piece }
}

/// A response body of gRPC, in the form of gRPC-Web.
struct EncodedBody {
    body: Body,
    is_text: bool,
    is_complete: bool,
}

impl http_body::Body for EncodedBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>>>> {
        if self.is_complete {
            return Poll::Ready(None);
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx)?);
        let piece = match frame.map(Frame::into_data) {
            Some(Ok(data)) => Some(data),
            Some(Err(other)) => {
                self.is_complete = true;
                other.into_trailers().ok().map(|trailers| trailers_frame(&trailers))
            }
            None => None,
        };
        let is_text = self.is_text;
        Poll::Ready(piece.map(|piece| Ok(Frame::data(encode(piece, is_text)))))
    }

    fn is_end_stream(&self) -> bool {
        self.is_complete
    }
}
