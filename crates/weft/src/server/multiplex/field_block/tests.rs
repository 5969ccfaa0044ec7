//! Field blocks as data.

use super::*;
use weft_proto::http2::hpack::Decoder;

const LIMITS: Limits = Limits { request_line: 30, head: 4_096, fields: 4 };

fn field_block(fields: &[(&str, &str)], is_trailers: bool) -> FieldBlock {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.extend([0, name.len() as u8]);
        block.extend(name.as_bytes());
        block.push(value.len() as u8);
        block.extend(value.as_bytes());
    }
    let mut set = FieldBlock::new(Version::HTTP_2);
    set.clear(is_trailers);
    Decoder::new().decode(&block, |field| set.on_field(field, &LIMITS)).unwrap();
    set
}

/// Parses a request from its method, the other pseudo-header fields and the regular fields. `-`
/// omits a pseudo-header field.
fn read(
    method: &str,
    uri: &[&str],
    fields: &[(&str, &str)],
) -> Result<ParsedRequest, FieldBlockError> {
    let mut head = vec![(":method", method)];
    head.extend(
        [":scheme", ":authority", ":path", ":protocol"].into_iter().zip(uri.iter().copied()),
    );
    head.retain(|(_, value)| *value != "-");
    head.extend(fields);
    field_block(&head, false).request(true)
}

/// Formats method, target and fields of a request.
fn show(request: &ParsedRequest) -> String {
    let head = &request.head;
    let fields: Vec<_> = head
        .headers()
        .iter()
        .map(|(name, value)| format!("{name}: {}", String::from_utf8_lossy(value)))
        .collect();
    format!("{} {} {}", head.method(), head.target(), fields.join(" | "))
}

#[test]
fn converts_field_blocks_to_http1_form() {
    for (method, uri, fields, shown) in [
        ("GET", &["http", "a", "/x?y"][..], &[][..], "GET /x?y host: a"),
        ("GET", &["http", "a:80", "/"], &[("host", "A:80")], "GET / host: A:80"),
        ("GET", &["http", "-", "/"], &[("x", "1"), ("host", "a")], "GET / host: a | x: 1"),
        (
            "GET",
            &["http", "a", "/"],
            &[("x", "1"), ("y", ""), ("x", "2")],
            "GET / host: a | x: 1 | y:  | x: 2",
        ),
        (
            "GET",
            &["http", "a", "/"],
            &[("cookie", "a=1"), ("x", "1"), ("cookie", "b=2"), ("cookie", "c=3")],
            "GET / host: a | cookie: a=1; b=2; c=3 | x: 1",
        ),
        (
            "GET",
            &["http", "-", "/"],
            &[("x", "1"), ("cookie", "a=1"), ("host", "a"), ("cookie", "b=2")],
            "GET / host: a | x: 1 | cookie: a=1; b=2",
        ),
        ("CONNECT", &["-", "a:1"], &[], "CONNECT a:1 host: a:1"),
        ("OPTIONS", &["http", "-", "*"], &[("host", "a")], "OPTIONS * host: a"),
    ] {
        let request = read(method, uri, fields).unwrap();
        assert_eq!(show(&request), shown);
        assert_eq!(request.is_tunnel, method == "CONNECT");
    }
}

#[test]
fn converts_extended_connect_to_upgrade() {
    for (uri, host) in [
        (["http", "a", "/chat", "websocket"], &[][..]),
        (["http", "-", "/chat", "websocket"], &[("host", "a")]),
    ] {
        let fields = [&[("sec-websocket-version", "13")], host].concat();
        let request = read("CONNECT", &uri, &fields).unwrap();
        let key = request.head.headers().get("sec-websocket-key").unwrap().to_owned();
        assert_eq!(key.len(), 24);
        assert_eq!(
            show(&request).replace(&key, "KEY"),
            "GET /chat host: a | connection: upgrade | upgrade: websocket | \
             sec-websocket-key: KEY | sec-websocket-version: 13"
        );
        assert!(request.is_tunnel);
    }
}

#[test]
fn rejects_invalid_requests_with_a_response() {
    let plain = &["http", "a", "/"][..];
    let large = &"x".repeat(126)[..];
    for (method, uri, fields, kind) in [
        ("GET", &["http", "-", "/"][..], &[][..], ErrorKind::Malformed),
        ("GET", &["http", "-", "/"], &[("host", "a"), ("host", "a")], ErrorKind::Malformed),
        ("GET", &["http", "-", "/"], &[("host", "a b")], ErrorKind::Malformed),
        ("GET", plain, &[("host", "b")], ErrorKind::Malformed),
        ("GET", &["http", "u@a", "/"], &[], ErrorKind::Malformed),
        ("GET", &["http", "a,b", "/"], &[], ErrorKind::Malformed),
        ("GET", &["http", "-", "*"], &[("host", "a")], ErrorKind::Malformed),
        ("GET", plain, &[("x", " 1")], ErrorKind::Malformed),
        ("GET", plain, &[("x", "1\t")], ErrorKind::Malformed),
        ("CONNECT", &["-", "a"], &[], ErrorKind::Malformed),
        ("GET", plain, &[("expect", "miracles")], ErrorKind::ExpectationFailed),
        (
            "GET",
            plain,
            &[("expect", "100-continue"), ("expect", "miracles")],
            ErrorKind::ExpectationFailed,
        ),
        ("PUT", plain, &[("content-length", "")], ErrorKind::Malformed),
        ("PUT", plain, &[("content-length", "5"), ("content-length", "5")], ErrorKind::Malformed),
        ("GET", &["http", "a", "/234567890123456789012345678901"], &[], ErrorKind::TargetTooLong),
        (
            "GET",
            plain,
            &[("a", ""), ("b", ""), ("c", ""), ("d", ""), ("e", "")],
            ErrorKind::HeadTooLarge,
        ),
        ("GET", plain, &[("a", large); 26], ErrorKind::HeadTooLarge),
    ] {
        match read(method, uri, fields) {
            Err(FieldBlockError::Respond(error)) => {
                assert_eq!(error.kind(), kind, "{method} {uri:?} {fields:?}");
            }
            other => panic!("{method} {uri:?} {fields:?}: {other:?}"),
        }
    }
}

