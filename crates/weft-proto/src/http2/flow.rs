//! Flow-control windows (RFC 9113 §5.2, §6.9). Pure.
//!
//! ```
//! use weft_proto::http2::flow::{RecvWindow, SendWindow};
//!
//! let mut send = SendWindow::new(65_535);
//! send.consume(65_535);
//! assert!(!send.is_open());
//! send.increase(1_000)?; // a WINDOW_UPDATE of the peer
//! assert_eq!(send.available(), 1_000);
//!
//! let mut recv = RecvWindow::new(65_535);
//! assert!(recv.receive(40_000));
//! recv.release(40_000);
//! assert_eq!(recv.take_update(), Some(40_000)); // a WINDOW_UPDATE to the peer
//! # Ok::<(), weft_proto::http2::flow::Overflow>(())
//! ```

use std::fmt;

/// The largest window (RFC 9113 §6.9.1).
pub const MAX_WINDOW: i64 = (1 << 31) - 1;

/// The error of a window that has become larger than [`MAX_WINDOW`]: FLOW_CONTROL_ERROR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overflow;

impl fmt::Display for Overflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a flow-control window of more than 31 bits")
    }
}

impl std::error::Error for Overflow {}

/// The credit for sending to the peer, of a stream or a connection.
#[derive(Clone, Copy, Debug)]
pub struct SendWindow(i64);

impl SendWindow {
    /// Creates a window of this many bytes.
    #[inline]
    pub fn new(bytes: i64) -> SendWindow {
        SendWindow(bytes)
    }

    /// Returns the number of bytes that may be sent now.
    #[inline]
    pub fn available(self) -> usize {
        self.0.max(0) as usize
    }

    /// Returns true if at least one byte may be sent now.
    #[inline]
    pub fn is_open(self) -> bool {
        self.0 > 0
    }

    /// Uses credit for bytes that are sent, at most [`available`](SendWindow::available).
    #[inline]
    pub fn consume(&mut self, bytes: usize) {
        self.0 -= bytes as i64;
    }

    /// Adds the increment of a WINDOW_UPDATE.
    ///
    /// # Errors
    /// [`Overflow`] if the window exceeds [`MAX_WINDOW`].
    #[inline]
    pub fn increase(&mut self, bytes: i64) -> Result<(), Overflow> {
        self.0 += bytes;
        if self.0 > MAX_WINDOW { Err(Overflow) } else { Ok(()) }
    }

    /// Applies a change of SETTINGS_INITIAL_WINDOW_SIZE, after which the window may be negative
    /// (RFC 9113 §6.9.2).
    ///
    /// # Errors
    /// [`Overflow`] if the window exceeds [`MAX_WINDOW`].
    #[inline]
    pub fn adjust(&mut self, difference: i64) -> Result<(), Overflow> {
        self.increase(difference)
    }
}

/// The credit that the peer has for sending to us, of a stream or a connection.
#[derive(Clone, Copy, Debug)]
pub struct RecvWindow {
    /// The number of bytes that the peer may send.
    open: i64,
    /// The number of bytes that were processed, and not credited to the peer yet.
    owed: i64,
}

impl RecvWindow {
    /// Creates a window of this many bytes.
    #[inline]
    pub fn new(open: i64) -> RecvWindow {
        RecvWindow { open, owed: 0 }
    }

    /// Uses credit for bytes received. Returns false if they exceed it.
    #[inline]
    pub fn receive(&mut self, bytes: usize) -> bool {
        self.open -= bytes as i64;
        self.open >= 0
    }

    /// Records that bytes were processed, so that the peer can get credit for them.
    #[inline]
    pub fn release(&mut self, bytes: usize) {
        self.owed += bytes as i64;
    }

    /// Returns the increment of a WINDOW_UPDATE if it is worth a frame: at least half of the credit
    /// that the peer still has. The caller must send it.
    #[inline]
    pub fn take_update(&mut self) -> Option<u32> {
        if self.owed == 0 || self.owed < self.open / 2 {
            return None;
        }
        let owed = std::mem::take(&mut self.owed);
        self.open += owed;
        Some(owed as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn send_window_may_become_negative_and_recover() {
        let mut window = SendWindow::new(100);
        window.consume(100);
        assert_eq!((window.available(), window.is_open()), (0, false));
        assert_eq!(window.adjust(-50), Ok(()));
        assert_eq!((window.available(), window.increase(51)), (0, Ok(())));
        assert_eq!(window.available(), 1);
    }

    #[test]
    fn send_window_rejects_more_than_31_bits() {
        let mut window = SendWindow::new(1);
        assert_eq!(window.increase(MAX_WINDOW - 1), Ok(()));
        assert_eq!(window.increase(1), Err(Overflow));
    }

    #[test]
    fn recv_window_is_updated_when_half_is_used() {
        let mut window = RecvWindow::new(100);
        assert!(window.receive(60));
        window.release(19);
        assert_eq!(window.take_update(), None);
        window.release(41);
        assert_eq!((window.take_update(), window.take_update()), (Some(60), None));
        assert!(window.receive(100));
        assert!(!window.receive(1));
    }
}
