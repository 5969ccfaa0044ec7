//! The `Compress` middleware, tested over real sockets.
#![cfg(all(feature = "brotli", feature = "gzip", feature = "zstd"))]

use std::io::{Read, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use crate::common::{self, Client, address, boxed_server, stop, until};
use bytes::Bytes;
use http_body::Frame;
use tokio::sync::Notify;
use weft::header::{self, HeaderValue};
use weft::middleware::{Coding, Compress};
use weft::server::ServerHandle;
use weft::{Application, Body, Error, ErrorKind, File, Request, Response, StatusCode};

fn start<A: Application + Clone + Send + 'static>(app: A) -> ServerHandle {
    start_with(Compress::new(), app)
}

fn start_with<A: Application + Clone + Send + 'static>(compress: Compress, app: A) -> ServerHandle {
    let server = boxed_server(app.wrap(compress)).workers(1);
    server.listen("127.0.0.1:0").unwrap().start().unwrap()
}

/// Text of `length` bytes that compresses to less than a tenth of that.
fn text(length: usize) -> String {
    let lines = (0..).flat_map(|n| format!("This is line {n} of a long text.\n").into_bytes());
    String::from_utf8(lines.take(length).collect()).unwrap()
}

/// A file with `text(length)` and a constant entity tag.
fn file(length: usize) -> Response {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(text(length).as_bytes()).unwrap();
    Response::from_file(File::open(file).unwrap())
        .with_header(header::CONTENT_TYPE, "text/plain")
        .with_header(header::ETAG, "\"e\"")
}

/// A body of the frames that a function returns.
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

/// A `text/plain` response with a streaming body of `frames`.
fn stream(frames: Vec<Result<Frame<Bytes>, Error>>) -> Response {
    let mut frames = frames.into_iter();
    let body = Body::from_http_body(Frames(move |_: &mut Context<'_>| Poll::Ready(frames.next())));
    Response::text(body)
}

fn data(text: impl Into<Bytes>) -> Result<Frame<Bytes>, Error> {
    Ok(Frame::data(text.into()))
}

/// Responds with text as bytes, as a stream or as a file.
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

/// Decodes `bytes` from a content coding.
fn decode(coding: &str, bytes: &[u8]) -> std::io::Result<String> {
    let mut text = String::new();
    match coding {
        "br" => brotli::Decompressor::new(bytes, 4096).read_to_string(&mut text)?,
        "zstd" => zstd::Decoder::new(bytes)?.read_to_string(&mut text)?,
        "gzip" => flate2::read::GzDecoder::new(bytes).read_to_string(&mut text)?,
        other => panic!("unexpected content coding {other}"),
    };
    Ok(text)
}

const CODINGS: [&str; 3] = ["br", "zstd", "gzip"];

#[test]
fn compresses_text_with_each_coding() {
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
            // Without Accept-Encoding, on the same connection, the response is not compressed.
            let plain = ask(&mut client, "GET", path, "");
            assert_eq!(plain.header("content-encoding"), None, "{case}");
            assert_eq!(plain.header("content-length").is_some(), path != "/stream", "{case}");
            assert!(plain.text() == text(length), "{case}");
        }
    }
    stop(server);
}

