//! Registry of all metrics, and the history of configuration reloads.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use serde::Serialize;

use super::worker::{MetricsHooks, WorkerCounts};
use crate::router::RouteMetrics;

/// References all metrics of this process. Clones share the same registry.
#[derive(Clone)]
pub(crate) struct MetricsRegistry(Arc<Shared>);

struct Shared {
    started: SystemTime,
    workers: Mutex<Vec<Arc<WorkerCounts>>>,
    route_metrics: Mutex<Vec<Arc<RouteMetrics>>>,
    configuration: Mutex<Configuration>,
    is_stopping: AtomicBool,
}

/// The configuration in effect, and the reloads so far.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Configuration {
    /// Unix time at which the configuration in effect was loaded, in seconds.
    pub(super) loaded: f64,
    pub(super) reloads: u64,
    pub(super) failed_reloads: u64,
    pub(super) has_last_reload_failed: bool,
}

impl MetricsRegistry {
    pub(crate) fn new() -> MetricsRegistry {
        let started = SystemTime::now();
        let configuration =
            Configuration { loaded: unix_seconds(started), ..Configuration::default() };
        MetricsRegistry(Arc::new(Shared {
            started,
            workers: Mutex::default(),
            route_metrics: Mutex::default(),
            configuration: Mutex::new(configuration),
            is_stopping: AtomicBool::new(false),
        }))
    }

    /// Wraps the hooks of a new worker, whose counters are registered. Must be called on the
    /// worker's thread.
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
        let mut configuration = lock(&self.0.configuration);
        configuration.has_last_reload_failed = !is_success;
        match is_success {
            true => {
                configuration.reloads += 1;
                configuration.loaded = unix_seconds(SystemTime::now());
            }
            false => configuration.failed_reloads += 1,
        }
    }

    /// Records that the process stops soon, so that it should get no further requests.
    pub(crate) fn set_stopping(&self) {
        self.0.is_stopping.store(true, Relaxed);
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.0.is_stopping.load(Relaxed)
    }

    pub(super) fn workers(&self) -> Vec<Arc<WorkerCounts>> {
        lock(&self.0.workers).clone()
    }

    pub(super) fn route_metrics(&self) -> Vec<Arc<RouteMetrics>> {
        lock(&self.0.route_metrics).clone()
    }

    pub(super) fn started(&self) -> SystemTime {
        self.0.started
    }

    pub(super) fn configuration(&self) -> Configuration {
        *lock(&self.0.configuration)
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn unix_seconds(time: SystemTime) -> f64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}
