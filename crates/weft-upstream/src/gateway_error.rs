//! Errors of a gateway (RFC 9110 §3.7): reasons for a missing or incomplete response of an
//! upstream or a CGI script, their status codes and their log lines.

use std::fmt;
use std::io;

use weft::{Error, ErrorKind, Request, Response, StatusCode, header};

use crate::sys::is_exhaustion;

/// Methods that applications may respond to, for `Allow`. `TRACE` is rejected: its response has the
/// fields of the request. This server has added some of them, and scripts in a page must not see
/// others (RFC 9110 §9.3.8).
pub const FORWARDED_METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

/// Creates the response to `TRACE`.
pub fn method_not_allowed() -> Response {
    Response::from(StatusCode::METHOD_NOT_ALLOWED).with_header(header::ALLOW, FORWARDED_METHODS)
}

/// Reason for which a request to an upstream or a script has no complete response.
#[derive(Debug)]
#[non_exhaustive]
pub enum GatewayError {
    /// An error of the client: in its request, or in the body that it sends.
    Client(Error),
    /// The connection to the upstream could not be established.
    Unreachable(io::Error),
    /// The connection closed before the first byte of a response.
    ConnectionLost(io::Error),
    /// A reused connection closed before the first byte of a response: the upstream may close an
    /// idle connection at any time.
    StaleConnection(io::Error),
    /// The upstream has stated that it has not processed the request (RFC 9113 §8.7).
    NotProcessed(String),
    /// The upstream or script sent something else than a complete, valid response.
    BadResponse(String),
    /// The response, or the next part of it, did not arrive in time.
    Timeout(&'static str),
    /// All upstreams are down.
    NoneAvailable,
    /// All connections or processes are in use, and the queue is full or the wait in it was too
    /// long.
    Overloaded(&'static str),
    /// The process or the system has no file descriptors, processes or memory for the request.
    ResourcesExhausted(io::Error),
    /// An I/O error of this server, such as a failed read, or a script that cannot be executed.
    Internal(io::Error),
}

impl GatewayError {
    /// Creates an error for bytes that are no valid response.
    pub fn invalid_response(reason: impl fmt::Display) -> GatewayError {
        GatewayError::BadResponse(format!("invalid response: {reason}"))
    }

    /// Classifies an error of `connect`.
    pub fn from_connect_error(error: io::Error) -> GatewayError {
        match is_exhaustion(&error) {
            true => GatewayError::ResourcesExhausted(error),
            false => GatewayError::Unreachable(error),
        }
    }

    /// Classifies an error of the start of a process.
    pub fn from_spawn_error(error: io::Error) -> GatewayError {
        // `EAGAIN`: the limit on processes is reached.
        let is_exhausted = is_exhaustion(&error) || error.kind() == io::ErrorKind::WouldBlock;
        let error = io::Error::new(error.kind(), format!("cannot be run: {error}"));
        match is_exhausted {
            true => GatewayError::ResourcesExhausted(error),
            false => GatewayError::Internal(error),
        }
    }

    /// Returns true if the error counts against the health of the upstream.
    pub fn counts_against_upstream(&self) -> bool {
        matches!(
            self,
            GatewayError::Unreachable(_)
                | GatewayError::ConnectionLost(_)
                | GatewayError::BadResponse(_)
                | GatewayError::Timeout(_)
        )
    }

    fn status(&self) -> StatusCode {
        match self {
            GatewayError::Client(_) => StatusCode::BAD_REQUEST,
            GatewayError::Internal(_) => StatusCode::INTERNAL_SERVER_ERROR,
            GatewayError::Unreachable(error) if error.kind() == io::ErrorKind::TimedOut => {
                StatusCode::GATEWAY_TIMEOUT
            }
            GatewayError::Unreachable(_)
            | GatewayError::ConnectionLost(_)
            | GatewayError::StaleConnection(_)
            | GatewayError::BadResponse(_) => StatusCode::BAD_GATEWAY,
            GatewayError::NoneAvailable
            | GatewayError::NotProcessed(_)
            | GatewayError::Overloaded(_)
            | GatewayError::ResourcesExhausted(_) => StatusCode::SERVICE_UNAVAILABLE,
            GatewayError::Timeout(_) => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    /// Describes the error for the error log. The upstream or script is named by the caller.
    pub fn reason(&self) -> String {
        match self {
            GatewayError::Client(error) => error.reason().to_owned(),
            GatewayError::Unreachable(error) => format!("cannot connect: {error}"),
            GatewayError::ConnectionLost(error) | GatewayError::StaleConnection(error) => {
                format!("no response: {error}")
            }
            GatewayError::NotProcessed(reason) | GatewayError::BadResponse(reason) => {
                reason.clone()
            }
            GatewayError::Timeout(reason) | GatewayError::Overloaded(reason) => {
                (*reason).to_owned()
            }
            GatewayError::NoneAvailable => "none is available".to_owned(),
            GatewayError::ResourcesExhausted(error) | GatewayError::Internal(error) => {
                error.to_string()
            }
        }
    }

    /// Creates the error response. Only an error of the client is reported to the error hook.
    pub fn into_response(self) -> Response {
        if let GatewayError::Client(error) = self {
            return Response::from(&error).with_error(error);
        }
        let status = self.status();
        let mut response = Response::from(status);
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.set_header(header::RETRY_AFTER, "1");
        }
        response
    }

    /// Creates the error response, and the error for the error hook, which names `origin` and the
    /// request.
    pub fn into_reported_response(self, origin: &dyn fmt::Display, request: &Request) -> Response {
        if let GatewayError::Client(_) = self {
            return self.into_response();
        }
        let error = self.to_error(origin, request);
        self.into_response().with_error(error)
    }

    /// Creates the error for the error hook.
    pub fn to_error(&self, origin: &dyn fmt::Display, request: &Request) -> Error {
        let reason = format!("{origin}: {}{}", self.reason(), Summary(request));
        Error::new(ErrorKind::ServiceFailed, reason)
    }
}

/// A request in the error log: client, method, URL. The client address is that received
/// from trusted proxies.
struct Summary<'a>(&'a Request);

/// Maximum length of the target of a request in the error log, in bytes. Longer ones are cut: a
/// client must not fill the log with few requests.
const MAX_TARGET_BYTES: usize = 256;

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Summary(request) = self;
        let target = request.target();
        let mut ends = (0..=target.len().min(MAX_TARGET_BYTES)).rev();
        let end = ends.find(|end| target.is_char_boundary(*end)).unwrap_or(0);
        let cut = if end < target.len() { "…" } else { "" };
        let host = request.authority().unwrap_or("-");
        let (method, target) = (request.method(), &target[..end]);
        write!(f, " (request {method} {target}{cut} of host {host}")?;
        match request.peer().address() {
            Some(address) => write!(f, " from {})", address.ip()),
            None => write!(f, " from a Unix socket)"),
        }
    }
}

