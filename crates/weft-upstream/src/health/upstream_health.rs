//! Health of an upstream, from the outcome of requests and of health checks.
//!
//! All workers share it. Reading it is two atomic loads; the mutex is taken only for a failure, or
//! for the first success after a failure.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Limits on failing requests after which an upstream is down, which means that it gets no
/// requests.
#[derive(Clone, Copy, Debug)]
pub struct FailurePolicy {
    /// Failures in a row.
    pub max_failures: u32,
    /// Share of the requests of a window that may fail, in millionths; `None`: any.
    pub max_failure_rate: Option<u32>,
    /// Period in which failures are counted.
    pub window: Duration,
    /// Time for which an upstream that failed gets no requests.
    pub down_time: Duration,
    /// Time in which an upstream that has recovered gets back its share of the requests.
    pub slow_start: Duration,
}

/// Health of an upstream, from the outcomes of its requests and of its health checks.
#[derive(Debug)]
pub struct UpstreamHealth {
    policy: FailurePolicy,
    created_at: Instant,
    /// End of the down time, in milliseconds since `created_at`; 0: none.
    down_until: AtomicU64,
    /// End of the time for which others wait for the outcome of a probe, in milliseconds since
    /// `created_at`; 0: none.
    probe_until: AtomicU64,
    /// Time of the last recovery, in milliseconds since `created_at`; 0: none.
    recovered_at: AtomicU64,
    /// The [`CheckResult`].
    check_result: AtomicU8,
    /// `failure_state` is not `Healthy`; readable without the mutex.
    has_failures: AtomicBool,
    failure_state: Mutex<FailureState>,
    /// Used only if the policy has a rate: workers share it.
    counts: Mutex<Counts>,
}

/// Result of the health checks of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CheckResult {
    /// There are no checks, or the last ones have passed.
    Passed,
    /// The first check has no result yet.
    Unchecked,
    Failed,
}

/// Numbers of requests in the current window.
#[derive(Debug, Default)]
struct Counts {
    since: Duration,
    requests: u32,
    failures: u32,
}

/// Number of requests in a window below which the share of the failures is not significant.
const MIN_REQUESTS_FOR_RATE: u32 = 20;

/// Outcome of the most recent requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FailureState {
    Healthy,
    /// Number of failures, and the time of the first of them.
    Failing {
        since: Duration,
        failures: u32,
    },
    /// Down, or being tried again after the down time: one more failure starts another down time.
    HalfOpen,
}

/// Requests that an upstream may get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UpstreamAvailability {
    /// The upstream gets requests.
    Available,
    /// Its down time is over, and a request tries it now. Others wait for the outcome, unless there
    /// is no other upstream.
    Probing,
    /// The upstream gets no requests.
    Down,
}

/// Change of health caused by a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HealthChange {
    /// The first failure of a series.
    FirstFailure,
    /// `max_failures` was reached: the down time begins.
    WentDown,
}

impl UpstreamHealth {
    /// Creates the health of an upstream without failures.
    pub fn new(policy: FailurePolicy, now: Instant) -> UpstreamHealth {
        UpstreamHealth {
            policy,
            created_at: now,
            down_until: AtomicU64::new(0),
            probe_until: AtomicU64::new(0),
            recovered_at: AtomicU64::new(0),
            check_result: AtomicU8::new(CheckResult::Passed as u8),
            has_failures: AtomicBool::new(false),
            failure_state: Mutex::new(FailureState::Healthy),
            counts: Mutex::default(),
        }
    }

    /// Returns the availability of the upstream: all requests, probes only, or none.
    pub fn availability(&self, now: Instant) -> UpstreamAvailability {
        let until = self.down_until.load(Relaxed);
        if until == 0 {
            return UpstreamAvailability::Available;
        }
        let age = self.age(now).as_millis();
        match age < u128::from(until) {
            true => UpstreamAvailability::Down,
            false if age < u128::from(self.probe_until.load(Relaxed)) => {
                UpstreamAvailability::Probing
            }
            false => UpstreamAvailability::Available,
        }
    }

    /// Called for each request to the upstream. If the upstream has not responded since its down
    /// time, this request is a probe. Other requests wait for the outcome, at most for the down
    /// time. Two workers may begin a probe at once.
    pub fn begin_probe(&self, now: Instant) {
        if self.down_until.load(Relaxed) > 0 {
            let until = self.age(now).saturating_add(self.policy.down_time).as_millis();
            self.probe_until.store(until.try_into().unwrap_or(u64::MAX), Relaxed);
        }
    }

