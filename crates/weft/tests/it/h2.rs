//! HTTP/2 (RFC 9113) over real sockets, frame by frame.

use std::future::pending;
use std::io::Write;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::common::frames::*;
use crate::common::{
    Client, SHORT_TIMEOUT, ServerSocket, TEST_TIMEOUT, boxed_server, reset_on_close,
    short_timeouts, stop, until,
};
use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;
use weft::{
    Application, Body, Disconnect, Error, ErrorKind, File, Hooks, Method, Peer, Record, Request,
    Response, ServerHandle, Settings, StatusCode, Upgraded, header,
};

fn start<A: Application + Clone + Send + 'static>(app: A) -> ServerHandle {
    start_with(Settings::default(), app)
}

fn start_with<A: Application + Clone + Send + 'static>(settings: Settings, app: A) -> ServerHandle {
    start_with_event_log(settings, app).0
}

fn start_with_event_log<A>(settings: Settings, app: A) -> (ServerHandle, EventLog)
where
    A: Application + Clone + Send + 'static,
{
    let events = EventLog::default();
    let hooks = events.clone();
    let server = boxed_server(app).settings(settings).workers(1).hooks(move || hooks.clone());
    (server.listen("127.0.0.1:0").unwrap().start().unwrap(), events)
}

/// Hooks that record every call.
#[derive(Clone, Default)]
struct EventLog(Arc<Mutex<Vec<String>>>);

impl EventLog {
    fn contains(&self, event: &str) -> bool {
        self.0.lock().unwrap().iter().any(|recorded| recorded == event)
    }
}

impl Hooks for EventLog {
    fn on_error(&self, _: &Peer, error: &Error) {
        let event = format!("{:?} {:?}", error.kind().fault(), error.kind());
        self.0.lock().unwrap().push(event);
    }

    fn on_response(&self, record: &Record<'_>) {
        let target = record.head.map_or("-", |head| head.target());
        let event = format!("{target} {} {}", record.status.as_u16(), record.body_bytes);
        self.0.lock().unwrap().push(event);
    }
}

/// Collects the body and echoes it.
async fn echo(request: Request) -> weft::Result<Response> {
    match *request.method() {
        Method::GET => Ok(Response::text("ok")),
        _ => Ok(Response::body(request.into_body().collect(1 << 24).await?)),
    }
}

/// Counts its live clones.
#[derive(Clone)]
struct CloneCounter(Arc<()>);

impl CloneCounter {
    fn new() -> CloneCounter {
        CloneCounter(Arc::new(()))
    }

    fn count(&self) -> usize {
        Arc::strong_count(&self.0) - 1
    }
}

/// A stream of chunks produced by a function.
struct Chunks<F>(F);

impl<F> futures_core::Stream for Chunks<F>
where
    F: FnMut(&mut Context<'_>) -> Poll<Option<Result<Bytes, Error>>> + Unpin,
{
    type Item = Result<Bytes, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        (self.0)(cx)
    }
}

/// A streamed body of these parts; the last one may be an error.
fn parts(parts: impl IntoIterator<Item = Result<&'static str, ErrorKind>>) -> Body {
    let mut parts = parts.into_iter().collect::<Vec<_>>().into_iter();
    Body::stream(Chunks(move |_: &mut Context<'_>| {
        Poll::Ready(parts.next().map(|part| match part {
            Ok(part) => Ok(Bytes::from_static(part.as_bytes())),
            Err(kind) => Err(Error::new(kind, "on purpose")),
        }))
    }))
}

// -- requests

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
        "/large" => Response::body(vec![b'x'; 1 << 20]),
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

// -- responses

#[test]
fn sends_response_heads() {
    let server = start(async |request: Request| match request.path() {
        "/none" => Response::new(StatusCode::NO_CONTENT),
        "/unchanged" => Response::new(StatusCode::NOT_MODIFIED),
        "/empty" => Response::text(""),
        "/stream" => Response::body(parts([Ok("ab"), Ok(""), Ok("c")])),
        "/sized" => Response::body(parts([Ok("abc")])).with_header(header::CONTENT_LENGTH, "3"),
        // RFC 9113 §8.2.2: connection-specific fields are not sent.
        "/forbidden" => Response::text("abc")
            .with_header(header::CONNECTION, "keep-alive, x")
            .with_header(header::HeaderName::from_static("keep-alive"), "timeout=5")
            .with_header(header::HeaderName::from_static("proxy-connection"), "keep-alive")
            .with_header(header::TRANSFER_ENCODING, "chunked")
            .with_header(header::UPGRADE, "h2c"),
        "/own" => Response::text("abc")
            .with_header(header::DATE, "today")
            .with_header(header::SERVER, "me"),
        _ => Response::text("abc"),
    });
    let plain = "content-type: text/plain; charset=utf-8";
    let mut client = RawClient::connect(&server);
    for (method, path, expected, body) in [
        ("GET", "/", &[plain, "date", "server: weft", "content-length: 3"][..], "abc"),
        ("HEAD", "/", &[plain, "date", "server: weft", "content-length: 3"], ""),
        ("GET", "/forbidden", &[plain, "date", "server: weft", "content-length: 3"], "abc"),
        ("GET", "/own", &[plain, "date: today", "server: me", "content-length: 3"], "abc"),
        ("GET", "/none", &["date", "server: weft"], ""),
        ("HEAD", "/none", &["date", "server: weft"], ""),
        ("GET", "/unchanged", &["date", "server: weft"], ""),
        ("GET", "/empty", &[plain, "date", "server: weft", "content-length: 0"], ""),
        ("GET", "/stream", &["date", "server: weft"], "abc"),
        ("HEAD", "/stream", &["date", "server: weft"], ""),
        ("GET", "/sized", &["date", "server: weft", "content-length: 3"], "abc"),
    ] {
        let stream = client.request(&pseudo_header(method, path), true);
        let response = client.response(stream);
        let name = format!("{method} {path}");
        assert_eq!(response.text(), body, "{name}");
        // An empty body sends no DATA frame.
        assert_eq!(response.data_frames == 0, body.is_empty(), "{name}: {}", response.data_frames);
        let mut lines: Vec<String> = response.head.unwrap()[1..]
            .iter()
            .map(|(name, value)| match &**name {
                "date" if value.ends_with("GMT") => "date".to_owned(),
                _ => format!("{name}: {value}"),
            })
            .collect();
        let mut expected = expected.to_vec();
        expected.sort_unstable();
        lines.sort();
        assert_eq!(lines, expected, "{name}");
    }
    stop(server);
}

#[test]
fn sends_interim_responses() {
    let release = Arc::new(Notify::new());
    let released = release.clone();
    let server = start(move |request: Request| {
        let released = released.clone();
        async move {
            request.early_hints(["</a.css>; rel=preload", "</b>\r\nx: y"]);
            if request.path() == "/slow" {
                released.notified().await;
            }
            Response::text("ok")
        }
    });
    let mut client = RawClient::connect(&server);
    let slow = client.get("/slow");
    client.read_until("the early hints", |client| client.peek(slow).is_some());
    assert!(client.peek(slow).unwrap().head.is_none());
    release.notify_one();
    let fast = client.get("/fast");
    for stream in [slow, fast] {
        let response = client.response(stream);
        let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let hints = [
            field(":status", "103"),
            field("link", "</a.css>; rel=preload"),
            field("link", "</b>  x: y"),
        ];
        assert_eq!(response.interim, [hints]);
        assert_eq!(response.status(), 200);
    }
    stop(server);
}

