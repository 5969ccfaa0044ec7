//! Heads and fields of requests.

use super::*;

/// Asserts the outcome of a request, and that the connection still serves other requests.
#[track_caller]
fn assert_outcome(client: &mut RawClient, stream: u32, expected: &str, name: &str) {
    assert_eq!(client.outcome(stream), expected, "{name}");
    client.assert_open("/good");
}

/// RFC 9113 §8.2. A malformed message is a stream error (§8.1.1).
#[test]
fn validates_request_fields() {
    let server = start(echo);
    let mut client = RawClient::connect(&server);
    for (fields, expected) in [
        (&[("x", "1")][..], "200"),
        // §8.2.2: connection-specific fields.
        (&[("connection", "close")], "reset PROTOCOL_ERROR"),
        (&[("connection", "")], "reset PROTOCOL_ERROR"),
        (&[("keep-alive", "timeout=5")], "reset PROTOCOL_ERROR"),
        (&[("proxy-connection", "keep-alive")], "reset PROTOCOL_ERROR"),
        (&[("transfer-encoding", "chunked")], "reset PROTOCOL_ERROR"),
        (&[("upgrade", "h2c")], "reset PROTOCOL_ERROR"),
        (&[("te", "gzip")], "reset PROTOCOL_ERROR"),
        (&[("te", "trailers, gzip")], "reset PROTOCOL_ERROR"),
        (&[("te", "trailers")], "200"),
        // §8.2: names must be lowercase, §8.2.1: and consist of token characters.
        (&[("X", "1")], "reset PROTOCOL_ERROR"),
        (&[("Connection", "close")], "reset PROTOCOL_ERROR"),
        (&[("x y", "1")], "reset PROTOCOL_ERROR"),
        (&[("x:", "1")], "reset PROTOCOL_ERROR"),
        (&[("x\r\ny", "1")], "reset PROTOCOL_ERROR"),
        (&[("", "1")], "reset PROTOCOL_ERROR"),
        // §8.2.1: values.
        (&[("x", "")], "200"),
        (&[("x", "a b\tc")], "200"),
        (&[("x", "é")], "200"),
        (&[("x", " 1")], "400"),
        (&[("x", "1 ")], "400"),
        (&[("x", "\t1")], "400"),
        (&[("x", "1\t")], "400"),
        (&[("x", " ")], "400"),
        (&[("x", "a\rb")], "reset PROTOCOL_ERROR"),
        (&[("x", "a\nb")], "reset PROTOCOL_ERROR"),
        (&[("x", "a\0b")], "reset PROTOCOL_ERROR"),
        (&[("x", "a\x7fb")], "reset PROTOCOL_ERROR"),
        // §8.3.1: Host must equal :authority or be absent.
        (&[("host", "a")], "200"),
        (&[("host", "A")], "200"),
        (&[("host", "b")], "400"),
        (&[("host", "a:80")], "400"),
        (&[("host", "")], "400"),
        (&[("host", "a"), ("host", "a")], "400"),
        (&[("host", "a"), ("host", "b")], "400"),
        // RFC 9110 §10.1.1
        (&[("expect", "100-continue")], "200"),
        (&[("expect", "100-Continue")], "200"),
        (&[("expect", "miracles")], "417"),
        (&[("expect", "100-continue"), ("expect", "miracles")], "417"),
    ] {
        let head = [&pseudo_header("GET", "/")[..], fields].concat();
        let stream = client.request(&head, true);
        assert_outcome(&mut client, stream, expected, &format!("{fields:?}"));
    }
    stop(server);
}

