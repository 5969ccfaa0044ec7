//! Log lines about failures. The first failure with a reason has a line, and the other failures
//! with this reason have one line together.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::name::Name;

/// Time without a failure after which the failures of a group are summed up.
const QUIET: Duration = Duration::from_secs(5);

/// Longest time until the failures of a group are summed up.
const MAX_PERIOD: Duration = Duration::from_secs(600);

/// Maximum number of reasons that are distinguished.
const MAX_GROUPS: usize = 32;

/// Reason of all failures beyond the maximum number of reasons.
const VARIOUS: &str = "for various reasons";

/// Failures that are not logged yet.
#[derive(Debug, Default)]
pub(crate) struct FailureLog(Mutex<Vec<FailureGroup>>);

/// Failures with the same reason.
#[derive(Debug)]
struct FailureGroup {
    reason: String,
    /// The first name. Each of its failures has a line, because the delay in the line differs.
    first: Name,
    last: Name,
    count: usize,
    started: Instant,
    ended: Instant,
}

impl FailureLog {
    /// Logs the first failure with a reason. Counts a failure that follows soon.
    pub(crate) fn report(&self, name: &Name, reason: &str, now: Instant, line: &str) {
        if self.is_first(name, reason, now) {
            log::error!("{line}");
        }
    }

    fn is_first(&self, name: &Name, reason: &str, now: Instant) -> bool {
        let reason = reason.replace(name.as_str(), "NAME");
        let mut groups = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = groups.len() >= MAX_GROUPS;
        let position = groups.iter().position(|group| group.reason == reason);
        let various = || groups.iter().position(|group| group.reason == VARIOUS);
        let position = position.or_else(|| if is_full { various() } else { None });
        match position {
            Some(position) => {
                let group = &mut groups[position];
                if group.first == *name {
                    return true;
                }
                (group.count, group.ended) = (group.count + 1, now);
                group.last = name.clone();
                false
            }
            None => {
                let reason = if is_full { VARIOUS.to_owned() } else { reason };
                let (first, last) = (name.clone(), name.clone());
                groups.push(FailureGroup {
                    reason,
                    first,
                    last,
                    count: 0,
                    started: now,
                    ended: now,
                });
                true
            }
        }
    }

    /// Logs the sums of groups that have ended. Returns the time at which the next group may end.
    pub(crate) fn log_sums(&self, now: Instant) -> Option<Instant> {
        let (sums, next) = self.take_sums(now);
        for sum in sums {
            log::error!("{sum}");
        }
        next
    }

    fn take_sums(&self, now: Instant) -> (Vec<String>, Option<Instant>) {
        let mut groups = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let end = |group: &FailureGroup| (group.ended + QUIET).min(group.started + MAX_PERIOD);
        let mut sums = Vec::new();
        groups.retain(|group| {
            let is_ended = end(group) <= now;
            if is_ended && group.count > 0 {
                let FailureGroup { reason, last, count, .. } = group;
                let time = group.ended.saturating_duration_since(group.started).as_secs();
                let failures = if *count == 1 { "failure" } else { "failures" };
                sums.push(format!(
                    "no certificates for other names: {count} more {failures} within {time} s, the \
                     last one for {last}: {reason}"
                ));
            }
            !is_ended
        });
        (sums, groups.iter().map(end).min())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: usize) -> Name {
        format!("n{number}.example").parse().unwrap()
    }

    #[test]
    fn failures_of_many_names_have_two_lines() {
        let (failures, start) = (FailureLog::default(), Instant::now());
        let reason = |number| format!("{} is refused", name(number));
        let at = |seconds| start + Duration::from_secs(seconds);
        let first: Vec<_> =
            (0..1_000).filter(|it| failures.is_first(&name(*it), &reason(*it), at(1))).collect();
        assert_eq!(first, [0]);
        assert!(failures.is_first(&name(0), &reason(0), at(2)), "the first name has a line again");
        assert_eq!(failures.take_sums(at(3)), (vec![], Some(at(6))));
        let sum = "no certificates for other names: 999 more failures within 0 s, the last one for \
                   n999.example: NAME is refused";
        assert_eq!(failures.take_sums(at(6)), (vec![sum.to_owned()], None));
        assert!(failures.is_first(&name(7), &reason(7), at(6)));
        assert_eq!(failures.take_sums(at(60)), (vec![], None));
    }

    #[test]
    fn failures_without_end_are_summed_up_too() {
        let (failures, start) = (FailureLog::default(), Instant::now());
        let mut sums = 0;
        for second in 0..=1_201 {
            let now = start + Duration::from_secs(second);
            failures.is_first(&name(second as usize), "refused", now);
            sums += failures.take_sums(now).0.len();
        }
        assert_eq!(sums, 2);
    }

    #[test]
    fn reasons_are_bounded() {
        let (failures, now) = (FailureLog::default(), Instant::now());
        let first = (0..1_000).filter(|it| failures.is_first(&name(*it), &it.to_string(), now));
        assert_eq!(first.count(), MAX_GROUPS + 1);
        assert_eq!(failures.0.lock().unwrap().len(), MAX_GROUPS + 1);
        let (sums, _) = failures.take_sums(now + QUIET);
        assert_eq!(sums.len(), 1);
        assert!(sums[0].contains("967 more failures") && sums[0].ends_with(VARIOUS), "{sums:?}");
    }
}
