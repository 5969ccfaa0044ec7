//! An account of frames: a client may not send many more of those that cost work and bring
//! nothing than it has a use for. Pure.
//!
//! Most attacks on HTTP/2 are frames that are cheap to send and not to handle: requests that
//! are taken back at once, settings, pings, empty data, header blocks in a thousand parts.
//! Each such frame is paid for from a credit, which bytes that move and time that passes fill
//! again. A client with something to do never gets to its bottom.

use std::time::Duration;

/// The frame header (RFC 9113 §4.1): length, type, flags, stream.
const HEADER_BYTES: usize = 9;

/// What each client begins with (RFC 9113 §3.4).
const PREFACE_BYTES: usize = 24;

/// The most credit that can be saved up, which is also what a client begins with: a page's
/// worth of requests can be taken back at once.
const MOST_CREDIT: u64 = 2_000 * UNIT;

/// In what the credit is counted, so that a byte is worth something.
const UNIT: u64 = 256;

/// What a second is worth: fifty frames.
const SECOND: u64 = 50 * UNIT;

/// A frame costs one unit, and one that takes a request back ten: the request has cost more
/// than its frame. Room in a window costs little: some clients give it for each byte that
/// they get.
const FRAME: u64 = UNIT;
const RESET: u64 = 10 * UNIT;
const WINDOW: u64 = UNIT / 8;

/// The credit of a client, and where in its frames it is.
pub(crate) struct Flood {
    credit: u64,
    /// The header of the frame that begins, as far as it has come.
    header: [u8; HEADER_BYTES],
    came: usize,
    /// How many bytes there are before the next header.
    skip: usize,
}

impl Flood {
    pub(crate) fn new() -> Flood {
        Flood { credit: MOST_CREDIT, header: [0; HEADER_BYTES], came: 0, skip: PREFACE_BYTES }
    }

    /// Accounts for bytes that the client has sent; `false` when its credit is used up.
    pub(crate) fn read(&mut self, mut bytes: &[u8]) -> bool {
        self.earn(bytes.len() as u64);
        loop {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = &bytes[skipped..];
            if bytes.is_empty() {
                return true;
            }
            let taken = bytes.len().min(HEADER_BYTES - self.came);
            self.header[self.came..][..taken].copy_from_slice(&bytes[..taken]);
            self.came += taken;
            bytes = &bytes[taken..];
            if self.came == HEADER_BYTES {
                self.came = 0;
                let [a, b, c, kind, flags, ..] = self.header;
                self.skip = u32::from_be_bytes([0, a, b, c]) as usize;
                match self.credit.checked_sub(cost(kind, flags, self.skip)) {
                    Some(credit) => self.credit = credit,
                    None => return false,
                }
            }
        }
    }

    /// So many bytes were sent to the client.
    pub(crate) fn sent(&mut self, bytes: usize) {
        self.earn(bytes as u64);
    }

    /// So much time has passed.
    pub(crate) fn waited(&mut self, time: Duration) {
        let earned = time.as_nanos().saturating_mul(u128::from(SECOND)) / 1_000_000_000;
        self.earn(u64::try_from(earned).unwrap_or(MOST_CREDIT));
    }

    fn earn(&mut self, credit: u64) {
        self.credit = self.credit.saturating_add(credit).min(MOST_CREDIT);
    }
}

/// What a frame costs, by its type, its flags and its length (RFC 9113 §6).
fn cost(kind: u8, flags: u8, length: usize) -> u64 {
    const END_STREAM: u8 = 1;
    match kind {
        // DATA: not if it brings something, be it only the end.
        0 if length > 0 || flags & END_STREAM != 0 => 0,
        // HEADERS: how many requests there may be is limited elsewhere.
        1 => 0,
        // RST_STREAM
        3 => RESET,
        // WINDOW_UPDATE
        8 => WINDOW,
        // PRIORITY, SETTINGS, PING, GOAWAY, CONTINUATION, empty DATA, and what is not known.
        _ => FRAME,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: usize) -> Vec<u8> {
        let [_, a, b, c] = (payload as u32).to_be_bytes();
        let mut frame = vec![a, b, c, kind, flags, 0, 0, 0, 1];
        frame.resize(HEADER_BYTES + payload, 0);
        frame
    }

    /// How many frames of a kind a client may send at once; at most 100,000 are tried.
    fn allowed(frame: &[u8]) -> usize {
        let mut flood = Flood::new();
        assert!(flood.read(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"));
        (0..100_000).take_while(|_| flood.read(frame)).count()
    }

    #[test]
    fn frames_that_bring_nothing_are_limited() {
        for (name, frame, least, most) in [
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
            assert!((least..=most).contains(&allowed), "{name}: {allowed}");
        }
    }

    #[test]
    fn frames_are_told_apart_wherever_a_read_ends() {
        let frames = [frame(4, 0, 18), frame(3, 0, 4), frame(1, 5, 300), frame(0, 1, 0)].concat();
        let bytes = [&[b'P'; PREFACE_BYTES][..], &frames].concat();
        let credit = |pieces: &mut dyn Iterator<Item = &[u8]>| {
            let mut flood = Flood { credit: MOST_CREDIT / 2, ..Flood::new() };
            pieces.for_each(|piece| assert!(flood.read(piece)));
            flood.credit
        };
        let whole = credit(&mut std::iter::once(&bytes[..]));
        assert_eq!(whole, MOST_CREDIT / 2 - FRAME - RESET + bytes.len() as u64);
        for split in 1..bytes.len() {
            let (before, behind) = bytes.split_at(split);
            assert_eq!(credit(&mut [before, behind].into_iter()), whole, "{split}");
        }
        assert_eq!(credit(&mut bytes.chunks(1)), whole);
    }

    #[test]
    fn credit_comes_back() {
        let ping = frame(6, 0, 8);
        let without_credit = || Flood { credit: 0, skip: 0, ..Flood::new() };
        assert!(!without_credit().read(&ping));
        let mut flood = without_credit();
        flood.waited(Duration::from_secs(1));
        assert_eq!((0..).take_while(|_| flood.read(&ping)).count(), 53);
        flood.sent(1_000_000);
        assert_eq!(flood.credit, MOST_CREDIT);
        flood.waited(Duration::MAX);
        assert_eq!(flood.credit, MOST_CREDIT);
    }
}
