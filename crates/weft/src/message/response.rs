//! A response as an application makes it.

use std::sync::Arc;

use http::header::{CONNECTION, CONTENT_LENGTH, LOCATION, UPGRADE, VARY};
use http::{Extensions, HeaderName, HeaderValue, StatusCode};

use crate::disk::File;
use crate::error::{Error, ErrorKind, Fault};
use crate::message::body::{Body, wrong_length};
use crate::message::fields::{Fields, HTML, TEXT};
use crate::message::upgrade::{Upgrade, Upgraded};
use weft_proto::headers::{Headers, list_members};
use weft_proto::http1::framing::{content_length, is_bodiless};

/// A response: a status, a short header list and a payload.
///
/// The engine adds `Date` and `Server`, unless the application has set them. What frames
/// the message is the engine's alone: `Content-Length`, if set, must be the body's length;
/// `Transfer-Encoding` is not looked at; `Connection: close` closes the connection.
///
/// ```
/// use weft::{Response, StatusCode, header};
///
/// let response = Response::text("Teapots only.\n")
///     .with_status(StatusCode::IM_A_TEAPOT)
///     .with_header(header::CACHE_CONTROL, "max-age=60");
/// assert_eq!(response.header("cache-control").unwrap(), "max-age=60");
/// ```
#[derive(Debug)]
pub struct Response {
    pub(crate) status: StatusCode,
    pub(crate) headers: Fields,
    pub(crate) payload: Payload,
    pub(crate) extensions: Extensions,
}

/// What follows the head.
#[derive(Debug)]
pub(crate) enum Payload {
    Body(Body),
    /// Not in place, as all that is large, for every response is handed on many times; and a
    /// file that is kept is the same for many.
    File(Arc<File>),
    Parts(Box<Parts>),
    /// The connection itself.
    Upgrade(Upgrade),
}

impl Payload {
    pub(crate) fn empty() -> Payload {
        Payload::Body(Body::empty())
    }
}

/// Several parts of a file.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) parts: Vec<Part>,
    /// What stands behind the last.
    pub(crate) end: Vec<u8>,
    /// Of all that.
    pub(crate) length: u64,
}

/// A part, and what stands before it.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) head: Vec<u8>,
    pub(crate) file: File,
}

const SWITCHING: StatusCode = StatusCode::SWITCHING_PROTOCOLS;

impl Response {
    /// A response with no body.
    pub fn new(status: StatusCode) -> Response {
        Response {
            status,
            headers: Fields::default(),
            payload: Payload::empty(),
            extensions: Extensions::new(),
        }
    }

    /// 200 with a plain text.
    pub fn text(text: impl Into<Body>) -> Response {
        Response::success(Fields::Static(&TEXT), Payload::Body(text.into()))
    }

    /// 200 with an HTML page.
    pub fn html(page: impl Into<Body>) -> Response {
        Response::success(Fields::Static(&HTML), Payload::Body(page.into()))
    }

    /// 200 with bytes or a stream, and no `Content-Type`.
    pub fn body(body: impl Into<Body>) -> Response {
        Response::success(Fields::default(), Payload::Body(body.into()))
    }

    /// 200 with a file.
    pub fn file(file: File) -> Response {
        Response::success(Fields::default(), Payload::File(Arc::new(file)))
    }

    /// 200 with these fields and this payload.
    pub(crate) fn success(headers: Fields, payload: Payload) -> Response {
        Response { status: StatusCode::OK, headers, payload, extensions: Extensions::new() }
    }

    /// 404 with a line of text.
    pub fn not_found() -> Response {
        StatusCode::NOT_FOUND.into()
    }

    /// A redirect (3xx) to a URI reference.
    pub fn redirect(status: StatusCode, location: &str) -> Response {
        Response::new(status).with_header(LOCATION, location)
    }

