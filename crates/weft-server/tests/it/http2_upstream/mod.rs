//! HTTP/2 to upstreams, with frames as data and with real servers.

mod grpc;
pub mod peer;
mod servers;
mod versions;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use weft::testing::TestServer;

use self::peer::*;
use crate::common::proxy::Proxy;
use crate::common::{Client, PATIENCE, reset_on_close, until, unused_address};

/// Starts a proxy with these options to an upstream that is known to use HTTP/2.
fn start_proxy(upstream: SocketAddr, options: &str) -> Proxy {
    Proxy::start(&format!("h2c://{upstream}/"), options)
}

fn get(proxy: &Proxy) -> (u16, Vec<u8>) {
    exchange(proxy, "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
}

fn post(proxy: &Proxy, body: &str) -> (u16, Vec<u8>) {
    let length = body.len();
    exchange(
        proxy,
        &format!(
            "POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        ),
    )
}

/// Sends a request and returns the final status, and all bytes behind its head.
fn exchange(proxy: &Proxy, request: &str) -> (u16, Vec<u8>) {
    let mut stream = TcpStream::connect(proxy.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    loop {
        let end = bytes.windows(4).position(|part| part == b"\r\n\r\n").expect("a head") + 4;
        let status: u16 = std::str::from_utf8(&bytes[9..12]).unwrap().parse().unwrap();
        bytes.drain(..end);
        if status >= 200 {
            return (status, bytes);
        }
    }
}

// -- messages

#[test]
fn forwards_heads_bodies_and_trailers() {
    let (sender, received) = mpsc::channel();
    let sender = Mutex::new(sender);
    let upstream = http2_upstream(move |_, peer| {
        while let Some((stream, body)) = peer.whole_request() {
            sender.lock().unwrap().send((stream, String::from_utf8(body).unwrap())).unwrap();
            peer.send(&head(0, stream, &[(":status", "103"), ("link", "</a>")]));
            peer.send(&head(
                0,
                stream,
                &[(":status", "200"), ("x-own", "1"), ("trailer", "x-end")],
            ));
            peer.send(&frame(DATA, 0, stream, b"first "));
            peer.send(&frame(DATA, 0, stream, b"second"));
            peer.send(&head(END_STREAM, stream, &[("x-end", "2")]));
        }
    });
    let proxy = start_proxy(upstream, "");
    let mut client = Client::tcp(proxy.address());
    for (number, body) in [(1, "one"), (3, "two")] {
        let (length, te) = (body.len(), "TE: trailers\r\nConnection: te\r\n");
        client.send(format!(
            "POST /a HTTP/1.1\r\nHost: h\r\n{te}Content-Length: {length}\r\n\r\n{body}"
        ));
        let interim = client.head();
        assert!(
            interim[0].starts_with("HTTP/1.1 103") && interim[1] == "link: </a>",
            "{interim:?}"
        );
        let head = client.head();
        assert!(head[0].starts_with("HTTP/1.1 200"), "{head:?}");
        for expected in ["x-own: 1", "via: 2 weft", "Transfer-Encoding: chunked"] {
            let is_found = head.iter().any(|line| line.eq_ignore_ascii_case(expected));
            assert!(is_found, "{expected} in {head:?}");
        }
        let mut text = String::new();
        while !text.ends_with("\r\n\r\n") {
            text.push(char::from(client.body(1)[0]));
        }
        assert!(text.contains("first ") && text.contains("second"), "{text}");
        assert!(text.ends_with("0\r\nx-end: 2\r\n\r\n"), "{text}");
        assert_eq!(received.recv_timeout(PATIENCE).unwrap(), (number, body.to_owned()));
    }
}

#[test]
fn forwards_methods_and_targets() {
    let upstream = TestServer::start(async |request: weft::Request| {
        let text = format!("{} {} {:?}", request.method(), request.target(), request.version());
        weft::Response::text(text).with_header(weft::header::ETAG, "\"a\"")
    });
    let proxy = start_proxy(upstream.address(), "");
    for (line, body) in [
        ("GET /a%20b?c=%64", "GET /a%20b?c=%64 HTTP/2.0"),
        ("GET /<a>|\"{b}\"", "GET /%3Ca%3E|\"{b}\" HTTP/2.0"),
        ("DELETE /", "DELETE / HTTP/2.0"),
        ("HEAD /", ""),
    ] {
        let (status, found) =
            exchange(&proxy, &format!("{line} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"));
        assert_eq!((status, &*String::from_utf8_lossy(&found)), (200, body), "{line}");
    }
}

#[test]
fn health_checks_are_sent_over_http2() {
    let is_healthy = Arc::new(AtomicUsize::new(0));
    let upstream = http2_upstream({
        let is_healthy = is_healthy.clone();
        move |_, peer| {
            while let Some(stream) = peer.request() {
                let status = if is_healthy.load(SeqCst) > 0 { "200" } else { "503" };
                peer.send(&empty_response(stream, status));
            }
        }
    });
    let proxy =
        start_proxy(upstream, r#"check = "/", check_interval = "20ms", check_timeout = "30s""#);
    until("the checks fail", || get(&proxy).0 == 503 && get(&proxy).1 != b"");
    is_healthy.store(1, SeqCst);
    until("the checks pass", || get(&proxy).0 == 200);
}

#[test]
fn health_of_a_service_is_checked_by_grpc() {
    // The messages of the protocol, with their prefixes.
    const REQUEST: &[u8] = b"\0\0\0\0\x05\x0a\x03a.B";
    const SERVING: &[u8] = b"\0\0\0\0\x02\x08\x01";
    const NOT_SERVING: &[u8] = b"\0\0\0\0\x02\x08\x02";
    for (message, status, expected) in [
        (SERVING, "0", 200),
        (NOT_SERVING, "0", 503),
        (SERVING, "5", 503),
        (b"", "0", 503),
        (&[0; 100], "0", 503),
    ] {
        let checks = Arc::new(AtomicUsize::new(0));
        let upstream = http2_upstream({
            let checks = checks.clone();
            move |_, peer| {
                while let Some((stream, body)) = peer.whole_request() {
                    if body.is_empty() {
                        peer.send(&empty_response(stream, "200"));
                        continue;
                    }
                    assert_eq!(body, REQUEST);
                    let fields = [(":status", "200"), ("content-type", "application/grpc")];
                    peer.send(&head(0, stream, &fields));
                    peer.send(&frame(DATA, 0, stream, message));
                    peer.send(&head(END_STREAM, stream, &[("grpc-status", status)]));
                    checks.fetch_add(1, SeqCst);
                }
            }
        });
        let proxy = start_proxy(
            upstream,
            r#"check = "grpc:a.B", check_interval = "20ms", check_timeout = "30s""#,
        );
        get(&proxy);
        until("the upstream was checked", || checks.load(SeqCst) > 4);
        assert_eq!(get(&proxy).0, expected, "{message:?} {status}");
    }
}

// -- hostile upstreams

/// An upstream's reaction to the first request, and the outcome for the client.
struct Attack {
    name: &'static str,
    frames: Vec<u8>,
    /// Status for the client; 200 with a body that is not complete is 0.
    status: u16,
}

fn attacks() -> Vec<Attack> {
    let attack = |name, frames: Vec<u8>, status| Attack { name, frames, status };
    let ok = || text_response(1, "done");
    let interim = || head(0, 1, &[(":status", "103")]);
    let window_update = || frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]);
    let large_field = fields_block(&[("x-large", &"a".repeat(120))]);
    let begin = |fields: &[(&str, &str)]| frame(HEADERS, 0, 1, &fields_block(fields));
    let head_of_ten = || head(0, 1, &[(":status", "200"), ("content-length", "10")]);
    vec![
        attack("a valid response", ok(), 200),
        // Floods without an end.
        attack(
            "many small CONTINUATION frames",
            [begin(&[(":status", "200")]), frame(CONTINUATION, 0, 1, &[]).repeat(50_000)].concat(),
            502,
        ),
        attack(
            "a head of many CONTINUATION frames",
            [
                begin(&[(":status", "200")]),
                frame(CONTINUATION, 0, 1, &large_field.repeat(100)).repeat(1_000),
            ]
            .concat(),
            502,
        ),
        attack(
            "a head larger than the limit",
            [
                begin(&[(":status", "200")]),
                frame(CONTINUATION, 0, 1, &large_field.repeat(100)).repeat(3),
                frame(CONTINUATION, END_HEADERS, 1, &[]),
                frame(DATA, END_STREAM, 1, b"done"),
            ]
            .concat(),
            502,
        ),
        attack(
            "empty DATA frames",
            [head_of_ten(), frame(DATA, 0, 1, &[]).repeat(50_000)].concat(),
            0,
        ),
        attack("interim responses", interim().repeat(50_000), 502),
        attack("PING frames", frame(PING, 0, 0, &[7; 8]).repeat(50_000), 502),
        attack("SETTINGS frames", setting(3, 100).repeat(20_000), 502),
        attack("unknown frames", frame(0xfe, 0, 1, &[1; 100]).repeat(20_000), 502),
        attack("WINDOW_UPDATE frames", window_update().repeat(20_000), 502),
        // As many as an upstream may send at once.
        attack("31 interim responses", [interim().repeat(31), ok()].concat(), 200),
        attack("1,000 PINGs", [frame(PING, 0, 0, &[7; 8]).repeat(1_000), ok()].concat(), 200),
        attack("1,000 SETTINGS", [setting(3, 100).repeat(1_000), ok()].concat(), 200),
        attack("1,000 unknown", [frame(0xfe, 0, 1, &[1; 100]).repeat(1_000), ok()].concat(), 200),
        attack("1,000 WINDOW_UPDATEs", [window_update().repeat(1_000), ok()].concat(), 200),
        // Errors of the protocol.
        attack(
            "a window that overflows",
            frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0xff, 0xff]),
            502,
        ),
        attack("a pushed response", frame(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2, 0x82]), 502),
        attack("DATA before HEADERS", frame(DATA, END_STREAM, 1, b"data"), 502),
        attack("a response on a stream of its own", empty_response(2, "200"), 502),
        attack("a head without a status", head(END_STREAM, 1, &[("x-own", "1")]), 502),
        attack(
            "a field with a line feed",
            head(END_STREAM, 1, &[(":status", "200"), ("a", "b\nc")]),
            502,
        ),
        attack("status 101", empty_response(1, "101"), 502),
        attack("an index that no table has", frame(HEADERS, 5, 1, &[0xff, 0xff, 0x7f]), 502),
        attack(
            "a frame of 16 MiB",
            [&[0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1][..], &[0; 999]].concat(),
            502,
        ),
        attack("HTTP/1.1", b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n".to_vec(), 502),
        attack("a reset", reset(1, 2), 502),
        attack(
            "more data than the length",
            [head_of_ten(), frame(DATA, 1, 1, &[b'a'; 11])].concat(),
            0,
        ),
        attack("less data than the length", [head_of_ten(), frame(DATA, 1, 1, b"abc")].concat(), 0),
        attack(
            "more data than the window",
            [head(0, 1, &[(":status", "200")]), frame(DATA, 0, 1, &[b'a'; 16 << 10]).repeat(1_000)]
                .concat(),
            0,
        ),
        attack(
            "a reset in the body",
            [head_of_ten(), frame(DATA, 0, 1, b"abc"), reset(1, 2)].concat(),
            0,
        ),
        attack(
            "GOAWAY in the body",
            [head_of_ten(), frame(DATA, 0, 1, b"abc"), goaway(1, 2)].concat(),
            0,
        ),
    ]
}

