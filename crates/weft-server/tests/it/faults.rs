//! Faults: failed system calls, killed processes, and signals under load.
//!
//! Clients, upstream and access log record histories, and [`history::check`] compares them. Each
//! response is complete or visibly cut, each has one line in the log, and every permit is returned.
//! `WEFT_FAULT_ROUNDS` repeats the tests, with all failures of system calls rather than some of
//! them, and `WEFT_TEST_SEED` repeats the choices of one run.

mod client;
mod history;
mod site;

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use self::client::{Http1, Pace, http2_requests};
use self::history::{Exchange, Outcome, Processes};
use self::site::{Site, TARGETS};
use crate::common::random::{Random, environment_number};
use crate::common::{PATIENCE, Program, Signal, Weft, has_tool, report_missing_tool, until, weft};
use crate::limits::cpu_ticks;
use rustix::process::{Pid, kill_process, test_kill_process};

/// Number of repetitions of each test.
fn rounds() -> u64 {
    environment_number("WEFT_FAULT_ROUNDS").unwrap_or(1)
}

/// Calls `function` in a thread of its own for each item, and returns the results.
fn in_threads<T: Send>(functions: Vec<Box<dyn FnOnce() -> T + Send + '_>>) -> Vec<T> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = functions.into_iter().map(|f| scope.spawn(f)).collect();
        let results = threads.into_iter().map(|thread| thread.join());
        results.map(|r| r.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

// -- failed system calls

/// A fault and the permitted outcomes of the requests during it.
struct Fault {
    /// Arguments of strace's `-e inject`. `when=2+3` is the second call of a thread and then every
    /// third.
    injections: &'static [&'static str],
    /// File to which the injection is restricted.
    file: Option<&'static str>,
    /// Set if requests complete only after the end of the fault.
    blocks: bool,
    permitted: Permitted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Permitted {
    /// The client does not notice the fault.
    Success,
    /// Complete responses with a status of 5xx, too.
    ServerError,
    /// A connection that ends, too.
    Cut,
}

const fn fault(injections: &'static [&'static str], permitted: Permitted) -> Fault {
    Fault { injections, file: None, blocks: false, permitted }
}

const fn blocking_fault(injections: &'static [&'static str]) -> Fault {
    Fault { injections, file: None, blocks: true, permitted: Permitted::Success }
}

const fn log_fault(injections: &'static [&'static str]) -> Fault {
    Fault { injections, file: Some("access.log"), blocks: false, permitted: Permitted::Success }
}

