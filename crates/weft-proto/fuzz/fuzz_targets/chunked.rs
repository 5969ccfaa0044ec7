//! Chunked decoding must not depend on the sizes of the input pieces.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weft_proto::Result;
use weft_proto::http1::chunked::{BodyDecoder, Step};
use weft_proto::http1::framing::Length;
use weft_proto::http1::parse::Limits;

const LIMITS: Limits = Limits { request_line: 0, head: 16_384, fields: 100 };

fuzz_target!(|input: (u8, &[u8])| {
    let (piece, body) = input;
    let whole = decode(body, body.len());
    let pieces = decode(body, usize::from(piece));
    match (whole, pieces) {
        (Ok(whole), Ok(pieces)) => assert_eq!(whole, pieces),
        (Err(whole), Err(pieces)) => assert_eq!(whole.kind(), pieces.kind()),
        (Err(_), Ok(None)) => {}
        (whole, pieces) => panic!("whole: {whole:?}, in pieces: {pieces:?}"),
    }
});

/// Decodes a chunked body that arrives in pieces of `piece` bytes. Returns the body and the bytes
/// after it, or `None` if it is incomplete.
fn decode(input: &[u8], piece: usize) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
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
