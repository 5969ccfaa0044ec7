//! Multipart forms: the parts do not depend on the pieces in which the body arrives, and a composed
//! form is parsed to its parts.
#![no_main]

use futures_util::stream;
use libfuzzer_sys::fuzz_target;
use weft::{Body, Error, testing};

/// The content type and content of each part, up to the end or the error.
type Parts = (Vec<(String, Option<String>, Vec<u8>)>, Result<(), String>);

fuzz_target!(|input: (u8, &[u8], Vec<(&[u8], Vec<u8>)>)| {
    let (piece, body, fields) = input;
    let whole = parse(body, body.len());
    let pieces = parse(body, usize::from(piece));
    match (&whole, &pieces) {
        ((whole, Ok(())), (pieces, Ok(()))) => assert_eq!(whole, pieces),
        ((_, Err(_)), (_, Err(_))) => {}
        _ => panic!("whole: {whole:?}, in pieces: {pieces:?}"),
    }
    compose_and_parse(&fields, usize::from(piece));
});

fn compose_and_parse(fields: &[(&[u8], Vec<u8>)], piece: usize) {
    let fields = fields.iter().take(20).map(|(name, content)| {
        let name: String =
            name.iter().filter(|b| b.is_ascii_alphanumeric()).map(|&b| b as char).collect();
        (name, content)
    });
    let fields: Vec<_> = fields.collect();
    let has_boundary = |content: &[u8]| content.windows(4).any(|bytes| bytes == b"--BB");
    if fields.iter().any(|(_, content)| has_boundary(content)) {
        return;
    }
    let mut body = Vec::new();
    for (name, content) in &fields {
        let head =
            format!("--BB\r\nContent-Disposition: form-data; name=\"{name}\"; filename=a\r\n\r\n");
        body.extend(head.into_bytes());
        body.extend_from_slice(content);
        body.extend(b"\r\n");
    }
    body.extend(b"--BB--\r\n");
    let (parts, end) = parse(&body, piece);
    assert_eq!(end, Ok(()));
    let parts: Vec<_> = parts.into_iter().map(|(name, _, content)| (name, content)).collect();
    let expected: Vec<_> =
        fields.into_iter().map(|(name, content)| (name, content.clone())).collect();
    assert_eq!(parts, expected);
}

/// Parses a body that arrives in pieces of `piece` bytes.
fn parse(body: &[u8], piece: usize) -> Parts {
    let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\
        Content-Type: multipart/form-data; boundary=BB\r\n\r\n";
    let (head, _) = testing::request(head).into_parts();
    let pieces: Vec<Vec<u8>> = body.chunks(piece.max(1)).map(<[u8]>::to_vec).collect();
    let body = Body::stream(stream::iter(pieces.into_iter().map(Ok::<_, std::io::Error>)));
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("an event loop");
    let mut parts = Vec::new();
    let end = runtime.block_on(async {
        let mut form = weft::form::multipart(weft::Request::from_parts(head, body))?;
        while let Some(mut part) = form.next().await? {
            let name = part.name().to_owned();
            let content_type = part.content_type().map(str::to_owned);
            let mut content = Vec::new();
            while let Some(chunk) = part.chunk().await? {
                content.extend_from_slice(&chunk);
            }
            parts.push((name, content_type, content));
        }
        Ok::<(), Error>(())
    });
    (parts, end.map_err(|error| error.to_string()))
}
