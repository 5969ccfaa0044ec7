//! One attempt to send a request to an upstream, and the response for the client.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::Either;
use http_body::Frame;
use weft::{Body, Error, Method, Request, Response, StatusCode};
use weft_proto::http1::client::ResponseHead;

use super::{ReverseProxy, tunnel};
use crate::attempt_hooks;
use crate::exchange::outbound_request::OutboundRequest;
use crate::exchange::upstream_wait::UpstreamWait;
use crate::exchange::{BodyOptions, ExchangeContext, UpstreamBody, UpstreamProtocol};
use crate::gateway_error::GatewayError;
use crate::head::forwarded_request::Destination;
use crate::head::rewritten_fields::{Origin, RewrittenFields};
use crate::head::{forwarded_response as response, grpc};
use crate::pool::connection_pool::{Leased, Pool};
use crate::pool::upstream_metrics::RetryReason;
use crate::spool::{Reservation, Spool};
use weft::client_limit::Client;

/// An attempt to send a request to one upstream.
struct Attempt<'a> {
    proxy: &'a ReverseProxy,
    pool: &'a Arc<Pool>,
    outbound: &'a mut OutboundRequest,
    /// Reason of the attempt if it is not the first one.
    retry: Option<RetryReason>,
}

impl ReverseProxy {
    /// Sends a request to one upstream and converts its response. A retry uses no idle connection.
    ///
    /// Without `async`, the future contains each argument once.
    pub(crate) fn attempt<'a>(
        &'a self,
        pool: &'a Arc<Pool>,
        outbound: &'a mut OutboundRequest,
        retry: Option<RetryReason>,
    ) -> impl Future<Output = Result<Response, GatewayError>> {
        if let Some(hooks) = attempt_hooks::of(&outbound.request) {
            hooks.begin_attempt(&pool.upstream_name);
        }
        outbound.wait = UpstreamWait::new(self.shared.settings.failure_latency);
        let mut attempt = Attempt { proxy: self, pool, outbound, retry };
        async move {
            // In a block, so that neither the wait nor the lease takes space beside the rest.
            {
                let request = &attempt.outbound.request;
                let (client, mut queue_time) =
                    (attempt.proxy.limited_client(request), Duration::ZERO);
                let is_retry = attempt.retry.is_some();
                let leased = attempt.pool.lease(client, is_retry, &mut queue_time).await;
                if !queue_time.is_zero() {
                    note_queue_time(attempt.pool, &attempt.outbound.request, queue_time);
                }
                match leased? {
                    Leased::Connection(lease) => Either::Left(attempt.send(lease)),
                    // Boxed: the future is large.
                    Leased::Stream(lease) => Either::Right(Box::pin(attempt.send(*lease))),
                }
            }
            .await
        }
    }
}

