//! HTTP/1 exchanges over real sockets: bodies, failures, timeouts, limits and shutdown.

use std::future::pending;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::common::{self, Client, SHORT_TIMEOUT, boxed_server, short_timeouts, stop, until};
use bytes::Bytes;
use weft::{
    Application, Body, Disconnect, Error, ErrorKind, Fault, Hooks, Method, Peer, Record, Request,
    RequestHead, Response, Server, ServerHandle, Settings, StatusCode, header,
};

fn start<A: Application + Clone + Send + 'static>(app: A) -> ServerHandle {
    start_with(Settings::default(), app)
}

fn start_with<A: Application + Clone + Send + 'static>(settings: Settings, app: A) -> ServerHandle {
    let server = boxed_server(app).settings(settings).workers(1);
    server.listen("127.0.0.1:0").unwrap().start().unwrap()
}

fn post(length: usize) -> String {
    format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n")
}

const CHUNKED: &str = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";

async fn echo(request: Request) -> Response {
    match *request.method() {
        Method::GET => Response::text("ok"),
        _ => Response::body(request.into_body()),
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
    F: FnMut(&mut Context<'_>) -> Poll<Option<Bytes>> + Unpin,
{
    type Item = Result<Bytes, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        (self.0)(cx).map(|chunk| chunk.map(Ok))
    }
}

// -- heads

/// A cloned head stays valid; the buffer of a head without clones is reused for the next request.
#[test]
fn retained_request_head_is_not_overwritten() {
    let retained = Arc::new(Mutex::new(Vec::new()));
    let app = {
        let retained = retained.clone();
        async move |request: Request| {
            if request.query() == Some("keep") {
                retained.lock().unwrap().push(request.head().clone());
            }
            let segments = request.segments().join(",");
            let own = request.headers().get("x-own").unwrap_or("none").to_owned();
            Response::text(format!("{} {own} {segments}", request.target()))
        }
    };
    let server = start(app);
    let mut client = Client::connect(&server);
    let mut expected = Vec::new();
    for round in 0..3 {
        let mut batch = String::new();
        for number in 0..8 {
            let target = match number % 3 {
                0 => format!("/a%20{round}/{number}?keep"),
                _ => format!("/b%20{round}/{number}/longer-than-the-one-before"),
            };
            let own = if number % 2 == 0 { format!("X-Own: {round}\r\n") } else { String::new() };
            batch += &format!("GET {target} HTTP/1.1\r\nHost: a\r\n{own}\r\n");
            expected
                .push((target, if number % 2 == 0 { round.to_string() } else { "none".into() }));
        }
        client.send(batch);
        for (target, own) in &expected[expected.len() - 8..] {
            let path = target.trim_start_matches('/').split('?').next().unwrap();
            let segments = path.replace("%20", " ").replace('/', ",");
            assert_eq!(client.response().text(), format!("{target} {own} {segments}"));
        }
    }
    let show = |head: &RequestHead| {
        (head.target().to_owned(), head.headers().get("x-own").unwrap_or("none").to_owned())
    };
    let retained: Vec<_> = retained.lock().unwrap().iter().map(show).collect();
    expected.retain(|(target, _)| target.ends_with("?keep"));
    assert_eq!(retained, expected);
    stop(server);
}

// -- bodies on loan

#[test]
fn echoes_request_body_while_receiving() {
    let server = start(echo);
    let mut client = Client::connect_and_send(&server, CHUNKED);
    let mut seen = Vec::new();
    for part in ["one", "two", "three"] {
        client.send(format!("{:x}\r\n{part}\r\n", part.len()));
        // Each part is echoed before the next one is sent.
        let end = format!("{part}\r\n");
        until("the part is echoed", || {
            client.read();
            client.received().ends_with(end.as_bytes())
        });
        seen.push(part);
    }
    client.send("0\r\n\r\n");
    assert_eq!(client.response().text(), seen.concat());
    client.assert_open("/");
    stop(server);
}

#[test]
fn reads_request_body_in_another_thread() {
    async fn elsewhere(request: Request) -> weft::Result<Response> {
        let body = request.into_body();
        let (sender, result) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let _ = sender.send(runtime.block_on(body.collect(1 << 20)));
        });
        let body = result.await.expect("the thread sends a result")?;
        Ok(Response::text(format!("{}", body.len())))
    }
    let server = start(elsewhere);
    let mut client = Client::connect_and_send(&server, post(100_000));
    for _ in 0..100 {
        client.send([b'x'; 1000]);
    }
    assert_eq!(client.response().text(), "100000");
    client.send(post(3));
    client.send("abc");
    assert_eq!(client.response().text(), "3");
    stop(server);
}

#[test]
fn dropped_body_returns_the_reader_to_the_connection() {
    async fn first_chunk(mut request: Request) -> weft::Result<Response> {
        let chunk = request.body().chunk().await?.unwrap_or_default();
        Ok(Response::text(format!("{}", chunk.len())))
    }
    let server = start(first_chunk);
    let mut client = Client::connect_and_send(&server, post(20_000));
    client.send([b'x'; 10]);
    assert_eq!(client.response().text(), "10");
    client.send([b'x'; 19_990]);
    client.assert_open("/");
    stop(server);
}

#[test]
fn drains_unread_body_up_to_the_limit() {
    let settings = Settings { max_drain_bytes: 1000, ..Settings::default() };
    let server = start_with(settings, async |_: Request| Response::text("ok"));
    let mut client = Client::connect_and_send(&server, post(1000));
    assert_eq!(client.response().header("connection"), None);
    client.send([b'x'; 1000]);
    client.assert_open("/");

    client.send(post(1001));
    assert_eq!(
        client.response().header("connection"),
        Some("close"),
        "the length exceeds the drain limit"
    );
    client.assert_closed();

    // Without a length the limit is exceeded only while draining, after the response was sent.
    let mut client = Client::connect_and_send(&server, CHUNKED);
    assert_eq!(client.response().header("connection"), None);
    client.send(format!("800\r\n{}\r\n0\r\n\r\n", "x".repeat(0x800)));
    client.assert_closed();
    stop(server);
}