#[test]
fn hostile_upstreams_cost_one_response_and_no_memory() {
    for Attack { name, frames, status } in attacks() {
        let upstream = http2_upstream(move |number, peer| {
            // Later requests, on other connections, have a response.
            if number > 0 {
                while let Some(stream) = peer.request() {
                    peer.send(&text_response(stream, "later"));
                }
                return;
            }
            let mut writer = Peer { stream: peer.stream.try_clone().unwrap() };
            peer.request();
            let frames = frames.clone();
            let mut sent = Some(std::thread::spawn(move || writer.send(&frames)));
            while let Some(frame) = peer.read() {
                if frame.kind == HEADERS {
                    // An error of one stream only: the connection serves the next request.
                    if let Some(sent) = sent.take() {
                        sent.join().unwrap();
                    }
                    peer.send(&text_response(frame.stream, "later"));
                }
            }
        });
        // A GOAWAY frame does not end the streams before it, whose content may still come.
        let options = r#"response_timeout = "20s", body_timeout = "5s", buffer_responses = false"#;
        let proxy = start_proxy(upstream, options);
        // A client that reads nothing at first, so that windows are full.
        let mut client = TcpStream::connect(proxy.address()).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").unwrap();
        let mut bytes = Vec::new();
        let is_complete = client.read_to_end(&mut bytes).is_ok();
        let text = String::from_utf8_lossy(&bytes);
        let last = text.rfind("HTTP/1.1 ").map(|at| &text[at + 9..]);
        let found = last.and_then(|text| text.get(..3)?.parse().ok());
        match status {
            200 => assert!(found == Some(200) && text.ends_with("done"), "{name}: {text}"),
            0 => assert!(!is_complete || found == Some(502), "{name}: {text}"),
            _ => assert_eq!(found, Some(status), "{name}"),
        }
        if status != 200 {
            assert_eq!(get(&proxy), (200, b"later".to_vec()), "after {name}");
        }
    }
}

