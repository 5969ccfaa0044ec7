//! The attempts to send a request to one upstream after the other, until there is a response.

use std::pin::Pin;

use weft::{Request, Response};

use super::attempt::Attempt;
use super::held_request::{self, HeldRequest};
use super::upstream_choice::UpstreamChoice;
use crate::attempt_hooks;
use crate::exchange::outbound_request::OutboundRequest;
use crate::gateway_error::GatewayError;
use crate::head::grpc;
use crate::pool::connection_pool::ConnectionPool;
use crate::retry_reason::RetryReason;

type BoxedWait<'a> = Pin<Box<dyn Future<Output = bool> + 'a>>;

/// A request and the choice of its upstreams.
pub(crate) struct Forwarding<'a> {
    pub(crate) choice: UpstreamChoice<'a>,
    pub(crate) outbound: &'a mut OutboundRequest,
}

impl Forwarding<'_> {
    /// Sends the request, with retries, until there is a response.
    #[expect(
        clippy::manual_async_fn,
        reason = "the future of an `async fn` contains its arguments twice"
    )]
    pub(crate) fn run(mut self) -> impl Future<Output = Response> {
        async move {
            let (mut retry, mut held) = (None, None);
            loop {
                let Some(index) = self.choice.choose() else {
                    match self.wait(&mut held).await {
                        true => continue,
                        false => return self.no_upstream(),
                    }
                };
                let pool = &self.choice.group.pools[index];
                let is_retryable = self.outbound.is_retryable();
                let (context, outbound) = (self.choice.context, &mut *self.outbound);
                let reason = match (Attempt { context, pool, outbound, retry }).run().await {
                    Ok(response) if is_retryable && self.choice.may_replace(&response, index) => {
                        end_attempt(&self.outbound.request);
                        RetryReason::Status
                    }
                    Ok(response) => return self.with_session(response, index),
                    Err(failure) => {
                        end_attempt(&self.outbound.request);
                        self.record_failure(pool, &failure);
                        let reason = retry_reason(&failure, self.outbound);
                        match reason {
                            Some(reason) if self.choice.may_retry() => reason,
                            // It is as if the request came again.
                            Some(_) if self.wait(&mut held).await => continue,
                            _ => {
                                let origin = format_args!("the upstream {}", pool.upstream);
                                return error_response(failure, &origin, &self.outbound.request);
                            }
                        }
                    }
                };
                if let Some(hooks) = attempt_hooks::of(&self.outbound.request) {
                    hooks.on_retry(reason);
                }
                self.choice.tried.push(index);
                retry = Some(reason);
            }
        }
    }

    /// Waits until the next attempt, if the request may be held. All upstreams are tried again
    /// then.
    ///
    /// Boxed: the future is large, and few requests are held.
    fn wait<'a>(&'a mut self, held: &'a mut Option<Box<HeldRequest>>) -> BoxedWait<'a> {
        Box::pin(async move {
            self.choice.tried.clear();
            held_request::wait(held, &self.choice, self.outbound).await
        })
    }

    /// Adds the cookie of a session that begins with this response of upstream `index`.
    fn with_session(&self, response: Response, index: usize) -> Response {
        let sticky = self.choice.context.shared.sticky.as_ref();
        match sticky.filter(|_| self.choice.of_session != Some(index)) {
            Some(sticky) => {
                sticky.set(&self.choice.group.tags[index], &self.outbound.request, response)
            }
            None => response,
        }
    }

    fn no_upstream(&self) -> Response {
        let warning = &self.choice.context.shared.no_upstream_warning;
        warning.warn("a request has no upstream: none is up");
        error_response(GatewayError::NoneAvailable, &"the upstreams", &self.outbound.request)
    }

    /// Records the failure of an attempt for the health of its upstream, unless it is not the fault
    /// of the upstream.
    fn record_failure(&self, pool: &ConnectionPool, failure: &GatewayError) {
        match failure {
            GatewayError::Overloaded(_) => pool.upstream.warn_overloaded(),
            GatewayError::ResourcesExhausted(error) => {
                let warning = format!("a request has no upstream: {error}");
                self.choice.context.shared.no_upstream_warning.warn(&warning);
            }
            failure if failure.counts_against_upstream() => {
                pool.upstream.record_failure(&failure.reason());
            }
            _ => {}
        }
    }
}

fn end_attempt(request: &Request) {
    if let Some(hooks) = attempt_hooks::of(request) {
        hooks.end_attempt();
    }
}

/// Returns the reason to send a request again after a failure, and rewinds its body. `None`: it
/// must not be sent again.
fn retry_reason(failure: &GatewayError, outbound: &mut OutboundRequest) -> Option<RetryReason> {
    let may_retry = match failure {
        // No byte of the request was sent.
        GatewayError::Unreachable(_) => true,
        GatewayError::ConnectionLost(_) | GatewayError::StaleConnection(_) => {
            outbound.rewind_if_idempotent()
        }
        GatewayError::NotProcessed(_) => outbound.rewind(),
        // Overload is not retried: the balancer has already preferred upstreams with free
        // connections.
        _ => false,
    };
    RetryReason::of(failure).filter(|_| may_retry)
}

/// Creates the response to a request that has failed, and the error for the error hook. A call of
/// gRPC gets a status of its own.
fn error_response(
    failure: GatewayError,
    origin: &dyn std::fmt::Display,
    request: &Request,
) -> Response {
    if !grpc::is_call(request) {
        return failure.into_reported_response(origin, request);
    }
    let response = grpc::error_response(&failure);
    match failure {
        GatewayError::Client(error) => response.with_error(error),
        failure => response.with_error(failure.to_error(origin, request)),
    }
}