#[test]
fn slow_application_applies_backpressure() {
    // The application reads one chunk and then waits for `release`.
    let taken = Arc::new(AtomicUsize::new(0));
    let release = Arc::new(tokio::sync::Notify::new());
    let (count, released) = (taken.clone(), release.clone());
    let app = move |mut request: Request| {
        let (count, released) = (count.clone(), released.clone());
        async move {
            while let Some(chunk) = request.body().chunk().await? {
                if count.fetch_add(chunk.len(), SeqCst) == 0 {
                    released.notified().await;
                }
            }
            Ok::<_, Error>(Response::text(format!("{}", count.load(SeqCst))))
        }
    };
    let server = start_with(Settings { max_body_bytes: 1 << 30, ..Settings::default() }, app);
    let length = 64 << 20;
    let mut client = Client::connect_and_send(&server, post(length));
    client.socket().set_nonblocking(true).unwrap();
    // The kernel's buffers accept some data, then the client is blocked.
    let mut sent = 0;
    let block = vec![b'x'; 1 << 20];
    until("the client is blocked", || {
        match client.socket().write(&block[..block.len().min(length - sent)]) {
            Ok(n) => {
                sent += n;
                false
            }
            Err(_) => taken.load(SeqCst) > 0,
        }
    });
    assert!(sent < length, "all data was accepted although the application does not read");
    let before = taken.load(SeqCst);
    assert!(before <= 128 << 10, "{before} bytes were read for one chunk");
    release.notify_one();
    client.socket().set_nonblocking(false).unwrap();
    while sent < length {
        let part = block.len().min(length - sent);
        client.send(&block[..part]);
        sent += part;
    }
    assert_eq!(client.response().text(), length.to_string());
    stop(server);
}

#[test]
fn retained_request_body_blocks_only_its_own_connection() {
    let retained: Arc<Mutex<Vec<Body>>> = Arc::default();
    let app_retained = retained.clone();
    let app = move |request: Request| {
        let app_retained = app_retained.clone();
        async move {
            if *request.method() == Method::POST {
                app_retained.lock().unwrap().push(request.into_body());
            }
            Response::text("ok")
        }
    };
    let server = start(app);
    let mut client = Client::connect_and_send(&server, post(5));
    assert_eq!(client.response().text(), "ok");
    Client::connect(&server).assert_open("/");
    client.send("hello");
    client.get("/");
    // The next request is read only after the body is dropped.
    retained.lock().unwrap().clear();
    assert_eq!(client.response().text(), "ok");
    stop(server);
}

#[test]
fn sends_100_continue_only_when_the_application_reads() {
    let server = start(async |request: Request| match request.path() {
        "/unread" => Response::text("no, thanks"),
        _ => match request.into_body().collect(100).await {
            Ok(body) => Response::body(body),
            Err(error) => error.into(),
        },
    });
    let ask = |path: &str| {
        format!(
            "PUT {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-Continue\r\n\r\n"
        )
    };
    let mut client = Client::connect_and_send(&server, ask("/read"));
    assert_eq!(client.response().status, 100);
    client.send("hello");
    assert_eq!(client.response().text(), "hello");
    // A body that is sent without waiting needs no 100.
    client.send(ask("/read") + "hello");
    assert_eq!(client.response().status, 200);

    client.send(ask("/unread"));
    let response = client.response();
    assert_eq!((response.status, response.header("connection")), (200, Some("close")));
    client.assert_closed();
    stop(server);
}

#[test]
fn sends_100_continue_before_the_head_of_an_echo() {
    let server = start(echo);
    let head = "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n";
    let mut client = Client::connect_and_send(&server, head);
    assert_eq!(client.response().status, 100);
    client.send("hello");
    assert_eq!(client.response().text(), "hello");
    client.assert_open("/");
    stop(server);
}

#[test]
fn rejects_body_over_limit_with_and_without_length() {
    let settings = Settings { max_body_bytes: 10, ..Settings::default() };
    let server = start_with(settings, echo);
    for request in [post(11), format!("{CHUNKED}b\r\nhello world\r\n0\r\n\r\n")] {
        let mut client = Client::connect_and_send(&server, request);
        let response = client.response();
        assert_eq!((response.status, response.header("connection")), (413, Some("close")));
        client.assert_closed();
    }
    let mut client = Client::connect_and_send(&server, post(10) + "0123456789");
    assert_eq!(client.response().text(), "0123456789");
    stop(server);
}

// -- responses

#[test]
fn frames_responses_by_http_version() {
    let server = start(async |request: Request| {
        let mut parts = ["ab", "", "cde"].into_iter();
        let stream = Chunks(move |_: &mut Context<'_>| {
            Poll::Ready(parts.next().map(|part| Bytes::from_static(part.as_bytes())))
        });
        match request.path() {
            "/stream" => Response::body(Body::stream(stream)),
            "/sized" => {
                Response::body(Body::stream(stream)).with_header(header::CONTENT_LENGTH, "5")
            }
            "/none" => Response::new(StatusCode::NO_CONTENT),
            _ => Response::text("abcde"),
        }
    });
    for (request, framing, body, open) in [
        ("GET /stream HTTP/1.1", "transfer-encoding: chunked", "abcde", true),
        ("GET /stream HTTP/1.0", "connection: close", "abcde", false),
        ("GET /sized HTTP/1.1", "content-length: 5", "abcde", true),
        ("GET /bytes HTTP/1.0", "content-length: 5", "abcde", false),
        ("HEAD /stream HTTP/1.1", "transfer-encoding: chunked", "", true),
        ("HEAD /bytes HTTP/1.1", "content-length: 5", "", true),
        ("GET /none HTTP/1.1", "date: ", "", true),
    ] {
        let mut client = Client::connect_and_send(&server, format!("{request}\r\nHost: a\r\n\r\n"));
        let head_only = request.starts_with("HEAD");
        let response = if head_only { client.head() } else { client.response() };
        let lines: Vec<String> =
            response.headers.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        assert!(lines.iter().any(|line| line.starts_with(framing)), "{request}: {lines:?}");
        assert_eq!(response.text(), body, "{request}");
        if open { client.assert_open("/bytes") } else { client.assert_closed() }
    }
    stop(server);
}

