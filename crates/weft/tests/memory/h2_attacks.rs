//! Attacks on HTTP/2, limited in number and time. The server closes the attacker's connection,
//! memory stays bounded, and other clients are served meanwhile.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::common::frames::*;
use crate::common::{Client, TEST_TIMEOUT, stop, until};
use crate::{PeakMemory, has_run_alone};
use bytes::Bytes;
use weft::server::ServerHandle;
use weft::{Body, Error, Method, Request, Response, Server, Settings};

/// Maximum memory use of an attack, including the attacker and the other clients.
const MAX_MEMORY_BYTES: usize = 4 << 20;

/// Behaves as named by the path. Only `POST /read` reads the request body.
async fn app(request: Request) -> Response {
    match (request.method(), request.path()) {
        (_, "/wait") => pending().await,
        (_, "/endless") => Response::from_body(Body::stream(Endless)),
        (&Method::POST, "/read") => match request.into_body().collect(1 << 24).await {
            Ok(_) => Response::text("ok"),
            Err(error) => error.into(),
        },
        (&Method::POST, _) => pending().await,
        _ => Response::text("ok"),
    }
}

struct Endless;

impl futures_core::Stream for Endless {
    type Item = Result<Bytes, Error>;

    fn poll_next(self: std::pin::Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(Some(Ok(vec![b'x'; 16_000].into())))
    }
}

fn settings() -> Settings {
    Settings {
        head_timeout: Duration::from_secs(2),
        idle_timeout: Duration::from_secs(2),
        stall_timeout: Duration::from_secs(1),
        linger_timeout: Duration::from_millis(500),
        ..Settings::default()
    }
}

/// A server under attack, and its other clients.
struct AttackScenario {
    server: ServerHandle,
    is_stopping: Arc<AtomicBool>,
    other_clients: Vec<JoinHandle<usize>>,
    /// Number of responses received by the other clients.
    responses: Arc<AtomicUsize>,
    memory: PeakMemory,
}

impl AttackScenario {
    fn begin() -> AttackScenario {
        let mut memory = PeakMemory::begin();
        let server = Server::new(app).settings(settings()).workers(1);
        let server = server.listen("127.0.0.1:0").unwrap().start().unwrap();
        let (is_stopping, responses) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let (mut one, mut two) = (Client::connect(&server), RawClient::connect(&server));
        let other_clients = vec![
            other_client(&is_stopping, &responses, move || one.assert_open("/")),
            other_client(&is_stopping, &responses, move || two.assert_open("/")),
        ];
        memory.reset();
        AttackScenario { server, is_stopping, other_clients, responses, memory }
    }

    /// Waits until the worker has served the other clients, and therefore has also processed the
    /// attacker's input. Otherwise the number of rounds would depend on the load of the machine.
    fn wait_for_other_clients(&self) {
        let before = self.responses.load(SeqCst);
        until("the other clients receive responses", || self.responses.load(SeqCst) > before + 2);
    }

    #[track_caller]
    fn end(self, name: &str) {
        let peak = self.memory.peak();
        self.is_stopping.store(true, SeqCst);
        for other_client in self.other_clients {
            let responses = other_client.join().expect("the other clients receive responses");
            assert!(responses > 0);
        }
        println!("{name}: {} KiB", peak >> 10);
        assert!(peak < MAX_MEMORY_BYTES, "{name}: {peak} bytes");
        stop(self.server);
    }
}

/// Starts another client. It sends requests until `is_stopping` is set and must always get a
/// response.
fn other_client(
    is_stopping: &Arc<AtomicBool>,
    all_responses: &Arc<AtomicUsize>,
    mut send_request: impl FnMut() + Send + 'static,
) -> JoinHandle<usize> {
    let (is_stopping, all_responses) = (is_stopping.clone(), all_responses.clone());
    std::thread::spawn(move || {
        let mut responses = 0;
        loop {
            // At least one request is sent after the attack has ended.
            let is_last = is_stopping.load(SeqCst);
            send_request();
            responses += 1;
            all_responses.fetch_add(1, SeqCst);
            if is_last {
                return responses;
            }
            // The CPU time is the attack's. Without a pause, most of it would be spent here.
            std::thread::sleep(Duration::from_millis(1));
        }
    })
}