#[test]
fn sends_100_continue_only_when_the_application_reads() {
    let release = Arc::new(Notify::new());
    let released = release.clone();
    let server = start(move |request: Request| {
        let released = released.clone();
        async move {
            if request.path() == "/unread" {
                return Ok(Response::text("no, thanks"));
            }
            released.notified().await;
            echo(request).await
        }
    });
    let ask = |path| [&pseudo_header("PUT", path)[..], &[("expect", "100-continue")]].concat();
    let mut client = RawClient::connect(&server);
    let stream = client.request(&ask("/"), false);
    client.sync();
    assert!(client.peek(stream).is_none(), "100 was sent before the application read");
    release.notify_one();
    client.read_until("100", |client| client.peek(stream).is_some());
    assert_eq!(find(&client.peek(stream).unwrap().interim[0], ":status"), Some("100"));
    client.data(stream, "hello", true);
    let response = client.response(stream);
    assert_eq!((response.status(), response.text(), response.interim.len()), (200, "hello", 1));

    // A body sent without waiting needs no 100, nor does a body that is not read.
    let stream = client.request(&ask("/"), false);
    client.data(stream, "hello", true);
    client.sync();
    release.notify_one();
    let response = client.response(stream);
    assert_eq!((response.text(), response.interim.len()), ("hello", 0));
    let stream = client.request(&ask("/unread"), false);
    let response = client.response(stream);
    assert_eq!((response.status(), response.interim.len()), (200, 0));
    stop(server);
}

// -- uploads

/// An application that reads one chunk, waits for `release` if the path is `/slow`, and reads the
/// rest. For `/never` it never reads.
fn slow_reader(release: &Arc<Notify>) -> impl Application + Clone + Send + use<> {
    let released = release.clone();
    move |mut request: Request| {
        let released = released.clone();
        async move {
            if request.path() == "/never" {
                pending::<()>().await;
            }
            let mut length = 0;
            while let Some(chunk) = request.body().chunk().await? {
                if length == 0 && request.path() == "/slow" {
                    released.notified().await;
                }
                length += chunk.len();
            }
            Ok::<_, Error>(Response::text(length.to_string()))
        }
    }
}

#[test]
fn slow_application_applies_backpressure() {
    let release = Arc::new(Notify::new());
    let server = start_with(
        Settings { body_window_bytes: 400_000, ..Settings::default() },
        slow_reader(&release),
    );
    let mut client = RawClient::connect(&server);
    client.read_until("the connection's window", |client| client.window(0) == 400_000);
    let stream = client.post("/slow");
    assert_eq!(client.window(stream), 100_000);
    let mut sent = 0;
    loop {
        let more = client.upload_some(stream, usize::MAX);
        sent += more;
        client.sync();
        if more == 0 {
            break;
        }
    }
    assert!((100_000..=100_000 + 16_384).contains(&sent), "{sent} bytes were sent");
    release.notify_one();
    assert!(client.upload(stream, 1_000_000 - sent));
    assert_eq!(client.response(stream).text(), "1000000");
    stop(server);
}

/// A response whose body is the number of request bytes read, and never ends.
fn endless(read: usize) -> Response {
    let mut first = Some(Bytes::from(read.to_string()));
    Response::body(Body::stream(futures_util::stream::poll_fn(move |_| match first.take() {
        Some(first) => Poll::Ready(Some(Ok::<_, Error>(first))),
        None => Poll::Pending,
    })))
}

/// Data of completed request bodies is returned to the connection window, read or unread, even
/// while their responses continue.
#[test]
fn completed_bodies_release_the_connection_window() {
    let server = start(async |request: Request| match request.path() {
        "/unread" => {
            drop(request.into_body());
            Ok(endless(0))
        }
        _ => Ok::<_, Error>(endless(request.into_body().collect(1 << 24).await?.len())),
    });
    for path in ["/read", "/unread"] {
        let mut client = RawClient::connect(&server);
        client.read_until("the connection's window", |client| client.window(0) == 1 << 20);
        for _ in 0..8 {
            let stream = client.post(path);
            assert!(client.upload(stream, 200_000));
            client.read_until("the response", |client| client.body_length(stream) > 0);
        }
        client.read_until("the window is replenished", |client| client.window(0) > 1 << 19);
    }
    stop(server);
}

#[test]
fn unread_uploads_do_not_block_others() {
    let server = start(slow_reader(&Arc::new(Notify::new())));
    let mut client = RawClient::connect(&server);
    client.read_until("the connection's window", |client| client.window(0) == 1 << 20);
    for _ in 0..3 {
        let stream = client.post("/never");
        assert_eq!(client.upload_some(stream, usize::MAX), 256 << 10);
    }
    let stream = client.post("/");
    assert!(client.upload(stream, 2_000_000));
    assert_eq!(client.response(stream).text(), "2000000");
    stop(server);
}

fn not_drained() -> Settings {
    Settings { max_drain_bytes: 0, ..Settings::default() }
}

/// Some clients treat RST_STREAM with NO_ERROR as a failure.
#[test]
fn small_unread_upload_is_not_reset() {
    let server = start(async |_: Request| Response::text("no, thanks"));
    let mut client = RawClient::connect(&server);
    for (length, reset) in [(1, None), (60_000, None), (100_000, Some("NO_ERROR"))] {
        let stream = client.post("/");
        // The response is complete before the body is sent.
        client.read_until("the response", |client| {
            client.peek(stream).is_some_and(|response| response.ended)
        });
        client.upload_some(stream, length);
        if reset.is_none() {
            client.data(stream, "", true);
            client.sync();
        } else {
            let is_reset = |client: &RawClient| {
                client.peek(stream).is_some_and(|response| response.reset.is_some())
            };
            client.read_until("a reset", is_reset);
        }
        let response = client.response(stream);
        assert_eq!((response.text(), response.reset), ("no, thanks", reset), "{length} bytes");
    }
    client.assert_open("/");
    stop(server);
}

#[test]
fn unread_uploads_release_the_connection_window() {
    let server = start_with(not_drained(), async |request: Request| match request.path() {
        "/unread" => Ok::<_, Error>(Response::text("no, thanks")),
        _ => Ok(Response::text(request.into_body().collect(1 << 24).await?.len().to_string())),
    });
    let mut client = RawClient::connect(&server);
    for number in 0..50 {
        let stream = client.post("/unread");
        // Sent without reading; the response may arrive meanwhile.
        client.upload_some(stream, 60_000);
        // RFC 9113 §8.1: the response is complete, the rest of the request is not needed.
        client.read_until("a reset", |client| {
            client.peek(stream).is_some_and(|response| response.reset.is_some())
        });
        let response = client.response(stream);
        assert_eq!((response.status(), response.text()), (200, "no, thanks"), "{number}");
        assert_eq!((response.ended, response.reset), (true, Some("NO_ERROR")), "{number}");
    }
    let stream = client.post("/");
    assert!(client.upload(stream, 1 << 20));
    assert_eq!(client.response(stream).text(), "1048576");
    assert_eq!(client.goaways, []);
    stop(server);
}

/// A client continues to send for a round trip before it receives the response. This must not
/// count as an attack.
#[test]
fn many_unread_uploads_are_not_treated_as_an_attack() {
    let server = start_with(not_drained(), async |_: Request| Response::text("no, thanks"));
    let mut client = RawClient::connect(&server);
    client.read_until("the connection's window", |client| client.window(0) == 1 << 20);
    for _ in 0..4 {
        let streams: Vec<u32> = (0..100).map(|_| client.post("/")).collect();
        client.sync();
        for &stream in &streams {
            for _ in 0..5 {
                client.data(stream, [b'x'; 1_000], false);
            }
        }
        for stream in streams {
            assert_eq!(client.response(stream).status(), 200);
        }
    }
    client.assert_open("/");
    assert_eq!(client.goaways, []);
    stop(server);
}