#[test]
fn wrong_content_length_never_breaks_framing() {
    let server = start(async |request: Request| {
        let mut parts = ["abc", "def"].into_iter();
        let stream = Chunks(move |_: &mut Context<'_>| {
            Poll::Ready(parts.next().map(|part| Bytes::from_static(part.as_bytes())))
        });
        let response = match request.path() {
            "/bytes" => Response::text("abc"),
            _ => Response::body(Body::stream(stream)),
        };
        response.with_header(header::CONTENT_LENGTH, request.query().unwrap_or_default())
    });
    // A response that was not sent yet is replaced.
    for target in ["/bytes?4", "/bytes?2", "/bytes?x", "/stream?x", "/stream?5"] {
        let mut client = Client::connect(&server);
        client.get(target);
        let response = client.response();
        assert_eq!(
            (response.status, response.header("connection")),
            (500, Some("close")),
            "{target}"
        );
        client.assert_closed();
    }
    let mut client = Client::connect(&server);
    client.get("/stream?7");
    // The stream ended too early: a 500 if nothing was sent yet, otherwise a closed connection.
    assert_eq!(client.response().status, 500);
    client.assert_closed();
    stop(server);
}

#[test]
fn http_body_keeps_length_and_trailers() {
    struct Frames(Vec<http_body::Frame<Bytes>>);
    impl http_body::Body for Frames {
        type Data = Bytes;
        type Error = Error;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<http_body::Frame<Bytes>, Error>>> {
            Poll::Ready(self.0.pop().map(Ok))
        }
    }
    let server = start(async |_: Request| {
        let trailers = [(header::ETAG, weft::HeaderValue::from_static("\"x\""))];
        let trailers = http_body::Frame::trailers(trailers.into_iter().collect());
        let data = http_body::Frame::data(Bytes::from_static(b"abc"));
        Response::body(Body::from_http_body(Frames(vec![trailers, data])))
    });
    let mut client = Client::connect(&server);
    client.get("/");
    until("the response is received", || {
        client.read() > 0 && client.received().ends_with(b"\r\n\r\n")
    });
    assert!(client.received().ends_with(b"3\r\nabc\r\n0\r\netag: \"x\"\r\n\r\n"));
    assert_eq!(client.response().text(), "abc");
    stop(server);
}

#[test]
fn flushes_stream_when_it_is_pending() {
    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
    let receiver = Arc::new(Mutex::new(Some(receiver)));
    let server = start(move |_: Request| {
        let mut receiver: tokio::sync::mpsc::UnboundedReceiver<&'static str> =
            receiver.lock().unwrap().take().expect("one request");
        async move {
            let stream = Chunks(move |cx: &mut Context<'_>| {
                receiver.poll_recv(cx).map(|part| part.map(Bytes::from))
            });
            Response::body(Body::stream(stream))
        }
    });
    let mut client = Client::connect(&server);
    client.get("/");
    for part in ["first", "second"] {
        sender.send(part).unwrap();
        until("the part is received at once", || {
            client.read();
            client.received().ends_with(format!("{part}\r\n").as_bytes())
        });
    }
    drop(sender);
    assert_eq!(client.response().text(), "firstsecond");
    stop(server);
}

