//! Instructions of the peer's decoder (RFC 9204 §4.4). The encoder inserts no entries, so that only
//! one is possible.

use crate::http3::ErrorCode;

/// Reader of the stream of the peer's decoder, which has no section to acknowledge.
#[derive(Debug, Default)]
pub struct DecoderInstructions {
    /// Number of bytes of an incomplete integer.
    integer_bytes: usize,
}

/// Maximum number of bytes of a stream identifier, behind its prefix.
const MAX_INTEGER_BYTES: usize = 10;

impl DecoderInstructions {
    /// Reads instructions. Only the cancellation of a stream is possible, and has no effect.
    ///
    /// # Errors
    /// [`QPACK_DECODER_STREAM_ERROR`](ErrorCode::QPACK_DECODER_STREAM_ERROR) closes the connection.
    pub fn read(&mut self, bytes: &[u8]) -> Result<(), ErrorCode> {
        for byte in bytes {
            let continues = match self.integer_bytes {
                0 if byte >> 6 != 1 => return Err(ErrorCode::QPACK_DECODER_STREAM_ERROR),
                0 => byte & 0x3f == 0x3f,
                MAX_INTEGER_BYTES.. => return Err(ErrorCode::QPACK_DECODER_STREAM_ERROR),
                _ => byte & 0x80 != 0,
            };
            self.integer_bytes = if continues { self.integer_bytes + 1 } else { 0 };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_instructions_without_effect() {
        for bytes in [&b""[..], b"\x44", b"\x44\x48", b"\x7f\x80\x01\x44", b"\x7f\x00"] {
            let mut whole = DecoderInstructions::default();
            assert_eq!(whole.read(bytes), Ok(()), "{bytes:?}");
            let mut pieces = DecoderInstructions::default();
            assert!(bytes.iter().all(|byte| pieces.read(&[*byte]).is_ok()), "{bytes:?}");
        }
    }

    #[test]
    fn rejects_instructions_that_need_a_dynamic_table() {
        // Acknowledgments, increments, an endless integer.
        for bytes in [&b"\x80"[..], b"\x84", b"\x00", b"\x01", b"\x44\x00", &[0xff; 20][1..]] {
            let code = ErrorCode::QPACK_DECODER_STREAM_ERROR;
            assert_eq!(DecoderInstructions::default().read(bytes), Err(code), "{bytes:?}");
        }
        let endless = [&[0x7f][..], &[0x80; 10]].concat();
        let mut reader = DecoderInstructions::default();
        assert!(reader.read(&endless).is_err());
    }
}
