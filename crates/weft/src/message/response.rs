//! Responses, in the form that applications create.

mod changes; // fields and content, as middleware reads and changes them
mod header_view; // fields by name

use std::path::Path;
use std::sync::Arc;

use http::header::{
    ALLOW, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, ETAG, LOCATION, UPGRADE, VARY,
};
use http::{Extensions, HeaderName, HeaderValue, StatusCode};

pub use self::header_view::ResponseHeaderView;
use crate::disk::File;
use crate::error::{Error, ErrorKind, Fault};
use crate::message::bandwidth::Bandwidth;
use crate::message::body::{Body, wrong_length};
use crate::message::fields::{Field, Fields, HTML, TEXT};
use crate::message::payload::{self, Payload};
use crate::message::upgrade::{Upgrade, Upgraded};
use weft_proto::headers::Headers;
use weft_proto::http1::framing::{content_length, is_bodiless};
use weft_proto::list::list_members;
use weft_proto::semantics::mime;

/// A response: a status, a short header list and a payload.
///
/// The engine adds `Date` and `Server`, unless the application has set them. Only the engine
/// controls the framing of the message: `Content-Length`, if set, must be the length of the body;
/// `Transfer-Encoding` is ignored; `Connection: close` closes the connection.
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
    /// The body describes an error status, and the application has not chosen it: it may be
    /// replaced by a page.
    pub(crate) is_generated_error: bool,
    /// The application has added a field whose name or value is invalid. The reason is among the
    /// extensions.
    pub(crate) has_invalid_field: bool,
}

/// The reason that a field is invalid.
#[derive(Clone, Debug)]
struct InvalidField(String);

const SWITCHING: StatusCode = StatusCode::SWITCHING_PROTOCOLS;

impl Response {
    /// Creates a response without a body.
    #[inline]
    pub fn new(status: StatusCode) -> Response {
        Response::with_parts(status, Fields::default(), Payload::empty())
    }

    /// Closes the connection without a response, for scanners that shall learn nothing. A TCP
    /// connection is reset, and so is a stream of HTTP/2 or HTTP/3, whose connection stays open.
    ///
    /// The request is recorded with the status 444, as in nginx, if no middleware replaces the
    /// response.
    ///
    /// ```
    /// use weft::{Request, Response};
    ///
    /// async fn app(request: Request) -> Response {
    ///     if request.path().ends_with(".php") {
    ///         return Response::close();
    ///     }
    ///     Response::text("no PHP here\n")
    /// }
    /// # weft::testing::get(app, "/").assert_text("no PHP here\n");
    /// ```
    pub fn close() -> Response {
        let status = StatusCode::from_u16(444).expect("a status has three digits");
        let error = Error::new(ErrorKind::Unanswered, "the application sends no response");
        Response::new(status).with_error(error)
    }

    fn with_parts(status: StatusCode, headers: Fields, payload: Payload) -> Response {
        let extensions = Extensions::new();
        Response {
            status,
            headers,
            payload,
            extensions,
            is_generated_error: false,
            has_invalid_field: false,
        }
    }

    /// Creates a 200 response with plain text.
    #[inline]
    pub fn text(text: impl Into<Body>) -> Response {
        Response::success(Fields::Static(&TEXT), Payload::Body(text.into()))
    }

    /// Creates a 200 response with an HTML page.
    #[inline]
    pub fn html(page: impl Into<Body>) -> Response {
        Response::success(Fields::Static(&HTML), Payload::Body(page.into()))
    }

    /// Creates a 200 response with bytes or a stream, and without `Content-Type`. For the memory
    /// that many responses occupy, see [`Body`](Body#memory).
    #[inline]
    pub fn from_body(body: impl Into<Body>) -> Response {
        Response::success(Fields::default(), Payload::Body(body.into()))
    }

    /// Creates a 200 response with an open file. It has no name, so that the response has no
    /// `Content-Type`; [`with_type_of`](Response::with_type_of) sets it. `Response::file` opens a
    /// file by its path.
    pub fn from_file(file: File) -> Response {
        Response::success(Fields::default(), Payload::File(Arc::new(file)))
    }

    /// Creates a 200 response with these fields and this payload.
    #[inline]
    pub(crate) fn success(headers: Fields, payload: Payload) -> Response {
        Response::with_parts(StatusCode::OK, headers, payload)
    }

    /// Takes the payload and leaves an empty one.
    #[inline]
    pub(crate) fn take_payload(&mut self) -> Payload {
        std::mem::replace(&mut self.payload, Payload::empty())
    }

