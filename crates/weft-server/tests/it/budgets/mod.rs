//! Cost of hostile clients: a table of attacks, each with a budget of memory, CPU time, descriptors
//! and time. Tests of answers do not detect a cheap request that is expensive to serve.
//!
//! Each row is a script of bytes that several connections follow at the same time. It is measured
//! from outside, on a server process of its own:
//!
//! - memory per connection: peak anonymous memory above the memory of the idle server;
//! - descriptors per connection, in the same way;
//! - bytes written to files per connection: temporary files, and the access log;
//! - CPU time per connection, as a number of ordinary requests that take as long;
//! - CPU time per byte, relative to that of ordinary clients of the same server that open as many
//!   connections and send as many bytes in GET requests for a small file, so that neither the speed
//!   of the machine nor the optimization of the build matters;
//! - time until the server has closed the connections.
//!
//! Afterwards, an ordinary request is served, and descriptors and memory have been returned.
//!
//! `WEFT_BUDGETS=full` runs four times as many connections. The measured table is printed as in
//! `docs/hostile-clients.md`:
//!
//! ```sh
//! cargo test --release -p weft-server --test it budgets:: -- --nocapture
//! ```

pub mod attack;
mod cgi;
pub mod client;
mod http1;
mod http2;
mod http3;
mod peers;
mod proxy;
pub mod server;
mod tls;
pub mod wire;

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use attack::{Attack, Budget, Ends, Transport};
use client::Progress;
use server::{Ordinary, OrdinaryClient, Sample, Site, Target};

/// Factor of the limits of CPU time in a build without optimization, which also runs beside other
/// tests.
const SLACK: f64 = if cfg!(debug_assertions) { 2.0 } else { 1.0 };

/// Memory that the server may keep after an attack: caches, and free memory of the allocator.
const MAX_RETAINED_BYTES: u64 = 4 << 20;

/// Descriptors that the server may keep after an attack, for cached files and idle upstream
/// connections.
const MAX_RETAINED_DESCRIPTORS: usize = 4;

/// Number of measurements of a row over its budget. Another process may have taken the CPU or the
/// memory during one of them.
const MAX_ATTEMPTS: usize = 3;

/// Interval at which the server is observed during an attack.
const PROBE_INTERVAL: Duration = Duration::from_millis(8);

/// Cost of one attack.
#[derive(Debug)]
struct Measured {
    connections: usize,
    sent: u64,
    answers: Vec<String>,
    peak: Peak,
    cpu: Duration,
    ordinary: Ordinary,
    before: Sample,
    after: Sample,
    /// State after a second run, if much memory was not returned after the first.
    repeated: Option<Sample>,
}

/// Highest values during an attack.
#[derive(Clone, Copy, Debug, Default)]
struct Peak {
    memory_bytes: u64,
    descriptors: usize,
    given_up: Option<Duration>,
}

/// Measures all attacks of a table and asserts their budgets.
#[track_caller]
fn check(title: &str, attacks: Vec<Attack>) {
    let site = Site::new();
    let is_full = std::env::var("WEFT_BUDGETS").is_ok_and(|value| value == "full");
    let only = std::env::var("WEFT_BUDGETS_ONLY").unwrap_or_default();
    let mut table = format!("\n## {title}\n\n{TABLE_HEAD}");
    let mut excesses = Vec::new();
    for mut attack in attacks {
        if !attack.name.contains(&only) {
            continue;
        }
        if is_full {
            attack.connections *= 4;
        }
        let mut measured = Measured::of(&site, &attack);
        let mut found = measured.excesses(&attack);
        for _ in 1..MAX_ATTEMPTS {
            if found.is_empty() || attack.known_excess.is_some() {
                break;
            }
            measured = Measured::of(&site, &attack);
            found = measured.excesses(&attack);
        }
        measured.write_row(&mut table, &attack, &found);
        if attack.known_excess.is_none() {
            excesses.extend(found);
        }
    }
    println!("{table}");
    assert!(excesses.is_empty(), "over budget:\n{}\n{table}", excesses.join("\n"));
}

const TABLE_HEAD: &str = "\
| attack | class | sent | answer | memory | descriptors | disk | CPU, in requests | CPU per byte | closed after |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
";

/// Runs an attack. Returns the answers, and the highest values until its end.
fn run(
    server: &Target,
    attack: &Attack,
    before: &Sample,
    progress: &Arc<Progress>,
) -> (Vec<String>, Peak) {
    let tls = attack.transport != Transport::Plain;
    let address = if tls { server.tls_address() } else { server.address() };
    std::thread::scope(|scope| {
        let client = scope.spawn(|| client::run(attack, address, progress));
        let peak = Peak::observe(server, attack, before, progress, || client.is_finished());
        (client.join().expect("the attacking client does not panic"), peak)
    })
}

