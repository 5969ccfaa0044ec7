//! Parsing a head must depend neither on the sizes of the input pieces nor on the bytes after it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weft_proto::Result;
use weft_proto::http1::framing;
use weft_proto::http1::parse::{Limits, ParsedHead};

const LIMITS: Limits = Limits { request_line: 8_192, head: 16_384, fields: 100 };

fuzz_target!(|input: (Vec<u16>, &[u8])| {
    let (cuts, head) = input;
    let whole = parse(head, [head.len()]);

    let mut ends: Vec<usize> =
        cuts.iter().map(|&cut| usize::from(cut) % (head.len() + 1)).collect();
    ends.sort_unstable();
    ends.push(head.len());
    let pieces = parse(head, ends);
    match (&whole, &pieces) {
        (Ok(whole), Ok(pieces)) => assert_eq!(whole, pieces),
        (Err(whole), Err(pieces)) => assert_eq!(whole.kind(), pieces.kind()),
        // An incomplete line may be rejected only when it is complete.
        (Err(_), Ok(None)) => {}
        (whole, pieces) => panic!("whole: {whole:?}, in pieces: {pieces:?}"),
    }
    if let Ok(Some((length, fields))) = whole {
        assert!(length <= head.len());
        assert!(head[..length].ends_with(b"\r\n\r\n"));
        assert!(head[..length].iter().filter(|&&b| b == b'\n').count() >= fields + 2);
        assert_eq!(parse(&head[..length], [length]).unwrap(), Some((length, fields)));
    }
});

/// Parses one head that arrives in pieces, which end at the positions `ends`, and determines its
/// framing. Returns the length of the head and the number of its fields if it is complete.
fn parse(input: &[u8], ends: impl IntoIterator<Item = usize>) -> Result<Option<(usize, usize)>> {
    let mut head = ParsedHead::new();
    for end in ends {
        if let Some(length) = head.read(&input[..end], &LIMITS)? {
            let _ = framing::request(&head, &input[..length]);
            return Ok(Some((length, head.fields.len())));
        }
    }
    Ok(None)
}
