//! Records of the hooks: each request is recorded exactly once, however its exchange ends.

use std::collections::VecDeque;
use std::future::pending;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::common::frames::{RawClient, field_block, frame, pseudo_header, reset};
use crate::common::{Client, boxed_server, short_timeouts, stop, until};
use tokio::sync::Notify;
use weft::hooks::Record;
use weft::log::LogFormat;
use weft::middleware::Log;
use weft::server::{Disconnect, ServerHandle};
use weft::{Application, Body, Hooks, Request, Response, Settings, StatusCode};

/// Type of a HEADERS frame, and its flags END_STREAM and END_HEADERS.
const HEADERS: (u8, u8) = (1, 5);

/// RST_STREAM code CANCEL.
const CANCEL: u32 = 8;

/// Hooks that format all records, and the call that `/wait` is pending in.
#[derive(Clone, Default)]
struct Records {
    lines: Arc<Mutex<Vec<String>>>,
    waiting: Arc<Mutex<usize>>,
    release: Arc<Notify>,
}

impl Records {
    /// Takes the records once there are `count`.
    #[track_caller]
    fn take(&self, count: usize) -> Vec<String> {
        until("all requests are recorded", || self.lines.lock().unwrap().len() >= count);
        std::mem::take(&mut *self.lines.lock().unwrap())
    }

    #[track_caller]
    fn wait_for_calls(&self, count: usize) {
        until("the calls start", || *self.waiting.lock().unwrap() == count);
    }

    /// Serves `/wait`, which responds when it is released, `/never`, and `ok` for other paths.
    fn serve(&self, settings: Settings) -> ServerHandle {
        let (hooks, records) = (self.clone(), self.clone());
        let app = move |request: Request| {
            let Records { waiting, release, .. } = records.clone();
            async move {
                if matches!(request.path(), "/wait" | "/never") {
                    *waiting.lock().unwrap() += 1;
                }
                match request.path() {
                    "/wait" => release.notified().await,
                    "/never" => pending().await,
                    _ => {}
                }
                Response::text("ok")
            }
        };
        let server = boxed_server(app).settings(settings).workers(1).hooks(move || hooks.clone());
        server.listen("127.0.0.1:0").unwrap().start().unwrap()
    }
}

impl Hooks for Records {
    fn on_response(&self, record: &Record<'_>) {
        let line = match record.head {
            Some(head) => format!("{} {}", head.method(), head.target()),
            None => record.request_line.escape_ascii().to_string(),
        };
        let response = if record.has_response { "sent" } else { "unsent" };
        let error = record.error.filter(|_| !record.is_complete);
        let error = error.map_or("-".to_owned(), |error| format!("{:?}", error.kind()));
        let status = record.status.as_u16();
        // The text of an error response is the reason.
        let bytes = match (record.head, record.body_bytes) {
            (None, 1..) => "n".to_owned(),
            (_, bytes) => bytes.to_string(),
        };
        assert!(record.peer.address().is_some(), "{line}");
        self.lines.lock().unwrap().push(format!("{line}: {status} {bytes} {response} {error}"));
    }
}

#[test]
fn records_requests_whose_client_disconnects() {
    let records = Records::default();
    let server = records.serve(Settings::default());
    let mut http1 = Client::connect(&server);
    http1.assert_open("/");
    http1.get("/never");
    records.wait_for_calls(1);
    http1.leave();
    assert_eq!(records.take(2), ["GET /: 200 2 sent -", "GET /never: 499 0 unsent Disconnected"]);

    let mut http2 = RawClient::connect(&server);
    http2.assert_open("/");
    let stream = http2.get("/never");
    records.wait_for_calls(2);
    http2.send(reset(stream, CANCEL));
    assert_eq!(records.take(2), ["GET /: 200 2 sent -", "GET /never: 499 0 unsent Disconnected"]);
    http2.get("/never");
    http2.get("/never");
    records.wait_for_calls(4);
    drop(http2);
    assert_eq!(records.take(2), ["GET /never: 499 0 unsent Disconnected"; 2]);
    stop(server);
    assert!(records.take(0).is_empty());
}

/// The call runs on, and its status is recorded, but no response was sent.
#[test]
fn records_the_status_of_detached_calls() {
    let records = Records::default();
    let settings = Settings { disconnect: Disconnect::Detach, ..Settings::default() };
    let server = records.serve(settings);
    let mut client = RawClient::connect(&server);
    let stream = client.get("/wait");
    records.wait_for_calls(1);
    client.send(reset(stream, CANCEL));
    client.sync();
    records.release.notify_one();
    assert_eq!(records.take(1), ["GET /wait: 200 0 unsent Disconnected"]);
    stop(server);
    assert!(records.take(0).is_empty());
}

