//! A task with an owner.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Handle of a task that is aborted when the handle is dropped.
pub(crate) struct AbortOnDrop(JoinHandle<()>);

impl AbortOnDrop {
    pub(crate) fn spawn(work: impl Future<Output = ()> + Send + 'static) -> AbortOnDrop {
        AbortOnDrop(tokio::spawn(work))
    }

    /// Waits for the task to complete; aborts it after `limit`.
    pub(crate) async fn join_within(mut self, limit: Duration) {
        let _completed_or_not = timeout(limit, &mut self.0).await;
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
