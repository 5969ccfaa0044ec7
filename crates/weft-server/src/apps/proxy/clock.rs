//! How long somebody has been silent.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// A clock that is started and stopped often, and hardly ever is over. Its timer is left where it
/// is until it goes off; only then is it looked at whether it was meant for so early.
#[derive(Default)]
pub(super) struct Clock {
    /// When it is over, while it runs.
    end: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Clock {
    pub(super) fn stop(&mut self) {
        self.end = None;
    }

    /// Runs on, or begins to. Ready when it has run for so long.
    pub(super) fn poll_over(&mut self, patience: Duration, cx: &mut Context<'_>) -> Poll<()> {
        let end = match self.end {
            Some(end) => end,
            None => match Instant::now().checked_add(patience) {
                Some(end) => *self.end.insert(end),
                // A time too far away is none.
                None => return Poll::Pending,
            },
        };
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(end)));
        if timer.deadline() > end {
            timer.as_mut().reset(end);
        }
        loop {
            ready!(timer.as_mut().poll(cx));
            if timer.deadline() >= end {
                return Poll::Ready(());
            }
            timer.as_mut().reset(end);
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

    /// Waits until it is over, which is soon.
    async fn over(clock: &mut Clock) {
        let over = poll_fn(|cx| clock.poll_over(SHORT, cx));
        timeout(Duration::from_secs(30), over).await.expect("it is over in time");
    }

    #[tokio::test]
    async fn it_is_over_when_it_has_run_for_so_long() {
        let mut clock = Clock::default();
        for round in 0..3 {
            // The timer that a longer wait has left behind does not make a shorter one longer.
            assert!(timeout(SHORT, poll_fn(|cx| clock.poll_over(LONG, cx))).await.is_err());
            clock.stop();
            let start = Instant::now();
            over(&mut clock).await;
            assert!(start.elapsed() >= SHORT, "in round {round}");
            // What was over is over, until it begins anew.
            over(&mut clock).await;
            clock.stop();
            let start = Instant::now();
            over(&mut clock).await;
            assert!(start.elapsed() >= SHORT, "in round {round}");
            clock.stop();
        }
        let never = timeout(SHORT, poll_fn(|cx| clock.poll_over(Duration::MAX, cx)));
        assert!(never.await.is_err());
    }
}
