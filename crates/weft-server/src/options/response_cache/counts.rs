//! Counts of the cache of a route.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use weft::cache::{Cache, Statistics};

/// Counts of the cache of a route, from all workers.
#[derive(Clone)]
pub(crate) struct RouteCacheCounts {
    cache: Cache,
    /// Requests that have passed the cache because of `bypass`.
    bypassed: Arc<AtomicU64>,
}

impl RouteCacheCounts {
    pub(super) fn new(cache: Cache) -> RouteCacheCounts {
        RouteCacheCounts { cache, bypassed: Arc::default() }
    }

    pub(super) fn add_bypassed(&self) {
        self.bypassed.fetch_add(1, Relaxed);
    }

    /// Returns the counts of the route.
    pub(crate) fn statistics(&self) -> Statistics {
        let mut statistics = self.cache.statistics();
        statistics.bypassed += self.bypassed.load(Relaxed);
        statistics
    }
}
