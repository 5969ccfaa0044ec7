//! Streams of HTTP/3: their readers give the same frames for any pieces of the input.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use weft_proto::http3::ErrorCode;
use weft_proto::http3::control::{ControlFrame, ControlReader};
use weft_proto::http3::frame::{self, kind};
use weft_proto::http3::request::{RequestPart, RequestReader};

const MAX_SECTION_BYTES: usize = 300;

/// Frames, as type and payload, before other bytes.
type Stream = (Vec<(u8, Vec<u8>)>, Vec<u8>);

fuzz_target!(|input: (Stream, Vec<u8>)| {
    let (stream, cuts) = input;
    let bytes = encode(stream);
    // A server writes SETTINGS as it reads them.
    let with_settings = [&[kind::SETTINGS as u8, 0][..], &bytes].concat();
    assert_eq!(control(&[&bytes]), control(&pieces(&bytes, &cuts)));
    assert_eq!(control(&[&with_settings]), control(&pieces(&with_settings, &cuts)));
    let (whole, in_pieces) = (request(&[&bytes]), request(&pieces(&bytes, &cuts)));
    assert_eq!(whole, in_pieces);
    let parts = whole.0;
    let data = parts.iter().map(|part| match part {
        RequestPart::Data(data) => data.len(),
        RequestPart::Head(section) | RequestPart::Trailers(section) => {
            assert!(section.len() <= MAX_SECTION_BYTES);
            section.len()
        }
    });
    assert!(data.sum::<usize>() <= bytes.len());
});

fn encode((frames, other): Stream) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (kind, payload) in frames {
        let kind = match kind {
            20 => kind::PRIORITY_UPDATE,
            21 => kind::PRIORITY_UPDATE_PUSH,
            kind => u64::from(kind),
        };
        frame::head(&mut bytes, kind, payload.len() as u64);
        bytes.extend(payload);
    }
    bytes.extend(other);
    bytes
}

/// Cuts the bytes into pieces of the given sizes.
fn pieces<'a>(mut bytes: &'a [u8], cuts: &[u8]) -> Vec<&'a [u8]> {
    let mut pieces = Vec::new();
    for cut in cuts {
        let (piece, rest) = bytes.split_at(usize::from(*cut).min(bytes.len()));
        pieces.push(piece);
        bytes = rest;
    }
    pieces.push(bytes);
    pieces
}

fn control(pieces: &[&[u8]]) -> (Vec<ControlFrame>, Option<ErrorCode>) {
    let (mut reader, mut frames) = (ControlReader::default(), Vec::new());
    for piece in pieces {
        let mut piece = Bytes::copy_from_slice(piece);
        loop {
            match reader.next(&mut piece) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(code) => return (frames, Some(code)),
            }
        }
        assert!(piece.is_empty());
    }
    (frames, None)
}

/// Returns the parts of a request, with adjacent data joined, and the result of its end.
fn request(pieces: &[&[u8]]) -> (Vec<RequestPart>, Result<(), ErrorCode>) {
    let (mut reader, mut parts) = (RequestReader::new(MAX_SECTION_BYTES), Vec::new());
    for piece in pieces {
        let mut piece = Bytes::copy_from_slice(piece);
        loop {
            match (reader.next(&mut piece), parts.last_mut()) {
                (Ok(Some(RequestPart::Data(data))), Some(RequestPart::Data(last))) => {
                    *last = [&last[..], &data].concat().into();
                }
                (Ok(Some(part)), _) => parts.push(part),
                (Ok(None), _) => break,
                (Err(code), _) => return (parts, Err(code)),
            }
        }
        assert!(piece.is_empty());
    }
    let end = reader.end();
    (parts, end)
}
