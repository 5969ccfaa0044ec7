//! The pools whose metrics a proxy reports.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::pool::connection_pool::ConnectionPool;
use crate::pool::upstream_metrics::UpstreamMetrics;

/// Pools of the workers that collect metrics.
#[derive(Default)]
pub(crate) struct CountedPools(Mutex<Vec<Weak<ConnectionPool>>>);

impl CountedPools {
    /// Collects metrics of the requests in these pools.
    pub(crate) fn add(&self, pools: &[Arc<ConnectionPool>]) {
        let mut counted = self.lock();
        counted.retain(|pool| pool.strong_count() > 0);
        let is_new =
            |pool: &&Arc<ConnectionPool>| pool.metrics.set(UpstreamMetrics::default()).is_ok();
        counted.extend(pools.iter().filter(is_new).map(Arc::downgrade));
    }

    /// Returns the pools of all workers.
    pub(crate) fn all(&self) -> Vec<Arc<ConnectionPool>> {
        self.lock().iter().filter_map(Weak::upgrade).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<ConnectionPool>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
