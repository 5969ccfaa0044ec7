//! Registry of all metrics, and the history of configuration reloads.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use super::worker::{MetricsHooks, WorkerCounts};
use crate::router::RouteMetrics;

/// References all metrics of this process. Clones share the same registry.
#[derive(Clone)]
pub(crate) struct MetricsRegistry(Arc<Shared>);

struct Shared {
    workers: Mutex<Vec<Arc<WorkerCounts>>>,
    route_metrics: Mutex<Vec<Arc<RouteMetrics>>>,
    lifecycle: Mutex<Lifecycle>,
}

/// Start of the program and its reloads so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lifecycle {
    pub(super) started: SystemTime,
    /// Time at which the active configuration was loaded.
    pub(super) loaded: SystemTime,
    pub(super) reloads: u64,
    pub(super) failed_reloads: u64,
    pub(super) has_last_reload_failed: bool,
}

impl MetricsRegistry {
    pub(crate) fn new() -> MetricsRegistry {
        let now = SystemTime::now();
        let lifecycle = Lifecycle {
            started: now,
            loaded: now,
            reloads: 0,
            failed_reloads: 0,
            has_last_reload_failed: false,
        };
        let (workers, route_metrics) = (Mutex::default(), Mutex::default());
        MetricsRegistry(Arc::new(Shared {
            workers,
            route_metrics,
            lifecycle: Mutex::new(lifecycle),
        }))
    }

    /// Wraps the hooks of a new worker, whose counters are registered. Must be called on the worker's thread.
    pub(crate) fn count_events<H>(&self, hooks: H) -> MetricsHooks<H> {
        let counts = Arc::new(WorkerCounts::of_this_thread());
        lock(&self.0.workers).push(counts.clone());
        MetricsHooks { hooks, counts }
    }

    /// Registers the route metrics of a new worker.
    pub(crate) fn register_route_metrics(&self) -> Arc<RouteMetrics> {
        let metrics = Arc::<RouteMetrics>::default();
        lock(&self.0.route_metrics).push(metrics.clone());
        metrics
    }

    /// Records the outcome of a reload.
    pub(crate) fn record_reload(&self, is_success: bool) {
        let mut lifecycle = lock(&self.0.lifecycle);
        lifecycle.has_last_reload_failed = !is_success;
        match is_success {
            true => {
                lifecycle.reloads += 1;
                lifecycle.loaded = SystemTime::now();
            }
            false => lifecycle.failed_reloads += 1,
        }
    }

    pub(super) fn workers(&self) -> Vec<Arc<WorkerCounts>> {
        lock(&self.0.workers).clone()
    }

    pub(super) fn route_metrics(&self) -> Vec<Arc<RouteMetrics>> {
        lock(&self.0.route_metrics).clone()
    }

    pub(super) fn lifecycle(&self) -> Lifecycle {
        *lock(&self.0.lifecycle)
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
