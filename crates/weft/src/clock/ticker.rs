//! Regular wake-ups of a worker.
//!
//! While a timer of tokio is pending, each wait for events computes the time until it expires,
//! which costs 3% of a small request. A timer of the kernel is one of the events.

use std::future::pending;
use std::io;
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::time::{Interval, MissedTickBehavior, interval};

pub(crate) enum Ticker {
    /// A timer of the kernel, with the type of a pipe, because it is read in the same way.
    Kernel(Receiver),
    /// Used if there is no descriptor for a timer of the kernel, and in runtimes of applications,
    /// which may have no I/O driver.
    Tokio(Interval),
}

impl Ticker {
    /// Creates a ticker by a timer of the kernel.
    ///
    /// # Panics
    /// If the current runtime has no I/O driver.
    pub(crate) fn kernel(period: Duration) -> Ticker {
        kernel_timer(period).map_or_else(|_| Ticker::tokio(period), Ticker::Kernel)
    }

    /// Creates a ticker by a timer of tokio.
    pub(crate) fn tokio(period: Duration) -> Ticker {
        let mut ticks = interval(period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ticker::Tokio(ticks)
    }

    /// Waits for the next tick. Ticks that were missed, because the worker was blocked, count as
    /// one.
    pub(crate) async fn tick(&mut self) {
        match self {
            Ticker::Kernel(timer) => {
                // Larger than the number of expirations, so that the read clears the readiness.
                let mut expirations = [0; 2 * size_of::<u64>()];
                if timer.read(&mut expirations).await.is_err() {
                    // The runtime shuts down.
                    pending().await
                }
            }
            Ticker::Tokio(ticks) => drop(ticks.tick().await),
        }
    }
}

fn kernel_timer(period: Duration) -> io::Result<Receiver> {
    let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
    let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
    let period = Timespec::try_from(period).map_err(io::Error::other)?;
    let spec = Itimerspec { it_interval: period, it_value: period };
    timerfd_settime(&timer, TimerfdTimerFlags::empty(), &spec)?;
    Receiver::from_owned_fd_unchecked(timer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn ticks_repeatedly() {
        let start = std::time::Instant::now();
        let period = Duration::from_millis(10);
        for mut ticker in [Ticker::kernel(period), Ticker::tokio(period)] {
            let is_kernel = matches!(ticker, Ticker::Kernel(_));
            for _ in 0..3 {
                ticker.tick().await;
            }
            // The first tick of tokio is immediate.
            let min = if is_kernel { 3 } else { 5 };
            assert!(start.elapsed() >= min * period, "{:?}", start.elapsed());
        }
    }
}
