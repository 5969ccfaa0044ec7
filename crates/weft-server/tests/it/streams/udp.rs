//! Sessions of UDP.

use std::collections::HashSet;
use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;

use super::{LastProcess, Streams, read_pid};
use crate::common::{PATIENCE, Program, Signal, has_tool, until, unused_address};

/// An upstream, and the addresses from which it has received datagrams.
struct Upstream {
    address: SocketAddr,
    sources: Arc<Mutex<HashSet<SocketAddr>>>,
}

impl Upstream {
    /// Starts an upstream that sends the datagrams that `responses` returns.
    fn start(responses: impl Fn(&[u8]) -> Vec<Vec<u8>> + Send + 'static) -> Upstream {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let sources = Arc::<Mutex<HashSet<SocketAddr>>>::default();
        let seen = sources.clone();
        thread::spawn(move || {
            let mut buffer = [0; 65_536];
            while let Ok((length, source)) = socket.recv_from(&mut buffer) {
                seen.lock().unwrap().insert(source);
                for response in responses(&buffer[..length]) {
                    // The session may have ended.
                    let _ = socket.send_to(&response, source);
                }
            }
        });
        Upstream { address, sources }
    }

    fn echo() -> Upstream {
        Upstream::start(|datagram| vec![datagram.to_vec()])
    }

    fn sources(&self) -> usize {
        self.sources.lock().unwrap().len()
    }
}

/// Returns the addresses of UDP that a server has.
fn addresses(streams: &Streams) -> Vec<SocketAddr> {
    let all = streams.server.addresses();
    let found = all.iter().filter_map(|address| address.strip_prefix("udp://"));
    found.map(|address| address.parse().unwrap()).collect()
}

fn client(host: &str, server: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind((host, 0)).unwrap();
    socket.connect(server).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

fn receive(socket: &UdpSocket) -> Vec<u8> {
    let mut buffer = [0; 65_536];
    let length = socket.recv(&mut buffer).unwrap();
    buffer[..length].to_vec()
}

fn start(upstream: &Upstream, keys: &str) -> Streams {
    let address = upstream.address;
    Streams::start(&format!("[streams.\"udp://127.0.0.1:0\"]\nto = \"{address}\"\n{keys}\n"))
}

const DNS_SERVER: &str = r#"
import socket
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
while True:
    query, client = server.recvfrom(512)
    answer = b"\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04" + bytes([192, 0, 2, 53])
    head = query[:2] + b"\x81\x80" + query[4:6] + b"\0\x01\0\0\0\0"
    server.sendto(head + query[12:] + answer, client)
"#;

const DNS_CLIENT: &str = r#"
import socket, struct, sys
server = ("127.0.0.1", int(sys.argv[1]))
for number in range(200):
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client.settimeout(20)
    question = b"\x04name\x07example\0\0\x01\0\x01"
    client.sendto(struct.pack(">HHHHHH", number, 0x100, 1, 0, 0, 0) + question, server)
    response, sender = client.recvfrom(512)
    assert sender == server, sender
    assert struct.unpack(">HHHHHH", response[:12]) == (number, 0x8180, 1, 1, 0, 0), response
    assert response[-4:] == bytes([192, 0, 2, 53]), response
print("200 responses")
"#;

#[test]
fn clients_of_dns_get_the_responses_of_their_own_queries() {
    if !has_tool("python3") {
        return;
    }
    let server = Program::start(Command::new("python3").args(["-c", DNS_SERVER]));
    until("the server listens", || server.stdout().ends_with('\n'));
    let port = server.stdout().trim().to_owned();
    // No more sessions than one client may have at once: each ends with its response.
    let streams = Streams::start(&format!(
        "[streams.\"udp://127.0.0.1:0\"]\nto = \"127.0.0.1:{port}\"\nudp_responses = 1\n\
         max_connections = 40\nmax_connections_per_client = 20\naccess_log = \"access.log\"\n"
    ));
    let port = addresses(&streams)[0].port().to_string();
    let output = Program::start(Command::new("python3").args(["-c", DNS_CLIENT, &port]));
    let output = output.wait_with_output();
    assert_eq!((&*output.stdout, &*output.stderr), ("200 responses\n", ""));
    let read = || std::fs::read_to_string(streams.path("access.log")).unwrap_or_default();
    until("each session has a line", || read().lines().count() == 200);
    let log = read();
    for line in log.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(
            (words[1], &words[5..7], words[8]),
            ("udp", &["30", "46"][..], "closed"),
            "{line}"
        );
    }
}

#[test]
fn forged_sources_cost_no_more_than_the_permitted_sessions() {
    let upstream = Upstream::start(|datagram| match datagram {
        b"flood" => Vec::new(),
        other => vec![other.to_vec()],
    });
    let streams = start(&upstream, "max_connections = 32\nudp_idle_timeout = \"1s\"");
    let server = addresses(&streams)[0];
    let kept = client("127.0.0.1", server);
    kept.send(b"before").unwrap();
    assert_eq!(receive(&kept), b"before");
    for number in 0..3_000 {
        let source = format!("127.9.{}.{}", 1 + number / 250, 1 + number % 250);
        client(&source, server).send(b"flood").unwrap();
        // A session continues while others are refused.
        if number % 100 == 0 {
            kept.send(b"during").unwrap();
            assert_eq!(receive(&kept), b"during");
        }
    }
    until("the limit is logged", || streams.server.stderr().contains("too many sessions"));
    assert!(upstream.sources() <= 4 * 32, "{} sessions", upstream.sources());
    // The sessions of the flood end, and leave their places to others.
    let other = client("127.0.0.3", server);
    other.set_read_timeout(Some(std::time::Duration::from_millis(100))).unwrap();
    until("another client has a session", || {
        other.send(b"after").unwrap();
        other.recv(&mut [0; 5]).is_ok()
    });
}

