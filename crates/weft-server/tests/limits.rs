//! The program at its limits: descriptors, memory, attackers.

mod common;

use std::fs::File;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use common::{Client, Weft, repository, until, weft};
use rustix::fs::Advice;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Resource, getrlimit, setrlimit};

/// The test and the program that it starts may open as many files as the system lets them.
fn raise_descriptor_limit() -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).expect("a process may use what it has");
    limit.current.unwrap_or(u64::MAX)
}

/// CPU time that a process has used, in ticks of 10 ms.
fn cpu_ticks(id: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).expect("it runs");
    // The name, in parentheses, may have spaces; the times are fields 14 and 15.
    let (_, rest) = stat.rsplit_once(") ").expect("a name");
    let times = rest.split(' ').skip(11).take(2);
    times.map(|time| time.parse::<u64>().expect("a number")).sum()
}

fn private_bytes(id: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{id}/smaps_rollup")).expect("it runs");
    let line = text.lines().find(|line| line.starts_with("Anonymous:")).expect("a line");
    let kilobytes = line.split_whitespace().nth(1).expect("a number");
    kilobytes.parse::<u64>().expect("a number") << 10
}

#[test]
fn without_descriptors_it_serves_whom_it_has_and_waits_without_spinning() {
    let server = serve_with_descriptors(40, &repository("site"));

    let mut served = vec![server.client(), server.client()];
    for client in &mut served {
        assert_eq!(client.get("/").status, 200);
    }
    // More than there are descriptors for; the kernel completes them all the same.
    let mut waiting: Vec<Client> = (0..60).map(|_| server.client()).collect();
    until("it has run out", || open_descriptors(server.id()) >= 40);
    // A file needs a descriptor too: those who have a connection hear that there is none.
    assert_eq!(served[0].get("/weave.svg").status, 503);
    let (before, start) = (cpu_ticks(server.id()), Instant::now());
    std::thread::sleep(Duration::from_millis(500));
    let used = Duration::from_millis((cpu_ticks(server.id()) - before) * 10);
    assert!(used * 4 < start.elapsed(), "it spins: {used:?} of {:?}", start.elapsed());

    // Those who leave make room, and everybody else is served in the end.
    drop(served);
    let last = waiting.split_off(50);
    drop(waiting);
    for mut client in last {
        assert_eq!(client.get("/").status, 200);
    }
    server.stop();
}

#[test]
fn without_descriptors_no_upstream_is_blamed() {
    let upstreams = [(); 2].map(|()| Weft::serve(&repository("site"), &["--no-log"]));
    let urls = upstreams.each_ref().map(|upstream| upstream.url("/")).join(" ");
    let server = start_with_descriptors(40, weft(["--route", &format!("/ >> {urls}")]));
    let mut served = server.client();
    assert_eq!(served.get("/weave.svg").status, 200);
    // It is kept, and the others have to wait until there is room for a connection.
    let mut other = server.client();
    let waiting: Vec<Client> = (0..60).map(|_| server.client()).collect();
    until("it has run out", || open_descriptors(server.id()) >= 40);
    // The upstream that is next has no connection yet.
    let statuses = [(); 12].map(|()| other.get("/weave.svg").status);
    assert!(statuses.contains(&503), "{statuses:?}");
    assert!(statuses.contains(&200), "{statuses:?}");
    drop(waiting);
    until("there is room again", || open_descriptors(server.id()) < 30);
    assert_eq!([(); 6].map(|()| other.get("/weave.svg").status), [200; 6]);
    let told = server.stop().stderr;
    assert!(told.contains("a request has no upstream: Too many open files"), "{told}");
    assert!(!told.contains("weft: the upstream"), "{told}");
}

/// The program with one worker and so few descriptors.
fn serve_with_descriptors(limit: usize, folder: &Path) -> Weft {
    start_with_descriptors(limit, weft([folder]))
}

fn start_with_descriptors(limit: usize, mut program: Command) -> Weft {
    program.args(["--listen", "127.0.0.1:0", "--no-log", "--workers", "1"]);
    let mut limited = Command::new("sh");
    limited.args(["-c", &format!("ulimit -n {limit}; exec \"$@\""), "sh"]);
    Weft::start(limited.arg(program.get_program()).args(program.get_args()))
}

fn open_descriptors(id: u32) -> usize {
    std::fs::read_dir(format!("/proc/{id}/fd")).expect("it runs").count()
}

/// Words that become much smaller, but not at once.
fn text(length: usize) -> String {
    let words = (0_u32..).flat_map(|n| format!("{} words, ", n.wrapping_mul(n)).into_bytes());
    String::from_utf8(words.take(length).collect()).expect("words")
}

