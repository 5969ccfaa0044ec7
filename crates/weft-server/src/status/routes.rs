//! What a worker counts for each of its routes.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use weft::StatusCode;

use super::register::lock;
use crate::counter::{Counter, Histogram};
use crate::route::RouteName;

/// The numbers of one route in one worker, which it alone writes.
// Those of two workers never share a cache line, or a pair of them, which processors fetch together.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct RouteCounts {
    pub(super) begun: Counter,
    pub(super) outcomes: Outcomes,
    pub(super) durations: Histogram,
}

impl RouteCounts {
    /// Counts a request from now on.
    pub(crate) fn begin(self: &Arc<RouteCounts>) -> Measure {
        self.begun.add(1);
        Measure { counts: self.clone(), start: Instant::now(), status: None }
    }
}

/// A request that is being answered.
pub(crate) struct Measure {
    counts: Arc<RouteCounts>,
    start: Instant,
    status: Option<StatusCode>,
}

impl Measure {
    pub(crate) fn answered(mut self, status: StatusCode) {
        self.status = Some(status);
    }
}

/// However it ends: a client may leave before there is an answer.
impl Drop for Measure {
    fn drop(&mut self) {
        self.counts.durations.observe(self.start.elapsed());
        self.counts.outcomes.add(self.status);
    }
}

/// How many responses there were of each class of statuses, and how often there was none.
#[derive(Default)]
pub(super) struct Outcomes([Counter; CLASSES.len()]);

const CLASSES: [&str; 6] = ["1xx", "2xx", "3xx", "4xx", "5xx", "none"];

/// The same, read at one time.
pub(super) type ByClass = BTreeMap<&'static str, u64>;

impl Outcomes {
    pub(super) fn add(&self, status: Option<StatusCode>) {
        // Nothing says what is beyond 599, but an upstream may use it (RFC 9110 §15).
        let class = |status: StatusCode| usize::from(status.as_u16() / 100).clamp(1, 5) - 1;
        self.0[status.map_or(CLASSES.len() - 1, class)].add(1);
    }

    pub(super) fn add_to(&self, sums: &mut ByClass) {
        for (class, counter) in CLASSES.into_iter().zip(&self.0) {
            *sums.entry(class).or_default() += counter.get();
        }
    }
}

/// All that a worker counts for its routes.
#[derive(Default)]
pub(crate) struct Tally(Mutex<HashMap<RouteName, Arc<RouteCounts>>>);

impl Tally {
    /// The counts of these routes, and those of requests that no route is for. Routes that were
    /// there before go on with theirs; those that are there no more are forgotten.
    pub(crate) fn of(&self, names: &[RouteName]) -> Vec<Arc<RouteCounts>> {
        let mut all = lock(&self.0);
        let mut former = std::mem::take(&mut *all);
        let nobody = RouteName::of_nobody();
        let names = names.iter().chain([&nobody]);
        let counts: Vec<_> =
            names.clone().map(|name| former.remove(name).unwrap_or_default()).collect();
        all.extend(names.cloned().zip(counts.iter().cloned()));
        counts
    }

    /// What is counted for a route.
    pub(super) fn find(&self, name: &RouteName) -> Option<Arc<RouteCounts>> {
        lock(&self.0).get(name).cloned()
    }
}

impl RouteName {
    /// Stands for requests that no route is for.
    pub(super) fn of_nobody() -> RouteName {
        // Prefixes begin with a slash.
        RouteName { host: String::new(), prefix: "none".to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_by_their_class() {
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
    fn a_client_that_leaves_is_counted() {
        let counts = Arc::new(RouteCounts::default());
        drop(counts.begin());
        counts.begin().answered(StatusCode::OK);
        let mut sums = ByClass::new();
        counts.outcomes.add_to(&mut sums);
        assert_eq!((sums["none"], sums["2xx"], counts.begun.get()), (1, 1, 2));
    }

    #[test]
    fn routes_that_stay_go_on_with_their_counts() {
        let name = |prefix: &str| RouteName { host: "*".into(), prefix: prefix.into() };
        let tally = Tally::default();
        let before = tally.of(&[name("/a/"), name("/b/")]);
        before.iter().for_each(|counts| counts.begin().answered(StatusCode::OK));
        let after = tally.of(&[name("/c/"), name("/b/")]);
        let begun: Vec<u64> = after.iter().map(|counts| counts.begun.get()).collect();
        assert_eq!(begun, [0, 1, 1]);
        assert!(tally.find(&name("/a/")).is_none());
    }
}