/// Minimum number of rounds sent in one write, before the attacker reads.
const MIN_BATCH: usize = 50;

/// Number of writes in which a flood with many rounds reaches its limit.
const WRITES: usize = 80;

/// Sends the frames that `make` returns for consecutive numbers, up to `max` rounds or until the
/// server sends GOAWAY or closes the connection; returns the number of rounds. A client that does
/// not read stops only when it can send no more.
fn flood(
    scenario: &AttackScenario,
    client: &mut RawClient,
    reads: bool,
    (max, batch): (usize, usize),
    make: &dyn Fn(u32) -> Vec<u8>,
) -> usize {
    let mut sent = 0;
    while sent < max {
        let frames: Vec<u8> = (sent..sent + batch).flat_map(|n| make(n as u32)).collect();
        if client.try_send(frames).is_err() {
            break;
        }
        sent += batch;
        if reads {
            scenario.wait_for_other_clients();
        }
        while reads && client.has_input_within(Duration::from_millis(1)) && client.read() {}
        if !client.goaways.is_empty() || client.closed.is_some() {
            break;
        }
    }
    sent
}

/// The stream of round `number`; stream 1 is used by the test itself.
fn stream(number: u32) -> u32 {
    2 * number + 3
}

fn post(stream: u32, fields: &[(&str, &str)]) -> Vec<u8> {
    let head = [&pseudo_header("POST", "/")[..], fields].concat();
    frame(HEADERS, END_HEADERS, stream, &field_block(&head))
}

type MakeFrames = fn(u32) -> Vec<u8>;

