//! The response of an upstream, converted to the response for the client.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::Frame;
use weft::{Body, Error, Method, Response, StatusCode};
use weft_proto::http1::client::ResponseHead;

use super::proxy_context::WorkerContext;
use crate::attempt_hooks;
use crate::copy::{IdleTimeouts, copy_tunnel};
use crate::exchange::outbound_request::OutboundRequest;
use crate::exchange::{BodyOptions, UpstreamBody, UpstreamExchange};
use crate::gateway_error::GatewayError;
use crate::head::rewritten_fields::{Origin, RewrittenFields};
use crate::head::{body_hints, forwarded_response as response, grpc};
use crate::spool::{MemoryReservation, Spool};
use crate::url::upstream_url::UpstreamUrl;

/// Longest time without data in a tunnel after the end of one direction. A client that has left
/// does not occupy a connection of the upstream, and delay its log line, for `tunnel_timeout`.
const MAX_HALF_CLOSED_TIME: Duration = Duration::from_secs(60);

/// The head of a response, and the lease that receives its body.
pub(crate) struct UpstreamResponse<'a, P: UpstreamExchange> {
    pub(crate) context: &'a WorkerContext,
    pub(crate) upstream: &'a UpstreamUrl,
    /// The request that was responded to.
    pub(crate) outbound: &'a mut OutboundRequest,
    pub(crate) lease: P,
    pub(crate) head: ResponseHead,
    pub(crate) received: P::Received,
}

impl<P: UpstreamExchange> UpstreamResponse<'_, P> {
    /// Converts the response.
    ///
    /// # Errors
    /// If the upstream switches to a protocol that the client did not request.
    pub(crate) fn into_response(self) -> Result<Response, GatewayError> {
        if self.head.status == StatusCode::SWITCHING_PROTOCOLS {
            return self.into_tunnel();
        }
        let (upstream, mount) = (self.upstream, self.outbound.request.mount());
        let (settings, origin) = (&self.context.shared.settings, Origin { upstream, mount });
        let rewritten = RewrittenFields::new(&self.head, settings, &origin);
        Ok(rewritten.apply(self.into_final_response()))
    }

    fn into_final_response(self) -> Response {
        let UpstreamResponse { context, outbound, lease, head, received, .. } = self;
        let (shared, limits) = (&context.shared, &context.response_limits);
        let settings = &shared.settings;
        let mut rest = outbound.upload.take();
        if let Some(rest) = &mut rest
            && (head.status.is_client_error() || head.status.is_server_error())
        {
            // RFC 9112 §9.5: after an error response the rest of the request body is not sent.
            rest.stop();
        }
        let has_unknown_length = *outbound.request.method() == Method::HEAD
            && head.headers.get_bytes("content-length").is_none();
        let may_pause = grpc::is_response(&head) || body_hints::is_event_stream(&head.headers);
        let options = BodyOptions {
            idle_timeout: if may_pause { settings.tunnel_timeout } else { settings.body_timeout },
            hooks: attempt_hooks::of(&outbound.request).cloned(),
        };
        let mut body = lease.into_body(&head, received, rest, options);
        let client = || shared.limited_client(&outbound.request);
        let reserve = |body, held| MemoryReservation::new(body, held, limits, client());
        let body = match body.take_received_body(reserve) {
            Some(_) if has_unknown_length => Body::from_http_body(EmptyOfUnknownLength),
            Some(bytes) => bytes.into(),
            None if settings.buffer_responses
                && !may_pause
                && !body_hints::refuses_buffering(&head.headers) =>
            {
                Spool::new(Bytes::new(), body, limits, client()).receive_available().into_body()
            }
            None => Body::from_http_body(body),
        };
        response::apply_head(head, Response::from_body(body), shared.via.as_ref())
    }

    /// Connects client and upstream after a 101 (Switching Protocols). The tunnel ends if no data
    /// moves for `tunnel_timeout`, or for [`MAX_HALF_CLOSED_TIME`] after the end of one direction,
    /// which is forwarded. When the server shuts down, the engine ends it after the grace
    /// period. The connection to the upstream counts as in use until then.
    fn into_tunnel(self) -> Result<Response, GatewayError> {
        let UpstreamResponse { context, outbound, lease, head, .. } = self;
        let mut lease = lease.into_tunnel()?;
        let is_requested = |protocol: &str| {
            let requested = outbound.options.upgrade.as_deref().unwrap_or_default();
            let mut names = requested.split(|&b| b == b',').map(<[u8]>::trim_ascii);
            names.any(|name| name.eq_ignore_ascii_case(protocol.as_bytes()))
        };
        let Some(protocol) = head.headers.get("upgrade").filter(|protocol| is_requested(protocol))
        else {
            let reason = "it switches to a protocol that the client did not request";
            return Err(GatewayError::invalid_response(reason));
        };
        let open = context.shared.settings.tunnel_timeout;
        let timeouts = IdleTimeouts { open, half_closed: open.min(MAX_HALF_CLOSED_TIME) };
        let response = Response::upgrade(protocol, async move |client| {
            copy_tunnel(client, &mut lease.connection, timeouts).await;
        });
        Ok(response::apply_head(head, response, context.shared.via.as_ref()))
    }
}

/// An empty body of unknown length: the body of a response to HEAD for which GET would have had a
/// body of unknown length.
struct EmptyOfUnknownLength;

impl http_body::Body for EmptyOfUnknownLength {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        Poll::Ready(None)
    }
}
