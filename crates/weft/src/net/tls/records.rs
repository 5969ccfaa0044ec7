//! How large the records are that plaintext goes out in.
//!
//! A client can use nothing of a record before it has all of it. While a connection is young,
//! or the congestion window small again after a pause, a record of 16 KiB is under way for
//! several round trips. So the first go out in records that fit into a packet each, and the
//! later ones in large records, which cost less.

use std::time::Duration;

use crate::clock::deadline::Stopwatch;

/// The plaintext of a record that, with what TLS, TCP and IPv6 or a tunnel add, fits into a
/// packet.
const SMALL_BYTES: usize = 1_300;

/// How much goes out in small records: about what four round trips of slow start carry.
const START_BYTES: usize = 64 << 10;

/// After such a pause the kernel begins with a small window again (RFC 5681 §4.1).
const PAUSE: Duration = Duration::from_secs(1);

/// How far a connection is.
pub(super) struct Records {
    small_left: usize,
    last: Stopwatch,
}

impl Records {
    pub(super) fn new() -> Records {
        Records { small_left: START_BYTES, last: Stopwatch::start() }
    }

    /// Something is about to be sent.
    pub(super) fn begin(&mut self, now: Stopwatch) {
        if now.since(self.last) > PAUSE {
            self.small_left = START_BYTES;
        }
        self.last = now;
    }

    /// How much of so many bytes is to be encrypted next: what a small record has, or all.
    pub(super) fn next(&mut self, length: usize) -> usize {
        if self.small_left == 0 {
            return length;
        }
        let length = length.min(SMALL_BYTES);
        self.small_left = self.small_left.saturating_sub(length);
        length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_at_first_then_all_at_once() {
        let mut records = Records::new();
        assert_eq!(records.next(20), 20);
        let mut small = 20;
        while records.small_left > 0 {
            assert_eq!(records.next(1 << 20), SMALL_BYTES);
            small += SMALL_BYTES;
        }
        assert!((START_BYTES..START_BYTES + SMALL_BYTES).contains(&small), "{small}");
        assert_eq!(records.next(1 << 20), 1 << 20);
        records.begin(records.last);
        assert_eq!(records.next(1 << 20), 1 << 20, "there was no pause");
    }
}
