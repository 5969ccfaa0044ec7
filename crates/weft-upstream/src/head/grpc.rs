//! gRPC: its calls, and errors of the proxy as a status of a call. Pure.

use std::time::Duration;

use weft::header::HeaderMap;
use weft::message::Version;
use weft::{Request, Response};
use weft_proto::http1::client::ResponseHead;
pub(crate) use weft_proto::semantics::grpc::Code;
use weft_proto::semantics::grpc::{self, Status};

use crate::gateway_error::GatewayError;

fn code_of(error: &GatewayError) -> Code {
    match error {
        GatewayError::Client(_) => Code::InvalidArgument,
        GatewayError::Timeout(_) => Code::DeadlineExceeded,
        GatewayError::BadResponse(_) | GatewayError::Internal(_) => Code::Internal,
        _ => Code::Unavailable,
    }
}

/// Returns the status with the text for the client. The reason is for the error log.
fn status(code: Code) -> Status {
    let message = match code {
        Code::InvalidArgument => "the request is invalid",
        Code::DeadlineExceeded => "the service has not responded in time",
        Code::Internal => "the response of the service is invalid",
        _ => "the service is not available",
    };
    Status::new(code, message)
}

/// Returns true for a call of gRPC, with messages of any format.
pub(crate) fn is_call(request: &Request) -> bool {
    grpc::is_grpc(request.headers())
}

/// Returns true for a response to a call, which needs the trailers of HTTP/2.
pub(crate) fn is_response(head: &ResponseHead) -> bool {
    head.version == Version::HTTP_2 && grpc::is_grpc(&head.headers)
}

/// Returns the time for which the client of a call waits.
pub(crate) fn timeout(request: &Request) -> Option<Duration> {
    grpc::timeout(request.headers()).filter(|_| is_call(request))
}

/// Creates the trailers of a call that has failed.
pub(crate) fn status_fields(code: Code) -> HeaderMap {
    status(code).fields().collect()
}

/// Creates the response to a call that has failed: its only fields are the trailers
/// (Trailers-Only).
pub(crate) fn error_response(error: &GatewayError) -> Response {
    weft::grpc::status_response(&status(code_of(error)))
}