impl<'a> Attempt<'a> {
    /// Sends the request over a connection or a stream, and converts the response.
    #[expect(
        clippy::manual_async_fn,
        reason = "the future of an `async fn` contains its arguments twice"
    )]
    fn send<P: UpstreamProtocol>(
        &mut self,
        mut lease: P,
    ) -> impl Future<Output = Result<Response, GatewayError>> {
        async move {
            if let Some(hooks) = attempt_hooks::of(&self.outbound.request) {
                hooks.on_connection(lease.address());
            }
            let head = match lease.compose(self.outbound, &self.context()) {
                Ok(head) => head,
                Err(error) => {
                    lease.cancel();
                    return Err(GatewayError::Client(error));
                }
            };
            let metrics = self.pool.metrics.get();
            let sent_request = metrics.map(|metrics| metrics.start_request(self.retry));
            let (head, received) = {
                let context = self.context();
                lease.exchange(head, self.outbound, context)
            }
            .await?;
            if let Some(sent_request) = sent_request {
                sent_request.record_response();
            }
            self.respond(lease, head, received)
        }
    }

    fn context(&self) -> ExchangeContext<'a> {
        let shared = &*self.proxy.shared;
        let upstream = &self.pool.upstream.url;
        ExchangeContext {
            to: Destination { upstream, settings: &shared.settings, via: shared.via.as_ref() },
            environment: &shared.environment,
            space: &shared.buffer_space,
        }
    }

    /// Converts the response of an upstream.
    fn respond<P: UpstreamProtocol>(
        &mut self,
        lease: P,
        head: ResponseHead,
        received: P::Received,
    ) -> Result<Response, GatewayError> {
        let (settings, status) = (&self.proxy.shared.settings, head.status);
        let latency = self.outbound.wait.elapsed();
        if let Some(hooks) = attempt_hooks::of(&self.outbound.request) {
            hooks.on_status(status);
        }
        let response = match status {
            StatusCode::SWITCHING_PROTOCOLS => self.start_tunnel(lease, head)?,
            _ => {
                let (upstream, mount) = (&self.pool.upstream.url, self.outbound.request.mount());
                let rewritten = RewrittenFields::new(&head, settings, &Origin { upstream, mount });
                rewritten.apply(self.forward(lease, head, received))
            }
        };
        self.proxy.record_response(self.pool, status, latency);
        Ok(response)
    }

    /// Converts the upstream's response to the response for the client.
    fn forward<P: UpstreamProtocol>(
        &mut self,
        lease: P,
        head: ResponseHead,
        received: P::Received,
    ) -> Response {
        let ReverseProxy { shared, response_limits: limits, .. } = self.proxy;
        let settings = &shared.settings;
        let mut rest = self.outbound.upload.take();
        if let Some(rest) = &mut rest
            && (head.status.is_client_error() || head.status.is_server_error())
        {
            // RFC 9112 §9.5: after an error response the rest of the request body is not sent.
            rest.stop();
        }
        let has_unknown_length = *self.outbound.request.method() == Method::HEAD
            && head.headers.get_bytes("content-length").is_none();
        let may_pause = grpc::is_response(&head) || response::is_event_stream(&head);
        let options = BodyOptions {
            idle_timeout: if may_pause { settings.tunnel_timeout } else { settings.body_timeout },
            hooks: attempt_hooks::of(&self.outbound.request).cloned(),
        };
        let mut body = lease.into_body(&head, received, rest, options);
        let client = || self.proxy.limited_client(&self.outbound.request);
        let reserve = |body, held| Reservation::new(body, held, limits, client());
        let body = match body.take_received_body(reserve) {
            Some(_) if has_unknown_length => Body::from_http_body(EmptyOfUnknownLength),
            Some(bytes) => bytes.into(),
            None if settings.buffer_responses
                && !may_pause
                && !response::refuses_buffering(&head) =>
            {
                Spool::new(Bytes::new(), body, limits, client()).receive_available().into_body()
            }
            None => Body::from_http_body(body),
        };
        response::apply_head(head, Response::body(body), shared.via.as_ref())
    }

    /// Connects client and upstream after a 101 (Switching Protocols).
    fn start_tunnel<P: UpstreamProtocol>(
        &self,
        lease: P,
        head: ResponseHead,
    ) -> Result<Response, GatewayError> {
        let lease = lease.into_tunnel()?;
        let shared = &self.proxy.shared;
        let is_requested = |protocol: &str| {
            let requested = self.outbound.options.upgrade.as_deref().unwrap_or_default();
            let mut names = requested.split(|&b| b == b',').map(<[u8]>::trim_ascii);
            names.any(|name| name.eq_ignore_ascii_case(protocol.as_bytes()))
        };
        let Some(protocol) = head.headers.get("upgrade").filter(|protocol| is_requested(protocol))
        else {
            let reason = "it switches to a protocol that the client did not request";
            return Err(GatewayError::invalid_response(reason));
        };
        let idle_timeout = shared.settings.tunnel_timeout;
        let response = Response::upgrade(protocol, async move |client| {
            tunnel::run(client, lease, idle_timeout).await;
        });
        Ok(response::apply_head(head, response, shared.via.as_ref()))
    }
}

impl ReverseProxy {
    /// Returns the client that a connection and buffered bodies are counted for; `None` for one
    /// without a limit of its own.
    pub(crate) fn limited_client(&self, request: &Request) -> Option<Client> {
        Client::of_request(request, self.shared.settings.trusted())
    }
}

/// Records the time for which a request has waited for a connection.
fn note_queue_time(pool: &Pool, request: &Request, time: Duration) {
    if let Some(metrics) = pool.metrics.get() {
        metrics.record_queue_time(time);
    }
    if let Some(hooks) = attempt_hooks::of(request) {
        hooks.on_queue_time(time);
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
