//! Sizes of the TLS records that are sent.
//!
//! A client can decrypt a record only after receiving all of it. While a connection is young, or
//! its congestion window is small again after a pause, a record of 16 KiB takes several round
//! trips. So the first data is sent in records that fit into one packet each, and later data in
//! large records, which cost less.

use std::time::Duration;

use crate::clock::deadline::Stopwatch;

/// Plaintext size of a small record: with the overhead of TLS, TCP and IPv6 or a tunnel it fits
/// into one packet.
const SMALL_BYTES: usize = 1_300;

/// Number of bytes sent in small records: about four round trips of slow start.
const START_BYTES: usize = 64 << 10;

/// Idle time after which the kernel resets the congestion window (RFC 5681 §4.1).
const IDLE_RESET: Duration = Duration::from_secs(1);

/// Chooses record sizes for one connection.
pub(super) struct RecordSizes {
    small_remaining: usize,
    last_write: Stopwatch,
}

impl RecordSizes {
    pub(super) fn new() -> RecordSizes {
        RecordSizes { small_remaining: START_BYTES, last_write: Stopwatch::start() }
    }

    /// Starts a write at time `now`.
    pub(super) fn start_write(&mut self, now: Stopwatch) {
        if now.since(self.last_write) > IDLE_RESET {
            self.small_remaining = START_BYTES;
        }
        self.last_write = now;
    }

    /// Returns how many of `length` bytes to encrypt as the next record: at most a small record, or
    /// later all.
    pub(super) fn next_record_len(&mut self, length: usize) -> usize {
        if self.small_remaining == 0 {
            return length;
        }
        let length = length.min(SMALL_BYTES);
        self.small_remaining = self.small_remaining.saturating_sub(length);
        length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_with_small_records_then_sends_all_at_once() {
        let mut records = RecordSizes::new();
        assert_eq!(records.next_record_len(20), 20);
        let mut small = 20;
        while records.small_remaining > 0 {
            assert_eq!(records.next_record_len(1 << 20), SMALL_BYTES);
            small += SMALL_BYTES;
        }
        assert!((START_BYTES..START_BYTES + SMALL_BYTES).contains(&small), "{small}");
        assert_eq!(records.next_record_len(1 << 20), 1 << 20);
        records.start_write(records.last_write);
        assert_eq!(records.next_record_len(1 << 20), 1 << 20, "there was no pause");
    }
}