#[test]
fn pipelined_responses_are_in_order_and_not_delayed_by_later_requests() {
    let release = Arc::new(tokio::sync::Notify::new());
    let released = release.clone();
    let server = start(move |request: Request| {
        let released = released.clone();
        async move {
            if request.path() == "/slow" {
                released.notified().await;
            }
            Response::text(request.target().to_owned())
        }
    });
    let mut client = Client::connect(&server);
    let requests = ["/1", "/2", "/slow", "/3"];
    let heads = requests.map(|target| format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
    client.send(heads.concat());
    assert_eq!(client.response().text(), "/1");
    assert_eq!(client.response().text(), "/2");
    assert!(client.received().is_empty());
    release.notify_one();
    assert_eq!(client.response().text(), "/slow");
    assert_eq!(client.response().text(), "/3");
    stop(server);
}

#[test]
fn sends_large_and_small_bodies_completely() {
    let server = start(async |request: Request| {
        let length: usize = request.path()[1..].parse().unwrap();
        Response::body((0..length).map(|i| i as u8).collect::<Vec<u8>>())
    });
    let lengths = [0, 1, 16_383, 16_384, 16_385, 32_768, 5_000_000, 3, 100_000, 7];
    let mut client = Client::connect(&server);
    for length in lengths {
        client.get(&format!("/{length}"));
    }
    for length in lengths {
        let body = client.response().body;
        assert_eq!(body.len(), length);
        assert!(body.iter().enumerate().all(|(i, &b)| b == i as u8), "{length}");
    }
    stop(server);
}

// -- failures

/// Hooks that record every call.
#[derive(Clone, Default)]
struct EventLog(Arc<Mutex<Vec<String>>>);

impl EventLog {
    fn push(&self, event: String) {
        self.0.lock().unwrap().push(event);
    }

    fn contains(&self, event: &str) -> bool {
        self.0.lock().unwrap().iter().any(|recorded| recorded == event)
    }
}

impl Hooks for EventLog {
    fn on_open(&self, peer: &Peer) -> bool {
        self.push(format!("opened {}", peer.address().is_some()));
        true
    }

    fn on_close(&self, _: &Peer) {
        self.push("closed".to_owned());
    }

    fn on_error(&self, _: &Peer, error: &Error) {
        self.push(format!("{:?} {:?}", error.kind().fault(), error.kind()));
    }

    fn on_response(&self, record: &Record<'_>) {
        let target = record.head.map_or("-", |head| head.target());
        self.push(format!("{target} {} {}", record.status.as_u16(), record.body_bytes));
    }
}

#[test]
fn panic_closes_one_connection_and_is_reported() {
    let events = EventLog::default();
    let server = boxed_server(async |request: Request| match request.path() {
        "/panic" => panic!("on purpose"),
        "/late" => Response::body(Body::stream(Chunks(|_: &mut Context<'_>| panic!("on purpose")))),
        _ => Response::text("ok"),
    });
    let hooks = events.clone();
    let server = server.hooks(move || hooks.clone()).workers(1);
    let server = server.listen("127.0.0.1:0").unwrap().start().unwrap();
    let mut other = Client::connect(&server);
    other.assert_open("/");
    for target in ["/panic", "/late"] {
        let mut client = Client::connect(&server);
        client.get(target);
        let response = client.response();
        assert_eq!((response.status, response.header("connection")), (500, Some("close")));
        assert!(
            !response.text().contains("purpose"),
            "the response reveals an internal error message"
        );
        client.assert_closed();
        other.assert_open("/");
    }
    Client::connect_and_send(&server, "nonsense\r\n\r\n").response();
    for event in [
        "opened true",
        "closed",
        "Application Panicked",
        "/panic 500 26",
        "/ 200 2",
        "Peer Malformed",
    ] {
        until(event, || events.contains(event));
    }
    assert_eq!(ErrorKind::Panicked.fault(), Fault::Application);
    stop(server);
}

/// An application that never responds to `/wait`; each call holds a clone of `alive`.
fn waiting_app(alive: &CloneCounter) -> impl Application + Clone + Send + use<> {
    let alive = alive.clone();
    move |request: Request| {
        // Each call has a counted clone.
        let call_guard = Arc::new(alive.clone());
        async move {
            let _call_guard = call_guard;
            if request.path() == "/wait" {
                pending::<()>().await;
            }
            Response::text("ok")
        }
    }
}

#[test]
fn client_disconnect_cancels_the_call() {
    let alive = CloneCounter::new();
    let server = start(waiting_app(&alive));
    let idle = alive.count();
    let mut client = Client::connect(&server);
    client.get("/wait");
    until("the call starts", || alive.count() > idle);
    // A pipelined request does not cancel the call.
    client.get("/");
    drop(client);
    until("the call is dropped", || alive.count() == idle);
    stop(server);
}

#[test]
fn detached_call_responds_after_half_close() {
    let release = Arc::new(tokio::sync::Notify::new());
    let released = release.clone();
    let settings = Settings { disconnect: Disconnect::Detach, ..Settings::default() };
    let server = start_with(settings, move |_: Request| {
        let released = released.clone();
        async move {
            released.notified().await;
            Response::text("still here")
        }
    });
    let mut client = Client::connect(&server);
    client.get("/");
    client.half_close();
    release.notify_one();
    assert_eq!(client.response().text(), "still here");
    client.assert_closed();
    stop(server);
}

/// A detached call does not need the socket of its connection.
#[test]
fn detached_call_does_not_keep_a_broken_connection_open() {
    let release = Arc::new(tokio::sync::Notify::new());
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
    // Also with a request that waits behind it.
    for (number, requests) in [1, 2].into_iter().enumerate() {
        let mut client = Client::connect(&server);
        (0..requests).for_each(|_| client.get("/"));
        until("the call starts", || started.load(SeqCst) == number + 1);
        let socket = common::ServerSocket::of(client.socket());
        common::reset_on_close(client.socket());
        drop(client);
        until("the socket is closed", || !socket.is_open());
    }
    assert_eq!(ended.load(SeqCst), 0);
    until("both calls complete", || {
        release.notify_waiters();
        ended.load(SeqCst) == 2
    });
    assert_eq!(started.load(SeqCst), 2);
    stop(server);
}

#[test]
fn client_disconnect_drops_the_response_stream() {
    let alive = CloneCounter::new();
    let app_guard = alive.clone();
    let server = start(move |_: Request| {
        let stream_guard = app_guard.clone();
        async move {
            let mut parts = Some(Bytes::from_static(b"first"));
            let stream = Chunks(move |_: &mut Context<'_>| {
                let _ = &stream_guard;
                parts.take().map_or(Poll::Pending, |part| Poll::Ready(Some(part)))
            });
            Response::body(Body::stream(stream))
        }
    });
    let idle = alive.count();
    let mut client = Client::connect(&server);
    client.get("/");
    until("the stream starts", || client.read() > 0 && client.received().ends_with(b"first\r\n"));
    assert!(alive.count() > idle);
    drop(client);
    until("the stream is dropped", || alive.count() == idle);
    stop(server);
}

// -- timeouts

#[test]
fn incomplete_head_gets_408_at_the_head_timeout() {
    let server = start_with(short_timeouts(), echo);
    let mut silent = Client::connect(&server);
    let client = Client::connect_and_send(&server, "GET / HTTP/1.1\r\n");
    client.socket().set_nonblocking(true).unwrap();
    // Each byte is progress, but the deadline is absolute.
    until("the server responds with 408", || {
        std::thread::sleep(Duration::from_millis(20));
        let _ = client.socket().write(b"a");
        let mut one = [0; 12];
        client.socket().read(&mut one).is_ok_and(|n| &one[..n] == b"HTTP/1.1 408")
    });
    // Without a request there is no response.
    silent.assert_closed();
    stop(server);
}

#[test]
fn closes_idle_connection_after_timeout() {
    let server = start_with(short_timeouts(), echo);
    let mut client = Client::connect(&server);
    client.assert_open("/");
    client.assert_closed();
    stop(server);
}

#[test]
fn stalled_body_times_out_and_slow_body_does_not() {
    let server = start_with(short_timeouts(), echo);
    let mut client = Client::connect_and_send(&server, post(100) + "some");
    until("the connection is closed", || client.read() == 0);
    assert!(client.received().ends_with(b"some"), "{}", client.received().escape_ascii());

    // Slow, but above the minimum rate, for longer than the stall timeout. The attempt is repeated
    // if the machine delayed the client.
    until("a slow body is read", || {
        let begin = Instant::now();
        let mut longest = Duration::ZERO;
        let mut client = Client::connect_and_send(&server, post(4000));
        for _ in 0..40 {
            let sent = Instant::now();
            std::thread::sleep(Duration::from_millis(20));
            if client.socket().write_all(&[b'x'; 100]).is_err() {
                break;
            }
            longest = longest.max(sent.elapsed());
        }
        let is_complete = client.read() > 0 && client.received().starts_with(b"HTTP/1.1 200");
        assert!(is_complete || longest > SHORT_TIMEOUT / 2, "timed out although data was sent");
        is_complete && begin.elapsed() > SHORT_TIMEOUT
    });
    stop(server);
}

#[test]
fn slow_handler_does_not_time_out() {
    let server = start_with(short_timeouts(), async |_: Request| {
        tokio::time::sleep(3 * SHORT_TIMEOUT).await;
        Response::text("at last")
    });
    let mut client = Client::connect(&server);
    client.get("/");
    assert_eq!(client.response().text(), "at last");
    stop(server);
}

#[test]
fn slow_reading_client_receives_the_full_response() {
    const LENGTH: usize = 16 << 20;
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&vec![b'x'; LENGTH]).unwrap();
    let file = weft::File::open(file).unwrap();
    let settings = Settings { stall_timeout: 2 * SHORT_TIMEOUT, ..short_timeouts() };
    let server = start_with(settings.clone(), move |request: Request| {
        let response = match request.path() {
            "/file" => Response::file(file.clone()),
            _ => Response::body(vec![b'x'; LENGTH]),
        };
        async { response }
    });
    for target in ["/file", "/bytes"] {
        // Far above the minimum rate, but the kernel does not report the socket as writable for
        // longer than the stall timeout. The attempt is repeated if the machine delayed the client.
        until("the full response is received", || {
            let mut client = Client::connect(&server);
            client.get(target);
            let (begin, mut last, mut longest) = (Instant::now(), Instant::now(), Duration::ZERO);
            let (mut received, mut piece) = (0, [0; 4 << 10]);
            while begin.elapsed() < 4 * settings.stall_timeout {
                std::thread::sleep(Duration::from_millis(20));
                received += client.socket().read(&mut piece).unwrap_or(0);
                longest = longest.max(last.elapsed());
                last = Instant::now();
            }
            received += std::io::copy(&mut client.socket().take(u64::MAX), &mut std::io::sink())
                .unwrap_or(0) as usize;
            let is_complete = received > LENGTH;
            assert!(
                is_complete || longest > SHORT_TIMEOUT,
                "{target} closed after {received} bytes"
            );
            is_complete
        });
    }
    stop(server);
}

#[test]
fn closes_client_that_does_not_read_with_bounded_memory() {
    let produced = Arc::new(AtomicUsize::new(0));
    let alive = CloneCounter::new();
    let (count, app_guard) = (produced.clone(), alive.clone());
    let server = start_with(short_timeouts(), move |_: Request| {
        let (count, stream_guard) = (count.clone(), app_guard.clone());
        async move {
            let stream = Chunks(move |_: &mut Context<'_>| {
                let _ = &stream_guard;
                count.fetch_add(16_000, SeqCst);
                Poll::Ready(Some(Bytes::from_static(&[b'x'; 16_000])))
            });
            Response::body(Body::stream(stream))
        }
    });
    let idle = alive.count();
    let mut client = Client::connect(&server);
    client.get("/");
    until("the stream starts", || alive.count() > idle);
    until("the stream is dropped", || alive.count() == idle);
    let produced = produced.load(SeqCst);
    // Bounded by the kernel's socket buffers on both sides.
    assert!(produced < 32 << 20, "{produced} bytes were produced");
    stop(server);
}

// -- limits

#[test]
fn closes_connection_after_max_requests() {
    let settings = Settings { max_requests: 3, ..Settings::default() };
    let server = start_with(settings, echo);
    let mut client = Client::connect(&server);
    for connection in [None, None, Some("close")] {
        client.get("/");
        assert_eq!(client.response().header("connection"), connection);
    }
    client.assert_closed();
    stop(server);
}

#[test]
fn limits_connections_per_peer() {
    let settings = Settings { max_connections_per_peer: 2, ..Settings::default() };
    let server = start_with(settings, echo);
    let (mut first, mut second) = (Client::connect(&server), Client::connect(&server));
    first.assert_open("/");
    second.assert_open("/");
    let mut third = Client::connect(&server);
    assert_eq!(third.response().status, 503);
    drop(first);
    until("a permit is free", || {
        let mut client = Client::connect(&server);
        client.get("/");
        client.response().status == 200
    });
    stop(server);
}

#[test]
fn rejected_connections_linger() {
    let settings = Settings { max_connections_per_peer: 1, ..Settings::default() };
    let server = start_with(settings, echo);
    let mut first = Client::connect(&server);
    first.assert_open("/");
    let rejected = || {
        let mut client = TcpStream::connect(common::address(&server))?;
        client.set_read_timeout(Some(common::TEST_TIMEOUT))?;
        let mut status = [0; 12];
        client.read_exact(&mut status)?;
        assert_eq!(&status, b"HTTP/1.1 503");
        std::io::Result::Ok(client)
    };
    // The request arrives after the response, and is no reason for a reset.
    let exchange = || {
        let (mut client, mut rest) = (rejected()?, String::new());
        client.read_to_string(&mut rest)?;
        for byte in format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(5_000)).bytes() {
            client.write_all(&[byte])?;
        }
        std::io::Result::Ok(rest)
    };
    // This thread may wait for the CPU for longer than a connection lingers.
    let response = exchange().or_else(|_| exchange()).or_else(|_| exchange());
    let response = response.expect("the connection is not reset");
    assert!(response.ends_with("Too many connections from one client\n"), "{response}");

    // A client may neither send without an end nor keep the connection.
    let mut endless = rejected().unwrap();
    assert!((0..1024).any(|_| endless.write_all(&[b'x'; 64 << 10]).is_err()), "64 MiB");
    let mut silent = rejected().unwrap();
    until("the connection is closed", || silent.write_all(b"x").is_err());
    first.assert_open("/");
    stop(server);
}