/// Returns the state of a server after an attack, once it is near that before, for up to 3 s.
fn settled(server: &Target, before: &Sample) -> Sample {
    server.wait_until_idle();
    // The rest of what was opened is closed with the connections.
    let start = Instant::now();
    let mut after = server.sample();
    while !after.is_near(before) && start.elapsed() < Duration::from_secs(3) {
        std::thread::sleep(Duration::from_millis(20));
        after = server.sample();
    }
    after
}

impl Measured {
    /// Runs an attack against a new server.
    fn of(site: &Site, attack: &Attack) -> Measured {
        let server = site.start();
        let tls = attack.transport != Transport::Plain;
        let ordinary = Ordinary::measure(&server, attack.ordinary, tls);
        server.wait_until_idle();
        let before = server.sample();

        let progress = Arc::<Progress>::default();
        let (answers, peak) = run(&server, attack, &before, &progress);
        let after = settled(&server, &before);
        let repeated = (!after.is_near(&before)).then(|| {
            run(&server, attack, &after, &Arc::default());
            settled(&server, &after)
        });
        OrdinaryClient::connect(&server, tls).get(attack.ordinary);
        let mut measured = Measured {
            connections: attack.connections,
            sent: progress.sent.load(Relaxed),
            answers,
            peak,
            // The times of threads that have ended meanwhile are missing.
            cpu: after.cpu.saturating_sub(before.cpu),
            ordinary,
            before,
            after,
            repeated,
        };
        if !measured.excesses(attack).is_empty() {
            // Other processes, which slow this one down, may have started in between.
            let later = Ordinary::measure(&server, attack.ordinary, tls);
            measured.ordinary = measured.ordinary.max(later);
        }
        server.stop();
        measured
    }

    /// Returns true if the server has returned what it used. The allocator may keep memory that is
    /// free, more of it after a higher peak; a second attack then uses that memory again.
    fn is_returned(&self) -> bool {
        let Some(repeated) = &self.repeated else { return true };
        let retained = self.after.memory_bytes.saturating_sub(self.before.memory_bytes);
        let grown = repeated.memory_bytes.saturating_sub(self.after.memory_bytes);
        repeated.descriptors <= self.before.descriptors + MAX_RETAINED_DESCRIPTORS
            && grown <= retained / 4
    }

    fn memory_kib(&self) -> f64 {
        let bytes = self.peak.memory_bytes.saturating_sub(self.before.memory_bytes);
        bytes as f64 / 1024.0 / self.connections as f64
    }

    fn descriptors(&self) -> f64 {
        let opened = self.peak.descriptors.saturating_sub(self.before.descriptors);
        opened as f64 / self.connections as f64
    }

    fn disk_bytes(&self) -> u64 {
        (self.after.written_bytes - self.before.written_bytes) / self.connections as u64
    }

    fn cpu_ratio(&self) -> f64 {
        let ordinary = self.ordinary.cpu(self.connections, self.sent);
        self.cpu.as_secs_f64() / ordinary.as_secs_f64()
    }

    fn requests(&self) -> f64 {
        let per_connection = self.cpu.as_secs_f64() / self.connections as f64;
        per_connection / self.ordinary.per_request.as_secs_f64()
    }

    /// Returns a line for each limit of the row that is exceeded.
    fn excesses(&self, attack: &Attack) -> Vec<String> {
        let Budget { memory_kib, shared_kib, requests, cpu, descriptors, disk_kib } = attack.budget;
        let memory_kib = memory_kib + shared_kib / self.connections as f64;
        let [requests, cpu] = [requests, cpu].map(|limit| limit * SLACK);
        let mut excesses = Vec::new();
        let mut require = |is_met: bool, text: String| {
            if !is_met {
                excesses.push(format!("{}: {text}", attack.name));
            }
        };
        let over = |what: &str, found: f64, limit: f64| format!("{what} {found:.1} > {limit:.1}");
        let (memory, ratio, opened) = (self.memory_kib(), self.cpu_ratio(), self.descriptors());
        require(memory <= memory_kib, over("KiB per connection:", memory, memory_kib));
        require(ratio <= cpu, over("CPU time of ordinary clients:", ratio, cpu));
        let found = self.requests();
        require(found <= requests, over("ordinary requests:", found, requests));
        // A cached file may have a descriptor of its own.
        let limit = descriptors + 2.0 / self.connections as f64;
        require(opened <= limit, over("descriptors per connection:", opened, limit));
        let written = self.disk_bytes() as f64 / 1024.0;
        require(written <= disk_kib, over("KiB of disk per connection:", written, disk_kib));
        require(
            self.is_returned(),
            format!(
                "not returned: {:?}, before {:?}, after a second attack {:?}",
                self.after, self.before, self.repeated
            ),
        );
        // A connection that is closed with unread input is reset, which may overtake the answer,
        // also after the client has read the SETTINGS that precede all answers of HTTP/2.
        let expected = |answer: &&String| attack.answer.split('|').any(|one| one == *answer);
        let is_expected =
            |answer: &String| expected(&answer) || answer == "nothing" || answer == "SETTINGS";
        let has_expected = self.answers.iter().any(|answer| expected(&answer))
            && self.answers.iter().all(is_expected);
        require(has_expected, format!("answers {:?}, not {}", self.answer_set(), attack.answer));
        if let Ends::GivenUp(range) = &attack.ends {
            let seconds = self.peak.given_up.map_or(f64::INFINITY, |time| time.as_secs_f64());
            require(
                range.contains(&seconds),
                format!("closed after {seconds:.2} s, not {range:?}"),
            );
        }
        excesses
    }