/// RFC 9113 §8.3.1 and §8.5, RFC 8441 §4. Fields in the table are separated by `|`.
#[test]
fn validates_pseudo_header_fields() {
    let server = start(echo);
    let mut client = RawClient::connect(&server);
    for (head, expected) in [
        (":method GET|:scheme http|:authority a|:path /", "200"),
        (":path /|:authority a|:scheme https|:method GET", "200"),
        (":method GET|:scheme http|:path /|host a", "200"),
        (":method GET|:scheme http|:authority [::1]:80|:path /?", "200"),
        // Missing.
        (":scheme http|:authority a|:path /", "reset PROTOCOL_ERROR"),
        (":method GET|:authority a|:path /", "reset PROTOCOL_ERROR"),
        (":method GET|:scheme http|:authority a", "reset PROTOCOL_ERROR"),
        (":method GET|:scheme http|host a", "400"),
        (":method GET|:scheme http|:path /", "400"),
        // Repeated with the same value.
        (":method GET|:method GET|:scheme http|:authority a|:path /", "reset PROTOCOL_ERROR"),
        (":method GET|:scheme http|:scheme http|:authority a|:path /", "reset PROTOCOL_ERROR"),
        (":method GET|:scheme http|:authority a|:authority a|:path /", "reset PROTOCOL_ERROR"),
        (":method GET|:scheme http|:authority a|:path /|:path /", "reset PROTOCOL_ERROR"),
        // Unknown, or valid in responses only.
        (":method GET|:scheme http|:authority a|:path /|:x y", "reset PROTOCOL_ERROR"),
        (":method GET|:scheme http|:authority a|:path /|:status 200", "reset PROTOCOL_ERROR"),
        // After regular fields.
        (":method GET|:scheme http|:authority a|x y|:path /", "reset PROTOCOL_ERROR"),
        ("x y|:method GET|:scheme http|:authority a|:path /", "reset PROTOCOL_ERROR"),
        // The path.
        (":method GET|:scheme http|:authority a|:path ", "reset PROTOCOL_ERROR"),
        (":method GET|:scheme http|:authority a|:path x", "reset PROTOCOL_ERROR"),
        (":method GET|:scheme http|:authority a|:path ?x", "400"),
        (":method GET|:scheme http|:authority a|:path http://a/", "reset PROTOCOL_ERROR"),
        (":method GET|:scheme http|:authority a|:path *", "400"),
        (":method OPTIONS|:scheme http|:authority a|:path *", "200"),
        (":method GET|:scheme http|:authority a|:path /a b", "reset PROTOCOL_ERROR"),
        (":method GET|:scheme http|:authority a|:path /\0", "reset PROTOCOL_ERROR"),
        (":method GET|:scheme http|:authority a|:path /\r\nx: y", "reset PROTOCOL_ERROR"),
        // The authority: a host and an optional port, without userinfo.
        (":method GET|:scheme http|:authority u@a|:path /", "400"),
        (":method GET|:scheme http|:authority u:p@a|:path /", "400"),
        (":method GET|:scheme http|:authority @a|:path /", "400"),
        (":method GET|:scheme http|:authority a/b|:path /", "reset PROTOCOL_ERROR"),
        (":method GET|:scheme http|:authority a b|:path /", "reset PROTOCOL_ERROR"),
        (":method GET|:scheme http|:authority a:x|:path /", "400"),
        (":method GET|:scheme http|:authority |:path /", "reset PROTOCOL_ERROR"),
        (":method GET|:scheme http|:path /|host u@a", "400"),
        (":method GET|:scheme http|:path /|host a b", "400"),
        // Scheme and method.
        (":method GET|:scheme h/p|:authority a|:path /", "reset PROTOCOL_ERROR"),
        (":method G T|:scheme http|:authority a|:path /", "reset PROTOCOL_ERROR"),
        (":method |:scheme http|:authority a|:path /", "reset PROTOCOL_ERROR"),
        // CONNECT has only an authority, with a port.
        (":method CONNECT|:authority a:1|:scheme http", "reset PROTOCOL_ERROR"),
        (":method CONNECT|:authority a:1|:path /", "reset PROTOCOL_ERROR"),
        (":method CONNECT|:authority a", "400"),
        (":method CONNECT", "400"),
        // The application does not accept tunnels.
        (":method CONNECT|:authority a:1", "501"),
        // Extended CONNECT requires all pseudo-header fields.
        (":method CONNECT|:protocol x|:authority a:1", "reset PROTOCOL_ERROR"),
        (":method GET|:protocol x|:scheme http|:authority a|:path /", "reset PROTOCOL_ERROR"),
    ] {
        let fields: Vec<_> =
            head.split('|').map(|field| field.split_once(' ').expect("name value")).collect();
        let stream = client.request(&fields, true);
        assert_outcome(&mut client, stream, expected, &head.escape_debug().to_string());
    }
    stop(server);
}

