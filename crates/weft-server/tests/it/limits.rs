//! The program at its limits: file descriptors, memory, disk access and slow clients.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use crate::common::external::words;
use crate::common::{self, Client, MANY_DESCRIPTORS, Weft, connect_from, repository, until, weft};
use rustix::fs::Advice;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};

/// Raises the limit on open files of the test and its child processes to the hard limit, and
/// returns it.
fn raise_descriptor_limit() -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).expect("the soft limit can be raised to the hard limit");
    limit.current.unwrap_or(u64::MAX)
}

/// Returns the CPU time used by a process, in ticks of 10 ms.
pub fn cpu_ticks(id: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).expect("the process runs");
    // The name, in parentheses, may contain spaces; the times are fields 14 and 15 (proc(5)).
    let (_, rest) = stat.rsplit_once(") ").expect("a name");
    let times = rest.split(' ').skip(11).take(2);
    times.map(|time| time.parse::<u64>().expect("a number")).sum()
}

/// Returns the anonymous memory of a process, in bytes.
fn anonymous_bytes(id: u32) -> u64 {
    let text =
        std::fs::read_to_string(format!("/proc/{id}/smaps_rollup")).expect("the process runs");
    let line = text.lines().find(|line| line.starts_with("Anonymous:")).expect("a line");
    let kilobytes = line.split_whitespace().nth(1).expect("a number");
    kilobytes.parse::<u64>().expect("a number") << 10
}

#[test]
fn descriptor_exhaustion_keeps_busy_connections_and_is_logged() {
    let site = tempfile::tempdir().unwrap();
    let large = vec![b'x'; 64 << 20];
    std::fs::write(site.path().join("large.bin"), &large).unwrap();
    std::fs::write(site.path().join("small.txt"), "small").unwrap();
    std::fs::write(site.path().join("uncached.txt"), "small").unwrap();
    let server = serve_with_descriptor_limit(40, site.path());

    let (mut idle, mut busy) = (server.client(), server.client());
    assert_eq!(idle.get("/small.txt").status, 200);
    busy.send("GET /large.bin HTTP/1.1\r\nHost: a\r\n\r\n");
    let head = busy.head();
    assert!(head[0].contains("200"), "{head:?}");
    let mut waiting = exhaust_descriptors(&server);
    // An idle connection makes room.
    idle.assert_closed();
    // A file needs a descriptor as well: open connections get a 503.
    let mut last = connect_last(&server, &mut waiting);
    assert_eq!(last.get("/uncached.txt").status, 503);
    let (before, start) = (cpu_ticks(server.id()), Instant::now());
    std::thread::sleep(Duration::from_millis(500));
    let used = Duration::from_millis((cpu_ticks(server.id()) - before) * 10);
    assert!(used * 4 < start.elapsed(), "busy loop: {used:?} of {:?}", start.elapsed());

    // Closed connections free descriptors, and clients are served.
    drop(waiting);
    until("descriptors are free again", || open_descriptors(server.id()) < 30);
    assert_eq!(server.client().get("/small.txt").status, 200);
    assert!(busy.body(large.len()) == large, "the busy connection gets its response");
    let stderr = server.stop().stderr;
    let warning = "cannot accept connections on http://127.0.0.1:";
    assert!(stderr.contains(warning) && stderr.contains("Too many open files"), "{stderr}");
    assert!(stderr.matches(warning).count() < 3, "{stderr}");
    assert!(stderr.contains("file descriptors, and the limit is 40"), "{stderr}");
}

/// Occupies all descriptors with connections. Returns them in the order in which they were made;
/// the last ones were rejected.
fn exhaust_descriptors(server: &Weft) -> Vec<Client> {
    let mut clients = Vec::new();
    fill_descriptors(server, &mut clients);
    // The kernel completes their handshakes.
    clients.extend((0..3).map(|_| server.client()));
    let last = clients.last_mut().expect("a client");
    assert_eq!(last.response().status, 503, "answered, not left in the accept queue");
    // The descriptor in reserve is closed for each rejection.
    until("no descriptor is free", || open_descriptors(server.id()) >= 40);
    clients
}

