//! One attempt to send a request over HTTP/2, and the response for the client.

use std::sync::Arc;

use weft::{Body, Method, Response};

use super::exchange;
use super::exchange::ReceivedHead;
use super::request_head as request;
use super::response_body::{BodyOptions, ResponseBody};
use super::shared_connection::StreamLease;
use crate::attempt_hooks;
use crate::gateway_error::GatewayError;
use crate::head::forwarded_request::Destination;
use crate::head::rewritten_fields::{Origin, RewrittenFields};
use crate::head::{forwarded_response as response, grpc};
use crate::http1::download::EmptyOfUnknownLength;
use crate::http1::exchange::OutboundRequest;
use crate::pool::connection_pool::Pool;
use crate::pool::upstream_metrics::RetryReason;
use crate::proxy::ReverseProxy;
use crate::spool::{Reservation, Spool};

impl ReverseProxy {
    /// Sends a request in a stream and converts the upstream's response.
    pub(crate) async fn attempt_in_stream(
        &self,
        pool: &Arc<Pool>,
        mut lease: StreamLease,
        outbound: &mut OutboundRequest,
        retry: Option<RetryReason>,
    ) -> Result<Response, GatewayError> {
        let settings = &self.shared.settings;
        if let Some(hooks) = attempt_hooks::of(&outbound.request) {
            hooks.on_connection(lease.address());
        }
        let (upstream, via) = (&pool.upstream.url, self.shared.via.as_ref());
        let to = Destination { upstream, settings, via };
        let head = request::compose(&outbound.request, outbound.body_length, &to);
        let head = head.map_err(GatewayError::Client)?;
        let sent_request = pool.metrics.get().map(|metrics| metrics.start_request(retry));
        let received = exchange::run(&mut lease, outbound, head, settings).await?;
        let latency = outbound.wait.elapsed();
        if let Some(sent_request) = sent_request {
            sent_request.record_response();
        }
        if let Some(hooks) = attempt_hooks::of(&outbound.request) {
            hooks.on_status(received.head.status);
        }
        self.record_response(pool, received.head.status, latency);
        let origin = Origin { upstream, mount: outbound.request.mount() };
        let rewritten = RewrittenFields::new(&received.head, settings, &origin);
        Ok(rewritten.apply(self.forward_stream(lease, outbound, received)))
    }

    fn forward_stream(
        &self,
        lease: StreamLease,
        outbound: &mut OutboundRequest,
        received: ReceivedHead,
    ) -> Response {
        let settings = &self.shared.settings;
        let ReceivedHead { head, body, upload, deadline } = received;
        let is_error = head.status.is_client_error() || head.status.is_server_error();
        // After an error response the rest of the request body is not sent.
        let rest = upload.zip(outbound.upload.take()).filter(|_| !is_error);
        let is_head = *outbound.request.method() == Method::HEAD;
        let has_unknown_length = is_head && head.headers.get_bytes("content-length").is_none();
        let is_grpc = grpc::is_response(&head);
        let may_pause = is_grpc || response::is_event_stream(&head);
        let options = BodyOptions {
            length: head.length,
            idle_timeout: if may_pause { settings.tunnel_timeout } else { settings.body_timeout },
            is_grpc,
            deadline,
            hooks: attempt_hooks::of(&outbound.request).cloned(),
        };
        let mut body = ResponseBody::new(body, lease, rest, options);
        let client = || self.limited_client(&outbound.request);
        let limits = &self.response_limits;
        let reserve = |bytes| Reservation::new(bytes, bytes, limits, client());
        let body = match body.take_received_body(reserve) {
            Some(_) if has_unknown_length => Body::from_http_body(EmptyOfUnknownLength),
            Some(bytes) => bytes.into(),
            None if settings.buffer_responses
                && !may_pause
                && !response::refuses_buffering(&head) =>
            {
                let spool = Spool::new(bytes::Bytes::new(), body, limits, client());
                spool.receive_available().into_body()
            }
            None => Body::from_http_body(body),
        };
        response::apply_head(head, Response::body(body), self.shared.via.as_ref())
    }
}
