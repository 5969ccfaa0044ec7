//! The time of day.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Whether an instant lies so long in the past.
pub(crate) fn is_past(time: SystemTime, by: Duration) -> bool {
    SystemTime::now().duration_since(time).is_ok_and(|age| age >= by)
}

/// Seconds since 1970, for those who have no worker's [`Date`] at hand.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
