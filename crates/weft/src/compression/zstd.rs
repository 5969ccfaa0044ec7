//! Zstandard (RFC 8878).

use std::io;

use zstd::stream::write::Encoder;
use zstd::zstd_safe::CParameter;

use super::codec::{Codec, Levels, StreamEncoder};
use weft_proto::semantics::coding::Coding;

pub(super) const CODEC: Codec =
    Codec { coding: Coding::Zstd, encoder, best_encoder, max_unflushed_bytes: usize::MAX };

fn encoder(_: Levels) -> io::Result<Box<dyn StreamEncoder>> {
    let mut encoder = Encoder::new(Vec::new(), 3)?;
    encoder.set_parameter(CParameter::WindowLog(16))?;
    encoder.set_parameter(CParameter::HashLog(15))?;
    encoder.set_parameter(CParameter::ChainLog(14))?;
    Ok(Box::new(encoder))
}

/// The window of this level is within the 8 MiB limit of RFC 9659.
fn best_encoder(length: usize) -> io::Result<Box<dyn StreamEncoder>> {
    let mut encoder = Encoder::new(Vec::new(), 10)?;
    encoder.set_pledged_src_size(Some(length as u64))?;
    Ok(Box::new(encoder))
}

impl StreamEncoder for Encoder<'static, Vec<u8>> {
    fn output(&mut self) -> &mut Vec<u8> {
        self.get_mut()
    }

    fn finish(self: Box<Self>) -> io::Result<Vec<u8>> {
        (*self).finish()
    }
}
