//! The time of day.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Seconds since 1970, for code without access to the cached date of a worker.
pub(crate) fn now() -> u64 {
    since_1970().as_secs()
}

/// Time since 1970.
pub(crate) fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
