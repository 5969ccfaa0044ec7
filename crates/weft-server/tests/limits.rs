//! The program at its limits: descriptors, memory, attackers.

mod common;

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use common::{Client, Weft, repository, until, weft};
use rustix::net::{AddressFamily, SocketType};
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
    let program = weft(["site", "--listen", "127.0.0.1:0", "--no-log", "--workers", "1"]);
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -n 40; exec \"$@\"", "sh"]).arg(program.get_program());
    let server = Weft::start(limited.args(program.get_args()).current_dir(repository("")));

    let mut served = vec![server.client(), server.client()];
    for client in &mut served {
        assert_eq!(client.get("/").status, 200);
    }
    // More than there are descriptors for; the kernel completes them all the same.
    let mut waiting: Vec<Client> = (0..60).map(|_| server.client()).collect();
    until("it has run out", || {
        let open = std::fs::read_dir(format!("/proc/{}/fd", server.id())).expect("it runs").count();
        open >= 40
    });
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

/// A connection from one of the machine's own addresses, so that many count as from
/// several peers.
fn connect_from(last: u8, to: SocketAddr) -> TcpStream {
    let socket =
        rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
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
