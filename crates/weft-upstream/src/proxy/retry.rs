//! Attempts to send a request to one upstream after the other, until there is a response.

use futures_util::future::Either;
use weft::{Request, Response};

use super::{ReverseProxy, WorkerMembers};
use crate::attempt_hooks;
use crate::base::rendezvous::hash;
use crate::exchange::outbound_request::OutboundRequest;
use crate::gateway_error::GatewayError;
use crate::head::grpc;
use crate::pool::connection_pool::Pool;
use crate::pool::upstream_metrics::RetryReason;
use crate::proxy::upstream_group::Members;

impl ReverseProxy {
    /// Sends a request, with retries, until there is a response.
    ///
    /// Without `async`, the future of a request to fixed upstreams contains no other.
    pub(crate) fn send(&self, outbound: &mut OutboundRequest) -> impl Future<Output = Response> {
        match &self.members {
            WorkerMembers::Fixed(members) => Either::Left(self.send_to(members, outbound)),
            WorkerMembers::Changing(members) => Either::Right(Box::pin(async {
                let members = self.resolve_members(members).await;
                self.send_to(&members, outbound).await
            })),
        }
    }

    /// Sends a request to one of these upstreams after the other, until there is a response.
    async fn send_to(&self, members: &Members, outbound: &mut OutboundRequest) -> Response {
        let key = self.balancing_key(members, &outbound.request);
        let sticky = self.shared.sticky.as_ref();
        let of_session = sticky.and_then(|sticky| sticky.find(&outbound.request, &members.tags));
        let mut tried = Vec::new();
        let mut retry = None;
        loop {
            let Some(index) = self.choose_upstream(members, of_session, key, &tried) else {
                return self.no_upstream(&outbound.request);
            };
            let pool = &members.pools[index];
            let is_retryable = outbound.is_retryable();
            let reason = match self.attempt(pool, outbound, retry).await {
                Ok(response)
                    if is_retryable && self.may_replace(members, &response, index, &tried) =>
                {
                    end_attempt(&outbound.request);
                    RetryReason::Status
                }
                Ok(response) => {
                    return match sticky.filter(|_| of_session != Some(index)) {
                        Some(sticky) => {
                            sticky.set(&members.tags[index], &outbound.request, response)
                        }
                        None => response,
                    };
                }
                Err(failure) => {
                    end_attempt(&outbound.request);
                    self.record_failure(pool, &failure);
                    let reason = retry_reason(&failure, outbound);
                    match reason.filter(|_| tried.len() < self.shared.settings.max_retries) {
                        Some(reason) => reason,
                        None => {
                            let origin = format_args!("the upstream {}", pool.upstream);
                            return error_response(failure, &origin, &outbound.request);
                        }
                    }
                }
            };
            if let Some(hooks) = attempt_hooks::of(&outbound.request) {
                hooks.on_retry(reason.name());
            }
            tried.push(index);
            retry = Some(reason);
        }
    }

    /// Returns the hash of the request's `hash_key`; `None` if it is empty, or if the balancer does not
    /// need it.
    fn balancing_key(&self, members: &Members, request: &Request) -> Option<u64> {
        if !members.balancer.needs_key() {
            return None;
        }
        let key = (self.hash_key)(request);
        (!key.is_empty()).then(|| hash(key.as_bytes()))
    }

    fn no_upstream(&self, request: &Request) -> Response {
        self.shared.no_upstream_warning.warn("a request has no upstream: none is up");
        error_response(GatewayError::NoneAvailable, &"the upstreams", request)
    }

    /// Records the failure of an attempt for the health of its upstream, unless it is not the fault of
    /// the upstream.
    fn record_failure(&self, pool: &Pool, failure: &GatewayError) {
        match failure {
            GatewayError::Overloaded(_) => pool.upstream.warn_overloaded(),
            GatewayError::ResourcesExhausted(error) => {
                let warning = format!("a request has no upstream: {error}");
                self.shared.no_upstream_warning.warn(&warning);
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

/// Returns the reason to send a request again after a failure, for which it begins anew; `None` if it
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
