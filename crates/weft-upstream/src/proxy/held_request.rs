//! Requests that wait until an upstream is available: until the first health check of an upstream
//! has a result, or for `try_duration` while upstreams restart.

use std::time::{Duration, Instant};

use tokio::time::sleep;
use weft::client_limit::ClientPermit;

use super::upstream_choice::UpstreamChoice;
use crate::exchange::outbound_request::OutboundRequest;

/// Interval at which a request is sent again.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);

/// Interval at which a request looks for the results of the first health checks.
const CHECK_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A request that has waited. It keeps its permit until it has a response.
pub(crate) struct HeldRequest {
    since: Instant,
    _permit: ClientPermit,
}

/// Waits until the next attempt for a request that no upstream has accepted. Returns false if its
/// time is over, or if too many requests wait.
pub(crate) async fn wait(
    held: &mut Option<Box<HeldRequest>>,
    choice: &UpstreamChoice<'_>,
    outbound: &OutboundRequest,
) -> bool {
    let shared = &choice.context.shared;
    let first_checks = shared.settings.check.as_ref().filter(|_| choice.awaits_check());
    let (time, interval) = match first_checks {
        Some(check) => (check.timeout.max(shared.settings.try_duration), CHECK_POLL_INTERVAL),
        None => (shared.settings.try_duration, RETRY_INTERVAL),
    };
    if time.is_zero() {
        return false;
    }
    let since = match held {
        Some(held) => held.since,
        None => {
            let client = shared.limited_client(&outbound.request);
            let Some(permit) = shared.held_requests.try_acquire(client) else { return false };
            let since = Instant::now();
            *held = Some(Box::new(HeldRequest { since, _permit: permit }));
            since
        }
    };
    let remaining = time.saturating_sub(since.elapsed());
    sleep(interval.min(remaining)).await;
    !remaining.is_zero()
}
