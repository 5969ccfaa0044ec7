//! One of three upstreams fails under load: requests that may be sent again succeed, few others
//! fail, and those on the other upstreams are not slower.
//!
//! Longer runs at a higher rate: `WEFT_UPSTREAM_RATE=2000 WEFT_UPSTREAM_SECONDS=10 cargo test
//! --release -p weft-server --test it failing_upstreams:: -- --nocapture` prints the table.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use weft::testing::TestServer;
use weft::{Request, Response, StatusCode};

use crate::common::random::environment_number;
use crate::common::{Client, Signal, Weft, weft};

/// Clients, each with a kept connection and one request at a time. They bound the requests in
/// flight.
const CLIENTS: usize = 16;

/// Time for which an upstream is down after failures.
const DOWN_TIME: Duration = Duration::from_millis(500);

/// Workers of the server. Each tries an upstream that is down again after `DOWN_TIME`.
const WORKERS: usize = 2;

/// Permitted ratio of the p99 on the other upstreams to the undisturbed one, and a difference that
/// the load of the machine may cause.
const MAX_RATIO: f64 = 2.0;
const FLOOR: Duration = Duration::from_millis(25);

/// Attempts to measure latencies within [`MAX_RATIO`]: other load ends at some time.
const MAX_ATTEMPTS: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// The process is killed.
    Killed,
    /// The process is killed and started again, over and over.
    Flapping,
    /// Each response takes this long.
    Slow(Duration),
    /// Each response has this status.
    Status(u16),
}

#[test]
fn killed_upstream() {
    assert_tolerates(Fault::Killed);
}

#[test]
fn flapping_upstream() {
    assert_tolerates(Fault::Flapping);
}

#[test]
fn slow_upstream() {
    assert_tolerates(Fault::Slow(Duration::from_millis(600)));
}

#[test]
fn unavailable_upstream() {
    assert_tolerates(Fault::Status(503));
}

fn assert_tolerates(fault: Fault) {
    for attempt in 1.. {
        let run = Run::new(fault);
        println!("{}", run.row(fault));
        run.assert_few_failures(fault);
        if run.has_equal_latencies() {
            return;
        }
        assert!(attempt < MAX_ATTEMPTS, "{fault:?} slows the other upstreams: {}", run.row(fault));
    }
}

/// Requests before and during a fault.
struct Run {
    before: Vec<Sample>,
    during: Vec<Sample>,
    /// Number of times that the process of the upstream was killed.
    kills: usize,
    /// Duration of the fault.
    duration: Duration,
}

struct Sample {
    is_repeatable: bool,
    status: u16,
    /// The upstream that responded.
    upstream: String,
    latency: Duration,
}

impl Run {
    fn new(fault: Fault) -> Run {
        let seconds = environment_number("WEFT_UPSTREAM_SECONDS");
        let duration = seconds.map_or(Duration::from_secs(2), Duration::from_secs);
        let mut upstreams = Upstreams::start(fault);
        let server = upstreams.proxy();
        // Opens the connections.
        load(&server, Duration::from_millis(200));
        let before = load(&server, duration);
        let (during, kills) = thread::scope(|scope| {
            let load = scope.spawn(|| load(&server, duration));
            let kills = upstreams.fail(fault, Instant::now() + duration);
            (load.join().expect("no connection to the server breaks"), kills)
        });
        Run { before, during, kills, duration }
    }

    fn assert_few_failures(&self, fault: Fault) {
        let failed = |samples: &[Sample], is_repeatable: bool| {
            let failed = |it: &&Sample| it.status != 200 && it.is_repeatable == is_repeatable;
            samples.iter().filter(failed).count()
        };
        assert_eq!((failed(&self.before, true), failed(&self.before, false)), (0, 0), "before");
        assert_eq!(failed(&self.during, true), 0, "requests that may be sent again: {fault:?}");
        let periods = 1 + (self.duration.as_secs_f64() / DOWN_TIME.as_secs_f64()) as usize;
        let max = match fault {
            Fault::Killed | Fault::Flapping => self.kills * CLIENTS,
            Fault::Slow(_) => 0,
            // Before the first failure is known, and then one at a time to try the upstream again.
            Fault::Status(_) => CLIENTS + WORKERS * periods,
        };
        let failed = failed(&self.during, false);
        assert!(failed <= max, "{failed} of at most {max} requests failed: {fault:?}");
        let last = self.during.iter().filter(|it| it.upstream == "2").count();
        let max = match fault {
            // As above: those in flight, and then one at a time.
            Fault::Slow(_) => CLIENTS + WORKERS * periods,
            _ => self.during.len() / 3,
        };
        assert!(
            last <= max,
            "{last} of at most {max} requests were sent to the one with {fault:?}"
        );
    }

    fn has_equal_latencies(&self) -> bool {
        let [before, during] = [p99(&self.before), p99(&self.during)];
        during <= before.mul_f64(MAX_RATIO).max(before + FLOOR)
    }

    fn row(&self, fault: Fault) -> String {
        let failed = self.during.iter().filter(|it| it.status != 200).count();
        let [before, during] = [&self.before, &self.during].map(|it| p99(it).as_secs_f64() * 1e3);
        let sent = self.during.len();
        let (rate, kills) = (sent as f64 / self.duration.as_secs_f64(), self.kills);
        format!(
            "| {fault:?} | {sent} ({rate:.0}/s) | {kills} kills | {failed} failed | p99 {before:.1} ms → {during:.1} ms |"
        )
    }
}

