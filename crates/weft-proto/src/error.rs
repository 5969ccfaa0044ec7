//! Violations of the protocol by a peer.

use std::fmt;

/// A result whose error is [`Error`] unless another one is given.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A message that cannot be accepted: its [kind](ErrorKind), and a reason that may be sent to the
/// peer.
///
/// ```
/// use weft_proto::{ErrorKind, Headers};
///
/// let error = Headers::parse("Host : a\r\n\r\n").unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Malformed);
/// assert_eq!(error.reason(), "a space before the colon of a field");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    reason: &'static str,
}

/// Kinds of [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A violation of RFC 9110, RFC 9112 or RFC 9113.
    Malformed,
    /// A request line that exceeds its limit.
    TargetTooLong,
    /// A head with more bytes or fields than allowed.
    HeadTooLarge,
    /// A body with more bytes than allowed.
    BodyTooLarge,
    /// An HTTP version that is not supported.
    VersionUnsupported,
    /// A method or transfer coding that is not implemented.
    NotImplemented,
    /// An expectation that cannot be met (RFC 9110 §10.1.1).
    ExpectationFailed,
}

impl Error {
    /// Creates an error with a reason in words.
    pub const fn new(kind: ErrorKind, reason: &'static str) -> Error {
        Error { kind, reason }
    }

    /// Creates an error of the kind [`Malformed`](ErrorKind::Malformed).
    pub const fn malformed(reason: &'static str) -> Error {
        Error::new(ErrorKind::Malformed, reason)
    }

    /// Returns the kind of the error.
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns the reason in words.
    pub const fn reason(&self) -> &'static str {
        self.reason
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason)
    }
}

impl std::error::Error for Error {}
