//! How many scripts run at a time, in all workers together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::failure::Failure;
use super::settings::Settings;

/// A place for one script. It is free again when this is dropped.
pub(super) type Place = OwnedSemaphorePermit;

pub(super) struct Places {
    free: Arc<Semaphore>,
    waiting: AtomicUsize,
    max_waiting: usize,
    patience: Duration,
}

impl Places {
    pub(super) fn new(settings: &Settings) -> Places {
        Places {
            free: Arc::new(Semaphore::new(settings.max_processes.min(Semaphore::MAX_PERMITS))),
            waiting: AtomicUsize::new(0),
            max_waiting: settings.max_queued,
            patience: settings.queue_timeout,
        }
    }

    /// A place; who comes first gets one first.
    pub(super) async fn take(&self) -> Result<Place, Failure> {
        if let Ok(place) = self.free.clone().try_acquire_owned() {
            return Ok(place);
        }
        let waiting = Waiting::join(&self.waiting);
        if waiting.before >= self.max_waiting {
            return Err(Failure::Full);
        }
        match timeout(self.patience, self.free.clone().acquire_owned()).await {
            Ok(Ok(place)) => Ok(place),
            Ok(Err(_)) | Err(_) => Err(Failure::Full),
        }
    }
}

/// One of those who wait.
struct Waiting<'a> {
    count: &'a AtomicUsize,
    before: usize,
}

impl Waiting<'_> {
    fn join(count: &AtomicUsize) -> Waiting<'_> {
        Waiting { count, before: count.fetch_add(1, Relaxed) }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Relaxed);
    }
}