    /// Creates a 404 response with a line of text.
    pub fn not_found() -> Response {
        StatusCode::NOT_FOUND.into()
    }

    /// Creates a 405 response with a line of text and the field `Allow` (RFC 9110 §15.5.6), which
    /// lists the methods of the resource. HEAD follows GET: a list with GET gets HEAD.
    ///
    /// ```
    /// let response = weft::Response::method_not_allowed("GET, POST");
    /// assert_eq!(response.header("allow").unwrap(), "GET, POST, HEAD");
    /// ```
    pub fn method_not_allowed(allowed: &str) -> Response {
        let names = |name: &str| list_members(allowed.as_bytes()).any(|it| it == name.as_bytes());
        let response = Response::from(StatusCode::METHOD_NOT_ALLOWED);
        match names("GET") && !names("HEAD") {
            true => response.with_header(ALLOW, format!("{allowed}, HEAD")),
            false => response.with_header(ALLOW, allowed),
        }
    }

    /// Creates a redirect (3xx) to a URI reference. Control characters in it are replaced by
    /// spaces, so that untrusted text cannot inject another field.
    pub fn redirect(status: StatusCode, location: &str) -> Response {
        Response::new(status).with_header(LOCATION, field_value(location.as_bytes()))
    }

    /// Creates a 101 response, which switches the connection to another protocol (RFC 9110 §7.8)
    /// and passes it to `handler`. The client must have requested the protocol in the `Upgrade`
    /// field of an HTTP/1.1 request whose body has been read; otherwise the client receives 500,
    /// and the error is reported to the hooks.
    ///
    /// The handler runs on the worker of the connection. The connection counts as open until the
    /// handler ends. [`Upgraded`] documents the responsibilities of the handler. For WebSockets,
    /// use the module `weft::websocket`.
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

