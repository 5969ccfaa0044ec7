//! The order in which responses leave the store: S3-FIFO (Yang et al., 2023).
//!
//! A new response enters the small queue, which has a tenth of the memory. If it is used there more
//! than once, it moves to the main queue, otherwise it leaves, and its hash is remembered for a
//! while: if it comes back, it enters the main queue at once. A response at the end of the main
//! queue that was used since then gets another round. A hit therefore only counts, and a scan of a
//! million URLs displaces a tenth of the memory.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};

use crate::cache::stored_response::StoredResponse;

/// Share of the small queue: one part of this many.
const SMALL_PART: usize = 10;

/// Minimum number of dead places in the queues before they are removed.
const MIN_DEAD: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Eviction {
    small: VecDeque<Place>,
    main: VecDeque<Place>,
    ghosts: Ghosts,
    small_bytes: usize,
    bytes: usize,
    entries: usize,
    evicted: u64,
}

/// A response in a queue. If it has left the store by another way, the place is dead.
#[derive(Debug)]
struct Place {
    response: Weak<StoredResponse>,
    bytes: usize,
    hash: u64,
}

/// Hashes of responses that left the small queue.
#[derive(Debug, Default)]
struct Ghosts {
    order: VecDeque<u64>,
    known: HashSet<u64>,
}

/// Limits of a store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) bytes: usize,
    pub(super) entries: usize,
}

impl Eviction {
    /// Adds a response with the hash of its key. Returns the responses that have to leave.
    pub(super) fn insert(
        &mut self,
        response: &Arc<StoredResponse>,
        hash: u64,
        limits: Limits,
    ) -> Vec<Arc<StoredResponse>> {
        let place = Place { response: Arc::downgrade(response), bytes: response.bytes(), hash };
        self.bytes += place.bytes;
        self.entries += 1;
        let was_used = response.uses.load(Relaxed) > 0;
        match was_used || self.ghosts.remove(hash) {
            true => self.main.push_back(place),
            false => {
                self.small_bytes += place.bytes;
                self.small.push_back(place);
            }
        }
        let mut evicted = Vec::new();
        while self.bytes > limits.bytes || self.entries > limits.entries {
            match self.evict_one(limits) {
                Some(response) => evicted.push(response),
                None => break,
            }
        }
        self.evicted += evicted.len() as u64;
        evicted
    }

    /// Takes account of a response that has left the store by another way.
    pub(super) fn forget(&mut self, response: &StoredResponse) {
        self.bytes = self.bytes.saturating_sub(response.bytes());
        self.entries = self.entries.saturating_sub(1);
        if self.small.len() + self.main.len() > 2 * self.entries + MIN_DEAD {
            let is_alive = |place: &Place| place.response.strong_count() > 0;
            self.main.retain(is_alive);
            self.small.retain(is_alive);
            self.small_bytes = self.small.iter().map(|place| place.bytes).sum();
        }
    }

    /// Takes the next response out of the queues; `None` if they are empty.
    fn evict_one(&mut self, limits: Limits) -> Option<Arc<StoredResponse>> {
        loop {
            let is_small = self.small_bytes > limits.bytes / SMALL_PART || self.main.is_empty();
            if is_small && let Some(place) = self.small.pop_front() {
                self.small_bytes -= place.bytes;
                let Some(response) = place.response.upgrade() else { continue };
                if response.uses.load(Relaxed) > 1 {
                    response.uses.store(0, Relaxed);
                    self.main.push_back(place);
                    continue;
                }
                self.ghosts.insert(place.hash, self.entries);
                return Some(self.remove(response));
            }
            let place = self.main.pop_front()?;
            let Some(response) = place.response.upgrade() else { continue };
            match response.uses.load(Relaxed) {
                0 => return Some(self.remove(response)),
                uses => {
                    response.uses.store(uses - 1, Relaxed);
                    self.main.push_back(place);
                }
            }
        }
    }

    fn remove(&mut self, response: Arc<StoredResponse>) -> Arc<StoredResponse> {
        self.bytes -= response.bytes();
        self.entries -= 1;
        response
    }

    /// Memory of all responses in bytes, their number, and the number of evicted ones.
    pub(super) fn totals(&self) -> (usize, usize, u64) {
        (self.bytes, self.entries, self.evicted)
    }
}

impl Ghosts {
    fn insert(&mut self, hash: u64, max: usize) {
        if self.known.insert(hash) {
            self.order.push_back(hash);
        }
        while self.order.len() > max.max(1) {
            let oldest = self.order.pop_front();
            oldest.map(|oldest| self.known.remove(&oldest));
        }
    }

    fn remove(&mut self, hash: u64) -> bool {
        self.known.remove(&hash)
    }
}
