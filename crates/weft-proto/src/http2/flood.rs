//! Flood protection: limits the frames that cost work but carry no data (RFC 9113 §10.5). Pure.
//!
//! Most attacks on HTTP/2 consist of frames that are cheap to send and expensive to handle:
//! requests that are reset at once, SETTINGS, PING, empty DATA, field blocks in a thousand
//! CONTINUATION frames. Each such frame is deducted from a credit, which transferred bytes and
//! elapsed time refill. Ordinary clients never exhaust it.
//!
//! ```
//! use weft_proto::http2::flood::FloodLimiter;
//! use weft_proto::http2::frame::{self, kind};
//!
//! let mut ping = Vec::new();
//! frame::write(&mut ping, kind::PING, 0, 0, &[0; 8]);
//!
//! let mut limiter = FloodLimiter::new();
//! let mut receive = |input: &[u8]| {
//!     limiter.on_bytes_received(input.len());
//!     let (header, _) = frame::first(input).unwrap().unwrap();
//!     limiter.on_frame(header)
//! };
//! assert!(receive(&ping));
//! assert!(!(0..10_000).all(|_| receive(&ping)));
//! ```

use std::time::Duration;

use crate::http2::frame::{FrameHeader, flag, kind};
use crate::http3::qpack::TableWork;

/// Largest credit, which is also the initial one: a client can reset the requests of a whole page
/// at once.
const MAX_CREDIT: u64 = 2_000 * UNIT;

/// Credit of one frame, in the unit in which one transferred byte adds 1.
const UNIT: u64 = 256;

/// Credit per second of elapsed time: 50 frames.
const CREDIT_PER_SECOND: u64 = 50 * UNIT;

/// Cost of a frame: one unit. RST_STREAM costs ten, because the request has cost more than its
/// frame. WINDOW_UPDATE costs an eighth: some clients send one for each byte that they receive.
const FRAME_COST: u64 = UNIT;
const RST_STREAM_COST: u64 = 10 * UNIT;
const WINDOW_UPDATE_COST: u64 = UNIT / 8;

/// Cost of an instruction of QPACK, whose bytes add to the credit.
const INSTRUCTION_COST: u64 = UNIT / 16;

/// Cost of a STREAM frame of QUIC: any useful one has more bytes.
const STREAM_FRAME_COST: u64 = UNIT / 64;

/// Cost of a stream that the server has to reset because of an error of the client (CVE-2025-8671),
/// in addition to its frames: 1,000 at once, and 25 per second. The request has cost as much as a
/// request that the client resets. But clients of an intermediary share its connection, and one of
/// them may send malformed requests.
const STREAM_ERROR_COST: u64 = 2 * UNIT;

/// The credit of a client.
#[derive(Debug)]
pub struct FloodLimiter {
    credit: u64,
}

impl Default for FloodLimiter {
    fn default() -> FloodLimiter {
        FloodLimiter::new()
    }
}

impl FloodLimiter {
    /// Creates the state for a new connection, with full credit.
    pub fn new() -> FloodLimiter {
        FloodLimiter { credit: MAX_CREDIT }
    }

    /// Accounts for a frame received from the client. Returns false if the credit is exhausted.
    #[inline]
    pub fn on_frame(&mut self, header: FrameHeader) -> bool {
        self.spend(cost(header))
    }

    /// Adds the credit for bytes received from the client.
    pub fn on_bytes_received(&mut self, bytes: usize) {
        self.add_credit(bytes as u64);
    }

    /// Accounts for a stream that is reset because of an error of the client. Returns false if the
    /// credit is exhausted.
    pub fn on_stream_error(&mut self) -> bool {
        self.spend(STREAM_ERROR_COST)
    }

    /// Accounts for a request that the client resets. Returns false if the credit is exhausted.
    pub fn on_reset(&mut self) -> bool {
        self.spend(RST_STREAM_COST)
    }

    /// Accounts for frames of HTTP/3 or QUIC that carry no data. Returns false if the credit is
    /// exhausted.
    pub fn on_idle_frames(&mut self, frames: u64) -> bool {
        self.spend(frames.saturating_mul(FRAME_COST))
    }

    /// Accounts for window updates of QUIC. Returns false if the credit is exhausted.
    pub fn on_window_updates(&mut self, frames: u64) -> bool {
        self.spend(frames.saturating_mul(WINDOW_UPDATE_COST))
    }