// -- retries

/// A reaction to a request; later requests have a response.
#[derive(Clone, Copy, Debug)]
enum Reaction {
    /// GOAWAY with this code, before the request was processed. The connection stays open.
    GoAway(u32),
    /// Such a GOAWAY, and the end of the connection.
    GoAwayAndClose(u32),
    /// GOAWAY that includes the stream, and the end of the connection.
    GoAwayAfterAndClose(u32),
    /// RST_STREAM with this code.
    Reset(u32),
    /// The end of the connection by FIN.
    Close,
    /// The end of the connection by RST of TCP.
    Abort,
    /// A frame that is an error of the connection.
    Invalid,
}

impl Reaction {
    fn show(self, stream: u32, peer: &mut Peer) {
        match self {
            Reaction::GoAway(code) | Reaction::GoAwayAndClose(code) => {
                peer.send(&goaway(stream.saturating_sub(2), code));
            }
            Reaction::GoAwayAfterAndClose(code) => peer.send(&goaway(stream, code)),
            Reaction::Reset(code) => peer.send(&reset(stream, code)),
            Reaction::Invalid => {
                peer.send(&frame(PUSH_PROMISE, END_HEADERS, stream, &[0, 0, 0, 2, 0x82]));
            }
            Reaction::Close => {}
            Reaction::Abort => {
                let time = Some(Duration::ZERO);
                rustix::net::sockopt::set_socket_linger(&peer.stream, time).unwrap();
            }
        }
    }