#[test]
fn rejects_body_over_limit_with_and_without_length() {
    let server = start_with(Settings { max_body_bytes: 10, ..Settings::default() }, echo);
    let mut client = RawClient::connect(&server);
    for (length, sent, status) in [
        (Some("10"), "0123456789", 200),
        (None, "0123456789", 200),
        (Some("11"), "", 413),
        (None, "0123456789a", 413),
    ] {
        let mut head = pseudo_header("POST", "/").to_vec();
        head.extend(length.map(|length| ("content-length", length)));
        let stream = client.request(&head, false);
        client.data(stream, sent, status == 200);
        assert_eq!(client.response(stream).status(), status, "{length:?} {sent}");
        client.assert_open("/");
    }
    stop(server);
}

#[test]
fn aborted_request_body_fails_with_body_incomplete() {
    let ends = Arc::new(Mutex::new(Vec::new()));
    let app_ends = ends.clone();
    let settings = Settings { disconnect: Disconnect::Detach, ..Settings::default() };
    let server = start_with(settings, move |request: Request| {
        let ends = app_ends.clone();
        async move {
            let end = request.into_body().collect(1000).await;
            ends.lock().unwrap().push(end.map(|_| ()).map_err(|error| error.kind()));
            Response::text("ok")
        }
    });
    let mut client = RawClient::connect(&server);
    let stream = client.post("/");
    client.data(stream, "hello", false);
    client.sync();
    client.send(reset(stream, CANCEL));
    until("the reset is detected", || ends.lock().unwrap().len() == 1);
    let stream = client.post("/");
    client.data(stream, "hello", false);
    client.sync();
    drop(client);
    until("the disconnect is detected", || ends.lock().unwrap().len() == 2);
    assert_eq!(*ends.lock().unwrap(), [Err(ErrorKind::BodyIncomplete); 2]);
    stop(server);
}

#[test]
fn echoes_trailers() {
    let server = start(async |request: Request| Response::body(request.into_body()));
    let mut client = RawClient::connect(&server);
    let stream = client.post("/");
    client.data(stream, "hello", false);
    client.read_until("the echo", |client| client.body_length(stream) == 5);
    client.send(frame(HEADERS, END_ALL, stream, &field_block(&[("x", "1"), ("y", "2")])));
    let response = client.response(stream);
    assert_eq!(response.text(), "hello");
    let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(response.trailers, Some(vec![field("x", "1"), field("y", "2")]));
    stop(server);
}

#[test]
fn padding_is_not_part_of_the_body() {
    let server = start(echo);
    let mut client = RawClient::connect(&server);
    let head = [&pseudo_header("POST", "/")[..], &[("content-length", "2000")]].concat();
    // The padding exceeds the windows of the stream and of the connection.
    for _ in 0..3 {
        let stream = client.request(&head, false);
        for number in 0..2_000 {
            let payload = [&[255][..], b"x", &[0; 255]].concat();
            client.send(frame(DATA, PADDED | u8::from(number == 1_999), stream, &payload));
            client.sync();
        }
        assert_eq!(client.response(stream).text(), "x".repeat(2_000));
    }
    stop(server);
}

// -- downloads

#[test]
fn obeys_flow_control() {
    let server = start(async |_: Request| Response::body(vec![b'x'; 200_000]));
    // RFC 9113 §6.9: the window of a stream.
    let mut client = RawClient::with_settings(&server, &[(INITIAL_WINDOW_SIZE, 0)]);
    client.auto_window_update = false;
    let stream = client.get("/");
    client.read_until("the head", |client| client.peek(stream).is_some());
    let mut open = 0;
    for more in [0, 1, 10, 16_384, 1_000] {
        if more > 0 {
            client.send(window_update(stream, more));
        }
        open += more as usize;
        client.read_until("data up to the window", |client| client.body_length(stream) >= open);
        client.sync();
        assert_eq!(client.body_length(stream), open);
    }
    // SETTINGS change the window of a stream, also to a negative value (§6.9.2).
    client.send(settings(&[(INITIAL_WINDOW_SIZE, 1_000)]));
    client.read_until("data up to the new window", |client| {
        client.body_length(stream) >= open + 1_000
    });
    client.send(settings(&[(INITIAL_WINDOW_SIZE, 0)]));
    client.send(window_update(stream, 900));
    client.sync();
    assert_eq!(client.body_length(stream), open + 1_000);
    client.send(window_update(stream, 200));
    client.read_until("data up to the positive window", |client| {
        client.body_length(stream) >= open + 1_100
    });
    client.sync();
    assert_eq!(client.body_length(stream), open + 1_100);

    // The window of the connection, with larger stream windows.
    let mut client = RawClient::with_settings(&server, &[(INITIAL_WINDOW_SIZE, 1 << 20)]);
    client.auto_window_update = false;
    let (one, other) = (client.get("/"), client.get("/"));
    let total = move |client: &RawClient| client.body_length(one) + client.body_length(other);
    let mut open = 65_535;
    for more in [0, 1, 10_000] {
        if more > 0 {
            client.send(window_update(0, more));
        }
        open += more as usize;
        client.read_until("data up to the window", |client| total(client) >= open);
        client.sync();
        assert_eq!(total(&client), open);
    }
    client.send(window_update(0, 1 << 20));
    for stream in [one, other] {
        assert_eq!(client.response(stream).body.len(), 200_000);
    }
    stop(server);
}

/// An application with a file (`/file`), a streamed body (`/stream`) and bytes (`/bytes`) of the
/// length given by the query. The body has frames of 16 KB; their total size is counted.
fn downloads(produced: &Arc<AtomicUsize>) -> impl Application + Clone + Send + use<> {
    let file = tempfile::tempfile().unwrap();
    file.set_len(10 << 20).unwrap();
    let (file, produced) = (Arc::new(file), produced.clone());
    move |request: Request| {
        let (file, produced) = (file.clone(), produced.clone());
        async move {
            let length: usize = request.query().unwrap_or_default().parse().unwrap();
            match request.path() {
                "/file" => Response::file(File::new(file, 0, length as u64)),
                "/bytes" => Response::body(vec![b'x'; length]),
                _ => {
                    let mut remaining = length;
                    Response::body(Body::stream(Chunks(move |_: &mut Context<'_>| {
                        let piece = remaining.min(16_000);
                        remaining -= piece;
                        produced.fetch_add(piece, SeqCst);
                        let frame = Bytes::from(vec![b'x'; piece]);
                        Poll::Ready(Some(Ok(frame)).filter(|_| piece > 0))
                    })))
                }
            }
        }
    }
}

/// Small windows are legal, down to one byte (RFC 9113 §6.9).
#[test]
fn windows_of_one_byte_make_progress() {
    const LENGTH: usize = 60;
    let server = start(downloads(&Arc::default()));
    for path in ["/file", "/stream", "/bytes"] {
        let mut client = RawClient::with_settings(&server, &[(INITIAL_WINDOW_SIZE, 1)]);
        client.auto_window_update = false;
        let ids: Vec<u32> = (0..3).map(|_| client.get(&format!("{path}?{LENGTH}"))).collect();
        for received in 1..=LENGTH {
            client.read_until("a byte on each stream", |client| {
                ids.iter().all(|id| client.body_length(*id) == received)
            });
            client.send(ids.iter().flat_map(|id| window_update(*id, 1)).collect::<Vec<u8>>());
        }
        assert!(client.read_all(&ids), "{path}");
    }
    stop(server);
}

