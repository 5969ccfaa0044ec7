//! Server-sent events over real sockets.

mod common;

use std::io::Read;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::{Client, stop, until};
use weft::middleware::Compress;
use weft::sse::{self, Event, Sender};
use weft::{Application, Request, Response, Running, Server};

fn start(app: impl Application + Clone + Send + 'static) -> Running {
    Server::new(app).workers(1).listen("127.0.0.1:0").unwrap().start().unwrap()
}

/// The senders of the responses so far.
type Senders = Arc<Mutex<Vec<Sender>>>;

/// Answers everything with events, which the test sends.
fn channels(settings: sse::Settings) -> (impl Application + Clone + Send + 'static, Senders) {
    let senders = Senders::default();
    let noted = senders.clone();
    let app = move |request: Request| {
        let (sender, response) = settings.clone().channel(&request);
        noted.lock().unwrap().push(sender);
        async { response }
    };
    (app, senders)
}

/// Waits for the response to begin, and takes its sender.
#[track_caller]
fn sender(senders: &Senders) -> Sender {
    until("a response begins", || !senders.lock().unwrap().is_empty());
    senders.lock().unwrap().remove(0)
}

/// Sends in this thread; false if the response has ended.
fn send(sender: &Sender, event: Event) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(sender.send(event)).is_ok()
}

/// What has come, without the chunks around it.
fn text(client: &Client) -> String {
    let came = String::from_utf8(client.came().to_vec()).unwrap();
    let body = came.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    let lines = body.split("\r\n").skip(1).step_by(2);
    lines.collect()
}

#[track_caller]
fn assert_comes(client: &mut Client, expected: &str) {
    until("it comes", || {
        client.read();
        text(client).len() >= expected.len()
    });
    assert_eq!(text(client), expected);
}

#[test]
fn each_event_arrives_before_the_next_is_sent() {
    let (app, senders) = channels(sse::Settings::default());
    let server = start(app);
    let mut client = Client::connect(&server);
    client.get("/");
    let sender = sender(&senders);
    // The head comes before any event: the browser knows that it is connected.
    until("the head comes", || client.read() > 0 && client.came().ends_with(b"\r\n\r\n"));
    let mut expected = String::new();
    for number in 1..=3 {
        assert!(send(&sender, Event::data(format!("a\n{number}")).id(number.to_string())));
        expected += &format!("id: {number}\ndata: a\ndata: {number}\n\n");
        assert_comes(&mut client, &expected);
    }
    drop(sender);
    let response = client.response();
    assert_eq!(response.text(), expected);
    assert_eq!(response.header("content-type"), Some("text/event-stream"));
    assert_eq!(response.header("cache-control"), Some("no-cache"));
    stop(server);
}

#[test]
fn compressed_events_arrive_at_once_too() {
    for coding in ["br", "zstd", "gzip"] {
        let (app, senders) = channels(sse::Settings::default());
        let server = start(app.with(Compress::new()));
        // A client of HTTP/1.0 gets the bytes without chunks around them.
        let request = format!("GET / HTTP/1.0\r\nAccept-Encoding: {coding}\r\n\r\n");
        let mut client = Client::with(&server, request);
        let sender = sender(&senders);
        let mut expected = String::new();
        for number in 1..=3 {
            assert!(send(&sender, Event::data(number.to_string())));
            expected += &format!("data: {number}\n\n");
            until("the event arrives", || {
                client.read();
                decoded_so_far(coding, client.came()) == expected
            });
        }
        stop(server);
    }
}

