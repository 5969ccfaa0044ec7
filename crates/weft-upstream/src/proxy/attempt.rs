//! One attempt to send a request to an upstream.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::Either;
use weft::{Response, StatusCode};

use super::proxy_context::WorkerContext;
use super::upstream_response::UpstreamResponse;
use crate::attempt_hooks;
use crate::exchange::outbound_request::OutboundRequest;
use crate::exchange::upstream_wait::UpstreamWait;
use crate::exchange::{ExchangeContext, UpstreamExchange};
use crate::gateway_error::GatewayError;
use crate::head::forwarded_request::Destination;
use crate::pool::connection_pool::ConnectionPool;
use crate::pool::lease::Leased;
use crate::retry_reason::RetryReason;

/// An attempt to send a request to one upstream.
pub(crate) struct Attempt<'a> {
    pub(crate) context: &'a WorkerContext,
    pub(crate) pool: &'a Arc<ConnectionPool>,
    pub(crate) outbound: &'a mut OutboundRequest,
    /// Reason of the attempt if it is not the first one.
    pub(crate) retry: Option<RetryReason>,
}

impl<'a> Attempt<'a> {
    /// Sends the request and converts its response. A retry uses no idle connection.
    pub(crate) fn run(mut self) -> impl Future<Output = Result<Response, GatewayError>> {
        if let Some(hooks) = attempt_hooks::of(&self.outbound.request) {
            hooks.begin_attempt(&self.pool.upstream_name);
        }
        let failure_latency = self.context.shared.settings.failure_latency;
        self.outbound.wait = UpstreamWait::new(failure_latency);
        async move {
            // In a block, so that neither the wait nor the lease takes space beside the rest.
            {
                let request = &self.outbound.request;
                let client = self.context.shared.limited_client(request);
                let mut queue_time = Duration::ZERO;
                let is_retry = self.retry.is_some();
                let leased = self.pool.lease(request, client, is_retry, &mut queue_time).await;
                if !queue_time.is_zero() {
                    self.record_queue_time(queue_time);
                }
                match leased? {
                    Leased::Connection(lease) => Either::Left(self.send(lease)),
                    // Boxed: the future is large.
                    Leased::Stream(lease) => Either::Right(Box::pin(self.send(*lease))),
                }
            }
            .await
        }
    }

    /// Sends the request over a connection or a stream, and converts the response.
    #[expect(
        clippy::manual_async_fn,
        reason = "the future of an `async fn` contains its arguments twice"
    )]
    fn send<P: UpstreamExchange>(
        &mut self,
        mut lease: P,
    ) -> impl Future<Output = Result<Response, GatewayError>> {
        async move {
            if let Some(hooks) = attempt_hooks::of(&self.outbound.request) {
                hooks.on_connection(lease.address());
            }
            let head = match lease.compose(self.outbound, &self.exchange_context()) {
                Ok(head) => head,
                Err(error) => {
                    lease.cancel();
                    return Err(GatewayError::Client(error));
                }
            };
            let metrics = self.pool.metrics.get();
            let sent_at = metrics.map(|metrics| metrics.start_request(self.retry));
            let (head, received) = {
                let context = self.exchange_context();
                lease.exchange(head, self.outbound, context)
            }
            .await?;
            if let Some((metrics, sent_at)) = self.pool.metrics.get().zip(sent_at) {
                metrics.record_response(sent_at);
            }
            let (status, latency) = (head.status, self.outbound.wait.elapsed());
            if let Some(hooks) = attempt_hooks::of(&self.outbound.request) {
                hooks.on_status(status);
            }
            let (context, upstream) = (self.context, &self.pool.upstream.url);
            let outbound = &mut *self.outbound;
            let received = UpstreamResponse { context, upstream, outbound, lease, head, received };
            let response = received.into_response()?;
            self.record_response(status, latency);
            Ok(response)
        }
    }

    fn exchange_context(&self) -> ExchangeContext<'a> {
        let shared = &*self.context.shared;
        let upstream = &self.pool.upstream.url;
        ExchangeContext {
            to: Destination { upstream, settings: &shared.settings, via: shared.via.as_ref() },
            environment: &shared.environment,
            space: &shared.buffer_space,
        }
    }

    /// Records a response for the health of its upstream.
    fn record_response(&self, status: StatusCode, latency: Duration) {
        let (settings, upstream) = (&self.context.shared.settings, &self.pool.upstream);
        if settings.failure_statuses.contains(&status) {
            upstream.record_failure(&format!("the status is {status}"));
        } else if !settings.failure_latency.is_zero() && latency > settings.failure_latency {
            upstream.record_failure(&format!("the response took {} ms", latency.as_millis()));
        } else {
            upstream.record_success();
        }
    }

    /// Records the time for which the request has waited for a connection.
    fn record_queue_time(&self, time: Duration) {
        if let Some(metrics) = self.pool.metrics.get() {
            metrics.record_queue_time(time);
        }
        if let Some(hooks) = attempt_hooks::of(&self.outbound.request) {
            hooks.on_queue_time(time);
        }
    }
}
