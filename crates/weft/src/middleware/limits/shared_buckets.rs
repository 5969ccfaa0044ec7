//! Changes of the buckets of a table that several processes share.

use std::collections::VecDeque;
use std::mem;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::middleware::limits::bucket_rate::Rate;

/// Number of slots in a set of the table.
pub(super) const SLOTS: usize = 16;

/// State of a table whose buckets are shared.
pub(super) struct SharedTable {
    /// Numbers of the sets with changes that were not reported yet, the oldest first; each set at
    /// most once.
    changed: Mutex<VecDeque<u32>>,
    /// A bucket is half empty: its changes are urgent.
    pub(super) is_urgent: AtomicBool,
    /// Number of processes that have a part of the limit each, while they cannot exchange buckets.
    pub(super) processes: AtomicU32,
}

/// Counts of the slots of a set.
#[derive(Default)]
pub(super) struct SharedSet {
    pub(super) counts: [Count; SLOTS],
    /// Number of the last bucket.
    last_bucket: u32,
    /// The set is among the changed ones of the table.
    pub(super) is_listed: bool,
}

/// Requests of the client of a slot; see [`TakenRequests`](super::TakenRequests).
#[derive(Clone, Copy, Default)]
pub(super) struct Count {
    pub(super) bucket: u32,
    pub(super) acknowledged: u64,
    pub(super) total: u64,
}

impl Default for SharedTable {
    fn default() -> SharedTable {
        let changed = Mutex::default();
        SharedTable { changed, is_urgent: AtomicBool::new(false), processes: AtomicU32::new(1) }
    }
}

impl SharedTable {
    /// Returns the part of the rate that this process may use by itself.
    pub(super) fn divided(&self, rate: Rate) -> Rate {
        match self.processes.load(Relaxed) {
            1 => rate,
            processes => rate.divided(processes),
        }
    }

    /// Lists a set as changed, which may be urgent.
    pub(super) fn note(&self, set: &mut SharedSet, number: usize, is_urgent: bool) {
        // A store by each request would contend for the cache line.
        if is_urgent && !self.is_urgent.load(Relaxed) {
            self.is_urgent.store(true, Relaxed);
        }
        if !mem::replace(&mut set.is_listed, true) {
            self.changed().push_back(number as u32);
        }
    }

    /// Returns the number of the set whose change is the oldest, and removes it from the list.
    pub(super) fn next_changed(&self) -> Option<usize> {
        self.changed().pop_front().map(|number| number as usize)
    }

    fn changed(&self) -> MutexGuard<'_, VecDeque<u32>> {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SharedSet {
    /// Counts a request of a slot. With `is_new`, it is the first one of its client.
    pub(super) fn count(&mut self, slot: usize, is_new: bool) {
        if is_new {
            self.last_bucket = self.last_bucket.wrapping_add(1);
            self.counts[slot] = Count { bucket: self.last_bucket, ..Count::default() };
        }
        self.counts[slot].total += 1;
    }
}
