//! What the middleware `Compress` does to responses, over real sockets.

mod common;

use std::io::{Read, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use common::{Client, address, stop, until};
use http_body::Frame;
use tokio::sync::Notify;
use weft::middleware::{Coding, Compress};
use weft::{
    Application, Body, Error, ErrorKind, File, HeaderValue, Request, Response, Running, Server,
    StatusCode, header,
};

fn start<A: Application + Clone + Send + 'static>(app: A) -> Running {
    start_with(Compress::new(), app)
}

fn start_with<A: Application + Clone + Send + 'static>(compress: Compress, app: A) -> Running {
    let server = Server::new(app.with(compress)).workers(1);
    server.listen("127.0.0.1:0").unwrap().start().unwrap()
}

/// A text that is no tenth of its length when it is compressed.
fn text(length: usize) -> String {
    let lines = (0..).flat_map(|n| format!("This is line {n} of a long text.\n").into_bytes());
    String::from_utf8(lines.take(length).collect()).unwrap()
}

/// A file of that text, whose tag does not change.
fn file(length: usize) -> Response {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(text(length).as_bytes()).unwrap();
    Response::file(File::open(file).unwrap())
        .with_header(header::CONTENT_TYPE, "text/plain")
        .with_header(header::ETAG, "\"e\"")
}

/// A body whose frames a function makes.
struct Frames<F>(F);

impl<F> http_body::Body for Frames<F>
where
    F: FnMut(&mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> + Unpin,
{
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        (self.0)(cx)
    }
}

