//! The rate of a limit, as the time that refills a bucket.

use std::time::Duration;

/// A rate and the size of its buckets. Times are in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    /// Time to refill a bucket by one request.
    pub(super) interval: u64,
    pub(super) burst: u32,
}

/// Factor of the size and the rate of an overflow bucket.
const OVERFLOW: u32 = 16;

/// Largest debt of a bucket, in times to refill it, that another process or a store can report. A
/// wrong report does not lock a client out for long, and processes that admit requests at the same
/// time stay below it.
const MAX_DEBT: u64 = 16;

/// Ten years, in nanoseconds; sums with clock readings do not overflow.
pub(super) const MAX_NANOS: u64 = 10 * 365 * 86_400 * 1_000_000_000;

/// Returns a duration in nanoseconds, at most [`MAX_NANOS`].
pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX).min(MAX_NANOS)
}

impl Rate {
    /// Time to refill an empty bucket completely, in nanoseconds.
    pub(super) fn capacity(self) -> u64 {
        self.interval.saturating_mul(self.burst.into()).min(MAX_NANOS)
    }

    /// Returns the part of the rate that belongs to one of several processes.
    pub(super) fn divided(self, processes: u32) -> Rate {
        let interval = self.interval.saturating_mul(processes.into()).min(MAX_NANOS);
        Rate { interval, burst: (self.burst / processes).max(1) }
    }

    /// Returns the time until a bucket is full, after a report of `debt` and further `requests`.
    pub(super) fn debt(self, debt: Duration, requests: u64) -> u64 {
        let debt = nanos(debt).saturating_add(self.interval.saturating_mul(requests));
        debt.min(self.capacity().saturating_mul(MAX_DEBT)).min(MAX_NANOS)
    }

    /// Rate of the overflow bucket.
    pub(super) fn overflow(self) -> Rate {
        let interval = (self.interval / u64::from(OVERFLOW)).max(1);
        Rate { interval, burst: self.burst.saturating_mul(OVERFLOW) }
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
