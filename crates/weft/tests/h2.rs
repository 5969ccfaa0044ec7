//! HTTP/2 (RFC 9113) over real sockets, frame by frame.

mod common;

use std::future::pending;
use std::io::Write;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::frames::*;
use common::{Client, PATIENCE, SHORT, quick, stop, until};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;
use weft::{
    Application, Body, Disconnect, Error, ErrorKind, File, Hooks, Method, Peer, Record, Request,
    Response, Running, Server, Settings, StatusCode, Upgraded, header,
};

fn start<A: Application + Clone + Send + 'static>(app: A) -> Running {
    start_with(Settings::default(), app)
}

fn start_with<A: Application + Clone + Send + 'static>(settings: Settings, app: A) -> Running {
    start_told(settings, app).0
}

fn start_told<A>(settings: Settings, app: A) -> (Running, Told)
where
    A: Application + Clone + Send + 'static,
{
    let told = Told::default();
    let hooks = told.clone();
    let server = Server::new(app).settings(settings).workers(1).hooks(move || hooks.clone());
    (server.listen("127.0.0.1:0").unwrap().start().unwrap(), told)
}

/// Collects what the hooks are told.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<String>>>);

impl Told {
    fn has(&self, what: &str) -> bool {
        self.0.lock().unwrap().iter().any(|told| told == what)
    }
}

impl Hooks for Told {
    fn error(&self, _: &Peer, error: &Error) {
        let what = format!("{:?} {:?}", error.kind().fault(), error.kind());
        self.0.lock().unwrap().push(what);
    }

    fn answered(&self, record: &Record<'_>) {
        let target = record.head.map_or("-", |head| head.target());
        let what = format!("{target} {} {}", record.status.as_u16(), record.body_bytes);
        self.0.lock().unwrap().push(what);
    }
}

/// Reads the body and gives it back.
async fn echo(request: Request) -> weft::Result<Response> {
    match *request.method() {
        Method::GET => Ok(Response::text("ok")),
        _ => Ok(Response::body(request.into_body().collect(1 << 24).await?)),
    }
}

/// Counts how many values of its clones are alive.
#[derive(Clone)]
struct Alive(Arc<()>);

impl Alive {
    fn new() -> Alive {
        Alive(Arc::new(()))
    }

    fn count(&self) -> usize {
        Arc::strong_count(&self.0) - 1
    }
}

/// A stream of chunks that a function makes.
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

/// A body of these parts, of which the last may be an error.
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

/// Checks what becomes of a request, and that others of its connection are not harmed by it,
/// unless the whole connection is to end.
#[track_caller]
fn assert_outcome(client: &mut Raw, server: &Running, stream: u32, expected: &str, name: &str) {
    assert_eq!(client.outcome(stream), expected, "{name}");
    if expected.starts_with("goaway") {
        // What is after that is not read any more.
        client.goodbye();
        *client = Raw::connect(server);
    }
    client.assert_open("/good");
}

/// RFC 9113 §8.2. A message that is malformed is an error of its stream, which §5.4.1 allows
/// to be made one of the connection.
#[test]
fn fields() {
    let server = start(echo);
    let mut client = Raw::connect(&server);
    for (fields, expected) in [
        (&[("x", "1")][..], "200"),
        // §8.2.2: what belongs to a connection.
        (&[("connection", "close")], "reset PROTOCOL_ERROR"),
        (&[("connection", "")], "reset PROTOCOL_ERROR"),
        (&[("keep-alive", "timeout=5")], "reset PROTOCOL_ERROR"),
        (&[("proxy-connection", "keep-alive")], "reset PROTOCOL_ERROR"),
        (&[("transfer-encoding", "chunked")], "reset PROTOCOL_ERROR"),
        (&[("upgrade", "h2c")], "reset PROTOCOL_ERROR"),
        (&[("te", "gzip")], "reset PROTOCOL_ERROR"),
        (&[("te", "trailers, gzip")], "reset PROTOCOL_ERROR"),
        (&[("te", "trailers")], "200"),
        // §8.2: names in lower case only, §8.2.1: of the characters of a token.
        (&[("X", "1")], "goaway PROTOCOL_ERROR"),
        (&[("Connection", "close")], "goaway PROTOCOL_ERROR"),
        (&[("x y", "1")], "goaway PROTOCOL_ERROR"),
        (&[("x:", "1")], "goaway PROTOCOL_ERROR"),
        (&[("x\r\ny", "1")], "goaway PROTOCOL_ERROR"),
        (&[("", "1")], "goaway PROTOCOL_ERROR"),
        // §8.2.1: values.
        (&[("x", "")], "200"),
        (&[("x", "a b\tc")], "200"),
        (&[("x", "é")], "200"),
        (&[("x", " 1")], "400"),
        (&[("x", "1 ")], "400"),
        (&[("x", "\t1")], "400"),
        (&[("x", "1\t")], "400"),
        (&[("x", " ")], "400"),
        (&[("x", "a\rb")], "goaway PROTOCOL_ERROR"),
        (&[("x", "a\nb")], "goaway PROTOCOL_ERROR"),
        (&[("x", "a\0b")], "goaway PROTOCOL_ERROR"),
        (&[("x", "a\x7fb")], "goaway PROTOCOL_ERROR"),
        // §8.3.1: Host says the same as :authority, or nothing.
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
        let head = [&pseudo("GET", "/")[..], fields].concat();
        let stream = client.request(&head, true);
        assert_outcome(&mut client, &server, stream, expected, &format!("{fields:?}"));
    }
    stop(server);
}

/// RFC 9113 §8.3.1 and §8.5, RFC 8441 §4. A head is a line for each field.
#[test]
fn pseudo_fields() {
    let server = start(echo);
    let mut client = Raw::connect(&server);
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
        // Repeated, though it be the same.
        (":method GET|:method GET|:scheme http|:authority a|:path /", "reset PROTOCOL_ERROR"),
        (":method GET|:scheme http|:scheme http|:authority a|:path /", "reset PROTOCOL_ERROR"),
        (":method GET|:scheme http|:authority a|:authority a|:path /", "reset PROTOCOL_ERROR"),
        (":method GET|:scheme http|:authority a|:path /|:path /", "reset PROTOCOL_ERROR"),
        // Unknown, or a response's.
        (":method GET|:scheme http|:authority a|:path /|:x y", "goaway PROTOCOL_ERROR"),
        (":method GET|:scheme http|:authority a|:path /|:status 200", "reset PROTOCOL_ERROR"),
        // Behind other fields.
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
        // The authority: no userinfo, and no more than a host and a port.
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
        (":method G T|:scheme http|:authority a|:path /", "goaway PROTOCOL_ERROR"),
        (":method |:scheme http|:authority a|:path /", "goaway PROTOCOL_ERROR"),
        // CONNECT has an authority with a port, and nothing else.
        (":method CONNECT|:authority a:1|:scheme http", "reset PROTOCOL_ERROR"),
        (":method CONNECT|:authority a:1|:path /", "reset PROTOCOL_ERROR"),
        (":method CONNECT|:authority a", "400"),
        (":method CONNECT", "400"),
        // Nobody makes a tunnel here.
        (":method CONNECT|:authority a:1", "501"),
        // An extended CONNECT has all.
        (":method CONNECT|:protocol x|:authority a:1", "reset PROTOCOL_ERROR"),
        (":method GET|:protocol x|:scheme http|:authority a|:path /", "reset PROTOCOL_ERROR"),
    ] {
        let fields: Vec<_> =
            head.split('|').map(|field| field.split_once(' ').expect("name value")).collect();
        let stream = client.request(&fields, true);
        assert_outcome(&mut client, &server, stream, expected, &head.escape_debug().to_string());
    }
    stop(server);
}

