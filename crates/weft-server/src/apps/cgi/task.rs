//! A task that belongs to somebody.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::timeout;

/// A task that ends with the value.
pub(super) struct Task(JoinHandle<()>);

impl Task {
    pub(super) fn spawn(work: impl Future<Output = ()> + Send + 'static) -> Task {
        Task(tokio::spawn(work))
    }

    /// Waits for its end, but no longer than that.
    pub(super) async fn end_within(mut self, patience: Duration) {
        let _ended_or_not = timeout(patience, &mut self.0).await;
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}