    fn answer_set(&self) -> std::collections::BTreeSet<&str> {
        self.answers.iter().map(String::as_str).collect()
    }

    fn write_row(&self, table: &mut String, attack: &Attack, excesses: &[String]) {
        let Budget { memory_kib, shared_kib, requests, cpu, descriptors, disk_kib } = attack.budget;
        let memory_limit = match shared_kib {
            0.0 => memory_kib.to_string(),
            _ => format!("{memory_kib}, and {shared_kib} once"),
        };
        let answers: Vec<_> = self.answer_set().into_iter().collect();
        let closed = match (&attack.ends, self.peak.given_up) {
            (Ends::GivenUp(range), Some(time)) => {
                format!("{:.2} s (at most {} s)", time.as_secs_f64(), range.end())
            }
            (Ends::GivenUp(_), None) => "not closed".to_owned(),
            (Ends::Served(_), _) => "served".to_owned(),
        };
        let note = match attack.known_excess {
            Some(reason) if !excesses.is_empty() => format!(" **over budget: {reason}**"),
            Some(reason) => format!(" (now within its budget: {reason})"),
            None => String::new(),
        };
        let connections = self.connections;
        writeln!(
            table,
            "| {}{note} | {} | {} × {} | {} | {:.1} KiB (at most {memory_limit}) | {:.1} (at most {descriptors}) | {} (at most {disk_kib} KiB) | {:.1} (at most {requests}) | {:.3} (at most {cpu}) | {closed} |",
            attack.name,
            attack.class,
            connections,
            size(self.sent / connections as u64),
            answers.join(", "),
            self.memory_kib(),
            self.descriptors(),
            size(self.disk_bytes()),
            self.requests(),
            self.cpu_ratio(),
        )
        .expect("a string is writable");
    }
}

/// Returns a number of bytes with a unit.
fn size(bytes: u64) -> String {
    if bytes < 4096 { format!("{bytes} B") } else { format!("{} KiB", bytes >> 10) }
}

impl Sample {
    pub fn is_near(&self, before: &Sample) -> bool {
        self.descriptors <= before.descriptors + MAX_RETAINED_DESCRIPTORS
            && self.memory_bytes <= before.memory_bytes + MAX_RETAINED_BYTES
    }
}

impl Peak {
    /// Observes a server until the attack ends; sets `progress.is_given_up` when the server has
    /// closed all of its connections.
    fn observe(
        server: &Target,
        attack: &Attack,
        before: &Sample,
        progress: &Progress,
        has_ended: impl Fn() -> bool,
    ) -> Peak {
        let start = Instant::now();
        let mut peak = Peak::default();
        // A connection may be accepted later than it is opened, and be closed between two looks.
        let mut looks_without_sockets = 0;
        let mut had_sockets = false;
        while !has_ended() {
            let (descriptors, sockets) = server.descriptors();
            peak.descriptors = peak.descriptors.max(descriptors);
            peak.memory_bytes = peak.memory_bytes.max(server.memory_bytes());
            had_sockets |= sockets > before.sockets;
            let is_open = progress.is_open.load(Relaxed);
            let is_closed = !attack.transport.is_udp() && is_open && sockets <= before.sockets;
            looks_without_sockets = if is_closed { looks_without_sockets + 1 } else { 0 };
            let enough = if had_sockets { 3 } else { 60 };
            if peak.given_up.is_none() && looks_without_sockets >= enough {
                peak.given_up = Some(start.elapsed());
                progress.is_given_up.store(true, Relaxed);
            }
            std::thread::sleep(PROBE_INTERVAL);
        }
        // The client notices the ends of its connections itself.
        if attack.transport.is_udp() && progress.closed.load(Relaxed) == attack.connections {
            peak.given_up = Some(start.elapsed());
        }
        peak
    }
}