/// Each flood ends in a GOAWAY after at most the given number of rounds. Stream 1 has an unread
/// request body.
#[test]
fn closes_flooding_connections() {
    if has_run_alone() {
        return;
    }
    const CALM: &str = "ENHANCE_YOUR_CALM";
    const CLOSED: &str = "STREAM_CLOSED";
    let table: &[(&str, MakeFrames, usize, &str)] = &[
        // CVE-2023-44487
        (
            "rapid reset",
            |n| [get(stream(n), "/wait"), reset(stream(n), CANCEL)].concat(),
            500,
            CALM,
        ),
        (
            "rapid reset of requests answered immediately",
            |n| [get(stream(n), "/"), reset(stream(n), CANCEL)].concat(),
            500,
            CALM,
        ),
        // CVE-2025-8671 (MadeYouReset): frames that cause the server to reset the stream.
        (
            "made you reset by windows of 0",
            |n| [get(stream(n), "/wait"), window_update(stream(n), 0)].concat(),
            1_000,
            CALM,
        ),
        (
            "made you reset by windows too large",
            |n| [get(stream(n), "/wait"), window_update(stream(n), i32::MAX as u32)].concat(),
            1_000,
            CALM,
        ),
        (
            "made you reset by DATA after END_STREAM",
            |n| [get(stream(n), "/wait"), frame(DATA, 0, stream(n), b"x")].concat(),
            50,
            CLOSED,
        ),
        (
            "made you reset by HEADERS after END_STREAM",
            |n| [get(stream(n), "/wait"), get(stream(n), "/wait")].concat(),
            50,
            CLOSED,
        ),
        (
            "made you reset by too much DATA",
            |n| {
                let head = post(stream(n), &[("content-length", "0")]);
                [head, frame(DATA, 0, stream(n), b"x")].concat()
            },
            1_000,
            CALM,
        ),
        (
            "made you reset by priorities",
            |n| {
                [get(stream(n), "/wait"), {
                    frame(PRIORITY, 0, stream(n), &[&stream(n).to_be_bytes()[..], b"x"].concat())
                }]
                .concat()
            },
            1_000,
            CALM,
        ),
        ("malformed heads", |n| post(stream(n), &[("connection", "close")]), 1_000, CALM),
        ("streams over the limit", |n| get(stream(n), "/wait"), 1_200, CALM),
        // CVE-2024-27316
        (
            "endless CONTINUATION",
            |n| match n {
                0 => frame(HEADERS, END_STREAM, 3, &field_block(&pseudo_header("GET", "/"))),
                _ => frame(CONTINUATION, 0, 3, &field_block(&[("x", [b'x'; 1_000])])),
            },
            100,
            CALM,
        ),
        (
            "empty CONTINUATION",
            |n| match n {
                0 => frame(HEADERS, END_STREAM, 3, &field_block(&pseudo_header("GET", "/"))),
                _ => frame(CONTINUATION, 0, 3, b""),
            },
            100,
            CALM,
        ),
        // A literal is added to the dynamic table and then referenced many times.
        (
            "HPACK bomb",
            |n| match n {
                0 => {
                    let mut bomb = field_block(&pseudo_header("GET", "/"));
                    bomb.push(0x40);
                    for text in [&b"x"[..], &[b'x'; 4_000]] {
                        push_integer(&mut bomb, 7, 0, text.len());
                        bomb.extend(text);
                    }
                    frame(HEADERS, END_ALL, 3, &bomb)
                }
                _ => {
                    let bomb =
                        [field_block(&pseudo_header("GET", "/")), vec![0x80 | 62; 16_000]].concat();
                    frame(HEADERS, END_ALL, stream(n), &bomb)
                }
            },
            50,
            CALM,
        ),
        // CVE-2019-9512 and similar floods.
        ("PING", |_| frame(PING, 0, 0, b"12345678"), 5_000, CALM),
        ("PING acknowledgment", |_| frame(PING, ACK, 0, b"12345678"), 5_000, CALM),
        ("SETTINGS", |_| large_settings(), 5_000, CALM),
        ("empty SETTINGS", |_| frame(SETTINGS, 0, 0, b""), 5_000, CALM),
        ("PRIORITY", |n| frame(PRIORITY, 0, stream(n), b"\0\0\0\0x"), 5_000, CALM),
        ("WINDOW_UPDATE", |_| window_update(0, 1), 40_000, CALM),
        ("WINDOW_UPDATE of a stream", |_| window_update(1, 1), 40_000, CALM),
        ("empty DATA", |_| frame(DATA, 0, 1, b""), 5_000, CALM),
        ("DATA of padding", |_| frame(DATA, PADDED, 1, &[9; 10]), 5_000, CALM),
        ("DATA of a byte", |_| frame(DATA, 0, 1, b"x"), 5_000, CALM),
        ("RST_STREAM of a closed stream", |_| reset(1, CANCEL), 5_000, CALM),
        ("frames of unknown type", |_| frame(99, 0, 0, b""), 5_000, CALM),
    ];
    for &(name, make, max_rounds, error) in table {
        let scenario = AttackScenario::begin();
        let mut client = RawClient::connect(&scenario.server);
        let mut first = post(1, &[]);
        first.extend(frame(DATA, 0, 1, b"x"));
        client.send(first);
        let begin = Instant::now();
        let batch = (max_rounds / WRITES).max(MIN_BATCH);
        let sent = flood(&scenario, &mut client, true, (100_000, batch), &make);
        // The credit grows by fifty frames per second, and by eight times as many of the cheapest.
        let earned = (begin.elapsed().as_secs_f64() * 400.0) as usize;
        assert!(sent <= max_rounds + earned + 10 * batch, "{name}: {sent} rounds");
        assert_eq!(client.read_goaways().last(), Some(&error), "{name}");
        scenario.end(&format!("{name}, {sent} rounds"));
    }
}

fn large_settings() -> Vec<u8> {
    crate::common::frames::settings(&[(INITIAL_WINDOW_SIZE, 70_000), (HEADER_TABLE_SIZE, 0)])
}

