//! The response in place of a failed response.

use crate::error::Error;
use crate::message::grpc;
use crate::message::request_head::RequestHead;
use crate::message::response::Response;
use weft_proto::semantics::grpc::is_grpc;

/// Creates the error response to a request; `None` if its head is invalid.
///
/// A gRPC client takes a page of text for messages, so it gets the status of the call instead.
pub(super) fn error_response(head: Option<&RequestHead>, error: &Error) -> Response {
    match head {
        Some(head) if is_grpc(head.headers()) => grpc::status_response(&grpc::status_of(error)),
        _ => error.into(),
    }
}