#[test]
fn selects_the_coding_by_client_weight_then_server_order() {
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
fn compresses_only_eligible_responses() {
    fn with(name: &'static str, value: &str) -> Response {
        Response::text(text(5_000)).with_header(name, value)
    }
    let server = start(async |request: Request| {
        let long = || text(5_000);
        match request.path() {
            "/small" => Response::text(text(1_023)),
            "/just-large-enough" => Response::text(text(1_024)),
            "/empty" => Response::text(""),
            "/no-type" => Response::from_body(long()),
            "/image" => Response::from_body(long()).with_header(header::CONTENT_TYPE, "image/png"),
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

/// Incompressible bytes.
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
fn head_response_has_the_fields_of_get() {
    let server = start(async |request: Request| match request.path() {
        "/length" => Response::text("").with_header(header::CONTENT_LENGTH, "5000"),
        "/small-length" => Response::text("").with_header(header::CONTENT_LENGTH, "500"),
        "/bytes" => Response::text(text(5_000)).with_header(header::ETAG, "\"b\""),
        _ => texts(request).await,
    });
    let mut client = Client::connect(&server);
    let fields = "Accept-Encoding: gzip\r\n";
    for path in ["/bytes", "/more-bytes", "/stream", "/file", "/more-file"] {
        let get = ask(&mut client, "GET", path, fields);
        let head = ask(&mut client, "HEAD", path, fields);
        let lines = |response: &common::Response| -> Vec<_> {
            let names = response.headers.iter().filter(|(name, _)| !is_time_field(name));
            names.cloned().collect()
        };
        match path {
            // The length is known only after the compression, and HEAD does not compress.
            "/bytes" => {
                let framing = ["content-length", "transfer-encoding"];
                let others = |response: &common::Response| -> Vec<_> {
                    let lines = lines(response).into_iter();
                    lines.filter(|(name, _)| !framing.contains(&name.as_str())).collect()
                };
                assert_eq!(head.header("content-length"), None);
                assert_eq!(others(&head), others(&get), "{path}");
            }
            _ => assert_eq!(lines(&head), lines(&get), "{path}"),
        }
        assert_eq!(head.header("content-encoding"), Some("gzip"), "{path}");
    }
    // An application that handles HEAD itself sets Content-Length to the uncompressed length.
    let response = ask(&mut client, "HEAD", "/length", fields);
    assert_eq!(response.header("content-encoding"), Some("gzip"));
    assert_eq!(response.header("content-length"), None);
    let response = ask(&mut client, "HEAD", "/small-length", fields);
    assert_eq!((response.header("content-encoding"), response.header("vary")), (None, None));
    assert_eq!(response.header("content-length"), Some("500"));
    client.assert_open("/");
    stop(server);
}

/// Returns true for `Date`, and for `Last-Modified` because each request creates a new file.
fn is_time_field(field: &str) -> bool {
    matches!(field, "date" | "last-modified")
}

#[test]
fn compressed_response_has_a_weak_etag_that_matches() {
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
fn adds_accept_encoding_to_vary_once() {
    let server = start(async |request: Request| {
        let vary = request.headers().get_all("x-vary");
        let response = Response::text(text(5_000));
        vary.fold(response, |response, value| response.with_appended_header(header::VARY, value))
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
fn flushes_each_event_of_a_stream() {
    for coding in CODINGS {
        let next_event = Arc::new(Notify::new());
        let notify = next_event.clone();
        let server = start(move |_: Request| {
            let mut events = (1..=3).map(|event| data(format!("data: {event}\n\n")));
            let notify = notify.clone();
            let wait = move || {
                let notify = notify.clone();
                Box::pin(async move { notify.notified().await })
            };
            let mut waiting = None;
            let frames = Frames(move |cx: &mut Context<'_>| {
                // Wait before each event except the first.
                if let Some(waiting) = &mut waiting {
                    ready!(Future::poll(Pin::as_mut(waiting), cx));
                }
                waiting = Some(wait());
                Poll::Ready(events.next())
            });
            async { event_stream(Body::from_http_body(frames)) }
        });
        // Responses to HTTP/1.0 requests are not chunked.
        let request = format!("GET / HTTP/1.0\r\nAccept-Encoding: {coding}\r\n\r\n");
        let mut client = Client::connect_and_send(&server, request);
        let mut expected = String::new();
        for event in 1..=3 {
            expected += &format!("data: {event}\n\n");
            until("the event arrives", || {
                client.read();
                decoded_so_far(coding, client.received()) == expected
            });
            next_event.notify_one();
        }
        while client.read() > 0 {}
        let response = common::Response::parse(client.received(), false).unwrap();
        assert_eq!(decode(coding, &response.body).unwrap(), expected);
        stop(server);
    }
}

fn event_stream(events: Body) -> Response {
    Response::from_body(events).with_header(header::CONTENT_TYPE, "text/event-stream")
}

/// Decodes the part of a response that has been received.
fn decoded_so_far(coding: &str, received: &[u8]) -> String {
    let Some(response) = common::Response::parse(received, false) else { return String::new() };
    let body = &response.body[..];
    let mut text = Vec::new();
    // An error means that the body is not complete yet.
    let _ = match coding {
        "br" => brotli::Decompressor::new(body, 4096).read_to_end(&mut text),
        "zstd" => zstd::Decoder::new(body).unwrap().read_to_end(&mut text),
        _ => flate2::read::GzDecoder::new(body).read_to_end(&mut text),
    };
    String::from_utf8(text).unwrap()
}

#[test]
fn failed_body_is_cut_without_a_last_chunk() {
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
            let mut client = Client::connect_and_send(&server, request);
            while client.read() > 0 {}
            // Either the head was not sent yet and the response is a 500, or the last chunk is
            // missing.
            match common::Response::parse(client.received(), false) {
                None => assert!(!client.received().is_empty(), "{path} {coding}: no response"),
                Some(response) => assert_eq!(response.status, 500, "{path} {coding}"),
            }
        }
    }
    stop(server);
}

#[test]
fn wrong_content_length_is_a_500() {
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
    let mut client = Client::connect_and_send(&server, request);
    while client.read() > 0 {}
    assert!(client.received().ends_with(b"\r\n0\r\netag: \"x\"\r\n\r\n"));
    let response = common::Response::parse(client.received(), false).unwrap();
    assert!(decode("gzip", &response.body).unwrap() == text(50_000));
    stop(server);
}

#[test]
fn streams_over_the_limit_are_not_compressed() {
    let end = Arc::new(Notify::new());
    let notify = end.clone();
    let server = start_with(Compress::new().max_streams(1), move |_: Request| {
        let notify = notify.clone();
        let mut wait = Box::pin(async move { notify.notified().await });
        let mut parts = vec![data(text(2_000))].into_iter();
        let frames = Frames(move |cx: &mut Context<'_>| match parts.next() {
            Some(part) => Poll::Ready(Some(part)),
            None => wait.as_mut().poll(cx).map(|()| None),
        });
        async { Response::text(Body::from_http_body(frames)) }
    });
    let request = "GET / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n";
    let mut first = Client::connect_and_send(&server, request);
    until("the first response begins", || first.read() > 0);
    let mut second = Client::connect_and_send(&server, request);
    until("the second response begins", || second.read() > 0);
    end.notify_waiters();
    assert_eq!(first.response().header("content-encoding"), Some("gzip"));
    let second = second.response();
    assert_eq!(second.header("content-encoding"), None);
    assert_eq!(second.header("vary"), Some("accept-encoding"));
    // After the end of the first stream, another one is compressed.
    let mut third = Client::connect_and_send(&server, request);
    until("the third response begins", || third.read() > 0);
    end.notify_waiters();
    assert_eq!(third.response().header("content-encoding"), Some("gzip"));
    stop(server);
}

#[test]
fn curl_decodes_the_responses() {
    let server = start(texts);
    for path in ["/bytes", "/more-bytes", "/stream", "/file", "/more-file"] {
        let url = format!("http://{}{path}", address(&server));
        let mut curl = std::process::Command::new("curl");
        curl.args(["--silent", "--show-error", "--fail", "--compressed", "--max-time", "30"]);
        curl.args(["--dump-header", "/dev/stderr", &url]);
        let Ok(output) = curl.output() else {
            let required = std::env::var("WEFT_REQUIRE_TOOLS").is_ok_and(|value| value == "1");
            assert!(!required, "curl is not installed, and WEFT_REQUIRE_TOOLS=1");
            eprintln!("skipped: curl is not installed");
            break;
        };
        let head = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{head}");
        assert!(head.contains("content-encoding: "), "{head}");
        let length = if path.contains("more") || path == "/stream" { 300_000 } else { 5_000 };
        assert!(output.stdout == text(length).as_bytes(), "{path}");
    }
    stop(server);
}