const FAULTS: &[Fault] = &[
    // No connection can be accepted until the fault ends.
    blocking_fault(&["accept4:error=EMFILE"]),
    // Idle connections are closed to make room, and a client may just have sent a request.
    fault(&["accept4:error=ENFILE:when=2+3"], Permitted::Cut),
    fault(&["accept4:error=ENOMEM:when=1+2"], Permitted::Cut),
    fault(&["accept4:error=ENOBUFS:when=1+3"], Permitted::Cut),
    fault(&["accept4:error=ECONNABORTED:when=1+2"], Permitted::Success),
    fault(&["accept4:error=EINTR:when=1+2"], Permitted::Success),
    fault(&["recvfrom:error=EINTR:when=1+2"], Permitted::Success),
    fault(&["recvfrom:error=ECONNRESET:when=3+5"], Permitted::Cut),
    fault(&["recvfrom:error=ENOMEM:when=4+7"], Permitted::Cut),
    fault(&["recvfrom:error=EIO:when=2+5"], Permitted::Cut),
    // The end of the stream.
    fault(&["recvfrom:retval=0:when=5+7"], Permitted::Cut),
    fault(&["sendto:error=EINTR:when=1+2"], Permitted::Success),
    fault(&["sendto:error=EPIPE:when=2+5"], Permitted::Cut),
    fault(&["sendto:error=ENOBUFS:when=3+7"], Permitted::Cut),
    fault(&["sendto:error=EIO:when=1+4"], Permitted::Cut),
    fault(&["sendmsg:error=EINTR:when=1+2"], Permitted::Success),
    fault(&["sendmsg:error=ECONNRESET:when=2+5"], Permitted::Cut),
    fault(&["sendmsg:error=ENOMEM:when=1+6"], Permitted::Cut),
    fault(&["writev:error=EINTR:when=1+2"], Permitted::Success),
    fault(&["writev:error=EPIPE:when=2+3"], Permitted::Cut),
    fault(&["sendfile:error=EINTR:when=1+2"], Permitted::Success),
    fault(&["sendfile:error=EIO:when=2+3"], Permitted::Cut),
    fault(&["sendfile:error=ENOMEM:when=1+4"], Permitted::Cut),
    // A file that was truncated.
    fault(&["sendfile:retval=0:when=3+4"], Permitted::Cut),
    fault(&["openat2:error=EMFILE:when=1+2"], Permitted::ServerError),
    fault(&["openat2:error=ENFILE"], Permitted::ServerError),
    fault(&["openat2:error=ENOMEM:when=2+3"], Permitted::ServerError),
    fault(&["openat2:error=EIO:when=1+2"], Permitted::ServerError),
    fault(&["openat2:error=EINTR:when=1+2"], Permitted::Success),
    // A concurrent rename, or a lookup that is not cached (openat2(2)).
    fault(&["openat2:error=EAGAIN:when=1+2"], Permitted::Success),
    fault(&["openat:error=EMFILE:when=1+2"], Permitted::ServerError),
    fault(&["openat:error=EINTR:when=1+2"], Permitted::Success),
    fault(&["statx,fstat,newfstatat:error=EIO:when=1+3"], Permitted::ServerError),
    fault(&["statx,fstat,newfstatat:error=ENOMEM:when=2+3"], Permitted::ServerError),
    fault(&["preadv2:error=EINTR:when=1+2"], Permitted::Success),
    fault(&["preadv2:error=EIO:when=1+2"], Permitted::Cut),
    // Data that is not in the page cache, and a file system without RWF_NOWAIT.
    fault(&["preadv2:error=EAGAIN"], Permitted::Success),
    fault(&["preadv2:error=EOPNOTSUPP"], Permitted::Success),
    fault(&["preadv2:error=EAGAIN", "pread64:error=EINTR:when=1+2"], Permitted::Success),
    fault(&["preadv2:error=EAGAIN", "pread64:error=EIO:when=1+2"], Permitted::Cut),
    fault(&["socket:error=EMFILE:when=1+2"], Permitted::ServerError),
    fault(&["socket:error=ENOMEM"], Permitted::ServerError),
    fault(&["connect:error=EADDRNOTAVAIL:when=1+2"], Permitted::ServerError),
    fault(&["connect:error=ECONNREFUSED"], Permitted::ServerError),
    fault(&["setsockopt:error=ENOMEM:when=1+2"], Permitted::Cut),
    // Registration of a socket with the event loop.
    fault(&["epoll_ctl:error=ENOMEM:when=1+3"], Permitted::Cut),
    fault(&["epoll_ctl:error=ENOSPC:when=2+3"], Permitted::Cut),
    fault(&["epoll_wait:error=EINTR:when=1+2"], Permitted::Success),
    fault(&["shutdown:error=ENOTCONN"], Permitted::Success),
    fault(&["pipe2:error=EMFILE:when=1+2"], Permitted::ServerError),
    fault(&["clone,clone3,vfork:error=EAGAIN:when=1+2"], Permitted::ServerError),
    // A response is cut while a part of it is buffered in a file.
    fault(&["clone,clone3,vfork:error=ENOMEM"], Permitted::Cut),
    fault(&["execve:error=ENOMEM"], Permitted::ServerError),
    log_fault(&["write:error=ENOSPC:when=1+2"]),
    log_fault(&["write:error=ENOSPC"]),
    log_fault(&["write:error=EIO:when=1+2"]),
    log_fault(&["write:error=EINTR:when=1+2"]),
    log_fault(&["write:error=EDQUOT:when=2+3"]),
];

