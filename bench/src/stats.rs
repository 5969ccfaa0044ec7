//! Samples, their medians, and ratios of these (pure).

use std::collections::BTreeMap;

/// One measurement of one server under one load.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    pub requests: u64,
    pub errors: u64,
    pub seconds: f64,
    /// User and system time of all processes of the server.
    pub cpu_seconds: f64,
    /// The system time in it, with a resolution of 10 ms.
    pub system_seconds: f64,
    /// p50, p99, p99.9 in microseconds, if the load generator measures them.
    pub latency: Option<[f64; 3]>,
    pub memory_kib: u64,
    /// Memory per idle connection in bytes.
    pub connection_bytes: Option<f64>,
    /// The number of calls per system call.
    pub calls: Option<BTreeMap<String, u64>>,
}

impl Sample {
    pub fn per_second(&self) -> f64 {
        self.requests as f64 / self.seconds
    }

    pub fn cpu_micros(&self) -> f64 {
        self.cpu_seconds * 1e6 / self.requests as f64
    }
}

/// A metric, computed from a sample.
pub type Metric = fn(&Sample) -> Option<f64>;

pub const CPU: Metric = |sample| finite(sample.cpu_micros());
pub const THROUGHPUT: Metric = |sample| finite(sample.per_second());
pub const P50: Metric = |sample| latency(sample, 0);
pub const P99: Metric = |sample| latency(sample, 1);
pub const P999: Metric = |sample| latency(sample, 2);
pub const MEMORY: Metric = |sample| (sample.memory_kib > 0).then_some(sample.memory_kib as f64);
pub const CONNECTION: Metric = |sample| sample.connection_bytes;
pub const CALLS: Metric = |sample| {
    let calls: u64 = sample.calls.as_ref()?.values().sum();
    Some(calls as f64 / sample.requests as f64)
};

/// Returns a percentile. wrk reports 0 for percentiles that it cannot determine, which happens with
/// pipelining.
fn latency(sample: &Sample, index: usize) -> Option<f64> {
    sample.latency.map(|latency| latency[index]).filter(|micros| *micros > 0.0)
}

fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

/// All rounds of one server.
pub type Series = [Option<Sample>];

pub fn median_of(series: &Series, metric: Metric) -> Option<f64> {
    median(series.iter().flatten().filter_map(metric).collect())
}

/// The ratio of two medians, and the lowest and highest ratio of a single round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    pub median: f64,
    pub low: f64,
    pub high: f64,
}

/// Returns the ratio of two servers, or `None` if no round has samples of both.
pub fn ratio(ours: &Series, theirs: &Series, metric: Metric) -> Option<Ratio> {
    let rounds = ours.iter().zip(theirs).filter_map(|(ours, theirs)| {
        let (ours, theirs) = (metric(ours.as_ref()?)?, metric(theirs.as_ref()?)?);
        Some(ours / theirs)
    });
    let (low, high) =
        rounds.fold((f64::MAX, f64::MIN), |(low, high), ratio| (low.min(ratio), high.max(ratio)));
    let median = median_of(ours, metric)? / median_of(theirs, metric)?;
    (low <= high).then_some(Ratio { median, low, high })
}

pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        length if length % 2 == 1 => Some(values[middle]),
        _ => Some((values[middle - 1] + values[middle]) / 2.0),
    }
}

/// Returns the value at the given per-mille rank of sorted values.
pub fn percentile(sorted: &[f64], per_mille: usize) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    sorted.get((sorted.len() * per_mille / 1000).min(last)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(throughputs: &[u64]) -> Vec<Option<Sample>> {
        let sample = |&requests: &u64| {
            (requests > 0).then(|| Sample { requests, seconds: 1.0, ..Sample::default() })
        };
        throughputs.iter().map(sample).collect()
    }

    #[test]
    fn computes_medians() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn ratio_has_median_and_spread_of_rounds() {
        let ratio =
            |ours: &[u64], theirs: &[u64]| super::ratio(&series(ours), &series(theirs), THROUGHPUT);
        assert_eq!(
            ratio(&[10, 20, 60], &[10, 10, 20]),
            Some(Ratio { median: 2.0, low: 1.0, high: 3.0 })
        );
        // Failed rounds are excluded from the spread.
        assert_eq!(
            ratio(&[10, 0, 10], &[5, 10, 5]),
            Some(Ratio { median: 2.0, low: 2.0, high: 2.0 })
        );
        assert_eq!(ratio(&[10, 0], &[0, 10]), None);
    }

    #[test]
    fn computes_percentiles() {
        let values: Vec<f64> = (0..1000).map(f64::from).collect();
        assert_eq!(percentile(&values, 500), Some(500.0));
        assert_eq!(percentile(&values, 999), Some(999.0));
        assert_eq!(percentile(&values[..1], 999), Some(0.0));
        assert_eq!(percentile(&[], 500), None);
    }
}
