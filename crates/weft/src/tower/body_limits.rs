//! Limits of request bodies that a service reads: the limits of its framework, and the status if a
//! limit of the engine is exceeded.

use http::Version;

use crate::message::body::LiftedLimits;
use crate::message::connection::Connection;
use crate::message::grpc;
use crate::message::request::Request;
use crate::message::response::Response;
use weft_proto::semantics::grpc::{GRPC_STATUS, is_grpc};

/// Lifts the limits on the body of a call of gRPC whose length is unknown, and that an application
/// has not set itself: the size, because a stream is processed message by message and the framework
/// limits messages; and the rate, because the client may have nothing to send.
///
/// Windows and the number of streams bound the memory that such a stream takes.
pub(crate) fn lift_grpc_limits(request: &mut Request) {
    // gRPC needs streams, which are limited for a connection, as their windows are.
    let has_streams = request.version() >= Version::HTTP_2;
    if has_streams && request.body().is_inbound() && is_grpc(request.headers()) {
        request.body().lift_limits(LiftedLimits::SizeAndRateOfStream);
    }
}

/// The limits of the body of one request.
pub(super) struct BodyLimits {
    connection: Connection,
    is_grpc: bool,
}

impl BodyLimits {
    /// `None` for a body that was received already, and no longer exceeds a limit. Boxed, because
    /// few requests have another one.
    #[inline]
    pub(super) fn of(request: &mut Request) -> Option<Box<BodyLimits>> {
        match request.body().is_inbound() {
            true => Some(BodyLimits::watch(request)),
            false => None,
        }
    }

    fn watch(request: &Request) -> Box<BodyLimits> {
        let is_grpc = is_grpc(request.headers());
        Box::new(BodyLimits { connection: request.connection().clone(), is_grpc })
    }

    /// Replaces the error response of a service that could not read the body because of a limit of
    /// the engine: frameworks do not know these errors, and respond with 400 or 500.
    pub(super) fn explain(&self, response: Response) -> Response {
        let Some(error) = self.connection.body_failure() else { return response };
        let is_error = match self.is_grpc {
            true => response.header(GRPC_STATUS.as_str()).is_some_and(|status| status != "0"),
            false => response.status.is_client_error() || response.status.is_server_error(),
        };
        if !is_error {
            return response;
        }
        match self.is_grpc {
            true => grpc::status_response(&grpc::status_of(&error)),
            false => error.into(),
        }
    }
}
