//! Active health checks: periodic requests to the upstreams.

use std::sync::{Arc, Weak};
use std::time::Instant;

use tokio::time::{MissedTickBehavior, interval};
use weft::Method;

use super::grpc_health;
use crate::client::own_request::{OwnRequest, ResponseLimits};
use crate::connect::upstream::Upstream;
use crate::settings::health_check_settings::{HealthCheck, HealthCheckTarget};

/// Maximum size of the part of a body in which the expected text is searched, in bytes.
const MAX_BODY_BYTES: usize = 64 << 10;

/// Checks one upstream periodically, until its last strong reference is dropped. The first check
/// decides about an upstream that was not checked before.
pub async fn run(upstream: Weak<Upstream>, check: Arc<HealthCheck>, is_lenient: bool) {
    let mut tick = interval(check.interval);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // Number of consecutive checks with the same result.
    let (mut was_healthy, mut streak) = (true, 0u32);
    loop {
        tick.tick().await;
        let Some(upstream) = upstream.upgrade() else { return };
        let outcome = send(&upstream, &check, is_lenient).await;
        let is_healthy = outcome.is_ok();
        streak = if is_healthy == was_healthy { streak.saturating_add(1) } else { 1 };
        was_healthy = is_healthy;
        let threshold = match is_healthy {
            _ if upstream.health.is_unchecked() => 1,
            true => check.rise,
            false => check.fall,
        };
        if streak >= threshold && upstream.health.set_unhealthy(!is_healthy, Instant::now()) {
            match outcome {
                Ok(()) => log::info!(
                    "the upstream {upstream}: health checks pass; it gets requests again"
                ),
                Err(reason) => log::warn!(
                    "the upstream {upstream}: health checks fail; it gets no requests: {reason}"
                ),
            }
        }
    }
}

/// Sends one check.
///
/// # Errors
/// The reason of the failure.
async fn send(upstream: &Upstream, check: &HealthCheck, is_lenient: bool) -> Result<(), String> {
    let limits = ResponseLimits { max_bytes: MAX_BODY_BYTES, time: check.timeout, is_lenient };
    let host = Some(&*check.host).filter(|host| !host.is_empty());
    match &check.target {
        HealthCheckTarget::Connection => {
            let connected = upstream.connect(check.timeout).await;
            connected.map(drop).map_err(|error| error.to_string())
        }
        HealthCheckTarget::Grpc(service) => {
            grpc_health::check(upstream, service, host, &limits).await
        }
        HealthCheckTarget::Path(path) => {
            let target = format!("{}{path}", upstream.url.path);
            let (method, target) = (&Method::GET, &*target);
            let request = OwnRequest { method, target, host, fields: &[], body: b"" };
            let mut search = TextSearch::new(&check.body);
            let is_enough =
                |status, body: &[u8]| !check.permits(status) || search.is_found_in(body);
            let response = request.send(upstream, &limits, is_enough).await?;
            match response.status() {
                status if !check.permits(status) => Err(format!("the status is {status}")),
                _ if !search.is_found => Err("the body does not have the expected text".to_owned()),
                _ => Ok(()),
            }
        }
    }
}

/// Search for a text in a body that is being received. An empty text is found at once.
struct TextSearch<'a> {
    text: &'a [u8],
    /// Length of the part of the body that was searched.
    searched: usize,
    is_found: bool,
}

impl TextSearch<'_> {
    fn new(text: &str) -> TextSearch<'_> {
        TextSearch { text: text.as_bytes(), searched: 0, is_found: text.is_empty() }
    }

    /// Returns true if the received part of the body contains the text.
    fn is_found_in(&mut self, body: &[u8]) -> bool {
        // The text may begin in the part that was searched.
        let from = self.searched.saturating_sub(self.text.len());
        let mut parts = body[from..].windows(self.text.len().max(1));
        self.is_found = self.is_found || parts.any(|part| part == self.text);
        self.searched = body.len();
        self.is_found
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use weft::testing::TestServer;
    use weft::{Request, Response};

    use super::*;
    use crate::health::upstream_health::{FailurePolicy, UpstreamHealth};
    use crate::url::http_version::HttpVersion;

    #[test]
    fn searches_in_all_pieces() {
        assert!(TextSearch::new("").is_found_in(b""));
        for (pieces, expected) in [
            (&["needle"][..], true),
            (&["a", "nee", "", "d", "le"], true),
            (&["need", "needle!"], true),
            (&["need", "lo"], false),
        ] {
            let (mut search, mut body) = (TextSearch::new("needle"), Vec::new());
            let found = pieces.iter().any(|piece| {
                body.extend_from_slice(piece.as_bytes());
                search.is_found_in(&body)
            });
            assert_eq!(found, expected, "{pieces:?}");
        }
    }

    #[tokio::test]
    async fn searches_up_to_the_limit_over_each_version_of_http() {
        let server = TestServer::start(async |request: Request| {
            Response::text("a".repeat(MAX_BODY_BYTES - 6) + &request.path()[1..])
        });
        let policy = FailurePolicy {
            max_failures: 1,
            max_failure_rate: None,
            window: Duration::from_secs(1),
            down_time: Duration::ZERO,
            slow_start: Duration::ZERO,
        };
        for http_version in [HttpVersion::Http1, HttpVersion::Http2] {
            let (url, health) =
                (server.url("").parse().unwrap(), UpstreamHealth::new(policy, Instant::now()));
            let upstream = Upstream::new(url, health, &None).unwrap();
            let upstream = upstream.with_http_version(http_version);
            for (path, expected) in [("/needle!", true), ("/!needle", false), ("/needl", false)] {
                let (target, body) =
                    (HealthCheckTarget::Path(path.to_owned()), "needle".to_owned());
                let timeout = Duration::from_secs(30);
                let check = HealthCheck { target, body, timeout, ..HealthCheck::default() };
                let found = send(&upstream, &check, false).await.is_ok();
                assert_eq!(found, expected, "{path} {http_version:?}");
            }
        }
    }
}
