//! The error type, its kinds, and the party at fault for each.

use std::borrow::Cow;
use std::fmt;

use http::StatusCode;

/// A result whose error type is [`Error`] by default.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the engine: its [kind](ErrorKind), a readable reason, and the error that caused it,
/// if any.
pub struct Error {
    kind: ErrorKind,
    reason: Cow<'static, str>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
    follows_data: bool,
}

/// The party at fault for an error, which must act to resolve it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The other end of the connection violated the protocol or a limit, or disconnected.
    Peer,
    /// The application violated the contract of an interface.
    Application,
    /// An operation of the operating system failed.
    System,
}

/// The kinds of [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The peer's message violates RFC 9110, RFC 9112 or RFC 9113, or is not the expected form or
    /// query.
    Malformed,
    /// The request line is longer than [`Settings::max_request_line_bytes`](crate::Settings).
    TargetTooLong,
    /// The head has more bytes or fields than the settings allow.
    HeadTooLarge,
    /// The body is larger than [`Settings::max_body_bytes`](crate::Settings::max_body_bytes), the
    /// limit of a [`BodyLimit`](crate::middleware::BodyLimit), or the limit that its reader names.
    /// The text of the error names the limit; the response does not. Hooks and records get the
    /// error of a response with 413, too.
    BodyTooLarge,
    /// The peer closed the connection in the middle of a body.
    BodyIncomplete,
    /// The body does not have the expected media type.
    MediaTypeUnsupported,
    /// The peer uses an unsupported HTTP version.
    VersionUnsupported,
    /// The peer uses a method or transfer coding that is not implemented.
    NotImplemented,
    /// The peer's `Expect` cannot be met.
    ExpectationFailed,
    /// The peer was slower than the settings allow.
    TooSlow,
    /// The TLS handshake with the peer failed, or the peer does not use TLS on a TLS port.
    TlsFailed,
    /// No certificate exists for the server name that a TLS client has sent.
    NoCertificate,
    /// A connection from a [`proxy_protocol`](crate::Settings::proxy_protocol) network does not
    /// start with a valid PROXY header.
    ProxyHeader,
    /// The peer closed or reset the connection.
    Disconnected,
    /// The server closed the connection before the end of the response, for example at the end of
    /// the grace period of a shutdown.
    Cancelled,
    /// The application closes the connection without a response:
    /// [`Response::close`](crate::Response::close).
    Unanswered,
    /// The application panicked.
    Panicked,
    /// The application's `Content-Length` is not the length of its body.
    LengthMismatch,
    /// The application's response is not valid HTTP.
    InvalidResponse,
    /// A body supplied by the application returned an error.
    BodyFailed,
    /// A [tower service](crate::tower) returned an error.
    ServiceFailed,
    /// The application set a header field whose name or value is not valid in HTTP.
    InvalidField,
    /// The application responds with this status, 4xx or 5xx: see [`Error::status`].
    Status(StatusCode),
    /// Any other failure of the application: see [`Error::other`].
    Other,
    /// A setting has an invalid value.
    InvalidSetting,
    /// A call would block the only thread of a tokio runtime. The tasks of the runtime could never
    /// run again.
    WouldBlock,
    /// A listening socket could not be created or bound.
    Listen,
    /// A connection could not be accepted, most likely because the process has too many open files.
    Accept,
    /// I/O failed, such as reading a file. `?` on an [`io::Error`](std::io::Error) in a handler has
    /// this kind, too, and is reported as a [fault of the system](Fault::System). An error that is
    /// the application's fault is [`Error::other`].
    Io,
}

impl ErrorKind {
    /// Returns the party at fault.
    pub fn fault(self) -> Fault {
        use ErrorKind::*;
        match self {
            Malformed | TargetTooLong | HeadTooLarge | BodyTooLarge | BodyIncomplete
            | MediaTypeUnsupported | VersionUnsupported | NotImplemented | ExpectationFailed
            | TooSlow | TlsFailed | ProxyHeader | Disconnected => Fault::Peer,
            Status(status) if status.is_client_error() => Fault::Peer,
            Panicked | LengthMismatch | InvalidResponse | BodyFailed | ServiceFailed
            | InvalidSetting | InvalidField | WouldBlock | Status(_) | Other | Unanswered => {
                Fault::Application
            }
            NoCertificate | Cancelled | Listen | Accept | Io => Fault::System,
        }
    }

