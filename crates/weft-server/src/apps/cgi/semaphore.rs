//! Limit on the number of scripts that run at the same time, shared by all workers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::failure::Failure;
use super::settings::Settings;

/// Permit to run one script. Released when dropped.
pub(super) type ScriptPermit = OwnedSemaphorePermit;

/// Semaphore for script processes with a bounded queue of waiting requests.
pub(super) struct ScriptSemaphore {
    permits: Arc<Semaphore>,
    queued: AtomicUsize,
    max_queued: usize,
    queue_timeout: Duration,
}

impl ScriptSemaphore {
    pub(super) fn new(settings: &Settings) -> ScriptSemaphore {
        ScriptSemaphore {
            permits: Arc::new(Semaphore::new(settings.max_processes.min(Semaphore::MAX_PERMITS))),
            queued: AtomicUsize::new(0),
            max_queued: settings.max_queued,
            queue_timeout: settings.queue_timeout,
        }
    }

    /// Acquires a permit. Waiting requests are served in order of arrival.
    pub(super) async fn acquire(&self) -> Result<ScriptPermit, Failure> {
        if let Ok(permit) = self.permits.clone().try_acquire_owned() {
            return Ok(permit);
        }
        let entry = QueueEntry::join(&self.queued);
        if entry.ahead >= self.max_queued {
            return Err(Failure::Overloaded);
        }
        match timeout(self.queue_timeout, self.permits.clone().acquire_owned()).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) | Err(_) => Err(Failure::Overloaded),
        }
    }
}

/// Queued request; leaves the queue when dropped.
struct QueueEntry<'a> {
    queued: &'a AtomicUsize,
    /// Number of requests queued before this one.
    ahead: usize,
}

impl QueueEntry<'_> {
    fn join(queued: &AtomicUsize) -> QueueEntry<'_> {
        QueueEntry { queued, ahead: queued.fetch_add(1, Relaxed) }
    }
}

impl Drop for QueueEntry<'_> {
    fn drop(&mut self) {
        self.queued.fetch_sub(1, Relaxed);
    }
}