// -- shutdown

#[test]
fn shutdown_finishes_active_requests_and_closes_idle_connections() {
    let release = Arc::new(tokio::sync::Notify::new());
    let released = release.clone();
    let server = start(move |request: Request| {
        let released = released.clone();
        async move {
            if request.path() == "/slow" {
                released.notified().await;
            }
            Response::text("done")
        }
    });
    let address = common::address(&server);
    let (mut idle, mut busy) = (Client::connect(&server), Client::connect(&server));
    idle.assert_open("/");
    busy.assert_open("/");
    busy.get("/slow");
    let stopping = std::thread::spawn(move || server.shutdown(common::TEST_TIMEOUT));
    idle.assert_closed();
    until("connections are refused", || std::net::TcpStream::connect(address).is_err());
    release.notify_one();
    let response = busy.response();
    assert_eq!((response.text(), response.header("connection")), ("done", Some("close")));
    busy.assert_closed();
    stopping.join().unwrap();
}

#[test]
fn shutdown_serves_connections_in_the_listen_queue() {
    let started = Arc::new(AtomicUsize::new(0));
    let count = started.clone();
    let (release, released) = std::sync::mpsc::channel::<()>();
    let released = Arc::new(Mutex::new(released));
    let server = start(move |request: Request| {
        count.fetch_add(1, SeqCst);
        if request.path() == "/block" {
            // The worker thread is blocked and does not accept connections.
            let _ = released.lock().unwrap().recv();
        }
        async { Response::text("ok") }
    });
    let mut first = Client::connect(&server);
    first.get("/block");
    until("the worker is blocked", || started.load(SeqCst) == 1);
    let mut others: Vec<Client> = (0..20).map(|_| Client::connect(&server)).collect();
    others.iter_mut().for_each(|client| client.get("/"));
    let stopping = std::thread::spawn(move || server.shutdown(common::TEST_TIMEOUT));
    release.send(()).unwrap();
    for client in std::iter::once(&mut first).chain(&mut others) {
        assert_eq!(client.response().status, 200);
        client.assert_closed();
    }
    stopping.join().unwrap();
}