/// RFC 9113 §8.1.1: Content-Length must equal the sum of the DATA payloads. In the table a final
/// dot marks the frame with END_STREAM.
#[test]
fn content_length_must_match_the_data_frames() {
    let server = start(echo);
    let mut client = RawClient::connect(&server);
    for (lengths, data, expected) in [
        (&["5"][..], &["hello."][..], "200"),
        (&["5"], &["hel", "lo."], "200"),
        (&["5"], &["hello", "."], "200"),
        (&["0"], &["."], "200"),
        (&["0"], &[], "200"),
        (&[], &[], "200"),
        (&["5"], &["hell."], "reset PROTOCOL_ERROR"),
        (&["5"], &["."], "reset PROTOCOL_ERROR"),
        (&["5"], &[], "reset PROTOCOL_ERROR"),
        (&["5"], &["hello!."], "reset PROTOCOL_ERROR"),
        (&["5"], &["hel", "lo!"], "reset PROTOCOL_ERROR"),
        (&["0"], &["x."], "reset PROTOCOL_ERROR"),
        (&["x"], &["hello."], "reset PROTOCOL_ERROR"),
        (&["+5"], &["hello."], "reset PROTOCOL_ERROR"),
        (&["-5"], &["hello."], "reset PROTOCOL_ERROR"),
        (&["5 "], &["hello."], "reset PROTOCOL_ERROR"),
        (&["5, 5"], &["hello."], "reset PROTOCOL_ERROR"),
        (&["18446744073709551621"], &["hello."], "reset PROTOCOL_ERROR"),
        (&["5", "6"], &["hello."], "reset PROTOCOL_ERROR"),
        (&[""], &["."], "400"),
        // As in HTTP/1: an intermediary must not have to choose a value.
        (&["5", "5"], &["hello."], "400"),
    ] {
        let mut head = pseudo_header("POST", "/").to_vec();
        head.extend(lengths.iter().map(|length| ("content-length", *length)));
        let stream = client.request(&head, data.is_empty());
        for piece in data {
            let text = piece.trim_end_matches('.');
            client.data(stream, text, text.len() < piece.len());
        }
        let name = format!("{lengths:?} {data:?}");
        assert_outcome(&mut client, stream, expected, &name);
    }
    stop(server);
}

/// RFC 9113 §8.1: trailers end the stream, and their fields follow the same rules.
#[test]
fn validates_request_trailers() {
    let server = start(echo);
    let mut client = RawClient::connect(&server);
    for (fields, flags, expected) in [
        (&[("x", "1")][..], END_ALL, "200"),
        (&[], END_ALL, "200"),
        (&[("x", "1")], END_HEADERS, "reset PROTOCOL_ERROR"),
        (&[("connection", "close")], END_ALL, "reset PROTOCOL_ERROR"),
        (&[("X", "1")], END_ALL, "reset PROTOCOL_ERROR"),
        (&[("x", "a\nb")], END_ALL, "reset PROTOCOL_ERROR"),
    ] {
        let stream = client.post("/");
        client.data(stream, "hello", false);
        client.send(frame(HEADERS, flags, stream, &field_block(fields)));
        assert_outcome(&mut client, stream, expected, &format!("{fields:?} {flags}"));
    }
    stop(server);
}

