//! Why a script gave no response, and what the client is told instead.

use std::io;
use std::process::ExitStatus;

use weft::{Error, Response, StatusCode, header};

use super::script::Absent;
use crate::shortage::is_shortage;

#[derive(Debug)]
pub(super) enum Failure {
    Absent(Absent),
    /// All places are taken, and others wait already.
    Full,
    /// What the request needs on this side could not be had.
    Io(io::Error),
    /// It could not be run.
    NotStarted(io::Error),
    /// What it wrote is no head.
    BadHead(String),
    /// It ended before its head was complete.
    NoHead,
    /// Its head or the next bytes of its body did not come in time.
    TooSlow,
    /// It was ended by a signal.
    Killed(ExitStatus),
    /// It wrote less than its `Content-Length`.
    TooShort,
    /// The client's own doing: its request, or the body that it sends.
    Client(Error),
}

impl Failure {
    fn status(&self) -> StatusCode {
        match self {
            Failure::Absent(Absent::NotFound) => StatusCode::NOT_FOUND,
            Failure::Absent(Absent::Forbidden) => StatusCode::FORBIDDEN,
            Failure::Full => StatusCode::SERVICE_UNAVAILABLE,
            // The system has no room for another process just now.
            Failure::NotStarted(error) if error.kind() == io::ErrorKind::WouldBlock => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Failure::Absent(Absent::Io(error))
            | Failure::Io(error)
            | Failure::NotStarted(error)
                if is_shortage(error) =>
            {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Failure::Absent(Absent::Io(_)) | Failure::Io(_) | Failure::NotStarted(_) => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
            Failure::BadHead(_) | Failure::NoHead | Failure::Killed(_) | Failure::TooShort => {
                StatusCode::BAD_GATEWAY
            }
            Failure::TooSlow => StatusCode::GATEWAY_TIMEOUT,
            Failure::Client(_) => StatusCode::BAD_REQUEST,
        }
    }

    /// What whoever runs the server has to know, if it is his to act.
    pub(super) fn reason(&self) -> Option<String> {
        Some(match self {
            Failure::Absent(Absent::NotFound | Absent::Forbidden) | Failure::Client(_) => {
                return None;
            }
            Failure::Full => "too many scripts are running".to_owned(),
            Failure::Absent(Absent::Io(error)) | Failure::Io(error) => error.to_string(),
            Failure::NotStarted(error) => format!("cannot be run: {error}"),
            Failure::BadHead(wrong) => wrong.clone(),
            Failure::NoHead => "it ended without a head".to_owned(),
            Failure::TooSlow => "it took too long and was ended".to_owned(),
            Failure::Killed(status) => format!("it was ended by a signal ({status})"),
            Failure::TooShort => "it wrote less than its Content-Length".to_owned(),
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
