//! Numbers of lines that were lost, for the metrics. They survive a reload.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum number of logs with a number of their own. Reloads may name further ones.
const MAX_LOGS: usize = 1_000;

/// Numbers by the names of the logs.
static LOST_LINES: Mutex<BTreeMap<String, Arc<AtomicU64>>> = Mutex::new(BTreeMap::new());

/// The number of a log.
pub(super) struct LostLines(Arc<AtomicU64>);

impl LostLines {
    /// Returns the number of the log with this name, such as `access log /var/log/access.log`.
    pub(super) fn of(log: &str) -> LostLines {
        let mut all = LOST_LINES.lock().unwrap_or_else(PoisonError::into_inner);
        let log = if all.len() < MAX_LOGS || all.contains_key(log) { log } else { "others" };
        LostLines(all.entry(log.to_owned()).or_default().clone())
    }

    pub(super) fn add(&self, lines: u64) {
        self.0.fetch_add(lines, Relaxed);
    }
}

/// Returns the numbers of lost lines by the names of the logs.
pub(crate) fn lost_lines() -> Vec<(String, u64)> {
    let all = LOST_LINES.lock().unwrap_or_else(PoisonError::into_inner);
    all.iter().map(|(log, lines)| (log.clone(), lines.load(Relaxed))).collect()
}
