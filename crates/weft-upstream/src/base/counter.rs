//! Single-writer counters and histograms: one thread writes, any thread reads.
//!
//! With a single writer an addition is a load and a store: no locked instruction, and no cache
//! line contended between workers.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use serde::Serialize;

/// Monotonic counter. Only one thread may add to it; any thread may read it.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to the counter.
    pub fn add(&self, amount: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(amount), Relaxed);
    }

    /// Returns the current value.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Number of bucket bounds. `BUCKET_BOUNDS.len()` in its place causes a cycle in optimized builds.
const BOUND_COUNT: usize = 16;

/// Inclusive upper bounds of the histogram buckets. One more bucket counts everything above.
pub const BUCKET_BOUNDS: [Duration; BOUND_COUNT] = {
    const MANTISSAS: [u64; 3] = [100, 250, 500];
    let (mut bounds, mut index) = ([Duration::ZERO; BOUND_COUNT], 0);
    while index < BOUND_COUNT {
        let micros = MANTISSAS[index % 3] * 10u64.pow(index as u32 / 3);
        bounds[index] = Duration::from_micros(micros);
        index += 1;
    }
    bounds
};

/// Histogram of durations. Only one thread may record; any thread may read.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [Counter; BOUND_COUNT + 1],
    nanos: Counter,
}

impl Histogram {
    /// Records a duration.
    pub fn observe(&self, duration: Duration) {
        self.buckets[BUCKET_BOUNDS.partition_point(|bound| *bound < duration)].add(1);
        self.nanos.add(duration.as_nanos().try_into().unwrap_or(u64::MAX));
    }
}

/// Sum of one or more histograms, read at one point in time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct HistogramTotals {
    /// Number of recorded durations.
    pub count: u64,
    /// Sum of the durations, in seconds.
    pub sum_seconds: f64,
    /// Count of each bucket on its own (not cumulative).
    pub buckets: [u64; BOUND_COUNT + 1],
}

impl HistogramTotals {
    /// Adds the durations of a histogram.
    pub fn add(&mut self, histogram: &Histogram) {
        self.sum_seconds += Duration::from_nanos(histogram.nanos.get()).as_secs_f64();
        for (sum, bucket) in self.buckets.iter_mut().zip(&histogram.buckets) {
            // Each bucket is read once, so that `count` is the sum of the buckets.
            let count = bucket.get();
            *sum += count;
            self.count += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_counts_in_first_bucket_whose_bound_is_not_exceeded() {
        let nano = Duration::from_nanos(1);
        for (duration, bucket) in [
            (Duration::ZERO, 0),
            (BUCKET_BOUNDS[0], 0),
            (BUCKET_BOUNDS[0] + nano, 1),
            (BUCKET_BOUNDS[15], 15),
            (BUCKET_BOUNDS[15] + nano, 16),
            (Duration::MAX, 16),
        ] {
            let (histogram, mut durations) = (Histogram::default(), HistogramTotals::default());
            histogram.observe(duration);
            durations.add(&histogram);
            assert_eq!(durations.buckets.iter().position(|count| *count > 0), Some(bucket));
            assert_eq!(durations.count, 1);
        }
    }

    #[test]
    fn adds_up_histograms() {
        let (one, other) = (Histogram::default(), Histogram::default());
        one.observe(Duration::from_millis(1));
        one.observe(Duration::from_millis(500));
        other.observe(Duration::from_millis(1));
        let mut durations = HistogramTotals::default();
        durations.add(&one);
        durations.add(&other);
        assert_eq!((durations.count, durations.buckets[3], durations.buckets[11]), (3, 2, 1));
        assert!((durations.sum_seconds - 0.502).abs() < 1e-9);
    }
}
