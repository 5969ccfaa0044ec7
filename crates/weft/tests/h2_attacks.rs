//! Attacks on HTTP/2, bounded in number and time. The attacker is cut, memory stays bounded,
//! and the others are answered meanwhile.
//!
//! The tests take turns, because memory is counted for all of the process.

mod common;

use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::frames::*;
use common::{Client, PATIENCE, stop, until};
use peak_alloc::PeakAlloc;
use weft::{Body, Error, Method, Request, Response, Running, Server, Settings};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// What an attack may cost at most, client and bystanders included.
const MOST_BYTES: usize = 4 << 20;

/// Does what the path says; a body is not read.
async fn app(request: Request) -> Response {
    match (request.method(), request.path()) {
        (_, "/wait") => pending().await,
        (_, "/endless") => Response::body(Body::stream(Endless)),
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
struct Scene {
    server: Running,
    is_over: Arc<AtomicBool>,
    bystanders: Vec<JoinHandle<usize>>,
    /// How often they were answered.
    answers: Arc<AtomicUsize>,
    bytes_before: usize,
    _turn: MutexGuard<'static, ()>,
}

impl Scene {
    fn begin() -> Scene {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let server = Server::new(app).settings(settings()).workers(1);
        let server = server.listen("127.0.0.1:0").unwrap().start().unwrap();
        let (is_over, answers) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let (mut one, mut two) = (Client::connect(&server), Raw::connect(&server));
        let bystanders = vec![
            bystander(&is_over, &answers, move || one.assert_open("/")),
            bystander(&is_over, &answers, move || two.assert_open("/")),
        ];
        ALLOCATOR.reset_peak_usage();
        let bytes_before = ALLOCATOR.current_usage();
        Scene { server, is_over, bystanders, answers, bytes_before, _turn: turn }
    }

    /// Waits until the worker has come round to the others, and thus to the attacker, too: how
    /// far an attack comes says nothing while the machine is busy elsewhere.
    fn others_are_answered(&self) {
        let before = self.answers.load(SeqCst);
        until("the others are answered", || self.answers.load(SeqCst) > before + 2);
    }

    /// What was needed at most since the beginning.
    fn peak(&self) -> usize {
        ALLOCATOR.peak_usage().saturating_sub(self.bytes_before)
    }

    #[track_caller]
    fn end(self, name: &str) {
        let peak = self.peak();
        self.is_over.store(true, SeqCst);
        for bystander in self.bystanders {
            let answers = bystander.join().expect("the others are answered");
            assert!(answers > 0);
        }
        println!("{name}: {} KiB", peak >> 10);
        assert!(peak < MOST_BYTES, "{name}: {peak} bytes");
        stop(self.server);
    }
}

/// Another client, who asks until it is over and is always answered.
fn bystander(
    is_over: &Arc<AtomicBool>,
    all_answers: &Arc<AtomicUsize>,
    mut ask: impl FnMut() + Send + 'static,
) -> JoinHandle<usize> {
    let (is_over, all_answers) = (is_over.clone(), all_answers.clone());
    std::thread::spawn(move || {
        let mut answers = 0;
        loop {
            // Asked at least once after the attack has ended, too.
            let is_last = is_over.load(SeqCst);
            ask();
            answers += 1;
            all_answers.fetch_add(1, SeqCst);
            if is_last {
                return answers;
            }
        }
    })
}

/// Frames that are sent at once, before the attacker looks at what has come.
const AT_ONCE: usize = 50;

/// Sends again and again what `make` makes of a number, up to `most` times and until the server
/// says goodbye; how many times that was. A client that does not read only notices that it can
/// send no more.
fn flood(
    scene: &Scene,
    client: &mut Raw,
    reads: bool,
    most: usize,
    make: &dyn Fn(u32) -> Vec<u8>,
) -> usize {
    let mut sent = 0;
    while sent < most {
        let frames: Vec<u8> = (sent..sent + AT_ONCE).flat_map(|n| make(n as u32)).collect();
        if client.try_send(frames).is_err() {
            break;
        }
        sent += AT_ONCE;
        if reads {
            scene.others_are_answered();
        }
        while reads && client.comes_within(Duration::from_millis(1)) && client.read() {}
        if !client.goaways.is_empty() || client.closed.is_some() {
            break;
        }
    }
    sent
}

/// The stream that the number stands for, after the first one.
fn stream(number: u32) -> u32 {
    2 * number + 3
}

fn post(stream: u32, fields: &[(&str, &str)]) -> Vec<u8> {
    let head = [&pseudo("POST", "/")[..], fields].concat();
    frame(HEADERS, END_HEADERS, stream, &block(&head))
}

type Make = fn(u32) -> Vec<u8>;

/// Each is cut after at most so many rounds. On stream 1 there is a body that nobody reads.
#[test]
fn floods() {
    const CALM: &str = "ENHANCE_YOUR_CALM";
    const WRONG: &str = "PROTOCOL_ERROR";
    const CLOSED: &str = "STREAM_CLOSED";
    let table: &[(&str, Make, usize, &str)] = &[
        // CVE-2023-44487
        (
            "rapid reset",
            |n| [get(stream(n), "/wait"), reset(stream(n), CANCEL)].concat(),
            500,
            CALM,
        ),
        (
            "rapid reset of what is answered at once",
            |n| [get(stream(n), "/"), reset(stream(n), CANCEL)].concat(),
            500,
            CALM,
        ),
        // CVE-2025-8671: the server is made to reset.
        (
            "made you reset by windows of 0",
            |n| [get(stream(n), "/wait"), window_update(stream(n), 0)].concat(),
            50,
            WRONG,
        ),
        (
            "made you reset by windows too large",
            |n| [get(stream(n), "/wait"), window_update(stream(n), i32::MAX as u32)].concat(),
            1_000,
            CALM,
        ),
        (
            "made you reset by DATA behind the end",
            |n| [get(stream(n), "/wait"), frame(DATA, 0, stream(n), b"x")].concat(),
            50,
            CLOSED,
        ),
        (
            "made you reset by HEADERS behind the end",
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
        ("streams too many", |n| get(stream(n), "/wait"), 1_200, CALM),
        // CVE-2024-27316
        (
            "endless CONTINUATION",
            |n| match n {
                0 => frame(HEADERS, END_STREAM, 3, &block(&pseudo("GET", "/"))),
                _ => frame(CONTINUATION, 0, 3, &block(&[("x", [b'x'; 1_000])])),
            },
            100,
            CALM,
        ),
        (
            "empty CONTINUATION",
            |n| match n {
                0 => frame(HEADERS, END_STREAM, 3, &block(&pseudo("GET", "/"))),
                _ => frame(CONTINUATION, 0, 3, b""),
            },
            100,
            CALM,
        ),
        // A literal goes into the table, and is then referred to without end.
        (
            "HPACK bomb",
            |n| match n {
                0 => {
                    let mut bomb = block(&pseudo("GET", "/"));
                    bomb.push(0x40);
                    for text in [&b"x"[..], &[b'x'; 4_000]] {
                        push_integer(&mut bomb, 7, 0, text.len());
                        bomb.extend(text);
                    }
                    frame(HEADERS, WHOLE, 3, &bomb)
                }
                _ => {
                    let bomb = [block(&pseudo("GET", "/")), vec![0x80 | 62; 16_000]].concat();
                    frame(HEADERS, WHOLE, stream(n), &bomb)
                }
            },
            50,
            CALM,
        ),
        // CVE-2019-9512 and its kin.
        ("PING", |_| frame(PING, 0, 0, b"12345678"), 5_000, CALM),
        ("PING that confirms", |_| frame(PING, ACK, 0, b"12345678"), 5_000, CALM),
        ("SETTINGS", |_| super_settings(), 5_000, CALM),
        ("empty SETTINGS", |_| frame(SETTINGS, 0, 0, b""), 5_000, CALM),
        ("PRIORITY", |n| frame(PRIORITY, 0, stream(n), b"\0\0\0\0x"), 5_000, CALM),
        ("WINDOW_UPDATE", |_| window_update(0, 1), 40_000, CALM),
        ("WINDOW_UPDATE of a stream", |_| window_update(1, 1), 40_000, CALM),
        ("empty DATA", |_| frame(DATA, 0, 1, b""), 5_000, CALM),
        ("DATA of padding", |_| frame(DATA, PADDED, 1, &[9; 10]), 5_000, CALM),
        ("DATA of a byte", |_| frame(DATA, 0, 1, b"x"), 5_000, CALM),
        ("RST_STREAM of nothing", |_| reset(1, CANCEL), 5_000, CALM),
        ("frames that nobody knows", |_| frame(99, 0, 0, b""), 5_000, CALM),
    ];
    for &(name, make, most, error) in table {
        let scene = Scene::begin();
        let mut client = Raw::connect(&scene.server);
        let mut first = post(1, &[]);
        first.extend(frame(DATA, 0, 1, b"x"));
        client.send(first);
        let begin = Instant::now();
        let sent = flood(&scene, &mut client, true, 100_000, &make);
        // Time is worth fifty frames a second, and eight times as many of the cheapest.
        let earned = (begin.elapsed().as_secs_f64() * 400.0) as usize;
        assert!(sent <= most + earned + 10 * AT_ONCE, "{name}: {sent} rounds");
        assert_eq!(client.goodbye().last(), Some(&error), "{name}");
        scene.end(&format!("{name}, {sent} rounds"));
    }
}

fn super_settings() -> Vec<u8> {
    self::common::frames::settings(&[(INITIAL_WINDOW_SIZE, 70_000), (HEADER_TABLE_SIZE, 0)])
}

/// The answers to what is sent pile up: at some time the server takes no more.
#[test]
fn floods_by_clients_that_do_not_read() {
    let table: &[(&str, Make)] = &[
        ("PING", |_| frame(PING, 0, 0, b"12345678").repeat(100)),
        ("SETTINGS", |_| super_settings().repeat(100)),
        ("requests", |n| (0..100).flat_map(|i| get(stream(100 * n + i), "/")).collect()),
        ("large responses", |n| {
            (0..100).flat_map(|i| get(stream(100 * n + i), "/endless")).collect()
        }),
    ];
    for &(name, make) in table {
        let scene = Scene::begin();
        let windows = [(INITIAL_WINDOW_SIZE, i32::MAX as u32)];
        let mut client = Raw::with_settings(&scene.server, &windows);
        client.takes_all = false;
        client.send(window_update(0, i32::MAX as u32 - 65_535));
        flood(&scene, &mut client, false, 2_000, &make);
        // Whatever it still finds to read, that has an end.
        client.assert_closed();
        scene.end(name);
    }
}

/// Many streams, each with a large response that nobody lets through.
#[test]
fn windows_that_stay_shut() {
    for (name, windows) in [
        ("of the streams", &[(INITIAL_WINDOW_SIZE, 0)][..]),
        ("of the connection", &[(INITIAL_WINDOW_SIZE, 1 << 20)]),
    ] {
        let scene = Scene::begin();
        let mut client = Raw::with_settings(&scene.server, windows);
        client.takes_all = false;
        let streams: Vec<u32> = (0..128).map(|_| client.get("/endless")).collect();
        for stream in streams {
            assert_eq!(client.outcome(stream), "reset CANCEL", "{name}");
        }
        // Then the connection rests, and that has an end too.
        assert_eq!(client.goodbye().last(), Some(&"NO_ERROR"));
        scene.end(name);
    }
}

/// Bodies that are sent and never read fill their windows, and no more.
#[test]
fn bodies_that_pile_up() {
    let scene = Scene::begin();
    let mut client = Raw::connect(&scene.server);
    client.until("the connection's window", |raw| raw.window(0) == 1 << 20);
    let mut sent = 0;
    for _ in 0..100 {
        let stream = client.post("/wait");
        sent += client.upload_some(stream, usize::MAX);
    }
    client.sync();
    assert_eq!(sent, 1 << 20);
    // What does not keep to the window is an error of the connection (RFC 9113 §6.9).
    let stream = client.post("/wait");
    client.send(frame(DATA, 0, stream, b"x"));
    assert_eq!(client.goodbye(), ["FLOW_CONTROL_ERROR"]);
    scene.end("bodies");
}

/// Each byte is progress, but the clocks are not moved by it.
#[test]
fn heads_that_trickle() {
    let head = get(1, &"/x".repeat(4_000));
    let opening = [PREFACE, &frame(SETTINGS, 0, 0, b"")].concat();
    let whole_before = [&opening[..], &get(1, "/")].concat();
    let later = get(3, &"/x".repeat(4_000));
    let pieces = [frame(HEADERS, 0, 1, b""), frame(CONTINUATION, 0, 1, b"").repeat(100)].concat();
    for (name, before, trickle, size, goodbye) in [
        ("the preface", &b""[..], &[&opening[..], &head].concat(), 1, &[][..]),
        ("the first request", &opening, &head, 1, &[]),
        ("a later request", &whole_before, &later, 1, &["NO_ERROR"]),
        // Whole, to be faster than the clock of the first request.
        ("empty pieces", &opening, &pieces, 9, &["ENHANCE_YOUR_CALM"]),
    ] {
        let scene = Scene::begin();
        let mut client = Raw::silent(&scene.server);
        client.confirms = false;
        client.send(before);
        let begin = Instant::now();
        let mut bytes = trickle.chunks(size).cycle();
        // It reads what comes, and stops when there is nobody any more.
        while client.closed.is_none() && client.goaways.is_empty() {
            assert!(begin.elapsed() < PATIENCE, "{name}: it trickles for ever");
            if client.try_send(bytes.next().unwrap()).is_err() {
                break;
            }
            if client.comes_within(Duration::from_millis(20)) {
                client.read();
            }
        }
        assert_eq!(client.goodbye(), goodbye, "{name}");
        scene.end(name);
    }
}