#[test]
fn resets_stream_for_malformed_requests() {
    let plain = &["http", "a", "/"][..];
    for (method, uri, fields) in [
        ("-", plain, &[][..]),
        ("GET", &["-", "a", "/"], &[]),
        ("GET", &["http", "a"], &[]),
        ("GET", &["h/p", "a", "/"], &[]),
        ("GET", &["http", "a/b", "/"], &[]),
        ("GET", &["http", "a", ""], &[]),
        ("GET", &["http", "a", "x"], &[]),
        ("GET", &["http", "a", "/a b"], &[]),
        ("GET", &["http", "a", "/", "x"], &[]),
        ("CONNECT", &["http", "a:1"], &[]),
        ("CONNECT", &["-", "a:1", "/"], &[]),
        ("CONNECT", &["-", "a:1", "-", "x"], &[]),
        ("GET", plain, &[("x", ""), (":path", "/")]),
        ("GET", plain, &[(":path", "/")]),
        ("GET", plain, &[(":status", "200")]),
        ("GET", plain, &[("connection", "close")]),
        ("GET", plain, &[("te", "gzip")]),
        ("GET", plain, &[("content-length", "x")]),
        ("GET", plain, &[("content-length", "5")]),
        ("GET", plain, &[("content-length", "5"), ("content-length", "6")]),
        // The most severe error counts, regardless of its position.
        ("GET", plain, &[("x", " 1"), ("connection", "close")]),
        ("GET", plain, &[("connection", "close"), ("x", "\0")]),
        ("G T", plain, &[]),
        ("GET", plain, &[("X", "")]),
        ("GET", plain, &[("", "")]),
        ("GET", plain, &[(":x", "")]),
        ("GET", plain, &[("x", "a\nb")]),
    ] {
        let error = read(method, uri, fields).unwrap_err();
        assert!(
            matches!(error, FieldBlockError::Malformed),
            "{method} {uri:?} {fields:?}: {error:?}"
        );
    }
}

#[test]
fn checks_trailers() {
    for (fields, is_valid) in [
        (&[("x", "1"), ("content-length", "1"), ("expect", "y")][..], true),
        (&[], true),
        (&[(":path", "/")], false),
        (&[("connection", "close")], false),
        (&[("x", " 1")], false),
        (&[("a", ""), ("b", ""), ("c", ""), ("d", ""), ("e", "")], false),
    ] {
        assert_eq!(field_block(fields, true).trailers().is_ok(), is_valid, "{fields:?}");
    }
}

/// Twins that differ in their time.
#[cfg(feature = "http3")]
#[test]
fn early_data_has_safe_methods_only() {
    for (method, uri, is_permitted) in [
        ("GET", &["https", "a", "/"][..], true),
        ("HEAD", &["https", "a", "/"], true),
        ("OPTIONS", &["https", "a", "*"], true),
        ("POST", &["https", "a", "/"], false),
        ("DELETE", &["https", "a", "/"], false),
        ("GET-AND-DELETE", &["https", "a", "/"], false),
        ("CONNECT", &["-", "a:1", "-"], false),
        ("CONNECT", &["https", "a", "/", "websocket"], false),
    ] {
        let mut head = vec![(":method", method)];
        let names = [":scheme", ":authority", ":path", ":protocol"];
        head.extend(names.into_iter().zip(uri.iter().copied()));
        head.retain(|(_, value)| *value != "-");
        let late = field_block(&head, false).request(true).unwrap();
        assert_eq!(late.head.headers().get("early-data"), None, "{method}");
        let mut early = field_block(&head, false);
        early.mark_early();
        match early.request(true) {
            Ok(request) => {
                let marked = request.head.headers().get("early-data");
                assert_eq!((marked, is_permitted), (Some("1"), true), "{method}");
            }
            Err(FieldBlockError::Respond(error)) => {
                let status = error.kind().status();
                assert_eq!(
                    (status, is_permitted),
                    (Some(StatusCode::TOO_EARLY), false),
                    "{method}"
                );
            }
            Err(FieldBlockError::Malformed) => panic!("{method}"),
        }
        early.clear(false);
        assert!(!early.is_early);
    }
}