#[test]
fn shutdown_aborts_requests_after_the_grace_period() {
    let alive = CloneCounter::new();
    let server = start(waiting_app(&alive));
    let idle = alive.count();
    let mut client = Client::connect(&server);
    client.get("/wait");
    until("the call starts", || alive.count() > idle);
    server.shutdown(Duration::from_millis(50));
    client.assert_closed();
}

#[test]
fn shutdown_handle_shortens_a_running_shutdown() {
    let server = start(async |request: Request| match request.path() {
        "/wait" => pending().await,
        _ if request.shutdown().is_requested() => Response::text("shutting down"),
        _ => Response::text("running"),
    });
    let (shutdown_handle, address) = (server.shutdown_handle(), common::address(&server));
    let (mut idle, mut busy) = (Client::connect(&server), Client::connect(&server));
    busy.get("/wait");
    shutdown_handle.set_deadline(Duration::ZERO);
    idle.get("/");
    assert_eq!(idle.response().text(), "running", "a deadline alone does not start a shutdown");
    let stopping =
        std::thread::spawn(move || server.drain_after_handover(Duration::MAX, Duration::MAX));
    until("connections are refused", || std::net::TcpStream::connect(address).is_err());
    shutdown_handle.set_deadline(Duration::from_millis(50));
    idle.assert_closed();
    busy.assert_closed();
    stopping.join().unwrap();
}

#[test]
fn shutdown_uses_the_shorter_of_both_deadlines() {
    const SOON: Duration = Duration::from_millis(50);
    for (grace, deadline) in [(Duration::MAX, SOON), (SOON, Duration::MAX)] {
        let alive = CloneCounter::new();
        let server = start(waiting_app(&alive));
        let idle = alive.count();
        let mut client = Client::connect(&server);
        client.get("/wait");
        until("the call starts", || alive.count() > idle);
        // Set before the shutdown starts.
        server.shutdown_handle().set_deadline(deadline);
        let stopping = std::thread::spawn(move || server.shutdown(grace));
        client.assert_closed();
        stopping.join().unwrap();
    }
}

#[test]
fn workers_listen_on_their_own_sockets_with_reuse_port() {
    let settings = Settings { reuse_port: true, ..Settings::default() };
    let server = Server::new(echo).settings(settings).workers(3);
    let server = server.listen("127.0.0.1:0").unwrap().start().unwrap();
    for _ in 0..50 {
        Client::connect(&server).assert_open("/");
    }
    let mut idle = Client::connect(&server);
    idle.assert_open("/");
    stop(server);
    idle.assert_closed();
}

#[test]
fn connections_are_distributed_evenly_among_workers() {
    let server = boxed_server(async |_: Request| {
        Response::text(std::thread::current().name().unwrap_or("?").to_owned())
    });
    let server = server.workers(3).listen("127.0.0.1:0").unwrap().start().unwrap();
    let mut clients: Vec<Client> = (0..9).map(|_| Client::connect(&server)).collect();
    let mut names: Vec<String> = clients
        .iter_mut()
        .map(|client| {
            client.get("/");
            client.response().text().to_owned()
        })
        .collect();
    names.sort();
    let three = |name: &str| vec![name.to_owned(); 3];
    assert_eq!(names, [three("weft-0"), three("weft-1"), three("weft-2")].concat());
    stop(server);
}