/// What can be decoded of a response of which not all has come.
fn decoded_so_far(coding: &str, came: &[u8]) -> String {
    let Some(response) = common::Response::parse(came, false) else { return String::new() };
    assert_eq!(response.header("content-encoding"), Some(coding));
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
fn comments_are_sent_while_there_is_nothing_else() {
    let keep_alive = Duration::from_millis(50);
    let (app, senders) = channels(sse::Settings { keep_alive, ..Default::default() });
    let server = start(app);
    let begin = Instant::now();
    let mut client = Client::connect(&server);
    client.get("/");
    let sender = sender(&senders);
    assert_comes(&mut client, ":\n\n:\n\n:\n\n");
    assert!(begin.elapsed() >= 3 * keep_alive, "they came too soon");
    assert!(send(&sender, Event::data("a")));
    until("the event comes, and a comment after it", || {
        client.read();
        text(&client).ends_with("data: a\n\n:\n\n")
    });
    stop(server);
}

#[test]
fn a_sender_is_told_that_its_client_has_left() {
    let (app, senders) = channels(sse::Settings::default());
    let server = start(app);
    let mut client = Client::connect(&server);
    client.get("/");
    let sender = sender(&senders);
    assert!(send(&sender, Event::data("a")));
    assert_comes(&mut client, "data: a\n\n");
    drop(client);
    // Who has nothing to send is told as well.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let told = async { tokio::time::timeout(common::PATIENCE, sender.closed()).await };
    runtime.block_on(told).expect("the sender is told");
    assert!(!send(&sender, Event::data("b")));
    stop(server);
}

#[test]
fn a_stream_is_dropped_when_its_client_has_left() {
    /// A stream that never has anything, and counts itself.
    struct Never(#[allow(dead_code, reason = "it is counted")] Arc<()>);
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
    let settings = sse::Settings { keep_alive: Duration::MAX, ..Default::default() };
    let server = start(move |request: Request| {
        let response = settings.clone().stream(&request, Never(count.clone()));
        async { response }
    });
    let idle = Arc::strong_count(&counted);
    let mut client = Client::connect(&server);
    client.get("/");
    until("the stream is there", || Arc::strong_count(&counted) > idle);
    drop(client);
    until("the stream is gone", || Arc::strong_count(&counted) == idle);
    stop(server);
}

#[test]
fn a_shutdown_ends_the_response_and_does_not_wait_for_it() {
    let (app, senders) = channels(sse::Settings::default());
    let server = start(app);
    let mut client = Client::connect(&server);
    client.get("/");
    let sender = sender(&senders);
    assert!(send(&sender, Event::data("a")));
    assert_comes(&mut client, "data: a\n\n");
    let begin = Instant::now();
    server.shutdown(Duration::from_secs(60));
    assert!(begin.elapsed() < Duration::from_secs(20), "the shutdown has waited");
    // It is whole, not cut.
    assert_eq!(client.response().text(), "data: a\n\n");
    assert!(!send(&sender, Event::data("b")));
}

#[test]
fn a_slow_client_slows_its_sender_down() {
    let (app, senders) = channels(sse::Settings::default());
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
    // The kernel's buffers take some, then nothing goes any more.
    let mut before = usize::MAX;
    until("the sender is held back", || {
        std::thread::sleep(Duration::from_millis(200));
        std::mem::replace(&mut before, sent.load(SeqCst)) == sent.load(SeqCst)
    });
    assert!(before < EVENTS, "all was taken, though nobody read it");
    until("all is taken", || client.read() > 0 && sent.load(SeqCst) == EVENTS);
    let response = client.response();
    assert_eq!(response.body.len(), EVENTS * ((16 << 10) + "data: \n\n".len()));
    sending.join().unwrap();
    stop(server);
}

#[test]
fn a_head_alone_ends_the_events() {
    let (app, senders) = channels(sse::Settings::default());
    let server = start(app);
    let mut client = Client::with(&server, "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.head().header("content-type"), Some("text/event-stream"));
    let sender = sender(&senders);
    until("the sender is told", || !send(&sender, Event::data("a")));
    stop(server);
}

#[test]
fn the_last_event_is_known() {
    async fn last(request: Request) -> Response {
        Response::text(sse::last_event_id(&request).unwrap_or("none").to_owned())
    }
    let server = start(last);
    for (field, id) in [("", "none"), ("Last-Event-ID: 4é\r\n", "4é"), ("last-event-id:\r\n", "")]
    {
        let mut client = Client::with(&server, format!("GET / HTTP/1.1\r\nHost: a\r\n{field}\r\n"));
        assert_eq!(client.response().text(), id);
    }
    stop(server);
}