/// A body is not produced while its client cannot receive it, but for a part that does not depend on
/// the number of streams.
#[test]
fn blocked_streams_do_not_produce_their_bodies() {
    const STREAMS: usize = 50;
    const LENGTH: usize = 100_000;
    for (name, window, received) in
        [("of the streams", 0, 0), ("of the connection", 1 << 20, 65_535)]
    {
        let produced = Arc::default();
        let server = start(downloads(&produced));
        let mut client = RawClient::with_settings(&server, &[(INITIAL_WINDOW_SIZE, window)]);
        client.auto_window_update = false;
        let ids: Vec<u32> =
            (0..STREAMS).map(|_| client.get(&format!("/stream?{LENGTH}"))).collect();
        client.sync();
        let ahead = produced.load(SeqCst) - received;
        assert!(ahead <= 64 << 10, "{name}: {ahead} bytes ahead of the windows");
        // Openings that are worth nothing have no effect.
        client.send(window_update(if window == 0 { ids[0] } else { 0 }, 1));
        client.sync();
        assert!(produced.load(SeqCst) <= received + ahead + 16_000, "{name}");
        let open = |id: &u32| window_update(*id, LENGTH as u32);
        client.send(ids.iter().flat_map(open).collect::<Vec<u8>>());
        client.send(window_update(0, (STREAMS * LENGTH) as u32));
        assert!(client.read_all(&ids), "{name}");
        assert_eq!(produced.load(SeqCst), STREAMS * LENGTH, "{name}");
        stop(server);
    }
}

/// Streams that their client does not read leave the connection to the others.
#[test]
fn blocked_streams_do_not_block_others() {
    const LENGTH: usize = 500_000;
    let server = start(downloads(&Arc::default()));
    for path in ["/file", "/stream", "/bytes"] {
        for window in [1, 10_000, 65_535] {
            let mut client = RawClient::with_settings(&server, &[(INITIAL_WINDOW_SIZE, window)]);
            client.auto_window_update = false;
            client.send(window_update(0, i32::MAX as u32 - 65_535));
            let blocked: Vec<u32> =
                (0..50).map(|_| client.get(&format!("{path}?{LENGTH}"))).collect();
            client.sync();
            for other in ["/file", "/stream", "/bytes"] {
                let stream =
                    client.request(&pseudo_header("GET", &format!("{other}?{LENGTH}")), true);
                client.send(window_update(stream, 40_000));
                let mut granted = window as usize + 40_000;
                while client.peek(stream).is_none_or(|response| !response.ended) {
                    client.read_until("the window is used, or the end", |client| {
                        let received = client.body_length(stream);
                        // After the content, the end may come separately.
                        let has_ended = client.peek(stream).is_some_and(|it| it.ended);
                        has_ended || (received >= granted - 20_000 && received < LENGTH)
                    });
                    client.send(window_update(stream, 20_000));
                    granted += 20_000;
                }
                assert_eq!(client.body_length(stream), LENGTH, "{path} {window} {other}");
            }
            for id in blocked {
                // Windows below the size of a piece are used as far as the budget lasts.
                assert!(client.body_length(id) <= window as usize, "{path} {window}");
            }
        }
    }
    stop(server);
}

/// The end of a body, and trailers, need no window. They are detected although the windows are
/// closed.
#[test]
fn end_of_a_streamed_body_needs_no_window() {
    let server = start(async |request: Request| {
        let (mut data, mut trailers) = match request.path() {
            "/empty" => (None, None),
            "/failing" => return Response::body(parts([Err(ErrorKind::BodyFailed)])),
            _ => {
                let fields = [(header::ETAG, "t".parse().unwrap())].into_iter().collect();
                (Some(Bytes::from_static(b"1234")), Some(fields))
            }
        };
        let frames = futures_util::stream::poll_fn(move |_| {
            let data = data.take().map(http_body::Frame::data);
            let frame = data.or_else(|| trailers.take().map(http_body::Frame::trailers));
            Poll::Ready(frame.map(Ok::<_, Error>))
        });
        Response::body(Body::from_http_body(http_body_util::StreamBody::new(frames)))
    });
    for (path, window, outcome) in
        [("/empty", 0, "200"), ("/trailers", 4, "200"), ("/failing", 0, "reset INTERNAL_ERROR")]
    {
        let mut client = RawClient::with_settings(&server, &[(INITIAL_WINDOW_SIZE, window)]);
        for _ in 0..10 {
            let stream = client.get(path);
            assert_eq!(client.outcome(stream), outcome, "{path}");
        }
    }
    stop(server);
}

/// References to the dynamic table make large heads cheap to send. Their total size is limited, as
/// the number of streams is.
#[test]
fn refuses_requests_whose_heads_exceed_the_limit_until_one_ends() {
    let server = start(async |request: Request| match request.path() {
        "/wait" => pending().await,
        _ => Response::text("ok"),
    });
    let mut client = RawClient::connect(&server);
    let cookie = "x".repeat(8_000);
    let head = |path| [&pseudo_header("GET", path)[..], &[("cookie", &*cookie)]].concat();
    // 256 KiB, with 1 KiB of each head not counted.
    let waiting: Vec<u32> = (0..37).map(|_| client.request(&head("/wait"), true)).collect();
    let stream = client.request(&head("/"), true);
    assert_eq!(client.outcome(stream), "reset REFUSED_STREAM");
    client.assert_open("/");
    client.send(reset(waiting[0], CANCEL));
    client.sync();
    let stream = client.request(&head("/"), true);
    assert_eq!(client.outcome(stream), "200");
    stop(server);
}

#[test]
fn sends_large_and_small_bodies_completely() {
    let server = start(async |request: Request| {
        let length: usize = request.path()[1..].parse().unwrap();
        Response::body((0..length).map(|i| i as u8).collect::<Vec<u8>>())
    });
    let lengths = [0, 1, 16_383, 16_384, 16_385, 1 << 20, 65_535, 65_536, 5_000_000, 3];
    let mut client = RawClient::connect(&server);
    let streams = lengths.map(|length| client.get(&format!("/{length}")));
    for (stream, length) in streams.into_iter().zip(lengths) {
        let response = client.response(stream);
        assert_eq!(response.header("content-length"), Some(&*length.to_string()));
        assert_eq!(response.body.len(), length);
        assert!(response.body.iter().enumerate().all(|(i, &b)| b == i as u8), "{length}");
    }
    stop(server);
}