/// Number of faults that are tested at the same time.
const PARALLEL_FAULTS: usize = 4;

/// Duration of a fault without which no request completes. Other faults end after the requests:
/// strace cannot detach from a process that waits for a script to start (vfork(2)).
const FAULT_DURATION: Duration = Duration::from_millis(600);

/// Maximum number of traced system calls during a fault. The load needs at most a quarter; a busy
/// loop makes this many in a second.
const MAX_TRACED_CALLS: usize = 20_000;

#[test]
fn survives_failed_system_calls() {
    if !can_trace() {
        return;
    }
    let queue = Mutex::new(selected_faults().into_iter());
    let next = || queue.lock().unwrap().next();
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..PARALLEL_FAULTS {
            scope.spawn(|| {
                while let Some(fault) = next() {
                    if std::panic::catch_unwind(|| inject(fault)).is_err() {
                        failed.lock().unwrap().push(fault.injections);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "the panics above are of {failed:#?}");
}

/// The faults of a run: the faults that `WEFT_FAULT_ONLY` names, or all of them in each of
/// `WEFT_FAULT_ROUNDS`, or else a third, chosen at random. All of them would take a minute of CPU
/// time.
fn selected_faults() -> Vec<&'static Fault> {
    // Without a pidfd, tokio reads from a socket that a process has exited, and cannot continue if
    // strace injects an error there, too.
    let has_pidfd = cfg!(all(target_os = "linux", not(weft_portable)));
    let is_possible = |fault: &&Fault| has_pidfd || !fault.injections[0].starts_with("recvfrom:");
    let faults = || FAULTS.iter().filter(is_possible);
    if let Ok(only) = env::var("WEFT_FAULT_ONLY") {
        let is_named = |fault: &&Fault| fault.injections.join(" ").contains(&only);
        return (0..rounds()).flat_map(|_| faults().filter(is_named)).collect();
    }
    if env::var_os("WEFT_FAULT_ROUNDS").is_some() {
        return (0..rounds()).flat_map(|_| faults()).collect();
    }
    let mut random = Random::from_environment();
    faults().filter(|_| random.below(3) == 0).collect()
}

/// Returns true if this process may trace a process that is not its child.
fn can_trace() -> bool {
    // With 1 or more, only a privileged process may (Documentation/admin-guide/LSM/Yama.rst).
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    let is_permitted =
        scope.trim().parse().unwrap_or(0) == 0 || rustix::process::geteuid().is_root();
    if !is_permitted {
        report_missing_tool("strace -p (see /proc/sys/kernel/yama/ptrace_scope)");
    }
    is_permitted && has_tool("strace")
}

/// Injects a fault under load, ends it, and checks that the server has returned to normal.
fn inject(fault: &Fault) {
    let site = Site::new("127.0.0.1:0", "127.0.0.1:0");
    let mut command = weft(["--config", "weft.toml"]);
    let mut server = Weft::start(command.current_dir(site.folder.path()));
    let tracer = Tracer::attach(&site, server.id(), fault);
    let start = Instant::now();
    let (mut exchanges, calls) = std::thread::scope(|scope| {
        let load = scope.spawn(|| load(&site, &server, 2));
        let has_ended = || load.is_finished() || fault.blocks && start.elapsed() > FAULT_DURATION;
        until("the requests under the fault have ended", has_ended);
        let calls = tracer.detach();
        let exchanges = load.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (exchanges, calls)
    });
    assert!(calls <= MAX_TRACED_CALLS, "busy loop: {calls} system calls");
    assert!(server.is_running(), "the server exited: {}", server.stderr());
    for exchange in &exchanges {
        // The fault applies to the processes of scripts, too.
        let is_script = exchange.target.path.starts_with("/cgi/");
        let is_permitted = match exchange.outcome {
            Outcome::Whole { status: 200, .. } => true,
            Outcome::Whole { status: 500.., .. } => {
                is_script || fault.permitted != Permitted::Success
            }
            Outcome::Whole { .. } | Outcome::Cut | Outcome::NoResponse => {
                fault.permitted == Permitted::Cut
            }
        };
        assert!(is_permitted, "{exchange:?}");
    }
    assert_serves_normally(&site, &server, &mut exchanges);
    let output = server.stop();
    assert!(!output.stderr.lines().any(is_panic), "{}", output.stderr);
    history::check(&exchanges, &site.upstream, &site.access_log(), Processes::Exited);
    println!("{:?}: {:?}, {calls} traced calls", fault.injections, start.elapsed());
}

/// Returns true if a line of the error log reports a panic. tokio panics if it cannot start a
/// thread of its pool; the engine turns that into a 500 response.
fn is_panic(line: &str) -> bool {
    // A call that strace had stopped when it detached fails with ENOSYS.
    if line.contains("code: 38, kind: Unsupported") {
        return false;
    }
    line.contains("panicked") && !line.contains("OS can't spawn worker thread")
}

/// strace, attached to a server.
struct Tracer {
    strace: Program,
    trace: PathBuf,
}

impl Tracer {
    fn attach(site: &Site, server: u32, fault: &Fault) -> Tracer {
        let trace = site.path("trace");
        let mut command = Command::new("strace");
        command.args(["-f", "-p", &server.to_string(), "-o"]).arg(&trace);
        let calls = fault.injections.iter().map(|injection| injection.split(':').next().unwrap());
        let calls: Vec<&str> = calls.collect();
        match fault.file {
            Some(file) => command.arg("-P").arg(site.path(file)),
            None => command.args(["-e", &format!("trace={},epoll_wait", calls.join(","))]),
        };
        for injection in fault.injections {
            command.args(["-e", &format!("inject={injection}")]);
        }
        let strace = Program::start(&mut command);
        until("strace is attached", || strace.stderr().contains(" attached"));
        Tracer { strace, trace }
    }

    /// Ends the fault. Returns the number of traced system calls.
    fn detach(self) -> usize {
        self.strace.signal(Signal::INT);
        self.strace.wait_with_output();
        fs::read_to_string(&self.trace).unwrap().lines().count()
    }
}

/// Sends requests for all resources with several clients, `rounds` times.
fn load(site: &Site, server: &Weft, rounds: usize) -> Vec<Exchange> {
    let (address, tls) = (server.address(), server.tls_address());
    let http1 = |mut client: Http1<'static>| {
        let mut exchanges = Vec::new();
        for target in (0..rounds).flat_map(|_| &TARGETS) {
            exchanges.extend(client.request(target));
        }
        exchanges
    };
    let exchanges = in_threads(vec![
        Box::new(|| http1(Http1::tcp(Pace::Fast, address))),
        Box::new(|| http1(Http1::tcp(Pace::Slow, address))),
        Box::new(|| http1(Http1::tls(&[&site.certificates[0].0], tls))),
        Box::new(|| http2_requests(address, &TARGETS, rounds)),
    ]);
    exchanges.into_iter().flatten().collect()
}

/// Asserts that all resources are served, that no connection or permit of former requests remains,
/// and that the server is idle.
fn assert_serves_normally(site: &Site, server: &Weft, exchanges: &mut Vec<Exchange>) {
    // A failed lookup of a file may be cached for a second.
    until("all resources are served again", || {
        let round = load(site, server, 1);
        exchanges.extend_from_slice(&round);
        let is_success = |e: &Exchange| matches!(e.outcome, Outcome::Whole { status: 200, .. });
        round.iter().all(is_success)
    });
    let start = Instant::now();
    loop {
        let in_use = site.metrics_in_use();
        if in_use.is_empty() {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "not released: {in_use:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
    let before = cpu_ticks(server.id());
    std::thread::sleep(Duration::from_millis(100));
    let ticks = cpu_ticks(server.id()) - before;
    assert!(ticks <= 4, "busy loop: {ticks} of 10 ticks");
}

// -- signals, restarts and certificates

/// An operation on a server under load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    /// SIGHUP.
    Reload,
    /// Renames the access log, and sends SIGUSR1.
    RotateLog,
    /// SIGUSR2.
    Upgrade,
    /// Replaces the certificate, and sends SIGHUP.
    SwapCertificate,
    /// SIGTERM, and a start after the exit.
    Restart,
    /// SIGKILL, and a start.
    Kill,
}

impl Operation {
    /// Operations during which no request on a new connection fails.
    const SEAMLESS: &[Operation] =
        &[Operation::Reload, Operation::RotateLog, Operation::Upgrade, Operation::SwapCertificate];

    const ALL: &[Operation] = &[
        Operation::Reload,
        Operation::RotateLog,
        Operation::Upgrade,
        Operation::SwapCertificate,
        Operation::Restart,
        Operation::Kill,
    ];
}

/// Operations per round.
const OPERATIONS: usize = 5;

#[test]
fn no_request_fails_during_reloads_rotations_and_upgrades() {
    let mut random = Random::from_environment();
    for _ in 0..rounds() {
        operate(&mut random, Operation::SEAMLESS);
    }
}

#[test]
fn restarts_and_kills_under_load_leave_consistent_histories() {
    let mut random = Random::from_environment();
    for _ in 0..rounds() {
        operate(&mut random, Operation::ALL);
    }
}

/// Performs random operations under load.
fn operate(random: &mut Random, operations: &[Operation]) {
    let site = Site::new("unix:http.sock", "unix:https.sock");
    let mut server = Supervised::start(&site);
    let is_stopping = AtomicBool::new(false);
    let chosen: Vec<Operation> = (0..OPERATIONS).map(|_| *random.choose(operations)).collect();
    println!("{chosen:?}");
    let mut exchanges = std::thread::scope(|scope| {
        let load = scope.spawn(|| load_unix(&site, &is_stopping));
        for operation in &chosen {
            std::thread::sleep(Duration::from_millis(random.below(200) as u64));
            server.perform(*operation, random);
        }
        std::thread::sleep(Duration::from_millis(100));
        is_stopping.store(true, Relaxed);
        load.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    let is_seamless = operations == Operation::SEAMLESS;
    if is_seamless {
        assert_no_failures(&exchanges);
    }
    let before = exchanges.len();
    is_stopping.store(false, Relaxed);
    exchanges.extend(std::thread::scope(|scope| {
        let load = scope.spawn(|| load_unix(&site, &is_stopping));
        std::thread::sleep(Duration::from_millis(100));
        is_stopping.store(true, Relaxed);
        load.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }));
    assert_no_failures(&exchanges[before..]);
    until("no connection or permit of former requests remains", || {
        site.metrics_in_use().is_empty()
    });
    let was_killed = server.was_killed;
    server.stop();
    let processes = if was_killed { Processes::Killed } else { Processes::Exited };
    history::check(&exchanges, &site.upstream, &site.access_log(), processes);
}

/// Asserts that each request got its resource, except on reused connections, which a server may
/// close at any time.
fn assert_no_failures(exchanges: &[Exchange]) {
    for (exchange, next) in exchanges.iter().zip(exchanges.iter().skip(1).map(Some).chain([None])) {
        let is_repeated = next.is_some_and(|next| next.target.path == exchange.target.path);
        match exchange.outcome {
            Outcome::Whole { status: 200, .. } => {}
            Outcome::NoResponse if is_repeated => {}
            _ => panic!("{exchange:?}"),
        }
    }
}

/// Sends requests with several clients over Unix sockets, some with TLS, until `is_stopping`.
fn load_unix(site: &Site, is_stopping: &AtomicBool) -> Vec<Exchange> {
    let requests = |mut client: Http1<'_>| {
        let mut exchanges = Vec::new();
        while !is_stopping.load(Relaxed) {
            for target in &TARGETS {
                let attempts = client.request(target);
                if attempts.iter().any(|e| e.outcome == Outcome::NoResponse) {
                    std::thread::sleep(Duration::from_millis(2));
                }
                exchanges.extend(attempts);
            }
        }
        exchanges
    };
    let http1 = || Http1::new(Pace::Fast, || client::connect_unix(&site.path("http.sock")));
    let trusted: Vec<&str> = site.certificates.iter().map(|(pem, _)| &**pem).collect();
    let config = client::tls_config(&trusted);
    let tls = || {
        Http1::new(Pace::Fast, || {
            client::tls_stream(&config, client::connect_unix(&site.path("https.sock"))?)
        })
    };
    let exchanges = in_threads(vec![
        Box::new(|| requests(http1())),
        Box::new(|| requests(http1())),
        Box::new(|| requests(tls())),
    ]);
    exchanges.into_iter().flatten().collect()
}

/// A server with its successors.
struct Supervised<'a> {
    site: &'a Site,
    /// The process that was started last, not by an upgrade. It may have exited.
    started: Weft,
    was_killed: bool,
    /// Number of rotated log files.
    rotated: usize,
}

impl Supervised<'_> {
    fn start(site: &Site) -> Supervised<'_> {
        Supervised { site, started: start_process(site), was_killed: false, rotated: 0 }
    }

    /// Returns the process that serves.
    fn pid(&self) -> Pid {
        let read = || fs::read_to_string(self.site.path("pid")).ok()?.trim().parse().ok();
        let mut found = None;
        until("the PID file is complete", || {
            found = read();
            found.is_some()
        });
        Pid::from_raw(found.expect("it was read")).expect("a process ID")
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("the process runs");
    }

    fn perform(&mut self, operation: Operation, random: &mut Random) {
        match operation {
            Operation::Reload => self.signal(Signal::HUP),
            Operation::RotateLog => {
                self.rotated += 1;
                let to = self.site.path(&format!("access.log-{}", self.rotated));
                fs::rename(self.site.path("access.log"), to).unwrap();
                self.signal(Signal::USR1);
                // Only the current process has the new file open, once there is one.
                until("the log is reopened", || self.site.path("access.log").exists());
            }
            Operation::Upgrade => {
                let former = self.pid();
                self.signal(Signal::USR2);
                until("the successor serves", || self.pid() != former);
            }
            Operation::SwapCertificate => {
                self.site.use_certificate(random.below(2));
                self.signal(Signal::HUP);
            }
            Operation::Restart => {
                let pid = self.pid();
                self.signal(Signal::TERM);
                self.until_exited(pid);
                self.started = start_process(self.site);
            }
            Operation::Kill => {
                let pid = self.pid();
                self.signal(Signal::KILL);
                self.was_killed = true;
                self.until_exited(pid);
                self.started = start_process(self.site);
            }
        }
    }

    fn until_exited(&mut self, pid: Pid) {
        until("the process exits", || {
            // Reaps the process, if it is a child of this one.
            self.started.is_running();
            test_kill_process(pid).is_err()
        });
    }

    fn stop(mut self) {
        let pid = self.pid();
        self.signal(Signal::TERM);
        self.until_exited(pid);
        // A predecessor in an upgrade writes its last lines before it exits.
        self.started.wait();
        let stderr = self.started.stderr();
        assert!(!stderr.lines().any(is_panic), "{stderr}");
    }
}

fn start_process(site: &Site) -> Weft {
    let mut command = weft(["--config", "weft.toml", "--pid-file", "pid"]);
    Weft::start(command.current_dir(site.folder.path()))
}
