//! Responses to requests that no route may get.

use weft::{Error, ErrorKind, Response, StatusCode, header};
use weft_upstream::gateway_error::FORWARDED_METHODS;

use super::reading::InvalidPath;

/// Reason that the router itself responds to a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unrouted {
    /// `OPTIONS *`, which applies to the server as a whole (RFC 9110 §9.3.7).
    WholeServer,
    NotFound,
    InvalidPath(InvalidPath),
    /// The path belongs to another route in the reading of another server.
    AmbiguousPath,
    /// A condition asks about a name that the request has too often, or about a text that is too
    /// long.
    TooManyValues,
    /// The path has routes for other methods, which are those for `Allow`.
    MethodNotAllowed(String),
}

impl Unrouted {
    #[cold]
    pub(crate) fn response(self) -> Response {
        let reason = match self {
            Unrouted::WholeServer => {
                return Response::new(StatusCode::NO_CONTENT)
                    .with_header(header::ALLOW, FORWARDED_METHODS);
            }
            Unrouted::NotFound => return Response::not_found(),
            Unrouted::MethodNotAllowed(allow) => {
                return Response::from(StatusCode::METHOD_NOT_ALLOWED)
                    .with_header(header::ALLOW, allow);
            }
            Unrouted::InvalidPath(InvalidPath::Nul) => "the path contains %00",
            Unrouted::InvalidPath(InvalidPath::HiddenParent) => {
                "the path has an encoded parent segment"
            }
            Unrouted::AmbiguousPath => {
                "the path has an encoded slash, a backslash, a semicolon or a line feed that could \
                 lead to another route"
            }
            Unrouted::TooManyValues => {
                "the request has more values than the conditions of its path compare"
            }
        };
        let error = Error::new(ErrorKind::Malformed, reason);
        Response::from(&error).with_error(error)
    }
}
