//! Memory of URLs whose responses are not stored, or not yet.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Maximum number of remembered URLs of each kind. A full table is forgotten.
const MAX_URLS: usize = 65_536;

/// Seconds for which requests of a URL whose response is private do not wait for each other.
const PRIVATE_SECONDS: u64 = 10;

#[derive(Debug, Default)]
pub(super) struct Admission {
    tables: Mutex<Tables>,
}

#[derive(Debug, Default)]
struct Tables {
    /// Number of requests, by the hash of the URL.
    requests: HashMap<u64, u32>,
    /// Time up to which a URL is known to have private responses.
    private_until: HashMap<u64, u64>,
}

impl Admission {
    /// Counts a request. Returns true if it is the `min_uses`th or a later one.
    pub(super) fn admits(&self, hash: u64, min_uses: u32) -> bool {
        if min_uses <= 1 {
            return true;
        }
        let mut tables = self.lock();
        bound(&mut tables.requests);
        let requests = tables.requests.entry(hash).or_default();
        *requests = requests.saturating_add(1);
        *requests >= min_uses
    }

    /// Records that the response of a URL is private.
    pub(super) fn set_private(&self, hash: u64, now: u64) {
        let mut tables = self.lock();
        bound(&mut tables.private_until);
        tables.private_until.insert(hash, now + PRIVATE_SECONDS);
    }

    /// Returns true if the response of a URL was private a short time ago.
    pub(super) fn is_private(&self, hash: u64, now: u64) -> bool {
        self.lock().private_until.get(&hash).is_some_and(|until| now < *until)
    }

    /// Forgets that the response of a URL was private.
    pub(super) fn set_shared(&self, hash: u64) {
        self.lock().private_until.remove(&hash);
    }

    fn lock(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn bound<T>(table: &mut HashMap<u64, T>) {
    if table.len() >= MAX_URLS {
        table.clear();
    }
}
