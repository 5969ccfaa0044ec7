//! The time of day.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Returns true if a time is at least `min_age` in the past.
pub(crate) fn is_older_than(time: SystemTime, min_age: Duration) -> bool {
    SystemTime::now().duration_since(time).is_ok_and(|age| age >= min_age)
}

/// Seconds since 1970, for code without access to the cached date of a worker.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
