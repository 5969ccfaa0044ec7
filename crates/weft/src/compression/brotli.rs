//! Brotli (RFC 7932).

use std::io;

use brotli::CompressorWriter;
use brotli::enc::BrotliEncoderParams;

use super::codec::{Codec, Levels, StreamEncoder};
use weft_proto::semantics::coding::Coding;

pub(super) const CODEC: Codec = Codec {
    coding: Coding::Brotli,
    encoder,
    best_encoder,
    // Without flushes the encoder buffers several MiB, and its memory doubles; the flushes change
    // the size by less than one per cent.
    max_unflushed_bytes: 64 << 10,
};

/// Size of the buffer between the encoder and its output.
const BUFFER_BYTES: usize = 4 << 10;

fn encoder(_: Levels) -> io::Result<Box<dyn StreamEncoder>> {
    let params = BrotliEncoderParams { quality: 3, lgwin: 18, ..Default::default() };
    Ok(Box::new(CompressorWriter::with_params(Vec::new(), BUFFER_BYTES, &params)))
}

fn best_encoder(length: usize) -> io::Result<Box<dyn StreamEncoder>> {
    let params = BrotliEncoderParams { quality: 8, size_hint: length, ..Default::default() };
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
