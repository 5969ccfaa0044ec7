//! State and metrics of an upstream, for operators.

use std::collections::BTreeMap;
use std::time::Instant;

use serde::Serialize;

use crate::base::counter::HistogramTotals;
use crate::connect::upstream::Upstream;
use crate::health::operator_control::UpstreamMode;
use crate::health::upstream_health::UpstreamAvailability;
use crate::retry_reason::RetryReason;

/// The state of an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum UpstreamState {
    /// No known problem.
    #[default]
    Up,
    /// Too many requests have failed: the upstream gets none for its down time, if there is
    /// another.
    Down,
    /// Health checks have failed.
    Unhealthy,
    /// The first health check has no result yet.
    Unchecked,
    /// An operator drains it: it gets only requests of its sessions.
    Draining,
    /// An operator has taken it out.
    Disabled,
}

impl UpstreamState {
    /// All states.
    pub const ALL: [UpstreamState; 6] = [
        UpstreamState::Up,
        UpstreamState::Down,
        UpstreamState::Unhealthy,
        UpstreamState::Unchecked,
        UpstreamState::Draining,
        UpstreamState::Disabled,
    ];

    /// Returns the name of the state, in lower case.
    pub fn name(self) -> &'static str {
        match self {
            UpstreamState::Up => "up",
            UpstreamState::Down => "down",
            UpstreamState::Unhealthy => "unhealthy",
            UpstreamState::Unchecked => "unchecked",
            UpstreamState::Draining => "draining",
            UpstreamState::Disabled => "disabled",
        }
    }
}

/// State and metrics of an upstream.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct UpstreamReport {
    /// URL of the upstream.
    #[serde(rename = "upstream")]
    pub url: String,
    /// State of the upstream.
    pub state: UpstreamState,
    /// The weight that an operator has set, or the configured weight.
    pub weight: u32,
    /// The upstream gets copies of the requests of others.
    pub is_mirror: bool,
    /// Copies that were not sent.
    pub dropped_copies: u64,
    /// Number of requests that were sent.
    pub requests: u64,
    /// Number of requests that were sent again to this upstream after a failure.
    pub retries: u64,
    /// Numbers of retries by the name of the reason.
    pub retries_by_reason: BTreeMap<&'static str, u64>,
    /// Number of failures.
    pub failures: u64,
    /// Connections that requests use.
    pub connections_in_use: usize,
    /// Connections that no request uses.
    pub connections_idle: usize,
    /// Requests that wait for a connection.
    pub queued: usize,
    /// Times from the request to the head of the response.
    pub durations: HistogramTotals,
    /// Times to establish a connection.
    pub connect_times: HistogramTotals,
    /// Times of waits for a connection in use by others.
    pub queue_times: HistogramTotals,
}

impl UpstreamReport {
    /// Creates a report without connections and requests.
    pub fn new(upstream: &Upstream) -> UpstreamReport {
        let health = &upstream.health;
        let state = match upstream.mode() {
            UpstreamMode::Disabled => UpstreamState::Disabled,
            _ if health.is_unhealthy() => UpstreamState::Unhealthy,
            _ if health.is_unchecked() => UpstreamState::Unchecked,
            UpstreamMode::Draining => UpstreamState::Draining,
            UpstreamMode::Up
                if health.availability(Instant::now()) == UpstreamAvailability::Down =>
            {
                UpstreamState::Down
            }
            UpstreamMode::Up => UpstreamState::Up,
        };
        UpstreamReport {
            url: upstream.to_string(),
            state,
            weight: upstream.set_weight(),
            retries_by_reason: RetryReason::ALL.map(|reason| (reason.name(), 0)).into(),
            failures: upstream.failures(),
            ..UpstreamReport::default()
        }
    }
}
