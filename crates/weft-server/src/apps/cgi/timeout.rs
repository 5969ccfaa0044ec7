//! Timeout for the output of a script, which the request body extends.

use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use weft_upstream::InactivityTimer;

use super::upload::{Progress, WaitingFor};

/// Elapses after the script has been inactive for `timeout`. Time spent waiting for the client does
/// not count, and progress of the request body restarts the timeout.
pub(super) struct OutputTimeout {
    timeout: Duration,
    progress: Arc<Progress>,
    timer: InactivityTimer,
    /// State of the request body when the timer was started; `None` if it is stopped.
    waited_for: Option<WaitingFor>,
}

impl OutputTimeout {
    pub(super) fn new(timeout: Duration, progress: Arc<Progress>) -> OutputTimeout {
        let timer = InactivityTimer::default();
        OutputTimeout { timeout, progress, timer, waited_for: None }
    }

    /// Starts the timer if it is not running; ready once the timeout has elapsed.
    pub(super) fn poll_elapsed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let waited_for = *self.waited_for.get_or_insert_with(|| self.progress.waiting_for());
            ready!(self.timer.poll_elapsed(self.timeout, cx));
            let now = self.progress.waiting_for();
            if now == waited_for && now != WaitingFor::Client {
                return Poll::Ready(());
            }
            self.restart();
        }
    }

    /// Gives the next output the full timeout.
    pub(super) fn restart(&mut self) {
        self.timer.stop();
        self.waited_for = None;
    }

    /// Changes the timeout and restarts it.
    pub(super) fn set(&mut self, timeout: Duration) {
        self.timeout = timeout;
        self.restart();
    }
}