    /// 101: the connection goes over to another protocol (RFC 9110 §7.8), and to a handler. The
    /// client must have named the protocol in its `Upgrade`, over HTTP/1.1 and with no body on
    /// the way; otherwise it gets 500 and the hooks are told.
    ///
    /// The handler runs where the connection did, and the connection counts until it ends. See
    /// [`Upgraded`] for what it has to look after itself. WebSockets have a module of their
    /// own, `weft::websocket`.
    ///
    /// ```
    /// use tokio::io::{AsyncReadExt, AsyncWriteExt};
    /// use weft::{Request, Response};
    ///
    /// async fn shout(request: Request) -> Response {
    ///     if !request.headers().list("upgrade").any(|name| name == b"shout") {
    ///         return Response::text("Upgrade to `shout`.\n");
    ///     }
    ///     Response::upgrade("shout", async |mut connection| {
    ///         let mut byte = [0];
    ///         while let Ok(1) = connection.read(&mut byte).await {
    ///             if connection.write_all(&byte.map(|b| b.to_ascii_uppercase())).await.is_err() {
    ///                 break;
    ///             }
    ///         }
    ///     })
    /// }
    /// # weft::testing::get(shout, "/").assert_text("Upgrade to `shout`.\n");
    /// ```
    pub fn upgrade<F: Future<Output = ()> + 'static>(
        protocol: &str,
        handler: impl FnOnce(Upgraded) -> F + Send + 'static,
    ) -> Response {
        Response { payload: Payload::Upgrade(Upgrade::new(handler)), ..Response::new(SWITCHING) }
            .with_header(UPGRADE, protocol)
    }

    /// 200 to `CONNECT` (RFC 9110 §9.3.6): from here on the connection is the handler's. No
    /// other success can answer that method: the client would take it for a tunnel.
    pub fn tunnel<F: Future<Output = ()> + 'static>(
        handler: impl FnOnce(Upgraded) -> F + Send + 'static,
    ) -> Response {
        let payload = Payload::Upgrade(Upgrade::new(handler));
        Response { payload, ..Response::new(StatusCode::OK) }
    }

    /// The same response with this status.
    pub fn with_status(mut self, status: StatusCode) -> Response {
        self.status = status;
        self
    }

    /// The same response with this field added.
    ///
    /// A byte that no field value may have (CR, LF, NUL and the other controls) becomes
    /// a space: text from elsewhere cannot end the field and start another.
    pub fn with_header(mut self, name: HeaderName, value: impl AsRef<[u8]>) -> Response {
        self.headers.push((name, field_value(value.as_ref())));
        self
    }

    /// The same response with this field added, whose value is known to be one: it is shared
    /// and not copied.
    pub fn with_value(mut self, name: HeaderName, value: HeaderValue) -> Response {
        self.headers.push((name, value));
        self
    }

    /// The same response with all of these fields added, for who passes on what somebody else
    /// has said: they are not copied before they are sent, and are sent as they are. What the
    /// engine has a say in, it has here, too.
    ///
    /// ```
    /// use weft::{Request, Response, header};
    ///
    /// async fn mirror(request: Request) -> Response {
    ///     let theirs = request.headers().filter(|name, _| name.starts_with(b"X-"));
    ///     Response::text("").with_headers(theirs).with_header(header::VIA, "1.1 mirror")
    /// }
    /// # let head = "GET / HTTP/1.1\r\nHost: a\r\nX-A: b\r\n\r\n";
    /// # let reply = weft::testing::call(mirror, weft::testing::request(head));
    /// # assert_eq!((reply.header("x-a"), reply.header("host")), (Some("b"), None));
    /// ```
    pub fn with_headers(mut self, headers: Headers) -> Response {
        self.headers.forward(headers);
        self
    }

    /// The same response, and an error that it does not tell the client of, or not all of:
    /// [`Hooks::on_error`](crate::Hooks::on_error) is told.
    pub fn with_error(mut self, error: Error) -> Response {
        self.extensions.insert(Arc::new(error));
        self
    }

    /// The error that [came with it](Response::with_error).
    pub fn error(&self) -> Option<&Error> {
        self.extensions.get::<Arc<Error>>().map(|error| &**error)
    }

    /// Sets a field in place of any of that name.
    pub fn set_header(&mut self, name: HeaderName, value: impl AsRef<[u8]>) {
        self.remove_header(name.clone());
        self.headers.push((name, field_value(value.as_ref())));
    }

    /// Takes all fields of that name away.
    pub fn remove_header(&mut self, name: HeaderName) {
        if self.headers.find(&name, |_| true).is_some() {
            self.headers.to_mut().retain(|(n, _)| *n != name);
        }
    }

    /// Says that the answer hangs on this field of the request (RFC 9110 §12.5.5), beside
    /// what `Vary` names already.
    pub(crate) fn vary_by(&mut self, field: &'static str) {
        let lines = self.headers.iter().filter(|(name, _)| *name == VARY);
        let mut named: Vec<&[u8]> =
            lines.flat_map(|(_, value)| list_members(value.as_bytes())).collect();
        let says_so = |name: &&[u8]| *name == b"*" || name.eq_ignore_ascii_case(field.as_bytes());
        if !named.iter().any(says_so) {
            named.push(field.as_bytes());
            let all = named.join(&b", "[..]);
            self.set_header(VARY, all);
        }
    }

    /// The value of the first field of that name.
    pub fn header(&self, name: &str) -> Option<&HeaderValue> {
        let found = self.headers.iter().find(|(n, _)| n.as_str().eq_ignore_ascii_case(name));
        found.map(|(_, value)| value)
    }

    /// What middleware has to say about the response to other middleware, by type. The
    /// client sees nothing of it.
    pub fn extensions(&self) -> &Extensions {
        &self.extensions
    }

    /// The same, to be added to.
    pub fn extensions_mut(&mut self) -> &mut Extensions {
        &mut self.extensions
    }

    /// The status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The length of the payload, if it is known before it is sent.
    pub fn length(&self) -> Option<u64> {
        match &self.payload {
            Payload::Body(body) => body.length(),
            Payload::File(file) => Some(file.length),
            Payload::Parts(parts) => Some(parts.length),
            Payload::Upgrade(_) => Some(0),
        }
    }

    /// The length of the body, if it is known: what the application declared must be true.
    pub(crate) fn sound_length(&self, head_only: bool) -> Result<Option<u64>, Error> {
        if self.status.is_informational() {
            let reason = "an interim status ends no exchange";
            return Err(Error::new(ErrorKind::InvalidResponse, reason));
        }
        let length = self.length();
        match (self.declared_length(), length) {
            (None, length) => Ok(length),
            (Some(Err(())), _) => Err(wrong_length()),
            (Some(Ok(declared)), None) => Ok(Some(declared)),
            (Some(Ok(declared)), Some(0)) if head_only => Ok(Some(declared)),
            (Some(Ok(declared)), Some(length)) if declared == length => Ok(Some(length)),
            // RFC 9110 §8.6: 304 and 204 have no body, whatever length they speak of.
            (Some(_), Some(0)) if is_bodiless(self.status) => Ok(Some(0)),
            (Some(Ok(_)), Some(_)) => Err(wrong_length()),
        }
    }

    /// Whether the application wants this response to be the connection's last.
    pub(crate) fn wants_close(&self) -> bool {
        let says_so =
            |value: &[u8]| list_members(value).any(|it| it.eq_ignore_ascii_case(b"close"));
        self.headers.find_framing(&CONNECTION, says_so).is_some()
    }

    /// The `Content-Length` that the application set itself; `Err` if it is none.
    pub(crate) fn declared_length(&self) -> Option<Result<u64, ()>> {
        let value = self.headers.find_framing(&CONTENT_LENGTH, |_| true)?;
        Some(content_length(value).ok_or(()))
    }
}