/// Frames that break the rules of a stream or of the connection (RFC 9113 §5 and §6).
#[test]
fn rejects_frames_that_violate_the_protocol() {
    let server = start(async |request: Request| match request.path() {
        "/wait" => pending().await,
        _ => Response::text("ok"),
    });
    let head = field_block(&pseudo_header("GET", "/wait"));
    for (name, frames, expected) in [
        ("DATA on an idle stream", frame(DATA, 0, 3, b"x"), "goaway PROTOCOL_ERROR"),
        ("DATA on the connection", frame(DATA, 0, 0, b"x"), "goaway PROTOCOL_ERROR"),
        ("DATA after END_STREAM", frame(DATA, 0, 1, b"x"), "goaway STREAM_CLOSED"),
        ("HEADERS of an even stream", frame(HEADERS, END_ALL, 2, &head), "goaway PROTOCOL_ERROR"),
        ("HEADERS on the connection", frame(HEADERS, END_ALL, 0, &head), "goaway PROTOCOL_ERROR"),
        ("HEADERS with too much padding", frame(HEADERS, 13, 3, b"\xff"), "goaway PROTOCOL_ERROR"),
        ("RST_STREAM of an idle stream", reset(3, 8), "goaway PROTOCOL_ERROR"),
        ("RST_STREAM too short", frame(RST_STREAM, 0, 1, b"x"), "goaway FRAME_SIZE_ERROR"),
        ("PUSH_PROMISE", frame(PUSH_PROMISE, 4, 1, b"\0\0\0\x02"), "goaway PROTOCOL_ERROR"),
        ("CONTINUATION without HEADERS", frame(CONTINUATION, 4, 1, b""), "goaway PROTOCOL_ERROR"),
        (
            "a frame within a field block",
            [frame(HEADERS, 1, 3, &head), frame(PING, 0, 0, b"12345678")].concat(),
            "goaway PROTOCOL_ERROR",
        ),
        ("SETTINGS on a stream", frame(SETTINGS, 0, 1, b""), "goaway PROTOCOL_ERROR"),
        ("SETTINGS of 5 bytes", frame(SETTINGS, 0, 0, b"12345"), "goaway FRAME_SIZE_ERROR"),
        (
            "SETTINGS_INITIAL_WINDOW_SIZE above 2^31 - 1",
            settings(&[(INITIAL_WINDOW_SIZE, 1 << 31)]),
            "goaway FLOW_CONTROL_ERROR",
        ),
        ("PING of 7 bytes", frame(PING, 0, 0, b"1234567"), "goaway FRAME_SIZE_ERROR"),
        ("WINDOW_UPDATE of 0 on the connection", window_update(0, 0), "goaway PROTOCOL_ERROR"),
        ("WINDOW_UPDATE of 0 on a stream", window_update(1, 0), "reset PROTOCOL_ERROR"),
        ("WINDOW_UPDATE of 0 on an idle stream", window_update(3, 0), "goaway PROTOCOL_ERROR"),
        (
            "connection window above 2^31 - 1",
            window_update(0, i32::MAX as u32),
            "goaway FLOW_CONTROL_ERROR",
        ),
        (
            "stream window above 2^31 - 1",
            window_update(1, i32::MAX as u32),
            "reset FLOW_CONTROL_ERROR",
        ),
        ("invalid HPACK", frame(HEADERS, END_ALL, 3, b"\xff\xff"), "goaway COMPRESSION_ERROR"),
        (
            "DATA above SETTINGS_MAX_FRAME_SIZE",
            frame(DATA, 0, 1, &[0; 16_385]),
            "goaway FRAME_SIZE_ERROR",
        ),
        // RFC 9113 §5.5: unknown frame types are ignored.
        ("an unknown frame", [frame(99, 0, 1, b"x"), reset(1, 8), get(3, "/")].concat(), "200"),
    ] {
        let mut client = RawClient::connect(&server);
        client.get("/wait");
        client.send(&frames);
        let stream = if expected == "200" { 3 } else { 1 };
        assert_eq!(client.outcome(stream), expected, "{name}");
        match expected.split_once(' ') {
            Some(("goaway", _)) => drop(client.read_goaways()),
            Some(_) => client.assert_open("/"),
            None => {}
        }
    }
    stop(server);
}

/// A field block is decoded to its end, so that later blocks can refer to its fields (RFC 9113
/// §4.3).
#[test]
fn malformed_request_leaves_the_compression_state_in_sync() {
    let server = start(async |request: Request| {
        Response::text(request.headers().get("x").unwrap_or("-").to_owned())
    });
    // Literals with incremental indexing (RFC 7541 §6.2.1).
    let indexed = |name: &str, value: &str| {
        let mut field = vec![0x40];
        for text in [name, value] {
            push_integer(&mut field, 7, 0, text.len());
            field.extend(text.as_bytes());
        }
        field
    };
    let head = || field_block(&pseudo_header("GET", "/"));
    for invalid in [("X", "1"), ("x", "a\nb"), ("x y", "1"), ("connection", "close")] {
        let mut client = RawClient::connect(&server);
        let block = [head(), indexed(invalid.0, invalid.1), indexed("x", "good")].concat();
        client.send(frame(HEADERS, END_ALL, 1, &block));
        assert_eq!(client.outcome(1), "reset PROTOCOL_ERROR", "{invalid:?}");
        // The most recent entry of the dynamic table.
        client.send(frame(HEADERS, END_ALL, 3, &[head(), vec![0x80 | 62]].concat()));
        assert_eq!(client.response(3).text(), "good", "{invalid:?}");
    }
    stop(server);
}

/// The clients of an intermediary share its connection. The errors of one of them must not add up
/// until the connection is closed.
#[test]
fn stream_errors_are_forgotten() {
    let server = start(async |request: Request| match request.path() {
        "/large" => Response::from_body(vec![b'x'; 1 << 20]),
        _ => Response::text("ok"),
    });
    let mut client = RawClient::connect(&server);
    for _ in 0..4 {
        for _ in 0..400 {
            let head = [&pseudo_header("GET", "/")[..], &[("connection", "close")]].concat();
            let stream = client.request(&head, true);
            assert_eq!(client.outcome(stream), "reset PROTOCOL_ERROR");
        }
        let stream = client.get("/large");
        assert_eq!(client.response(stream).body.len(), 1 << 20);
    }
    stop(server);
}

#[test]
fn rejects_invalid_connection_preface() {
    let server = start(echo);
    for bytes in ["PRI * HTTP/2.0\r\n\r\nSM\r\n\rx", "PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n"] {
        let mut client = Client::connect_and_send(&server, bytes);
        while client.read() > 0 {}
    }
    stop(server);

    let server = start_with(Settings { http2: false, ..Settings::default() }, echo);
    let mut client = Client::connect_and_send(&server, PREFACE);
    assert_eq!(client.response().status, 505);
    client.assert_closed();
    stop(server);
}

