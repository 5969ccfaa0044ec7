//! Metrics of the requests to an upstream, and its state, for the status endpoint.

use std::time::Instant;

use serde::Serialize;

use super::pool::Pool;
use super::upstream::Upstream;
use crate::counter::{Counter, Histogram, HistogramTotals};

/// Metrics that one worker collects about one upstream.
// Aligned to a pair of cache lines, which processors fetch together, so that workers do not share
// one.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct UpstreamMetrics {
    requests: Counter,
    retries: Counter,
    durations: Histogram,
}

impl UpstreamMetrics {
    /// Counts a request, or a retry of one, that is about to be sent.
    pub(super) fn start_request(&self, is_retry: bool) -> SentRequest<'_> {
        self.requests.add(1);
        self.retries.add(is_retry.into());
        SentRequest { metrics: self, start: Instant::now() }
    }
}

/// A request that was sent.
pub(super) struct SentRequest<'a> {
    metrics: &'a UpstreamMetrics,
    start: Instant,
}

impl SentRequest<'_> {
    /// Records the time until the head of the response.
    pub(super) fn record_response(self) {
        self.metrics.durations.observe(self.start.elapsed());
    }
}

/// The state of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    /// No known problem.
    Up,
    /// Too many requests have failed: the upstream gets none for a while, if there is another.
    Resting,
    /// Health checks have failed.
    Down,
}

impl State {
    pub(crate) const ALL: [State; 3] = [State::Up, State::Resting, State::Down];

    pub(crate) fn name(self) -> &'static str {
        match self {
            State::Up => "up",
            State::Resting => "resting",
            State::Down => "down",
        }
    }
}

/// State and metrics of an upstream.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct UpstreamReport {
    #[serde(rename = "upstream")]
    pub(crate) url: String,
    pub(crate) state: State,
    pub(crate) requests: u64,
    pub(crate) retries: u64,
    pub(crate) failures: u64,
    pub(crate) connections_in_use: usize,
    pub(crate) connections_idle: usize,
    pub(crate) queued: usize,
    pub(crate) durations: HistogramTotals,
}

impl UpstreamReport {
    /// Creates a report without connections and requests.
    pub(super) fn new(upstream: &Upstream) -> UpstreamReport {
        let health = &upstream.health;
        let state = match (health.is_unhealthy(), health.is_resting(Instant::now())) {
            (true, _) => State::Down,
            (false, true) => State::Resting,
            (false, false) => State::Up,
        };
        UpstreamReport {
            url: upstream.to_string(),
            state,
            requests: 0,
            retries: 0,
            failures: upstream.failures(),
            connections_in_use: 0,
            connections_idle: 0,
            queued: 0,
            durations: HistogramTotals::default(),
        }
    }

    /// Adds the connections and metrics of one worker.
    pub(super) fn add(&mut self, pool: &Pool) {
        let (in_use, idle) = pool.connection_counts();
        self.connections_in_use += in_use;
        self.connections_idle += idle;
        self.queued += pool.queued();
        if let Some(metrics) = pool.metrics.get() {
            self.requests += metrics.requests.get();
            self.retries += metrics.retries.get();
            self.durations.add(&metrics.durations);
        }
    }
}