#[test]
fn shutdown_notifies_response_streams() {
    let server = start(async |request: Request| {
        let mut shutdown = request.shutdown();
        assert!(!shutdown.is_requested());
        let mut parts = vec![Bytes::from_static(b"goodbye"), Bytes::from_static(b"hello ")];
        let mut wait = Box::pin(async move { shutdown.requested().await });
        Response::body(Body::stream(Chunks(move |cx: &mut Context<'_>| {
            if parts.len() == 1 && wait.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            Poll::Ready(parts.pop())
        })))
    });
    let mut client = Client::connect(&server);
    client.get("/");
    until("the stream starts", || client.read() > 0 && client.received().ends_with(b"hello \r\n"));
    server.shutdown(common::TEST_TIMEOUT);
    assert_eq!(client.response().text(), "hello goodbye");
}

// -- interim responses

#[test]
fn sends_early_hints_before_a_slow_response() {
    let release = Arc::new(tokio::sync::Notify::new());
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
    let mut client = Client::connect(&server);
    client.get("/slow");
    let hints = client.response();
    assert_eq!(hints.status, 103);
    let links: Vec<&str> = hints.headers.iter().map(|(_, value)| value.as_str()).collect();
    assert_eq!(links, ["</a.css>; rel=preload", "</b>  x: y"]);
    release.notify_one();
    assert_eq!(client.response().status, 200);
    client.get("/fast");
    assert_eq!((client.response().status, client.response().status), (103, 200));
    // RFC 9110 §15.2: interim responses are not sent to an HTTP/1.0 client.
    let mut client = Client::connect_and_send(&server, "GET /fast HTTP/1.0\r\n\r\n");
    assert_eq!(client.response().status, 200);
    stop(server);
}

#[test]
fn late_early_hints_are_not_sent_to_the_next_request() {
    let server = start(async |request: Request| match request.path() {
        "/late" => {
            let mut is_over = false;
            Response::body(Body::stream(Chunks(move |_: &mut Context<'_>| {
                if std::mem::replace(&mut is_over, true) {
                    request.early_hints(["</late>"]);
                    return Poll::Ready(None);
                }
                Poll::Ready(Some(Bytes::from_static(b"body")))
            })))
        }
        _ => Response::text("ok"),
    });
    let mut client = Client::connect(&server);
    client.get("/late");
    assert_eq!(client.response().text(), "body");
    client.get("/next");
    assert_eq!((client.response().status, client.received()), (200, &b""[..]));
    stop(server);
}

/// The application keeps a request beyond its response, in which it could send interim responses for
/// the next request of the connection.
#[test]
fn kept_request_sends_no_early_hints_for_the_next_one() {
    let kept = Arc::new(Mutex::new(None));
    let server = start(move |request: Request| {
        let kept = kept.clone();
        async move {
            if request.path() == "/keep" {
                *kept.lock().unwrap() = Some(request);
                return Response::text("kept");
            }
            if let Some(earlier) = kept.lock().unwrap().take() {
                earlier.early_hints(["</earlier>"]);
                earlier.interim(Response::new(StatusCode::PROCESSING));
            }
            // Interim responses are sent when the call is pending.
            tokio::task::yield_now().await;
            Response::text("ok")
        }
    });
    let mut client = Client::connect(&server);
    client.get("/keep");
    assert_eq!(client.response().text(), "kept");
    client.get("/next");
    assert_eq!((client.response().status, client.received()), (200, &b""[..]));
    stop(server);
}

// -- the PROXY protocol

#[test]
fn proxy_protocol_sets_the_peer_address() {
    let settings = Settings {
        proxy_protocol: vec!["127.0.0.0/8".parse().unwrap()],
        max_connections_per_peer: 1,
        ..short_timeouts()
    };
    let server = start_with(settings, async |request: Request| {
        Response::text(request.peer().address().map_or("?".to_owned(), |peer| peer.to_string()))
    });
    let preface = "PROXY TCP4 192.0.2.7 192.0.2.8 1234 80\r\n";
    let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut whole = Client::connect_and_send(&server, format!("{preface}{get}{get}"));
    assert_eq!(whole.response().text(), "192.0.2.7:1234");
    assert_eq!(whole.response().text(), "192.0.2.7:1234");

    let mut pieces = Client::connect(&server);
    pieces.socket().set_nodelay(true).unwrap();
    for byte in format!("{preface}{get}").bytes() {
        pieces.send([byte]);
    }
    assert_eq!(pieces.response().text(), "192.0.2.7:1234");

    // A connection without a PROXY header, or without any input, is closed.
    Client::connect_and_send(&server, get).assert_closed();
    Client::connect(&server).assert_closed();
    stop(server);

    let server = start(echo);
    assert_eq!(Client::connect_and_send(&server, format!("{preface}{get}")).response().status, 400);
    stop(server);
}

// -- regressions

#[test]
fn closes_client_that_pipelines_without_reading() {
    // The application is pending once per request, so that the connection task runs in between:
    // timeouts and memory bounds must apply there, too.
    for request in ["GET", "HEAD"].map(|m| format!("{m} / HTTP/1.1\r\nHost: a\r\n\r\n")) {
        let server = start_with(short_timeouts(), async |_: Request| {
            tokio::task::yield_now().await;
            Response::text("x".repeat(5_000))
        });
        let client = Client::connect(&server);
        client.socket().set_nonblocking(true).unwrap();
        let requests = request.repeat(500);
        until("the connection is closed", || match client.socket().write(requests.as_bytes()) {
            Ok(_) => false,
            Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
        });
        stop(server);
    }
}

