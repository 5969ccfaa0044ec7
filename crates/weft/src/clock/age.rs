//! Ages of files.

use std::time::{Duration, SystemTime};

/// Returns true if a time is at least `min_age` in the past.
pub(crate) fn is_older_than(time: SystemTime, min_age: Duration) -> bool {
    SystemTime::now().duration_since(time).is_ok_and(|age| age >= min_age)
}
