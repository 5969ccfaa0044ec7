//! Logs that are sent to syslog and to journald.

use std::fs;
use std::io::Read;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::common::{Client, LONG_PATIENCE, OF_ROOT, Program, Signal, Weft, until, weft};

/// A folder with a configuration, and with sockets of daemons.
struct Site(TempDir);

impl Site {
    fn new() -> Site {
        Site(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Binds the socket of a daemon.
    fn daemon(&self, name: &str) -> UnixDatagram {
        let socket = UnixDatagram::bind(self.path(name)).unwrap();
        socket.set_read_timeout(Some(LONG_PATIENCE)).unwrap();
        socket
    }

    fn serve(&self, log: &str) -> Weft {
        Weft::start(&mut self.command(log))
    }

    fn command(&self, log: &str) -> Command {
        let config = format!(
            "listen = \"127.0.0.1:0\"\nworkers = 1\nlog = {{ {log} }}\n\
             [hosts.\"*\"]\n\"/\" = {{ respond = \"a\" }}\n"
        );
        fs::write(self.path("weft.toml"), config).unwrap();
        weft([Path::new("--config"), &self.path("weft.toml")])
    }
}

/// Sends a request to the address in the notice of the start.
fn get(started: &str, target: &str) -> u16 {
    let (_, behind) = started.split_once("http://").expect("an address");
    let address = behind.split(' ').next().unwrap().parse().unwrap();
    Client::tcp(address).get(target).status
}

fn stop(server: Program) {
    server.signal(Signal::TERM);
    assert!(server.wait_with_output().status.is_ok());
}

fn receive(socket: &UnixDatagram) -> String {
    let mut message = vec![0; 128 << 10];
    let length = socket.recv(&mut message).unwrap();
    let message = String::from_utf8(message[..length].to_vec()).unwrap();
    match message.contains(OF_ROOT) {
        true => receive(socket),
        false => message,
    }
}

/// Asserts the parts of a syslog message (RFC 5424 §6), and returns its text.
#[track_caller]
fn syslog_text(message: &str, priority: &str, pid: u32, kind: &str) -> String {
    let parts: Vec<&str> = message.splitn(8, ' ').collect();
    let [start, time, _host, tag, process, id, data, text] = parts[..] else {
        panic!("{message:?}");
    };
    assert_eq!(start, format!("<{priority}>1"), "{message:?}");
    let shape = time.replace(|c: char| c.is_ascii_digit(), "0");
    assert_eq!(shape, "0000-00-00T00:00:00.000Z", "{message:?}");
    assert_eq!((tag, process, id, data), ("web", &*pid.to_string(), kind, "-"), "{message:?}");
    text.to_owned()
}

#[test]
fn lines_are_syslog_messages() {
    let (site, udp) = (Site::new(), UdpSocket::bind("127.0.0.1:0").unwrap());
    udp.set_read_timeout(Some(LONG_PATIENCE)).unwrap();
    let daemon = site.daemon("log");
    let server = Program::start(&mut site.command(&format!(
        "access = \"syslog:udp://{}\", error = \"syslog:unix:{}\", format = \"%r %s\", \
         facility = \"local7\", tag = \"web\"",
        udp.local_addr().unwrap(),
        site.path("log").display()
    )));
    let pid = server.id();
    let started = syslog_text(&receive(&daemon), "190", pid, "error");
    assert!(started.starts_with("serving "), "{started}");
    assert_eq!(get(&started, "/x"), 200);
    let mut message = [0; 1_000];
    let length = udp.recv(&mut message).unwrap();
    let message = std::str::from_utf8(&message[..length]).unwrap();
    assert_eq!(syslog_text(message, "190", pid, "access"), "GET /x HTTP/1.1 200");
    fs::write(site.path("weft.toml"), "x").unwrap();
    server.signal(Signal::HUP);
    let problem = syslog_text(&receive(&daemon), "187", pid, "error");
    assert!(problem.contains("weft.toml:1:"), "{problem}");
    stop(server);
}

#[test]
fn syslog_over_tcp_counts_octets_and_connects_again() {
    let (site, listener) = (Site::new(), TcpListener::bind("127.0.0.1:0").unwrap());
    let server = site.serve(&format!(
        "access = \"syslog:tcp://{}\", format = \"%{{target}}x\", tag = \"web\"",
        listener.local_addr().unwrap()
    ));
    for target in ["/a", "/longer"] {
        assert_eq!(server.client().get(target).status, 200);
        let (mut connection, _) = listener.accept().unwrap();
        connection.set_read_timeout(Some(LONG_PATIENCE)).unwrap();
        let (mut length, mut byte) = (String::new(), [0]);
        while connection.read(&mut byte).unwrap() == 1 && byte != *b" " {
            length.push(byte[0].into());
        }
        let mut message = vec![0; length.parse().unwrap()];
        connection.read_exact(&mut message).unwrap();
        let message = String::from_utf8(message).unwrap();
        assert_eq!(syslog_text(&message, "30", server.id(), "access"), target);
    }
    server.stop();
}

#[test]
fn lines_are_journald_messages() {
    let site = Site::new();
    let daemon = site.daemon("journal");
    let journal = format!("\"journald:{}\"", site.path("journal").display());
    let log = format!("access = {journal}, error = {journal}, format = \"%r\"");
    let server = Program::start(&mut site.command(&log));
    let pid = server.id();
    let started = receive(&daemon);
    let head = |kind: &str| {
        format!(
            "PRIORITY=6\nSYSLOG_FACILITY=3\nSYSLOG_IDENTIFIER=weft\nSYSLOG_PID={pid}\n\
             WEFT_LOG={kind}\nMESSAGE="
        )
    };
    assert!(started.starts_with(&format!("{}serving ", head("error"))), "{started}");
    assert_eq!(get(started.trim_end(), "/%0aPRIORITY=0"), 200);
    assert_eq!(receive(&daemon), format!("{}GET /%0aPRIORITY=0 HTTP/1.1\n", head("access")));
    stop(server);
}

/// Lines are kept while there is no daemon, and a new one gets them.
#[test]
fn a_daemon_that_returns_gets_the_lines_since_it_vanished() {
    let site = Site::new();
    let server = site.serve(&format!(
        "access = \"syslog:unix:{}\", format = \"%{{target}}x\"",
        site.path("log").display()
    ));
    let report = format!("the access log syslog:unix:{} ", site.path("log").display());
    assert_eq!(server.client().get("/1").status, 200);
    until("the failure is logged", || {
        server.stderr().contains(&format!("{report}cannot be written: No such file or directory"))
    });
    assert_eq!(server.client().get("/2").status, 200);
    let text = |message: String| message.rsplit(' ').next().unwrap().to_owned();
    let daemon = site.daemon("log");
    assert_eq!(text(receive(&daemon)), "/1");
    assert_eq!(text(receive(&daemon)), "/2");
    drop(daemon);
    fs::remove_file(site.path("log")).unwrap();
    assert_eq!(server.client().get("/3").status, 200);
    let daemon = site.daemon("log");
    assert_eq!(text(receive(&daemon)), "/3");
    until("the recovery is logged", || {
        server.stderr().contains(&format!("{report}is writable again"))
    });
    server.stop();
}

/// A daemon that does not read stops neither the server nor its end; lost lines are counted.
#[test]
fn a_daemon_that_does_not_read_blocks_no_request() {
    const REQUESTS: usize = 2_000;
    let site = Site::new();
    let daemon = site.daemon("log");
    let server = site.serve(&format!(
        "access = \"syslog:unix:{}\", format = \"%{{target}}x %{{User-Agent}}i\"",
        site.path("log").display()
    ));
    let agent = "x".repeat(6_000);
    let mut client = server.client();
    for number in 0..REQUESTS {
        client.send(format!("GET /{number} HTTP/1.1\r\nHost: a\r\nUser-Agent: {agent}\r\n\r\n"));
        assert_eq!(client.response().status, 200);
    }
    // Now it reads: each line was sent or is reported as lost.
    let reader = std::thread::spawn(move || {
        let mut received = 0;
        while receive(&daemon).len() > agent.len() {
            received += 1;
        }
        received
    });
    let lost = || {
        let stderr = server.stderr();
        let reports = stderr.lines().filter_map(|line| line.strip_suffix(" lines were lost"));
        let counts = reports.filter_map(|line| line.rsplit(' ').next()?.parse::<usize>().ok());
        counts.sum::<usize>()
    };
    until("lost lines are reported", || lost() > 0);
    assert_eq!(server.client().get("/end").status, 200);
    let received: usize = reader.join().unwrap();
    assert!(received < REQUESTS);
    until("all lost lines are reported", || received + lost() == REQUESTS);
    server.stop();
}
