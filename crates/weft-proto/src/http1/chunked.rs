//! Decoder for bodies with a Content-Length and for chunked bodies (RFC 9112 §6 and §7). Pure.
//!
//! The decoder classifies the next bytes of the input; the caller consumes them and calls it again.
//! Nothing is copied.
//!
//! ```
//! use weft_proto::http1::chunked::{BodyDecoder, Step};
//! use weft_proto::http1::framing::Length;
//! use weft_proto::http1::parse::Limits;
//!
//! let limits = Limits { request_line: 0, head: 16_384, fields: 100 };
//! let mut decoder = BodyDecoder::new(Length::Chunked);
//! let mut input = &b"5\r\nhello\r\n7\r\n, world\r\n0\r\n\r\n"[..];
//! let mut body = Vec::new();
//! loop {
//!     match decoder.step(input, &limits)? {
//!         Step::Skip(bytes) | Step::Trailers(_, bytes) => input = &input[bytes..],
//!         Step::Data(bytes) => {
//!             body.extend_from_slice(&input[..bytes]);
//!             input = &input[bytes..];
//!         }
//!         Step::End => break,
//!         Step::Wait => panic!("the input holds the whole body"),
//!     }
//! }
//! assert_eq!(body, b"hello, world");
//! # Ok::<(), weft_proto::Error>(())
//! ```

use crate::http1::framing::Length;
use crate::http1::parse::{Fields, Limits, trailers};
use crate::semantics::path::hex_value;
use crate::{Error, Result};

/// The meaning of the next bytes of the input.
#[derive(Debug, PartialEq)]
pub enum Step {
    /// This many bytes of framing, to be skipped.
    Skip(usize),
    /// This many bytes of the body.
    Data(usize),
    /// The fields of the trailer section and its length in bytes. The body ends after it.
    Trailers(Fields, usize),
    /// The body has ended.
    End,
    /// More input is needed.
    Wait,
}

/// The state of the decoder: its position in the framing of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyDecoder {
    /// In a body with a known length, with this many bytes remaining.
    Sized(u64),
    /// At the size line of a chunk.
    ChunkSize,
    /// In a chunk, with this many bytes and the CRLF after them remaining.
    Chunk(u64),
    /// At the trailer section.
    Trailers,
    /// After the end of the body.
    Done,
}

/// Longest accepted chunk size line in bytes, without its CRLF. The rest of the line after the size
/// is chunk extensions, which are practically unused.
const MAX_SIZE_LINE_BYTES: usize = 256;

impl BodyDecoder {
    /// Creates a decoder at the start of a body of this length.
    #[inline]
    pub fn new(length: Length) -> BodyDecoder {
        match length {
            Length::Sized(0) => BodyDecoder::Done,
            Length::Sized(length) => BodyDecoder::Sized(length),
            Length::Chunked => BodyDecoder::ChunkSize,
        }
    }

    /// Returns the next step for `input`, which starts at the first unconsumed byte. `limits` apply
    /// to the trailer section.
    ///
    /// # Errors
    /// [`Malformed`](crate::ErrorKind::Malformed) for an invalid chunked coding or trailer section.
    /// The decoder must not be used after an error.
    pub fn step(&mut self, input: &[u8], limits: &Limits) -> Result<Step> {
        let available = input.len() as u64;
        match *self {
            BodyDecoder::Done => Ok(Step::End),
            _ if input.is_empty() => Ok(Step::Wait),
            BodyDecoder::Sized(remaining) => {
                let take = remaining.min(available);
                *self = if take == remaining {
                    BodyDecoder::Done
                } else {
                    BodyDecoder::Sized(remaining - take)
                };
                Ok(Step::Data(take as usize))
            }
            BodyDecoder::ChunkSize => {
                let Some((size, line)) = size_line(input)? else { return Ok(Step::Wait) };
                *self = if size == 0 { BodyDecoder::Trailers } else { BodyDecoder::Chunk(size) };
                Ok(Step::Skip(line))
            }
            BodyDecoder::Chunk(0) => match input {
                [b'\r', b'\n', ..] => {
                    *self = BodyDecoder::ChunkSize;
                    Ok(Step::Skip(2))
                }
                [b'\r'] => Ok(Step::Wait),
                _ => Err(Error::malformed("no CRLF after a chunk")),
            },
            BodyDecoder::Chunk(remaining) => {
                let take = remaining.min(available);
                *self = BodyDecoder::Chunk(remaining - take);
                Ok(Step::Data(take as usize))
            }
            BodyDecoder::Trailers => {
                let Some((fields, length)) = trailers(input, limits)? else {
                    return Ok(Step::Wait);
                };
                *self = BodyDecoder::Done;
                Ok(Step::Trailers(fields, length))
            }
        }
    }

    /// Returns the number of remaining bytes, if known.
    #[inline]
    pub fn remaining(&self) -> Option<u64> {
        match *self {
            BodyDecoder::Sized(remaining) => Some(remaining),
            BodyDecoder::Done => Some(0),
            _ => None,
        }
    }
}