#[test]
fn serves_files_and_ranges() {
    const LENGTH: u64 = 5 << 30;
    let mut sparse = tempfile::tempfile().unwrap();
    sparse.set_len(LENGTH - 3).unwrap();
    std::io::Seek::seek(&mut sparse, std::io::SeekFrom::End(0)).unwrap();
    sparse.write_all(b"end").unwrap();
    let sparse = Arc::new(sparse);
    let server = start(move |_: Request| {
        let file = File::open(sparse.clone()).unwrap();
        async move { Response::file(file) }
    });
    let mut client = RawClient::connect(&server);
    for (method, range, status, length, range_field, body) in [
        ("HEAD", None, 200, LENGTH, None, &b""[..]),
        ("GET", Some("bytes=-3"), 206, 3, Some("bytes 5368709117-5368709119/5368709120"), b"end"),
        ("GET", Some("bytes=0-1"), 206, 2, Some("bytes 0-1/5368709120"), b"\0\0"),
        (
            "GET",
            Some("bytes=5368709118-"),
            206,
            2,
            Some("bytes 5368709118-5368709119/5368709120"),
            b"nd",
        ),
        (
            "GET",
            Some("bytes=5368709120-"),
            416,
            26,
            Some("bytes */5368709120"),
            b"416 Range Not Satisfiable\n",
        ),
    ] {
        let mut head = pseudo_header(method, "/").to_vec();
        head.extend(range.map(|range| ("range", range)));
        let stream = client.request(&head, true);
        let response = client.response(stream);
        assert_eq!((response.status(), &*response.body), (status, body), "{range:?}");
        assert_eq!(response.header("content-length"), Some(&*length.to_string()), "{range:?}");
        assert_eq!(response.header("content-range"), range_field, "{range:?}");
    }
    // Several ranges, one of which exceeds every window.
    let head = [&pseudo_header("GET", "/")[..], &[("range", "bytes=0-299999, -3")]].concat();
    let stream = client.request(&head, true);
    let response = client.response(stream);
    assert_eq!((response.status(), response.reset), (206, None));
    assert_eq!(response.header("content-length"), Some(&*response.body.len().to_string()));
    let has = |text: &str| response.body.windows(text.len()).any(|w| w == text.as_bytes());
    assert!(has("bytes 0-299999/5368709120\r\n\r\n\0\0") && has("\r\n\r\nend\r\n--"));
    // Reset after the first window: the rest of the file is not read.
    let mut client = RawClient::connect(&server);
    client.auto_window_update = false;
    let stream = client.get("/");
    client.read_until("the first window", |client| client.body_length(stream) == 65_535);
    client.send([reset(stream, CANCEL), window_update(0, 65_535)].concat());
    let stream = client.request(&pseudo_header("HEAD", "/"), true);
    assert_eq!(client.response(stream).status(), 200);
    stop(server);
}

#[test]
fn serves_streams_concurrently() {
    let server = start(async |request: Request| {
        let number: u64 = request.path()[1..].parse().unwrap();
        for _ in 0..100 - number {
            tokio::task::yield_now().await;
        }
        Response::text(request.path()[1..].to_owned())
    });
    let responses = with_h2_client(&server, async |client| {
        let mut responses = Vec::new();
        for number in 0..100 {
            let request = http::Request::get(format!("http://a/{number}")).body(()).unwrap();
            let mut client = client.clone().ready().await.unwrap();
            responses.push(client.send_request(request, true).unwrap().0);
        }
        let mut texts = Vec::new();
        for response in responses {
            let mut body = response.await.unwrap().into_body();
            texts.push(body.data().await.unwrap().unwrap());
        }
        texts
    });
    for (number, text) in responses.iter().enumerate() {
        assert_eq!(*text, number.to_string());
    }
    stop(server);
}

// -- failures

#[test]
fn failure_ends_one_stream_and_is_reported() {
    let (server, events) = start_with_event_log(Settings::default(), async |request: Request| {
        let sized = |body: Body| {
            Response::body(body).with_header(header::CONTENT_LENGTH, request.query().unwrap_or(""))
        };
        match request.path() {
            "/wait" => {
                tokio::time::sleep(Duration::from_millis(50)).await;
                Response::text("ok")
            }
            "/panic" => panic!("on purpose"),
            "/late" => Response::body(Body::stream(Chunks({
                let mut parts = vec!["first"];
                move |_: &mut Context<'_>| match parts.pop() {
                    Some(part) => Poll::Ready(Some(Ok(Bytes::from_static(part.as_bytes())))),
                    None => panic!("on purpose"),
                }
            }))),
            "/failing" => Response::body(parts([Ok("first"), Err(ErrorKind::BodyFailed)])),
            "/bytes" => sized("abc".into()),
            "/stream" => sized(parts([Ok("ab"), Ok("c")])),
            "/upgrade" => Response::upgrade("shout", async |_: Upgraded| {}),
            _ => Response::text("ok"),
        }
    });
    let mut client = RawClient::connect(&server);
    for (path, expected, event) in [
        ("/panic", "500", "Application Panicked"),
        ("/late", "reset INTERNAL_ERROR", "Application Panicked"),
        ("/failing", "reset INTERNAL_ERROR", "Application BodyFailed"),
        ("/bytes?2", "500", "Application LengthMismatch"),
        ("/bytes?4", "500", "Application LengthMismatch"),
        ("/bytes?x", "500", "Application LengthMismatch"),
        ("/bytes?3", "200", "/bytes?3 200 3"),
        ("/stream?3", "200", "/stream?3 200 3"),
        ("/stream?4", "reset INTERNAL_ERROR", "Application LengthMismatch"),
        ("/stream?2", "reset INTERNAL_ERROR", "Application LengthMismatch"),
        ("/stream?x", "500", "Application LengthMismatch"),
        // The client did not request an upgrade.
        ("/upgrade", "500", "Application InvalidResponse"),
    ] {
        events.0.lock().unwrap().clear();
        let concurrent = client.get("/wait");
        let stream = client.get(path);
        client.read_until("the end of the stream", |client| {
            client.peek(stream).is_some_and(StreamResponse::is_finished)
        });
        let text = client.peek(stream).unwrap().text();
        assert!(!text.contains("purpose"), "the response reveals an internal error message");
        assert_eq!(client.outcome(stream), expected, "{path}");
        assert_eq!(client.outcome(concurrent), "200", "{path}");
        until(event, || events.contains(event));
    }
    stop(server);
}

// -- client disconnects

#[test]
fn reset_cancels_one_call_and_disconnect_cancels_all() {
    let alive = CloneCounter::new();
    let app_guard = Arc::new(alive.clone());
    let app = move |request: Request| {
        // The clones of the application share one guard; each call has its own.
        let call_guard = CloneCounter::clone(&app_guard);
        async move {
            let _call_guard = call_guard;
            match request.path() {
                "/stream" => {
                    let stream_guard = _call_guard.clone();
                    Response::body(Body::stream(Chunks(move |_: &mut Context<'_>| {
                        let _ = &stream_guard;
                        Poll::Pending
                    })))
                }
                _ => pending().await,
            }
        }
    };
    let server = start(app);
    let idle = alive.count();
    for (path, per_call) in [("/", 1), ("/stream", 1)] {
        let mut client = RawClient::connect(&server);
        let streams: Vec<u32> = (0..5).map(|_| client.get(path)).collect();
        until("the calls start", || alive.count() == idle + 5 * per_call);
        client.send(reset(streams[2], CANCEL));
        until("one call is dropped", || alive.count() == idle + 4 * per_call);
        client.sync();
        assert_eq!(alive.count(), idle + 4 * per_call, "{path}");
        drop(client);
        until("all calls are dropped", || alive.count() == idle);
    }
    stop(server);
}

