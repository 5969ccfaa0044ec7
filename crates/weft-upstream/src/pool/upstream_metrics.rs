//! Metrics of the requests to an upstream, and its state, for the status endpoint.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::connection_pool::Pool;
use crate::base::counter::{Counter, Histogram, HistogramTotals};
use crate::connect::upstream::Upstream;
use crate::gateway_error::GatewayError;
use crate::health::operator_control::UpstreamMode;
use crate::health::upstream_health::Availability;

/// Metrics that one worker collects about one upstream.
// Aligned to a pair of cache lines, which processors fetch together, so that workers do not share
// one.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct UpstreamMetrics {
    requests: Counter,
    /// Retries by their reason.
    retries: [Counter; RetryReason::ALL.len()],
    durations: Histogram,
    queue_times: Histogram,
    /// Requests of which no copy was sent, if this is the server for copies.
    dropped_copies: Counter,
}

/// Reason why a request is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetryReason {
    /// No connection could be established.
    Unreachable,
    /// A new connection closed before the first byte of the response.
    Closed,
    /// A connection of the pool did, as upstreams may close idle connections at any time.
    IdleClosed,
    /// The upstream has stated that it has not processed the request.
    NotProcessed,
    /// The status of the response was a failure.
    Status,
}

impl RetryReason {
    pub(crate) const ALL: [RetryReason; 5] = [
        RetryReason::Unreachable,
        RetryReason::Closed,
        RetryReason::IdleClosed,
        RetryReason::NotProcessed,
        RetryReason::Status,
    ];

    /// Returns the reason for a retry after a failure; `None` if none follows such a failure.
    pub(crate) fn of(failure: &GatewayError) -> Option<RetryReason> {
        match failure {
            GatewayError::Unreachable(_) => Some(RetryReason::Unreachable),
            GatewayError::ConnectionLost(_) => Some(RetryReason::Closed),
            GatewayError::StaleConnection(_) => Some(RetryReason::IdleClosed),
            GatewayError::NotProcessed(_) => Some(RetryReason::NotProcessed),
            GatewayError::Client(_)
            | GatewayError::BadResponse(_)
            | GatewayError::Timeout(_)
            | GatewayError::NoneAvailable
            | GatewayError::Overloaded(_)
            | GatewayError::ResourcesExhausted(_)
            | GatewayError::Internal(_) => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            RetryReason::Unreachable => "unreachable",
            RetryReason::Closed => "closed",
            RetryReason::IdleClosed => "idle_closed",
            RetryReason::NotProcessed => "not_processed",
            RetryReason::Status => "status",
        }
    }
}

impl UpstreamMetrics {
    /// Counts a request, or a retry of one, that is about to be sent.
    pub(crate) fn start_request(&self, retry: Option<RetryReason>) -> SentRequest<'_> {
        self.requests.add(1);
        if let Some(reason) = retry {
            self.retries[reason as usize].add(1);
        }
        SentRequest { metrics: self, start: Instant::now() }
    }

    pub(crate) fn count_dropped_copy(&self) {
        self.dropped_copies.add(1);
    }

    /// Records the time for which a request has waited for a connection in use by others.
    pub(crate) fn record_queue_time(&self, time: Duration) {
        self.queue_times.observe(time);
    }
}

/// A request that was sent.
pub(crate) struct SentRequest<'a> {
    metrics: &'a UpstreamMetrics,
    start: Instant,
}

impl SentRequest<'_> {
    /// Records the time until the head of the response.
    pub(crate) fn record_response(self) {
        self.metrics.durations.observe(self.start.elapsed());
    }
}

/// The state of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// No known problem.
    Up,
    /// Too many requests have failed: the upstream gets none for its down time, if there is another.
    Down,
    /// Health checks have failed.
    Unhealthy,
    /// An operator drains it: it gets only requests of its sessions.
    Draining,
    /// An operator has taken it out.
    Disabled,
}

impl State {
    /// All states.
    pub const ALL: [State; 5] =
        [State::Up, State::Down, State::Unhealthy, State::Draining, State::Disabled];

    /// Returns the name of the state, in lower case.
    pub fn name(self) -> &'static str {
        match self {
            State::Up => "up",
            State::Down => "down",
            State::Unhealthy => "unhealthy",
            State::Draining => "draining",
            State::Disabled => "disabled",
        }
    }
}

/// State and metrics of an upstream.
#[derive(Clone, Debug, Serialize)]
pub struct UpstreamReport {
    /// URL of the upstream.
    #[serde(rename = "upstream")]
    pub url: String,
    /// State of the upstream.
    pub state: State,
    /// The configured weight, or that which an operator has set.
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
            UpstreamMode::Disabled => State::Disabled,
            _ if health.is_unhealthy() => State::Unhealthy,
            UpstreamMode::Draining => State::Draining,
            UpstreamMode::Up if health.availability(Instant::now()) == Availability::Down => {
                State::Down
            }
            UpstreamMode::Up => State::Up,
        };
        UpstreamReport {
            url: upstream.to_string(),
            state,
            weight: upstream.set_weight(),
            is_mirror: false,
            dropped_copies: 0,
            requests: 0,
            retries: 0,
            retries_by_reason: RetryReason::ALL.map(|reason| (reason.name(), 0)).into(),
            failures: upstream.failures(),
            connections_in_use: 0,
            connections_idle: 0,
            queued: 0,
            durations: HistogramTotals::default(),
            connect_times: HistogramTotals::default(),
            queue_times: HistogramTotals::default(),
        }
    }

    /// Adds the connections and metrics of one worker.
    pub(crate) fn add(&mut self, pool: &Pool) {
        let (in_use, idle) = pool.connection_counts();
        self.connections_in_use += in_use;
        self.connections_idle += idle;
        self.queued += pool.queued();
        if let Some(metrics) = pool.metrics.get() {
            self.requests += metrics.requests.get();
            self.dropped_copies += metrics.dropped_copies.get();
            for (reason, counter) in RetryReason::ALL.iter().zip(&metrics.retries) {
                // Each counter is read once, so that the total is the sum.
                let count = counter.get();
                self.retries += count;
                *self.retries_by_reason.entry(reason.name()).or_default() += count;
            }
            self.durations.add(&metrics.durations);
            self.connect_times.add(&pool.connect_times);
            self.queue_times.add(&metrics.queue_times);
        }
    }
}