    /// Ends a probe, with or without an outcome: a client that leaves early must not keep other
    /// requests waiting.
    pub fn end_probe(&self) {
        if self.probe_until.load(Relaxed) > 0 {
            self.probe_until.store(0, Relaxed);
        }
    }

    /// Returns true if the last health checks have failed.
    pub fn is_unhealthy(&self) -> bool {
        self.check_result.load(Relaxed) == CheckResult::Failed as u8
    }

    /// Returns true if the upstream waits for its first health check.
    pub fn is_unchecked(&self) -> bool {
        self.check_result.load(Relaxed) == CheckResult::Unchecked as u8
    }

    /// Returns true if health checks permit requests: there are none, or the last ones have passed.
    pub(crate) fn passes_checks(&self) -> bool {
        self.check_result.load(Relaxed) == CheckResult::Passed as u8
    }

    /// Lets the upstream wait for its first health check.
    pub(crate) fn set_unchecked(&self) {
        self.check_result.store(CheckResult::Unchecked as u8, Relaxed);
    }

    /// Takes over the result of health checks of the same upstream in a former configuration, if
    /// there are checks.
    pub(crate) fn take_over(&self, former: &UpstreamHealth) {
        if self.is_unchecked() {
            self.check_result.store(former.check_result.load(Relaxed), Relaxed);
        }
    }

    /// Returns the effective part of the upstream's weight, in percent: less than 100 for a time
    /// after a recovery.
    pub fn percent(&self, now: Instant) -> u32 {
        let slow_start = self.policy.slow_start.as_millis();
        let began_at = self.recovered_at.load(Relaxed).max(self.down_until.load(Relaxed));
        if slow_start == 0 || began_at == 0 {
            return 100;
        }
        let elapsed = self.age(now).as_millis().saturating_sub(began_at.into());
        (elapsed * 100 / slow_start).clamp(1, 100) as u32
    }

    /// Lets the share of the upstream grow again from now on.
    pub(crate) fn set_recovered(&self, now: Instant) {
        let age = self.age(now).as_millis().max(1);
        self.recovered_at.store(age.try_into().unwrap_or(u64::MAX), Relaxed);
    }

    /// Stores the result of health checks. Returns true if the upstream has become unhealthy, or
    /// healthy again.
    pub(crate) fn set_unhealthy(&self, is_unhealthy: bool, now: Instant) -> bool {
        if !is_unhealthy && self.is_unhealthy() {
            self.set_recovered(now);
        }
        let result = if is_unhealthy { CheckResult::Failed } else { CheckResult::Passed };
        let former = self.check_result.swap(result as u8, Relaxed);
        (former == CheckResult::Failed as u8) != is_unhealthy
    }

    /// Records a failed request for which the upstream is responsible.
    pub(crate) fn record_failure(&self, now: Instant) -> Option<HealthChange> {
        let age = self.age(now);
        let exceeds_rate = self.policy.max_failure_rate.is_some() && self.count(age, true);
        let mut state = self.failure_state();
        self.has_failures.store(true, Relaxed);
        let failures = match *state {
            // Requests that were in progress when the down time began do not extend it.
            FailureState::HalfOpen if self.availability(now) == UpstreamAvailability::Down => {
                return None;
            }
            FailureState::HalfOpen => self.policy.max_failures,
            // Failures of two workers may be recorded in another order than their timestamps have.
            FailureState::Failing { since, failures }
                if age.saturating_sub(since) <= self.policy.window =>
            {
                *state = FailureState::Failing { since, failures: failures + 1 };
                failures + 1
            }
            FailureState::Failing { .. } | FailureState::Healthy => {
                *state = FailureState::Failing { since: age, failures: 1 };
                1
            }
        };
        if failures < self.policy.max_failures && !exceeds_rate {
            return (failures == 1).then_some(HealthChange::FirstFailure);
        }
        *state = FailureState::HalfOpen;
        let until = age.saturating_add(self.policy.down_time).as_millis();
        self.down_until.store(until.try_into().unwrap_or(u64::MAX), Relaxed);
        Some(HealthChange::WentDown)
    }

