//! Numbers that one thread writes and others read.
//!
//! As nobody else writes them, adding is a load and a store: no locked instruction, and no cache
//! line that workers fight for.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use serde::Serialize;

/// A number that only grows. One thread adds to it; any may read it.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, more: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(more), Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

const fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

/// How many bounds there are. To ask the list for its length sends an optimizing compiler
/// round in circles.
const COUNT: usize = 16;

/// The longest times that the buckets of a histogram hold. One more is for all beyond.
pub(crate) const BOUNDS: [Duration; COUNT] = [
    micros(100),
    micros(250),
    micros(500),
    micros(1_000),
    micros(2_500),
    micros(5_000),
    micros(10_000),
    micros(25_000),
    micros(50_000),
    micros(100_000),
    micros(250_000),
    micros(500_000),
    micros(1_000_000),
    micros(2_500_000),
    micros(5_000_000),
    micros(10_000_000),
];

/// How long things took. One thread observes; any may read.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    buckets: [Counter; COUNT + 1],
    nanos: Counter,
}

impl Histogram {
    pub(crate) fn observe(&self, time: Duration) {
        self.buckets[BOUNDS.partition_point(|bound| *bound < time)].add(1);
        self.nanos.add(time.as_nanos().try_into().unwrap_or(u64::MAX));
    }
}

/// What histograms come to, read at one time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Durations {
    pub(crate) count: u64,
    pub(crate) sum_seconds: f64,
    /// How many are in each bucket, and not in those before.
    pub(crate) buckets: [u64; COUNT + 1],
}

impl Durations {
    pub(crate) fn add(&mut self, histogram: &Histogram) {
        self.sum_seconds += Duration::from_nanos(histogram.nanos.get()).as_secs_f64();
        for (sum, bucket) in self.buckets.iter_mut().zip(&histogram.buckets) {
            // Read once, so that the buckets and their sum agree.
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
    fn times_are_in_the_bucket_whose_bound_they_do_not_pass() {
        let nano = Duration::from_nanos(1);
        for (time, bucket) in [
            (Duration::ZERO, 0),
            (BOUNDS[0], 0),
            (BOUNDS[0] + nano, 1),
            (BOUNDS[15], 15),
            (BOUNDS[15] + nano, 16),
            (Duration::MAX, 16),
        ] {
            let (histogram, mut durations) = (Histogram::default(), Durations::default());
            histogram.observe(time);
            durations.add(&histogram);
            assert_eq!(durations.buckets.iter().position(|count| *count > 0), Some(bucket));
            assert_eq!(durations.count, 1);
        }
    }

    #[test]
    fn histograms_add_up() {
        let (one, other) = (Histogram::default(), Histogram::default());
        one.observe(Duration::from_millis(1));
        one.observe(Duration::from_millis(500));
        other.observe(Duration::from_millis(1));
        let mut durations = Durations::default();
        durations.add(&one);
        durations.add(&other);
        assert_eq!((durations.count, durations.buckets[3], durations.buckets[11]), (3, 2, 1));
        assert!((durations.sum_seconds - 0.502).abs() < 1e-9);
    }
}
