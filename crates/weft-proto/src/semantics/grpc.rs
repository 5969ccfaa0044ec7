//! gRPC: the media types of its calls, their deadlines, and the status at their end.
//!
//! "Request" and "response" have the meaning of the [gRPC
//! protocol](https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md).

use std::borrow::Cow;
use std::time::Duration;

use http::{HeaderName, HeaderValue, StatusCode};

use crate::headers::Headers;

/// Name of the field with the status code.
pub const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// Name of the field with the message of the status.
pub const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// Name of the field with further details of the status.
pub const GRPC_STATUS_DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");

/// Media type of gRPC, which may have a suffix such as `+proto`.
pub const GRPC: &str = "application/grpc";

/// Status codes of gRPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Code {
    /// The call has succeeded.
    Ok = 0,
    /// The caller has canceled the call.
    Cancelled = 1,
    /// An error without a better code.
    Unknown = 2,
    /// The request is invalid.
    InvalidArgument = 3,
    /// The deadline was over before the end of the call.
    DeadlineExceeded = 4,
    /// An entity does not exist.
    NotFound = 5,
    /// An entity exists already.
    AlreadyExists = 6,
    /// The caller has no permission for the call.
    PermissionDenied = 7,
    /// A quota or a resource is used up.
    ResourceExhausted = 8,
    /// The state of the system does not permit the operation.
    FailedPrecondition = 9,
    /// The operation was aborted, for example by a conflict of transactions.
    Aborted = 10,
    /// The operation is beyond the valid range.
    OutOfRange = 11,
    /// The method does not exist.
    Unimplemented = 12,
    /// An invariant of the server is violated.
    Internal = 13,
    /// The service is not available at present. A retry may succeed.
    Unavailable = 14,
    /// Data is lost or damaged.
    DataLoss = 15,
    /// The call has no valid credentials.
    Unauthenticated = 16,
}

impl Code {
    /// Returns the code for an HTTP status, which a client of gRPC would derive from it, except for
    /// 413, 429 and 431: a limit is exceeded.
    pub fn from_http(status: StatusCode) -> Code {
        match status {
            StatusCode::BAD_REQUEST => Code::Internal,
            StatusCode::UNAUTHORIZED => Code::Unauthenticated,
            StatusCode::FORBIDDEN => Code::PermissionDenied,
            StatusCode::NOT_FOUND => Code::Unimplemented,
            StatusCode::PAYLOAD_TOO_LARGE
            | StatusCode::TOO_MANY_REQUESTS
            | StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => Code::ResourceExhausted,
            StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => Code::Unavailable,
            status if status.is_success() => Code::Ok,
            _ => Code::Unknown,
        }
    }
}

/// The status at the end of a call.
///
/// ```
/// use weft_proto::semantics::grpc::{Code, Status};
///
/// let fields: Vec<_> = Status::new(Code::Unavailable, "100 % busy").fields().collect();
/// assert_eq!((fields[0].0.as_str(), &fields[0].1), ("grpc-status", &"14".parse().unwrap()));
/// assert_eq!((fields[1].0.as_str(), &fields[1].1), ("grpc-message", &"100 %25 busy".parse().unwrap()));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The code.
    pub code: Code,
    /// A text for developers; empty: none.
    pub message: Cow<'static, str>,
}

impl Status {
    /// Creates a status.
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Status {
        Status { code, message: message.into() }
    }

    /// Returns the fields of the status, for the trailers of a response or for a head without a
    /// body.
    pub fn fields(&self) -> impl Iterator<Item = (HeaderName, HeaderValue)> + use<> {
        let message = (!self.message.is_empty()).then(|| {
            let encoded = HeaderValue::try_from(percent_encoded(&self.message));
            (GRPC_MESSAGE, encoded.expect("percent-encoded text is visible ASCII"))
        });
        [(GRPC_STATUS, HeaderValue::from(self.code as u16))].into_iter().chain(message)
    }
}

/// Encodes a message as the protocol requires.
fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => encoded.push(char::from(byte)),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// Returns true if the message is a call of gRPC or a response to one, with messages of any format.
/// gRPC-Web is not included: its trailers are a part of the body.
pub fn is_grpc(headers: &Headers) -> bool {
    headers.get_bytes("content-type").is_some_and(is_grpc_media_type)
}

/// Returns true if the media type is `application/grpc` or `application/grpc+proto`, but not if it
/// is `application/grpc-web`.
pub fn is_grpc_media_type(media_type: &[u8]) -> bool {
    strip_type(media_type, GRPC).is_some()
}

