//! Metrics of the requests to an upstream.

use std::time::{Duration, Instant};

use super::upstream_report::UpstreamReport;
use crate::base::counter::{Counter, Histogram};
use crate::retry_reason::RetryReason;

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

    /// Adds the metrics to a report.
    pub(crate) fn add_to(&self, report: &mut UpstreamReport) {
        report.requests += self.requests.get();
        report.dropped_copies += self.dropped_copies.get();
        for (reason, counter) in RetryReason::ALL.iter().zip(&self.retries) {
            // Each counter is read once, so that the total is the sum.
            let count = counter.get();
            report.retries += count;
            *report.retries_by_reason.entry(reason.name()).or_default() += count;
        }
        report.durations.add(&self.durations);
        report.queue_times.add(&self.queue_times);
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