/// Parses a chunk size line (RFC 9112 §7.1). Returns the size and the length of the line, or
/// `None` if more input is needed. Extensions are ignored, but must be valid field content.
fn size_line(input: &[u8]) -> Result<Option<(u64, usize)>> {
    let window = &input[..input.len().min(MAX_SIZE_LINE_BYTES + 2)];
    let digits = window.iter().take_while(|&&b| hex_value(b).is_some()).count();
    if digits > 16 {
        return Err(Error::malformed("a chunk size of more than 16 digits"));
    }
    let size = window[..digits]
        .iter()
        .fold(0u64, |size, &b| size << 4 | u64::from(hex_value(b).unwrap_or(0)));
    let extensions = match window.get(digits) {
        None => return Ok(None),
        Some(_) if digits == 0 => return Err(Error::malformed("a chunk without a size")),
        Some(b'\r') => 0,
        Some(b';') => super::scan::field_value(&window[digits..]),
        Some(_) => return Err(Error::malformed("a chunk size is not hexadecimal")),
    };
    match window[digits + extensions..] {
        [b'\r', b'\n', ..] => Ok(Some((size, digits + extensions + 2))),
        [] | [b'\r'] if window.len() < MAX_SIZE_LINE_BYTES + 2 => Ok(None),
        [] | [b'\r'] => Err(Error::malformed("a chunk size line is too long")),
        _ => Err(Error::malformed("a chunk size line does not end in CRLF")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { request_line: 0, head: 64, fields: 4 };

    /// Decodes input that arrives in pieces of `piece` bytes. Returns the body and the bytes after
    /// it.
    fn decode(input: &[u8], length: Length, piece: usize) -> Result<(Vec<u8>, Vec<u8>)> {
        let (mut decoder, mut body, mut received) =
            (BodyDecoder::new(length), Vec::new(), Vec::new());
        let mut pieces = input.chunks(piece);
        loop {
            match decoder.step(&received, &LIMITS)? {
                Step::Skip(n) => drop(received.drain(..n)),
                Step::Data(n) => body.extend(received.drain(..n)),
                Step::Trailers(_, n) => drop(received.drain(..n)),
                Step::End => {
                    received.extend(pieces.flatten());
                    return Ok((body, received));
                }
                Step::Wait => match pieces.next() {
                    Some(piece) => received.extend(piece),
                    None => return Err(Error::malformed("cut")),
                },
            }
        }
    }

    #[test]
    fn decodes_bodies_in_pieces_of_any_size_and_leaves_the_tail() {
        let long = format!("5;{}\r\nhello\r\n0\r\n\r\n", "x".repeat(254));
        let too_long = format!("5;{}\r\nhello\r\n0\r\n\r\n", "x".repeat(255));
        let chunked = [
            ("0\r\n\r\n", Some("")),
            ("5\r\nhello\r\n0\r\n\r\n", Some("hello")),
            ("5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n", Some("hello world")),
            ("a\r\n0123456789\r\n0\r\n\r\n", Some("0123456789")),
            ("0000000000000005\r\nhello\r\n000\r\n\r\n", Some("hello")),
            ("5;a=b\r\nhello\r\n0;c\r\n\r\n", Some("hello")),
            ("5\r\nhello\r\n0\r\nA: b\r\nC: d\r\n\r\n", Some("hello")),
            (&long, Some("hello")),
            (&too_long, None),
            ("00000000000000005\r\nhello\r\n0\r\n\r\n", None),
            ("\r\nhello\r\n0\r\n\r\n", None),
            ("5 \r\nhello\r\n0\r\n\r\n", None),
            ("+5\r\nhello\r\n0\r\n\r\n", None),
            ("0x5\r\nhello\r\n0\r\n\r\n", None),
            ("5\nhello\r\n0\r\n\r\n", None),
            ("5\r\nhelloo\r\n0\r\n\r\n", None),
            ("5\r\nhello\n0\r\n\r\n", None),
            ("5;a\nb\r\nhello\r\n0\r\n\r\n", None),
            ("5\r\nhello\r\n0\r\nA : b\r\n\r\n", None),
            ("5\r\nhello\r\n0\r\nA: 1\r\nA: 1\r\nA: 1\r\nA: 1\r\nA: 1\r\n\r\n", None),
            ("5\r\nhello\r\n0\r\n", None),
            ("5\r\nhel", None),
        ];
        let sized = [(0, "", Some("")), (3, "abc", Some("abc")), (4, "abc", None)];
        let cases = chunked.map(|(input, body)| (Length::Chunked, input, body)).into_iter();
        let sized = sized.map(|(n, input, body)| (Length::Sized(n), input, body));
        for (length, input, body) in cases.chain(sized) {
            for piece in 1..=input.len().max(1) {
                let decoded = decode(input.as_bytes(), length, piece);
                assert_eq!(decoded.ok().map(|(body, _)| body), body.map(Vec::from), "{input:?}");
            }
            let Some(body) = body else { continue };
            let with_tail = [input, "GET /"].concat();
            let (decoded, tail) = decode(with_tail.as_bytes(), length, with_tail.len()).unwrap();
            assert_eq!((&*decoded, &*tail), (body.as_bytes(), &b"GET /"[..]), "{input:?}");
        }
    }
}