/// Opens connections until no descriptor is free. None waits, so that none is closed.
fn fill_descriptors(server: &Weft, connections: &mut Vec<Client>) {
    loop {
        let before = open_descriptors(server.id());
        if before >= 40 {
            return;
        }
        connections.push(server.client());
        until("the connection is accepted", || open_descriptors(server.id()) > before);
    }
}

/// Replaces the first connection by another one, which takes the last descriptor.
fn connect_last(server: &Weft, connections: &mut Vec<Client>) -> Client {
    drop(connections.remove(0));
    until("a descriptor is free", || open_descriptors(server.id()) < 40);
    let client = server.client();
    until("no descriptor is free", || open_descriptors(server.id()) >= 40);
    client
}

#[test]
fn clients_that_are_rejected_for_lack_of_descriptors_get_their_response() {
    let site = tempfile::tempdir().unwrap();
    std::fs::write(site.path().join("large.bin"), vec![b'x'; 64 << 20]).unwrap();
    let server = serve_with_descriptor_limit(40, site.path());
    // Busy connections, which are not closed to make room.
    let mut busy = Vec::new();
    while open_descriptors(server.id()) < 40 {
        let mut client = server.client();
        client.send("GET /large.bin HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(client.head()[0].contains("200"));
        busy.push(client);
    }
    let rejected = || {
        let mut client = TcpStream::connect(server.address())?;
        client.set_read_timeout(Some(common::PATIENCE))?;
        let mut status = [0; 12];
        client.read_exact(&mut status)?;
        assert_eq!(&status, b"HTTP/1.1 503");
        std::io::Result::Ok(client)
    };
    // Clients that do not close their connections do not keep the reserve from others.
    let silent = [(); 3].map(|()| rejected().unwrap());
    // The request arrives after the response, and is no reason for a reset.
    let exchange = || {
        let (mut client, mut rest) = (rejected()?, String::new());
        client.read_to_string(&mut rest)?;
        for byte in format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(5_000)).bytes() {
            client.write_all(&[byte])?;
        }
        std::io::Result::Ok(rest)
    };
    // This thread may wait for the CPU for longer than a connection lingers.
    let response = exchange().or_else(|_| exchange()).or_else(|_| exchange());
    let response = response.expect("the connection is not reset");
    assert!(response.ends_with("Too many connections\n"), "{response}");
    drop((silent, busy));
    until("descriptors are free again", || open_descriptors(server.id()) < 30);
    assert_eq!(server.client().get("/large.bin").status, 200);
    server.stop();
}

#[test]
fn raises_the_descriptor_limit_but_not_that_of_scripts() {
    let site = tempfile::tempdir().unwrap();
    let script = site.path().join("limit");
    // The limit is set just after the script has started.
    let text = "#!/bin/sh\nfor i in $(seq 100); do\n  [ $(ulimit -Sn) = 200 ] && break\n  sleep 0.1\n\
        done\nprintf 'Content-Type: text/plain\\nContent-Length: 4\\n\\n'\nulimit -Sn\n";
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
    let route = format!("/ => {}/", site.path().display());
    let server = start_limited("-Sn 200", weft(["--route", &route, "--max-connections", "100"]));
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", server.id())).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let [soft, hard] = [3, 4].map(|number| line.split_whitespace().nth(number).unwrap());
    assert_eq!(soft, hard, "{line}");
    assert_ne!(soft, "200");
    let response = server.client().get("/limit");
    assert_eq!((response.status, &response.body[..]), (200, &b"200\n"[..]));
    let stderr = server.stop().stderr;
    assert!(!stderr.contains("file descriptors"), "{stderr}");
}

#[test]
fn descriptor_exhaustion_is_no_upstream_failure() {
    let upstreams = [(); 2].map(|()| Weft::serve(&repository("site"), &["--no-log"]));
    let urls = upstreams.each_ref().map(|upstream| upstream.url("/")).join(" ");
    let route = format!("/ >> {urls}");
    let options = ["--listen", "127.0.0.1:0", "--no-log", "--workers", "1", "--route", &route];
    let server = Weft::start(&mut weft(options));
    // The upstream connection stays idle in the pool.
    let mut client = server.client();
    assert_eq!(client.get("/weave.svg").status, 200);
    // The standard streams have the numbers below 3. Connections as the cause of the shortage could
    // wait to be accepted, for which the connection of this client may be closed.
    let former = set_descriptor_limit(&server, Some(3));
    // The second upstream in round-robin order has no connection yet.
    let statuses = [(); 12].map(|()| client.get("/weave.svg").status);
    assert!(statuses.contains(&503), "{statuses:?}");
    assert!(statuses.contains(&200), "{statuses:?}");
    set_descriptor_limit(&server, former);
    assert_eq!([(); 6].map(|()| client.get("/weave.svg").status), [200; 6]);
    let stderr = server.stop().stderr;
    assert!(stderr.contains("a request has no upstream: Too many open files"), "{stderr}");
    assert!(!stderr.contains("weft: the upstream"), "{stderr}");
}

