//! Weft's parser compared with httparse. Weft's is stricter and stores positions; httparse stores
//! slices, and leaves more checks to its callers.
//!
//! `cargo run --release --manifest-path bench/Cargo.toml -p weft-experiments --bin parser`

use std::hint::black_box;

use weft_experiments::compare;
use weft_proto::http1::parse::{Limits, ParsedHead};

const LIMITS: Limits = Limits { request_line: 8_192, head: 16_384, fields: 100 };

const MINIMAL: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost:8080\r\n\r\n";

/// The request head of Chromium.
const BROWSER: &[u8] = b"GET / HTTP/1.1\r\n\
    Host: localhost:8080\r\n\
    Connection: keep-alive\r\n\
    sec-ch-ua: \"Chromium\";v=\"140\", \"Not=A?Brand\";v=\"24\"\r\n\
    sec-ch-ua-mobile: ?0\r\n\
    sec-ch-ua-platform: \"Linux\"\r\n\
    Upgrade-Insecure-Requests: 1\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8\r\n\
    Sec-Fetch-Site: none\r\n\
    Sec-Fetch-Mode: navigate\r\n\
    Sec-Fetch-User: ?1\r\n\
    Sec-Fetch-Dest: document\r\n\
    Accept-Encoding: gzip, deflate, br, zstd\r\n\
    Accept-Language: en-GB,en;q=0.9\r\n\r\n";

fn main() {
    for (title, input) in [("a minimal head", MINIMAL), ("a browser's head", BROWSER)] {
        compare(title, &[("httparse", &|| httparse(input)), ("Weft", &|| weft(input))]);
    }
}

fn weft(input: &[u8]) {
    let mut head = ParsedHead::new();
    black_box(head.read(black_box(input), &LIMITS).is_ok_and(|length| length.is_some()));
    black_box(&head);
}

fn httparse(input: &[u8]) {
    let mut fields = [httparse::EMPTY_HEADER; 16];
    let mut request = httparse::Request::new(&mut fields);
    black_box(request.parse(black_box(input)).is_ok_and(|status| status.is_complete()));
    black_box(&request);
}
