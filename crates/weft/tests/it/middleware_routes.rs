//! Middleware that changes requests and responses and depends on framing, tested over real sockets.
#![cfg(feature = "gzip")]

use std::io::Write;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::common::{self, Client, boxed_server, stop};
use futures_core::Stream;
use weft::middleware::{
    Canonical, CleanPath, Compress, Cors, ETag, HeadAsGet, Health, Log, MethodOverride, Mount,
    ResponseHeaders, Rewrite, SecurityHeaders, StripPrefix, VirtualHosts,
};
use weft::server::ServerHandle;
use weft::{
    Application, Body, Error, ErrorKind, File, Method, Next, Request, Response, StatusCode, header,
};

fn start<A: Application + Clone + Send + 'static>(app: A) -> ServerHandle {
    boxed_server(app).workers(1).listen("127.0.0.1:0").unwrap().start().unwrap()
}

fn ask(client: &mut Client, line: &str, fields: &str) -> common::Response {
    client.send(format!("{line} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
    if line.starts_with("HEAD ") { client.head() } else { client.response() }
}

/// Responds to GET with a body of each kind, and to other methods with 405.
async fn bodies(request: Request) -> Response {
    if *request.method() != Method::GET {
        return StatusCode::METHOD_NOT_ALLOWED.into();
    }
    let stream = || Body::stream(Ready(["one", "two"].map(Ok::<_, std::io::Error>).into_iter()));
    match request.path() {
        "/bytes" => Response::text("twelve bytes"),
        "/large" => Response::text("x".repeat(300_000)),
        "/long" => Response::text("x".repeat(9_000)),
        "/empty" => Response::text(""),
        "/nothing" => Response::new(StatusCode::NO_CONTENT),
        "/stream" => Response::from_body(stream()),
        "/sized-stream" => Response::from_body(stream()).with_header(header::CONTENT_LENGTH, "6"),
        "/file" => {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(b"a file").unwrap();
            Response::from_file(File::open(file).unwrap()).with_header(header::ETAG, "\"e\"")
        }
        _ => Response::not_found(),
    }
}

/// A stream that is always ready.
struct Ready<I>(I);

impl<I: Iterator + Unpin> Stream for Ready<I> {
    type Item = I::Item;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<I::Item>> {
        Poll::Ready(self.0.next())
    }
}

#[test]
fn head_response_has_the_fields_of_get() {
    let server = start(bodies.wrap(HeadAsGet));
    let mut client = Client::connect(&server);
    for (path, status, length) in [
        ("/bytes", 200, Some("12")),
        ("/large", 200, Some("300000")),
        ("/empty", 200, Some("0")),
        ("/nothing", 204, None),
        ("/stream", 200, None),
        ("/sized-stream", 200, Some("6")),
        ("/file", 200, Some("6")),
        ("/else", 404, Some("14")),
    ] {
        let head = ask(&mut client, &format!("HEAD {path}"), "");
        let get = ask(&mut client, &format!("GET {path}"), "");
        assert_eq!((head.status, get.status), (status, status), "{path}");
        assert_eq!(head.header("content-length"), length, "{path}");
        let same = |response: &common::Response| {
            let mut headers = response.headers.clone();
            headers.retain(|(name, _)| !matches!(&**name, "date" | "last-modified"));
            headers
        };
        assert_eq!(same(&head), same(&get), "{path}");
    }
    // Preconditions are evaluated for the method that the client sent.
    let unchanged = ask(&mut client, "HEAD /file", "If-None-Match: \"e\"\r\n");
    assert_eq!(unchanged.status, 304);
    let whole = ask(&mut client, "HEAD /file", "Range: bytes=0-1\r\n");
    assert_eq!((whole.status, whole.header("content-length")), (200, Some("6")));
    stop(server);
}

/// Ranges apply only to GET (RFC 9110 §14.2).
#[test]
fn ranges_do_not_apply_to_head_in_any_order_of_middleware() {
    let lines = Arc::new(Mutex::new(String::new()));
    let sink = lines.clone();
    let log = Log::new(move |line| sink.lock().unwrap().push_str(&format!("{line}\n")));
    let log = log.pattern("%r %s %B").unwrap();
    for server in [
        start(weft::stack(bodies).with(HeadAsGet).with(log.clone())),
        start(weft::stack(bodies).with(log).with(HeadAsGet)),
    ] {
        let mut client = Client::connect(&server);
        for (method, status, length, bytes) in [("HEAD", 200, "6", 0), ("GET", 206, "2", 2)] {
            let response = ask(&mut client, &format!("{method} /file"), "Range: bytes=0-1\r\n");
            let line = std::mem::take(&mut *lines.lock().unwrap());
            assert_eq!(response.status, status, "{method}");
            assert_eq!(response.header("content-length"), Some(length), "{method}");
            assert_eq!(line, format!("{method} /file HTTP/1.1 {status} {bytes}\n"));
        }
        stop(server);
    }
}

#[test]
fn redirects_and_errors_have_a_content_length() {
    let app = VirtualHosts::new()
        .host("clean", bodies.wrap(CleanPath::new()))
        .host("canonical", bodies.wrap(Canonical::new().host("example.org").https()))
        .host("prefix", bodies.wrap(StripPrefix::new("/app")))
        .host("*.a", bodies);
    let server = start(app);
    let mut client = Client::connect(&server);
    for (host, target, status, location) in [
        ("clean", "//evil.example/..", 308, Some("/")),
        ("clean", "//evil.example", 308, Some("/evil.example")),
        ("clean", "/bytes", 200, None),
        ("canonical", "//evil.example", 308, Some("https://example.org//evil.example")),
        ("prefix", "/app/bytes", 200, None),
        ("prefix", "/bytes", 404, None),
        ("b.A.:80", "/bytes", 200, None),
        ("a", "/bytes", 421, None),
    ] {
        for method in ["GET", "HEAD"] {
            client.send(format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
            let response = if method == "HEAD" { client.head() } else { client.response() };
            assert_eq!(response.status, status, "{method} {host} {target}");
            assert_eq!(response.header("location"), location, "{host} {target}");
            assert!(response.header("content-length").is_some(), "{host} {target}");
        }
    }
    stop(server);
}

#[test]
fn middleware_passes_the_request_body_through() {
    async fn echo(request: Request) -> weft::Result<Response> {
        let request_line = format!("{} {} ", request.method(), request.path());
        let body = request.into_body().collect(1_000).await?;
        Ok(Response::text([request_line.as_bytes(), &body].concat()))
    }
    let server = start(
        weft::stack(bodies)
            .with(MethodOverride::new())
            .with(Rewrite::new().prefix("/old", "/new"))
            .with(Mount::new("/new", echo)),
    );
    let mut client = Client::connect(&server);
    let body = "X-HTTP-Method-Override: PUT\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n";
    assert_eq!(ask(&mut client, "POST /old/x", body).text(), "PUT /x abc");
    // An unread body is discarded.
    let refused = "X-HTTP-Method-Override: GET\r\nContent-Length: 3\r\n\r\nab";
    client.send(format!("POST / HTTP/1.1\r\nHost: a\r\n{refused}c"));
    assert_eq!(client.response().status, 400);
    client.assert_open("/bytes");
    stop(server);
}

/// `?` works in middleware as in a handler.
#[test]
fn middleware_returns_results() {
    async fn short(request: Request, next: Next<'_>) -> weft::Result<Response> {
        let is_short = request.path().len() < 8;
        is_short.then_some(()).ok_or_else(|| Error::new(ErrorKind::Malformed, "a long path"))?;
        Ok(next.call(request).await)
    }
    let server = start(bodies.wrap(short));
    let mut client = Client::connect(&server);
    assert_eq!(ask(&mut client, "GET /bytes", "").status, 200);
    let refused = ask(&mut client, "GET /bytes/2", "");
    assert_eq!((refused.status, refused.text().contains("a long path")), (400, true));
    stop(server);
}

#[test]
fn response_fields_are_changed_before_the_server_adds_its_own() {
    let headers = ResponseHeaders::new().set(header::SERVER, "other").remove(header::DATE);
    let server =
        start(weft::stack(bodies).with(headers).with(SecurityHeaders::new()).with(Compress::new()));
    let mut client = Client::connect(&server);
    for path in ["/bytes", "/large", "/file", "/stream"] {
        let response = ask(&mut client, &format!("GET {path}"), "Accept-Encoding: gzip\r\n");
        assert_eq!(response.status, 200, "{path}");
        assert_eq!(response.header("server"), Some("other"), "{path}");
        assert!(response.header("date").is_some(), "{path}");
        assert_eq!(response.header("x-content-type-options"), Some("nosniff"), "{path}");
    }
    stop(server);
}

#[test]
fn health_check_fails_during_shutdown() {
    let (started, has_started) = std::sync::mpsc::channel();
    let wait_for_shutdown = async move |request: Request, next: Next<'_>| {
        if request.query() == Some("wait") {
            started.send(()).unwrap();
            request.shutdown().requested().await;
        }
        next.call(request).await
    };
    let server = start(weft::stack(bodies).with(wait_for_shutdown).with(Health::new("/healthz")));
    let mut client = Client::connect(&server);
    assert_eq!(ask(&mut client, "GET /healthz", "").status, 200);
    client.send("GET /healthz?wait HTTP/1.1\r\nHost: a\r\n\r\n");
    has_started.recv().unwrap();
    server.shutdown(Duration::from_secs(30));
    let response = client.response();
    assert_eq!((response.status, response.text()), (503, "503 Service Unavailable\n"));
}

#[test]
fn responds_with_304_to_a_matching_etag() {
    let server =
        start(weft::stack(bodies).with(Compress::new()).with(ETag::new().weak()).with(HeadAsGet));
    let mut client = Client::connect(&server);
    for path in ["/bytes", "/file"] {
        for accept in ["", "Accept-Encoding: gzip\r\n"] {
            let first = ask(&mut client, &format!("GET {path}"), accept);
            let tag = first.header("etag").expect("a tag").to_owned();
            let fields = format!("{accept}If-None-Match: {tag}\r\n");
            for method in ["GET", "HEAD"] {
                let again = ask(&mut client, &format!("{method} {path}"), &fields);
                assert_eq!((again.status, again.header("etag")), (304, Some(&*tag)), "{path}");
                assert_eq!(again.header("content-type"), None, "{path}");
            }
            let other = ask(&mut client, &format!("GET {path}"), "If-Match: \"x\"\r\n");
            assert_eq!(other.status, 412, "{path}");
        }
    }
    // The connection stays open, and a stream is sent in full.
    let stream = ask(&mut client, "GET /stream", "If-None-Match: *\r\n");
    assert_eq!((stream.status, stream.text()), (200, "onetwo"));
    // The weak tag of a compressed response matches as well.
    let large = ask(&mut client, "GET /long", "Accept-Encoding: gzip\r\n");
    assert_eq!(large.header("content-encoding"), Some("gzip"));
    let tag = large.header("etag").expect("a tag");
    let fields = format!("Accept-Encoding: gzip\r\nIf-None-Match: {tag}\r\n");
    let again = ask(&mut client, "GET /long", &fields);
    assert_eq!((again.status, again.header("vary")), (304, Some("accept-encoding")));
    stop(server);
}

#[test]
fn cors_preflight_response_has_no_body() {
    let server = start(bodies.wrap(Cors::new().allow_origin("https://a.example")));
    let mut client = Client::connect(&server);
    let fields = "Origin: https://a.example\r\nAccess-Control-Request-Method: GET\r\n";
    let response = ask(&mut client, "OPTIONS /bytes", fields);
    assert_eq!((response.status, response.header("content-length")), (204, None));
    assert_eq!(response.header("access-control-allow-origin"), Some("https://a.example"));
    client.assert_open("/bytes");
    stop(server);
}
