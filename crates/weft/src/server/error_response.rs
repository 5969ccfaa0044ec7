//! The response that replaces one that failed.

use http::header::CONTENT_TYPE;
use http::{HeaderName, StatusCode};

use crate::error::{Error, ErrorKind, Fault};
use crate::message::request::RequestHead;
use crate::message::response::Response;

const GRPC: &[u8] = b"application/grpc";

/// Creates the error response to a request; `None` if its head is invalid.
///
/// A gRPC client takes a page of text for messages, so it gets the status of the call instead: a
/// response of a head only ("Trailers-Only" in the gRPC protocol).
pub(super) fn error_response(head: Option<&RequestHead>, error: &Error) -> Response {
    let is_grpc =
        |head: &RequestHead| head.headers().get_bytes("content-type").is_some_and(is_grpc);
    if !head.is_some_and(is_grpc) {
        return error.into();
    }
    let status = grpc_status(error.kind());
    let response = Response::new(StatusCode::OK)
        .with_header(CONTENT_TYPE, GRPC)
        .with_header(HeaderName::from_static("grpc-status"), status.to_string());
    match error.kind().fault() {
        Fault::Peer => response
            .with_header(HeaderName::from_static("grpc-message"), percent_encoded(error.reason())),
        Fault::Application | Fault::System => response,
    }
}

/// Returns `true` for `application/grpc` and `application/grpc+proto`, but not for
/// `application/grpc-web`, whose responses differ.
fn is_grpc(media_type: &[u8]) -> bool {
    let prefix = media_type.get(..GRPC.len());
    prefix.is_some_and(|prefix| prefix.eq_ignore_ascii_case(GRPC))
        && matches!(media_type.get(GRPC.len()), None | Some(b'+' | b';' | b' '))
}

/// Returns the status code of gRPC for an error.
fn grpc_status(kind: ErrorKind) -> u8 {
    const CANCELLED: u8 = 1;
    const INTERNAL: u8 = 13;
    const RESOURCE_EXHAUSTED: u8 = 8;
    const UNIMPLEMENTED: u8 = 12;
    const UNAVAILABLE: u8 = 14;
    match kind {
        ErrorKind::BodyTooLarge | ErrorKind::HeadTooLarge => RESOURCE_EXHAUSTED,
        ErrorKind::BodyIncomplete => CANCELLED,
        ErrorKind::NotImplemented => UNIMPLEMENTED,
        ErrorKind::TooSlow => UNAVAILABLE,
        _ => INTERNAL,
    }
}

/// Encodes a message as gRPC requires.
fn percent_encoded(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b' '..=b'~' if byte != b'%' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognizes_media_types_of_grpc() {
        for (media_type, expected) in [
            ("application/grpc", true),
            ("Application/gRPC+proto", true),
            ("application/grpc; charset=utf-8", true),
            ("application/grpc-web", false),
            ("application/grpc-web+proto", false),
            ("application/json", false),
            ("", false),
        ] {
            assert_eq!(is_grpc(media_type.as_bytes()), expected, "{media_type}");
        }
    }

    #[test]
    fn encodes_messages_in_percent() {
        assert_eq!(percent_encoded("100 % \u{e9}\n"), "100 %25 %C3%A9%0A");
    }
}