#[test]
fn sessions_of_one_client_are_limited() {
    let upstream = Upstream::echo();
    let streams = start(&upstream, "max_connections = 32\nmax_connections_per_client = 5");
    let server = addresses(&streams)[0];
    let sockets: Vec<UdpSocket> = (0..20).map(|_| client("127.0.0.1", server)).collect();
    for socket in &sockets {
        socket.send(b"a").unwrap();
    }
    let other = client("127.0.0.2", server);
    other.send(b"b").unwrap();
    assert_eq!(receive(&other), b"b");
    until("the limit is logged", || streams.server.stderr().contains("too many sessions"));
    until("the others are served", || upstream.sources() == 5 + 1);
}

#[test]
fn a_session_forwards_the_permitted_responses_only() {
    let upstream = Upstream::start(|datagram| (0..4).map(|_| datagram.to_vec()).collect());
    for (responses, expected) in [(0, 4), (1, 1), (3, 3)] {
        let streams = start(&upstream, &format!("udp_responses = {responses}"));
        let socket = client("127.0.0.1", addresses(&streams)[0]);
        socket.send(b"one").unwrap();
        for _ in 0..expected {
            assert_eq!(receive(&socket), b"one");
        }
        // The responses to this one follow all others.
        let other = client("127.0.0.1", addresses(&streams)[0]);
        other.send(b"two").unwrap();
        assert_eq!(receive(&other), b"two");
        socket.set_nonblocking(true).unwrap();
        assert!(socket.recv(&mut [0; 8]).is_err(), "{responses}");
    }
}

#[test]
fn large_datagrams_are_forwarded_up_to_the_limit() {
    let upstream = Upstream::start(|datagram| match datagram {
        b"large" => vec![vec![1; 1_001], vec![2; 1_000]],
        other => vec![other.to_vec()],
    });
    let streams = start(&upstream, "");
    let socket = client("127.0.0.1", addresses(&streams)[0]);
    let largest = vec![7; 65_507];
    socket.send(&largest).unwrap();
    assert!(receive(&socket) == largest);
    let streams = start(&upstream, "max_datagram_bytes = 1000");
    let socket = client("127.0.0.1", addresses(&streams)[0]);
    socket.send(&[3; 1_001]).unwrap();
    socket.send(b"large").unwrap();
    assert_eq!(receive(&socket), [2; 1_000]);
}

#[test]
fn refusing_upstreams_are_tried_last() {
    let (upstream, gone) = (Upstream::echo(), unused_address());
    let streams = Streams::start(&format!(
        "[streams.\"udp://127.0.0.1:0\"]\nto = [\"{gone}\", \"{}\"]\naccess_log = \"access.log\"\n",
        upstream.address
    ));
    until("most sessions are served", || {
        let socket = client("127.0.0.1", addresses(&streams)[0]);
        socket.send(b"a").unwrap();
        socket.set_read_timeout(Some(std::time::Duration::from_millis(50))).unwrap();
        let _ = socket.recv(&mut [0; 1]);
        streams.server.stderr().contains(&format!("the upstream {gone} fails again and again"))
    });
    for _ in 0..5 {
        let socket = client("127.0.0.1", addresses(&streams)[0]);
        socket.send(b"a").unwrap();
        assert_eq!(receive(&socket), b"a");
    }
    let read = || std::fs::read_to_string(streams.path("access.log")).unwrap_or_default();
    until("a line states the refusal", || read().contains(&format!("{gone} 1 0 ")));
    assert!(read().contains(" upstream-error -"), "{}", read());
}

#[test]
fn sockets_survive_reloads_and_upgrades() {
    let (first, second) = (Upstream::echo(), Upstream::start(|_| vec![b"second".to_vec()]));
    let config = |upstream: &Upstream| {
        format!("[streams.\"udp://127.0.0.1:0\"]\nto = \"{}\"\n", upstream.address)
    };
    let streams = Streams::start(&config(&first));
    let _last = LastProcess(streams.path("pid"));
    let server = addresses(&streams)[0];
    let ask = || {
        let socket = client("127.0.0.1", server);
        socket.send(b"first").unwrap();
        receive(&socket)
    };
    assert_eq!(ask(), b"first");
    std::fs::write(streams.path("weft.toml"), config(&second)).unwrap();
    streams.server.signal(Signal::HUP);
    until("the configuration is reloaded", || streams.server.stderr().contains("was reloaded"));
    assert_eq!(ask(), b"second");
    let former = read_pid(&streams.path("pid")).unwrap();
    streams.server.signal(Signal::USR2);
    until("the successor serves", || {
        read_pid(&streams.path("pid")).is_some_and(|current| current != former)
    });
    for _ in 0..20 {
        assert_eq!(ask(), b"second");
    }
}