/// The status, and a line of text that says it. So a function can return
/// `Result<Response, StatusCode>`.
///
/// ```
/// use weft::{Response, StatusCode};
///
/// let response = Response::from(StatusCode::GONE);
/// assert_eq!((response.status().as_u16(), response.length()), (410, Some(9)));
/// ```
impl From<StatusCode> for Response {
    fn from(status: StatusCode) -> Response {
        match status {
            StatusCode::RESET_CONTENT => Response::new(status),
            _ if is_bodiless(status) => Response::new(status),
            _ => Response::text(format!("{status}\n")).with_status(status),
        }
    }
}

/// What the peer is told of an error: the reason, if it is the peer's own fault.
impl From<&Error> for Response {
    fn from(error: &Error) -> Response {
        let status = error.kind().status().unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let text = match error.kind().fault() {
            Fault::Peer => format!("{status}: {}\n", error.reason()),
            Fault::Application | Fault::System => format!("{status}\n"),
        };
        Response::text(text).with_status(status)
    }
}

impl From<Error> for Response {
    fn from(error: Error) -> Response {
        Response::from(&error)
    }
}

impl<E: Into<Response>> From<Result<Response, E>> for Response {
    fn from(result: Result<Response, E>) -> Response {
        result.unwrap_or_else(E::into)
    }
}

/// A value of which nothing can end the field.
pub(crate) fn field_value(bytes: &[u8]) -> HeaderValue {
    HeaderValue::from_bytes(bytes).unwrap_or_else(|_| {
        let clean = |&b: &u8| if b.is_ascii_control() && b != b'\t' { b' ' } else { b };
        let bytes: Vec<u8> = bytes.iter().map(clean).collect();
        HeaderValue::from_bytes(&bytes).expect("no control byte is left")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_as_a_response() {
        for (status, length, is_typed) in [
            (200, 7, true),
            (404, 14, true),
            (599, 26, true),
            (204, 0, false),
            (205, 0, false),
            (304, 0, false),
        ] {
            let response = Response::from(StatusCode::from_u16(status).unwrap());
            assert_eq!(response.status().as_u16(), status);
            assert_eq!(response.length(), Some(length), "{status}");
            assert_eq!(response.header("content-type").is_some(), is_typed, "{status}");
        }
    }
}