#[test]
fn without_descriptors_it_still_serves_the_files_that_it_knows() {
    let site = tempfile::tempdir().unwrap();
    let large = vec![b'x'; 200_000];
    std::fs::write(site.path().join("large.bin"), &large).unwrap();
    std::fs::write(site.path().join("small.txt"), "small").unwrap();
    std::fs::write(site.path().join("other.txt"), "other").unwrap();
    let written = Instant::now();
    // What changed just now is not kept in memory.
    until("the files have settled", || written.elapsed() > Duration::from_secs(4));
    let server = serve_with_descriptors(40, site.path());
    let mut client = server.client();
    let ask = |client: &mut Client| {
        let (small, large_one) = (client.get("/small.txt"), client.get("/large.bin"));
        assert_eq!((small.status, &small.body[..]), (200, &b"small"[..]));
        assert_eq!((large_one.status, large_one.body == large), (200, true));
        // That it is not there is known as well.
        assert_eq!(client.get("/nothing").status, 404);
    };
    ask(&mut client);
    let waiting: Vec<Client> = (0..60).map(|_| server.client()).collect();
    until("it has run out", || open_descriptors(server.id()) >= 40);
    // Far longer than what is known is believed without another look, for which there is
    // no descriptor.
    let start = Instant::now();
    until("what is known is old", || {
        ask(&mut client);
        start.elapsed() > Duration::from_secs(4)
    });
    assert!(open_descriptors(server.id()) >= 40, "there was room all along");
    // For who asks for something else, what can be opened again is closed: not what is in memory.
    let other = client.get("/other.txt").status;
    assert!([200, 503].contains(&other), "{other}");
    assert_eq!(client.get("/small.txt").status, 200);
    drop(waiting);
    until("there is room again", || {
        [client.get("/other.txt").status, client.get("/large.bin").status] == [200, 200]
    });
    server.stop();
}

#[test]
fn what_was_compressed_is_not_compressed_again() {
    let site = tempfile::tempdir().unwrap();
    std::fs::write(site.path().join("a.txt"), text(1 << 20)).unwrap();
    let written = Instant::now();
    // What changed just now may change again, and is made anew after a while.
    until("the file has settled", || written.elapsed() > Duration::from_secs(4));
    let server = Weft::serve(site.path(), &["--no-log", "--workers", "1"]);
    let mut client = server.client();
    let mut ask = || {
        let before = cpu_ticks(server.id());
        client.send("GET /a.txt HTTP/1.1\r\nHost: a\r\nAccept-Encoding: br\r\n\r\n");
        let response = client.response();
        assert_eq!(response.header("content-encoding"), Some("br"));
        (response.body, cpu_ticks(server.id()) - before)
    };
    let (first, cost) = ask();
    assert!(cost > 0, "it cost nothing: this shows nothing");
    let mut costs = 0;
    for _ in 0..100 {
        let (body, cost) = ask();
        assert!(body == first);
        costs += cost;
    }
    assert!(costs < 10 * cost, "the first cost {cost} ticks, a hundred more {costs}");
    server.stop();
}

/// The threads of a process that wait for a disk at this moment, by name.
fn waiting_for_the_disk(id: u32) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{id}/task")).expect("it runs");
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
fn the_table_of_descriptors_has_its_size_before_there_are_threads() {
    const DESCRIPTORS: usize = 2_000;
    let server = serve_with_descriptors(DESCRIPTORS, &repository("site"));
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    let size = status.lines().find_map(|line| line.strip_prefix("FDSize:")).expect("a size");
    assert!(size.trim().parse::<usize>().unwrap() >= DESCRIPTORS, "{size}");
    server.stop();
}

#[test]
fn the_event_loop_does_not_wait_for_the_disk() {
    const FILES: usize = 400;
    const BYTES: usize = 120_000;
    // Whether a thread waits is looked up again and again; so often somebody has to be seen.
    const SEEN: usize = 20;
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
        let asking = scope.spawn(|| {
            let mut client = server.client();
            for at in 0..FILES {
                let response = client.get(&format!("/{at}.bin"));
                assert_eq!((response.status, response.body.len()), (200, BYTES), "{at}");
            }
        });
        while !asking.is_finished() {
            waiting.extend(waiting_for_the_disk(server.id()));
        }
    });
    server.stop();
    let event_loop = waiting.iter().filter(|name| *name == "weft-0").count();
    eprintln!(
        "of {} waits for the disk that were seen, the event loop had {event_loop}",
        waiting.len()
    );
    if waiting.len() < SEEN {
        return common::skipped("this file system hardly waits for a disk");
    }
    assert!(event_loop < waiting.len() / 2, "{event_loop} of {}", waiting.len());
}

