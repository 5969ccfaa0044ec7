//! Failures to get a response from an upstream, and the error responses for the client.

use std::fmt;
use std::io;

use weft::{Error, ErrorKind, Response, StatusCode, header};

use crate::exhaustion::is_exhaustion;

#[derive(Debug)]
pub(super) enum Failure {
    /// The connection could not be established.
    Unreachable(io::Error),
    /// This process has no file descriptors or memory for another connection.
    ResourcesExhausted(io::Error),
    /// The connection closed before the first byte of a response.
    ConnectionLost(io::Error),
    /// A reused connection closed before the first byte of a response: the upstream may close an
    /// idle connection at any time.
    StaleConnection(io::Error),
    /// The upstream sent bytes that are not a valid response.
    InvalidResponse(String),
    /// The response did not arrive in time.
    ResponseTimeout,
    /// All upstreams are resting or down.
    NoneAvailable,
    /// All connections to the upstream are in use, and the queue is full or the wait in it was too
    /// long.
    Overloaded,
    /// An error of the client: in its request, or in the body that it sends.
    Client(Error),
}

impl Failure {
    /// Classifies an error of `connect`.
    pub(super) fn from_connect_error(error: io::Error) -> Failure {
        if is_exhaustion(&error) {
            Failure::ResourcesExhausted(error)
        } else {
            Failure::Unreachable(error)
        }
    }

    /// Returns true if the failure counts against the health of the upstream.
    pub(super) fn counts_against_upstream(&self) -> bool {
        matches!(
            self,
            Failure::Unreachable(_)
                | Failure::ConnectionLost(_)
                | Failure::InvalidResponse(_)
                | Failure::ResponseTimeout
        )
    }

    fn status(&self) -> StatusCode {
        match self {
            Failure::Unreachable(error) if error.kind() == io::ErrorKind::TimedOut => {
                StatusCode::GATEWAY_TIMEOUT
            }
            Failure::Unreachable(_)
            | Failure::ConnectionLost(_)
            | Failure::StaleConnection(_)
            | Failure::InvalidResponse(_) => StatusCode::BAD_GATEWAY,
            Failure::ResponseTimeout => StatusCode::GATEWAY_TIMEOUT,
            Failure::ResourcesExhausted(_) | Failure::NoneAvailable | Failure::Overloaded => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Failure::Client(_) => StatusCode::BAD_REQUEST,
        }
    }

    /// Returns a description of the failure.
    pub(super) fn reason(&self) -> String {
        match self {
            Failure::Client(error) => error.reason().to_owned(),
            Failure::Unreachable(error) | Failure::ResourcesExhausted(error) => {
                format!("cannot connect: {error}")
            }
            Failure::ConnectionLost(error) | Failure::StaleConnection(error) => {
                format!("no response: {error}")
            }
            Failure::InvalidResponse(reason) => format!("invalid response: {reason}"),
            Failure::ResponseTimeout => "timed out waiting for the response".to_owned(),
            Failure::NoneAvailable => "none is available".to_owned(),
            Failure::Overloaded => "too many requests in progress".to_owned(),
        }
    }

    /// Creates the error response, and the error for the hooks, which names the upstream.
    pub(super) fn into_response(self, upstream: Option<&dyn fmt::Display>) -> Response {
        let (status, reason) = (self.status(), self.reason());
        if let Failure::Client(error) = self {
            return Response::from(&error).with_error(error);
        }
        let reason = match upstream {
            Some(upstream) => format!("the upstream {upstream}: {reason}"),
            None => format!("the upstreams: {reason}"),
        };
        let mut response = Response::from(status);
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.set_header(header::RETRY_AFTER, "1");
        }
        response.with_error(Error::new(ErrorKind::ServiceFailed, reason))
    }
}
