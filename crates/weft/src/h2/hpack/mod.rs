//! HPACK field compression (RFC 7541). Pure.

mod decode;
mod encode;
mod huffman;
mod integer;
mod meaning;
mod table;

pub(super) use self::decode::{Decoder, Failure, Field};
pub(super) use self::encode::{Encoder, Keep};
pub(super) use self::meaning::Name;

/// The error of a block that is not valid HPACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;
