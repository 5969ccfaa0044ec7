//! Fairness: while hostile clients do what the limits allow, the requests of other clients succeed,
//! and their latency stays near that without hostile clients in the same run.
//!
//! `WEFT_FAIRNESS_ROUNDS` sets the number of rounds (default 3), and `WEFT_FAIRNESS_ONLY` selects
//! the rows whose name contains it. The measured latencies are printed:
//!
//! ```sh
//! WEFT_FAIRNESS_ROUNDS=20 cargo test --release -p weft-server --test it fairness:: -- --nocapture
//! ```

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use tokio::net::TcpStream;

use crate::budgets::attack::{Attack, Ends, Reads, Transport};
use crate::budgets::client::{self, Progress};
use crate::budgets::server::{OrdinaryClient, Site, Target};
use crate::budgets::wire::*;
use crate::common::{PATIENCE, until};

/// Duration of one measurement.
const MEASUREMENT: Duration = Duration::from_millis(200);

/// Maximum ratio of the latency beside hostile clients to the undisturbed one.
const MAX_RATIO: f64 = 3.0;

/// Latency that is allowed in any case: the scheduler of a busy machine lets a process wait this
/// long. More for a build without optimization, in which the server is busy itself.
const FLOOR: Duration = Duration::from_millis(if cfg!(debug_assertions) { 150 } else { 25 });

/// Number of measurements of a row that is not fair. On a busy machine other processes may have the
/// CPU in most rounds of one. The rounds of all measurements count together.
const MAX_ATTEMPTS: usize = 5;

/// Pause of a good client between two requests.
const PAUSE: Duration = Duration::from_millis(2);

/// Targets of the good clients: a file, and a route with an upstream of its own.
const ROUTES: [&str; 2] = ["/small.txt", "/good/small"];

/// The clients that must not notice anything.
const GOOD_CLIENTS: [GoodClient; 8] = [
    GoodClient { route: 0, is_http2: false },
    GoodClient { route: 0, is_http2: false },
    GoodClient { route: 0, is_http2: false },
    GoodClient { route: 1, is_http2: false },
    GoodClient { route: 1, is_http2: false },
    GoodClient { route: 0, is_http2: true },
    GoodClient { route: 0, is_http2: true },
    GoodClient { route: 1, is_http2: true },
];

/// Address of the hostile clients; the others have 127.0.0.1.
const HOSTILE: [u8; 4] = [127, 0, 0, 2];

fn row(name: &'static str) -> Attack {
    Attack::new(name, "").source(HOSTILE).connections(16)
}

/// Row whose requests saturate a server that was built without optimization.
fn expensive_row(name: &'static str) -> Attack {
    match cfg!(debug_assertions) {
        true => row(name).known_excess("not optimized"),
        false => row(name),
    }
}

/// Hostile clients, each within the limits of the server: they go on until the end of the
/// measurement.
fn hostile_clients() -> Vec<Attack> {
    vec![
        row("slow readers of a file").once(get("/large.bin", "")).reads(Reads::Slowly),
        row("slow readers of a proxied response").once(get("/up/large", "")).reads(Reads::Slowly),
        row("pipelines").connections(4).flood(1_000_000, |_| get("/small.txt", "")),
        row("rapid resets within the limit").connections(4).once(preface(&[])).paced(
            1_000_000,
            25,
            |n| {
                let requests =
                    (5 * n..5 * n + 5).map(|n| [h2_get(n, "/large.bin", &[]), reset(stream(n))]);
                requests.flatten().flatten().collect()
            },
        ),
        row("HTTP/2 streams with shut windows")
            .connections(4)
            .once(preface(&[(INITIAL_WINDOW_SIZE, 0)]))
            .flood(100, |n| h2_get(n, "/large.bin", &[])),
        expensive_row("long Accept-Encoding").connections(4).flood(1_000_000, |_| {
            get("/words.txt", &list_field("Accept-Encoding", "a;q=0.5", 15_000))
        }),
        expensive_row("Accept-Encoding by reference")
            .connections(4)
            .once(preface(&[]))
            .once(window_update(0, MAX_WINDOW - 65_535))
            .once({
                let value = "a;q=0.5,".repeat(500);
                let block = [short_block(), literal(0x40, "accept-encoding", &value)].concat();
                frame(HEADERS, END_ALL, 1, &block)
            })
            .paced(1_000_000, 10, |n| {
                let block = [short_block(), vec![FIRST_DYNAMIC; 3]].concat();
                let numbers = 20 * n + 1..20 * n + 21;
                numbers.flat_map(|n| frame(HEADERS, END_ALL, stream(n), &block)).collect()
            }),
        expensive_row("HEAD of a large text")
            .connections(4)
            .flood(1_000, |_| head("HEAD /text.txt", "Accept-Encoding: br\r\n")),
        row("slow uploads to the proxy")
            .once(post("/up/sink", "Content-Length: 60000\r\n"))
            .trickle(20, |_| vec![b'a'; 20]),
        row("slow uploads to the route of others")
            .connections(64)
            .once(post("/good/sink", "Content-Length: 60000\r\n"))
            .trickle(20, |_| vec![b'a'; 20]),
        row("guessed passwords").paced(1_000_000, 5, |n| {
            let credentials = STANDARD.encode(format!("alice:{n}"));
            get("/password/small.txt", &format!("Authorization: Basic {credentials}\r\n"))
        }),
        // Without optimization, a verification takes ten times as long.
        row("forged tokens").paced(1_000_000, if cfg!(debug_assertions) { 25 } else { 5 }, |n| {
            let signed = "eyJhbGciOiJFUzM4NCJ9.eyJleHAiOjk5OTk5OTk5OTl9";
            let mut signature = [1; 96];
            signature[88..].copy_from_slice(&n.to_be_bytes());
            let token = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature));
            get("/token/small.txt", &format!("Authorization: Bearer {token}\r\n"))
        }),
        row("requests to a silent upstream").connections(64).once(get("/up/silent", "")),
        row("HTTP/2 requests to a silent upstream")
            .connections(4)
            .once(preface(&[]))
            .flood(100, |n| h2_get(n, "/up/silent", &[])),
        row("idle connections").connections(300),
        row("TLS handshakes").connections(32).over(Transport::Tls("http/1.1")),
    ]
}