/// The tasks of the connections are dropped at the end of the grace period.
#[test]
fn records_requests_that_a_shutdown_cancels() {
    for disconnect in [Disconnect::Cancel, Disconnect::Detach] {
        let records = Records::default();
        let server = records.serve(Settings { disconnect, ..Settings::default() });
        let mut http1 = Client::connect(&server);
        http1.get("/never");
        let mut http2 = RawClient::connect(&server);
        http2.get("/never");
        http2.get("/never");
        records.wait_for_calls(3);
        server.shutdown(Duration::ZERO);
        assert_eq!(records.take(3), ["GET /never: 499 0 unsent Cancelled"; 3]);
    }
}

/// The middleware `Log` and the hooks have the same status and number of bytes, also if the body
/// fails before a byte of it was sent.
#[test]
fn log_shows_the_status_that_was_sent() {
    async fn app(request: Request) -> Response {
        let stream = |items: Vec<Option<std::io::Result<&'static str>>>| {
            Response::from_body(Body::stream(Items(items.into())))
        };
        let failure = || Some(Err(std::io::Error::other("the disk has failed")));
        match request.path() {
            "/whole" => stream(vec![Some(Ok("ab"))]),
            "/fails" => stream(vec![failure()]),
            "/fails-after-data" => stream(vec![Some(Ok("ab")), failure()]),
            "/fails-after-a-wait" => stream(vec![None, failure()]),
            "/fails-after-data-and-a-wait" => stream(vec![Some(Ok("ab")), None, failure()]),
            "/short" => stream(vec![Some(Ok("ab"))]).with_header("content-length", 3),
            "/wrong-length" => Response::text("ab").with_header("content-length", 3),
            "/invalid-field" => Response::text("ab").with_header("x-a", "b\nc"),
            _ => Response::new(StatusCode::CONTINUE),
        }
    }

    let lines = Arc::new(Mutex::new(Vec::new()));
    let (sink, records) = (lines.clone(), Records::default());
    let log = Log::new(move |line| sink.lock().unwrap().push(line.to_owned()));
    let log = log.pattern("%r %s %B %X").unwrap();
    let hooks = records.clone();
    let server = boxed_server(app.wrap(log)).workers(1).hooks(move || hooks.clone());
    let server = server.listen("127.0.0.1:0").unwrap().start().unwrap();
    for (path, status, end) in [
        ("/whole", 200, "+"),
        ("/fails", 500, "X"),
        ("/fails-after-data", 500, "X"),
        ("/fails-after-a-wait", 200, "X"),
        ("/fails-after-data-and-a-wait", 200, "X"),
        ("/short", 500, "X"),
        ("/wrong-length", 500, "X"),
        ("/invalid-field", 500, "X"),
        ("/informational", 500, "X"),
    ] {
        let mut client = Client::connect(&server);
        client.get(path);
        let recorded = records.take(1).remove(0);
        until("the line is written", || lines.lock().unwrap().len() == 1);
        let line = lines.lock().unwrap().remove(0);
        let expected = format!("GET {path}: {status} ");
        assert!(recorded.starts_with(&expected), "{recorded:?} and {line:?}");
        let bytes = recorded.split(' ').nth(3).unwrap();
        assert_eq!(line, format!("GET {path} HTTP/1.1 {status} {bytes} {end}"), "{recorded:?}");
    }
    stop(server);
}

/// A stream of items, with a wait in the place of each `None`.
struct Items(VecDeque<Option<std::io::Result<&'static str>>>);

impl futures_core::Stream for Items {
    type Item = std::io::Result<&'static str>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match self.0.pop_front() {
            Some(Some(item)) => Poll::Ready(Some(item)),
            Some(None) => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            None => Poll::Ready(None),
        }
    }
}

