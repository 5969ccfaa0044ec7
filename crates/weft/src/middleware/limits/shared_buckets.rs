//! Changes of the buckets of a table that several processes share.

use std::mem;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Mutex, PoisonError};

use crate::middleware::limits::bucket_rate::Rate;

/// Number of slots in a set of the table.
pub(super) const SLOTS: usize = 16;

/// State of a table whose buckets are shared.
pub(super) struct SharedTable {
    /// Numbers of the sets with changes that were not reported yet; each set at most once.
    pub(super) changed: Mutex<Vec<u32>>,
    /// A bucket is half empty: its changes are urgent.
    pub(super) is_urgent: AtomicBool,
    /// Number of processes that have a part of the limit each, while they cannot exchange buckets.
    pub(super) divisor: AtomicU32,
}

/// Counts of the slots of a set.
#[derive(Default)]
pub(super) struct SharedSet {
    pub(super) counts: [Count; SLOTS],
    buckets: u32,
    pub(super) is_listed: bool,
}

#[derive(Clone, Copy, Default)]
pub(super) struct Count {
    pub(super) bucket: u32,
    pub(super) acknowledged: u32,
    pub(super) total: u32,
}

impl Default for SharedTable {
    fn default() -> SharedTable {
        let changed = Mutex::default();
        SharedTable { changed, is_urgent: AtomicBool::new(false), divisor: AtomicU32::new(1) }
    }
}

impl SharedTable {
    /// Returns the part of the rate that this process may use by itself.
    pub(super) fn divided(&self, rate: Rate) -> Rate {
        match self.divisor.load(Relaxed) {
            1 => rate,
            processes => Rate {
                interval: rate.interval.saturating_mul(processes.into()),
                burst: (rate.burst / processes).max(1),
            },
        }
    }

    /// Lists a set for the next report.
    pub(super) fn note(&self, set: &mut SharedSet, number: usize, is_urgent: bool) {
        if is_urgent && !self.is_urgent.load(Relaxed) {
            self.is_urgent.store(true, Relaxed);
        }
        if !mem::replace(&mut set.is_listed, true) {
            self.list(number as u32);
        }
    }

    /// Lists a set whose mark is set.
    pub(super) fn list(&self, number: u32) {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner).push(number);
    }
}

impl SharedSet {
    /// Counts a request of a slot, which has got another client if `is_new`.
    pub(super) fn count(&mut self, slot: usize, is_new: bool) {
        if is_new {
            self.buckets = self.buckets.wrapping_add(1);
            self.counts[slot] = Count { bucket: self.buckets, acknowledged: 0, total: 0 };
        }
        let count = &mut self.counts[slot];
        count.total = count.total.saturating_add(1);
    }
}