/// RFC 9113 §8.1.1: Content-Length is the sum of the lengths of DATA. What ends with a dot is
/// the last frame.
#[test]
fn content_length() {
    let server = start(echo);
    let mut client = Raw::connect(&server);
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
        // As over HTTP/1: who hands the request on must not have to choose.
        (&["5", "5"], &["hello."], "400"),
    ] {
        let mut head = pseudo("POST", "/").to_vec();
        head.extend(lengths.iter().map(|length| ("content-length", *length)));
        let stream = client.request(&head, data.is_empty());
        for piece in data {
            let text = piece.trim_end_matches('.');
            client.data(stream, text, text.len() < piece.len());
        }
        let name = format!("{lengths:?} {data:?}");
        assert_outcome(&mut client, &server, stream, expected, &name);
    }
    stop(server);
}

/// RFC 9113 §8.1: trailers end the stream, and have fields as others.
#[test]
fn trailers_of_requests() {
    let server = start(echo);
    let mut client = Raw::connect(&server);
    for (fields, flags, expected) in [
        (&[("x", "1")][..], WHOLE, "200"),
        (&[], WHOLE, "200"),
        (&[("x", "1")], END_HEADERS, "reset PROTOCOL_ERROR"),
        (&[("connection", "close")], WHOLE, "reset PROTOCOL_ERROR"),
        (&[("X", "1")], WHOLE, "goaway PROTOCOL_ERROR"),
        (&[("x", "a\nb")], WHOLE, "goaway PROTOCOL_ERROR"),
    ] {
        let stream = client.post("/");
        client.data(stream, "hello", false);
        client.send(frame(HEADERS, flags, stream, &block(fields)));
        assert_outcome(&mut client, &server, stream, expected, &format!("{fields:?} {flags}"));
    }
    stop(server);
}

/// Frames that break the rules of a stream or of the connection (RFC 9113 §5 and §6).
#[test]
fn frames_out_of_place() {
    let server = start(async |request: Request| match request.path() {
        "/wait" => pending().await,
        _ => Response::text("ok"),
    });
    let head = block(&pseudo("GET", "/wait"));
    for (name, frames, expected) in [
        ("DATA on an idle stream", frame(DATA, 0, 3, b"x"), "goaway PROTOCOL_ERROR"),
        ("DATA on the connection", frame(DATA, 0, 0, b"x"), "goaway PROTOCOL_ERROR"),
        ("DATA behind the end", frame(DATA, 0, 1, b"x"), "goaway STREAM_CLOSED"),
        ("HEADERS of an even stream", frame(HEADERS, WHOLE, 2, &head), "goaway PROTOCOL_ERROR"),
        ("HEADERS on the connection", frame(HEADERS, WHOLE, 0, &head), "goaway PROTOCOL_ERROR"),
        ("HEADERS with too much padding", frame(HEADERS, 13, 3, b"\xff"), "goaway PROTOCOL_ERROR"),
        ("RST_STREAM of an idle stream", reset(3, 8), "goaway PROTOCOL_ERROR"),
        ("RST_STREAM too short", frame(RST_STREAM, 0, 1, b"x"), "goaway FRAME_SIZE_ERROR"),
        ("PUSH_PROMISE", frame(PUSH_PROMISE, 4, 1, b"\0\0\0\x02"), "goaway PROTOCOL_ERROR"),
        ("CONTINUATION of nothing", frame(CONTINUATION, 4, 1, b""), "goaway PROTOCOL_ERROR"),
        (
            "a frame within a header block",
            [frame(HEADERS, 1, 3, &head), frame(PING, 0, 0, b"12345678")].concat(),
            "goaway PROTOCOL_ERROR",
        ),
        ("SETTINGS on a stream", frame(SETTINGS, 0, 1, b""), "goaway PROTOCOL_ERROR"),
        ("SETTINGS of 5 bytes", frame(SETTINGS, 0, 0, b"12345"), "goaway FRAME_SIZE_ERROR"),
        (
            "too large a window",
            settings(&[(INITIAL_WINDOW_SIZE, 1 << 31)]),
            "goaway FLOW_CONTROL_ERROR",
        ),
        ("PING of 7 bytes", frame(PING, 0, 0, b"1234567"), "goaway FRAME_SIZE_ERROR"),
        ("WINDOW_UPDATE of 0", window_update(0, 0), "goaway PROTOCOL_ERROR"),
        (
            "WINDOW_UPDATE beyond 2^31 - 1",
            window_update(0, i32::MAX as u32),
            "goaway FLOW_CONTROL_ERROR",
        ),
        (
            "a window of a stream beyond",
            window_update(1, i32::MAX as u32),
            "reset FLOW_CONTROL_ERROR",
        ),
        (
            "HPACK that means nothing",
            frame(HEADERS, WHOLE, 3, b"\xff\xff"),
            "goaway COMPRESSION_ERROR",
        ),
        ("a frame too large", frame(DATA, 0, 1, &[0; 16_385]), "goaway FRAME_SIZE_ERROR"),
        // RFC 9113 §5.5: of a type that nobody knows.
        ("an unknown frame", [frame(99, 0, 1, b"x"), reset(1, 8), get(3, "/")].concat(), "200"),
    ] {
        let mut client = Raw::connect(&server);
        client.get("/wait");
        client.send(&frames);
        let stream = if expected == "200" { 3 } else { 1 };
        assert_eq!(client.outcome(stream), expected, "{name}");
        if expected.starts_with("goaway") {
            client.goodbye();
        }
    }
    stop(server);
}

#[test]
fn a_preface_that_is_none() {
    let server = start(echo);
    for bytes in ["PRI * HTTP/2.0\r\n\r\nSM\r\n\rx", "PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n"] {
        let mut client = Client::with(&server, bytes);
        while client.read() > 0 {}
    }
    stop(server);

    let server = start_with(Settings { http2: false, ..Settings::default() }, echo);
    let mut client = Client::with(&server, PREFACE);
    assert_eq!(client.response().status, 505);
    client.assert_closed();
    stop(server);
}

