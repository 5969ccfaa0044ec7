//! Failures of gRPC calls as responses.

use http::StatusCode;
use http::header::CONTENT_TYPE;

use crate::error::{Error, ErrorKind, Fault};
use crate::message::response::Response;
use weft_proto::semantics::grpc::{Code, GRPC, Status};

/// Creates the response to a call that has failed: a head only ("Trailers-Only" in the gRPC
/// protocol).
pub fn status_response(status: &Status) -> Response {
    let mut response = Response::new(StatusCode::OK).with_header(CONTENT_TYPE, GRPC);
    for (name, value) in status.fields() {
        response = response.with_appended_header(name, value);
    }
    response
}

/// Returns the status for an error. It includes the reason if the peer is at fault.
pub(crate) fn status_of(error: &Error) -> Status {
    let message = match error.kind().fault() {
        Fault::Peer => error.reason().to_owned(),
        Fault::Application | Fault::System => String::new(),
    };
    Status::new(code_of(error.kind()), message)
}

fn code_of(kind: ErrorKind) -> Code {
    match kind {
        ErrorKind::BodyTooLarge | ErrorKind::HeadTooLarge => Code::ResourceExhausted,
        ErrorKind::BodyIncomplete => Code::Cancelled,
        ErrorKind::NotImplemented => Code::Unimplemented,
        ErrorKind::TooSlow => Code::Unavailable,
        _ => Code::Internal,
    }
}
