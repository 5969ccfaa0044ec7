//! HTTP/2 to an upstream (RFC 9113): requests of many clients share few connections.
//!
//! - `connections` has the connections of a worker to an upstream. A request gets a stream of one
//!   of them, or waits for one.
//! - `connection` defines a connection, whose frames a task of its own sends and receives, and
//!   `input` joins received frames with small messages.
//! - `request` composes the head of a request, with the same fields as over HTTP/1.
//! - `upload` sends the body, as far as the windows of the upstream permit.
//! - `exchange` waits for the head of the response, and `body` reads what follows it.
//!
//! The crate `h2` implements frames, HPACK and the states of streams. The driver of `weft-http` is
//! faster, but it is a server, and a client side of the same quality does not exist yet. Most of
//! the cost of a request is the cost of the sockets.
//!
//! # Flow control
//!
//! The window of a stream is [`STREAM_WINDOW`], and more is granted only for data that the client
//! has taken, so that a slow client holds no more than that. The window of a connection is the sum
//! of the windows of its streams: data that is not taken never stops another stream. A connection
//! reads into a buffer of 64 KiB, which it owns only while it has frames that were not taken.
//!
//! # Hostile upstreams
//!
//! Heads are limited by `max_response_head_bytes`, and so are the frames that a head is made of. No
//! push is accepted. Interim responses are limited per stream and control frames per connection,
//! before the crate `h2` queues or answers them. Empty DATA frames are limited per stream, small
//! ones by [`SMALL_FRAMES_BUDGET`].

mod exchange;
mod request_head;
mod response_body;
mod stream_upload;

use std::net::SocketAddr;

use weft::Error;
use weft_proto::http1::client::ResponseHead;

use self::exchange::Received;
use self::response_body::ResponseBody;
use crate::exchange::outbound_request::OutboundRequest;
use crate::exchange::upload::Upload;
use crate::exchange::{BodyOptions, ExchangeContext, UpstreamExchange};
use crate::gateway_error::GatewayError;
use crate::pool::lease::ConnectionLease;
use crate::pool::lease::StreamLease;

impl UpstreamExchange for StreamLease {
    type Head = http::Request<()>;
    type Received = Received;
    type Body = ResponseBody;

    fn address(&self) -> Option<SocketAddr> {
        self.stream.address()
    }

    fn compose(
        &mut self,
        outbound: &OutboundRequest,
        context: &ExchangeContext<'_>,
    ) -> Result<http::Request<()>, Error> {
        request_head::compose(&outbound.request, outbound.body_length, &context.to)
    }

    fn exchange<'a>(
        &'a mut self,
        head: http::Request<()>,
        outbound: &'a mut OutboundRequest,
        context: ExchangeContext<'a>,
    ) -> impl Future<Output = Result<(ResponseHead, Received), GatewayError>> {
        exchange::run(self, outbound, head, context.to.settings)
    }

    /// RFC 9113 §8.6: there is no such response in HTTP/2.
    fn into_tunnel(self) -> Result<ConnectionLease, GatewayError> {
        Err(GatewayError::invalid_response("status 101 in HTTP/2"))
    }

    fn into_body(
        self,
        head: &ResponseHead,
        received: Received,
        rest: Option<Box<Upload>>,
        options: BodyOptions,
    ) -> ResponseBody {
        ResponseBody::new(head, received, self, rest, options)
    }
}