/// Returns the time that the client of a call waits (`grpc-timeout`): up to eight digits and a
/// unit. `None` if it is not limited, or the value is invalid.
pub fn timeout(headers: &Headers) -> Option<Duration> {
    let (unit, digits) = headers.get_bytes("grpc-timeout")?.split_last()?;
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

/// The media type of a message of gRPC-Web.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WebMediaType<'a> {
    /// The body is base64: `application/grpc-web-text`.
    pub is_text: bool,
    /// Suffix that names the format of the messages, such as `+proto`; may be empty.
    pub suffix: &'a [u8],
}

impl WebMediaType<'_> {
    /// Parses a value of `Content-Type`, or a member of `Accept`; `None` if it is another media
    /// type.
    ///
    /// ```
    /// use weft_proto::semantics::grpc::WebMediaType;
    ///
    /// let media_type = WebMediaType::parse(b"application/grpc-web-text+proto").unwrap();
    /// assert_eq!((media_type.is_text, media_type.suffix), (true, &b"+proto"[..]));
    /// assert_eq!(WebMediaType::parse(b"application/grpc"), None);
    /// ```
    pub fn parse(media_type: &[u8]) -> Option<WebMediaType<'_>> {
        let text = strip_type(media_type, "application/grpc-web-text");
        let suffix = text.or_else(|| strip_type(media_type, "application/grpc-web"))?;
        Some(WebMediaType { is_text: text.is_some(), suffix })
    }
}

/// Returns the suffix of a media type of gRPC, such as `+proto`; empty if it has none.
pub fn format_suffix(media_type: &[u8]) -> &[u8] {
    strip_type(media_type, GRPC).unwrap_or_default()
}

/// Removes `name` from the start of a media type, and parameters from its end. `None` if the type
/// has another name.
fn strip_type<'a>(media_type: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let (start, rest) = media_type.split_at_checked(name.len())?;
    let is_end = matches!(rest.first(), None | Some(b'+' | b';' | b' '));
    let end = rest.iter().position(|b| b"; ".contains(b)).unwrap_or(rest.len());
    (is_end && start.eq_ignore_ascii_case(name.as_bytes())).then(|| &rest[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(lines: &str) -> Headers {
        Headers::parse(format!("{lines}\r\n")).unwrap()
    }

    #[test]
    fn recognizes_calls() {
        for (media_type, expected) in [
            ("application/grpc", true),
            ("Application/gRPC+proto", true),
            ("application/grpc;charset=utf-8", true),
            ("application/grpc ; charset=utf-8", true),
            ("application/grpc-web", false),
            ("application/grpc-web+proto", false),
            ("application/grpcx", false),
            ("application/json", false),
        ] {
            let headers = fields(&format!("Content-Type: {media_type}\r\n"));
            assert_eq!(is_grpc(&headers), expected, "{media_type}");
        }
        assert!(!is_grpc(&fields("")));
    }

    #[test]
    fn parses_media_types_of_grpc_web() {
        for (media_type, expected) in [
            ("application/grpc-web", Some((false, ""))),
            ("Application/gRPC-Web+proto; a=b", Some((false, "+proto"))),
            ("application/grpc-web-text", Some((true, ""))),
            ("application/grpc-web-text+thrift", Some((true, "+thrift"))),
            ("application/grpc-web-texts", None),
            ("application/grpc", None),
            ("", None),
        ] {
            let parsed = WebMediaType::parse(media_type.as_bytes());
            let expected = expected
                .map(|(is_text, suffix)| WebMediaType { is_text, suffix: suffix.as_bytes() });
            assert_eq!(parsed, expected, "{media_type}");
        }
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
            let headers = fields(&format!("GRPC-Timeout: {value}\r\n"));
            assert_eq!(timeout(&headers), expected, "{value:?}");
        }
        assert_eq!(timeout(&fields("")), None);
    }

    #[test]
    fn status_has_an_encoded_message() {
        for (message, expected) in [
            ("100 % \u{e9}\n", &["13", "100 %25 %C3%A9%0A"][..]),
            ("ok~", &["13", "ok~"]),
            ("", &["13"]),
        ] {
            let fields = Status::new(Code::Internal, message).fields();
            let values: Vec<_> = fields.map(|(_, value)| value).collect();
            assert_eq!(values, expected, "{message:?}");
        }
    }
}
