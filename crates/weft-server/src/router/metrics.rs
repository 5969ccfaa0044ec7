//! Metrics of a worker's routes.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use weft::StatusCode;
use weft_upstream::metrics::{Counter, Histogram};

use crate::route::RouteName;

/// Metrics of one route in one worker. Only that worker writes them.
// The alignment keeps the counters of two workers in separate pairs of cache lines, because
// processors prefetch lines in pairs.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct RouteCounts {
    pub(crate) begun: Counter,
    pub(crate) outcomes: Outcomes,
    pub(crate) durations: Histogram,
}

impl RouteCounts {
    /// Counts a request and starts to measure its duration.
    pub(crate) fn begin(self: &Arc<RouteCounts>) -> RequestTimer {
        self.begun.add(1);
        RequestTimer { counts: self.clone(), start: Instant::now(), status: None }
    }
}

/// Measures a request in flight. Records duration and outcome when dropped.
pub(crate) struct RequestTimer {
    counts: Arc<RouteCounts>,
    start: Instant,
    status: Option<StatusCode>,
}

impl RequestTimer {
    /// Ends the measurement with the status of the response.
    pub(crate) fn finish(mut self, status: StatusCode) {
        self.status = Some(status);
    }
}

/// Records every outcome, including clients that disconnect before the response.
impl Drop for RequestTimer {
    fn drop(&mut self) {
        self.counts.durations.observe(self.start.elapsed());
        self.counts.outcomes.add(self.status);
    }
}

/// Responses by status class, and requests that ended without a response.
#[derive(Default)]
pub(crate) struct Outcomes([Counter; CLASSES.len()]);

const CLASSES: [&str; 6] = ["1xx", "2xx", "3xx", "4xx", "5xx", "none"];

/// Counts by status class, read at one point in time.
pub(crate) type ByClass = BTreeMap<&'static str, u64>;

impl Outcomes {
    pub(crate) fn add(&self, status: Option<StatusCode>) {
        // Status codes above 599 are invalid, but an upstream may send them (RFC 9110 §15).
        let class = |status: StatusCode| usize::from(status.as_u16() / 100).clamp(1, 5) - 1;
        self.0[status.map_or(CLASSES.len() - 1, class)].add(1);
    }

    pub(crate) fn add_to(&self, sums: &mut ByClass) {
        for (class, counter) in CLASSES.into_iter().zip(&self.0) {
            *sums.entry(class).or_default() += counter.get();
        }
    }
}

/// Metrics of all routes of a worker.
#[derive(Default)]
pub(crate) struct RouteMetrics(Mutex<HashMap<RouteName, Arc<RouteCounts>>>);

impl RouteMetrics {
    fn lock(&self) -> MutexGuard<'_, HashMap<RouteName, Arc<RouteCounts>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the metrics of these routes, followed by the metrics of requests without a route.
    /// Existing routes keep their counts; the counts of removed routes are dropped.
    pub(crate) fn for_routes(&self, names: &[RouteName]) -> Vec<Arc<RouteCounts>> {
        let mut all = self.lock();
        let mut previous = std::mem::take(&mut *all);
        let unmatched = RouteName::unmatched();
        let names = names.iter().chain([&unmatched]);
        let counts: Vec<_> =
            names.clone().map(|name| previous.remove(name).unwrap_or_default()).collect();
        all.extend(names.cloned().zip(counts.iter().cloned()));
        counts
    }

    /// Returns the metrics of a route.
    pub(crate) fn find(&self, name: &RouteName) -> Option<Arc<RouteCounts>> {
        self.lock().get(name).cloned()
    }
}

impl RouteName {
    /// Name under which requests that match no route are counted.
    pub(crate) fn unmatched() -> RouteName {
        // Cannot be a real route, because prefixes start with a slash.
        RouteName { host: String::new(), prefix: "none".to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_statuses_by_class() {
        for (status, expected) in [
            (Some(101), "1xx"),
            (Some(204), "2xx"),
            (Some(301), "3xx"),
            (Some(499), "4xx"),
            (Some(500), "5xx"),
            (Some(999), "5xx"),
            (None, "none"),
        ] {
            let outcomes = Outcomes::default();
            outcomes.add(status.map(|status| StatusCode::from_u16(status).unwrap()));
            let mut sums = ByClass::new();
            outcomes.add_to(&mut sums);
            assert_eq!(sums.len(), CLASSES.len());
            sums.retain(|_, count| *count > 0);
            assert_eq!(sums, ByClass::from([(expected, 1)]));
        }
    }

    #[test]
    fn counts_request_without_response() {
        let counts = Arc::new(RouteCounts::default());
        drop(counts.begin());
        counts.begin().finish(StatusCode::OK);
        let mut sums = ByClass::new();
        counts.outcomes.add_to(&mut sums);
        assert_eq!((sums["none"], sums["2xx"], counts.begun.get()), (1, 1, 2));
    }

    #[test]
    fn remaining_routes_keep_their_counts() {
        let name = |prefix: &str| RouteName { host: "*".into(), prefix: prefix.into() };
        let metrics = RouteMetrics::default();
        let before = metrics.for_routes(&[name("/a/"), name("/b/")]);
        before.iter().for_each(|counts| counts.begin().finish(StatusCode::OK));
        let after = metrics.for_routes(&[name("/c/"), name("/b/")]);
        let begun: Vec<u64> = after.iter().map(|counts| counts.begun.get()).collect();
        assert_eq!(begun, [0, 1, 1]);
        assert!(metrics.find(&name("/a/")).is_none());
    }
}