/// What applications see of a request's head.
#[test]
fn heads_as_applications_see_them() {
    let server = start(async |request: Request| {
        let fields = request
            .headers()
            .iter()
            .map(|(name, value)| format!("{name}: {}\n", String::from_utf8_lossy(value)));
        let line = format!("{} {} {:?}\n", request.method(), request.target(), request.version());
        Response::text(line + &fields.collect::<String>())
    });
    let mut client = Raw::connect(&server);
    for (fields, expected) in [
        (&[][..], "GET /x?y HTTP/2.0\nhost: a\n"),
        (&[("host", "A"), ("x", "1")], "GET /x?y HTTP/2.0\nhost: A\nx: 1\n"),
        // RFC 9113 §8.2.3: crumbs of cookies are put together.
        (
            &[("cookie", "a=1"), ("x", "1"), ("cookie", "b=2"), ("cookie", "c=3")],
            "GET /x?y HTTP/2.0\nhost: a\ncookie: a=1; b=2; c=3\nx: 1\n",
        ),
        (&[("x", "1"), ("x", "2")], "GET /x?y HTTP/2.0\nhost: a\nx: 1\nx: 2\n"),
    ] {
        let stream = client.request(&[&pseudo("GET", "/x?y")[..], fields].concat(), true);
        assert_eq!(client.answer(stream).text(), expected);
    }
    stop(server);
}

#[test]
fn limits_of_heads() {
    let server = start(echo);
    let mut client = Raw::connect(&server);
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
        // What is far too large is not even answered.
        (long(1), large(100_000), "goaway ENHANCE_YOUR_CALM"),
        (long(1), many(3_000), "goaway ENHANCE_YOUR_CALM"),
    ] {
        let mut head: Vec<(String, String)> =
            pseudo("GET", &path).map(|(n, v)| (n.to_owned(), v.to_owned())).to_vec();
        head.extend(fields);
        let block = block(&head);
        let stream = client.stream();
        let mut pieces = block.chunks(16_384).enumerate().peekable();
        while let Some((number, piece)) = pieces.next() {
            let kind = if number == 0 { HEADERS } else { CONTINUATION };
            let end = if pieces.peek().is_none() { END_HEADERS } else { 0 };
            let flags = end | if number == 0 { END_STREAM } else { 0 };
            client.send(frame(kind, flags, stream, piece));
        }
        let name = format!("{} {}", path.len(), block.len());
        assert_outcome(&mut client, &server, stream, expected, &name);
    }
    stop(server);
}

#[test]
fn a_stream_too_many_is_refused_and_may_be_tried_again() {
    let go_on = Arc::new(tokio::sync::Semaphore::new(0));
    let permits = go_on.clone();
    let server = start(move |_: Request| {
        let permits = permits.clone();
        async move {
            permits.acquire().await.unwrap().forget();
            Response::text("ok")
        }
    });
    let mut client = Raw::connect(&server);
    assert_eq!(client.setting(MAX_CONCURRENT_STREAMS), Some(128));
    let streams: Vec<u32> = (0..128).map(|_| client.get("/")).collect();
    let one_more = client.get("/");
    assert_eq!(client.outcome(one_more), "reset REFUSED_STREAM");
    go_on.add_permits(1);
    client.until("a place is free", |raw| streams.iter().any(|&s| raw.on(s).is_some()));
    let again = client.get("/");
    go_on.add_permits(128);
    for stream in streams.into_iter().chain([again]) {
        assert_eq!(client.outcome(stream), "200");
    }
    stop(server);
}

// -- responses

