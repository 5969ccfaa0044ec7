//! HTTP/1.1, FastCGI, SCGI and uwsgi to an upstream: each request has a connection of its own.

mod download;
mod exchange;
mod response_reader;

use std::net::SocketAddr;

use weft::Error;
use weft_proto::http1::client::ResponseHead;

use self::download::Download;
use self::response_reader::BodyReader;
use crate::exchange::outbound_request::OutboundRequest;
use crate::exchange::upload::Upload;
use crate::exchange::{BodyOptions, ExchangeContext, UpstreamExchange};
use crate::gateway_error::GatewayError;
use crate::head::forwarded_request::ForwardedRequest;
use crate::pool::lease::ConnectionLease;
use crate::script::protocol;

impl UpstreamExchange for ConnectionLease {
    /// The head is in the output buffer of the connection.
    type Head = ();
    type Received = BodyReader;
    type Body = Download;

    fn address(&self) -> Option<SocketAddr> {
        self.connection.address
    }

    fn compose(
        &mut self,
        outbound: &OutboundRequest,
        context: &ExchangeContext<'_>,
    ) -> Result<(), Error> {
        let OutboundRequest { request, options, body_length, script, .. } = outbound;
        let (out, ExchangeContext { to, environment, .. }) =
            (self.connection.output.tail(), context);
        match script {
            Some(call) => {
                let settings = to.settings;
                protocol::compose(out, request, &call.script, *body_length, settings, environment)
            }
            None => ForwardedRequest::new(request, *to).compose(out, options, *body_length),
        }
    }

    fn cancel(mut self) {
        self.connection.output.tail().clear();
        self.return_to_pool();
    }

    fn exchange<'a>(
        &'a mut self,
        (): (),
        outbound: &'a mut OutboundRequest,
        context: ExchangeContext<'a>,
    ) -> impl Future<Output = Result<(ResponseHead, BodyReader), GatewayError>> {
        exchange::run(self, outbound, context.to.settings, context.space)
    }

    fn into_tunnel(self) -> Result<ConnectionLease, GatewayError> {
        Ok(self)
    }

    fn into_body(
        self,
        head: &ResponseHead,
        received: BodyReader,
        rest: Option<Box<Upload>>,
        options: BodyOptions,
    ) -> Download {
        Download::new(head, received, self, rest, options)
    }
}