/// A plain text that comes in these frames.
fn stream(frames: Vec<Result<Frame<Bytes>, Error>>) -> Response {
    let mut frames = frames.into_iter();
    let body = Body::from_http_body(Frames(move |_: &mut Context<'_>| Poll::Ready(frames.next())));
    Response::text(body)
}

fn data(text: impl Into<Bytes>) -> Result<Frame<Bytes>, Error> {
    Ok(Frame::data(text.into()))
}

/// Bytes, a stream and files, all of them texts.
async fn texts(request: Request) -> Response {
    match request.path() {
        "/bytes" => Response::text(text(5_000)),
        "/more-bytes" => Response::text(text(300_000)),
        "/stream" => {
            stream(text(300_000).as_bytes().chunks(777).map(|c| data(c.to_vec())).collect())
        }
        "/file" => file(5_000),
        "/more-file" => file(300_000),
        _ => Response::text("ok"),
    }
}

fn ask(client: &mut Client, method: &str, path: &str, fields: &str) -> common::Response {
    client.send(format!("{method} {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
    if method == "HEAD" { client.head() } else { client.response() }
}

/// What a client makes of bytes in a content coding.
fn decode(coding: &str, bytes: &[u8]) -> std::io::Result<String> {
    let mut text = String::new();
    match coding {
        "br" => brotli::Decompressor::new(bytes, 4096).read_to_string(&mut text)?,
        "zstd" => zstd::Decoder::new(bytes)?.read_to_string(&mut text)?,
        "gzip" => flate2::read::GzDecoder::new(bytes).read_to_string(&mut text)?,
        other => panic!("{other} is not offered"),
    };
    Ok(text)
}

const CODINGS: [&str; 3] = ["br", "zstd", "gzip"];

#[test]
fn texts_come_back_whole_in_each_coding() {
    let server = start(texts);
    let mut client = Client::connect(&server);
    for coding in CODINGS {
        for (path, length, framing) in [
            ("/bytes", 5_000, "content-length"),
            ("/more-bytes", 300_000, "transfer-encoding"),
            ("/stream", 300_000, "transfer-encoding"),
            ("/file", 5_000, "transfer-encoding"),
            ("/more-file", 300_000, "transfer-encoding"),
        ] {
            let case = format!("{path} in {coding}");
            let fields = format!("Accept-Encoding: {coding}\r\n");
            let response = ask(&mut client, "GET", path, &fields);
            assert_eq!(response.status, 200, "{case}");
            assert_eq!(response.header("content-encoding"), Some(coding), "{case}");
            assert_eq!(response.header("vary"), Some("accept-encoding"), "{case}");
            assert!(response.header(framing).is_some(), "{case}: {:?}", response.headers);
            assert!(response.body.len() < length / 4, "{case}: {} bytes", response.body.len());
            assert!(decode(coding, &response.body).unwrap() == text(length), "{case}");
            // The same connection goes on.
            let plain = ask(&mut client, "GET", path, "");
            assert_eq!(plain.header("content-encoding"), None, "{case}");
            assert_eq!(plain.header("content-length").is_some(), path != "/stream", "{case}");
            assert!(plain.text() == text(length), "{case}");
        }
    }
    stop(server);
}

#[test]
fn the_client_chooses_and_the_server_where_it_does_not_mind() {
    let all = Compress::new();
    let two = Compress::new().codings([Coding::Brotli, Coding::Gzip]);
    for (compress, accepted, coding) in [
        (&all, "gzip, deflate, br, zstd", Some("zstd")),
        (&all, "gzip, deflate, br", Some("gzip")),
        (&all, "br, gzip;q=0.8", Some("br")),
        (&all, "zstd;q=0, *", Some("gzip")),
        (&all, "*;q=0", None),
        (&all, "identity, zstd;q=0.5", None),
        (&all, "deflate", None),
        (&all, "", None),
        (&two, "gzip, deflate, br, zstd", Some("br")),
        (&two, "zstd", None),
    ] {
        let server = start_with(compress.clone(), texts);
        let mut client = Client::connect(&server);
        let fields = format!("Accept-Encoding: {accepted}\r\n");
        let response = ask(&mut client, "GET", "/bytes", &fields);
        assert_eq!(response.header("content-encoding"), coding, "{accepted}");
        assert_eq!(response.header("vary"), Some("accept-encoding"), "{accepted}");
        stop(server);
    }
}

#[test]
fn what_is_left_as_it_is() {
    fn with(name: &'static str, value: &str) -> Response {
        Response::text(text(5_000)).with_header(name.parse().unwrap(), value)
    }
    let server = start(async |request: Request| {
        let long = || text(5_000);
        match request.path() {
            "/small" => Response::text(text(1_023)),
            "/just-large-enough" => Response::text(text(1_024)),
            "/empty" => Response::text(""),
            "/no-type" => Response::body(long()),
            "/image" => Response::body(long()).with_header(header::CONTENT_TYPE, "image/png"),
            "/noise" => Response::text(noise(5_000)),
            "/encoded" => with("content-encoding", "deflate"),
            "/range" => with("content-range", "bytes 0-4999/9000"),
            "/no-transform" => with("cache-control", "max-age=5, No-Transform"),
            "/digest" => with("repr-digest", "sha-256=:AAAA:"),
            "/no-content" => with("x-a", "b").with_status(StatusCode::NO_CONTENT),
            "/reset" => with("x-a", "b").with_status(StatusCode::RESET_CONTENT),
            "/partial" => with("x-a", "b").with_status(StatusCode::PARTIAL_CONTENT),
            "/not-found" => with("x-a", "b").with_status(StatusCode::NOT_FOUND),
            "/file" => file(5_000),
            _ => Response::text("ok"),
        }
    });
    for (path, fields, varies, compressed) in [
        ("/small", "", false, false),
        ("/just-large-enough", "", true, true),
        ("/empty", "", false, false),
        ("/no-type", "", false, false),
        ("/image", "", false, false),
        ("/noise", "", true, false),
        ("/encoded", "", false, true),
        ("/range", "", false, false),
        ("/no-transform", "", false, false),
        ("/digest", "", false, false),
        ("/no-content", "", false, false),
        ("/reset", "", false, false),
        ("/partial", "", false, false),
        ("/not-found", "", true, true),
        ("/file", "", true, true),
        ("/file", "Range: bytes=2-4\r\n", true, false),
        ("/file", "Range: nonsense\r\n", true, false),
    ] {
        let mut client = Client::connect(&server);
        let fields = format!("Accept-Encoding: gzip\r\n{fields}");
        let response = ask(&mut client, "GET", path, &fields);
        let vary = varies.then_some("accept-encoding");
        assert_eq!(response.header("vary"), vary, "{path} {fields}");
        assert_eq!(response.header("content-encoding").is_some(), compressed, "{path} {fields}");
        client.assert_open("/");
    }
    let mut client = Client::connect(&server);
    let part = ask(&mut client, "GET", "/file", "Accept-Encoding: gzip\r\nRange: bytes=2-4\r\n");
    assert_eq!((part.status, part.text()), (206, &text(5)[2..]));
    assert_eq!(part.header("etag"), Some("\"e\""));
    stop(server);
}

/// What cannot be made smaller.
fn noise(length: u64) -> Vec<u8> {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let byte = |n: u64| {
        let mut hasher = DefaultHasher::new();
        n.hash(&mut hasher);
        hasher.finish() as u8
    };
    (0..length).map(byte).collect()
}

#[test]
fn head_is_answered_as_get_would_be() {
    let server = start(async |request: Request| match request.path() {
        "/told" => Response::text("").with_header(header::CONTENT_LENGTH, "5000"),
        "/told-small" => Response::text("").with_header(header::CONTENT_LENGTH, "500"),
        "/bytes" => Response::text(text(5_000)).with_header(header::ETAG, "\"b\""),
        _ => texts(request).await,
    });
    let mut client = Client::connect(&server);
    let fields = "Accept-Encoding: gzip\r\n";
    for path in ["/bytes", "/more-bytes", "/stream", "/file", "/more-file"] {
        let get = ask(&mut client, "GET", path, fields);
        let head = ask(&mut client, "HEAD", path, fields);
        let lines = |response: &common::Response| -> Vec<_> {
            let names = response.headers.iter().filter(|(name, _)| !is_of_the_moment(name));
            names.cloned().collect()
        };
        assert_eq!(lines(&head), lines(&get), "{path}");
        assert_eq!(head.header("content-encoding"), Some("gzip"), "{path}");
    }
    // An application that answers HEAD by itself tells the length of the bytes as they are.
    let told = ask(&mut client, "HEAD", "/told", fields);
    assert_eq!(told.header("content-encoding"), Some("gzip"));
    assert_eq!(told.header("content-length"), None);
    let told = ask(&mut client, "HEAD", "/told-small", fields);
    assert_eq!((told.header("content-encoding"), told.header("vary")), (None, None));
    assert_eq!(told.header("content-length"), Some("500"));
    client.assert_open("/");
    stop(server);
}

/// The time of a response, and of the file that each request makes anew.
fn is_of_the_moment(field: &str) -> bool {
    matches!(field, "date" | "last-modified")
}

#[test]
fn a_compressed_response_has_a_weak_tag_by_which_it_is_known() {
    let server = start(async |request: Request| match request.path() {
        "/bytes" => Response::text(text(5_000)).with_header(header::ETAG, "\"e\""),
        "/weak" => Response::text(text(5_000)).with_header(header::ETAG, "W/\"e\""),
        _ => texts(request).await,
    });
    let mut client = Client::connect(&server);
    for (path, fields, status, etag) in [
        ("/bytes", "", 200, "\"e\""),
        ("/bytes", "Accept-Encoding: gzip\r\n", 200, "W/\"e\""),
        ("/weak", "Accept-Encoding: gzip\r\n", 200, "W/\"e\""),
        ("/file", "", 200, "\"e\""),
        ("/file", "Accept-Encoding: gzip\r\n", 200, "W/\"e\""),
        ("/file", "If-None-Match: \"e\"\r\n", 304, "\"e\""),
        ("/file", "If-None-Match: W/\"e\"\r\nAccept-Encoding: gzip\r\n", 304, "W/\"e\""),
        ("/file", "If-None-Match: \"e\"\r\nAccept-Encoding: gzip\r\n", 304, "W/\"e\""),
        ("/file", "If-None-Match: \"f\"\r\nAccept-Encoding: gzip\r\n", 200, "W/\"e\""),
        ("/file", "If-Match: W/\"e\"\r\nAccept-Encoding: gzip\r\n", 412, "\"e\""),
    ] {
        let response = ask(&mut client, "GET", path, fields);
        assert_eq!(response.status, status, "{path} {fields}");
        assert_eq!(response.header("etag"), Some(etag), "{path} {fields}");
        assert_eq!(response.header("vary"), Some("accept-encoding"), "{path} {fields}");
        let is_compressed = response.header("content-encoding").is_some();
        assert_eq!(is_compressed, status == 200 && fields.contains("gzip"), "{path} {fields}");
        let ranges = (path == "/file" && status == 200 && !is_compressed).then_some("bytes");
        assert_eq!(response.header("accept-ranges"), ranges, "{path} {fields}");
        client.assert_open("/");
    }
    stop(server);
}

#[test]
fn vary_says_all_and_nothing_twice() {
    let server = start(async |request: Request| {
        let vary = request.headers().get_all("x-vary");
        let response = Response::text(text(5_000));
        vary.fold(response, |response, value| response.with_header(header::VARY, value))
    });
    for (set, vary) in [
        ("", "accept-encoding"),
        ("X-Vary: Origin\r\n", "Origin, accept-encoding"),
        ("X-Vary: Origin, Cookie\r\nX-Vary: Accept\r\n", "Origin, Cookie, Accept, accept-encoding"),
        ("X-Vary: Accept-Encoding\r\n", "Accept-Encoding"),
        ("X-Vary: origin,accept-encoding\r\n", "origin,accept-encoding"),
        ("X-Vary: *\r\n", "*"),
    ] {
        for accepted in ["Accept-Encoding: gzip\r\n", ""] {
            let mut client = Client::connect(&server);
            let response = ask(&mut client, "GET", "/", &format!("{accepted}{set}"));
            let lines = response.headers.iter().filter(|(name, _)| name == "vary");
            let lines: Vec<_> = lines.map(|(_, value)| value.as_str()).collect();
            assert_eq!(lines, [vary], "{set}{accepted}");
        }
    }
    stop(server);
}

#[test]
fn an_event_arrives_while_the_stream_goes_on() {
    for coding in CODINGS {
        let go_on = Arc::new(Notify::new());
        let word = go_on.clone();
        let server = start(move |_: Request| {
            let mut events = (1..=3).map(|event| data(format!("data: {event}\n\n")));
            let word = word.clone();
            let wait = move || {
                let word = word.clone();
                Box::pin(async move { word.notified().await })
            };
            let mut waiting = None;
            let frames = Frames(move |cx: &mut Context<'_>| {
                // Before each event but the first.
                if let Some(waiting) = &mut waiting {
                    ready!(Future::poll(Pin::as_mut(waiting), cx));
                }
                waiting = Some(wait());
                Poll::Ready(events.next())
            });
            async { event_stream(Body::from_http_body(frames)) }
        });
        // A client of HTTP/1.0 gets the bytes without chunks around them.
        let request = format!("GET / HTTP/1.0\r\nAccept-Encoding: {coding}\r\n\r\n");
        let mut client = Client::with(&server, request);
        let mut expected = String::new();
        for event in 1..=3 {
            expected += &format!("data: {event}\n\n");
            until("the event arrives", || {
                client.read();
                decoded_so_far(coding, client.came()) == expected
            });
            go_on.notify_one();
        }
        while client.read() > 0 {}
        let response = common::Response::parse(client.came(), false).unwrap();
        assert_eq!(decode(coding, &response.body).unwrap(), expected);
        stop(server);
    }
}

fn event_stream(events: Body) -> Response {
    Response::body(events).with_header(header::CONTENT_TYPE, "text/event-stream")
}

/// What can be decoded of a response of which not all may have come.
fn decoded_so_far(coding: &str, came: &[u8]) -> String {
    let Some(response) = common::Response::parse(came, false) else { return String::new() };
    let body = &response.body[..];
    let mut text = Vec::new();
    // An error says that more is to come.
    let _ = match coding {
        "br" => brotli::Decompressor::new(body, 4096).read_to_end(&mut text),
        "zstd" => zstd::Decoder::new(body).unwrap().read_to_end(&mut text),
        _ => flate2::read::GzDecoder::new(body).read_to_end(&mut text),
    };
    String::from_utf8(text).unwrap()
}

#[test]
fn a_body_that_fails_is_cut_and_not_ended() {
    let server = start(async |request: Request| {
        let half = || data(text(100_000));
        match request.path() {
            "/error" => {
                let error = Error::new(ErrorKind::BodyFailed, "on purpose");
                stream(vec![half(), Err(error), half()])
            }
            "/too-short" => stream(vec![half()]).with_header(header::CONTENT_LENGTH, "100001"),
            "/too-long" => stream(vec![half()]).with_header(header::CONTENT_LENGTH, "99999"),
            _ => stream(vec![half()]).with_header(header::CONTENT_LENGTH, "100000"),
        }
    });
    for coding in CODINGS {
        let fields = format!("Accept-Encoding: {coding}\r\n");
        let whole = ask(&mut Client::connect(&server), "GET", "/whole", &fields);
        assert!(decode(coding, &whole.body).unwrap() == text(100_000));
        for path in ["/error", "/too-short", "/too-long"] {
            let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
            let mut client = Client::with(&server, request);
            while client.read() > 0 {}
            // Either nothing of it was sent yet, or there is no last chunk.
            match common::Response::parse(client.came(), false) {
                None => assert!(!client.came().is_empty(), "{path} {coding}: nothing came"),
                Some(response) => assert_eq!(response.status, 500, "{path} {coding}"),
            }
        }
    }
    stop(server);
}

#[test]
fn a_wrong_length_of_bytes_is_seen_by_the_engine() {
    let server = start(async |_: Request| {
        Response::text(text(5_000)).with_header(header::CONTENT_LENGTH, "6000")
    });
    let mut client = Client::connect(&server);
    assert_eq!(ask(&mut client, "GET", "/", "Accept-Encoding: gzip\r\n").status, 500);
    stop(server);
}

#[test]
fn trailers_follow_the_compressed_body() {
    let server = start(async |_: Request| {
        let trailers = [(header::ETAG, HeaderValue::from_static("\"x\""))];
        let trailers = Frame::trailers(trailers.into_iter().collect());
        stream(vec![data(text(50_000)), Ok(trailers)])
    });
    let request = "GET / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n";
    let mut client = Client::with(&server, request);
    while client.read() > 0 {}
    assert!(client.came().ends_with(b"\r\n0\r\netag: \"x\"\r\n\r\n"));
    let response = common::Response::parse(client.came(), false).unwrap();
    assert!(decode("gzip", &response.body).unwrap() == text(50_000));
    stop(server);
}

#[test]
fn streams_over_the_limit_go_out_as_they_are() {
    let end = Arc::new(Notify::new());
    let word = end.clone();
    let server = start_with(Compress::new().max_streams(1), move |_: Request| {
        let word = word.clone();
        let mut wait = Box::pin(async move { word.notified().await });
        let mut parts = vec![data(text(2_000))].into_iter();
        let frames = Frames(move |cx: &mut Context<'_>| match parts.next() {
            Some(part) => Poll::Ready(Some(part)),
            None => wait.as_mut().poll(cx).map(|()| None),
        });
        async { Response::text(Body::from_http_body(frames)) }
    });
    let request = "GET / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n";
    let mut first = Client::with(&server, request);
    until("the first is under way", || first.read() > 0);
    let mut second = Client::with(&server, request);
    until("the second is under way", || second.read() > 0);
    end.notify_waiters();
    assert_eq!(first.response().header("content-encoding"), Some("gzip"));
    let second = second.response();
    assert_eq!(second.header("content-encoding"), None);
    assert_eq!(second.header("vary"), Some("accept-encoding"));
    // And when the first is over there is room again.
    let mut third = Client::with(&server, request);
    until("the third is under way", || third.read() > 0);
    end.notify_waiters();
    assert_eq!(third.response().header("content-encoding"), Some("gzip"));
    stop(server);
}

#[test]
fn curl_decodes_it() {
    let server = start(texts);
    for path in ["/bytes", "/more-bytes", "/stream", "/file", "/more-file"] {
        let url = format!("http://{}{path}", address(&server));
        let mut curl = std::process::Command::new("curl");
        curl.args(["--silent", "--show-error", "--fail", "--compressed", "--max-time", "30"]);
        curl.args(["--dump-header", "/dev/stderr", &url]);
        let Ok(ended) = curl.output() else {
            let required = std::env::var("WEFT_REQUIRE_TOOLS").is_ok_and(|value| value == "1");
            assert!(!required, "curl is not installed, and WEFT_REQUIRE_TOOLS=1");
            eprintln!("skipped: curl is not installed");
            break;
        };
        let head = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(ended.status.success(), "{head}");
        assert!(head.contains("content-encoding: "), "{head}");
        let length = if path.contains("more") || path == "/stream" { 300_000 } else { 5_000 };
        assert!(ended.stdout == text(length).as_bytes(), "{path}");
    }
    stop(server);
}
