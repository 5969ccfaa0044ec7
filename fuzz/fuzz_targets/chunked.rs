//! Chunked decoding must not depend on the sizes of the input pieces.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weft::bench_api;

fuzz_target!(|input: (u8, &[u8])| {
    let (piece, body) = input;
    let whole = bench_api::decode_chunked(body, body.len());
    let pieces = bench_api::decode_chunked(body, usize::from(piece));
    match (whole, pieces) {
        (Ok(whole), Ok(pieces)) => assert_eq!(whole, pieces),
        (Err(whole), Err(pieces)) => assert_eq!(whole.kind(), pieces.kind()),
        (Err(_), Ok(None)) => {}
        (whole, pieces) => panic!("whole: {whole:?}, in pieces: {pieces:?}"),
    }
});
