//! A response is read alike however it comes: its heads, its body, and where it ends.
#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use weft::client::{BodyReader, Head, HeadReader, Piece};
use weft::{Error, Method};

/// What was read: the heads, the body, the trailers, and what is behind all that.
type Read = (Vec<String>, Vec<u8>, Option<String>, Vec<u8>);

/// Reads what comes in pieces. `None` if there is not enough of it.
fn read(method: &Method, response: &[u8], piece: usize) -> Result<Option<Read>, Error> {
    let mut pieces = response.chunks(piece.max(1));
    let (mut input, mut heads) = (BytesMut::new(), HeadReader::new(1 << 10));
    let mut shown = Vec::new();
    let head: Head = loop {
        match heads.read(&mut input, method)? {
            Some(head) => {
                let is_last = !head.status.is_informational() || head.status == 101;
                shown.push(format!("{head:?}"));
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
            Piece::Data(piece) => data.extend_from_slice(&piece),
            Piece::Trailers(fields) => trailers = Some(format!("{fields:?}")),
            Piece::End => break,
            Piece::Wait => match pieces.next() {
                Some(piece) => input.extend_from_slice(piece),
                None if body.may_end() => break,
                None => return Ok(None),
            },
        }
    }
    pieces.for_each(|piece| input.extend_from_slice(piece));
    Ok(Some((shown, data, trailers, input.to_vec())))
}

fuzz_target!(|input: (bool, u8, &[u8])| {
    let (is_head, piece, response) = input;
    let method = if is_head { Method::HEAD } else { Method::GET };
    let whole = read(&method, response, response.len());
    let pieces = read(&method, response, usize::from(piece));
    match (whole, pieces) {
        (Ok(whole), Ok(pieces)) => assert_eq!(whole, pieces),
        // What is wrong in a line may be found when that line has come, and then something else
        // may be found first.
        (Err(_), Err(_) | Ok(None)) => {}
        (whole, pieces) => panic!("whole: {whole:?}, in pieces: {pieces:?}"),
    }
});
