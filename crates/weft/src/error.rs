//! What can go wrong, and whose fault it is.

use std::borrow::Cow;
use std::fmt;

use http::StatusCode;

/// A result whose error is [`Error`] unless said otherwise.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the engine: its [kind](ErrorKind), a reason in words, and the
/// error below it where there is one.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    reason: Cow<'static, str>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// Who has to act for the error to go away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The other end of the connection sent or did something wrong.
    Peer,
    /// The application broke a rule of the interface.
    Application,
    /// The operating system refused something.
    System,
}

/// The kinds of [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The peer's bytes are not the HTTP that RFC 9110 and 9112 describe, or not the form or
    /// query that is expected.
    Malformed,
    /// The request line is longer than [`Settings::max_request_line_bytes`](crate::Settings).
    TargetTooLong,
    /// The head has more bytes or fields than the settings allow.
    HeadTooLarge,
    /// The body is larger than allowed.
    BodyTooLarge,
    /// The peer closed the connection in the middle of a body.
    BodyIncomplete,
    /// The body is of another media type than is expected.
    MediaTypeUnsupported,
    /// The peer asks for an HTTP version that is not spoken here.
    VersionUnsupported,
    /// The peer asks for a method or transfer coding that is not implemented here.
    NotImplemented,
    /// The peer's `Expect` cannot be met.
    ExpectationFailed,
    /// The peer was slower than the settings allow.
    TooSlow,
    /// The peer does not speak TLS where that is spoken, or cannot agree with us on it.
    TlsFailed,
    /// The peer went away.
    Disconnected,
    /// The application panicked.
    Panicked,
    /// The application's `Content-Length` is not the length of its body.
    LengthMismatch,
    /// The application's response cannot be sent as it is.
    InvalidResponse,
    /// A body that the application supplied failed.
    BodyFailed,
    /// A [tower service](crate::tower) answered with an error.
    ServiceFailed,
    /// A setting has a value that makes no sense.
    InvalidSetting,
    /// The listening socket could not be had.
    Listen,
    /// Any other failure of the operating system.
    Io,
}

impl ErrorKind {
    /// Who has to act for the error to go away.
    pub fn fault(self) -> Fault {
        use ErrorKind::*;
        match self {
            Malformed | TargetTooLong | HeadTooLarge | BodyTooLarge | BodyIncomplete
            | MediaTypeUnsupported | VersionUnsupported | NotImplemented | ExpectationFailed
            | TooSlow | TlsFailed | Disconnected => Fault::Peer,
            Panicked | LengthMismatch | InvalidResponse | BodyFailed | ServiceFailed
            | InvalidSetting => Fault::Application,
            Listen | Io => Fault::System,
        }
    }

    /// The status that tells a peer about the error, where it can be told.
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
            Panicked | LengthMismatch | InvalidResponse | BodyFailed | ServiceFailed
            | InvalidSetting => Some(StatusCode::INTERNAL_SERVER_ERROR),
            TlsFailed | Disconnected | Listen | Io => None,
        }
    }
}

impl Error {
    /// An error of this kind, with a reason in words.
    pub fn new(kind: ErrorKind, reason: impl Into<Cow<'static, str>>) -> Error {
        Error { kind, reason: reason.into(), source: None }
    }

    /// The same error, caused by another one.
    pub fn because(self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        Error { source: Some(source.into()), ..self }
    }

    pub(crate) fn malformed(reason: &'static str) -> Error {
        Error::new(ErrorKind::Malformed, reason)
    }

    pub(crate) fn disconnected() -> Error {
        Error::new(ErrorKind::Disconnected, "the peer closed the connection")
    }

    /// What kind of error it is.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The reason in words, fit to be shown to the peer.
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

/// A connection that breaks is the peer's doing; the rest is the system's.
impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Error {
        use std::io::ErrorKind::*;
        match error.kind() {
            ConnectionReset | ConnectionAborted | BrokenPipe | NotConnected | UnexpectedEof
            | TimedOut | HostUnreachable | NetworkUnreachable => {
                Error::disconnected().because(error)
            }
            _ => Error::new(ErrorKind::Io, "the operating system refused").because(error),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)?;
        match &self.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| &**source as _)
    }
}