/// The 99th percentile of the latencies on the upstreams without a fault.
fn p99(samples: &[Sample]) -> Duration {
    let healthy = samples.iter().filter(|sample| sample.upstream != "2");
    let mut latencies: Vec<Duration> = healthy.map(|sample| sample.latency).collect();
    latencies.sort_unstable();
    latencies[latencies.len() * 99 / 100]
}

/// Sends requests at a fixed rate. Every second one must not be sent again.
fn load(server: &Weft, duration: Duration) -> Vec<Sample> {
    let rate = environment_number("WEFT_UPSTREAM_RATE").unwrap_or(400);
    let interval = Duration::from_secs(CLIENTS as u64) / u32::try_from(rate).unwrap();
    let end = Instant::now() + duration;
    thread::scope(|scope| {
        let clients = (0..CLIENTS).map(|number| {
            scope.spawn(move || {
                thread::sleep(interval.mul_f64(number as f64 / CLIENTS as f64));
                let mut client = server.client();
                let mut next = Instant::now();
                let mut samples = Vec::new();
                while next < end {
                    thread::sleep(next.saturating_duration_since(Instant::now()));
                    samples.push(exchange(&mut client, samples.len() % 2 == 0));
                    next = (next + interval).max(Instant::now());
                }
                samples
            })
        });
        let clients: Vec<_> = clients.collect();
        clients.into_iter().flat_map(|client| client.join().expect("responses")).collect()
    })
}

fn exchange(client: &mut Client, is_repeatable: bool) -> Sample {
    let begun = Instant::now();
    client.send(match is_repeatable {
        true => "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        false => "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody",
    });
    let response = client.response();
    Sample {
        is_repeatable,
        status: response.status,
        upstream: String::from_utf8(response.body).unwrap(),
        latency: begun.elapsed(),
    }
}

/// Three upstreams that respond with their number. The last one is to fail.
struct Upstreams {
    folder: TempDir,
    healthy: Vec<TestServer>,
    last: Last,
}

enum Last {
    /// A process, and its address.
    Process(Option<Box<Weft>>, String),
    /// A server with a status, or 0 if it is slow.
    Server(Box<TestServer>, Arc<AtomicU16>),
}

impl Upstreams {
    fn start(fault: Fault) -> Upstreams {
        let healthy = |number: usize| {
            TestServer::start(async move |request: Request| {
                drop(request.into_body().collect(1 << 20).await);
                Response::text(number.to_string())
            })
        };
        let folder = tempfile::tempdir().unwrap();
        let last = match fault {
            Fault::Killed | Fault::Flapping => {
                let config = "log.access = \"none\"\n[hosts.\"*\"]\n\"/\" = { respond = \"2\" }\n";
                fs::write(folder.path().join("upstream.toml"), config).unwrap();
                let process = start_process(folder.path(), "127.0.0.1:0");
                let address = process.address().to_string();
                Last::Process(Some(Box::new(process)), address)
            }
            Fault::Slow(_) | Fault::Status(_) => {
                let status = Arc::new(AtomicU16::new(200));
                let shared = status.clone();
                let server = TestServer::start(async move |request: Request| {
                    drop(request.into_body().collect(1 << 20).await);
                    match (shared.load(Relaxed), fault) {
                        (0, Fault::Slow(time)) => tokio::time::sleep(time).await,
                        (200, _) | (0, _) => {}
                        (status, _) => return StatusCode::from_u16(status).unwrap().into(),
                    }
                    Response::text("2")
                });
                Last::Server(Box::new(server), status)
            }
        };
        Upstreams { folder, healthy: (0..2).map(healthy).collect(), last }
    }

    /// Starts the server in front of the upstreams.
    fn proxy(&self) -> Weft {
        let last = match &self.last {
            Last::Process(_, address) => format!("http://{address}/"),
            Last::Server(server, _) => server.url("/"),
        };
        let [first, second] = [0, 1].map(|number| self.healthy[number].url("/"));
        let config = format!(
            "workers = {WORKERS}\nlog.access = \"none\"\n[hosts.\"*\"]\n\"/\" = {{ proxy = \"{first} {second} {last}\", \
             down_time = \"{}ms\", max_failures = 1, failure_statuses = [\"503\"], failure_latency = \"300ms\" }}\n",
            DOWN_TIME.as_millis(),
        );
        let file = self.folder.path().join("weft.toml");
        fs::write(&file, config).unwrap();
        let options = ["--config", file.to_str().unwrap(), "--listen", "127.0.0.1:0"];
        Weft::start(&mut weft(options))
    }

    /// Lets the last upstream fail until `end`. Returns how often it was killed.
    fn fail(&mut self, fault: Fault, end: Instant) -> usize {
        let is_flapping = fault == Fault::Flapping;
        match &mut self.last {
            Last::Server(_, status) => {
                let failing = if let Fault::Status(status) = fault { status } else { 0 };
                status.store(failing, Relaxed);
                0
            }
            Last::Process(process, address) => {
                let mut kills = 0;
                while kills == 0 || is_flapping && Instant::now() < end {
                    let restart = || Box::new(start_process(self.folder.path(), address));
                    let mut running = process.take().unwrap_or_else(restart);
                    if kills > 0 {
                        // The upstream serves for a while.
                        thread::sleep(DOWN_TIME / 2);
                    }
                    running.signal(Signal::KILL);
                    running.wait();
                    kills += 1;
                }
                kills
            }
        }
    }
}

fn start_process(folder: &Path, address: &str) -> Weft {
    let file = folder.join("upstream.toml");
    Weft::start(&mut weft(["--config", file.to_str().unwrap(), "--listen", address]))
}
