//! Server-sent events, tested over real sockets.
#![cfg(all(feature = "brotli", feature = "gzip", feature = "sse", feature = "zstd"))]

use std::io::Read;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::common::{self, Client, boxed_server, stop, until};
use weft::middleware::Compress;
use weft::server::ServerHandle;
use weft::sse::{self, Event, Sender};
use weft::{Application, Request, Response};

fn start(app: impl Application + Clone + Send + 'static) -> ServerHandle {
    boxed_server(app).workers(1).listen("127.0.0.1:0").unwrap().start().unwrap()
}

/// Event senders of the responses so far.
type Senders = Arc<Mutex<Vec<Sender>>>;

/// An application that responds with events sent by the test.
fn channels(settings: sse::SseSettings) -> (impl Application + Clone + Send + 'static, Senders) {
    let senders = Senders::default();
    let recorded = senders.clone();
    let app = move |request: Request| {
        let (sender, response) = settings.clone().channel(&request);
        recorded.lock().unwrap().push(sender);
        async { response }
    };
    (app, senders)
}

/// Waits until a response begins, and takes its sender.
#[track_caller]
fn sender(senders: &Senders) -> Sender {
    until("a response begins", || !senders.lock().unwrap().is_empty());
    senders.lock().unwrap().remove(0)
}

/// Sends an event from this thread. Returns false if the response has ended.
fn send(sender: &Sender, event: Event) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(sender.send(event)).is_ok()
}

/// The body received so far, without the chunked framing.
fn text(client: &Client) -> String {
    let received = String::from_utf8(client.received().to_vec()).unwrap();
    let body = received.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    let lines = body.split("\r\n").skip(1).step_by(2);
    lines.collect()
}

#[track_caller]
fn assert_receives(client: &mut Client, expected: &str) {
    until("the text arrives", || {
        client.read();
        text(client).len() >= expected.len()
    });
    assert_eq!(text(client), expected);
}

#[test]
fn sends_each_event_immediately() {
    let (app, senders) = channels(sse::SseSettings::default());
    let server = start(app);
    let mut client = Client::connect(&server);
    client.get("/");
    let sender = sender(&senders);
    // The head is sent before any event, so that browsers report the connection as open.
    until("the head arrives", || client.read() > 0 && client.received().ends_with(b"\r\n\r\n"));
    let mut expected = String::new();
    for number in 1..=3 {
        assert!(send(&sender, Event::data(format!("a\n{number}")).id(number.to_string())));
        expected += &format!("id: {number}\ndata: a\ndata: {number}\n\n");
        assert_receives(&mut client, &expected);
    }
    drop(sender);
    let response = client.response();
    assert_eq!(response.text(), expected);
    assert_eq!(response.header("content-type"), Some("text/event-stream"));
    assert_eq!(response.header("cache-control"), Some("no-cache"));
    stop(server);
}

#[test]
fn sends_compressed_events_immediately() {
    for coding in ["br", "zstd", "gzip"] {
        let (app, senders) = channels(sse::SseSettings::default());
        let server = start(app.wrap(Compress::new()));
        // Responses to HTTP/1.0 requests are not chunked.
        let request = format!("GET / HTTP/1.0\r\nAccept-Encoding: {coding}\r\n\r\n");
        let mut client = Client::connect_and_send(&server, request);
        let sender = sender(&senders);
        let mut expected = String::new();
        for number in 1..=3 {
            assert!(send(&sender, Event::data(number.to_string())));
            expected += &format!("data: {number}\n\n");
            until("the event arrives", || {
                client.read();
                decoded_so_far(coding, client.received()) == expected
            });
        }
        stop(server);
    }
}