/// Sets the limit on file descriptors of a running server, and returns the former one. Open
/// descriptors above it stay open.
fn set_descriptor_limit(server: &Weft, limit: Option<u64>) -> Option<u64> {
    let id = i32::try_from(server.id()).expect("a process ID");
    let maximum = getrlimit(Resource::Nofile).maximum;
    let limits = Rlimit { current: limit, maximum };
    let former = prlimit(Pid::from_raw(id), Resource::Nofile, limits);
    former.expect("the limit of a child process can be set").current
}

/// Starts the program with one worker and a limit on file descriptors.
fn serve_with_descriptor_limit(limit: usize, folder: &Path) -> Weft {
    let mut program = weft([folder]);
    // Silent connections occupy descriptors at once, in their order.
    program.arg("--no-defer-accept");
    start_limited(&format!("-n {limit}"), program)
}

/// Starts the program with one worker and arguments of `ulimit`.
fn start_limited(limit: &str, mut program: Command) -> Weft {
    program.args(["--listen", "127.0.0.1:0", "--no-log", "--workers", "1"]);
    let mut limited = Command::new("sh");
    limited.args(["-c", &format!("ulimit {limit}; exec \"$@\""), "sh"]);
    Weft::start(limited.arg(program.get_program()).args(program.get_args()))
}

fn open_descriptors(id: u32) -> usize {
    let entries = std::fs::read_dir(format!("/proc/{id}/fd")).expect("the process runs");
    let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse::<u64>().ok();
    // An inherited descriptor with a higher number does not count towards the limit.
    entries.flatten().filter_map(number).filter(|number| *number < 40).count()
}

#[test]
fn descriptor_exhaustion_keeps_serving_cached_files() {
    let site = tempfile::tempdir().unwrap();
    let large = vec![b'x'; 200_000];
    std::fs::write(site.path().join("large.bin"), &large).unwrap();
    std::fs::write(site.path().join("small.txt"), "small").unwrap();
    std::fs::write(site.path().join("other.txt"), "other").unwrap();
    let written = Instant::now();
    // Files modified within the last two seconds are not cached.
    until("the files can be cached", || written.elapsed() > Duration::from_secs(4));
    let server = serve_with_descriptor_limit(40, site.path());
    let mut client = server.client();
    let assert_cached_files = |client: &mut Client| {
        let (small, large_one) = (client.get("/small.txt"), client.get("/large.bin"));
        assert_eq!((small.status, &small.body[..]), (200, &b"small"[..]));
        assert_eq!((large_one.status, large_one.body == large), (200, true));
        // The absence of a file is cached as well.
        assert_eq!(client.get("/nothing").status, 404);
    };
    assert_cached_files(&mut client);
    let mut waiting = Vec::new();
    fill_descriptors(&server, &mut waiting);
    // Longer than the interval between revalidations, for which no descriptor is free.
    let start = Instant::now();
    until("cached entries are stale", || {
        assert_cached_files(&mut client);
        fill_descriptors(&server, &mut waiting);
        start.elapsed() > Duration::from_secs(4)
    });
    assert!(open_descriptors(server.id()) >= 40, "descriptors were free");
    // A request for another file may close cached descriptors; contents in memory stay.
    let other = client.get("/other.txt").status;
    assert!([200, 503].contains(&other), "{other}");
    assert_eq!(client.get("/small.txt").status, 200);
    drop(waiting);
    until("descriptors are free again", || {
        [client.get("/other.txt").status, client.get("/large.bin").status] == [200, 200]
    });
    server.stop();
}