/// The responses accumulate until the server stops reading and closes the connection.
#[test]
fn closes_flooding_connections_that_do_not_read() {
    if has_run_alone() {
        return;
    }
    let table: &[(&str, MakeFrames)] = &[
        ("PING", |_| frame(PING, 0, 0, b"12345678").repeat(100)),
        ("SETTINGS", |_| large_settings().repeat(100)),
        ("requests", |n| (0..100).flat_map(|i| get(stream(100 * n + i), "/")).collect()),
        ("large responses", |n| {
            (0..100).flat_map(|i| get(stream(100 * n + i), "/endless")).collect()
        }),
    ];
    for &(name, make) in table {
        let scenario = AttackScenario::begin();
        let windows = [(INITIAL_WINDOW_SIZE, i32::MAX as u32)];
        let mut client = RawClient::with_settings(&scenario.server, &windows);
        client.auto_window_update = false;
        client.send(window_update(0, i32::MAX as u32 - 65_535));
        flood(&scenario, &mut client, false, (2_000, MIN_BATCH), &make);
        // The remaining input is finite.
        client.assert_closed();
        scenario.end(name);
    }
}

/// Many streams, each with a large response blocked by flow control.
#[test]
fn resets_streams_whose_windows_stay_closed() {
    if has_run_alone() {
        return;
    }
    for (name, windows) in [
        ("of the streams", &[(INITIAL_WINDOW_SIZE, 0)][..]),
        ("of the connection", &[(INITIAL_WINDOW_SIZE, 1 << 20)]),
    ] {
        let scenario = AttackScenario::begin();
        let mut client = RawClient::with_settings(&scenario.server, windows);
        client.auto_window_update = false;
        let streams: Vec<u32> = (0..128).map(|_| client.get("/endless")).collect();
        for stream in streams {
            assert_eq!(client.outcome(stream), "reset CANCEL", "{name}");
        }
        // Then the connection is idle and reaches the idle timeout.
        assert_eq!(client.read_goaways().last(), Some(&"NO_ERROR"));
        scenario.end(name);
    }
}

/// Unread request bodies are bounded by the connection window.
#[test]
fn connection_window_bounds_unread_bodies() {
    if has_run_alone() {
        return;
    }
    let scenario = AttackScenario::begin();
    let mut client = RawClient::connect(&scenario.server);
    client.read_until("the connection's window", |client| client.window(0) == 1 << 20);
    let mut sent = 0;
    for _ in 0..100 {
        let stream = client.post("/wait");
        sent += client.upload_some(stream, usize::MAX);
    }
    client.sync();
    assert_eq!(sent, 1 << 20);
    // Data beyond the window is a connection error (RFC 9113 §6.9).
    let stream = client.post("/wait");
    client.send(frame(DATA, 0, stream, b"x"));
    assert_eq!(client.read_goaways(), ["FLOW_CONTROL_ERROR"]);
    scenario.end("bodies");
}

/// A slow sequence of bytes does not extend the head timeout.
#[test]
fn trickling_heads_time_out() {
    if has_run_alone() {
        return;
    }
    let head = get(1, &"/x".repeat(4_000));
    let opening = [PREFACE, &frame(SETTINGS, 0, 0, b"")].concat();
    let whole_before = [&opening[..], &get(1, "/")].concat();
    let later = get(3, &"/x".repeat(4_000));
    let pieces = [frame(HEADERS, 0, 1, b""), frame(CONTINUATION, 0, 1, b"").repeat(100)].concat();
    for (name, before, trickle, size, errors) in [
        ("the preface", &b""[..], &[&opening[..], &head].concat(), 1, &[][..]),
        ("the first request", &opening, &head, 1, &[]),
        ("a later request", &whole_before, &later, 1, &["NO_ERROR"]),
        // Whole frames, so that the limit is reached before the head timeout.
        ("empty pieces", &opening, &pieces, 9, &["ENHANCE_YOUR_CALM"]),
    ] {
        let scenario = AttackScenario::begin();
        let mut client = RawClient::connect_without_preface(&scenario.server);
        client.auto_ack = false;
        client.send(before);
        let begin = Instant::now();
        let mut bytes = trickle.chunks(size).cycle();
        // The client reads its input and stops when the connection is closed.
        while client.closed.is_none() && client.goaways.is_empty() {
            assert!(begin.elapsed() < TEST_TIMEOUT, "{name}: the server does not time out");
            if client.try_send(bytes.next().unwrap()).is_err() {
                break;
            }
            if client.has_input_within(Duration::from_millis(20)) {
                client.read();
            }
        }
        assert_eq!(client.read_goaways(), errors, "{name}");
        scenario.end(name);
    }
}
