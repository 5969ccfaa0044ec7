//! The order of TLS handshakes within a worker.

use std::cell::Cell;

use tokio::sync::{Semaphore, SemaphorePermit};

/// Semaphore that lets one connection of a worker at a time take a handshake step.
///
/// A step takes up to a millisecond of cryptography, a hundred times as long as a request. Between
/// two steps the event loop polls other tasks, so that a burst of handshakes does not block the
/// other connections. A handshake that is alone waits for its client after each step anyway.
pub(super) struct HandshakeSemaphore {
    steps: Semaphore,
    /// Number of handshakes in progress.
    handshakes: Cell<usize>,
}

impl Default for HandshakeSemaphore {
    fn default() -> HandshakeSemaphore {
        HandshakeSemaphore { steps: Semaphore::new(1), handshakes: Cell::new(0) }
    }
}

impl HandshakeSemaphore {
    /// Counts a handshake until the returned guard is dropped.
    pub(super) fn begin(&self) -> HandshakeInProgress<'_> {
        self.handshakes.update(|count| count + 1);
        HandshakeInProgress(&self.handshakes)
    }

    /// Returns true if several handshakes are in progress.
    pub(super) fn is_contended(&self) -> bool {
        self.handshakes.get() > 1
    }

    /// Waits for the permission to take one step.
    pub(super) async fn acquire(&self) -> SemaphorePermit<'_> {
        self.steps.acquire().await.expect("the semaphore is never closed")
    }
}

/// Counts a handshake as long as it is in progress.
pub(super) struct HandshakeInProgress<'a>(&'a Cell<usize>);

impl Drop for HandshakeInProgress<'_> {
    fn drop(&mut self) {
        self.0.update(|count| count - 1);
    }
}
