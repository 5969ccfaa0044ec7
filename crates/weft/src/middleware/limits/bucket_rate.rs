//! The rate of a limit, in time that refills a bucket.

use std::time::Duration;

/// Times are in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    /// Time to refill a bucket by one request.
    pub(super) interval: u64,
    pub(super) burst: u32,
}

/// Factor of the size and the rate of an overflow bucket.
const OVERFLOW: usize = 16;

/// Ten years, in nanoseconds; sums with clock readings do not overflow.
pub(super) const MAX_NANOS: u64 = 10 * 365 * 86_400 * 1_000_000_000;

/// A duration as the nanoseconds of buckets.
pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX).min(MAX_NANOS)
}

impl Rate {
    /// Time to refill an empty bucket completely, in nanoseconds.
    pub(super) fn capacity(self) -> u64 {
        self.interval.saturating_mul(self.burst.into()).min(MAX_NANOS)
    }

    /// Rate of the overflow bucket.
    pub(super) fn overflow(self) -> Rate {
        let interval = (self.interval / OVERFLOW as u64).max(1);
        Rate { interval, burst: self.burst.saturating_mul(OVERFLOW as u32) }
    }

    /// Takes a request from a bucket; if it is empty, returns the time until the next.
    pub(super) fn take(self, full_at: &mut u64, now: u64) -> Result<(), Duration> {
        let new_full_at = (*full_at).max(now) + self.interval;
        match (new_full_at - now).saturating_sub(self.capacity()) {
            0 => *full_at = new_full_at,
            wait => return Err(Duration::from_nanos(wait)),
        }
        Ok(())
    }
}
