//! Parsing the records of a FastCGI response must not depend on the sizes of the input pieces, and
//! no byte of content is lost.
#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use weft_proto::fastcgi::{RecordReader, ResponsePart};

/// The parsed responses: both streams, the ends, the bytes that are not parsed, and the error.
type Parsed = (Vec<u8>, Vec<u8>, Vec<String>, Vec<u8>, Option<&'static str>);

/// Parses responses that arrive in pieces of `piece` bytes.
fn read(bytes: &[u8], piece: usize) -> Parsed {
    let (mut input, mut records) = (BytesMut::new(), RecordReader::default());
    let (mut stdout, mut stderr, mut ends) = (Vec::new(), Vec::new(), Vec::new());
    let mut error = None;
    for piece in bytes.chunks(piece.max(1)) {
        input.extend_from_slice(piece);
        while error.is_none() {
            match records.read(&mut input) {
                Ok(ResponsePart::Stdout(data)) => stdout.extend_from_slice(&data),
                Ok(ResponsePart::Stderr(data)) => stderr.extend_from_slice(&data),
                Ok(end @ ResponsePart::End { .. }) => ends.push(format!("{end:?}")),
                Ok(ResponsePart::Wait) => break,
                Err(found) => {
                    assert_eq!(records.read(&mut input), Err(found), "an error is not repeated");
                    error = Some(found.reason());
                }
            }
        }
    }
    (stdout, stderr, ends, input.to_vec(), error)
}

fuzz_target!(|input: (u8, &[u8])| {
    let (piece, bytes) = input;
    assert_eq!(read(bytes, bytes.len()), read(bytes, usize::from(piece)));
});
