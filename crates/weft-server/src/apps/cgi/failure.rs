//! Reasons for a missing or incomplete script response, and the error response for the client.

use std::io;
use std::process::ExitStatus;

use weft::{Error, Response, StatusCode, header};

use super::script::LookupError;
use crate::exhaustion::is_exhaustion;

/// Reason for a missing or incomplete response.
#[derive(Debug)]
pub(super) enum Failure {
    Lookup(LookupError),
    /// All permits are in use, and the queue is full or the queue timeout has expired.
    Overloaded,
    /// I/O error of the server itself, such as a failed read or a missing temporary file.
    Io(io::Error),
    /// The script could not be executed.
    Spawn(io::Error),
    /// The script's output is not a valid response head.
    InvalidHead(String),
    /// The script exited before its response head was complete.
    IncompleteHead,
    /// The response head or the next bytes of the body were not written in time.
    Timeout,
    /// The script was terminated by a signal.
    Killed(ExitStatus),
    /// The body is shorter than the script's `Content-Length`.
    BodyTooShort,
    /// Client error in the request or its body.
    Client(Error),
}

impl Failure {
    fn status(&self) -> StatusCode {
        match self {
            Failure::Lookup(LookupError::NotFound) => StatusCode::NOT_FOUND,
            Failure::Lookup(LookupError::Forbidden) => StatusCode::FORBIDDEN,
            Failure::Overloaded => StatusCode::SERVICE_UNAVAILABLE,
            // `EAGAIN`: the limit on processes is reached.
            Failure::Spawn(error) if error.kind() == io::ErrorKind::WouldBlock => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Failure::Lookup(LookupError::Io(error))
            | Failure::Io(error)
            | Failure::Spawn(error)
                if is_exhaustion(error) =>
            {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Failure::Lookup(LookupError::Io(_)) | Failure::Io(_) | Failure::Spawn(_) => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
            Failure::InvalidHead(_)
            | Failure::IncompleteHead
            | Failure::Killed(_)
            | Failure::BodyTooShort => StatusCode::BAD_GATEWAY,
            Failure::Timeout => StatusCode::GATEWAY_TIMEOUT,
            Failure::Client(_) => StatusCode::BAD_REQUEST,
        }
    }

    /// Returns the message for the error log, or `None` if no operator action is needed.
    pub(super) fn reason(&self) -> Option<String> {
        Some(match self {
            Failure::Lookup(LookupError::NotFound | LookupError::Forbidden)
            | Failure::Client(_) => {
                return None;
            }
            Failure::Overloaded => "too many scripts are running".to_owned(),
            Failure::Lookup(LookupError::Io(error)) | Failure::Io(error) => error.to_string(),
            Failure::Spawn(error) => format!("cannot be run: {error}"),
            Failure::InvalidHead(reason) => reason.clone(),
            Failure::IncompleteHead => "it ended without a head".to_owned(),
            Failure::Timeout => "it took too long and was ended".to_owned(),
            Failure::Killed(status) => format!("it was ended by a signal ({status})"),
            Failure::BodyTooShort => "it wrote less than its Content-Length".to_owned(),
        })
    }

    pub(super) fn into_response(self) -> Response {
        if let Failure::Client(error) = self {
            return Response::from(&error).with_error(error);
        }
        let status = self.status();
        let mut response = Response::from(status);
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.set_header(header::RETRY_AFTER, "1");
        }
        response
    }
}
