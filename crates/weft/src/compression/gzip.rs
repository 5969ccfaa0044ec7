//! gzip (RFC 1952).

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;

use super::{Codec, Coding, StreamEncoder};

pub(super) const CODEC: Codec =
    Codec { coding: Coding::Gzip, compress, encoder, max_unflushed_bytes: usize::MAX };

fn compress(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut writer = GzEncoder::new(Vec::new(), Compression::best());
    writer.write_all(bytes)?;
    writer.finish()
}

fn encoder() -> io::Result<Box<dyn StreamEncoder>> {
    Ok(Box::new(GzEncoder::new(Vec::new(), Compression::new(5))))
}

impl StreamEncoder for GzEncoder<Vec<u8>> {
    fn output(&mut self) -> &mut Vec<u8> {
        self.get_mut()
    }

    fn finish(self: Box<Self>) -> io::Result<Vec<u8>> {
        (*self).finish()
    }
}
