//! Cost of hostile peers: the servers that Weft asks. A row has the script of a peer, the limits of
//! the server, and the outcome for its clients. `docs/hostile-clients.md` has the highest costs.
//!
//! Each row runs against a server process of its own, with one worker and timeouts of one second.
//! Several clients cause the exchange with the peer. Measured are:
//!
//! - peak anonymous memory above the memory of the idle server, per client;
//! - peak number of descriptors above the number of the idle server, per client;
//! - bytes written to files, per client;
//! - CPU time per client, as a number of ordinary requests that take as long;
//! - time until the last client has its response.
//!
//! Afterwards, an ordinary request is served, and descriptors and memory have been returned.

mod http1;
mod http2;
mod own_requests;
mod peer;
mod scripts;
mod streams;
mod tls;

use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use self::peer::{HostilePeer, Role};
use super::server::{Ordinary, OrdinaryClient, Sample, Target};
use super::{MAX_ATTEMPTS, PROBE_INTERVAL, SLACK, settled, size};
use crate::common::raw_upstream;

/// Bytes of a response after which a client leaves.
const MAX_READ: usize = 16 << 20;

const TABLE_HEAD: &str = "\
| peer | sends | client | memory | descriptors | disk | CPU, in requests | time |
| --- | --- | --- | --- | --- | --- | --- | --- |
";

/// Measures all rows of a table and asserts their limits.
#[track_caller]
fn check(title: &str, rows: Vec<HostilePeer>) {
    let only = std::env::var("WEFT_BUDGETS_ONLY").unwrap_or_default();
    let good = raw_upstream(|_, mut stream| {
        while crate::common::read_head(&mut stream).is_some() {
            let response = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
            if stream.write_all(response).is_err() {
                return;
            }
        }
    });
    let mut table = format!("\n## {title}\n\n{TABLE_HEAD}");
    let mut excesses = Vec::new();
    for row in rows.into_iter().filter(|row| row.name.contains(&only)) {
        let mut measured = Measured::of(&row, good);
        for _ in 1..MAX_ATTEMPTS {
            if measured.excesses(&row).is_empty() {
                break;
            }
            measured = Measured::of(&row, good);
        }
        measured.write_row(&mut table, &row);
        excesses.extend(measured.excesses(&row));
    }
    println!("{table}");
    assert!(excesses.is_empty(), "over budget:\n{}\n{table}", excesses.join("\n"));
}

/// Cost of one row.
#[derive(Debug)]
struct Measured {
    clients: f64,
    outcomes: Vec<String>,
    peak_memory_bytes: u64,
    peak_descriptors: usize,
    time: Duration,
    per_request: Duration,
    before: Sample,
    after: Sample,
    is_returned: bool,
}

impl Measured {
    /// Runs the clients of a row against a new server.
    fn of(row: &HostilePeer, good: SocketAddr) -> Measured {
        let folder = tempfile::tempdir().unwrap();
        let server = row.start(folder.path(), good);
        let per_request = Ordinary::measure(&server, "/good/", false).per_request;
        server.wait_until_idle();
        let before = server.sample();
        let mut run = Run::of(row, &server, &before);
        let after = settled(&server, &before);
        // The allocator may keep free memory, which a second run then uses.
        let is_returned = after.is_near(&before) || {
            Run::of(row, &server, &before);
            settled(&server, &after).is_near(&after)
        };
        OrdinaryClient::connect(&server, false).get("/good/");
        server.stop();
        run.outcomes.sort();
        run.outcomes.dedup();
        Measured {
            clients: row.clients as f64,
            outcomes: run.outcomes,
            peak_memory_bytes: run.peak_memory_bytes,
            peak_descriptors: run.peak_descriptors,
            time: run.time,
            per_request,
            before,
            after,
            is_returned,
        }
    }

    fn memory_kib(&self) -> f64 {
        let bytes = self.peak_memory_bytes.saturating_sub(self.before.memory_bytes);
        bytes as f64 / 1024.0 / self.clients
    }

    fn descriptors(&self) -> f64 {
        self.peak_descriptors.saturating_sub(self.before.descriptors) as f64 / self.clients
    }

    fn disk_bytes(&self) -> f64 {
        (self.after.written_bytes - self.before.written_bytes) as f64 / self.clients
    }

    fn requests(&self) -> f64 {
        let cpu = self.after.cpu.saturating_sub(self.before.cpu).as_secs_f64();
        cpu / self.clients / self.per_request.as_secs_f64()
    }

    /// Returns a line for each limit of the row that is exceeded.
    fn excesses(&self, row: &HostilePeer) -> Vec<String> {
        let limits = [
            ("KiB of memory", self.memory_kib(), row.limits.memory_kib),
            ("descriptors", self.descriptors(), row.limits.descriptors),
            ("KiB of disk", self.disk_bytes() / 1024.0, row.limits.disk_kib),
            ("ordinary requests of CPU time", self.requests(), row.limits.requests * SLACK),
            ("seconds", self.time.as_secs_f64(), row.limits.seconds),
        ];
        let over = limits.iter().filter(|(_, found, limit)| found > limit);
        let mut excesses: Vec<_> = over
            .map(|(what, found, limit)| format!("{}: {found:.1} {what} > {limit:.1}", row.name))
            .collect();
        let is_expected = |outcome: &String| row.outcome.split('|').any(|one| one == *outcome);
        if !self.outcomes.iter().all(is_expected) {
            excesses.push(format!("{}: {:?}, not {}", row.name, self.outcomes, row.outcome));
        }
        if !self.is_returned {
            let [before, after] = [self.before, self.after];
            excesses.push(format!("{}: not returned: {before:?}, {after:?}", row.name));
        }
        excesses
    }