    fn ends_connection(self) -> bool {
        use Reaction::*;
        matches!(self, GoAwayAndClose(_) | GoAwayAfterAndClose(_) | Close | Abort)
    }
}

/// Each row: the number of requests that the connection has served before, the reaction to the next
/// one, the length of its body, and its status for the client.
#[test]
fn repeats_requests_that_were_not_processed() {
    use Reaction::*;
    const INTERNAL_ERROR: u32 = 2;
    const REFUSED: u32 = 7;
    for (served, reaction, body, expected) in [
        (0, GoAway(0), None, 200),
        (0, GoAway(0), Some(100), 200),
        (1, GoAway(INTERNAL_ERROR), None, 200),
        (1, GoAway(INTERNAL_ERROR), Some(100), 200),
        (1, GoAwayAndClose(0), Some(100), 200),
        (1, GoAwayAndClose(INTERNAL_ERROR), None, 200),
        (1, GoAwayAndClose(INTERNAL_ERROR), Some(100), 200),
        (0, Reset(REFUSED), None, 200),
        (0, Reset(REFUSED), Some(10), 200),
        (1, Reset(REFUSED), Some(10), 200),
        // The begin of the body is not kept.
        (0, Reset(REFUSED), Some(100_000), 503),
        (0, Reset(INTERNAL_ERROR), None, 502),
        // The request may have been processed: a method that is idempotent is repeated.
        (0, Close, None, 200),
        (0, Close, Some(10), 502),
        (1, Close, None, 200),
        (1, Close, Some(10), 502),
        (0, Abort, None, 200),
        (0, Abort, Some(10), 502),
        (1, Abort, None, 200),
        (1, Abort, Some(10), 502),
        (0, GoAwayAfterAndClose(0), None, 200),
        (0, GoAwayAfterAndClose(0), Some(10), 502),
        (1, GoAwayAfterAndClose(INTERNAL_ERROR), None, 200),
        (1, GoAwayAfterAndClose(INTERNAL_ERROR), Some(10), 502),
        // The first response is invalid; a later error may be due to another response.
        (0, Invalid, None, 502),
        (1, Invalid, None, 200),
        (1, Invalid, Some(10), 502),
    ] {
        let requests = Arc::new(AtomicUsize::new(0));
        let upstream = http2_upstream({
            let requests = requests.clone();
            move |_, peer| {
                while let Some((stream, body)) = peer.whole_request() {
                    if requests.fetch_add(1, SeqCst) != served {
                        peer.send(&text_response(stream, &body.len().to_string()));
                        continue;
                    }
                    reaction.show(stream, peer);
                    if reaction.ends_connection() {
                        return;
                    }
                }
            }
        });
        let proxy = start_proxy(upstream, "");
        for _ in 0..served {
            assert_eq!(get(&proxy), (200, b"0".to_vec()));
        }
        let (status, text) = match body {
            None => get(&proxy),
            Some(length) => post(&proxy, &"a".repeat(length)),
        };
        let name = format!("{reaction:?} to request {served} with {body:?}");
        assert_eq!(status, expected, "{name}");
        if status == 200 {
            let length = body.unwrap_or(0).to_string();
            assert_eq!(String::from_utf8(text).unwrap(), length, "{name}: the whole body");
        }
        let attempts = if expected == 200 { 2 } else { 1 };
        assert_eq!(requests.load(SeqCst), served + attempts, "{name}");
    }
}