    /// Accounts for STREAM frames of QUIC, which may be empty. Returns false if the credit is
    /// exhausted.
    pub fn on_stream_frames(&mut self, frames: u64) -> bool {
        self.spend(frames.saturating_mul(STREAM_FRAME_COST))
    }

    /// Accounts for the work of the client's QPACK encoder: an instruction costs a sixteenth of a
    /// frame, and a byte copied within the dynamic table an eighth of a received byte. So a copy of
    /// 4 KiB by an instruction of one byte costs 528. Returns false if the credit is exhausted.
    pub fn on_table_work(&mut self, work: TableWork) -> bool {
        let instructions = work.instructions as u64 * INSTRUCTION_COST;
        self.spend(instructions.saturating_add(work.copied_bytes as u64 / 8))
    }

    fn spend(&mut self, cost: u64) -> bool {
        match self.credit.checked_sub(cost) {
            Some(credit) => self.credit = credit,
            None => return false,
        }
        true
    }

    /// Adds the credit for bytes sent to the client.
    #[inline]
    pub fn on_bytes_sent(&mut self, bytes: usize) {
        self.add_credit(bytes as u64);
    }

    /// Adds the credit for elapsed time.
    pub fn on_time_elapsed(&mut self, time: Duration) {
        let credit = time.as_nanos().saturating_mul(u128::from(CREDIT_PER_SECOND)) / 1_000_000_000;
        self.add_credit(u64::try_from(credit).unwrap_or(MAX_CREDIT));
    }

    fn add_credit(&mut self, credit: u64) {
        self.credit = self.credit.saturating_add(credit).min(MAX_CREDIT);
    }
}

