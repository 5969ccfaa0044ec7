//! gzip (RFC 1952).

use std::io;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::codec::{Codec, Levels, StreamEncoder};
use weft_proto::semantics::coding::Coding;

pub(super) const CODEC: Codec =
    Codec { coding: Coding::Gzip, encoder, best_encoder, max_unflushed_bytes: usize::MAX };

fn encoder(levels: Levels) -> io::Result<Box<dyn StreamEncoder>> {
    Ok(Box::new(GzEncoder::new(Vec::new(), Compression::new(levels.gzip))))
}

fn best_encoder(_length: usize) -> io::Result<Box<dyn StreamEncoder>> {
    Ok(Box::new(GzEncoder::new(Vec::new(), Compression::best())))
}

impl StreamEncoder for GzEncoder<Vec<u8>> {
    fn output(&mut self) -> &mut Vec<u8> {
        self.get_mut()
    }

    fn finish(self: Box<Self>) -> io::Result<Vec<u8>> {
        (*self).finish()
    }
}