#[test]
fn caches_compressed_files() {
    let site = tempfile::tempdir().unwrap();
    std::fs::write(site.path().join("a.txt"), words(1 << 20)).unwrap();
    let written = Instant::now();
    // The compressed form of a recently modified file is not cached for long.
    until("the file can be cached", || written.elapsed() > Duration::from_secs(4));
    let server = Weft::serve(site.path(), &["--no-log", "--workers", "1"]);
    let mut client = server.client();
    let mut fetch = || {
        let before = cpu_ticks(server.id());
        client.send("GET /a.txt HTTP/1.1\r\nHost: a\r\nAccept-Encoding: br\r\n\r\n");
        let response = client.response();
        assert_eq!(response.header("content-encoding"), Some("br"));
        (response.body, cpu_ticks(server.id()) - before)
    };
    let (first, cost) = fetch();
    assert!(cost > 0, "the first compression took no measurable CPU time");
    let mut costs = 0;
    for _ in 0..100 {
        let (body, cost) = fetch();
        // Once the file is popular, it is compressed again with more effort.
        assert!(body == first || body.len() < first.len());
        costs += cost;
    }
    assert!(costs < 10 * cost, "the first request took {cost} ticks, a hundred more {costs}");
    server.stop();
}

/// Returns the names of the threads of a process that currently wait for disk I/O (state D).
fn threads_waiting_for_disk(id: u32) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{id}/task")).expect("the process runs");
    let stats =
        tasks.flatten().filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok());
    let parts = stats.filter_map(|stat| {
        let (before, after) = stat.rsplit_once(") ")?;
        let (_, name) = before.split_once('(')?;
        after.starts_with('D').then(|| name.to_owned())
    });
    parts.collect()
}

#[test]
fn descriptor_table_is_allocated_before_threads_start() {
    const DESCRIPTORS: usize = 2_000;
    let server = serve_with_descriptor_limit(DESCRIPTORS, &repository("site"));
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    let size = status.lines().find_map(|line| line.strip_prefix("FDSize:")).expect("a size");
    assert!(size.trim().parse::<usize>().unwrap() >= DESCRIPTORS, "{size}");
    server.stop();
}

#[test]
fn event_loop_does_not_block_on_disk() {
    const FILES: usize = 400;
    const BYTES: usize = 120_000;
    // Minimum number of samples with a waiting thread for a meaningful result.
    const MIN_SAMPLES: usize = 20;
    let site = tempfile::tempdir().unwrap();
    for at in 0..FILES {
        let path = site.path().join(format!("{at}.bin"));
        std::fs::write(&path, vec![b'x'; BYTES]).unwrap();
        let file = File::open(path).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    }
    let server = Weft::serve(site.path(), &["--no-log", "--workers", "1"]);
    let mut waiting = Vec::new();
    std::thread::scope(|scope| {
        let requests = scope.spawn(|| {
            let mut client = server.client();
            for at in 0..FILES {
                let response = client.get(&format!("/{at}.bin"));
                assert_eq!((response.status, response.body.len()), (200, BYTES), "{at}");
            }
        });
        while !requests.is_finished() {
            waiting.extend(threads_waiting_for_disk(server.id()));
        }
    });
    server.stop();
    let event_loop = waiting.iter().filter(|name| *name == "weft-0").count();
    eprintln!(
        "{} samples of threads waiting for the disk, of the event loop: {event_loop}",
        waiting.len()
    );
    if waiting.len() < MIN_SAMPLES {
        return common::report_skipped("too few disk waits on this file system");
    }
    assert!(event_loop < waiting.len() / 2, "{event_loop} of {}", waiting.len());
}

