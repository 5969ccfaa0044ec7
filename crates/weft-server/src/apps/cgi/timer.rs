//! Timeout for a script that makes no progress.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Sleep, sleep};

use super::upload::{Progress, WaitingFor};

/// Expires after the script has been inactive for `timeout`. Time spent waiting for the client
/// does not count, and progress of the request body restarts the timeout.
pub(super) struct InactivityTimer {
    timeout: Duration,
    progress: Arc<Progress>,
    running: Option<(Pin<Box<Sleep>>, WaitingFor)>,
}

impl InactivityTimer {
    pub(super) fn new(timeout: Duration, progress: Arc<Progress>) -> InactivityTimer {
        InactivityTimer { timeout, progress, running: None }
    }

    /// Starts the timer if it is not running; ready once it has expired.
    pub(super) fn poll_expired(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let start = || (Box::pin(sleep(self.timeout)), self.progress.waiting_for());
            let (sleep, waited_for) = self.running.get_or_insert_with(start);
            ready!(sleep.as_mut().poll(cx));
            let now = self.progress.waiting_for();
            if now == *waited_for && now != WaitingFor::Client {
                return Poll::Ready(());
            }
            self.running = None;
        }
    }

    /// Stops the timer after output of the script; the next poll starts it with the full timeout.
    pub(super) fn reset(&mut self) {
        self.running = None;
    }

    /// Changes the timeout and resets the timer.
    pub(super) fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
        self.reset();
    }
}
