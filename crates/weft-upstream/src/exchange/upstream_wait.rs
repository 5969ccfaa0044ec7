//! Time for which a request waits for its upstream.

use std::time::{Duration, Instant};

/// Measures the time until the head of a response, without the waits for the client and for the
/// transfer of the request body.
#[derive(Debug, Default)]
pub(crate) struct UpstreamWait {
    is_measured: bool,
    since: Option<Instant>,
}

impl UpstreamWait {
    /// Creates a measurement for an attempt. Without a `limit` (zero), the clock is not read.
    pub(crate) fn new(limit: Duration) -> UpstreamWait {
        UpstreamWait { is_measured: !limit.is_zero(), since: None }
    }

    /// Starts the measurement, unless it is running.
    pub(crate) fn start(&mut self) {
        if self.is_measured && self.since.is_none() {
            self.since = Some(Instant::now());
        }
    }

    /// Discards the measured time, because the upstream was not the party that was awaited.
    pub(crate) fn reset(&mut self) {
        self.since = None;
    }

    /// Returns the measured time; zero if the response was received at once.
    pub(crate) fn elapsed(&self) -> Duration {
        self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}