    /// Creates a 200 response to `CONNECT` (RFC 9110 §9.3.6), which passes the connection to
    /// `handler`. No other successful response to `CONNECT` is possible: the client would treat the
    /// connection as a tunnel.
    pub fn tunnel<F: Future<Output = ()> + 'static>(
        handler: impl FnOnce(Upgraded) -> F + Send + 'static,
    ) -> Response {
        let payload = Payload::Upgrade(Upgrade::new(handler));
        Response { payload, ..Response::new(StatusCode::OK) }
    }

    /// Sets the status.
    pub fn with_status(mut self, status: StatusCode) -> Response {
        self.status = status;
        self
    }

    /// Sets a field, replacing all fields with the same name. Name and value are texts or typed.
    ///
    /// A name or value that is not valid (RFC 9110 §5.1, §5.5), such as a value with a line end,
    /// makes the response invalid: the client receives 500, and the error is reported to the
    /// [hooks](crate::Hooks).
    ///
    /// ```
    /// use weft::{Response, header};
    ///
    /// let json = Response::text("{}").with_header(header::CONTENT_TYPE, "application/json");
    /// assert_eq!(json.header_values("content-type").count(), 1);
    /// let limit = Response::text("").with_header("x-limit", 5);
    /// assert_eq!(limit.header("X-Limit").unwrap(), "5");
    /// ```
    pub fn with_header<N, V>(mut self, name: N, value: V) -> Response
    where
        N: TryInto<HeaderName, Error: Into<http::Error>>,
        V: TryInto<HeaderValue, Error: Into<http::Error>>,
    {
        self.set_header(name, value);
        self
    }

    /// Adds a field behind all others, also those with the same name, as
    /// [`append_header`](Response::append_header).
    pub fn with_appended_header<N, V>(mut self, name: N, value: V) -> Response
    where
        N: TryInto<HeaderName, Error: Into<http::Error>>,
        V: TryInto<HeaderValue, Error: Into<http::Error>>,
    {
        self.append_header(name, value);
        self
    }

    /// Adds all of these fields, for applications that forward a response. The fields are sent
    /// unchanged, and are not copied until they are sent. Fields that the engine controls are
    /// handled as in any other response.
    ///
    /// ```
    /// use weft::{Request, Response, header};
    ///
    /// async fn mirror(request: Request) -> Response {
    ///     let fields = request.headers().filter(|name, _| name.starts_with(b"X-"));
    ///     Response::text("").with_headers(fields).with_header(header::VIA, "1.1 mirror")
    /// }
    /// # let head = "GET / HTTP/1.1\r\nHost: a\r\nX-A: b\r\n\r\n";
    /// # let reply = weft::testing::call(mirror, weft::testing::request(head));
    /// # assert_eq!((reply.header("x-a"), reply.header("host")), (Some("b"), None));
    /// ```
    pub fn with_headers(mut self, headers: Headers) -> Response {
        self.headers.forward(headers);
        self
    }

    /// Sets `Content-Type` to the media type of a file with this name, by its extension.
    ///
    /// ```
    /// use weft::{File, Request, Response};
    ///
    /// async fn report(_: Request) -> weft::Result<Response> {
    ///     let file = File::open(std::fs::File::open("report.pdf")?)?;
    ///     Ok(Response::from_file(file).with_type_of("report.pdf"))
    /// }
    /// # let image = Response::from_body("").with_type_of("a/b.PNG");
    /// # assert_eq!(image.header("content-type").unwrap(), "image/png");
    /// ```
    pub fn with_type_of(self, name: impl AsRef<Path>) -> Response {
        let media_type = mime::from_file_name(name.as_ref().as_os_str().as_encoded_bytes());
        self.with_header(CONTENT_TYPE, HeaderValue::from_static(media_type))
    }

    /// Takes the content of another response, such as that with a file. All fields stay as they
    /// are, even if they describe the former content.
    ///
    /// ```
    /// use weft::{Response, header};
    ///
    /// let response = Response::html("Draft").with_header(header::CACHE_CONTROL, "no-store");
    /// let response = response.with_content_of(Response::text("Final text"));
    /// assert_eq!(response.length(), Some(10));
    /// assert_eq!(response.header("cache-control").unwrap(), "no-store");
    /// ```
    pub fn with_content_of(mut self, other: Response) -> Response {
        self.payload = other.payload;
        self
    }

    /// Limits the bandwidth at which the content is sent. A file is then read in pieces, without
    /// `sendfile(2)`. The minimum rate of [`Settings`](crate::Settings) does not apply to the time
    /// in which the server delays the content itself.
    ///
    /// ```
    /// use std::num::NonZeroU64;
    /// use weft::message::Bandwidth;
    /// use weft::{Request, Response};
    ///
    /// async fn video(_: Request) -> Response {
    ///     let bandwidth = Bandwidth::new(NonZeroU64::new(1 << 20).unwrap()).after(10 << 20);
    ///     Response::text("…").with_bandwidth(bandwidth)
    /// }
    /// # weft::testing::get(video, "/").assert_text("…");
    /// ```
    pub fn with_bandwidth(mut self, bandwidth: Bandwidth) -> Response {
        self.extensions.insert(bandwidth);
        self
    }

    /// Attaches an error whose details are not sent to the client.
    /// [`Hooks::on_error`](crate::Hooks::on_error) is called with it, and it is the
    /// [`error`](crate::hooks::Record::error) of the record.
    pub fn with_error(mut self, error: Error) -> Response {
        self.extensions.insert(Arc::new(error));
        self
    }

    /// The error [attached](Response::with_error) to the response.
    pub fn error(&self) -> Option<&Error> {
        self.shared_error().map(|error| &**error)
    }

    #[inline]
    pub(crate) fn shared_error(&self) -> Option<&Arc<Error>> {
        self.extensions.get()
    }

    /// Sets a field, replacing all fields with the same name, as
    /// [`with_header`](Response::with_header).
    #[doc(alias = "headers_mut")]
    pub fn set_header<N, V>(&mut self, name: N, value: V)
    where
        N: TryInto<HeaderName, Error: Into<http::Error>>,
        V: TryInto<HeaderValue, Error: Into<http::Error>>,
    {
        match field(name, value) {
            Ok(field) => self.headers.set(field),
            Err(reason) => self.reject_field(reason),
        }
    }

    /// Adds a field behind all others, also those with the same name, such as `Set-Cookie`. A name
    /// or value that is not valid has the consequence that
    /// [`with_header`](Response::with_header) documents.
    ///
    /// ```
    /// use weft::{Response, header};
    ///
    /// let mut response = Response::text("");
    /// response.append_header(header::VARY, "accept");
    /// response.append_header("vary", "cookie");
    /// assert_eq!(response.header_values("vary").count(), 2);
    /// ```
    pub fn append_header<N, V>(&mut self, name: N, value: V)
    where
        N: TryInto<HeaderName, Error: Into<http::Error>>,
        V: TryInto<HeaderValue, Error: Into<http::Error>>,
    {
        match field(name, value) {
            Ok(field) => self.headers.push(field),
            Err(reason) => self.reject_field(reason),
        }
    }

    #[cold]
    fn reject_field(&mut self, reason: String) {
        self.has_invalid_field = true;
        self.extensions.get_or_insert_with(|| InvalidField(reason));
    }

    #[cold]
    fn invalid_field(&self) -> Error {
        let reason = self.extensions.get().map(|InvalidField(reason)| reason.clone());
        Error::new(ErrorKind::InvalidField, reason.unwrap_or_default())
    }

    /// Removes all fields with this name.
    pub fn remove_header(&mut self, name: impl AsRef<str>) {
        self.headers.remove(name.as_ref());
    }

    /// Adds a request field to `Vary` (RFC 9110 §12.5.5), unless it is already listed.
    pub(crate) fn add_vary(&mut self, field: &'static str) {
        let lines = self.headers.iter().filter(|(name, _)| *name == VARY);
        let mut named: Vec<&[u8]> =
            lines.flat_map(|(_, value)| list_members(value.as_bytes())).collect();
        let is_listed = |name: &&[u8]| *name == b"*" || name.eq_ignore_ascii_case(field.as_bytes());
        if !named.iter().any(is_listed) {
            named.push(field.as_bytes());
            let all = named.join(&b", "[..]);
            self.set_header(VARY, all);
        }
    }

    /// Makes a strong entity-tag weak: a changed body is equivalent, but not byte for byte (RFC
    /// 9110 §8.8.1).
    pub(crate) fn weaken_etag(&mut self) {
        let etag = self.header(ETAG.as_str()).map(|etag| etag.as_bytes());
        if let Some(strong) = etag.filter(|etag| etag.starts_with(b"\"")) {
            let weak = [b"W/", strong].concat();
            self.set_header(ETAG, weak);
        }
    }

    /// The value of the first field with this name, a text or a `HeaderName`.
    #[inline]
    pub fn header(&self, name: impl AsRef<str>) -> Option<&HeaderValue> {
        let has_name = |field: &&Field| field.0.as_str().eq_ignore_ascii_case(name.as_ref());
        self.headers.iter().find(has_name).map(|(_, value)| value)
    }

    /// The values of all fields with this name, in their order.
    pub fn header_values<N: AsRef<str>>(&self, name: N) -> impl Iterator<Item = &HeaderValue> {
        let has_name = move |field: &&Field| field.0.as_str().eq_ignore_ascii_case(name.as_ref());
        self.headers.iter().filter(has_name).map(|(_, value)| value)
    }

    /// All fields that the application and its middleware have set, in their order: an iterator,
    /// with `get(name)`.
    #[inline]
    pub fn headers(&self) -> ResponseHeaderView<'_> {
        ResponseHeaderView::new(&self.headers)
    }

    /// Values that middleware has attached for other middleware, by type. They are not sent to the
    /// client.
    #[inline]
    pub fn extensions(&self) -> &Extensions {
        &self.extensions
    }

    /// Mutable [`extensions`](Response::extensions).
    pub fn extensions_mut(&mut self) -> &mut Extensions {
        &mut self.extensions
    }

    /// The status.
    #[inline]
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The length of the payload, if known in advance.
    #[inline]
    pub fn length(&self) -> Option<u64> {
        match &self.payload {
            Payload::Body(body) => body.length(),
            Payload::File(file) => Some(file.length),
            Payload::Parts(parts) => Some(parts.length),
            Payload::Upgrade(_) => Some(0),
        }
    }

    /// Returns the length of the body, if known. Returns an error if it differs from the
    /// `Content-Length` set by the application, if a field is invalid, or if the status is
    /// informational.
    #[inline]
    pub(crate) fn validated_length(&self, head_only: bool) -> Result<Option<u64>, Error> {
        if self.has_invalid_field {
            return Err(self.invalid_field());
        }
        if self.status.is_informational() {
            let reason = "an informational status (1xx) is not a final response";
            return Err(Error::new(ErrorKind::InvalidResponse, reason));
        }
        let length = self.length();
        match (self.declared_length(), length) {
            (None, length) => Ok(length),
            (Some(Err(())), _) => Err(wrong_length()),
            (Some(Ok(declared)), None) => Ok(Some(declared)),
            (Some(Ok(declared)), Some(0)) if head_only => Ok(Some(declared)),
            (Some(Ok(declared)), Some(length)) if declared == length => Ok(Some(length)),
            // RFC 9110 §8.6: 304 and 204 have no body, even if they declare a length.
            (Some(_), Some(0)) if is_bodiless(self.status) => Ok(Some(0)),
            (Some(Ok(_)), Some(_)) => Err(wrong_length()),
        }
    }

    /// Returns true if the application has set `Connection: close`.
    #[inline]
    pub(crate) fn wants_close(&self) -> bool {
        let has_close =
            |value: &[u8]| list_members(value).any(|it| it.eq_ignore_ascii_case(b"close"));
        self.headers.find_framing(&CONNECTION, has_close).is_some()
    }

    /// The `Content-Length` set by the application; `Err` if its value is invalid.
    #[inline]
    pub(crate) fn declared_length(&self) -> Option<Result<u64, ()>> {
        let value = self.headers.find_framing(&CONTENT_LENGTH, |_| true)?;
        Some(content_length(value).ok_or(()))
    }

    /// Returns the content as a body. The body of a file is read from the disk. An upgrade has no
    /// content.
    ///
    /// ```
    /// use weft::Response;
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let body = Response::text("Hello\n").into_body();
    /// assert_eq!(body.collect(100).await.unwrap(), "Hello\n");
    /// # });
    /// ```
    pub fn into_body(self) -> Body {
        payload::to_body(self.payload).0
    }
}