#[test]
fn detached_call_completes_after_disconnect() {
    let release = Arc::new(Notify::new());
    let (started, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (released, begin, end) = (release.clone(), started.clone(), ended.clone());
    let settings = Settings { disconnect: Disconnect::Detach, ..Settings::default() };
    let server = start_with(settings, move |_: Request| {
        let (released, begin, end) = (released.clone(), begin.clone(), end.clone());
        async move {
            begin.fetch_add(1, SeqCst);
            released.notified().await;
            end.fetch_add(1, SeqCst);
            Response::text("unused")
        }
    });
    // One stream is reset, the other ends with the connection.
    let mut client = RawClient::connect(&server);
    let stream = client.get("/");
    client.send(reset(stream, CANCEL));
    client.sync();
    client.get("/");
    until("both calls start", || started.load(SeqCst) == 2);
    drop(client);
    until("both calls complete", || {
        release.notify_waiters();
        ended.load(SeqCst) == 2
    });
    stop(server);
}

/// A detached call does not need the socket of its connection.
#[test]
fn detached_call_does_not_keep_a_broken_connection_open() {
    let release = Arc::new(Notify::new());
    let ended = Arc::new(AtomicUsize::new(0));
    let (released, end) = (release.clone(), ended.clone());
    let settings = Settings { disconnect: Disconnect::Detach, ..short_timeouts() };
    let server = start_with(settings, move |_: Request| {
        let (released, end) = (released.clone(), end.clone());
        async move {
            released.notified().await;
            end.fetch_add(1, SeqCst);
            Response::text("unused")
        }
    });
    for (name, breaking, goaways) in [
        ("connection error", frame(DATA, 0, 0, b"x"), &["PROTOCOL_ERROR"][..]),
        ("end of the input", vec![], &[]),
    ] {
        let mut client = RawClient::connect(&server);
        client.get("/");
        client.sync();
        match breaking.is_empty() {
            true => client.socket().shutdown(std::net::Shutdown::Write).unwrap(),
            false => client.send(breaking),
        }
        assert_eq!(client.read_goaways(), goaways, "{name}");
        // Both directions are closed: the server answers further input by a reset.
        until("the socket is closed", || client.try_send(b"x").is_err());
    }
    let mut client = RawClient::connect(&server);
    client.get("/");
    client.sync();
    let socket = ServerSocket::of(client.socket());
    reset_on_close(client.socket());
    drop(client);
    until("the socket of a reset connection is closed", || !socket.is_open());
    assert_eq!(ended.load(SeqCst), 0);
    until("all calls complete", || {
        release.notify_waiters();
        ended.load(SeqCst) == 3
    });
    stop(server);
}

// -- the end of a connection

#[test]
fn shutdown_finishes_active_requests_and_closes_idle_connections() {
    let release = Arc::new(Notify::new());
    let released = release.clone();
    let server = start(move |request: Request| {
        let released = released.clone();
        async move {
            if request.path() == "/slow" {
                released.notified().await;
            }
            Response::body(vec![b'x'; 100_000])
        }
    });
    let (mut idle, mut busy) = (RawClient::connect(&server), RawClient::connect(&server));
    idle.assert_open("/");
    busy.assert_open("/");
    let slow = busy.get("/slow");
    busy.sync();
    let stopping = std::thread::spawn(move || server.shutdown(TEST_TIMEOUT));
    let errors = idle.read_goaways();
    assert!(!errors.is_empty() && errors.iter().all(|&e| e == "NO_ERROR"), "{errors:?}");
    assert_eq!(idle.closed, Some(false));
    busy.read_until("a GOAWAY", |client| !client.goaways.is_empty());
    assert!(busy.peek(slow).is_none());
    release.notify_one();
    let response = busy.response(slow);
    assert_eq!((response.status(), response.body.len()), (200, 100_000));
    busy.assert_closed();
    // RFC 9113 §6.8: the last GOAWAY contains the last processed stream.
    assert_eq!(busy.goaways.last(), Some(&(slow, "NO_ERROR")));
    stopping.join().unwrap();
}

#[test]
fn shutdown_ends_despite_unresponsive_clients_and_pending_calls() {
    let alive = CloneCounter::new();
    let app_guard = Arc::new(alive.clone());
    let server = start_with(short_timeouts(), move |request: Request| {
        let call_guard = CloneCounter::clone(&app_guard);
        async move {
            let _call_guard = call_guard;
            match request.path() {
                "/wait" => pending().await,
                _ => Response::text("ok"),
            }
        }
    });
    let idle = alive.count();
    // This client does not acknowledge the PING after the GOAWAY; the server must not depend on it.
    let mut unresponsive = RawClient::connect(&server);
    unresponsive.auto_ack = false;
    unresponsive.assert_open("/");
    let mut waiting = RawClient::connect(&server);
    waiting.get("/wait");
    until("the call starts", || alive.count() > idle);
    let begin = Instant::now();
    server.shutdown(Duration::from_millis(500));
    assert!(begin.elapsed() < TEST_TIMEOUT);
    unresponsive.assert_closed();
    assert!(!unresponsive.goaways.is_empty());
    waiting.assert_closed();
}

#[test]
fn closes_connection_after_max_requests() {
    let server = start_with(Settings { max_requests: 3, ..Settings::default() }, echo);
    let mut client = RawClient::connect(&server);
    client.assert_open("/");
    client.assert_open("/");
    assert_eq!(client.goaways, []);
    client.assert_open("/");
    assert!(client.read_goaways().iter().all(|&error| error == "NO_ERROR"));
    assert_eq!(client.goaways.last(), Some(&(5, "NO_ERROR")));
    stop(server);
}

#[test]
fn closes_connections_after_their_timeouts() {
    let server = start_with(short_timeouts(), echo);
    // Idle after a request.
    let mut client = RawClient::connect(&server);
    client.assert_open("/");
    let errors = client.read_goaways();
    assert!(!errors.is_empty() && errors.iter().all(|&e| e == "NO_ERROR"), "{errors:?}");
    // Before the first request: no input, part of the preface, the preface, with SETTINGS, and with
    // part of a request.
    let settings = [PREFACE, &settings(&[])].concat();
    let half_a_head = [&settings[..], &get(1, "/")[..20]].concat();
    for bytes in [&b""[..], &PREFACE[..3], &PREFACE[..20], PREFACE, &settings, &half_a_head] {
        let mut client = Client::connect_and_send(&server, bytes);
        while client.read() > 0 {}
    }
    // Between requests, with part of the next one.
    let mut client = RawClient::connect(&server);
    client.assert_open("/");
    client.send(&get(3, "/")[..20]);
    client.assert_closed();
    stop(server);
}

#[test]
fn slow_handler_does_not_time_out() {
    let server = start_with(short_timeouts(), async |_: Request| {
        tokio::time::sleep(3 * SHORT_TIMEOUT).await;
        Response::text("at last")
    });
    let mut client = RawClient::connect(&server);
    let stream = client.get("/");
    assert_eq!(client.response(stream).text(), "at last");
    stop(server);
}

#[test]
fn aborts_responses_that_the_client_does_not_read() {
    let alive = CloneCounter::new();
    let app_guard = Arc::new(alive.clone());
    let produced = Arc::new(AtomicUsize::new(0));
    let count = produced.clone();
    let (server, events) = start_with_event_log(short_timeouts(), move |request: Request| {
        let (stream_guard, count) = (CloneCounter::clone(&app_guard), count.clone());
        let is_endless = request.path() == "/endless";
        async move {
            if !is_endless {
                return Response::text("ok");
            }
            Response::body(Body::stream(Chunks(move |_: &mut Context<'_>| {
                let _ = &stream_guard;
                count.fetch_add(16_000, SeqCst);
                Poll::Ready(Some(Ok(Bytes::from_static(&[b'x'; 16_000]))))
            })))
        }
    });
    let idle = alive.count();
    // A stream whose window stays at 0 is reset; the connection stays open.
    let mut client = RawClient::with_settings(&server, &[(INITIAL_WINDOW_SIZE, 0)]);
    let stream = client.get("/endless");
    client.read_until("the end of the stream", |client| {
        client.peek(stream).is_some_and(StreamResponse::is_finished)
    });
    assert_eq!(client.outcome(stream), "reset CANCEL");
    assert_eq!(alive.count(), idle);
    until("the hooks report the timeout", || events.contains("Peer TooSlow"));
    drop(client);
    // A connection whose client opens all windows and then does not read is closed.
    produced.store(0, SeqCst);
    let mut client = RawClient::with_settings(&server, &[(INITIAL_WINDOW_SIZE, i32::MAX as u32)]);
    client.send(window_update(0, i32::MAX as u32 - 65_535));
    client.get("/endless");
    until("the stream starts", || alive.count() > idle);
    until("the stream is dropped", || alive.count() == idle);
    // Bounded by the kernel's socket buffers on both sides.
    let produced = produced.load(SeqCst);
    assert!(produced < 32 << 20, "{produced} bytes were produced");
    client.auto_window_update = false;
    client.assert_closed();
    stop(server);
}