#[test]
fn who_asks_and_leaves_does_not_have_more_compressed_at_a_time() {
    const CLIENTS: usize = 50;
    let site = tempfile::tempdir().unwrap();
    for at in 0..CLIENTS {
        std::fs::write(site.path().join(format!("{at}.txt")), text(4 << 20)).unwrap();
    }
    std::fs::write(site.path().join("plain.txt"), "plain").unwrap();
    let server = Weft::serve(site.path(), &["--no-log", "--workers", "1"]);
    let threads = || std::fs::read_dir(format!("/proc/{}/task", server.id())).expect("it runs");
    let mut client = server.client();
    let before = threads().count();
    // What is looked up later is at hand then, and needs no threads.
    for at in 0..CLIENTS {
        client.send(format!("HEAD /{at}.txt HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(client.head()[0], "HTTP/1.1 200 OK");
    }
    let used = cpu_ticks(server.id());
    for at in 0..CLIENTS {
        let mut hasty = TcpStream::connect(server.address()).unwrap();
        let request = format!("GET /{at}.txt HTTP/1.1\r\nHost: a\r\nAccept-Encoding: br\r\n\r\n");
        hasty.write_all(request.as_bytes()).unwrap();
        drop(hasty);
        // It is heard before the next comes.
        assert_eq!(client.get("/plain.txt").status, 200);
        assert_eq!(client.get("/plain.txt").status, 200);
    }
    let more = threads().count() - before;
    assert!(more <= 8, "{more} threads more");
    until("somebody works, or this shows nothing", || cpu_ticks(server.id()) > used + 20);
    server.stop();
}

/// A connection from one of the machine's own addresses, so that many count as from
/// several peers.
fn connect_from(last: u8, to: SocketAddr) -> TcpStream {
    // Not for the programs that other tests start meanwhile.
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)
        .expect("a socket");
    let from = SocketAddr::from((Ipv4Addr::new(127, 0, 0, last), 0));
    rustix::net::bind(&socket, &from).expect("the loopback has many addresses");
    rustix::net::connect(&socket, &to).expect("a connection");
    TcpStream::from(socket)
}

#[test]
fn fifteen_thousand_idle_connections_cost_what_the_readme_says() {
    const CONNECTIONS: usize = 15_000;
    const MOST_BYTES_EACH: u64 = 1_500;
    assert!(raise_descriptor_limit() > CONNECTIONS as u64 + 100, "too few files may be open");
    let server = Weft::serve(&repository("site"), &["--no-log", "--workers", "1"]);
    let ask = |client: &mut Client| assert_eq!(client.get("/style.css").status, 200);
    ask(&mut server.client());

    let before = private_bytes(server.id());
    let mut idle = Vec::with_capacity(CONNECTIONS);
    for number in 0..CONNECTIONS {
        let mut client = Client::over(connect_from(1 + (number % 5) as u8, server.address()));
        ask(&mut client);
        idle.push(client);
    }
    let each = (private_bytes(server.id()) - before) / CONNECTIONS as u64;
    eprintln!("{each} bytes for each idle connection");
    assert!(each <= MOST_BYTES_EACH, "{each} bytes for each idle connection");
    // They are alive, and others are let in.
    for client in idle.iter_mut().step_by(1_000) {
        ask(client);
    }
    ask(&mut server.client());
    server.stop();
}

#[test]
fn attackers_who_are_slow_do_not_keep_others_waiting() {
    if !common::tool("slowhttptest") {
        return;
    }
    raise_descriptor_limit();
    let server = Weft::serve(&repository("site"), &["--no-log", "--workers", "1"]);
    for (name, attack) in [("slow head", "-H"), ("slow body", "-B"), ("slow read", "-X")] {
        let mut attacker = Command::new("slowhttptest");
        attacker.args([attack, "-c", "1000", "-r", "1000", "-i", "1", "-l", "4", "-x", "24"]);
        attacker.args(["-p", "3", "-t", "GET", "-u", &server.url("/")]);
        let mut attacker = common::Program::start(&mut attacker);
        let mut answered = 0;
        while attacker.is_running() {
            assert_eq!(server.client().get("/style.css").status, 200, "{name}");
            answered += 1;
        }
        assert!(answered > 100, "{name}: only {answered} were served");
    }
    server.stop();
}
