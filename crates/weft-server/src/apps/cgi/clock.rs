//! How long a script has been waited for.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Sleep, sleep};

use super::upload::{Progress, Turn};

/// A clock that runs while the script is silent and it is not the client who keeps it waiting.
pub(super) struct Clock {
    patience: Duration,
    progress: Arc<Progress>,
    running: Option<(Pin<Box<Sleep>>, Turn)>,
}

impl Clock {
    pub(super) fn new(patience: Duration, progress: Arc<Progress>) -> Clock {
        Clock { patience, progress, running: None }
    }

    /// Runs on, or begins to.
    pub(super) fn poll_expired(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let start = || (Box::pin(sleep(self.patience)), self.progress.turn());
            let (sleep, turn) = self.running.get_or_insert_with(start);
            ready!(sleep.as_mut().poll(cx));
            let now = self.progress.turn();
            if now == *turn && now != Turn::Client {
                return Poll::Ready(());
            }
            self.running = None;
        }
    }

    /// Something has come: the next wait begins anew.
    pub(super) fn stop(&mut self) {
        self.running = None;
    }

    /// Has another patience from now on.
    pub(super) fn set(&mut self, patience: Duration) {
        self.patience = patience;
        self.stop();
    }
}