/// An error in I/O of the server itself.
impl From<io::Error> for GatewayError {
    fn from(error: io::Error) -> GatewayError {
        match is_exhaustion(&error) {
            true => GatewayError::ResourcesExhausted(error),
            false => GatewayError::Internal(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    #[test]
    fn maps_errors_to_status_codes_and_log_lines() {
        let errno = |errno: Errno| io::Error::from(errno);
        let timed_out = || io::Error::new(io::ErrorKind::TimedOut, "timed out");
        for (error, status, reason) in [
            (GatewayError::from_connect_error(errno(Errno::CONNREFUSED)), 502, "cannot connect: "),
            (GatewayError::from_connect_error(timed_out()), 504, "cannot connect: timed out"),
            (GatewayError::from_connect_error(errno(Errno::MFILE)), 503, "Too many open files"),
            (GatewayError::from_spawn_error(errno(Errno::NOENT)), 500, "cannot be run: No such"),
            (GatewayError::from_spawn_error(errno(Errno::AGAIN)), 503, "cannot be run: Resource"),
            (GatewayError::from_spawn_error(errno(Errno::NOMEM)), 503, "cannot be run: Cannot"),
            (errno(Errno::IO).into(), 500, "Input/output error"),
            (errno(Errno::NFILE).into(), 503, "Too many open files in system"),
            (GatewayError::ConnectionLost(timed_out()), 502, "no response: timed out"),
            (GatewayError::StaleConnection(timed_out()), 502, "no response: timed out"),
            (GatewayError::invalid_response("no head"), 502, "invalid response: no head"),
            (GatewayError::NotProcessed("refused".into()), 503, "refused"),
            (GatewayError::Timeout("too slow"), 504, "too slow"),
            (GatewayError::Overloaded("too many"), 503, "too many"),
            (GatewayError::NoneAvailable, 503, "none is available"),
        ] {
            assert_eq!(error.status().as_u16(), status, "{error:?}");
            assert!(error.reason().starts_with(reason), "{error:?}: {}", error.reason());
        }
    }
}
