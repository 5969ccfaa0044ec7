//! Round-trip properties: a composed request or response parses to the same parts.

use crate::common::boxed_server;
use proptest::prelude::*;
use weft::{Response, StatusCode, testing};

fn token() -> impl Strategy<Value = String> {
    "[!#$%&'*+.^_`|~0-9A-Za-z-]{1,20}"
}

/// Field values without leading or trailing whitespace, which is not part of a value.
fn value() -> impl Strategy<Value = String> {
    "([!-~]([ -~\t]{0,60}[!-~])?)?"
}

fn space() -> impl Strategy<Value = String> {
    "[ \t]{0,3}"
}

/// Fields with names that have no meaning to the engine.
fn fields() -> impl Strategy<Value = Vec<(String, String)>> {
    let name = token().prop_map(|name| format!("x-{name}"));
    prop::collection::vec((name, value()), 0..30)
}

proptest! {
    #[test]
    fn request_round_trips(
        method in token().prop_filter("CONNECT has no path", |method| method != "CONNECT"),
        path in "/[!\"$-~]{0,80}",
        fields in fields(),
        (before, after) in (space(), space()),
        body in prop::collection::vec(any::<u8>(), 0..50),
    ) {
        let path = path.replace('?', "%3F");
        let mut text = format!("{method} {path}?q HTTP/1.1\r\nHost: a\r\n").into_bytes();
        for (name, value) in &fields {
            text.extend(format!("{name}:{before}{value}{after}\r\n").bytes());
        }
        text.extend(b"\r\n");
        text.extend(&body);
        let request = testing::request(text);
        prop_assert_eq!(request.method().as_str(), method);
        prop_assert_eq!(request.path(), &*path);
        prop_assert_eq!(request.query(), Some("q"));
        let parsed: Vec<_> = request
            .headers()
            .iter()
            .skip(1)
            .map(|(name, value)| (name.to_owned(), String::from_utf8(value.to_vec()).unwrap()))
            .collect();
        prop_assert_eq!(parsed, fields);
        prop_assert_eq!(request.into_body().length(), Some(body.len() as u64));
    }

    #[test]
    fn response_round_trips(
        status in (200u16..=999).prop_filter("without a body", |s| !matches!(s, 204 | 304)),
        fields in fields(),
        body in prop::collection::vec(any::<u8>(), 0..50),
    ) {
        let mut response =
            Response::from_body(body.clone()).with_status(StatusCode::from_u16(status).unwrap());
        for (name, value) in &fields {
            response = response.with_appended_header(name, value);
        }
        let received = serialize(response);
        let mut header_buffer = [httparse::EMPTY_HEADER; 40];
        let mut parsed = httparse::Response::new(&mut header_buffer);
        let length = parsed.parse(&received).unwrap().unwrap();
        prop_assert_eq!(parsed.code, Some(status));
        let own: Vec<_> = parsed
            .headers
            .iter()
            .filter(|field| field.name.starts_with("x-"))
            .map(|field| (field.name.to_owned(), String::from_utf8(field.value.to_vec()).unwrap()))
            .collect();
        let fields: Vec<_> =
            fields.into_iter().map(|(name, value)| (name.to_lowercase(), value)).collect();
        prop_assert_eq!(own, fields);
        prop_assert_eq!(&received[length..], &body[..]);
    }
}

/// Returns the bytes that a client receives for `response`.
fn serialize(response: Response) -> Vec<u8> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let response = std::sync::Arc::new(std::sync::Mutex::new(Some(response)));
    let app = move |_| std::future::ready(response.lock().unwrap().take().expect("one request"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let (mut client, server) = tokio::io::duplex(64 << 10);
        let mut received = Vec::new();
        let exchange = async {
            client
                .write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                .await
                .unwrap();
            client.read_to_end(&mut received).await.unwrap();
        };
        let engine = boxed_server(app);
        tokio::join!(engine.serve_connection(server), exchange).0.unwrap();
        received
    })
}
