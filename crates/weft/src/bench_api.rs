//! Access to the pure parts for benchmarks and fuzz targets. Not part of the public API: anything
//! here may change in any version.

use std::sync::LazyLock;

use bytes::Bytes;
use http::{HeaderValue, StatusCode, Version};

use crate::message::fields::{Fields, TEXT};
use weft_proto::Result;
use weft_proto::http1::chunked::{BodyDecoder, Step};
use weft_proto::http1::compose::{self, HeadPrefix};
use weft_proto::http1::framing::{self, Length, ResponseFraming};
use weft_proto::http1::parse::{Limits, ParsedHead};

const LIMITS: Limits = Limits { request_line: 8_192, head: 16_384, fields: 100 };

/// Parses one head. Returns its length and the number of its fields.
pub fn parse(input: &[u8]) -> Result<Option<(usize, usize)>> {
    parse_in_pieces(input, [input.len()])
}

/// Parses one head that arrives in pieces, which end at the positions `ends`.
pub fn parse_in_pieces(
    input: &[u8],
    ends: impl IntoIterator<Item = usize>,
) -> Result<Option<(usize, usize)>> {
    let mut head = ParsedHead::new();
    for end in ends {
        if let Some(length) = head.read(&input[..end], &LIMITS)? {
            return Ok(Some((length, head.fields.len())));
        }
    }
    Ok(None)
}

/// Parses one head and determines its framing. Returns true if it is complete and accepted.
pub fn check_framing(input: &[u8]) -> Result<bool> {
    let mut head = ParsedHead::new();
    let Some(length) = head.read(input, &LIMITS)? else { return Ok(false) };
    framing::request(&head, &input[..length]).map(|_| true)
}

/// Decodes a chunked body that arrives in pieces of `piece` bytes. Returns the body and the bytes
/// after it, or `None` if it is incomplete.
pub fn decode_chunked(input: &[u8], piece: usize) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
    let (mut decoder, mut body) = (BodyDecoder::new(Length::Chunked), Vec::new());
    let mut pieces = input.chunks(piece.max(1));
    let mut received = Vec::new();
    loop {
        match decoder.step(&received, &LIMITS)? {
            Step::Skip(bytes) | Step::Trailers(_, bytes) => drop(received.drain(..bytes)),
            Step::Data(bytes) => body.extend(received.drain(..bytes)),
            Step::End => {
                received.extend(pieces.flatten());
                return Ok(Some((body, received)));
            }
            Step::Wait => match pieces.next() {
                Some(piece) => received.extend_from_slice(piece),
                None => return Ok(None),
            },
        }
    }
}

/// Composes the head of a typical response.
pub fn compose(out: &mut Vec<u8>, body: &Bytes) {
    static OPENING: LazyLock<HeadPrefix> =
        LazyLock::new(|| HeadPrefix::new(Some(&HeaderValue::from_static("weft"))));
    compose::head(
        out,
        &compose::ResponseHead {
            version: Version::HTTP_11,
            status: StatusCode::OK,
            fields: Fields::Static(&TEXT).sources(),
            framing: ResponseFraming::Sized(body.len() as u64),
            keep_alive: true,
            head_prefix: &OPENING,
        },
    );
}
