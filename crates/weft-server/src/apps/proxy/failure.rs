//! Why a request has no response of an upstream's, and what the client is told instead.

use std::fmt;
use std::io;

use weft::{Error, ErrorKind, Response, StatusCode, header};

use crate::shortage::is_shortage;

#[derive(Debug)]
pub(super) enum Failure {
    /// No connection could be made.
    Unreachable(io::Error),
    /// This process has no room for another connection.
    Shortage(io::Error),
    /// The connection ended before anything of a response had come.
    Broken(io::Error),
    /// The same on a connection that was kept: the upstream may close it when it likes.
    Stale(io::Error),
    /// What came was no response, or one that makes no sense.
    BadAnswer(String),
    /// It did not come in time.
    TooSlow,
    /// All upstreams are out.
    NoneUp,
    /// They have no room, and the queue is full.
    Full,
    /// The client's own doing: its request, or the body that it sends.
    Client(Error),
}

impl Failure {
    /// No connection was made, for such a reason.
    pub(super) fn of_connecting(error: io::Error) -> Failure {
        if is_shortage(&error) { Failure::Shortage(error) } else { Failure::Unreachable(error) }
    }

    /// Whether it speaks against the upstream.
    pub(super) fn is_upstreams(&self) -> bool {
        matches!(
            self,
            Failure::Unreachable(_) | Failure::Broken(_) | Failure::BadAnswer(_) | Failure::TooSlow
        )
    }

    fn status(&self) -> StatusCode {
        match self {
            Failure::Unreachable(error) if error.kind() == io::ErrorKind::TimedOut => {
                StatusCode::GATEWAY_TIMEOUT
            }
            Failure::Unreachable(_)
            | Failure::Broken(_)
            | Failure::Stale(_)
            | Failure::BadAnswer(_) => StatusCode::BAD_GATEWAY,
            Failure::TooSlow => StatusCode::GATEWAY_TIMEOUT,
            Failure::Shortage(_) | Failure::NoneUp | Failure::Full => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Failure::Client(_) => StatusCode::BAD_REQUEST,
        }
    }

    /// What has happened, in words.
    pub(super) fn reason(&self) -> String {
        match self {
            Failure::Client(error) => error.reason().to_owned(),
            Failure::Unreachable(error) | Failure::Shortage(error) => {
                format!("cannot connect: {error}")
            }
            Failure::Broken(error) | Failure::Stale(error) => format!("no answer: {error}"),
            Failure::BadAnswer(why) => format!("no valid answer: {why}"),
            Failure::TooSlow => "it did not answer in time".to_owned(),
            Failure::NoneUp => "none is up".to_owned(),
            Failure::Full => "too many requests are under way".to_owned(),
        }
    }

    /// The page, and the error for the hooks, which names the upstream.
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