/// The first request waits for its response when the response to the second request ends the
/// connection.
#[test]
fn an_error_in_another_response_does_not_fail_a_request() {
    let requests = Arc::new(AtomicUsize::new(0));
    let upstream = http2_upstream({
        let requests = requests.clone();
        move |number, peer| {
            while let Some(stream) = peer.request() {
                requests.fetch_add(1, SeqCst);
                match (number, stream) {
                    (0, 1) => {}
                    (0, _) => {
                        peer.send(&head(0, stream, &[(":status", "200")]));
                        peer.send(&frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0xff, 0xff]));
                    }
                    _ => peer.send(&text_response(stream, "later")),
                }
            }
        }
    });
    let proxy = start_proxy(upstream, "");
    std::thread::scope(|scope| {
        let first = scope.spawn(|| get(&proxy));
        until("the first request has arrived", || requests.load(SeqCst) == 1);
        let second = get(&proxy);
        assert!([200, 502].contains(&second.0), "{second:?}");
        assert_eq!(first.join().unwrap(), (200, b"later".to_vec()));
    });
}

#[test]
fn a_refused_request_is_retried_within_the_limit() {
    let requests = Arc::new(AtomicUsize::new(0));
    let upstream = http2_upstream({
        let requests = requests.clone();
        move |_, peer| {
            while let Some(stream) = peer.request() {
                requests.fetch_add(1, SeqCst);
                peer.send(&reset(stream, 7));
            }
        }
    });
    let proxy = start_proxy(upstream, "max_retries = 3");
    assert_eq!(get(&proxy).0, 503);
    assert_eq!(requests.load(SeqCst), 4);
}

// -- streams and connections

#[test]
fn opens_connections_up_to_the_limit_and_queues_requests_up_to_the_bound() {
    let (connections, active) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (sender, released) = mpsc::channel::<()>();
    let released = Arc::new(Mutex::new(released));
    // One stream at a time.
    let upstream = http2_upstream_with(setting(3, 1), {
        let (connections, active, released) = (connections.clone(), active.clone(), released);
        move |_, peer| {
            connections.fetch_add(1, SeqCst);
            while let Some(stream) = peer.request() {
                active.fetch_add(1, SeqCst);
                let _ = released.lock().unwrap().recv_timeout(PATIENCE);
                peer.send(&text_response(stream, "done"));
            }
        }
    });
    let proxy =
        start_proxy(upstream, "max_http2_connections = 2, max_queued = 3, queue_timeout = \"30s\"");
    std::thread::scope(|scope| {
        // Three requests wait for the first connection.
        let clients: Vec<_> = (0..4).map(|_| scope.spawn(|| get(&proxy).0)).collect();
        until("two requests are in progress", || active.load(SeqCst) == 2);
        // Two wait now, and one more may.
        let mut waiting = Vec::new();
        until("the queue is full", || {
            let mut client = TcpStream::connect(proxy.address()).unwrap();
            client.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
            client.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
            let mut status = [0; 12];
            let is_answered = client.read_exact(&mut status).is_ok();
            waiting.push(client);
            is_answered && status == *b"HTTP/1.1 503"
        });
        assert_eq!(waiting.len(), 2, "requests until the first 503");
        for _ in 0..20 {
            sender.send(()).unwrap();
        }
        for client in clients {
            assert_eq!(client.join().unwrap(), 200);
        }
    });
    assert_eq!(connections.load(SeqCst), 2);
}

