//! The shutdown of the server, as requests and workers observe it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

/// Receiver of the shutdown of the server, with its grace periods.
pub(crate) type ShutdownSignal = watch::Receiver<Option<Drain>>;

/// The grace periods of a shutdown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drain {
    /// Maximum time for requests in flight to complete.
    pub(crate) grace: Duration,
    /// Time in which an idle connection may send a last request.
    pub(crate) idle_grace: Duration,
}

/// Notifies a long-running response of the server's shutdown, so that it can end on its own.
///
/// ```
/// # async fn example(request: weft::Request) {
/// let mut shutdown = request.shutdown();
/// tokio::select! {
///     () = shutdown.requested() => { /* send the last event */ }
///     // event = next_event() => { … }
/// }
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Shutdown(Arc<ShutdownSignal>);

impl Shutdown {
    pub(super) fn new(signal: Arc<ShutdownSignal>) -> Shutdown {
        Shutdown(signal)
    }

    /// Waits until a shutdown of the server is requested.
    pub async fn requested(&mut self) {
        // Cloned only here: all workers update the same count of receivers.
        let mut shutdown = ShutdownSignal::clone(&self.0);
        if shutdown.wait_for(Option::is_some).await.is_err() {
            // The sender was dropped: no shutdown can follow.
            std::future::pending().await
        }
    }

    /// Returns true if a shutdown of the server was requested.
    pub fn is_requested(&self) -> bool {
        self.0.borrow().is_some()
    }
}