    fn write_row(&self, table: &mut String, row: &HostilePeer) {
        let limits = row.limits;
        writeln!(
            table,
            "| {} | {} | {} | {:.0} KiB (at most {}) | {:.1} (at most {}) | {} (at most {} KiB) | {:.0} (at most {}) | {:.1} s (at most {}) |",
            row.role.title(),
            row.name,
            self.outcomes.join(", "),
            self.memory_kib(),
            limits.memory_kib,
            self.descriptors(),
            limits.descriptors,
            size(self.disk_bytes() as u64),
            limits.disk_kib,
            self.requests(),
            limits.requests,
            self.time.as_secs_f64(),
            limits.seconds,
        )
        .expect("a string is writable");
    }
}

/// Outcomes of the clients of a row, and the highest values until the last of them.
struct Run {
    outcomes: Vec<String>,
    time: Duration,
    peak_memory_bytes: u64,
    peak_descriptors: usize,
}

impl Run {
    fn of(row: &HostilePeer, server: &Target, before: &Sample) -> Run {
        let address = match row.role {
            Role::Stream => server.stream_address("tcp"),
            Role::Udp => server.stream_address("udp"),
            _ => server.address(),
        };
        let start = Instant::now();
        let (mut peak_memory_bytes, mut peak_descriptors) = (0, before.descriptors);
        let outcomes = std::thread::scope(|scope| {
            let clients: Vec<_> =
                (0..row.clients).map(|_| scope.spawn(|| outcome(row, address))).collect();
            while clients.iter().any(|client| !client.is_finished()) {
                peak_memory_bytes = peak_memory_bytes.max(server.memory_bytes());
                peak_descriptors = peak_descriptors.max(server.descriptors().0);
                std::thread::sleep(PROBE_INTERVAL);
            }
            clients.into_iter().map(|client| client.join().expect("no panic")).collect()
        });
        Run { outcomes, time: start.elapsed(), peak_memory_bytes, peak_descriptors }
    }
}

/// Sends the request of a client and returns what it gets:
///
/// - `200`: a complete response with this status;
/// - `200 cut`: a response whose body is aborted;
/// - `nothing`: no response.
fn outcome(row: &HostilePeer, address: SocketAddr) -> String {
    if row.role == Role::Udp {
        return datagrams(row, address);
    }
    let connect = || TcpStream::connect(address).expect("a connection");
    if row.role == Role::Authority {
        // The server asks the authority in the meantime, and again after a failure.
        std::thread::sleep(Duration::from_millis(2_500));
    }
    if row.role == Role::HealthCheck {
        // The first request starts the checks. Several of them precede the next request.
        let _ = connect().write_all(row.request().as_bytes());
        std::thread::sleep(Duration::from_millis(1_500));
    }
    let mut stream = connect();
    stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    stream.write_all(row.request().as_bytes()).expect("an open connection");
    if let Some(held) = row.unread_for {
        std::thread::sleep(held);
        return "unread".to_owned();
    }
    let (mut received, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
    let deadline = Instant::now() + Duration::from_secs_f64(row.limits.seconds);
    while Instant::now() < deadline && received.len() < MAX_READ {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => received.extend_from_slice(&buffer[..length]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => break,
        }
    }
    match row.role {
        Role::Stream if received.is_empty() => "nothing".to_owned(),
        Role::Stream => "bytes".to_owned(),
        _ => status(&received),
    }
}

/// Sends a datagram and receives for as long as a session lasts without datagrams of the client.
fn datagrams(row: &HostilePeer, address: SocketAddr) -> String {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    socket.send_to(row.request().as_bytes(), address).expect("an open socket");
    let (mut received, mut buffer) = (0, vec![0; 64 << 10]);
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(1_500) {
        received += socket.recv(&mut buffer).unwrap_or(0);
    }
    let outcome = if received == 0 { "nothing" } else { "bytes" };
    outcome.to_owned()
}

/// Returns the status of the final response, and whether it is cut.
fn status(mut received: &[u8]) -> String {
    loop {
        let Some(end) = received.windows(4).position(|part| part == b"\r\n\r\n") else {
            return "nothing".to_owned();
        };
        let (head, body) = received.split_at(end + 4);
        let head = String::from_utf8_lossy(head).to_ascii_lowercase();
        let status = head.split(' ').nth(1).expect("a status");
        if status.starts_with('1') {
            received = body;
            continue;
        }
        let length = head.split_once("content-length: ").and_then(|(_, rest)| {
            rest.split_once("\r\n").and_then(|(length, _)| length.parse::<usize>().ok())
        });
        let is_complete = match length {
            Some(length) => body.len() == length,
            None => body.ends_with(b"\r\n\r\n"),
        };
        return if is_complete { status.to_owned() } else { format!("{status} cut") };
    }
}