#[test]
fn slow_reading_client_receives_the_full_response() {
    let stall_timeout = 2 * SHORT_TIMEOUT;
    // First case: many responses share the connection, and each waits for longer than the stall
    // timeout. Second case: sending the end of the last response takes longer than the linger
    // timeout.
    for (streams, megabytes, max_requests) in [(32, 1, 0), (1, 16, 1)] {
        let settings = Settings { stall_timeout, max_requests, ..short_timeouts() };
        let body = Bytes::from(vec![b'x'; megabytes << 20]);
        let server = start_with(settings, move |_: Request| {
            let body = body.clone();
            async { Response::body(body) }
        });
        // The attempt is repeated if the machine delayed the client.
        until("all responses are read", || {
            let max_window = i32::MAX as u32;
            let mut client =
                RawClient::with_settings(&server, &[(INITIAL_WINDOW_SIZE, max_window)]);
            client.auto_window_update = false;
            client.send(window_update(0, max_window - 65_535));
            let ids: Vec<u32> = (0..streams).map(|_| client.get("/")).collect();
            let (begin, mut last, mut longest) = (Instant::now(), Instant::now(), Duration::ZERO);
            while begin.elapsed() < 4 * stall_timeout && client.read() {
                std::thread::sleep(Duration::from_millis(100));
                longest = longest.max(last.elapsed());
                last = Instant::now();
            }
            let is_finished = |client: &RawClient, id: &u32| {
                client.peek(*id).is_some_and(StreamResponse::is_finished)
            };
            while !ids.iter().all(|id| is_finished(&client, id)) && client.read() {}
            let is_complete =
                |id: &u32| is_finished(&client, id) && client.body_length(*id) == megabytes << 20;
            let all_complete = ids.iter().all(is_complete);
            assert!(all_complete || longest > SHORT_TIMEOUT, "{streams} streams are incomplete");
            all_complete
        });
        stop(server);
    }
}

#[test]
fn final_response_is_not_truncated_when_the_connection_closes() {
    const LENGTH: usize = 20_000;
    let settings =
        Settings { stall_timeout: 60 * SHORT_TIMEOUT, max_requests: 1, ..short_timeouts() };
    let server = boxed_server(async |_: Request| Response::body(vec![b'x'; LENGTH]));
    let server = server.settings(settings);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (mut client, stream) = tokio::io::duplex(1_000);
        let client = async move {
            let opening = [PREFACE, &self::settings(&[]), &get(1, "/")].concat();
            client.write_all(&opening).await.unwrap();
            // The complete response is queued, and waits for longer than the linger timeout.
            tokio::time::sleep(3 * SHORT_TIMEOUT).await;
            let (mut received, mut piece) = (0, [0; 1_000]);
            while received < LENGTH {
                let length = client.read(&mut piece).await.unwrap();
                assert!(length > 0, "closed after {received} bytes");
                received += piece[..length].iter().filter(|&&byte| byte == b'x').count();
            }
        };
        let all = async { tokio::join!(server.serve_connection(stream), client) };
        let (served, ()) =
            tokio::time::timeout(TEST_TIMEOUT, all).await.expect("the connection ends in time");
        served.unwrap();
    });
}

#[test]
fn closing_connection_waits_while_the_client_reads() {
    const STREAMS: u32 = 6;
    let settings = Settings {
        stall_timeout: 2 * SHORT_TIMEOUT,
        max_requests: STREAMS.into(),
        ..short_timeouts()
    };
    let server = start_with(settings, async |_: Request| Response::text("x".repeat(1_000)));
    // The attempt is repeated if the machine delayed the client.
    until("all responses are read", || {
        let mut client = RawClient::with_settings(&server, &[(INITIAL_WINDOW_SIZE, 0)]);
        let ids: Vec<u32> = (0..STREAMS).map(|_| client.get("/")).collect();
        let (mut last, mut longest) = (Instant::now(), Duration::ZERO);
        for id in &ids {
            std::thread::sleep(SHORT_TIMEOUT);
            longest = longest.max(last.elapsed());
            last = Instant::now();
            if client.try_send(window_update(*id, 1_000)).is_err() {
                break;
            }
        }
        let is_complete = client.read_all(&ids);
        assert!(
            is_complete || longest > 3 * SHORT_TIMEOUT / 2,
            "closed before the responses were read"
        );
        is_complete
    });
    stop(server);
}

#[test]
fn trickling_body_times_out_and_slow_body_does_not() {
    let server = start_with(short_timeouts(), echo);
    let mut client = RawClient::connect(&server);
    let stream = client.post("/");
    client.data(stream, "some", false);
    client.read_until("the response", |client| {
        client.peek(stream).is_some_and(|response| response.head.is_some())
    });
    assert_eq!(client.response(stream).status(), 408);
    // Single bytes are below the minimum rate, even if they arrive more often than the server's
    // clock ticks.
    let mut client = RawClient::connect(&server);
    let stream = client.post("/");
    let begin = Instant::now();
    while !client.has_input_within(Duration::from_millis(10)) {
        client.data(stream, "x", false);
        assert!(begin.elapsed() < TEST_TIMEOUT, "the server does not time out");
    }
    assert_eq!(client.response(stream).status(), 408);
    // Slow, but above the minimum rate, for longer than the stall timeout. The attempt is repeated
    // if the machine delayed the client.
    until("a slow body is read", || {
        let begin = Instant::now();
        let mut longest = Duration::ZERO;
        let mut client = RawClient::connect(&server);
        let stream = client.post("/");
        for _ in 0..40 {
            let sent = Instant::now();
            std::thread::sleep(Duration::from_millis(20));
            if client.try_send(frame(DATA, 0, stream, &[b'x'; 300])).is_err() {
                break;
            }
            longest = longest.max(sent.elapsed());
        }
        let _ = client.try_send(frame(DATA, END_STREAM, stream, b""));
        let is_complete = client.outcome(stream) == "200";
        assert!(is_complete || longest > SHORT_TIMEOUT / 2, "timed out although data was sent");
        is_complete && begin.elapsed() > SHORT_TIMEOUT
    });
    stop(server);
}

// -- other protocols

/// Echoes its input in upper case, until a full stop.
async fn shout(mut connection: Upgraded) {
    let mut byte = [0];
    while let Ok(1) = connection.read(&mut byte).await {
        let upper = byte.map(|b| b.to_ascii_uppercase());
        if byte == *b"." || connection.write_all(&upper).await.is_err() {
            break;
        }
    }
}

/// The head of an extended CONNECT (RFC 8441 §4).
fn extended_connect<'a>(protocol: &'a str, path: &'a str) -> Vec<(&'a str, &'a str)> {
    let mut head = pseudo_header("CONNECT", path).to_vec();
    head.push((":protocol", protocol));
    head
}

