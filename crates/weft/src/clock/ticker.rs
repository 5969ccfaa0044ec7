//! Regular wake-ups of a worker.
//!
//! While a timer of tokio is pending, each wait for events computes the time until it expires,
//! which costs 3% of a small request. A timer of the kernel is one of the events.

use std::future::pending;
use std::time::Duration;

use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::sys::Timer;

pub(crate) enum Ticker {
    /// A timer of the kernel.
    Kernel(Timer),
    /// Used if the system has no such timer or no descriptor for it, and in runtimes of
    /// applications, which may have no I/O driver.
    Tokio(Interval),
}

impl Ticker {
    /// Creates a ticker by a timer of the kernel.
    ///
    /// # Panics
    /// If the current runtime has no I/O driver.
    pub(crate) fn kernel(period: Duration) -> Ticker {
        Timer::start(period).map_or_else(|_| Ticker::tokio(period), Ticker::Kernel)
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
                if timer.expired().await.is_err() {
                    // The runtime shuts down.
                    pending().await
                }
            }
            Ticker::Tokio(ticks) => drop(ticks.tick().await),
        }
    }
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