/// Decodes the part of a response that has been received.
fn decoded_so_far(coding: &str, received: &[u8]) -> String {
    let Some(response) = common::Response::parse(received, false) else { return String::new() };
    assert_eq!(response.header("content-encoding"), Some(coding));
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
fn sends_comments_while_idle() {
    let keep_alive = Duration::from_millis(50);
    let (app, senders) = channels(sse::SseSettings { keep_alive, ..Default::default() });
    let server = start(app);
    let begin = Instant::now();
    let mut client = Client::connect(&server);
    client.get("/");
    let sender = sender(&senders);
    assert_receives(&mut client, ":\n\n:\n\n:\n\n");
    assert!(begin.elapsed() >= 3 * keep_alive, "comments were sent too early");
    assert!(send(&sender, Event::data("a")));
    until("the event arrives, and a comment after it", || {
        client.read();
        text(&client).ends_with("data: a\n\n:\n\n")
    });
    stop(server);
}

#[test]
fn sender_detects_a_client_disconnect() {
    let (app, senders) = channels(sse::SseSettings::default());
    let server = start(app);
    let mut client = Client::connect(&server);
    client.get("/");
    let sender = sender(&senders);
    assert!(send(&sender, Event::data("a")));
    assert_receives(&mut client, "data: a\n\n");
    drop(client);
    // `closed` detects it without an event to send.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let closed = async { tokio::time::timeout(common::TEST_TIMEOUT, sender.closed()).await };
    runtime.block_on(closed).expect("the sender is closed");
    assert!(!send(&sender, Event::data("b")));
    stop(server);
}

#[test]
fn drops_the_stream_when_the_client_disconnects() {
    /// A stream that is always pending. Its reference count shows when it is dropped.
    struct Never(#[allow(dead_code, reason = "counted by `Arc::strong_count`")] Arc<()>);
    impl futures_core::Stream for Never {
        type Item = Event;

        fn poll_next(
            self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Event>> {
            std::task::Poll::Pending
        }
    }
    let counted = Arc::new(());
    let count = counted.clone();
    let settings = sse::SseSettings { keep_alive: Duration::MAX, ..Default::default() };
    let server = start(move |request: Request| {
        let response = settings.clone().stream(&request, Never(count.clone()));
        async { response }
    });
    let idle = Arc::strong_count(&counted);
    let mut client = Client::connect(&server);
    client.get("/");
    until("the stream is created", || Arc::strong_count(&counted) > idle);
    drop(client);
    until("the stream is dropped", || Arc::strong_count(&counted) == idle);
    stop(server);
}

#[test]
fn shutdown_ends_the_response_without_waiting() {
    let (app, senders) = channels(sse::SseSettings::default());
    let server = start(app);
    let mut client = Client::connect(&server);
    client.get("/");
    let sender = sender(&senders);
    assert!(send(&sender, Event::data("a")));
    assert_receives(&mut client, "data: a\n\n");
    let begin = Instant::now();
    server.shutdown(Duration::from_secs(60));
    assert!(begin.elapsed() < Duration::from_secs(20), "the shutdown waited for the response");
    // The response is complete.
    assert_eq!(client.response().text(), "data: a\n\n");
    assert!(!send(&sender, Event::data("b")));
}

#[test]
fn slow_client_applies_backpressure_to_the_sender() {
    let (app, senders) = channels(sse::SseSettings::default());
    let server = start(app);
    let mut client = Client::connect(&server);
    client.get("/");
    let sender = sender(&senders);
    let sent = Arc::new(AtomicUsize::new(0));
    let count = sent.clone();
    const EVENTS: usize = 1_000;
    let sending = std::thread::spawn(move || {
        let long = "x".repeat(16 << 10);
        while count.load(SeqCst) < EVENTS && send(&sender, Event::data(&long)) {
            count.fetch_add(1, SeqCst);
        }
    });
    // The socket buffers of the kernel fill up, then no more events are accepted.
    let mut before = usize::MAX;
    until("the sender is blocked", || {
        std::thread::sleep(Duration::from_millis(200));
        std::mem::replace(&mut before, sent.load(SeqCst)) == sent.load(SeqCst)
    });
    assert!(before < EVENTS, "all events were accepted without a reader");
    until("all events are accepted", || client.read() > 0 && sent.load(SeqCst) == EVENTS);
    let response = client.response();
    assert_eq!(response.body.len(), EVENTS * ((16 << 10) + "data: \n\n".len()));
    sending.join().unwrap();
    stop(server);
}

#[test]
fn head_request_closes_the_sender() {
    let (app, senders) = channels(sse::SseSettings::default());
    let server = start(app);
    let mut client = Client::connect_and_send(&server, "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.head().header("content-type"), Some("text/event-stream"));
    let sender = sender(&senders);
    until("the sender is closed", || !send(&sender, Event::data("a")));
    stop(server);
}

#[test]
fn parses_last_event_id() {
    async fn last(request: Request) -> Response {
        Response::text(sse::last_event_id(&request).unwrap_or("none").to_owned())
    }
    let server = start(last);
    for (field, id) in [("", "none"), ("Last-Event-ID: 4é\r\n", "4é"), ("last-event-id:\r\n", "")]
    {
        let mut client =
            Client::connect_and_send(&server, format!("GET / HTTP/1.1\r\nHost: a\r\n{field}\r\n"));
        assert_eq!(client.response().text(), id);
    }
    stop(server);
}