/// Returns the cost of a frame by its header (RFC 9113 §6).
fn cost(header: FrameHeader) -> u64 {
    match header.kind {
        // Free if it carries data or ends the stream.
        kind::DATA if header.length > 0 || header.has(flag::END_STREAM) => 0,
        // The number of requests is limited elsewhere.
        kind::HEADERS => 0,
        kind::RST_STREAM => RST_STREAM_COST,
        kind::WINDOW_UPDATE => WINDOW_UPDATE_COST,
        // PRIORITY, SETTINGS, PING, GOAWAY, CONTINUATION, empty DATA, and unknown types.
        _ => FRAME_COST,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http2::frame::{self, FRAME_HEADER_LEN};

    fn frame(kind: u8, flags: u8, payload: usize) -> Vec<u8> {
        let [_, a, b, c] = (payload as u32).to_be_bytes();
        let mut frame = vec![a, b, c, kind, flags, 0, 0, 0, 1];
        frame.resize(FRAME_HEADER_LEN + payload, 0);
        frame
    }

    /// Returns the number of copies of `frame` that a client may send at once, up to 100,000.
    fn allowed(frame: &[u8]) -> usize {
        let mut flood = FloodLimiter::new();
        (0..100_000).take_while(|_| receive(&mut flood, frame)).count()
    }

    fn receive(flood: &mut FloodLimiter, frame: &[u8]) -> bool {
        flood.on_bytes_received(frame.len());
        let (header, _) = frame::first(frame).unwrap().unwrap();
        flood.on_frame(header)
    }

    #[test]
    fn limits_frames_without_data() {
        for (name, frame, min, max) in [
            ("empty DATA", frame(0, 0, 0), 2_000, 2_100),
            ("DATA that ends", frame(0, 1, 0), 100_000, 100_000),
            ("DATA", frame(0, 0, 1), 100_000, 100_000),
            ("HEADERS", frame(1, 5, 20), 100_000, 100_000),
            ("PRIORITY", frame(2, 0, 5), 2_000, 2_200),
            ("RST_STREAM", frame(3, 0, 4), 200, 210),
            ("SETTINGS", frame(4, 0, 6), 2_000, 2_200),
            ("PING", frame(6, 0, 8), 2_000, 2_200),
            ("WINDOW_UPDATE", frame(8, 0, 4), 16_000, 30_000),
            ("CONTINUATION", frame(9, 0, 0), 2_000, 2_100),
            ("unknown", frame(200, 0, 0), 2_000, 2_100),
        ] {
            let allowed = allowed(&frame);
            assert!((min..=max).contains(&allowed), "{name}: {allowed}");
        }
    }

    #[test]
    fn stream_errors_are_limited_and_forgotten() {
        let mut flood = FloodLimiter::new();
        let count =
            |flood: &mut FloodLimiter| (0..).take_while(|_| flood.on_stream_error()).count();
        assert_eq!(count(&mut flood), 1_000);
        flood.on_time_elapsed(Duration::from_secs(10));
        assert_eq!(count(&mut flood), 250);
        // Any number, if they are rare.
        for _ in 0..10_000 {
            flood.on_time_elapsed(Duration::from_millis(40));
            assert!(flood.on_stream_error());
        }
    }

    #[test]
    fn finds_frame_boundaries_for_any_split_of_the_input() {
        let bytes = [frame(4, 0, 18), frame(3, 0, 4), frame(1, 5, 300), frame(0, 1, 0)].concat();
        let credit = |pieces: &mut dyn Iterator<Item = &[u8]>| {
            let mut flood = FloodLimiter { credit: MAX_CREDIT / 2 };
            let mut input = Vec::new();
            for piece in pieces {
                flood.on_bytes_received(piece.len());
                input.extend_from_slice(piece);
                while let Some((header, _)) = frame::first(&input).unwrap() {
                    assert!(flood.on_frame(header));
                    input.drain(..FRAME_HEADER_LEN + header.length);
                }
            }
            assert!(input.is_empty());
            flood.credit
        };
        let whole = credit(&mut std::iter::once(&bytes[..]));
        assert_eq!(whole, MAX_CREDIT / 2 - FRAME_COST - RST_STREAM_COST + bytes.len() as u64);
        for split in 1..bytes.len() {
            let (before, after) = bytes.split_at(split);
            assert_eq!(credit(&mut [before, after].into_iter()), whole, "{split}");
        }
        assert_eq!(credit(&mut bytes.chunks(1)), whole);
    }

    #[test]
    fn work_of_qpack_is_limited() {
        let work = |copied_bytes| TableWork { instructions: 1, copied_bytes };
        // Duplicates of the largest entry of a table of 4 KiB, by instructions of one byte.
        let mut flood = FloodLimiter::new();
        let duplicates = (0..100_000).take_while(|_| {
            flood.on_bytes_received(1);
            flood.on_table_work(work(4_096))
        });
        assert_eq!(duplicates.count(), 971);
        // Changes of the capacity, by instructions of one byte.
        let mut flood = FloodLimiter::new();
        let changes = (0..100_000).take_while(|_| {
            flood.on_bytes_received(1);
            flood.on_table_work(work(0))
        });
        assert_eq!(changes.count(), 34_133);
        // Names of ordinary length, by instructions of 21 bytes.
        let mut flood = FloodLimiter::new();
        assert!((0..100_000).all(|_| {
            flood.on_bytes_received(21);
            flood.on_table_work(work(40))
        }));
    }

    #[test]
    fn frames_of_quic_are_limited() {
        let count = |take: fn(&mut FloodLimiter) -> bool| {
            let mut flood = FloodLimiter::new();
            (0..200_000).take_while(|_| take(&mut flood)).count()
        };
        assert_eq!(count(|flood| flood.on_idle_frames(1)), 2_000);
        assert_eq!(count(|flood| flood.on_window_updates(1)), 16_000);
        assert_eq!(count(|flood| flood.on_stream_frames(1)), 128_000);
        let with_data = count(|flood| {
            flood.on_bytes_received(4);
            flood.on_stream_frames(1)
        });
        assert_eq!(with_data, 200_000);
        assert!(!FloodLimiter::new().on_idle_frames(u64::MAX));
    }

    #[test]
    fn bytes_and_time_refill_the_credit() {
        let ping = frame(6, 0, 8);
        let without_credit = || FloodLimiter { credit: 0 };
        assert!(!receive(&mut without_credit(), &ping));
        let mut flood = without_credit();
        flood.on_time_elapsed(Duration::from_secs(1));
        assert_eq!((0..).take_while(|_| receive(&mut flood, &ping)).count(), 53);
        flood.on_bytes_sent(1_000_000);
        assert_eq!(flood.credit, MAX_CREDIT);
        flood.on_time_elapsed(Duration::MAX);
        assert_eq!(flood.credit, MAX_CREDIT);
    }
}