/// Creates a response with this status and a line of text that describes it, so that a function can
/// return `Result<Response, StatusCode>`. For an error status, a client that prefers HTML or JSON
/// (`Accept`) gets a page or an object (RFC 9457) instead.
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
            _ => generated(status, format!("{status}\n")),
        }
    }
}

/// Creates the error response to a peer. It includes the reason if the peer is at fault. As for a
/// status, the client may prefer another form.
impl From<&Error> for Response {
    fn from(error: &Error) -> Response {
        let status = error.kind().status().unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let text = match error.kind().fault() {
            Fault::Peer if !error.reason().is_empty() => format!("{status}: {}\n", error.reason()),
            Fault::Peer | Fault::Application | Fault::System => format!("{status}\n"),
        };
        generated(status, text)
    }
}

/// Creates a response with a line of text that begins with its status.
fn generated(status: StatusCode, line: String) -> Response {
    let mut response = Response::text(line).with_status(status);
    response.is_generated_error = status.is_client_error() || status.is_server_error();
    response
}

/// Creates the error response. The [hooks](crate::Hooks) get the error of a response with 5xx, and
/// [`BodyTooLarge`](ErrorKind::BodyTooLarge), whose text names the limit.
impl From<Error> for Response {
    fn from(error: Error) -> Response {
        let response = Response::from(&error);
        match response.status.is_server_error() || error.kind() == ErrorKind::BodyTooLarge {
            true => response.with_error(error),
            false => response,
        }
    }
}