#[test]
fn closes_connection_when_100_continue_is_abandoned() {
    let server = start(async |mut request: Request| {
        std::future::poll_fn(|cx| {
            let _ = request.body().poll_chunk(cx);
            Poll::Ready(())
        })
        .await;
        Response::text("never mind")
    });
    let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 40\r\nExpect: 100-continue\r\n\r\n";
    let mut client = Client::connect_and_send(&server, head);
    let response = client.response();
    assert_eq!((response.status, response.header("connection")), (200, Some("close")));
    client.assert_closed();
    stop(server);
}

#[test]
fn closes_connection_despite_a_retained_body() {
    let retained: Arc<Mutex<Vec<Body>>> = Arc::default();
    let app_retained = retained.clone();
    let server = start(move |request: Request| {
        app_retained.lock().unwrap().push(request.into_body());
        async { Response::text("bye") }
    });
    let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nConnection: close\r\n\r\n";
    let mut client = Client::connect_and_send(&server, head);
    assert_eq!(client.response().text(), "bye");
    client.assert_closed();
    let mut body = retained.lock().unwrap().pop().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let read = runtime.block_on(body.chunk());
    assert!(matches!(
        read.unwrap_err().kind(),
        ErrorKind::Disconnected | ErrorKind::BodyIncomplete
    ));
    stop(server);
}

#[test]
fn application_body_limit_applies_to_buffered_and_later_data() {
    let server = start(async |mut request: Request| {
        request.body().set_limit(10);
        Ok::<_, Error>(Response::body(request.into_body().collect(1000).await?))
    });
    for (length, status) in [(10, 200), (11, 413)] {
        let mut whole = Client::connect_and_send(&server, post(length) + &"x".repeat(length));
        let mut later = Client::connect_and_send(&server, post(length));
        assert_eq!(whole.response().status, status);
        if status == 200 {
            later.send("x".repeat(length));
        }
        assert_eq!(later.response().status, status);
    }
    stop(server);
}

#[test]
fn completes_response_while_client_is_uploading() {
    // The application stops reading while the response is being sent.
    let server = start(async |request: Request| {
        let mut body = Some(request.into_body());
        let mut remaining = 100;
        let stream = Chunks(move |cx: &mut Context<'_>| {
            if let Some(reading) = &mut body {
                if reading.poll_chunk(cx).is_pending() {
                    return Poll::Pending;
                }
                body = None;
            }
            remaining -= 1;
            Poll::Ready((remaining > 0).then(|| Bytes::from_static(&[b'y'; 1000])))
        });
        Response::body(Body::stream(stream))
    });
    let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3000000\r\nConnection: close\r\n\r\n";
    let mut client = Client::connect_and_send(&server, head);
    let mut socket = client.socket().try_clone().unwrap();
    // Fails when the server closes the connection.
    let sending = std::thread::spawn(move || drop(socket.write_all(&[b'x'; 3_000_000])));
    assert_eq!(client.response().body.len(), 99_000);
    sending.join().unwrap();
    stop(server);
}

#[test]
fn shutdown_does_not_wait_for_blocking_tasks() {
    let (release, released) = std::sync::mpsc::channel::<()>();
    let released = Arc::new(Mutex::new(released));
    let started = Arc::new(AtomicUsize::new(0));
    let count = started.clone();
    let server = start(move |_: Request| {
        let (released, count) = (released.clone(), count.clone());
        async move {
            let wait = move || {
                count.fetch_add(1, SeqCst);
                let _ = released.lock().unwrap().recv();
            };
            tokio::task::spawn_blocking(wait).await.unwrap();
            Response::text("at last")
        }
    });
    let mut client = Client::connect(&server);
    client.get("/");
    until("the call starts", || started.load(SeqCst) == 1);
    server.shutdown(Duration::from_millis(50));
    client.assert_closed();
    drop(release);
}

#[test]
fn application_can_close_the_connection() {
    let server =
        start(async |_: Request| Response::text("bye").with_header(header::CONNECTION, "close"));
    let mut client = Client::connect(&server);
    client.get("/");
    assert_eq!(client.response().header("connection"), Some("close"));
    client.half_close();
    client.assert_closed();
    stop(server);
}

#[test]
fn truncated_http10_response_ends_in_a_reset() {
    // For an HTTP/1.0 client the end of the connection ends the response, so a truncated response
    // must end in a reset.
    let server = start(async |request: Request| {
        let mut body = Some(request.into_body());
        let mut parts = vec!["first"].into_iter();
        let stream = Chunks(move |_: &mut Context<'_>| match parts.next() {
            Some(part) => Poll::Ready(Some(Bytes::from(part))),
            None if body.is_some() => {
                // The body is still held when the stream fails.
                std::mem::forget(body.take());
                panic!("on purpose")
            }
            None => Poll::Ready(None),
        });
        // Large enough to be sent before the failure.
        let head = Chunks({
            let mut whole = Some(Bytes::from(vec![b'x'; 40_000]));
            move |_: &mut Context<'_>| Poll::Ready(whole.take())
        });
        Response::body(Body::stream(Chain(head, stream)))
    });
    for request in ["GET / HTTP/1.0\r\n\r\n", "POST / HTTP/1.0\r\nContent-Length: 5\r\n\r\n"] {
        let client = Client::connect_and_send(&server, request);
        let mut buffer = [0; 65536];
        let end = loop {
            match client.socket().read(&mut buffer) {
                Ok(0) => break None,
                Ok(_) => {}
                Err(error) => break Some(error.kind()),
            }
        };
        assert_eq!(end, Some(std::io::ErrorKind::ConnectionReset), "{request}");
    }
    stop(server);
}

/// A stream followed by another.
struct Chain<A, B>(A, B);

impl<A, B> futures_core::Stream for Chain<A, B>
where
    A: futures_core::Stream<Item = Result<Bytes, Error>> + Unpin,
    B: futures_core::Stream<Item = Result<Bytes, Error>> + Unpin,
{
    type Item = Result<Bytes, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match Pin::new(&mut self.0).poll_next(cx) {
            Poll::Ready(None) => Pin::new(&mut self.1).poll_next(cx),
            other => other,
        }
    }
}
