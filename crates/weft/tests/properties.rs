//! What holds for every request and every response: what one side composes, the other
//! side parses to the same.

use proptest::prelude::*;
use weft::{Response, Server, StatusCode, testing};

fn token() -> impl Strategy<Value = String> {
    "[!#$%&'*+.^_`|~0-9A-Za-z-]{1,20}"
}

/// No white space at either end, which is no part of a value.
fn value() -> impl Strategy<Value = String> {
    "([!-~]([ -~\t]{0,60}[!-~])?)?"
}

fn space() -> impl Strategy<Value = String> {
    "[ \t]{0,3}"
}

/// Names that the engine gives a meaning to are left out.
fn fields() -> impl Strategy<Value = Vec<(String, String)>> {
    let name = token().prop_map(|name| format!("x-{name}"));
    prop::collection::vec((name, value()), 0..30)
}

proptest! {
    #[test]
    fn a_request_is_parsed_to_what_it_was_made_of(
        method in token().prop_filter("tunnels have other targets", |method| method != "CONNECT"),
        path in "/[!\"$-~]{0,80}",
        fields in fields(),
        (before, behind) in (space(), space()),
        body in prop::collection::vec(any::<u8>(), 0..50),
    ) {
        let path = path.replace('?', "%3F");
        let mut text = format!("{method} {path}?q HTTP/1.1\r\nHost: a\r\n").into_bytes();
        for (name, value) in &fields {
            text.extend(format!("{name}:{before}{value}{behind}\r\n").bytes());
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
    fn a_response_is_parsed_to_what_it_was_made_of(
        status in (200u16..=999).prop_filter("these have no body", |s| !matches!(s, 204 | 304)),
        fields in fields(),
        body in prop::collection::vec(any::<u8>(), 0..50),
    ) {
        let mut response =
            Response::body(body.clone()).with_status(StatusCode::from_u16(status).unwrap());
        for (name, value) in &fields {
            response = response.with_header(name.parse().unwrap(), value);
        }
        let came = answer(response);
        let mut room = [httparse::EMPTY_HEADER; 40];
        let mut parsed = httparse::Response::new(&mut room);
        let length = parsed.parse(&came).unwrap().unwrap();
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
        prop_assert_eq!(&came[length..], &body[..]);
    }
}

/// What a client gets to read when an application answers so.
fn answer(response: Response) -> Vec<u8> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let response = std::sync::Arc::new(std::sync::Mutex::new(Some(response)));
    let app = move |_| std::future::ready(response.lock().unwrap().take().expect("one request"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let (mut client, server) = tokio::io::duplex(64 << 10);
        let mut came = Vec::new();
        let ask = async {
            client
                .write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                .await
                .unwrap();
            client.read_to_end(&mut came).await.unwrap();
        };
        let engine = Server::new(app);
        tokio::join!(engine.serve_connection(server), ask).0.unwrap();
        came
    })
}
