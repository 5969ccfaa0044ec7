//! Instructions to the peer's encoder (RFC 9204 §4.4).

use crate::field_coding::integer;
use crate::http3::ErrorCode;

/// The output of the decoder stream, and the insertions that the peer knows to be received.
#[derive(Debug, Default)]
pub(super) struct Feedback {
    unsent: Vec<u8>,
    /// The Known Received Count (§2.1.4).
    known_received: u64,
}

/// Maximum number of unsent bytes: instructions for some 1,000 streams.
const MAX_UNSENT_BYTES: usize = 8 << 10;

/// Number of unsent bytes up to which insertions are reported. The next report includes them.
const MAX_UNSENT_BEFORE_INCREMENT: usize = MAX_UNSENT_BYTES / 2;

impl Feedback {
    /// Acknowledges a section that required insertions (§4.4.1).
    pub(super) fn acknowledge(&mut self, stream: u64, required: u64) {
        integer::write_u64(&mut self.unsent, 7, 0x80, stream);
        self.known_received = self.known_received.max(required);
    }

    /// Reports that no further section of a stream is decoded (§4.4.2).
    pub(super) fn cancel(&mut self, stream: u64) {
        integer::write_u64(&mut self.unsent, 6, 0x40, stream);
    }

    /// Returns the unsent instructions. Insertions without an acknowledgment are reported (§4.4.3).
    pub(super) fn unsent(&mut self, insert_count: u64) -> Result<&[u8], ErrorCode> {
        let increment = insert_count - self.known_received;
        if increment > 0 && self.unsent.len() <= MAX_UNSENT_BEFORE_INCREMENT {
            integer::write_u64(&mut self.unsent, 6, 0, increment);
            self.known_received = insert_count;
        }
        if self.unsent.len() > MAX_UNSENT_BYTES {
            return Err(ErrorCode::EXCESSIVE_LOAD);
        }
        Ok(&self.unsent)
    }

    pub(super) fn on_sent(&mut self, bytes: usize) {
        self.unsent.drain(..bytes);
    }
}
