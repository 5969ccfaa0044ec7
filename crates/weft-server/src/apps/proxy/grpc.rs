//! gRPC: recognition of its calls, their deadlines, and errors of the proxy as a status of a call.
//! Pure.

use std::time::Duration;

use weft::header::{CONTENT_TYPE, HeaderMap, HeaderName};
use weft::{HeaderValue, Headers, Request, Response, StatusCode};
use weft_proto::http1::client::ResponseHead;

use super::GatewayError;

const GRPC: &[u8] = b"application/grpc";

/// Codes of the errors of a proxy, from the status codes of gRPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Code {
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    Internal = 13,
    Unavailable = 14,
}

impl Code {
    fn of(error: &GatewayError) -> Code {
        match error {
            GatewayError::Client(_) => Code::InvalidArgument,
            GatewayError::Timeout(_) => Code::DeadlineExceeded,
            GatewayError::BadResponse(_) | GatewayError::Internal(_) => Code::Internal,
            _ => Code::Unavailable,
        }
    }

    /// The text for the client. The reason is for the error log.
    fn message(self) -> &'static str {
        match self {
            Code::InvalidArgument => "the request is invalid",
            Code::DeadlineExceeded => "the service has not responded in time",
            Code::Internal => "the response of the service is invalid",
            Code::Unavailable => "the service is not available",
        }
    }
}

/// Returns true for a call of gRPC, with messages of any format. gRPC-Web is none: its trailers are a
/// part of the body.
pub(super) fn is_call(request: &Request) -> bool {
    is_grpc(request.headers())
}

/// Returns true for a response to a call.
pub(super) fn is_response(head: &ResponseHead) -> bool {
    is_grpc(&head.headers)
}

fn is_grpc(headers: &Headers) -> bool {
    let kind = headers.get_bytes("content-type").unwrap_or_default();
    let is_grpc = kind.get(..GRPC.len()).is_some_and(|kind| kind.eq_ignore_ascii_case(GRPC));
    is_grpc && matches!(kind.get(GRPC.len()), None | Some(b'+' | b';' | b' '))
}

/// Returns the time that the client waits: up to eight digits and a unit.
pub(super) fn timeout(request: &Request) -> Option<Duration> {
    if !is_call(request) {
        return None;
    }
    let (unit, digits) = request.headers().get_bytes("grpc-timeout")?.split_last()?;
    if digits.len() > 8 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let value: u64 = str::from_utf8(digits).ok()?.parse().ok()?;
    match unit {
        b'H' => Some(Duration::from_secs(value * 3600)),
        b'M' => Some(Duration::from_secs(value * 60)),
        b'S' => Some(Duration::from_secs(value)),
        b'm' => Some(Duration::from_millis(value)),
        b'u' => Some(Duration::from_micros(value)),
        b'n' => Some(Duration::from_nanos(value)),
        _ => None,
    }
}

/// Creates the trailers of a call that has failed.
pub(super) fn status_fields(code: Code) -> HeaderMap {
    let message = HeaderValue::from_static(code.message());
    let (status_name, message_name) =
        (HeaderName::from_static("grpc-status"), HeaderName::from_static("grpc-message"));
    [(status_name, HeaderValue::from(code as u16)), (message_name, message)].into_iter().collect()
}

/// Creates the response to a call without one: the trailers are its only fields (Trailers-Only).
pub(super) fn error_response(error: &GatewayError) -> Response {
    let mut response = Response::new(StatusCode::OK).with_header(CONTENT_TYPE, "application/grpc");
    for (name, value) in status_fields(Code::of(error)) {
        if let Some(name) = name {
            response = response.with_header_value(name, value);
        }
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft::testing;

    fn call(fields: &str) -> Request {
        testing::request(format!("POST /s/m HTTP/1.1\r\nHost: a\r\n{fields}\r\n"))
    }

    #[test]
    fn recognizes_calls() {
        for (kind, expected) in [
            ("application/grpc", true),
            ("Application/gRPC+proto", true),
            ("application/grpc;charset=utf-8", true),
            ("application/grpc-web", false),
            ("application/grpcx", false),
            ("application/json", false),
        ] {
            assert_eq!(is_call(&call(&format!("Content-Type: {kind}\r\n"))), expected, "{kind}");
        }
        assert!(!is_call(&call("")));
    }

    #[test]
    fn parses_timeouts() {
        for (value, expected) in [
            ("1H", Some(Duration::from_secs(3600))),
            ("2M", Some(Duration::from_secs(120))),
            ("99999999S", Some(Duration::from_secs(99_999_999))),
            ("5m", Some(Duration::from_millis(5))),
            ("7u", Some(Duration::from_micros(7))),
            ("9n", Some(Duration::from_nanos(9))),
            ("999999999S", None),
            ("5", None),
            ("S", None),
            ("-5S", None),
            ("5s", None),
            ("", None),
        ] {
            let fields = format!("Content-Type: application/grpc\r\nGRPC-Timeout: {value}\r\n");
            assert_eq!(timeout(&call(&fields)), expected, "{value:?}");
        }
        assert_eq!(timeout(&call("GRPC-Timeout: 5S\r\n")), None);
    }
}