/// A client with one request at a time.
#[derive(Clone, Copy)]
struct GoodClient {
    /// Index in [`ROUTES`].
    route: usize,
    is_http2: bool,
}

#[test]
fn hostile_clients_do_not_slow_others() {
    let setting = |name: &str| std::env::var(name).ok();
    let rounds = setting("WEFT_FAIRNESS_ROUNDS").map_or(3, |text| text.parse().expect("a number"));
    let only = setting("WEFT_FAIRNESS_ONLY").unwrap_or_default();
    let site = Site::new();
    let mut table = "| hostile clients | route | p99 alone | p99 beside them | requests |\n\
                     | --- | --- | --- | --- | --- |\n"
        .to_owned();
    let mut failures = Vec::new();
    for attack in hostile_clients().iter().filter(|attack| attack.name.contains(&only)) {
        let mut found = Comparison::default();
        for _ in 0..MAX_ATTEMPTS {
            found.measure(&site, attack, rounds);
            if found.is_fair() || found.errors > 0 || attack.known_excess.is_some() {
                break;
            }
        }
        found.write_rows(&mut table, attack);
        if !found.is_fair() && attack.known_excess.is_none() {
            failures.push(format!("{}: {found:?}", attack.name));
        }
    }
    println!("{table}");
    assert!(failures.is_empty(), "unfair:\n{}\n{table}", failures.join("\n"));
}

/// Latencies without and with hostile clients: one of each per round, for each of [`ROUTES`].
#[derive(Debug, Default)]
struct Comparison {
    alone: [Vec<Duration>; 2],
    beside: [Vec<Duration>; 2],
    requests: usize,
    /// Panics of good clients: a missing or wrong response.
    errors: usize,
}

impl Comparison {
    /// Adds the latencies of more rounds, on a new server.
    fn measure(&mut self, site: &Site, attack: &Attack, rounds: usize) {
        let server = site.start_patiently();
        // The first requests open files and connections to the upstream.
        Latencies::measure(&server, MEASUREMENT / 4);
        for _ in 0..rounds {
            let latencies = Latencies::measure(&server, MEASUREMENT * 3 / 5);
            self.errors += latencies.errors;
            for (route, alone) in self.alone.iter_mut().enumerate() {
                alone.push(latencies.p99(route));
            }
            let latencies = beside(attack, &server, || Latencies::measure(&server, MEASUREMENT));
            self.errors += latencies.errors;
            self.requests += latencies.samples.iter().map(Vec::len).sum::<usize>();
            for (route, beside) in self.beside.iter_mut().enumerate() {
                beside.push(latencies.p99(route));
            }
        }
    }

    /// Returns true if most rounds are fair, for each route. Both latencies of a round are measured
    /// in succession, so that the load of the machine is in both.
    fn is_fair(&self) -> bool {
        let is_fair = |(&alone, &beside): (&Duration, &Duration)| {
            beside <= alone.mul_f64(MAX_RATIO).max(alone + FLOOR)
        };
        let mostly_fair = |route: usize| {
            let rounds = self.alone[route].iter().zip(&self.beside[route]);
            2 * rounds.filter(|&round| is_fair(round)).count() > self.alone[route].len()
        };
        self.errors == 0 && mostly_fair(0) && mostly_fair(1)
    }