/// A handler may move its tunnel to another task. The connection is not idle then.
#[test]
fn moved_tunnel_keeps_the_connection_open() {
    let idle = Duration::from_millis(200);
    let settings = Settings { idle_timeout: idle, linger_timeout: idle, ..Settings::default() };
    let server = start_with(settings, async |_: Request| {
        Response::upgrade("shout", async |connection| {
            tokio::task::spawn_local(shout(connection));
        })
    });
    let mut client = RawClient::connect(&server);
    let stream = client.request(&extended_connect("shout", "/"), false);
    let begin = Instant::now();
    let mut sent = 0;
    while begin.elapsed() < 10 * idle {
        client.data(stream, "a", false);
        sent += 1;
        client.read_until("the echo", |client| client.body_length(stream) == sent);
    }
    assert_eq!(client.goaways, []);
    client.data(stream, ".", false);
    client.response(stream);
    assert_eq!(client.read_goaways().last(), Some(&"NO_ERROR"));
    stop(server);
}

#[test]
fn serves_tunnels_and_extended_connect() {
    let server = start(async |request: Request| match (request.method(), request.path()) {
        (_, "/shout") => Response::upgrade("shout", shout),
        (_, "/no") => Response::not_found(),
        (_, "/panic") => Response::upgrade("shout", async |_| panic!("on purpose")),
        (&Method::CONNECT, _) if request.target() == "a:1" => Response::tunnel(shout),
        _ => Response::text("ok"),
    });
    let mut client = RawClient::connect(&server);
    assert_eq!(client.setting(ENABLE_CONNECT_PROTOCOL), Some(1));
    // RFC 8441 §5: a 2xx would accept the requested tunnel.
    let page = client.request(&extended_connect("shout", "/page"), false);
    assert_eq!(client.response(page).status(), 501);
    let tunnel = vec![(":method", "CONNECT"), (":authority", "a:1")];
    for head in [extended_connect("shout", "/shout"), tunnel] {
        let stream = client.request(&head, false);
        client.data(stream, "early", false);
        client.read_until("the echo", |client| client.body_length(stream) == 5);
        client.data(stream, "later", false);
        client.read_until("the echo", |client| client.body_length(stream) == 10);
        let response = client.peek(stream).unwrap();
        assert_eq!(
            (response.status(), response.text(), response.ended),
            (200, "EARLYLATER", false)
        );
        assert_eq!((response.header("upgrade"), response.header("content-length")), (None, None));
        client.data(stream, ".", false);
        // The handler has returned, which ends the stream; other streams continue.
        client.response(stream);
        client.assert_open("/");
        // END_STREAM of the client ends the handler's input, and with it the response.
        let stream = client.request(&head, false);
        client.data(stream, "x", true);
        assert_eq!(client.response(stream).text(), "X");
    }
    // More data than any window, in both directions.
    let stream = client.request(&extended_connect("shout", "/shout"), false);
    assert!(client.upload(stream, 300_000));
    let response = client.response(stream);
    assert_eq!(response.body.len(), 300_000);
    assert!(response.body.iter().all(|&b| b == b'X'));
    for (head, expected) in [
        (extended_connect("shout", "/no"), "404"),
        (extended_connect("other", "/shout"), "500"),
        (vec![(":method", "CONNECT"), (":authority", "b:1")], "501"),
    ] {
        let stream = client.request(&head, false);
        client.read_until("the response", |client| {
            client.peek(stream).is_some_and(StreamResponse::is_finished)
        });
        assert_eq!(client.response(stream).status().to_string(), expected, "{head:?}");
        client.assert_open("/");
    }
    let stream = client.request(&extended_connect("shout", "/panic"), false);
    client.response(stream);
    client.assert_open("/");
    stop(server);
}

#[cfg(feature = "websocket")]
mod websockets {
    use super::*;
    use weft::websocket;

    /// A client frame, masked with a key of zeros.
    fn masked(opcode: u8, payload: &[u8]) -> Vec<u8> {
        [&[0x80 | opcode, 0x80 | payload.len() as u8, 0, 0, 0, 0], payload].concat()
    }

    fn unmasked(opcode: u8, payload: &[u8]) -> Vec<u8> {
        [&[0x80 | opcode, payload.len() as u8], payload].concat()
    }

    async fn chat(request: Request) -> Response {
        websocket::accept(&request, async |mut socket| {
            while let Ok(Some(message)) = socket.receive().await {
                if socket.send(message).await.is_err() {
                    break;
                }
            }
        })
    }

    fn opening<'a>() -> Vec<(&'a str, &'a str)> {
        let mut head = extended_connect("websocket", "/chat");
        head.push(("sec-websocket-version", "13"));
        head.push(("origin", "http://a"));
        head
    }

    #[track_caller]
    fn assert_received(client: &mut RawClient, stream: u32, expected: &[u8]) {
        let length = expected.len();
        client.read_until("the messages", |client| client.body_length(stream) >= length);
        assert_eq!(client.peek(stream).unwrap().body, expected);
    }

    /// RFC 8441 §5: no key, and 200 rather than 101.
    #[test]
    fn accepts_websocket_by_extended_connect() {
        let server = start(chat);
        let mut client = RawClient::connect(&server);
        let stream = client.request(&opening(), false);
        client.data(stream, masked(1, b"early"), false);
        let mut expected = unmasked(1, b"early");
        assert_received(&mut client, stream, &expected);
        let head = client.peek(stream).unwrap().head.clone().unwrap();
        assert_eq!(find(&head, ":status"), Some("200"));
        for name in ["sec-websocket-accept", "upgrade", "connection", "content-length"] {
            assert_eq!(find(&head, name), None, "{name}");
        }
        // Several WebSockets on one connection, concurrently with requests.
        let other = client.request(&opening(), false);
        client.data(other, masked(2, b"other"), false);
        assert_received(&mut client, other, &unmasked(2, b"other"));
        let plain = client.get("/");
        assert_eq!(client.response(plain).status(), 426);
        client.data(stream, [masked(1, b"a"), masked(9, b"b")].concat(), false);
        expected.extend([unmasked(1, b"a"), unmasked(10, b"b")].concat());
        assert_received(&mut client, stream, &expected);
        client.data(stream, masked(8, &[3, 232]), false);
        expected.extend(unmasked(8, &[3, 232]));
        assert_received(&mut client, stream, &expected);
        client.response(stream);
        // RST_STREAM ends only the WebSocket of that stream.
        client.send(reset(other, CANCEL));
        let again = client.request(&opening(), false);
        client.data(again, masked(1, b"again"), false);
        assert_received(&mut client, again, &unmasked(1, b"again"));
        stop(server);
    }

    #[test]
    fn rejects_wrong_version_and_origin() {
        let server = start(chat);
        let mut client = RawClient::connect(&server);
        for (name, value, status) in
            [("sec-websocket-version", "8", 426), ("origin", "http://b", 403)]
        {
            let mut head = opening();
            head.iter_mut().filter(|(n, _)| *n == name).for_each(|field| field.1 = value);
            let stream = client.request(&head, false);
            client.read_until("the response", |client| {
                client.peek(stream).is_some_and(StreamResponse::is_finished)
            });
            assert_eq!(client.response(stream).status(), status, "{name}");
        }
        stop(server);
    }

    #[test]
    fn shutdown_sends_a_close_frame() {
        let server = start(chat);
        let mut client = RawClient::connect(&server);
        let stream = client.request(&opening(), false);
        client.read_until("the head", |client| client.peek(stream).is_some());
        let stopping = std::thread::spawn(move || server.shutdown(TEST_TIMEOUT));
        let close = [&1001u16.to_be_bytes()[..], b"the server stops"].concat();
        assert_received(&mut client, stream, &unmasked(8, &close));
        client.data(stream, masked(8, &[3, 233]), false);
        client.assert_closed();
        assert_eq!(client.goaways.last(), Some(&(stream, "NO_ERROR")));
        stopping.join().unwrap();
    }
}