#[test]
fn records_refused_http1_requests_with_their_request_line() {
    let records = Records::default();
    let settings = Settings {
        max_request_line_bytes: 300,
        max_head_bytes: 1_000,
        http2: false,
        ..short_timeouts()
    };
    let server = records.serve(settings);
    let long_target = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(400));
    let cut_target = format!("GET /{}: 414 n sent -", "x".repeat(123));
    let large_head = format!("GET /a HTTP/1.1\r\nHost: a\r\nA: {}\r\n\r\n", "x".repeat(2_000));
    for (input, recorded) in [
        ("nonsense\r\n\r\n", "nonsense: 400 n sent -"),
        ("\r\n\r\nGET /a b HTTP/1.1\r\n\r\n", "GET /a b HTTP/1.1: 400 n sent -"),
        ("\x16\x03\x01\x02", "\\x16\\x03\\x01\\x02: 400 n sent -"),
        ("GET /\x1b[2J HTTP/1.1\r\n\r\n", "GET /\\x1b[2J HTTP/1.1: 400 n sent -"),
        ("GET /a HTTP/1.1\r\n\r\n", "GET /a HTTP/1.1: 400 n sent -"),
        ("GET /a HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "GET /a HTTP/1.1: 400 n sent -"),
        ("HEAD /a HTTP/1.1\r\n\r\n", "HEAD /a HTTP/1.1: 400 0 sent -"),
        ("GET /a HTTP/3.0\r\nHost: a\r\n\r\n", "GET /a HTTP/3.0: 505 n sent -"),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "PRI * HTTP/2.0: 505 n sent -"),
        (&long_target, &cut_target),
        (&large_head, "GET /a HTTP/1.1: 431 n sent -"),
        // Its head is incomplete at the timeout.
        ("GET /a HTTP/1.1\r\nHost", "GET /a HTTP/1.1: 408 n sent -"),
    ] {
        let mut client = Client::connect_and_send(&server, input);
        while client.read() > 0 {}
        let reason = client.received().escape_ascii().to_string();
        assert_eq!(records.take(1).join(" | "), recorded, "{input:?}: {reason}");
    }
    // The client disconnects within the head.
    drop(Client::connect_and_send(&server, "GET /a HT"));
    assert_eq!(records.take(1), ["GET /a HT: 499 0 unsent Disconnected"]);
    // A connection without a request.
    drop(Client::connect_and_send(&server, "\r\n"));
    drop(Client::connect(&server));
    Client::connect(&server).assert_open("/");
    stop(server);
    assert_eq!(records.take(1), ["GET /: 200 2 sent -"]);
}

#[test]
fn records_refused_http2_requests_with_their_request_line() {
    let records = Records::default();
    let server = records.serve(Settings { max_request_line_bytes: 300, ..Settings::default() });
    let mut client = RawClient::connect(&server);
    let long_path = format!("/{}", "x".repeat(200));
    let cut_path = format!("GET {}: 400 0 unsent Malformed", &long_path[..124]);
    let connection: &[(&str, &str)] = &[("connection", "close")];
    let get = pseudo_header("GET", "/a\"b");
    let long = pseudo_header("GET", &long_path);
    let invalid_path = pseudo_header("POST", "/a b");
    let no_path = get[..1].to_vec();
    let too_long = format!("/{}", "x".repeat(300));
    let too_long = pseudo_header("GET", &too_long);
    for (fields, recorded) in [
        ([&get[..], connection].concat(), "GET /a\\\"b HTTP/2.0: 400 0 unsent Malformed"),
        ([&long[..], connection].concat(), &cut_path),
        (invalid_path.to_vec(), "POST - HTTP/2.0: 400 0 unsent Malformed"),
        (no_path, "GET - HTTP/2.0: 400 0 unsent Malformed"),
        (connection.to_vec(), "- - HTTP/2.0: 400 0 unsent Malformed"),
        (too_long.to_vec(), "GET - HTTP/2.0: 414 n sent -"),
    ] {
        let stream = client.next_stream_id();
        client.send(frame(HEADERS.0, HEADERS.1, stream, &field_block(&fields)));
        client.outcome(stream);
        assert_eq!(records.take(1).join(" | "), recorded, "{fields:?}");
    }
    client.assert_open("/");
    stop(server);
    assert_eq!(records.take(1), ["GET /: 200 2 sent -"]);
}

/// The start of the request line may contain any bytes.
#[test]
fn refused_requests_are_escaped_in_all_formats() {
    struct Lines(LogFormat, Arc<Mutex<Vec<u8>>>);
    impl Hooks for Lines {
        fn on_response(&self, record: &Record<'_>) {
            let now = std::time::SystemTime::now();
            self.0.append_record(&mut self.1.lock().unwrap(), record, now);
        }
    }
    let bytes: Vec<u8> = (0..=255).filter(|b| !b"\r\n".contains(b)).collect();
    for (format, is_json) in [(LogFormat::combined(), false), (LogFormat::json(), true)] {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let sink = lines.clone();
        let app = async |_: Request| Response::text("ok");
        let server = boxed_server(app).workers(1);
        let server = server.hooks(move || Lines(format.clone(), sink.clone()));
        let server = server.listen("127.0.0.1:0").unwrap().start().unwrap();
        for part in bytes.chunks(100) {
            let mut client = Client::connect(&server);
            client.send([b"\x80 ", part, b"\r\n\r\n"].concat());
            while client.read() > 0 {}
        }
        stop(server);
        let lines = String::from_utf8(lines.lock().unwrap().clone()).unwrap();
        assert_eq!(lines.lines().count(), 3, "{lines}");
        for line in lines.lines() {
            assert!(line.bytes().all(|b| matches!(b, b' '..=b'~')), "{line}");
            match is_json {
                true => {
                    let value: serde_json::Value = serde_json::from_str(line).unwrap();
                    assert!(value["request_line"].is_string() && value["method"].is_null());
                }
                false => {
                    let quotes = line.replace("\\\\", "").replace("\\\"", "");
                    assert_eq!(quotes.matches('"').count(), 6, "{line}");
                }
            }
        }
    }
}
