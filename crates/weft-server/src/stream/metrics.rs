//! Metrics of streams, for the status endpoint.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use weft_upstream::UpstreamState;
use weft_upstream::metrics::{Histogram, HistogramTotals};

use super::end::End;

/// Metrics of the connections to an upstream. Threads share them: each connection adds to them.
#[derive(Default)]
pub(crate) struct TargetMetrics {
    pub(crate) connections: AtomicU64,
    pub(crate) traffic: Traffic,
    durations: Mutex<Histogram>,
}

/// Numbers of bytes.
#[derive(Default)]
pub(crate) struct Traffic {
    /// Received from clients.
    pub(crate) received: AtomicU64,
    /// Sent to clients.
    pub(crate) sent: AtomicU64,
}

/// Numbers of ended connections by reason.
#[derive(Default)]
pub(crate) struct EndCounts([AtomicU64; End::ALL.len()]);

/// State and metrics of an upstream of a stream.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct TargetReport {
    pub(crate) upstream: String,
    /// Pattern of `server_names` that selects the upstream; empty for `to`.
    pub(crate) server_name: String,
    pub(crate) state: UpstreamState,
    pub(crate) weight: u32,
    pub(crate) connections: u64,
    pub(crate) open: usize,
    pub(crate) failures: u64,
    pub(crate) bytes_received: u64,
    pub(crate) bytes_sent: u64,
    pub(crate) durations: HistogramTotals,
}

/// Numbers of ended connections by reason, read at one point in time.
pub(crate) type EndTotals = BTreeMap<&'static str, u64>;

impl TargetMetrics {
    pub(crate) fn record_duration(&self, duration: Duration) {
        self.durations.lock().unwrap_or_else(PoisonError::into_inner).observe(duration);
    }

    pub(crate) fn durations(&self) -> HistogramTotals {
        let mut totals = HistogramTotals::default();
        totals.add(&self.durations.lock().unwrap_or_else(PoisonError::into_inner));
        totals
    }
}

impl EndCounts {
    pub(crate) fn add(&self, end: End) {
        self.0[end as usize].fetch_add(1, Relaxed);
    }

    pub(crate) fn totals(&self) -> EndTotals {
        let counts = self.0.iter().map(|count| count.load(Relaxed));
        End::ALL.iter().map(|end| end.name()).zip(counts).collect()
    }
}
