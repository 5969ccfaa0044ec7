//! Decoding of bodies, sized and chunked. Pure.
//!
//! The decoder looks at the input and says what its next bytes are; the caller
//! takes them off and asks again. Nothing is copied.

use crate::error::{Error, Result};
use crate::proto::http1::framing::Length;
use crate::proto::http1::parse::{Fields, Limits, trailers};
use crate::proto::semantics::path::hex_value;

/// What the next bytes of the input are.
#[derive(Debug, PartialEq)]
pub(crate) enum Step {
    /// So many bytes of framing.
    Skip(usize),
    /// So many bytes of the body.
    Data(usize),
    /// The trailer section, of so many bytes, and then the end.
    Trailers(Fields, usize),
    /// The body has ended.
    End,
    /// Not to be told before more has come.
    Wait,
}

/// Where in the body the input stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decoder {
    /// So many bytes of a sized body are left.
    Sized(u64),
    /// At a chunk's size.
    ChunkSize,
    /// So many bytes of a chunk are left, and the CRLF behind them.
    Chunk(u64),
    /// At the trailer section.
    Trailers,
    Done,
}

/// The longest line with a chunk's size and its extensions, which nobody uses; without
/// its CRLF.
const MAX_SIZE_LINE: usize = 256;

impl Decoder {
    pub(crate) fn new(length: Length) -> Decoder {
        match length {
            Length::Sized(0) => Decoder::Done,
            Length::Sized(length) => Decoder::Sized(length),
            Length::Chunked => Decoder::ChunkSize,
        }
    }

    /// The next step for this input; after an error there is none.
    pub(crate) fn step(&mut self, input: &[u8], limits: &Limits) -> Result<Step> {
        let available = input.len() as u64;
        match *self {
            Decoder::Done => Ok(Step::End),
            _ if input.is_empty() => Ok(Step::Wait),
            Decoder::Sized(left) => {
                let take = left.min(available);
                *self = if take == left { Decoder::Done } else { Decoder::Sized(left - take) };
                Ok(Step::Data(take as usize))
            }
            Decoder::ChunkSize => {
                let Some((size, line)) = size_line(input)? else { return Ok(Step::Wait) };
                *self = if size == 0 { Decoder::Trailers } else { Decoder::Chunk(size) };
                Ok(Step::Skip(line))
            }
            Decoder::Chunk(0) => match input {
                [b'\r', b'\n', ..] => {
                    *self = Decoder::ChunkSize;
                    Ok(Step::Skip(2))
                }
                [b'\r'] => Ok(Step::Wait),
                _ => Err(Error::malformed("no CRLF behind a chunk")),
            },
            Decoder::Chunk(left) => {
                let take = left.min(available);
                *self = Decoder::Chunk(left - take);
                Ok(Step::Data(take as usize))
            }
            Decoder::Trailers => {
                let Some((fields, length)) = trailers(input, limits)? else {
                    return Ok(Step::Wait);
                };
                *self = Decoder::Done;
                Ok(Step::Trailers(fields, length))
            }
        }
    }

    /// How many bytes are left, where that is known.
    pub(crate) fn length(&self) -> Option<u64> {
        match *self {
            Decoder::Sized(left) => Some(left),
            Decoder::Done => Some(0),
            _ => None,
        }
    }
}

/// A chunk's size and the length of its line (RFC 9112 §7.1). Extensions are passed
/// over, as long as they are text.
fn size_line(input: &[u8]) -> Result<Option<(u64, usize)>> {
    let window = &input[..input.len().min(MAX_SIZE_LINE + 2)];
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
        [] | [b'\r'] if window.len() < MAX_SIZE_LINE + 2 => Ok(None),
        [] | [b'\r'] => Err(Error::malformed("a line with a chunk's size is too long")),
        _ => Err(Error::malformed("a line with a chunk's size does not end in CRLF")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { request_line: 0, head: 64, fields: 4 };

    /// Decodes what comes in pieces of this size; the body, and what is behind it.
    fn decode(input: &[u8], length: Length, piece: usize) -> Result<(Vec<u8>, Vec<u8>)> {
        let (mut decoder, mut body, mut seen) = (Decoder::new(length), Vec::new(), Vec::new());
        let mut pieces = input.chunks(piece);
        loop {
            match decoder.step(&seen, &LIMITS)? {
                Step::Skip(n) => drop(seen.drain(..n)),
                Step::Data(n) => body.extend(seen.drain(..n)),
                Step::Trailers(_, n) => drop(seen.drain(..n)),
                Step::End => {
                    seen.extend(pieces.flatten());
                    return Ok((body, seen));
                }
                Step::Wait => match pieces.next() {
                    Some(piece) => seen.extend(piece),
                    None => return Err(Error::new(crate::ErrorKind::BodyIncomplete, "cut")),
                },
            }
        }
    }

    #[test]
    fn bodies_whole_in_pieces_and_with_a_tail() {
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