    fn write_rows(&self, table: &mut String, attack: &Attack) {
        for (route, target) in ROUTES.iter().enumerate() {
            let [alone, beside] = [&self.alone, &self.beside].map(|p99| median(&p99[route]));
            let note = match attack.known_excess {
                Some(reason) if !self.is_fair() => format!(" **unfair: {reason}**"),
                Some(reason) => format!(" (now fair: {reason})"),
                None => String::new(),
            };
            writeln!(
                table,
                "| {}{note} | `{target}` | {:.1} ms | {:.1} ms | {} |",
                attack.name,
                alone.as_secs_f64() * 1e3,
                beside.as_secs_f64() * 1e3,
                self.requests,
            )
            .expect("a string is writable");
        }
    }
}

fn median(values: &[Duration]) -> Duration {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted[sorted.len() / 2]
}

/// Measures while hostile clients are active.
fn beside<T>(attack: &Attack, server: &Target, measure: impl FnOnce() -> T) -> T {
    let mut attack = attack.clone();
    let is_tls = attack.transport != Transport::Plain;
    // Handshakes are repeated; all others go on until the end.
    attack.ends = match is_tls {
        true => Ends::Served(Duration::ZERO),
        false => Ends::GivenUp(0.0..=60.0),
    };
    let address = if is_tls { server.tls_address() } else { server.address() };
    let progress = Arc::<Progress>::default();
    std::thread::scope(|scope| {
        let hostile = scope.spawn(|| {
            while !progress.is_given_up.load(Relaxed) {
                client::run(&attack, address, &progress);
            }
        });
        until("the hostile clients are connected", || progress.is_open.load(Relaxed));
        std::thread::sleep(Duration::from_millis(50));
        let measured = measure();
        progress.is_given_up.store(true, Relaxed);
        hostile.join().expect("hostile clients do not panic");
        measured
    })
}

/// Latencies of requests, for each of [`ROUTES`].
#[derive(Default)]
struct Latencies {
    samples: [Vec<Duration>; 2],
    errors: usize,
}

impl Latencies {
    /// Runs all good clients for this time.
    fn measure(server: &Target, duration: Duration) -> Latencies {
        let mut latencies = Latencies::default();
        std::thread::scope(|scope| {
            let clients = GOOD_CLIENTS.map(|client| {
                (client.route, scope.spawn(move || client.run(server, Instant::now() + duration)))
            });
            for (route, client) in clients {
                match client.join() {
                    Ok(samples) => latencies.samples[route].extend(samples),
                    Err(_) => latencies.errors += 1,
                }
            }
        });
        latencies
    }

    fn p99(&self, route: usize) -> Duration {
        let mut sorted = self.samples[route].clone();
        sorted.sort_unstable();
        // A client whose request never completes has panicked.
        sorted.get(sorted.len() * 99 / 100).copied().unwrap_or(Duration::MAX)
    }
}

impl GoodClient {
    /// Sends requests until `end` and returns their latencies; panics if one fails.
    fn run(self, server: &Target, end: Instant) -> Vec<Duration> {
        let target = ROUTES[self.route];
        let mut samples = Vec::new();
        if self.is_http2 {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let mut client = Http2Client::connect(server).await;
                while Instant::now() < end {
                    let start = Instant::now();
                    tokio::time::timeout(PATIENCE, client.get(target)).await.expect("a response");
                    samples.push(start.elapsed());
                    tokio::time::sleep(PAUSE).await;
                }
            });
        } else {
            let mut client = OrdinaryClient::connect(server, false);
            while Instant::now() < end {
                let start = Instant::now();
                client.get(target);
                samples.push(start.elapsed());
                std::thread::sleep(PAUSE);
            }
        }
        samples
    }
}

struct Http2Client(h2::client::SendRequest<Bytes>);

impl Http2Client {
    async fn connect(server: &Target) -> Http2Client {
        let socket = TcpStream::connect(server.address()).await.expect("a connection");
        socket.set_nodelay(true).unwrap();
        let (client, connection) = h2::client::handshake(socket).await.expect("HTTP/2");
        tokio::spawn(connection);
        Http2Client(client)
    }

    async fn get(&mut self, target: &str) {
        let request = http::Request::get(format!("http://a{target}")).body(()).unwrap();
        std::future::poll_fn(|context| self.0.poll_ready(context)).await.expect("a stream");
        let (response, _) = self.0.send_request(request, true).expect("an open connection");
        let response = response.await.expect("a response");
        assert_eq!(response.status(), 200);
        let mut body = response.into_body();
        while let Some(data) = body.data().await {
            let data = data.expect("a whole body");
            body.flow_control().release_capacity(data.len()).unwrap();
        }
    }
}
