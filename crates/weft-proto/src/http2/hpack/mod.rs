//! HPACK field compression (RFC 7541). Pure.

mod decode;
mod encode;
mod huffman;
mod integer;
mod field_class;
mod table;

pub use self::decode::{DecodeError, Decoder, Field};
pub use self::encode::{Encoder, Indexing};
pub use self::field_class::Name;

/// The error of a block that is not valid HPACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;