    /// Returns the status of the error response, or `None` if no response can be sent.
    pub fn status(self) -> Option<StatusCode> {
        use ErrorKind::*;
        match self {
            Malformed | BodyIncomplete => Some(StatusCode::BAD_REQUEST),
            TargetTooLong => Some(StatusCode::URI_TOO_LONG),
            HeadTooLarge => Some(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE),
            BodyTooLarge => Some(StatusCode::PAYLOAD_TOO_LARGE),
            MediaTypeUnsupported => Some(StatusCode::UNSUPPORTED_MEDIA_TYPE),
            VersionUnsupported => Some(StatusCode::HTTP_VERSION_NOT_SUPPORTED),
            NotImplemented => Some(StatusCode::NOT_IMPLEMENTED),
            ExpectationFailed => Some(StatusCode::EXPECTATION_FAILED),
            TooSlow => Some(StatusCode::REQUEST_TIMEOUT),
            Status(status) => Some(status),
            Panicked | LengthMismatch | InvalidResponse | BodyFailed | ServiceFailed
            | InvalidSetting | InvalidField | Other => Some(StatusCode::INTERNAL_SERVER_ERROR),
            TlsFailed | NoCertificate | ProxyHeader | Disconnected | Cancelled | Unanswered
            | WouldBlock | Listen | Accept | Io => None,
        }
    }
}

impl Error {
    /// Creates an error of this kind with a readable reason.
    pub fn new(kind: ErrorKind, reason: impl Into<Cow<'static, str>>) -> Error {
        Error { kind, reason: reason.into(), source: None, follows_data: false }
    }

    /// Creates an error whose response has this status, and, below 500, this text. The text of
    /// 5xx is for hooks and logs only. A [`StatusCode`] alone also converts to an error, for `?`.
    /// A status other than 4xx and 5xx is no error; such a mistake becomes 500.
    ///
    /// ```
    /// use weft::{Error, Request, Response, StatusCode};
    ///
    /// fn find(name: &str) -> Option<&'static str> { (name == "ada").then_some("Ada Lovelace") }
    ///
    /// async fn user(request: Request) -> weft::Result<Response> {
    ///     let [name] = &*request.segments() else { return Err(StatusCode::NOT_FOUND.into()) };
    ///     if name.len() > 20 {
    ///         return Err(Error::status(StatusCode::BAD_REQUEST, "names have up to 20 bytes"));
    ///     }
    ///     let name = find(name).ok_or(StatusCode::NOT_FOUND)?;
    ///     Ok(Response::text(name))
    /// }
    /// weft::testing::get(user, "/ada").assert_text("Ada Lovelace");
    /// weft::testing::get(user, "/eve").assert_text("404 Not Found\n");
    /// let long = weft::testing::get(user, "/abcdefghijklmnopqrstuvwxyz");
    /// long.assert_text("400 Bad Request: names have up to 20 bytes\n");
    /// ```
    pub fn status(status: StatusCode, text: impl Into<Cow<'static, str>>) -> Error {
        let is_error = status.is_client_error() || status.is_server_error();
        let status = if is_error { status } else { StatusCode::INTERNAL_SERVER_ERROR };
        Error::new(ErrorKind::Status(status), text)
    }

    /// Converts an error of another library, for `map_err`. The response is 500 without details;
    /// hooks and logs get the error with its sources. An [`Error`] stays the same error.
    ///
    /// ```
    /// use weft::{Error, Request};
    ///
    /// async fn port(_: Request) -> weft::Result<String> {
    ///     let port: u16 = "eighty".parse().map_err(Error::other)?;
    ///     Ok(format!("{port}\n"))
    /// }
    /// weft::testing::get(port, "/").assert_text("500 Internal Server Error\n");
    /// ```
    pub fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        let other =
            |error| Error::new(ErrorKind::Other, "the application failed").with_source(error);
        error.into().downcast::<Error>().map_or_else(other, |error| *error)
    }

    /// Sets the error that caused this one.
    pub fn with_source(self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        Error { source: Some(source.into()), ..self }
    }

    /// Names the setting with the limit that was exceeded, for hooks and logs: responses have the
    /// [`reason`](Error::reason) alone.
    pub(crate) fn with_limit(self, setting: &'static str) -> Error {
        self.with_source(ExceededLimit(setting))
    }

    /// The setting with the exceeded limit.
    pub(crate) fn limit(&self) -> Option<&'static str> {
        let limit = self.source.as_ref()?.downcast_ref();
        limit.map(|ExceededLimit(setting)| *setting)
    }

    /// Converts an error of a parser that has read the head of a request.
    pub(crate) fn of_head(error: weft_proto::Error) -> Error {
        let error = Error::from(error);
        match error.kind {
            ErrorKind::TargetTooLong => error.with_limit("max_request_line_bytes"),
            ErrorKind::HeadTooLarge => {
                let is_count = error.reason.contains("too many fields");
                error.with_limit(if is_count { "max_fields" } else { "max_head_bytes" })
            }
            _ => error,
        }
    }

    /// Marks the failure of a response body as one after data: the engine sends the data that the
    /// body has produced before, and then aborts the response.
    ///
    /// Without the mark, if nothing was sent, an error response replaces the response, and the data
    /// is lost. A body that forwards the data of another server marks its failures, so that the
    /// client receives as much as the server has.
    ///
    /// ```
    /// use weft::{Body, Error, ErrorKind};
    ///
    /// let failure = Error::new(ErrorKind::ServiceFailed, "the server has disconnected");
    /// let frames = [Ok("the first half"), Err(failure.after_data())];
    /// let body = Body::stream(futures_util::stream::iter(frames));
    /// # drop(body);
    /// ```
    pub fn after_data(self) -> Error {
        Error { follows_data: true, ..self }
    }

    /// Returns true if data precedes this [failure of a body](Error::after_data).
    pub fn follows_data(&self) -> bool {
        self.follows_data
    }

    pub(crate) fn malformed(reason: &'static str) -> Error {
        Error::new(ErrorKind::Malformed, reason)
    }

    #[cfg(feature = "_tls")]
    pub(crate) fn invalid_setting(reason: String) -> Error {
        Error::new(ErrorKind::InvalidSetting, reason)
    }

    pub(crate) fn disconnected() -> Error {
        Error::new(ErrorKind::Disconnected, "the peer closed the connection")
    }

    /// Converts an error of the connection to the peer: it is
    /// [`Disconnected`](ErrorKind::Disconnected) if the connection is broken.
    pub(crate) fn of_connection(error: std::io::Error) -> Error {
        use std::io::ErrorKind::*;
        match error.kind() {
            ConnectionReset | ConnectionAborted | BrokenPipe | NotConnected | UnexpectedEof
            | TimedOut | HostUnreachable | NetworkUnreachable => {
                Error::disconnected().with_source(error)
            }
            _ => error.into(),
        }
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns the reason. It contains nothing that must be hidden from the peer.
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

/// The setting with a limit that was exceeded, as the source of an error.
#[derive(Debug)]
struct ExceededLimit(&'static str);

impl fmt::Display for ExceededLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the limit is `{}`", self.0)
    }
}

