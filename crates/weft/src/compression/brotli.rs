//! Brotli (RFC 7932).

use std::io::{self, Write};

use brotli::CompressorWriter;
use brotli::enc::BrotliEncoderParams;

use super::{Codec, Coding, StreamEncoder};

pub(super) const CODEC: Codec = Codec {
    coding: Coding::Brotli,
    compress,
    encoder,
    // Without flushes the encoder buffers several MiB, and its memory doubles; the flushes change
    // the size by less than one per cent.
    max_unflushed_bytes: 64 << 10,
};

/// Size of the buffer between the encoder and its output.
const BUFFER_BYTES: usize = 4 << 10;

fn compress(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let params = BrotliEncoderParams { quality: 8, size_hint: bytes.len(), ..Default::default() };
    let mut writer = CompressorWriter::with_params(Vec::new(), BUFFER_BYTES, &params);
    writer.write_all(bytes)?;
    Ok(writer.into_inner())
}

fn encoder() -> io::Result<Box<dyn StreamEncoder>> {
    let params = BrotliEncoderParams { quality: 4, lgwin: 18, ..Default::default() };
    Ok(Box::new(CompressorWriter::with_params(Vec::new(), BUFFER_BYTES, &params)))
}

impl StreamEncoder for CompressorWriter<Vec<u8>> {
    fn output(&mut self) -> &mut Vec<u8> {
        self.get_mut()
    }

    fn finish(self: Box<Self>) -> io::Result<Vec<u8>> {
        Ok(self.into_inner())
    }
}
