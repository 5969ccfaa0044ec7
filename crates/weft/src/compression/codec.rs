//! The interface of the codings.

use std::io::{self, Write};

use weft_proto::semantics::coding::Coding;

/// Implementation of a coding.
pub(super) struct Codec {
    pub(super) coding: Coding,
    /// Creates the encoder of a stream, which allocates its memory now or with the first bytes.
    pub(super) encoder: fn(Levels) -> io::Result<Box<dyn StreamEncoder>>,
    /// Creates an encoder with more effort for a file of a given length.
    pub(super) best_encoder: fn(usize) -> io::Result<Box<dyn StreamEncoder>>,
    /// Number of input bytes after which a stream is flushed.
    pub(super) max_unflushed_bytes: usize,
}

/// Levels of streams that can be chosen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Levels {
    /// 1 (fast) to 9 (small).
    pub(crate) gzip: u32,
}

impl Default for Levels {
    fn default() -> Levels {
        Levels { gzip: 2 }
    }
}

/// Encoder that stores its output until it is taken.
pub(super) trait StreamEncoder: Write + Send {
    fn output(&mut self) -> &mut Vec<u8>;

    /// Ends the stream and returns the rest of the output.
    fn finish(self: Box<Self>) -> io::Result<Vec<u8>>;
}
