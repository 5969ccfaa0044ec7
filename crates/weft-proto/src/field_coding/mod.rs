//! The parts that HPACK (RFC 7541) and QPACK (RFC 9204) have in common.

pub(crate) mod dynamic_table; // the dynamic table
pub(crate) mod field_class; // classes of names, validity of values
pub(crate) mod huffman; // the Huffman code
pub(crate) mod integer; // prefix-coded integers

use std::fmt;

use self::field_class::FieldClass;

/// A field of a block.
#[derive(Clone, Copy, Debug)]
pub struct Field<'a> {
    /// The name. It is not validated.
    pub name: &'a [u8],
    /// The value. It is not validated.
    pub value: &'a [u8],
    /// The class of the name, and the validity of the value.
    pub class: FieldClass,
}

/// An error that stopped decoding. It is always a connection error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The block is not valid.
    Malformed,
    /// The callback returned false.
    Stopped,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DecodeError::Malformed => "the field block is not valid",
            DecodeError::Stopped => "decoding was stopped before the end of the field block",
        })
    }
}

impl std::error::Error for DecodeError {}

impl From<Malformed> for DecodeError {
    fn from(_: Malformed) -> DecodeError {
        DecodeError::Malformed
    }
}

/// The error of a block that is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// Buffer capacity kept between blocks; larger literals are rare.
pub(crate) const MAX_RETAINED_BYTES: usize = 1 << 10;

/// Reads a string literal with a prefix of `bits` bits, before which is the flag of the Huffman
/// code (RFC 7541 §5.2), and appends it to `out`.
pub(crate) fn read_string(
    block: &mut &[u8],
    bits: u32,
    out: &mut Vec<u8>,
) -> Result<(), Malformed> {
    let is_huffman = block.first().is_some_and(|first| first & (1 << bits) != 0);
    let length = integer::read(block, bits)?;
    let (text, rest) = block.split_at_checked(length).ok_or(Malformed)?;
    *block = rest;
    if is_huffman {
        return huffman::decode(text, out);
    }
    out.extend_from_slice(text);
    Ok(())
}