#[test]
fn shares_one_connection_and_cancels_the_streams_of_clients_that_leave() {
    let (sender, frames) = mpsc::channel();
    let sender = Mutex::new(sender);
    let upstream = http2_upstream(move |number, peer| {
        while let Some(frame) = peer.read_one_of(&[HEADERS, RST_STREAM]) {
            sender.lock().unwrap().send((number, frame)).unwrap();
        }
    });
    let proxy = start_proxy(upstream, "");
    let mut clients = Vec::new();
    for number in 0..3 {
        let mut client = TcpStream::connect(proxy.address()).unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
        let (connection, frame) = frames.recv_timeout(PATIENCE).unwrap();
        assert_eq!((connection, frame.kind, frame.stream), (0, HEADERS, 1 + 2 * number));
        clients.push(client);
    }
    reset_on_close(&clients[1]);
    drop(clients.remove(1));
    let (_, frame) = frames.recv_timeout(PATIENCE).unwrap();
    assert_eq!((frame.kind, frame.stream, &*frame.payload), (RST_STREAM, 3, &[0, 0, 0, 8][..]));
}

#[test]
fn a_slow_client_holds_one_window_and_stops_no_other_stream() {
    const WINDOW: usize = 64 << 10;
    let sent = Arc::new(AtomicUsize::new(0));
    let upstream = http2_upstream({
        let sent = sent.clone();
        move |_, peer| {
            let first = peer.request().unwrap();
            peer.send(&head(0, first, &[(":status", "200")]));
            // The window of the stream, and what is granted for data that the client has taken.
            let mut window = WINDOW;
            loop {
                while window >= 16 << 10 {
                    peer.send(&frame(DATA, 0, first, &[b'a'; 16 << 10]));
                    sent.fetch_add(16 << 10, SeqCst);
                    window -= 16 << 10;
                }
                match peer.read_one_of(&[HEADERS, WINDOW_UPDATE]) {
                    None => return,
                    Some(update) if update.kind == WINDOW_UPDATE && update.stream == first => {
                        window += u32::from_be_bytes(update.payload.try_into().unwrap()) as usize;
                    }
                    Some(update) if update.kind == WINDOW_UPDATE => {}
                    Some(head) => peer.send(&text_response(head.stream, "fast")),
                }
            }
        }
    });
    let proxy = start_proxy(upstream, "buffer_responses = false");
    let mut slow = TcpStream::connect(proxy.address()).unwrap();
    rustix::net::sockopt::set_socket_recv_buffer_size(&slow, 64 << 10).unwrap();
    slow.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    until("the window is used", || sent.load(SeqCst) >= WINDOW);
    // The buffers of the sockets and of the proxy fill up; then nothing more is granted.
    let mut before = 0;
    until("the upstream has to wait", || {
        let now = sent.load(SeqCst);
        std::thread::sleep(Duration::from_millis(200));
        std::mem::replace(&mut before, now) == sent.load(SeqCst)
    });
    for _ in 0..20 {
        assert_eq!(get(&proxy), (200, b"fast".to_vec()));
    }
    let stopped_at = sent.load(SeqCst);
    assert!(stopped_at < 8 << 20, "{stopped_at} bytes");
    // The rest flows once the client reads.
    let mut taken = vec![0; stopped_at / 2 + WINDOW];
    slow.set_read_timeout(Some(PATIENCE)).unwrap();
    slow.read_exact(&mut taken).unwrap();
    until("more is granted", || sent.load(SeqCst) > stopped_at);
}