#[test]
fn disconnected_clients_cost_no_compression() {
    const CLIENTS: usize = 50;
    let site = tempfile::tempdir().unwrap();
    let text = words(4 << 20);
    // Three more files, compressed before and after the files of the clients.
    for at in 0..CLIENTS + 3 {
        std::fs::write(site.path().join(format!("{at}.txt")), &text).unwrap();
    }
    std::fs::write(site.path().join("plain.txt"), "plain").unwrap();
    let server = Weft::serve(site.path(), &["--no-log", "--workers", "1"]);
    let threads =
        || std::fs::read_dir(format!("/proc/{}/task", server.id())).expect("the process runs");
    let mut client = server.client();
    let before = threads().count();
    // Look up all files first, so that later lookups need no pool threads.
    for at in 0..CLIENTS + 3 {
        client.send(format!("HEAD /{at}.txt HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(client.head()[0], "HTTP/1.1 200 OK");
    }
    let request = |at| format!("GET /{at}.txt HTTP/1.1\r\nHost: a\r\nAccept-Encoding: br\r\n\r\n");
    let compress = |client: &mut Client, at: usize| {
        let used = cpu_ticks(server.id());
        // Refused while the budget is used up.
        until("the file is compressed", || {
            client.send(request(at));
            client.response().header("content-encoding").is_some()
        });
        cpu_ticks(server.id()) - used
    };
    let first = compress(&mut client, CLIENTS);
    let used = cpu_ticks(server.id());
    for at in 0..CLIENTS {
        let mut disconnecting = TcpStream::connect(server.address()).unwrap();
        disconnecting.write_all(request(at).as_bytes()).unwrap();
        crate::common::reset_on_close(&disconnecting);
        drop(disconnecting);
        // The server reads the request before the next one is sent.
        assert_eq!(client.get("/plain.txt").status, 200);
        assert_eq!(client.get("/plain.txt").status, 200);
    }
    let more = threads().count() - before;
    assert!(more <= 8, "{more} additional threads");
    // Each compression ends at its next step. A further file is compressed after all of those that
    // the clients have left behind.
    compress(&mut client, CLIENTS + 1);
    let all = cpu_ticks(server.id()) - used;
    let one = first.max(compress(&mut client, CLIENTS + 2));
    assert!(
        all < 2 * one,
        "one compression took {one} ticks, another one and {CLIENTS} cancelled ones {all}"
    );
    server.stop();
}

#[test]
fn memory_of_15_000_idle_connections_is_within_the_documented_limit() {
    let _exclusive = MANY_DESCRIPTORS.lock().unwrap_or_else(PoisonError::into_inner);
    const CONNECTIONS: usize = 15_000;
    const MAX_BYTES_EACH: u64 = 1_500;
    assert!(
        raise_descriptor_limit() > CONNECTIONS as u64 + 100,
        "the limit on open files is too low"
    );
    // On a busy machine it takes longer than the default to open them all.
    let options = ["--no-log", "--workers", "1", "--idle-timeout", "10m"];
    let server = Weft::serve(&repository("site"), &options);
    let request = |client: &mut Client| assert_eq!(client.get("/style.css").status, 200);
    request(&mut server.client());

    let before = anonymous_bytes(server.id());
    let mut idle = Vec::with_capacity(CONNECTIONS);
    for number in 0..CONNECTIONS {
        let mut client = Client::from_stream(connect_from(
            [127, 0, 0, 1 + (number % 5) as u8],
            server.address(),
        ));
        request(&mut client);
        idle.push(client);
    }
    let each = (anonymous_bytes(server.id()) - before) / CONNECTIONS as u64;
    eprintln!("{each} bytes for each idle connection");
    assert!(each <= MAX_BYTES_EACH, "{each} bytes for each idle connection");
    // The connections still work, and new ones are accepted.
    for client in idle.iter_mut().step_by(1_000) {
        request(client);
    }
    request(&mut server.client());
    server.stop();
}

#[test]
fn slow_attackers_do_not_block_other_clients() {
    if !common::has_tool("slowhttptest") {
        return;
    }
    let _exclusive = MANY_DESCRIPTORS.lock().unwrap_or_else(PoisonError::into_inner);
    raise_descriptor_limit();
    let server = Weft::serve(&repository("site"), &["--no-log", "--workers", "1"]);
    for (name, attack) in [("slow head", "-H"), ("slow body", "-B"), ("slow read", "-X")] {
        let mut attacker = Command::new("slowhttptest");
        attacker.args([attack, "-c", "1000", "-r", "1000", "-i", "1", "-l", "4", "-x", "24"]);
        attacker.args(["-p", "3", "-t", "GET", "-u", &server.url("/")]);
        let mut attacker = common::Program::start(&mut attacker);
        let mut served = 0;
        while attacker.is_running() {
            assert_eq!(server.client().get("/style.css").status, 200, "{name}");
            served += 1;
            std::thread::sleep(Duration::from_millis(20));
        }
        // A blocked server serves one request, after the attack.
        assert!(served >= 5, "{name}: only {served} were served");
    }
    server.stop();
}
