//! Middleware that depends on framing, time or client disconnects, tested over real sockets.
#![cfg(feature = "gzip")]

use std::future::pending;
use std::io::Write;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::common::{self, Client, boxed_server, stop, until};
use bytes::Bytes;
use tokio::sync::Notify;
use weft::middleware::{
    BasicAuth, BodyLimit, CatchPanic, Compress, ConcurrencyLimit, Log, RateLimit, RealAddress,
    RequestIds, Timeout, fixed_users,
};
use weft::net::Peer;
use weft::server::ServerHandle;
use weft::{
    Application, Body, Error, ErrorKind, File, Hooks, Method, Next, Request, Response, header,
};

fn start<A: Application + Clone + Send + 'static>(app: A) -> ServerHandle {
    start_workers(1, app)
}

fn start_workers<A: Application + Clone + Send + 'static>(workers: usize, app: A) -> ServerHandle {
    let server = boxed_server(app).workers(workers);
    server.listen("127.0.0.1:0").unwrap().start().unwrap()
}

const CHUNKED: &str = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";

/// A stream of the chunks that a function returns.
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

/// A body of `chunks`, followed by the items that `then` returns.
fn stream(
    chunks: &'static [&'static str],
    mut then: impl FnMut() -> Poll<Option<Result<Bytes, Error>>> + Send + Unpin + 'static,
) -> Body {
    let mut chunks = chunks.iter();
    Body::stream(Chunks(move |_: &mut Context<'_>| match chunks.next() {
        Some(chunk) => Poll::Ready(Some(Ok(Bytes::from(*chunk)))),
        None => then(),
    }))
}

/// Counts its clones that are alive.
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

// -- Log

/// The lines written by `Log`.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<String>>);

impl Lines {
    fn log(&self) -> Log {
        let lines = self.clone();
        let log = Log::new(move |line| lines.0.lock().unwrap().push_str(&format!("{line}\n")));
        log.pattern("%r: %s %B %X").unwrap()
    }

    /// Waits until lines are written and compares them with `line`.
    #[track_caller]
    fn assert_next(&self, line: &str) {
        until("a line is written", || self.0.lock().unwrap().contains('\n'));
        let lines = std::mem::take(&mut *self.0.lock().unwrap());
        assert_eq!(lines, format!("{line}\n"));
    }
}

async fn bodies(request: Request) -> Response {
    match request.path() {
        "/bytes" => Response::text("four"),
        "/empty" => Response::text(""),
        "/stream" => Response::from_body(stream(&["one", "three"], || Poll::Ready(None))),
        "/sized" => Response::from_body(stream(&["one", "three"], || Poll::Ready(None)))
            .with_header(header::CONTENT_LENGTH, "8"),
        "/fails" => {
            let error = || Error::new(ErrorKind::Io, "intended by the test");
            Response::from_body(stream(&["one"], move || Poll::Ready(Some(Err(error())))))
        }
        "/endless" => Response::from_body(stream(&["one"], || Poll::Pending)),
        "/echo" => Response::from_body(request.into_body()),
        "/never" => pending().await,
        "/panic" => panic!("intended by the test"),
        "/file" => {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&[b'x'; 100_000]).unwrap();
            Response::from_file(File::open(file).unwrap()).with_header(header::ETAG, "\"e\"")
        }
        _ => Response::not_found(),
    }
}

