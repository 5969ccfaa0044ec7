//! HPACK field compression (RFC 7541). Pure.

mod decode;
mod encode;
mod huffman;
mod integer;
mod field_class;
mod table;

pub(crate) use self::decode::{DecodeError, Decoder, Field};
pub(crate) use self::encode::{Encoder, Indexing};
pub(crate) use self::field_class::Name;

/// The error of a block that is not valid HPACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;