#[test]
fn a_slow_upstream_gets_no_more_of_a_request_than_its_window() {
    let received = Arc::new(AtomicUsize::new(0));
    let (sender, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let upstream = http2_upstream({
        let received = received.clone();
        move |_, peer| {
            let stream = peer.request().unwrap();
            let mut has_ended = false;
            while !has_ended {
                let data = peer.read_one_of(&[DATA]).unwrap();
                let total = received.fetch_add(data.payload.len(), SeqCst) + data.payload.len();
                has_ended = data.flags & END_STREAM > 0;
                if total == 65_535 {
                    released.lock().unwrap().recv_timeout(PATIENCE).unwrap();
                    for id in [0, stream] {
                        peer.send(&frame(WINDOW_UPDATE, 0, id, &1_000_000u32.to_be_bytes()));
                    }
                }
            }
            peer.send(&text_response(stream, "received"));
        }
    });
    let proxy = start_proxy(upstream, "");
    std::thread::scope(|scope| {
        let client = scope.spawn(|| post(&proxy, &"a".repeat(300_000)));
        until("the window is used", || received.load(SeqCst) == 65_535);
        sender.send(()).unwrap();
        assert_eq!(client.join().unwrap(), (200, b"received".to_vec()));
    });
    assert_eq!(received.load(SeqCst), 300_000);
}

#[test]
fn checks_idle_connections_by_ping_and_closes_them_in_the_end() {
    let (sender, frames) = mpsc::channel();
    let sender = Mutex::new(sender);
    let upstream = http2_upstream(move |number, peer| {
        // The first connection responds once, and to nothing afterwards.
        while let Some(frame) = peer.read_one_of(&[HEADERS, PING, GOAWAY]) {
            sender.lock().unwrap().send((number, frame.kind)).unwrap();
            if frame.kind == HEADERS && (number > 0 || frame.stream == 1) {
                peer.send(&text_response(frame.stream, "done"));
            }
        }
    });
    let proxy = start_proxy(upstream, r#"connect_timeout = "500ms", keep_alive_timeout = "2s""#);
    let next = || frames.recv_timeout(PATIENCE).unwrap();
    assert_eq!(get(&proxy).0, 200);
    assert_eq!(next(), (0, HEADERS));
    std::thread::sleep(Duration::from_millis(1_200));
    // The connection is dead: the request is sent again on another one.
    assert_eq!(get(&proxy), (200, b"done".to_vec()));
    assert_eq!([next(), next(), next()], [(0, HEADERS), (0, PING), (1, HEADERS)]);
    assert_eq!(next(), (1, GOAWAY), "the second connection is idle");
}

#[test]
fn fails_all_requests_that_wait_for_a_connection_at_once() {
    let proxy = start_proxy(unused_address(), "");
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..20).map(|_| scope.spawn(|| get(&proxy).0)).collect();
        for client in clients {
            assert_eq!(client.join().unwrap(), 502);
        }
    });
}

#[test]
fn requests_wait_for_an_open_connection_if_no_other_can_be_opened() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = start_proxy(listener.local_addr().unwrap(), "");
    let active = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let active = &active;
        scope.spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            // Further connections are refused.
            drop(listener);
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut peer = Peer::start(stream, &setting(3, 1)).unwrap();
            while active.load(SeqCst) < 2 {
                let stream = peer.request().unwrap();
                active.fetch_add(1, SeqCst);
                // The time in which the other request tries to open a connection.
                std::thread::sleep(Duration::from_millis(300));
                peer.send(&text_response(stream, "done"));
            }
        });
        let first = scope.spawn(|| get(&proxy));
        until("the first request is in progress", || active.load(SeqCst) == 1);
        assert_eq!(get(&proxy), (200, b"done".to_vec()));
        assert_eq!(first.join().unwrap(), (200, b"done".to_vec()));
    });
}

#[test]
fn connections_that_close_at_once_are_not_opened_for_ever() {
    for (first, expected) in [
        // Together with its first frame, and after it.
        ([frame(SETTINGS, 0, 0, &[]), goaway(0, 0)].concat(), [502, 502]),
        (frame(SETTINGS, 0, 0, &[]), [502, 503]),
        // The upstream permits no stream.
        (setting(3, 0), [503, 503]),
        (b"HTTP/1.1 505 No\r\n\r\n".to_vec(), [502, 502]),
    ] {
        let connections = Arc::new(AtomicUsize::new(0));
        let permits_none = first == setting(3, 0);
        let upstream = http2_upstream_with(first.clone(), {
            let connections = connections.clone();
            move |_, peer| {
                connections.fetch_add(1, SeqCst);
                while permits_none && peer.read().is_some() {}
                peer.send(&goaway(0, 0));
            }
        });
        let proxy = start_proxy(upstream, "queue_timeout = \"300ms\"");
        let status = get(&proxy).0;
        assert!(expected.contains(&status), "{status} after {}", first.escape_ascii());
        // A first attempt and two retries.
        let count = connections.load(SeqCst);
        assert!((1..=3).contains(&count), "{count} connections after {}", first.escape_ascii());
    }
}