    /// Records a response. Returns true if the upstream was down or being tried again.
    pub(crate) fn record_success(&self, now: impl Fn() -> Instant) -> bool {
        if self.policy.max_failure_rate.is_some() {
            self.count(self.age(now()), false);
        }
        if !self.has_failures.load(Relaxed) {
            return false;
        }
        let mut state = self.failure_state();
        self.has_failures.store(false, Relaxed);
        self.down_until.store(0, Relaxed);
        let has_recovered =
            std::mem::replace(&mut *state, FailureState::Healthy) == FailureState::HalfOpen;
        if has_recovered {
            self.set_recovered(now());
        }
        has_recovered
    }

    /// Counts a request. Returns true if too many requests of the window have failed. The window
    /// ends then.
    fn count(&self, age: Duration, has_failed: bool) -> bool {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if age.saturating_sub(counts.since) > self.policy.window {
            *counts = Counts { since: age, ..Counts::default() };
        }
        counts.requests = counts.requests.saturating_add(1);
        counts.failures = counts.failures.saturating_add(has_failed.into());
        let permitted = self.policy.max_failure_rate.map_or(1_000_000, u64::from);
        let is_exceeded = counts.requests >= MIN_REQUESTS_FOR_RATE
            && u64::from(counts.failures) * 1_000_000 > permitted * u64::from(counts.requests);
        if is_exceeded && has_failed {
            *counts = Counts { since: age, ..Counts::default() };
        }
        is_exceeded && has_failed
    }

    fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.created_at)
    }

    fn failure_state(&self) -> MutexGuard<'_, FailureState> {
        self.failure_state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    enum Event {
        Failed(u64),
        Succeeded,
    }

    #[test]
    fn is_down_after_max_failures_for_down_time() {
        use Event::*;
        // Three failures within ten seconds, then a down time of twenty.
        for (events, (checked_at, expected)) in [
            (&[][..], (0, false)),
            (&[Failed(1), Failed(2)], (2, false)),
            (&[Failed(1), Failed(2), Failed(3)], (3, true)),
            (&[Failed(1), Failed(2), Failed(11)], (11, true)),
            (&[Failed(1), Failed(2), Failed(12)], (12, false)),
            (&[Failed(1), Failed(2), Succeeded, Failed(3)], (3, false)),
            (&[Failed(1), Failed(2), Failed(3)], (22, true)),
            (&[Failed(1), Failed(2), Failed(3)], (23, false)),
            // A request that was in progress does not extend the down time.
            (&[Failed(1), Failed(2), Failed(3), Failed(9)], (23, false)),
            // Failures may be recorded out of order.
            (&[Failed(2), Failed(1), Failed(3)], (3, true)),
            // After the down time one failure starts another.
            (&[Failed(1), Failed(2), Failed(3), Failed(30)], (49, true)),
            (&[Failed(1), Failed(2), Failed(3), Failed(30)], (50, false)),
            (&[Failed(1), Failed(2), Failed(3), Succeeded, Failed(30)], (30, false)),
            (&[Failed(1), Failed(2), Failed(3), Succeeded], (4, false)),
        ] {
            let created_at = Instant::now();
            let at = |seconds| created_at + Duration::from_secs(seconds);
            let policy = FailurePolicy {
                max_failures: 3,
                max_failure_rate: None,
                window: Duration::from_secs(10),
                down_time: Duration::from_secs(20),
                slow_start: Duration::ZERO,
            };
            let health = UpstreamHealth::new(policy, created_at);
            for event in events {
                match event {
                    Failed(seconds) => _ = health.record_failure(at(*seconds)),
                    Succeeded => _ = health.record_success(Instant::now),
                }
            }
            let is_down = health.availability(at(checked_at)) == UpstreamAvailability::Down;
            assert_eq!(is_down, expected, "{events:?} at {checked_at}");
        }
    }

    /// Each row: groups of requests, and if the upstream is down at the end. A group
    /// `(n, second, times)` has `n` requests, and the last request fails. It comes `times` times.
    #[test]
    fn is_down_if_the_share_of_failures_is_too_large() {
        for (requests, expected) in [
            // At most a quarter of the requests may fail, of at least 20 within ten seconds.
            (&[(4, 1, 4)][..], false),
            (&[(4, 1, 5)], false),
            (&[(3, 1, 6)], false),
            (&[(3, 1, 7)], true),
            (&[(3, 1, 6), (3, 12, 6)], false),
            (&[(3, 1, 6), (3, 10, 1)], true),
            (&[(100, 1, 1), (1, 1, 20)], false),
            (&[(40, 1, 1), (1, 1, 12)], false),
            (&[(40, 1, 1), (1, 1, 13)], true),
        ] {
            let created_at = Instant::now();
            let policy = FailurePolicy {
                max_failures: 1_000,
                max_failure_rate: Some(250_000),
                window: Duration::from_secs(10),
                down_time: Duration::from_secs(20),
                slow_start: Duration::ZERO,
            };
            let health = UpstreamHealth::new(policy, created_at);
            let mut last = created_at;
            for (period, seconds, times) in requests {
                last = created_at + Duration::from_secs(*seconds);
                for _ in 0..*times {
                    (1..*period).for_each(|_| _ = health.record_success(|| last));
                    health.record_failure(last);
                }
            }
            let is_down = health.availability(last) == UpstreamAvailability::Down;
            assert_eq!(is_down, expected, "{requests:?}");
        }
    }

    #[test]
    fn one_request_tries_an_upstream_after_its_down_time() {
        use UpstreamAvailability::*;
        let created_at = Instant::now();
        let at = |seconds| created_at + Duration::from_secs(seconds);
        let health = UpstreamHealth::new(
            FailurePolicy {
                max_failures: 1,
                max_failure_rate: None,
                window: Duration::from_secs(10),
                down_time: Duration::from_secs(20),
                slow_start: Duration::ZERO,
            },
            created_at,
        );
        let found = |seconds: &[u64]| -> Vec<_> {
            seconds.iter().map(|second| health.availability(at(*second))).collect()
        };
        // A request to a healthy upstream is no probe.
        health.begin_probe(at(1));
        assert_eq!(found(&[1]), [Available]);
        health.record_failure(at(2));
        assert_eq!(found(&[2, 21, 22]), [Down, Down, Available]);
        // A probe without outcome is followed by another one.
        health.begin_probe(at(30));
        assert_eq!(found(&[30, 49, 50]), [Probing, Probing, Available]);
        // A probe whose client has left.
        health.begin_probe(at(51));
        health.end_probe();
        assert_eq!(found(&[51]), [Available]);
        // A probe that fails.
        health.begin_probe(at(60));
        assert_eq!(health.record_failure(at(65)), Some(HealthChange::WentDown));
        assert_eq!(found(&[65, 84, 85]), [Down, Down, Available]);
        // A probe that succeeds.
        health.begin_probe(at(90));
        assert!(health.record_success(|| at(91)));
        assert_eq!(found(&[91]), [Available]);
    }

    #[test]
    fn share_grows_after_a_recovery() {
        let created_at = Instant::now();
        let at = |seconds| created_at + Duration::from_secs(seconds);
        let policy = FailurePolicy {
            max_failures: 1,
            max_failure_rate: None,
            window: Duration::from_secs(10),
            down_time: Duration::from_secs(20),
            slow_start: Duration::from_secs(100),
        };
        let health = UpstreamHealth::new(policy, created_at);
        assert_eq!(health.percent(at(0)), 100, "no recovery yet");
        health.record_failure(at(10));
        // The first requests after the down time, which ends at 30.
        assert_eq!([30, 31, 80].map(|second| health.percent(at(second))), [1, 1, 50]);
        assert!(health.record_success(|| at(40)));
        let found = [40, 41, 90, 139, 140, 999].map(|second| health.percent(at(second)));
        assert_eq!(found, [1, 1, 50, 99, 100, 100]);
        // A success is no recovery without a failure.
        assert!(!health.record_success(|| at(200)));
        assert_eq!(health.percent(at(200)), 100);
        // Health checks.
        assert!(health.set_unhealthy(true, at(300)) && health.set_unhealthy(false, at(310)));
        assert!(!health.set_unhealthy(false, at(350)));
        // The first check does not change the health, unless it fails.
        for (fails, changes) in [(false, false), (true, true)] {
            health.set_unchecked();
            assert_eq!((health.passes_checks(), health.is_unhealthy()), (false, false));
            assert_eq!(health.set_unhealthy(fails, at(400)), changes);
            assert_eq!(health.passes_checks(), !fails);
        }
        assert_eq!([310, 360, 410].map(|second| health.percent(at(second))), [1, 50, 100]);
    }
}