#[test]
fn heads_of_responses() {
    let server = start(async |request: Request| match request.path() {
        "/none" => Response::new(StatusCode::NO_CONTENT),
        "/unchanged" => Response::new(StatusCode::NOT_MODIFIED),
        "/empty" => Response::text(""),
        "/stream" => Response::body(parts([Ok("ab"), Ok(""), Ok("c")])),
        "/sized" => Response::body(parts([Ok("abc")])).with_header(header::CONTENT_LENGTH, "3"),
        // RFC 9113 §8.2.2: what belongs to a connection does not reach the wire.
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
    let mut client = Raw::connect(&server);
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
        let stream = client.request(&pseudo(method, path), true);
        let answer = client.answer(stream);
        let name = format!("{method} {path}");
        assert_eq!(answer.text(), body, "{name}");
        // Nothing to be sent is not sent in a frame of its own.
        assert_eq!(answer.pieces == 0, body.is_empty(), "{name}: {}", answer.pieces);
        let mut lines: Vec<String> = answer.head.unwrap()[1..]
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
fn interim_responses() {
    let go_on = Arc::new(Notify::new());
    let word = go_on.clone();
    let server = start(move |request: Request| {
        let word = word.clone();
        async move {
            request.early_hints(["</a.css>; rel=preload", "</b>\r\nx: y"]);
            if request.path() == "/slow" {
                word.notified().await;
            }
            Response::text("ok")
        }
    });
    let mut client = Raw::connect(&server);
    let slow = client.get("/slow");
    client.until("the hints", |raw| raw.on(slow).is_some());
    assert!(client.on(slow).unwrap().head.is_none());
    go_on.notify_one();
    let fast = client.get("/fast");
    for stream in [slow, fast] {
        let answer = client.answer(stream);
        let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let hints = [
            field(":status", "103"),
            field("link", "</a.css>; rel=preload"),
            field("link", "</b>  x: y"),
        ];
        assert_eq!(answer.interim, [hints]);
        assert_eq!(answer.status(), 200);
    }
    stop(server);
}

#[test]
fn continue_is_said_when_the_application_reads_and_not_before() {
    let go_on = Arc::new(Notify::new());
    let word = go_on.clone();
    let server = start(move |request: Request| {
        let word = word.clone();
        async move {
            if request.path() == "/unread" {
                return Ok(Response::text("no, thanks"));
            }
            word.notified().await;
            echo(request).await
        }
    });
    let ask = |path| [&pseudo("PUT", path)[..], &[("expect", "100-continue")]].concat();
    let mut client = Raw::connect(&server);
    let stream = client.request(&ask("/"), false);
    client.sync();
    assert!(client.on(stream).is_none(), "it was said too early");
    go_on.notify_one();
    client.until("100", |raw| raw.on(stream).is_some());
    assert_eq!(find(&client.on(stream).unwrap().interim[0], ":status"), Some("100"));
    client.data(stream, "hello", true);
    let answer = client.answer(stream);
    assert_eq!((answer.status(), answer.text(), answer.interim.len()), (200, "hello", 1));

    // A body that comes unasked needs no word, and one that nobody reads none either.
    let stream = client.request(&ask("/"), false);
    client.data(stream, "hello", true);
    client.sync();
    go_on.notify_one();
    let answer = client.answer(stream);
    assert_eq!((answer.text(), answer.interim.len()), ("hello", 0));
    let stream = client.request(&ask("/unread"), false);
    let answer = client.answer(stream);
    assert_eq!((answer.status(), answer.interim.len()), (200, 0));
    stop(server);
}

// -- uploads

/// An application that takes one chunk of a body, waits for a word, and takes the rest. Where
/// nothing is to be read it never reads.
fn slow_reader(go_on: &Arc<Notify>) -> impl Application + Clone + Send + use<> {
    let word = go_on.clone();
    move |mut request: Request| {
        let word = word.clone();
        async move {
            if request.path() == "/never" {
                pending::<()>().await;
            }
            let mut length = 0;
            while let Some(chunk) = request.body().chunk().await? {
                if length == 0 && request.path() == "/slow" {
                    word.notified().await;
                }
                length += chunk.len();
            }
            Ok::<_, Error>(Response::text(length.to_string()))
        }
    }
}

#[test]
fn a_slow_application_slows_its_client_down() {
    let go_on = Arc::new(Notify::new());
    let server = start_with(
        Settings { body_window_bytes: 400_000, ..Settings::default() },
        slow_reader(&go_on),
    );
    let mut client = Raw::connect(&server);
    client.until("the connection's window", |raw| raw.window(0) == 400_000);
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
    go_on.notify_one();
    assert!(client.upload(stream, 1_000_000 - sent));
    assert_eq!(client.answer(stream).text(), "1000000");
    stop(server);
}

/// A body that says how much of the request was read, and has no end.
fn endless(read: usize) -> Response {
    let mut first = Some(Bytes::from(read.to_string()));
    Response::body(Body::stream(futures_util::stream::poll_fn(move |_| match first.take() {
        Some(first) => Poll::Ready(Some(Ok::<_, Error>(first))),
        None => Poll::Pending,
    })))
}

/// Whether they are read or not: what came of bodies leaves room for others, though the responses
/// to them go on and on.
#[test]
fn bodies_that_are_over_give_their_windows_back() {
    let server = start(async |request: Request| match request.path() {
        "/unread" => {
            drop(request.into_body());
            Ok(endless(0))
        }
        _ => Ok::<_, Error>(endless(request.into_body().collect(1 << 24).await?.len())),
    });
    for path in ["/read", "/unread"] {
        let mut client = Raw::connect(&server);
        client.until("the connection's window", |raw| raw.window(0) == 1 << 20);
        for _ in 0..8 {
            let stream = client.post(path);
            assert!(client.upload(stream, 200_000));
            client.until("the response", |raw| raw.body_length(stream) > 0);
        }
        client.until("the window is open again", |raw| raw.window(0) > 1 << 19);
    }
    stop(server);
}

#[test]
fn uploads_that_are_not_read_hold_up_no_other() {
    let server = start(slow_reader(&Arc::new(Notify::new())));
    let mut client = Raw::connect(&server);
    client.until("the connection's window", |raw| raw.window(0) == 1 << 20);
    for _ in 0..3 {
        let stream = client.post("/never");
        assert_eq!(client.upload_some(stream, usize::MAX), 256 << 10);
    }
    let stream = client.post("/");
    assert!(client.upload(stream, 2_000_000));
    assert_eq!(client.answer(stream).text(), "2000000");
    stop(server);
}

fn not_drained() -> Settings {
    Settings { max_drain_bytes: 0, ..Settings::default() }
}

/// Some clients take it for an error to be told to stop.
#[test]
fn a_small_upload_that_is_left_unread_may_be_sent_to_its_end() {
    let server = start(async |_: Request| Response::text("no, thanks"));
    let mut client = Raw::connect(&server);
    for (length, reset) in [(1, None), (60_000, None), (100_000, Some("NO_ERROR"))] {
        let stream = client.post("/");
        // The answer is here before the body is sent.
        client.until("the answer", |raw| raw.on(stream).is_some_and(|answer| answer.ended));
        client.upload_some(stream, length);
        if reset.is_none() {
            client.data(stream, "", true);
            client.sync();
        } else {
            let is_reset = |raw: &Raw| raw.on(stream).is_some_and(|answer| answer.reset.is_some());
            client.until("a reset", is_reset);
        }
        let answer = client.answer(stream);
        assert_eq!((answer.text(), answer.reset), ("no, thanks", reset), "{length} bytes");
    }
    client.assert_open("/");
    stop(server);
}

#[test]
fn uploads_left_unread_cost_nothing_of_the_window() {
    let server = start_with(not_drained(), async |request: Request| match request.path() {
        "/unread" => Ok::<_, Error>(Response::text("no, thanks")),
        _ => Ok(Response::text(request.into_body().collect(1 << 24).await?.len().to_string())),
    });
    let mut client = Raw::connect(&server);
    for number in 0..50 {
        let stream = client.post("/unread");
        // Sent blindly, as far as the windows go: the answer may come in between.
        client.upload_some(stream, 60_000);
        // RFC 9113 §8.1: the response is whole, the rest of the request not wanted.
        client.until("a reset", |raw| raw.on(stream).is_some_and(|answer| answer.reset.is_some()));
        let answer = client.answer(stream);
        assert_eq!((answer.status(), answer.text()), (200, "no, thanks"), "{number}");
        assert_eq!((answer.ended, answer.reset), (true, Some("NO_ERROR")), "{number}");
    }
    let stream = client.post("/");
    assert!(client.upload(stream, 1 << 20));
    assert_eq!(client.answer(stream).text(), "1048576");
    assert_eq!(client.goaways, []);
    stop(server);
}

/// A client that knows of the response only when all of its body is out sends on for a round
/// trip. That is no attack.
#[test]
fn many_uploads_left_unread_are_no_attack() {
    let server = start_with(not_drained(), async |_: Request| Response::text("no, thanks"));
    let mut client = Raw::connect(&server);
    client.until("the connection's window", |raw| raw.window(0) == 1 << 20);
    for _ in 0..4 {
        let streams: Vec<u32> = (0..100).map(|_| client.post("/")).collect();
        client.sync();
        for &stream in &streams {
            for _ in 0..5 {
                client.data(stream, [b'x'; 1_000], false);
            }
        }
        for stream in streams {
            assert_eq!(client.answer(stream).status(), 200);
        }
    }
    client.assert_open("/");
    assert_eq!(client.goaways, []);
    stop(server);
}

#[test]
fn a_body_too_large_is_refused_wherever_that_is_noticed() {
    let server = start_with(Settings { max_body_bytes: 10, ..Settings::default() }, echo);
    let mut client = Raw::connect(&server);
    for (length, sent, status) in [
        (Some("10"), "0123456789", 200),
        (None, "0123456789", 200),
        (Some("11"), "", 413),
        (None, "0123456789a", 413),
    ] {
        let mut head = pseudo("POST", "/").to_vec();
        head.extend(length.map(|length| ("content-length", length)));
        let stream = client.request(&head, false);
        client.data(stream, sent, status == 200);
        assert_eq!(client.answer(stream).status(), status, "{length:?} {sent}");
        client.assert_open("/");
    }
    stop(server);
}

#[test]
fn a_body_cut_short_never_looks_whole() {
    let ends = Arc::new(Mutex::new(Vec::new()));
    let noted = ends.clone();
    let settings = Settings { disconnect: Disconnect::Detach, ..Settings::default() };
    let server = start_with(settings, move |request: Request| {
        let ends = noted.clone();
        async move {
            let end = request.into_body().collect(1000).await;
            ends.lock().unwrap().push(end.map(|_| ()).map_err(|error| error.kind()));
            Response::text("ok")
        }
    });
    let mut client = Raw::connect(&server);
    let stream = client.post("/");
    client.data(stream, "hello", false);
    client.sync();
    client.send(reset(stream, CANCEL));
    until("the reset is noticed", || ends.lock().unwrap().len() == 1);
    let stream = client.post("/");
    client.data(stream, "hello", false);
    client.sync();
    drop(client);
    until("the end is noticed", || ends.lock().unwrap().len() == 2);
    assert_eq!(*ends.lock().unwrap(), [Err(ErrorKind::BodyIncomplete); 2]);
    stop(server);
}

#[test]
fn trailers_both_ways() {
    let server = start(async |request: Request| Response::body(request.into_body()));
    let mut client = Raw::connect(&server);
    let stream = client.post("/");
    client.data(stream, "hello", false);
    client.until("the echo", |raw| raw.body_length(stream) == 5);
    client.send(frame(HEADERS, WHOLE, stream, &block(&[("x", "1"), ("y", "2")])));
    let answer = client.answer(stream);
    assert_eq!(answer.text(), "hello");
    let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(answer.trailers, Some(vec![field("x", "1"), field("y", "2")]));
    stop(server);
}

#[test]
fn padding_is_no_body() {
    let server = start(echo);
    let mut client = Raw::connect(&server);
    let head = [&pseudo("POST", "/")[..], &[("content-length", "2000")]].concat();
    // Far more padding than the windows of a stream and of the connection hold.
    for _ in 0..3 {
        let stream = client.request(&head, false);
        for number in 0..2_000 {
            let payload = [&[255][..], b"x", &[0; 255]].concat();
            client.send(frame(DATA, PADDED | u8::from(number == 1_999), stream, &payload));
            client.sync();
        }
        assert_eq!(client.answer(stream).text(), "x".repeat(2_000));
    }
    stop(server);
}

// -- downloads

#[test]
fn flow_control_is_followed() {
    let server = start(async |_: Request| Response::body(vec![b'x'; 200_000]));
    // RFC 9113 §6.9: of a stream,
    let mut client = Raw::with_settings(&server, &[(INITIAL_WINDOW_SIZE, 0)]);
    client.takes_all = false;
    let stream = client.get("/");
    client.until("the head", |raw| raw.on(stream).is_some());
    let mut open = 0;
    for more in [0, 1, 10, 16_384, 1_000] {
        if more > 0 {
            client.send(window_update(stream, more));
        }
        open += more as usize;
        client.until("what the window lets through", |raw| raw.body_length(stream) >= open);
        client.sync();
        assert_eq!(client.body_length(stream), open);
    }
    // whose window changes with the settings and may become negative (§6.9.2),
    client.send(settings(&[(INITIAL_WINDOW_SIZE, 1_000)]));
    client.until("the settings' window", |raw| raw.body_length(stream) >= open + 1_000);
    client.send(settings(&[(INITIAL_WINDOW_SIZE, 0)]));
    client.send(window_update(stream, 900));
    client.sync();
    assert_eq!(client.body_length(stream), open + 1_000);
    client.send(window_update(stream, 200));
    client.until("it is positive again", |raw| raw.body_length(stream) >= open + 1_100);
    client.sync();
    assert_eq!(client.body_length(stream), open + 1_100);

    // and of the connection, whatever the streams' windows are.
    let mut client = Raw::with_settings(&server, &[(INITIAL_WINDOW_SIZE, 1 << 20)]);
    client.takes_all = false;
    let (one, other) = (client.get("/"), client.get("/"));
    let both = move |raw: &Raw| raw.body_length(one) + raw.body_length(other);
    let mut open = 65_535;
    for more in [0, 1, 10_000] {
        if more > 0 {
            client.send(window_update(0, more));
        }
        open += more as usize;
        client.until("what the window lets through", |raw| both(raw) >= open);
        client.sync();
        assert_eq!(both(&client), open);
    }
    client.send(window_update(0, 1 << 20));
    for stream in [one, other] {
        assert_eq!(client.answer(stream).body.len(), 200_000);
    }
    stop(server);
}

#[test]
fn large_bodies_arrive_whole_among_small_ones() {
    let server = start(async |request: Request| {
        let length: usize = request.path()[1..].parse().unwrap();
        Response::body((0..length).map(|i| i as u8).collect::<Vec<u8>>())
    });
    let lengths = [0, 1, 16_383, 16_384, 16_385, 1 << 20, 65_535, 65_536, 5_000_000, 3];
    let mut client = Raw::connect(&server);
    let streams = lengths.map(|length| client.get(&format!("/{length}")));
    for (stream, length) in streams.into_iter().zip(lengths) {
        let answer = client.answer(stream);
        assert_eq!(answer.header("content-length"), Some(&*length.to_string()));
        assert_eq!(answer.body.len(), length);
        assert!(answer.body.iter().enumerate().all(|(i, &b)| b == i as u8), "{length}");
    }
    stop(server);
}

#[test]
fn files_and_their_ranges() {
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
    let mut client = Raw::connect(&server);
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
        let mut head = pseudo(method, "/").to_vec();
        head.extend(range.map(|range| ("range", range)));
        let stream = client.request(&head, true);
        let answer = client.answer(stream);
        assert_eq!((answer.status(), &*answer.body), (status, body), "{range:?}");
        assert_eq!(answer.header("content-length"), Some(&*length.to_string()), "{range:?}");
        assert_eq!(answer.header("content-range"), range_field, "{range:?}");
    }
    // Several at once, of which one is larger than any window.
    let head = [&pseudo("GET", "/")[..], &[("range", "bytes=0-299999, -3")]].concat();
    let stream = client.request(&head, true);
    let answer = client.answer(stream);
    assert_eq!((answer.status(), answer.reset), (206, None));
    assert_eq!(answer.header("content-length"), Some(&*answer.body.len().to_string()));
    let has = |text: &str| answer.body.windows(text.len()).any(|w| w == text.as_bytes());
    assert!(has("bytes 0-299999/5368709120\r\n\r\n\0\0") && has("\r\n\r\nend\r\n--"));
    // Of all of it only the beginning is taken: the rest costs nothing.
    let mut client = Raw::connect(&server);
    client.takes_all = false;
    let stream = client.get("/");
    client.until("the first window", |raw| raw.body_length(stream) == 65_535);
    client.send([reset(stream, CANCEL), window_update(0, 65_535)].concat());
    let stream = client.request(&pseudo("HEAD", "/"), true);
    assert_eq!(client.answer(stream).status(), 200);
    stop(server);
}

#[test]
fn streams_go_on_side_by_side() {
    let server = start(async |request: Request| {
        let number: u64 = request.path()[1..].parse().unwrap();
        for _ in 0..100 - number {
            tokio::task::yield_now().await;
        }
        Response::text(request.path()[1..].to_owned())
    });
    let answers = ordinary(&server, async |client| {
        let mut answers = Vec::new();
        for number in 0..100 {
            let request = http::Request::get(format!("http://a/{number}")).body(()).unwrap();
            let mut client = client.clone().ready().await.unwrap();
            answers.push(client.send_request(request, true).unwrap().0);
        }
        let mut texts = Vec::new();
        for answer in answers {
            let mut body = answer.await.unwrap().into_body();
            texts.push(body.data().await.unwrap().unwrap());
        }
        texts
    });
    for (number, text) in answers.iter().enumerate() {
        assert_eq!(*text, number.to_string());
    }
    stop(server);
}

// -- failures

#[test]
fn what_fails_costs_one_stream_and_is_told() {
    let (server, told) = start_told(Settings::default(), async |request: Request| {
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
    let mut client = Raw::connect(&server);
    for (path, expected, what) in [
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
        // The client has not asked for it.
        ("/upgrade", "500", "Application InvalidResponse"),
    ] {
        told.0.lock().unwrap().clear();
        let beside = client.get("/wait");
        let stream = client.get(path);
        client.until("its end", |raw| raw.on(stream).is_some_and(Answer::is_over));
        let text = client.on(stream).unwrap().text();
        assert!(!text.contains("purpose"), "the client learns nothing of the inside");
        assert_eq!(client.outcome(stream), expected, "{path}");
        assert_eq!(client.outcome(beside), "200", "{path}");
        until(what, || told.has(what));
    }
    stop(server);
}

// -- clients that go away

#[test]
fn a_reset_cancels_one_call_and_the_end_of_the_connection_all() {
    let alive = Alive::new();
    let of_app = Arc::new(alive.clone());
    let app = move |request: Request| {
        // The application's own clones share one; each call has its own.
        let of_call = Alive::clone(&of_app);
        async move {
            let _of_call = of_call;
            match request.path() {
                "/stream" => {
                    let of_stream = _of_call.clone();
                    Response::body(Body::stream(Chunks(move |_: &mut Context<'_>| {
                        let _ = &of_stream;
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
        let mut client = Raw::connect(&server);
        let streams: Vec<u32> = (0..5).map(|_| client.get(path)).collect();
        until("the calls began", || alive.count() == idle + 5 * per_call);
        client.send(reset(streams[2], CANCEL));
        until("one is dropped", || alive.count() == idle + 4 * per_call);
        client.sync();
        assert_eq!(alive.count(), idle + 4 * per_call, "{path}");
        drop(client);
        until("all are dropped", || alive.count() == idle);
    }
    stop(server);
}

#[test]
fn a_detached_call_runs_to_its_end() {
    let go_on = Arc::new(Notify::new());
    let (begun, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (word, begin, end) = (go_on.clone(), begun.clone(), ended.clone());
    let settings = Settings { disconnect: Disconnect::Detach, ..Settings::default() };
    let server = start_with(settings, move |_: Request| {
        let (word, begin, end) = (word.clone(), begin.clone(), end.clone());
        async move {
            begin.fetch_add(1, SeqCst);
            word.notified().await;
            end.fetch_add(1, SeqCst);
            Response::text("for nobody")
        }
    });
    // Once the stream is reset, once the connection is gone.
    let mut client = Raw::connect(&server);
    let stream = client.get("/");
    client.send(reset(stream, CANCEL));
    client.sync();
    client.get("/");
    until("both began", || begun.load(SeqCst) == 2);
    drop(client);
    until("both run to their end", || {
        go_on.notify_waiters();
        ended.load(SeqCst) == 2
    });
    stop(server);
}

// -- the end of a connection

#[test]
fn a_shutdown_finishes_what_runs_and_closes_what_rests() {
    let go_on = Arc::new(Notify::new());
    let word = go_on.clone();
    let server = start(move |request: Request| {
        let word = word.clone();
        async move {
            if request.path() == "/slow" {
                word.notified().await;
            }
            Response::body(vec![b'x'; 100_000])
        }
    });
    let (mut idle, mut busy) = (Raw::connect(&server), Raw::connect(&server));
    idle.assert_open("/");
    busy.assert_open("/");
    let slow = busy.get("/slow");
    busy.sync();
    let stopping = std::thread::spawn(move || server.shutdown(PATIENCE));
    let goodbye = idle.goodbye();
    assert!(!goodbye.is_empty() && goodbye.iter().all(|&e| e == "NO_ERROR"), "{goodbye:?}");
    assert_eq!(idle.closed, Some(false));
    busy.until("a GOAWAY", |raw| !raw.goaways.is_empty());
    assert!(busy.on(slow).is_none());
    go_on.notify_one();
    let answer = busy.answer(slow);
    assert_eq!((answer.status(), answer.body.len()), (200, 100_000));
    busy.assert_closed();
    // RFC 9113 §6.8: the client knows what was handled.
    assert_eq!(busy.goaways.last(), Some(&(slow, "NO_ERROR")));
    stopping.join().unwrap();
}

#[test]
fn a_shutdown_waits_neither_for_clients_that_do_not_answer_nor_for_ever() {
    let alive = Alive::new();
    let of_app = Arc::new(alive.clone());
    let server = start_with(quick(), move |request: Request| {
        let of_call = Alive::clone(&of_app);
        async move {
            let _of_call = of_call;
            match request.path() {
                "/wait" => pending().await,
                _ => Response::text("ok"),
            }
        }
    });
    let idle = alive.count();
    // It does not confirm the ping behind the GOAWAY, and need not.
    let mut silent = Raw::connect(&server);
    silent.confirms = false;
    silent.assert_open("/");
    let mut waiting = Raw::connect(&server);
    waiting.get("/wait");
    until("the call began", || alive.count() > idle);
    let begin = Instant::now();
    server.shutdown(Duration::from_millis(500));
    assert!(begin.elapsed() < PATIENCE);
    silent.assert_closed();
    assert!(!silent.goaways.is_empty());
    waiting.assert_closed();
}

#[test]
fn a_connection_has_only_so_many_requests() {
    let server = start_with(Settings { max_requests: 3, ..Settings::default() }, echo);
    let mut client = Raw::connect(&server);
    client.assert_open("/");
    client.assert_open("/");
    assert_eq!(client.goaways, []);
    client.assert_open("/");
    assert!(client.goodbye().iter().all(|&error| error == "NO_ERROR"));
    assert_eq!(client.goaways.last(), Some(&(5, "NO_ERROR")));
    stop(server);
}

#[test]
fn clocks_of_a_connection() {
    let server = start_with(quick(), echo);
    // At rest after a request.
    let mut client = Raw::connect(&server);
    client.assert_open("/");
    let goodbye = client.goodbye();
    assert!(!goodbye.is_empty() && goodbye.iter().all(|&e| e == "NO_ERROR"), "{goodbye:?}");
    // Before the first request: with nothing, a part of the preface, the preface, and more.
    let settings = [PREFACE, &settings(&[])].concat();
    let half_a_head = [&settings[..], &get(1, "/")[..20]].concat();
    for bytes in [&b""[..], &PREFACE[..3], &PREFACE[..20], PREFACE, &settings, &half_a_head] {
        let mut client = Client::with(&server, bytes);
        while client.read() > 0 {}
    }
    // Between requests, with half of one.
    let mut client = Raw::connect(&server);
    client.assert_open("/");
    client.send(&get(3, "/")[..20]);
    client.assert_closed();
    stop(server);
}

#[test]
fn a_handler_may_take_its_time() {
    let server = start_with(quick(), async |_: Request| {
        tokio::time::sleep(3 * SHORT).await;
        Response::text("at last")
    });
    let mut client = Raw::connect(&server);
    let stream = client.get("/");
    assert_eq!(client.answer(stream).text(), "at last");
    stop(server);
}

#[test]
fn a_response_that_nobody_takes_is_given_up() {
    let alive = Alive::new();
    let of_app = Arc::new(alive.clone());
    let made = Arc::new(AtomicUsize::new(0));
    let count = made.clone();
    let (server, told) = start_told(quick(), move |request: Request| {
        let (of_stream, count) = (Alive::clone(&of_app), count.clone());
        let is_endless = request.path() == "/endless";
        async move {
            if !is_endless {
                return Response::text("ok");
            }
            Response::body(Body::stream(Chunks(move |_: &mut Context<'_>| {
                let _ = &of_stream;
                count.fetch_add(16_000, SeqCst);
                Poll::Ready(Some(Ok(Bytes::from_static(&[b'x'; 16_000]))))
            })))
        }
    });
    let idle = alive.count();
    // A stream whose window stays shut is reset, while others go on.
    let mut client = Raw::with_settings(&server, &[(INITIAL_WINDOW_SIZE, 0)]);
    let stream = client.get("/endless");
    client.until("its end", |raw| raw.on(stream).is_some_and(Answer::is_over));
    assert_eq!(client.outcome(stream), "reset CANCEL");
    assert_eq!(alive.count(), idle);
    until("it is told", || told.has("Peer TooSlow"));
    drop(client);
    // A client that opens all windows and then reads nothing is cut.
    made.store(0, SeqCst);
    let mut client = Raw::with_settings(&server, &[(INITIAL_WINDOW_SIZE, i32::MAX as u32)]);
    client.send(window_update(0, i32::MAX as u32 - 65_535));
    client.get("/endless");
    until("the stream began", || alive.count() > idle);
    until("the stream is cut", || alive.count() == idle);
    // What the kernel's buffers hold on both sides, and little more.
    let made = made.load(SeqCst);
    assert!(made < 32 << 20, "{made} bytes were made for nobody");
    client.takes_all = false;
    client.assert_closed();
    stop(server);
}

#[test]
fn a_client_that_reads_slowly_gets_all() {
    let stall_timeout = 2 * SHORT;
    // Many responses take turns, each of which has to wait for longer than the stall timeout; and
    // the end of the last one is under way for longer than a connection lingers.
    for (streams, megabytes, max_requests) in [(32, 1, 0), (1, 16, 1)] {
        let settings = Settings { stall_timeout, max_requests, ..quick() };
        let body = Bytes::from(vec![b'x'; megabytes << 20]);
        let server = start_with(settings, move |_: Request| {
            let body = body.clone();
            async { Response::body(body) }
        });
        // A pause that this machine made, and not the test, does not count.
        until("all is read", || {
            let most = i32::MAX as u32;
            let mut client = Raw::with_settings(&server, &[(INITIAL_WINDOW_SIZE, most)]);
            client.takes_all = false;
            client.send(window_update(0, most - 65_535));
            let ids: Vec<u32> = (0..streams).map(|_| client.get("/")).collect();
            let (begin, mut last, mut longest) = (Instant::now(), Instant::now(), Duration::ZERO);
            while begin.elapsed() < 4 * stall_timeout && client.read() {
                std::thread::sleep(Duration::from_millis(100));
                longest = longest.max(last.elapsed());
                last = Instant::now();
            }
            let is_over = |client: &Raw, id: &u32| client.on(*id).is_some_and(Answer::is_over);
            while !ids.iter().all(|id| is_over(&client, id)) && client.read() {}
            let is_whole =
                |id: &u32| is_over(&client, id) && client.body_length(*id) == megabytes << 20;
            let whole = ids.iter().all(is_whole);
            assert!(whole || longest > SHORT, "{streams} streams were cut");
            whole
        });
        stop(server);
    }
}

#[test]
fn what_is_on_its_way_when_a_connection_leaves_is_not_cut() {
    const LENGTH: usize = 20_000;
    let settings = Settings { stall_timeout: 60 * SHORT, max_requests: 1, ..quick() };
    let server = Server::new(async |_: Request| Response::body(vec![b'x'; LENGTH]));
    let server = server.settings(settings);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (mut client, stream) = tokio::io::duplex(1_000);
        let client = async move {
            let opening = [PREFACE, &self::settings(&[]), &get(1, "/")].concat();
            client.write_all(&opening).await.unwrap();
            // All of the response is made, and waits for longer than a connection lingers.
            tokio::time::sleep(3 * SHORT).await;
            let (mut came, mut piece) = (0, [0; 1_000]);
            while came < LENGTH {
                let length = client.read(&mut piece).await.unwrap();
                assert!(length > 0, "it was cut after {came} bytes");
                came += piece[..length].iter().filter(|&&byte| byte == b'x').count();
            }
        };
        let all = async { tokio::join!(server.serve_connection(stream), client) };
        let (served, ()) = tokio::time::timeout(PATIENCE, all).await.expect("it ends");
        served.unwrap();
    });
}

#[test]
fn who_leaves_is_waited_for_as_long_as_it_takes_what_it_was_answered() {
    const STREAMS: u32 = 6;
    let settings = Settings { stall_timeout: 2 * SHORT, max_requests: STREAMS.into(), ..quick() };
    let server = start_with(settings, async |_: Request| Response::text("x".repeat(1_000)));
    // A pause that this machine made, and not the test, does not count.
    until("all is taken", || {
        let mut client = Raw::with_settings(&server, &[(INITIAL_WINDOW_SIZE, 0)]);
        let ids: Vec<u32> = (0..STREAMS).map(|_| client.get("/")).collect();
        let (mut last, mut longest) = (Instant::now(), Duration::ZERO);
        for id in &ids {
            std::thread::sleep(SHORT);
            longest = longest.max(last.elapsed());
            last = Instant::now();
            if client.try_send(window_update(*id, 1_000)).is_err() {
                break;
            }
        }
        let whole = client.reads_all(&ids);
        assert!(whole || longest > 3 * SHORT / 2, "it was not waited for");
        whole
    });
    stop(server);
}

#[test]
fn a_body_that_trickles_is_given_up_and_one_that_flows_is_not() {
    let server = start_with(quick(), echo);
    let mut client = Raw::connect(&server);
    let stream = client.post("/");
    client.data(stream, "some", false);
    client.until("the answer", |raw| raw.on(stream).is_some_and(|answer| answer.head.is_some()));
    assert_eq!(client.answer(stream).status(), 408);
    // A byte from time to time is too little, though it comes before each tick of the server's
    // clock.
    let mut client = Raw::connect(&server);
    let stream = client.post("/");
    let begin = Instant::now();
    while !client.comes_within(Duration::from_millis(10)) {
        client.data(stream, "x", false);
        assert!(begin.elapsed() < PATIENCE, "it trickles for ever");
    }
    assert_eq!(client.answer(stream).status(), 408);
    // Slow, but above the minimum rate, for longer than the stall timeout. A pause that
    // this machine made, and not the test, does not count.
    until("a body that flows is read", || {
        let begin = Instant::now();
        let mut longest = Duration::ZERO;
        let mut client = Raw::connect(&server);
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
        let whole = client.outcome(stream) == "200";
        assert!(whole || longest > SHORT / 2, "it was cut while it flowed");
        whole && begin.elapsed() > SHORT
    });
    stop(server);
}

// -- other protocols

/// Says back what it hears, in capitals, until it hears a full stop.
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
fn extended<'a>(protocol: &'a str, path: &'a str) -> Vec<(&'a str, &'a str)> {
    let mut head = pseudo("CONNECT", path).to_vec();
    head.push((":protocol", protocol));
    head
}

/// A tunnel may be taken elsewhere by its handler. Then the connection does not rest.
#[test]
fn a_tunnel_that_was_taken_elsewhere_lives_on() {
    let idle = Duration::from_millis(200);
    let settings = Settings { idle_timeout: idle, linger_timeout: idle, ..Settings::default() };
    let server = start_with(settings, async |_: Request| {
        Response::upgrade("shout", async |connection| {
            tokio::task::spawn_local(shout(connection));
        })
    });
    let mut client = Raw::connect(&server);
    let stream = client.request(&extended("shout", "/"), false);
    let begin = Instant::now();
    let mut sent = 0;
    while begin.elapsed() < 10 * idle {
        client.data(stream, "a", false);
        sent += 1;
        client.until("the echo", |raw| raw.body_length(stream) == sent);
    }
    assert_eq!(client.goaways, []);
    client.data(stream, ".", false);
    client.answer(stream);
    assert_eq!(client.goodbye().last(), Some(&"NO_ERROR"));
    stop(server);
}

#[test]
fn tunnels_and_other_protocols() {
    let server = start(async |request: Request| match (request.method(), request.path()) {
        (_, "/shout") => Response::upgrade("shout", shout),
        (_, "/no") => Response::not_found(),
        (_, "/panic") => Response::upgrade("shout", async |_| panic!("on purpose")),
        (&Method::CONNECT, _) if request.target() == "a:1" => Response::tunnel(shout),
        _ => Response::text("ok"),
    });
    let mut client = Raw::connect(&server);
    assert_eq!(client.setting(ENABLE_CONNECT_PROTOCOL), Some(1));
    // RFC 8441 §5: a success would be the tunnel that was asked for.
    let page = client.request(&extended("shout", "/page"), false);
    assert_eq!(client.answer(page).status(), 501);
    let tunnel = vec![(":method", "CONNECT"), (":authority", "a:1")];
    for head in [extended("shout", "/shout"), tunnel] {
        let stream = client.request(&head, false);
        client.data(stream, "early", false);
        client.until("the echo", |raw| raw.body_length(stream) == 5);
        client.data(stream, "later", false);
        client.until("the echo", |raw| raw.body_length(stream) == 10);
        let answer = client.on(stream).unwrap();
        assert_eq!((answer.status(), answer.text(), answer.ended), (200, "EARLYLATER", false));
        assert_eq!((answer.header("upgrade"), answer.header("content-length")), (None, None));
        client.data(stream, ".", false);
        // The handler has ended, and so does the stream; another one is not touched.
        client.answer(stream);
        client.assert_open("/");
        // Who ends his direction is told of it by the end of what he hears.
        let stream = client.request(&head, false);
        client.data(stream, "x", true);
        assert_eq!(client.answer(stream).text(), "X");
    }
    // More than any window, there and back.
    let stream = client.request(&extended("shout", "/shout"), false);
    assert!(client.upload(stream, 300_000));
    let answer = client.answer(stream);
    assert_eq!(answer.body.len(), 300_000);
    assert!(answer.body.iter().all(|&b| b == b'X'));
    for (head, expected) in [
        (extended("shout", "/no"), "404"),
        (extended("other", "/shout"), "500"),
        (vec![(":method", "CONNECT"), (":authority", "b:1")], "501"),
    ] {
        let stream = client.request(&head, false);
        client.until("the answer", |raw| raw.on(stream).is_some_and(Answer::is_over));
        assert_eq!(client.answer(stream).status().to_string(), expected, "{head:?}");
        client.assert_open("/");
    }
    let stream = client.request(&extended("shout", "/panic"), false);
    client.answer(stream);
    client.assert_open("/");
    stop(server);
}

#[cfg(feature = "websocket")]
mod websockets {
    use super::*;
    use weft::websocket;

    /// A frame as a client sends it, masked with zeros.
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
        let mut head = extended("websocket", "/chat");
        head.push(("sec-websocket-version", "13"));
        head.push(("origin", "http://a"));
        head
    }

    #[track_caller]
    fn assert_comes(client: &mut Raw, stream: u32, expected: &[u8]) {
        let length = expected.len();
        client.until("the messages", |raw| raw.body_length(stream) >= length);
        assert_eq!(client.on(stream).unwrap().body, expected);
    }

    /// RFC 8441 §5: no key, and 200 rather than 101.
    #[test]
    fn by_extended_connect() {
        let server = start(chat);
        let mut client = Raw::connect(&server);
        let stream = client.request(&opening(), false);
        client.data(stream, masked(1, b"early"), false);
        let mut expected = unmasked(1, b"early");
        assert_comes(&mut client, stream, &expected);
        let head = client.on(stream).unwrap().head.clone().unwrap();
        assert_eq!(find(&head, ":status"), Some("200"));
        for name in ["sec-websocket-accept", "upgrade", "connection", "content-length"] {
            assert_eq!(find(&head, name), None, "{name}");
        }
        // Several on one connection, beside ordinary requests.
        let other = client.request(&opening(), false);
        client.data(other, masked(2, b"other"), false);
        assert_comes(&mut client, other, &unmasked(2, b"other"));
        let plain = client.get("/");
        assert_eq!(client.answer(plain).status(), 426);
        client.data(stream, [masked(1, b"a"), masked(9, b"b")].concat(), false);
        expected.extend([unmasked(1, b"a"), unmasked(10, b"b")].concat());
        assert_comes(&mut client, stream, &expected);
        client.data(stream, masked(8, &[3, 232]), false);
        expected.extend(unmasked(8, &[3, 232]));
        assert_comes(&mut client, stream, &expected);
        client.answer(stream);
        // A stream that is reset is the end of its WebSocket only.
        client.send(reset(other, CANCEL));
        let again = client.request(&opening(), false);
        client.data(again, masked(1, b"again"), false);
        assert_comes(&mut client, again, &unmasked(1, b"again"));
        stop(server);
    }

    #[test]
    fn refusals() {
        let server = start(chat);
        let mut client = Raw::connect(&server);
        for (name, value, status) in
            [("sec-websocket-version", "8", 426), ("origin", "http://b", 403)]
        {
            let mut head = opening();
            head.iter_mut().filter(|(n, _)| *n == name).for_each(|field| field.1 = value);
            let stream = client.request(&head, false);
            client.until("the answer", |raw| raw.on(stream).is_some_and(Answer::is_over));
            assert_eq!(client.answer(stream).status(), status, "{name}");
        }
        stop(server);
    }

    #[test]
    fn a_shutdown_says_goodbye() {
        let server = start(chat);
        let mut client = Raw::connect(&server);
        let stream = client.request(&opening(), false);
        client.until("the head", |raw| raw.on(stream).is_some());
        let stopping = std::thread::spawn(move || server.shutdown(PATIENCE));
        let goodbye = [&1001u16.to_be_bytes()[..], b"the server stops"].concat();
        assert_comes(&mut client, stream, &unmasked(8, &goodbye));
        client.data(stream, masked(8, &[3, 233]), false);
        client.assert_closed();
        assert_eq!(client.goaways.last(), Some(&(stream, "NO_ERROR")));
        stopping.join().unwrap();
    }
}
