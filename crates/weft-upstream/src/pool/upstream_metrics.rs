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
    /// Copies that were not sent, if this is the server for copies.
    dropped_copies: Counter,
}

impl UpstreamMetrics {
    /// Counts a request that is about to be sent, and the reason if it is a retry. Returns the
    /// time.
    pub(crate) fn start_request(&self, retry: Option<RetryReason>) -> Instant {
        self.requests.add(1);
        if let Some(reason) = retry {
            self.retries[reason as usize].add(1);
        }
        Instant::now()
    }

    /// Records the head of the response to a request that was sent at a time.
    pub(crate) fn record_response(&self, sent_at: Instant) {
        self.durations.observe(sent_at.elapsed());
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
