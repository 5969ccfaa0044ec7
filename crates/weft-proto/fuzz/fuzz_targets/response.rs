//! Parsing a response (heads, body, trailers and end) must not depend on the sizes of the input
//! pieces.
#![no_main]

use bytes::BytesMut;
use http::Method;
use libfuzzer_sys::fuzz_target;
use weft_proto::Result;
use weft_proto::http1::client::{BodyPiece, BodyReader, HeadReader, ResponseHead};

/// The parsed response: the heads, the body, the trailers, and the bytes after them.
type Parsed = (Vec<String>, Vec<u8>, Option<String>, Vec<u8>);

/// Parses a response that arrives in pieces of `piece` bytes. Returns `None` if it is incomplete.
fn read(method: &Method, response: &[u8], piece: usize) -> Result<Option<Parsed>> {
    let mut pieces = response.chunks(piece.max(1));
    let (mut input, mut heads) = (BytesMut::new(), HeadReader::new(1 << 10));
    let mut formatted_heads = Vec::new();
    let head: ResponseHead = loop {
        match heads.read(&mut input, method)? {
            Some(head) => {
                let is_last = !head.status.is_informational() || head.status == 101;
                formatted_heads.push(format!("{head:?}"));
                if is_last {
                    break head;
                }
            }
            None => match pieces.next() {
                Some(piece) => input.extend_from_slice(piece),
                None => return Ok(None),
            },
        }
    };
    let (mut body, mut data) = (BodyReader::new(head.length), Vec::new());
    let mut trailers = None;
    loop {
        match body.read(&mut input)? {
            BodyPiece::Data(piece) => data.extend_from_slice(&piece),
            BodyPiece::Trailers(fields) => trailers = Some(format!("{fields:?}")),
            BodyPiece::End => break,
            BodyPiece::Wait => match pieces.next() {
                Some(piece) => input.extend_from_slice(piece),
                None if body.may_end_at_eof() => break,
                None => return Ok(None),
            },
        }
    }
    pieces.for_each(|piece| input.extend_from_slice(piece));
    Ok(Some((formatted_heads, data, trailers, input.to_vec())))
}

fuzz_target!(|input: (bool, u8, &[u8])| {
    let (is_head, piece, response) = input;
    let method = if is_head { Method::HEAD } else { Method::GET };
    let whole = read(&method, response, response.len());
    let pieces = read(&method, response, usize::from(piece));
    match (whole, pieces) {
        (Ok(whole), Ok(pieces)) => assert_eq!(whole, pieces),
        // An error in a line may be found only when the line is complete, and another error may be
        // found first.
        (Err(_), Err(_) | Ok(None)) => {}
        (whole, pieces) => panic!("whole: {whole:?}, in pieces: {pieces:?}"),
    }
});
