//! Parsing a head must depend neither on the sizes of the input pieces nor on the bytes after it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weft::bench_api;

fuzz_target!(|input: (Vec<u16>, &[u8])| {
    let (cuts, head) = input;
    let whole = bench_api::parse(head);
    let _ = bench_api::check_framing(head);

    let mut ends: Vec<usize> =
        cuts.iter().map(|&cut| usize::from(cut) % (head.len() + 1)).collect();
    ends.sort_unstable();
    ends.push(head.len());
    let pieces = bench_api::parse_in_pieces(head, ends);
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
        assert_eq!(bench_api::parse(&head[..length]).unwrap(), Some((length, fields)));
    }
});