#[test]
fn logs_responses_without_changing_them() {
    let lines = Lines::default();
    let (logged, plain) = (start(bodies.wrap(lines.log())), start(bodies));
    for (request, fields, end) in [
        ("GET /bytes", "", "200 4 +"),
        ("HEAD /bytes", "", "200 0 +"),
        ("GET /empty", "", "200 0 +"),
        ("GET /stream", "", "200 8 +"),
        ("HEAD /stream", "", "200 0 +"),
        ("GET /sized", "", "200 8 +"),
        ("GET /file", "", "200 100000 +"),
        ("HEAD /file", "", "200 0 +"),
        ("GET /file", "If-None-Match: \"e\"\r\n", "304 0 +"),
        ("GET /file", "Range: bytes=0-9\r\n", "206 10 +"),
        ("GET /file", "Range: bytes=200000-\r\n", "416 26 +"),
        ("POST /echo", "Content-Length: 5\r\n", "200 5 +"),
        ("GET /none", "", "404 14 +"),
    ] {
        let [actual, expected] = [&logged, &plain].map(|server| {
            let mut client = Client::connect(server);
            client.send(format!("{request} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
            if request.starts_with("POST") {
                std::thread::sleep(Duration::from_millis(20));
                client.send("12345");
            }
            let head_only = request.starts_with("HEAD");
            let mut response = if head_only { client.head() } else { client.response() };
            client.assert_open("/bytes");
            response.headers.retain(|(name, _)| name != "date" && name != "last-modified");
            (response.status, response.headers, response.body)
        });
        assert!(actual == expected, "{request} {fields}: {actual:?}");
        lines.assert_next(&format!("{request} HTTP/1.1: {end}\nGET /bytes HTTP/1.1: 200 4 +"));
    }
    stop(logged);
    stop(plain);
}

#[test]
fn logs_incomplete_responses() {
    let lines = Lines::default();
    let server = start(bodies.wrap(lines.log()));
    for (target, received, end) in [
        ("/never", "", "499 0 X"),
        ("/endless", "one\r\n", "200 3 X"),
        ("/fails", "", "500 26 X"),
        ("/panic", "", "500 0 X"),
    ] {
        let mut client = Client::connect(&server);
        client.get(target);
        match received {
            "" => std::thread::sleep(Duration::from_millis(20)),
            received => until("the body begins", || {
                client.read();
                client.received().ends_with(received.as_bytes())
            }),
        }
        client.leave();
        lines.assert_next(&format!("GET {target} HTTP/1.1: {end}"));
    }
    stop(server);
}

#[test]
fn logs_a_stream_after_its_end() {
    let (next_chunk, lines) = (Arc::new(Notify::new()), Lines::default());
    let notify = next_chunk.clone();
    let app = move |_: Request| {
        let mut wait = Some(Box::pin(notify.clone().notified_owned()));
        let stream = Chunks(move |cx: &mut Context<'_>| {
            let Some(waiting) = &mut wait else { return Poll::Ready(None) };
            std::task::ready!(waiting.as_mut().poll(cx));
            wait = None;
            Poll::Ready(Some(Ok(Bytes::from("late"))))
        });
        async move { Response::from_body(Body::stream(stream)) }
    };
    let server = start(app.wrap(lines.log()));
    let mut client = Client::connect(&server);
    client.get("/");
    until("the head arrives", || client.read() > 0);
    assert_eq!(*lines.0.lock().unwrap(), "");
    next_chunk.notify_one();
    assert_eq!(client.response().text(), "late");
    lines.assert_next("GET / HTTP/1.1: 200 4 +");
    stop(server);
}

#[test]
fn log_passes_trailers_through() {
    let lines = Lines::default();
    let server = start(bodies.wrap(lines.log()));
    let mut client = Client::connect(&server);
    client.send(CHUNKED.replace("POST /", "POST /echo"));
    client.send("3\r\nabc\r\n0\r\netag: \"x\"\r\n\r\n");
    until("the response is complete", || {
        client.read() > 0 && client.received().ends_with(b"\r\n\r\n")
    });
    assert!(client.received().ends_with(b"3\r\nabc\r\n0\r\netag: \"x\"\r\n\r\n"));
    lines.assert_next("POST /echo HTTP/1.1: 200 3 +");
    stop(server);
}

// -- RequestIds and RealAddress

#[test]
fn workers_generate_unique_request_ids() {
    let server = start_workers(4, bodies.wrap(RequestIds::new()));
    let mut ids = Vec::new();
    for _ in 0..16 {
        let mut client = Client::connect(&server);
        for _ in 0..4 {
            client.get("/bytes");
            ids.push(client.response().header("x-request-id").unwrap().to_owned());
        }
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 64);
    stop(server);
}

#[test]
fn only_trusted_proxies_set_the_client_address() {
    let client_address = async |request: Request| {
        Response::text(request.peer().address().map_or(String::new(), |a| a.ip().to_string()))
    };
    for (trusted, client) in [("127.0.0.0/8", "192.0.2.1"), ("10.0.0.0/8", "127.0.0.1")] {
        let proxies = [trusted.parse().unwrap()];
        let server = start(client_address.wrap(RealAddress::x_forwarded_for(proxies)));
        let field = "X-Forwarded-For: 192.0.2.1";
        let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{field}\r\n\r\n");
        assert_eq!(Client::connect_and_send(&server, text).response().text(), client);
        stop(server);
    }
}

// -- Timeout

#[test]
fn timeout_drops_the_application_and_keeps_the_connection() {
    let alive = Alive::new();
    let counted = alive.clone();
    let app = move |request: Request| {
        let alive = counted.clone();
        async move {
            let _alive = alive;
            bodies(request).await
        }
    };
    let server = start(app.wrap(Timeout::new(Duration::from_millis(30))));
    let mut client = Client::connect(&server);
    client.get("/never");
    let response = client.response();
    assert_eq!((response.status, response.text()), (503, "503 Service Unavailable\n"));
    until("the future is dropped", || alive.count() == 1);
    client.assert_open("/bytes");

    // The timeout does not apply to the response body.
    client.get("/endless");
    until("the body begins", || client.read() > 0 && client.received().ends_with(b"one\r\n"));
    std::thread::sleep(Duration::from_millis(100));
    client.socket().set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    let error = std::io::Read::read(&mut client.socket(), &mut [0]).unwrap_err();
    assert_eq!(
        error.kind(),
        std::io::ErrorKind::WouldBlock,
        "the body must be neither ended nor cut"
    );
    stop(server);
}

// -- BodyLimit

async fn collect(request: Request) -> weft::Result<Response> {
    if *request.method() == Method::GET {
        return Ok(Response::text("ok"));
    }
    let body = request.into_body().collect(usize::MAX).await?;
    Ok(Response::text(body.len().to_string()))
}

#[test]
fn body_over_the_limit_is_413_with_any_framing() {
    let called = Arc::new(Mutex::new(0));
    let count = called.clone();
    let app = move |request: Request| {
        *count.lock().unwrap() += 1;
        collect(request)
    };
    let server = start(app.wrap(BodyLimit::new(5)));
    let sized = |n: usize, more: &str| {
        format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {n}\r\n{more}\r\n")
    };
    for (case, bytes, status, calls) in [
        ("at the limit", sized(5, "") + "12345", 200, 1),
        ("over the limit", sized(6, "") + "123456", 413, 0),
        ("over the limit, with no body sent", sized(6, ""), 413, 0),
        ("over the limit, with Expect", sized(6, "Expect: 100-continue\r\n"), 413, 0),
        ("over the limit of the server", sized(17 << 20, ""), 413, 0),
        ("chunked, at the limit", format!("{CHUNKED}2\r\n12\r\n3\r\n345\r\n0\r\n\r\n"), 200, 1),
        ("chunked, over the limit", format!("{CHUNKED}2\r\n12\r\n4\r\n3456\r\n0\r\n\r\n"), 413, 1),
        (
            "chunked, over the limit, without a last chunk",
            format!("{CHUNKED}2\r\n12\r\n4\r\n3456\r\n"),
            413,
            1,
        ),
    ] {
        // The first response is the final one: no 100 Continue is sent.
        assert_eq!(Client::connect_and_send(&server, bytes).response().status, status, "{case}");
        assert_eq!(std::mem::take(&mut *called.lock().unwrap()), calls, "{case}");
    }
    stop(server);
}

#[test]
fn body_limit_can_exceed_max_body_bytes() {
    let server = start(collect.wrap(BodyLimit::new(20 << 20)));
    let length = 17 << 20;
    let mut client = Client::connect(&server);
    client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n"));
    client.send(vec![b'x'; length]);
    assert_eq!(client.response().text(), length.to_string());
    client.assert_open("/");
    stop(server);
}

// -- ConcurrencyLimit

/// An application that responds to `/wait` after a notification, with a counter of its requests.
fn gated_app() -> (Arc<Notify>, Alive, impl Application + Clone + Send) {
    let (open, running) = (Arc::new(Notify::new()), Alive::new());
    let (notify, alive) = (open.clone(), running.clone());
    let app = move |request: Request| {
        let (notify, alive) = (notify.clone(), alive.clone());
        async move {
            let _alive = alive;
            if request.path() == "/wait" {
                notify.notified().await;
            }
            Response::text("ok")
        }
    };
    (open, running, app)
}

#[test]
fn concurrency_limit_is_shared_by_the_workers() {
    let (open, running, app) = gated_app();
    let limit = ConcurrencyLimit::new(2).max_queued(1).queue_timeout(common::TEST_TIMEOUT);
    let limit = limit.retry_after(Duration::from_millis(1_500));
    let server = start_workers(2, app.wrap(limit));
    let get = |target| {
        Client::connect_and_send(&server, format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"))
    };
    assert_eq!(get("/").response().status, 200);
    let baseline = running.count();
    let mut admitted = [get("/wait"), get("/wait")];
    until("both requests run", || running.count() == baseline + 2);
    // Of two more requests, one is queued and the other is rejected.
    let mut more = [get("/wait"), get("/wait")];
    let mut answered = None;
    until("one has a response", || {
        answered = more.iter().position(|client| {
            client.socket().set_nonblocking(true).unwrap();
            let has_response = client.socket().peek(&mut [0]).is_ok();
            client.socket().set_nonblocking(false).unwrap();
            has_response
        });
        answered.is_some()
    });
    let response = more[answered.unwrap()].response();
    assert_eq!((response.status, response.header("retry-after")), (503, Some("2")));
    assert_eq!(running.count(), baseline + 2, "the queued request must not run");
    // Each completed request admits a queued one.
    for _ in 0..3 {
        open.notify_one();
        std::thread::sleep(Duration::from_millis(10));
    }
    for client in &mut admitted {
        assert_eq!(client.response().status, 200);
    }
    until("no request runs", || {
        open.notify_waiters();
        running.count() == baseline
    });
    assert_eq!(more[1 - answered.unwrap()].response().status, 200);
    stop(server);
}

#[test]
fn client_disconnect_releases_its_permit() {
    let (_open, running, app) = gated_app();
    let server = start(app.wrap(ConcurrencyLimit::new(1).max_queued(0)));
    let mut other = Client::connect(&server);
    other.assert_open("/");
    let baseline = running.count();
    let mut client = Client::connect(&server);
    client.get("/wait");
    until("the request runs", || running.count() == baseline + 1);
    other.get("/");
    assert_eq!(other.response().status, 503);
    client.leave();
    until("the request is dropped", || running.count() == baseline);
    other.assert_open("/");
    stop(server);
}

#[test]
fn queued_requests_time_out() {
    let (_open, running, app) = gated_app();
    let limit = ConcurrencyLimit::new(1).max_queued(9).queue_timeout(Duration::from_millis(30));
    let server = start(app.wrap(limit));
    Client::connect(&server).assert_open("/");
    let baseline = running.count();
    let mut client = Client::connect(&server);
    client.get("/wait");
    until("the request runs", || running.count() == baseline + 1);
    let mut other = Client::connect(&server);
    other.get("/");
    assert_eq!(other.response().status, 503);
    stop(server);
}

// -- RateLimit

#[test]
fn rate_limit_is_shared_by_the_workers() {
    let server =
        start_workers(4, bodies.wrap(RateLimit::new(1, Duration::from_secs(3_600)).burst(5)));
    let statuses: Vec<u16> = (0..12)
        .map(|_| {
            let mut client = Client::connect(&server);
            client.get("/bytes");
            let response = client.response();
            let wait = response.header("retry-after").map(|text| text.parse::<u64>().unwrap());
            assert_eq!(wait.is_some(), response.status == 429);
            assert!(wait.is_none_or(|seconds| (3_500..=3_600).contains(&seconds)), "{wait:?}");
            response.status
        })
        .collect();
    assert_eq!(statuses, [[200; 5].as_slice(), &[429; 7]].concat());
    stop(server);
}

// -- CatchPanic

#[derive(Clone, Default)]
struct ErrorRecorder(Arc<Mutex<Vec<ErrorKind>>>);

impl Hooks for ErrorRecorder {
    fn on_error(&self, _: &Peer, error: &Error) {
        self.0.lock().unwrap().push(error.kind());
    }
}

#[test]
fn caught_panic_is_reported_and_logged_and_keeps_the_connection() {
    let (lines, errors) = (Lines::default(), ErrorRecorder::default());
    let page = |_: &weft::message::RequestHead, error: &Error| Response::from(error);
    let app = weft::stack(bodies).with(lines.log()).with(CatchPanic::new().page(page));
    let hooks = errors.clone();
    let server = boxed_server(app).workers(1).hooks(move || hooks.clone());
    let server = server.listen("127.0.0.1:0").unwrap().start().unwrap();
    let mut client = Client::connect(&server);
    client.get("/panic");
    let response = client.response();
    assert_eq!((response.status, response.header("connection")), (500, None));
    assert_eq!(*errors.0.lock().unwrap(), [ErrorKind::Panicked]);
    lines.assert_next("GET /panic HTTP/1.1: 500 26 +");
    client.assert_open("/bytes");
    stop(server);
}

// -- all combined

/// The types of a middleware chain nest, and the compiler limits the depth: this must compile.
#[test]
fn all_middleware_combined() {
    let lines = Lines::default();
    let app = weft::stack(bodies)
        .with(RequestIds::new())
        .with(RealAddress::forwarded(["127.0.0.1".parse().unwrap()]))
        .with(lines.log())
        .with(RateLimit::new(50, Duration::from_secs(1)))
        .with(BasicAuth::new("r", fixed_users(&[("a", "b")])))
        .with(BodyLimit::new(1 << 20))
        .with(Compress::new())
        .with(ConcurrencyLimit::new(1_000))
        .with(Timeout::new(Duration::from_secs(10)))
        .with(CatchPanic::new())
        .with(async |request: Request, next: Next<'_>| next.call(request).await);
    let server = start(app);
    let mut client = Client::connect(&server);
    for (authorization, end) in [("Basic YTpi", "200 4 +"), ("Basic YTpj", "401 17 +")] {
        client.send("GET /bytes HTTP/1.1\r\nHost: a\r\n");
        client.send(format!("Authorization: {authorization}\r\n\r\n"));
        assert!(end.starts_with(&client.response().status.to_string()), "{authorization}");
        lines.assert_next(&format!("GET /bytes HTTP/1.1: {end}"));
    }
    stop(server);
}
