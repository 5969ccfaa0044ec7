//! What is counted of the requests to an upstream, and how it is, for whoever runs the server.

use std::time::Instant;

use serde::Serialize;

use super::pool::Pool;
use super::upstream::Upstream;
use crate::counter::{Counter, Durations, Histogram};

/// What one worker counts of one upstream.
// Those of two workers never share a cache line, or a pair of them, which processors fetch together.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Traffic {
    requests: Counter,
    retries: Counter,
    durations: Histogram,
}

impl Traffic {
    /// Counts a request that is about to be sent, maybe once more.
    pub(super) fn begin(&self, is_retry: bool) -> Sent<'_> {
        self.requests.add(1);
        self.retries.add(is_retry.into());
        Sent { traffic: self, start: Instant::now() }
    }
}

/// A request that was sent.
pub(super) struct Sent<'a> {
    traffic: &'a Traffic,
    start: Instant,
}

impl Sent<'_> {
    /// The head of its response has come.
    pub(super) fn answered(self) {
        self.traffic.durations.observe(self.start.elapsed());
    }
}

/// How an upstream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    /// As far as anybody knows it is well.
    Up,
    /// Requests have failed so often that it is left alone for a while, if there is another.
    Resting,
    /// Checks have found that it is not well.
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

/// All that can be said of an upstream.
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
    pub(crate) durations: Durations,
}

impl UpstreamReport {
    /// Of an upstream to which nobody has connections.
    pub(super) fn new(upstream: &Upstream) -> UpstreamReport {
        let health = &upstream.health;
        let state = match (health.is_sick(), health.is_out(Instant::now())) {
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
            durations: Durations::default(),
        }
    }

    /// Adds what a worker has to do with it.
    pub(super) fn add(&mut self, pool: &Pool) {
        self.connections_in_use += pool.in_use();
        self.connections_idle += pool.idle_count();
        self.queued += pool.queued();
        if let Some(traffic) = pool.traffic.get() {
            self.requests += traffic.requests.get();
            self.retries += traffic.retries.get();
            self.durations.add(&traffic.durations);
        }
    }
}
