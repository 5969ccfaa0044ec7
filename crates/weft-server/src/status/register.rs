//! All who count, and what has become of the configuration.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use super::routes::Tally;
use super::worker::WorkerCounts;

/// Knows all that is counted in this process. A clone is the same register.
#[derive(Clone)]
pub(crate) struct Register(Arc<Shared>);

struct Shared {
    workers: Mutex<Vec<Arc<WorkerCounts>>>,
    tallies: Mutex<Vec<Arc<Tally>>>,
    life: Mutex<Life>,
}

/// What has become of the program so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Life {
    pub(super) started: SystemTime,
    /// When the configuration that counts was loaded.
    pub(super) loaded: SystemTime,
    pub(super) reloads: u64,
    pub(super) failed_reloads: u64,
    pub(super) has_last_failed: bool,
}

impl Register {
    pub(crate) fn new() -> Register {
        let now = SystemTime::now();
        let life = Life {
            started: now,
            loaded: now,
            reloads: 0,
            failed_reloads: 0,
            has_last_failed: false,
        };
        let (workers, tallies) = (Mutex::default(), Mutex::default());
        Register(Arc::new(Shared { workers, tallies, life: Mutex::new(life) }))
    }

    /// What another worker counts of its connections. To be called in its thread.
    pub(super) fn worker(&self) -> Arc<WorkerCounts> {
        let counts = Arc::new(WorkerCounts::of_this_thread());
        lock(&self.0.workers).push(counts.clone());
        counts
    }

    /// What another worker counts of its routes.
    pub(crate) fn tally(&self) -> Arc<Tally> {
        let tally = Arc::<Tally>::default();
        lock(&self.0.tallies).push(tally.clone());
        tally
    }

    /// Notes what became of a reload.
    pub(crate) fn reloaded(&self, is_done: bool) {
        let mut life = lock(&self.0.life);
        life.has_last_failed = !is_done;
        match is_done {
            true => {
                life.reloads += 1;
                life.loaded = SystemTime::now();
            }
            false => life.failed_reloads += 1,
        }
    }

    pub(super) fn workers(&self) -> Vec<Arc<WorkerCounts>> {
        lock(&self.0.workers).clone()
    }

    pub(super) fn tallies(&self) -> Vec<Arc<Tally>> {
        lock(&self.0.tallies).clone()
    }

    pub(super) fn life(&self) -> Life {
        *lock(&self.0.life)
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
