//! The time of the last tick of the kernel's clock, a few milliseconds ago. Reading it takes a fifth of the
//! time that the exact one takes.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Returns the current time, which differs from the exact one by up to 10 ms in either direction.
pub(crate) fn coarse_now() -> Instant {
    static START: OnceLock<(Instant, Duration)> = OnceLock::new();
    let (start, start_tick) = START.get_or_init(|| (Instant::now(), last_tick()));
    *start + last_tick().saturating_sub(*start_tick)
}

fn last_tick() -> Duration {
    let time = clock_gettime(ClockId::MonotonicCoarse);
    // The clock starts with the system, so that neither part is negative.
    let (seconds, nanoseconds) = (time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs());
    Duration::from_secs(seconds) + Duration::from_nanos(nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The longest time between two ticks.
    const MAX_ERROR: Duration = Duration::from_millis(10);

    #[test]
    fn follows_the_exact_clock() {
        for _ in 0..5 {
            let before = Instant::now();
            let coarse = coarse_now();
            let after = Instant::now();
            assert!(coarse + MAX_ERROR >= before, "{:?} late", before - coarse);
            assert!(coarse <= after + MAX_ERROR, "{:?} early", coarse - after);
            std::thread::sleep(Duration::from_millis(7));
        }
    }
}
