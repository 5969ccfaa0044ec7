//! Compression of fields (RFC 7541). Pure.

mod decode;
mod encode;
mod huffman;
mod integer;
mod meaning;
mod table;

pub(crate) use self::decode::{Decoder, Failure, Field};
pub(crate) use self::encode::{Encoder, Keep};
pub(crate) use self::meaning::Name;

/// A block that means nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;
