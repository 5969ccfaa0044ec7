//! The exchange of one request and its response with an upstream, the same for all protocols.

pub(crate) mod outbound_request;
pub(crate) mod upload;
pub(crate) mod upstream_wait;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use weft::Error;
use weft_proto::http1::client::ResponseHead;

use self::outbound_request::OutboundRequest;
use self::upload::Upload;
use crate::attempt_hooks::AttemptHooks;
use crate::gateway_error::GatewayError;
use crate::head::forwarded_request::Destination;
use crate::pool::lease::ConnectionLease;
use crate::spool::{BodySource, BufferSpace, MemoryReservation};

/// Maximum size, in bytes, of a body that is taken with its head without a reservation. Larger
/// bodies count against the memory for bodies that are received ahead of their clients.
pub(crate) const MAX_UNRESERVED_BYTES: usize = 8 << 10;

/// A leased connection or stream that sends one request in the protocol of its upstream: HTTP/1.1,
/// FastCGI, SCGI or uwsgi over a connection of its own, or HTTP/2 in a stream.
pub(crate) trait UpstreamExchange: Sized {
    /// Composed head of a request.
    type Head;
    /// State of a response whose body has not been read.
    type Received;
    /// Body of a response.
    type Body: UpstreamBody;

    /// Returns the address of the upstream; a Unix socket has none.
    fn address(&self) -> Option<SocketAddr>;

    /// Composes the head of a request, or the variables for a script.
    ///
    /// # Errors
    /// If the protocol cannot express the request.
    fn compose(
        &mut self,
        outbound: &OutboundRequest,
        context: &ExchangeContext<'_>,
    ) -> Result<Self::Head, Error>;

    /// Returns the lease to the pool if the request cannot be composed.
    fn cancel(self) {}

    /// Sends the head and the body of a request, and receives the head of its response. Interim
    /// responses are forwarded meanwhile.
    fn exchange<'a>(
        &'a mut self,
        head: Self::Head,
        outbound: &'a mut OutboundRequest,
        context: ExchangeContext<'a>,
    ) -> impl Future<Output = Result<(ResponseHead, Self::Received), GatewayError>>;

    /// Returns the connection after a 101 (Switching Protocols).
    fn into_tunnel(self) -> Result<ConnectionLease, GatewayError>;

    /// Returns the body of the response, which owns the lease. `rest` is the part of the request
    /// that was not sent yet.
    fn into_body(
        self,
        head: &ResponseHead,
        received: Self::Received,
        rest: Option<Box<Upload>>,
        options: BodyOptions,
    ) -> Self::Body;
}

/// The body of a response that its upstream still sends.
pub(crate) trait UpstreamBody: BodySource {
    /// Takes the whole body if it has already been received. For a large body, `reserve` must have
    /// memory. It gets the size of the body and the size of the memory that holds it, in bytes.
    fn take_received_body(
        &mut self,
        reserve: impl FnOnce(usize, usize) -> Option<MemoryReservation>,
    ) -> Option<Bytes>;
}

/// The environment of an exchange.
#[derive(Clone, Copy)]
pub(crate) struct ExchangeContext<'a> {
    pub(crate) to: Destination<'a>,
    /// Configured variables for scripts.
    pub(crate) environment: &'a [(String, OsString)],
    /// Space for bodies.
    pub(crate) space: &'a BufferSpace,
}

/// Properties of a response body.
pub(crate) struct BodyOptions {
    /// Longest time without data.
    pub(crate) idle_timeout: Duration,
    /// Called at the end of the body.
    pub(crate) hooks: Option<Arc<dyn AttemptHooks>>,
}