impl std::error::Error for ExceededLimit {}

/// Errors of an application's own I/O become [`Io`](ErrorKind::Io): the peer is not at fault for
/// them, whatever their kind. An [`Error`] in an I/O error, as adapters of bodies return it, stays
/// the same error.
impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Error {
        error
            .downcast()
            .unwrap_or_else(|error| Error::new(ErrorKind::Io, "I/O failed").with_source(error))
    }
}

/// The same as [`Error::status`] without a text.
impl From<StatusCode> for Error {
    fn from(status: StatusCode) -> Error {
        Error::status(status, "")
    }
}

/// The same as [`Error::other`].
impl From<Box<dyn std::error::Error + Send + Sync>> for Error {
    fn from(error: Box<dyn std::error::Error + Send + Sync>) -> Error {
        Error::other(error)
    }
}

/// As [`Error::other`]: an [`Error`] in the chain of sources determines the response.
#[cfg(feature = "anyhow")]
impl From<anyhow::Error> for Error {
    fn from(error: anyhow::Error) -> Error {
        error.downcast().unwrap_or_else(Error::other)
    }
}

impl From<weft_proto::Error> for Error {
    fn from(error: weft_proto::Error) -> Error {
        let kind = match error.kind() {
            weft_proto::ErrorKind::TargetTooLong => ErrorKind::TargetTooLong,
            weft_proto::ErrorKind::HeadTooLarge => ErrorKind::HeadTooLarge,
            weft_proto::ErrorKind::BodyTooLarge => ErrorKind::BodyTooLarge,
            weft_proto::ErrorKind::VersionUnsupported => ErrorKind::VersionUnsupported,
            weft_proto::ErrorKind::NotImplemented => ErrorKind::NotImplemented,
            weft_proto::ErrorKind::ExpectationFailed => ErrorKind::ExpectationFailed,
            _ => ErrorKind::Malformed,
        };
        Error::new(kind, error.reason())
    }
}

/// Writes the same text as `Display`, because `fn main() -> weft::Result<()>` prints it; `{:#?}`
/// writes the parts of the error.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !f.alternate() {
            return fmt::Display::fmt(self, f);
        }
        let Error { kind, reason, source, follows_data } = self;
        f.debug_struct("Error")
            .field("kind", kind)
            .field("reason", reason)
            .field("source", source)
            .field("follows_data", follows_data)
            .finish()
    }
}

/// Writes the reason, or the status if there is no reason, and the chain of sources.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut written = match self.kind {
            ErrorKind::Status(status) if self.reason.is_empty() => status.to_string(),
            _ => self.reason.to_string(),
        };
        f.write_str(&written)?;
        let mut source = std::error::Error::source(self);
        while let Some(error) = source {
            let text = error.to_string();
            // The text of some errors has the text of their source.
            if !written.contains(&text) {
                write!(f, ": {text}")?;
            }
            (written, source) = (text, error.source());
        }
        Ok(())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| &**source as _)
    }
}