/// Converts the name and the value of a field.
///
/// # Errors
/// The reason that one of them is invalid.
#[inline]
pub(crate) fn field<N, V>(name: N, value: V) -> Result<Field, String>
where
    N: TryInto<HeaderName, Error: Into<http::Error>>,
    V: TryInto<HeaderValue, Error: Into<http::Error>>,
{
    let name = name.try_into().map_err(|error| invalid("name of a field", error.into()))?;
    match value.try_into() {
        Ok(value) => Ok((name, value)),
        Err(error) => Err(invalid(&format!("value of the field `{name}`"), error.into())),
    }
}

#[cold]
fn invalid(part: &str, error: http::Error) -> String {
    format!("the application has set an invalid {part}: {error}")
}

/// Creates a field value. Bytes that are not allowed in one are replaced by spaces.
pub(crate) fn field_value(bytes: &[u8]) -> HeaderValue {
    HeaderValue::from_bytes(bytes).unwrap_or_else(|_| {
        let clean = |&b: &u8| if b.is_ascii_control() && b != b'\t' { b' ' } else { b };
        let bytes: Vec<u8> = bytes.iter().map(clean).collect();
        HeaderValue::from_bytes(&bytes).expect("control bytes were replaced")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removes_fields_of_a_forwarded_message() {
        let headers = Headers::parse("A: 1\r\nb: 2\r\nB: 3\r\nC: 4\r\n\r\n").unwrap();
        let b = HeaderName::from_static("b");
        let mut response =
            Response::new(StatusCode::OK).with_headers(headers).with_appended_header(&b, "5");
        assert_eq!(response.header("b").unwrap(), "2");
        response.remove_header(b);
        let found: Vec<_> = response.headers.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(found, ["a", "c"]);
        assert!(response.headers.sources().forwarded.is_some());
    }

    #[test]
    fn converts_status_to_response() {
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