/// The request head as exposed to applications.
#[test]
fn request_exposes_method_target_and_fields() {
    let server = start(async |request: Request| {
        let fields = request
            .headers()
            .iter()
            .map(|(name, value)| format!("{name}: {}\n", String::from_utf8_lossy(value)));
        let line = format!("{} {} {:?}\n", request.method(), request.target(), request.version());
        Response::text(line + &fields.collect::<String>())
    });
    let mut client = RawClient::connect(&server);
    for (fields, expected) in [
        (&[][..], "GET /x?y HTTP/2.0\nhost: a\n"),
        (&[("host", "A"), ("x", "1")], "GET /x?y HTTP/2.0\nhost: A\nx: 1\n"),
        // RFC 9113 §8.2.3: cookie crumbs are concatenated.
        (
            &[("cookie", "a=1"), ("x", "1"), ("cookie", "b=2"), ("cookie", "c=3")],
            "GET /x?y HTTP/2.0\nhost: a\ncookie: a=1; b=2; c=3\nx: 1\n",
        ),
        (&[("x", "1"), ("x", "2")], "GET /x?y HTTP/2.0\nhost: a\nx: 1\nx: 2\n"),
    ] {
        let stream = client.request(&[&pseudo_header("GET", "/x?y")[..], fields].concat(), true);
        assert_eq!(client.response(stream).text(), expected);
    }
    stop(server);
}

#[test]
fn limits_request_heads() {
    let server = start(echo);
    let mut client = RawClient::connect(&server);
    let many = |count: usize| vec![("x".to_owned(), String::new()); count];
    let large = |length: usize| vec![("x".to_owned(), "x".repeat(length))];
    let long = |length: usize| "/".repeat(length);
    assert_eq!(client.setting(MAX_HEADER_LIST_SIZE), Some(16_384));
    for (path, fields, expected) in [
        (long(1), many(100), "200"),
        (long(1), many(101), "431"),
        (long(8_192), vec![], "200"),
        (long(8_193), vec![], "414"),
        (long(1), large(16_000), "200"),
        (long(1), large(16_384), "431"),
        (long(1), large(60_000), "431"),
        // A head far above the limit is a connection error.
        (long(1), large(100_000), "goaway ENHANCE_YOUR_CALM"),
        (long(1), many(3_000), "goaway ENHANCE_YOUR_CALM"),
    ] {
        let mut head: Vec<(String, String)> =
            pseudo_header("GET", &path).map(|(n, v)| (n.to_owned(), v.to_owned())).to_vec();
        head.extend(fields);
        let encoded = field_block(&head);
        let stream = client.next_stream_id();
        let mut pieces = encoded.chunks(16_384).enumerate().peekable();
        while let Some((number, piece)) = pieces.next() {
            let kind = if number == 0 { HEADERS } else { CONTINUATION };
            let end = if pieces.peek().is_none() { END_HEADERS } else { 0 };
            let flags = end | if number == 0 { END_STREAM } else { 0 };
            client.send(frame(kind, flags, stream, piece));
        }
        let name = format!("{} {}", path.len(), encoded.len());
        if expected.starts_with("goaway") {
            assert_eq!(client.outcome(stream), expected, "{name}");
            client.read_goaways();
            client = RawClient::connect(&server);
        } else {
            assert_outcome(&mut client, stream, expected, &name);
        }
    }
    stop(server);
}

#[test]
fn refuses_streams_over_the_limit_until_one_ends() {
    let release = Arc::new(tokio::sync::Semaphore::new(0));
    let permits = release.clone();
    let server = start(move |_: Request| {
        let permits = permits.clone();
        async move {
            permits.acquire().await.unwrap().forget();
            Response::text("ok")
        }
    });
    let mut client = RawClient::connect(&server);
    assert_eq!(client.setting(MAX_CONCURRENT_STREAMS), Some(128));
    let streams: Vec<u32> = (0..128).map(|_| client.get("/")).collect();
    let one_more = client.get("/");
    assert_eq!(client.outcome(one_more), "reset REFUSED_STREAM");
    release.add_permits(1);
    client.read_until("a stream ends", |client| streams.iter().any(|&s| client.peek(s).is_some()));
    let again = client.get("/");
    release.add_permits(128);
    for stream in streams.into_iter().chain([again]) {
        assert_eq!(client.outcome(stream), "200");
    }
    stop(server);
}
