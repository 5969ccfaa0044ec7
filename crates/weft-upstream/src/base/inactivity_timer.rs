//! A timer for inactivity.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// A timer that is started and stopped often and rarely elapses. A start leaves the underlying
/// `Sleep` unchanged if it fires earlier than the deadline. When it fires, it is reset to the
/// current deadline.
#[derive(Default)]
pub struct InactivityTimer {
    /// Deadline, while the timer runs.
    deadline: Option<Instant>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl InactivityTimer {
    /// Stops the timer.
    pub fn stop(&mut self) {
        self.deadline = None;
    }

    /// Starts the timer unless it is running. Ready once it has run for `timeout`.
    pub fn poll_elapsed(&mut self, timeout: Duration, cx: &mut Context<'_>) -> Poll<()> {
        self.poll_elapsed_since(None, timeout, cx)
    }

    /// Acts as [`poll_elapsed`](InactivityTimer::poll_elapsed). A timer that is not running starts
    /// at `since`. `None`: now.
    pub fn poll_elapsed_since(
        &mut self,
        since: Option<std::time::Instant>,
        timeout: Duration,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let deadline = match self.deadline {
            Some(deadline) => deadline,
            None => match since.map_or_else(Instant::now, Instant::from_std).checked_add(timeout) {
                Some(deadline) => *self.deadline.insert(deadline),
                // A deadline beyond the range of `Instant` never elapses.
                None => return Poll::Pending,
            },
        };
        // A task that has used up its budget by reading would see no timer of tokio elapse: an
        // upstream that sends without end would never time out.
        if Instant::now() >= deadline {
            return Poll::Ready(());
        }
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if sleep.deadline() > deadline {
            sleep.as_mut().reset(deadline);
        }
        loop {
            ready!(sleep.as_mut().poll(cx));
            if sleep.deadline() >= deadline {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(deadline);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use tokio::time::timeout;

    const LONG: Duration = Duration::from_secs(3600);
    const SHORT: Duration = Duration::from_millis(20);

    /// Waits until the timer has elapsed, which takes `SHORT`.
    async fn wait_elapsed(timer: &mut InactivityTimer) {
        let elapsed = poll_fn(|cx| timer.poll_elapsed(SHORT, cx));
        timeout(Duration::from_secs(30), elapsed).await.expect("the timer elapses in time");
    }

    #[tokio::test]
    async fn elapses_after_timeout() {
        let mut timer = InactivityTimer::default();
        for round in 0..3 {
            // The `Sleep` of a longer timeout does not delay a shorter one.
            assert!(timeout(SHORT, poll_fn(|cx| timer.poll_elapsed(LONG, cx))).await.is_err());
            timer.stop();
            let start = Instant::now();
            wait_elapsed(&mut timer).await;
            assert!(start.elapsed() >= SHORT, "in round {round}");
            // An elapsed timer stays elapsed until it is stopped.
            wait_elapsed(&mut timer).await;
            timer.stop();
            let start = Instant::now();
            wait_elapsed(&mut timer).await;
            assert!(start.elapsed() >= SHORT, "in round {round}");
            timer.stop();
        }
        let never = timeout(SHORT, poll_fn(|cx| timer.poll_elapsed(Duration::MAX, cx)));
        assert!(never.await.is_err());
    }

    /// A task that reads without end has no budget when it looks at the timer.
    #[tokio::test]
    async fn elapses_for_a_task_without_budget() {
        let mut timer = InactivityTimer::default();
        let start = Instant::now();
        let elapsed = poll_fn(|cx| {
            let mut use_budget = || std::pin::pin!(tokio::task::coop::consume_budget()).poll(cx);
            while use_budget().is_ready() {}
            timer.poll_elapsed(SHORT, cx)
        });
        timeout(Duration::from_secs(30), elapsed).await.expect("the timer elapses in time");
        assert!(start.elapsed() >= SHORT);
    }
}
