//! The bandwidth of a response.

use std::num::NonZeroU64;
use std::time::Duration;

/// Number of pieces per second: a compromise between an even flow and the cost of a wakeup.
pub(super) const PIECES_PER_SECOND: u64 = 4;

/// Maximum bandwidth at which the content of a response is sent; see
/// [`Response::with_bandwidth`](crate::Response::with_bandwidth).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bandwidth {
    bytes_per_second: NonZeroU64,
    pub(super) after: u64,
}

impl Bandwidth {
    /// Limits the content to this number of bytes per second.
    pub fn new(bytes_per_second: NonZeroU64) -> Bandwidth {
        Bandwidth { bytes_per_second, after: 0 }
    }

    /// Sends the first `bytes` bytes of the content without a limit. Default: 0.
    pub fn after(self, bytes: u64) -> Bandwidth {
        Bandwidth { after: bytes, ..self }
    }

    /// Number of bytes that are sent at once.
    pub(super) fn piece(self) -> u64 {
        self.bytes_per_second.get().div_ceil(PIECES_PER_SECOND)
    }

    /// Number of bytes that the limit permits in a time.
    pub(super) fn bytes_in(self, time: Duration) -> u64 {
        let bytes = u128::from(self.bytes_per_second.get()) * time.as_nanos() / 1_000_000_000;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// Time in which the limit permits a number of bytes.
    pub(super) fn time_of(self, bytes: u64) -> Duration {
        let rate = u128::from(self.bytes_per_second.get());
        let nanos = (u128::from(bytes) * 1_000_000_000).div_ceil(rate);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}
