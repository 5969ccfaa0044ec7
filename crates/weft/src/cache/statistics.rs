//! Counts of a cache.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Counts since the start, of a [`Store`](super::Store) or of one [`Cache`](super::Cache).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Requests answered by a fresh stored response.
    pub hits: u64,
    /// Requests forwarded because no response was stored for them.
    pub misses: u64,
    /// Requests answered by a stale response.
    pub stale: u64,
    /// Stored responses that the application confirmed by 304.
    pub revalidated: u64,
    /// Requests answered by the response to another request.
    pub collapsed: u64,
    /// Requests passed by the cache.
    pub bypassed: u64,
    /// Bytes of content sent from the store.
    pub bytes_sent: u64,
    /// Sum of the ages in seconds of the stored responses that were sent, fresh or stale.
    pub age_seconds: u64,
}

/// A request, by its result.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    Hit,
    Miss,
    Stale,
    Revalidated,
    Collapsed,
    Bypassed,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    events: [AtomicU64; 6],
    bytes_sent: AtomicU64,
    age_seconds: AtomicU64,
}

impl Counters {
    pub(super) fn add(&self, event: Event) {
        self.events[event as usize].fetch_add(1, Relaxed);
    }

    pub(super) fn add_sent(&self, bytes: u64) {
        self.bytes_sent.fetch_add(bytes, Relaxed);
    }

    pub(super) fn add_age(&self, seconds: u64) {
        self.age_seconds.fetch_add(seconds, Relaxed);
    }

    pub(super) fn statistics(&self) -> Statistics {
        let of = |event: Event| self.events[event as usize].load(Relaxed);
        Statistics {
            hits: of(Event::Hit),
            misses: of(Event::Miss),
            stale: of(Event::Stale),
            revalidated: of(Event::Revalidated),
            collapsed: of(Event::Collapsed),
            bypassed: of(Event::Bypassed),
            bytes_sent: self.bytes_sent.load(Relaxed),
            age_seconds: self.age_seconds.load(Relaxed),
        }
    }
}
