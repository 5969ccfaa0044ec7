//! Attempts to send a request to one upstream after the other, until there is a response.

use futures_util::future::Either;
use weft::{Request, Response};

use super::exchange::OutboundRequest;
use super::group::Members;
use super::metrics::RetryReason;
use super::{GatewayError, Proxy, RequestNotes, WorkerMembers, grpc, hash};

impl Proxy {
    /// Sends a request, with retries, until there is a response.
    ///
    /// Without `async`, the future of a request to fixed upstreams contains no other.
    pub(super) fn send(&self, outbound: &mut OutboundRequest) -> impl Future<Output = Response> {
        match &self.members {
            WorkerMembers::Fixed(members) => Either::Left(self.send_to(members, outbound)),
            WorkerMembers::Changing(members) => Either::Right(Box::pin(async {
                let members = self.resolve_members(members).await;
                self.send_to(&members, outbound).await
            })),
        }
    }

    /// Sends a request to one of these upstreams.
    async fn send_to(&self, members: &Members, outbound: &mut OutboundRequest) -> Response {
        let settings = &self.shared.settings;
        let key = match members.balancer.needs_key() {
            true => Some((self.hash_key)(&outbound.request)).filter(|key| !key.is_empty()),
            false => None,
        };
        let key = key.map(|key| hash(key.as_bytes()));
        let sticky = self.shared.sticky.as_ref();
        let known = sticky.and_then(|sticky| sticky.find(&outbound.request, &members.tags));
        let mut tried = Vec::new();
        let mut retry = None;
        loop {
            let Some(index) = self.choose_upstream(members, known, key, &tried) else {
                self.shared.no_upstream_warning.warn("a request has no upstream: none is up");
                let error = GatewayError::NoneAvailable;
                return error_response(error, &"the upstreams", &outbound.request);
            };
            let pool = &members.pools[index];
            let is_retryable = outbound.is_retryable();
            let failure = match self.attempt(pool, outbound, retry).await {
                Ok(response)
                    if self.may_replace(members, &response, is_retryable, index, &mut tried) =>
                {
                    retry = Some(RetryReason::Status);
                    if let Some(notes) = RequestNotes::of(&outbound.request) {
                        notes.end_attempt();
                        notes.set_retry_reason(RetryReason::Status.name());
                    }
                    continue;
                }
                Ok(response) => {
                    return match sticky.filter(|_| known != Some(index)) {
                        Some(sticky) => {
                            sticky.set(&members.tags[index], &outbound.request, response)
                        }
                        None => response,
                    };
                }
                Err(failure) => failure,
            };
            if let Some(notes) = RequestNotes::of(&outbound.request) {
                notes.end_attempt();
            }
            match &failure {
                GatewayError::Overloaded(_) => pool.upstream.warn_overloaded(),
                GatewayError::ResourcesExhausted(error) => {
                    self.shared
                        .no_upstream_warning
                        .warn(&format!("a request has no upstream: {error}"));
                }
                failure if failure.counts_against_upstream() => {
                    pool.upstream.record_failure(&failure.reason())
                }
                _ => {}
            }
            tried.push(index);
            retry = RetryReason::of(&failure);
            let may_retry = match failure {
                // No byte of the request was sent.
                GatewayError::Unreachable(_) => true,
                GatewayError::ConnectionLost(_) | GatewayError::StaleConnection(_) => {
                    outbound.rewind_if_idempotent()
                }
                GatewayError::NotProcessed(_) => outbound.rewind(),
                // Overload is not retried: the balancer has already preferred upstreams with
                // free connections.
                _ => false,
            };
            if !may_retry || tried.len() > settings.max_retries {
                let origin = format_args!("the upstream {}", pool.upstream);
                return error_response(failure, &origin, &outbound.request);
            }
            if let (Some(notes), Some(reason)) = (RequestNotes::of(&outbound.request), retry) {
                notes.set_retry_reason(reason.name());
            }
        }
    }
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
