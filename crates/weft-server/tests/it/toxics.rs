//! Faults between the program and an upstream, by a proxy with the toxics of toxiproxy.
//!
//! Each of them has an expected outcome for the client (a whole response, a visibly incomplete one,
//! 502 or 504), and returns its connection or closes it.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::common::{Client, PATIENCE, Weft, until, weft};

/// A fault of the bytes that an upstream sends, as toxiproxy names it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Toxic {
    None,
    /// Each part is delayed.
    Latency(Duration),
    /// Bytes per 10 ms.
    Bandwidth(usize),
    /// Parts of this size, with pauses.
    Slicer(usize),
    /// The end of the connection is delayed.
    SlowClose(Duration),
    /// Nothing is forwarded, and the connection stays open.
    Blackhole,
    /// As `Blackhole`, after this number of bytes.
    BlackholeAfter(usize),
    /// The connection ends after this number of bytes.
    LimitData(usize),
    /// The connection is reset after this number of bytes.
    ResetAfter(usize),
    /// No connection is accepted, and open connections end.
    Down,
}

/// A proxy in front of an upstream.
struct FaultProxy {
    address: SocketAddr,
    /// The fault, and the number of faults before it.
    toxic: Arc<Mutex<(usize, Toxic)>>,
}

impl FaultProxy {
    fn start(upstream: SocketAddr) -> FaultProxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let toxic = Arc::new(Mutex::new((0, Toxic::None)));
        let current = toxic.clone();
        thread::spawn(move || {
            for client in listener.incoming() {
                let (client, toxic) = (client.unwrap(), current.clone());
                if toxic.lock().unwrap().1 == Toxic::Down {
                    reset(client);
                    continue;
                }
                let server = TcpStream::connect(upstream).unwrap();
                let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                thread::spawn(move || copy(from, to));
                thread::spawn(move || forward(server, client, &toxic));
            }
        });
        FaultProxy { address, toxic }
    }

    fn set(&self, toxic: Toxic) {
        let mut current = self.toxic.lock().unwrap();
        *current = (current.0 + 1, toxic);
    }
}

fn reset(stream: TcpStream) {
    rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
    // The thread of the other direction reads an end, and closes its descriptor of the socket, too.
    let _ = stream.shutdown(Shutdown::Read);
}

fn copy(mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = [0; 4_096];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    // The other direction may have ended the connection.
    let _ = to.shutdown(Shutdown::Write);
}

/// Forwards the bytes of the upstream with the fault that there is at that time. Bytes are counted
/// from the begin of a fault, also on a kept connection.
fn forward(mut from: TcpStream, mut to: TcpStream, toxic: &Mutex<(usize, Toxic)>) {
    let (mut buffer, mut sent, mut number) = ([0; 4_096], 0, 0);
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        let (current, toxic) = *toxic.lock().unwrap();
        if std::mem::replace(&mut number, current) != current {
            sent = 0;
        }
        let limit = match toxic {
            Toxic::LimitData(limit) | Toxic::ResetAfter(limit) | Toxic::BlackholeAfter(limit) => {
                limit
            }
            Toxic::Blackhole | Toxic::Down => 0,
            _ => usize::MAX,
        };
        let part = &buffer[..length.min(limit.saturating_sub(sent))];
        let (size, pause) = match toxic {
            Toxic::Latency(time) => (part.len(), time),
            Toxic::Bandwidth(bytes) => (bytes, Duration::from_millis(10)),
            Toxic::Slicer(bytes) => (bytes, Duration::from_millis(1)),
            _ => (part.len(), Duration::ZERO),
        };
        for piece in part.chunks(size.max(1)) {
            thread::sleep(pause);
            if to.write_all(piece).is_err() {
                return;
            }
        }
        sent += part.len();
        if sent >= limit {
            match toxic {
                // Until the program closes the connection.
                Toxic::Blackhole | Toxic::BlackholeAfter(_) => {
                    while let Ok(1..) = from.read(&mut buffer) {}
                }
                Toxic::ResetAfter(_) => reset(to),
                _ => {
                    let _ = to.shutdown(Shutdown::Both);
                }
            }
            return;
        }
    }
    if let (_, Toxic::SlowClose(time)) = *toxic.lock().unwrap() {
        thread::sleep(time);
    }
    // The other direction may have ended the connection.
    let _ = to.shutdown(Shutdown::Both);
}

/// The protocol to the upstream.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Protocol {
    Http1,
    Http2,
    FastCgi,
}

/// The outcome of a request for its client.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Outcome {
    Whole,
    /// A response that begins, and whose end is visibly missing.
    Cut,
    Status(u16),
}

const BODY_BYTES: usize = 100_000;

struct Site {
    server: Weft,
    faults: FaultProxy,
    _upstream: Option<Weft>,
    _folder: TempDir,
}

impl Site {
    fn start(protocol: Protocol) -> Site {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("large"), vec![b'x'; BODY_BYTES]).unwrap();
        let upstream = (protocol != Protocol::FastCgi).then(|| {
            let root = folder.path().to_str().unwrap();
            Weft::start(&mut weft([root, "--listen", "127.0.0.1:0", "--no-log"]))
        });
        let address = match &upstream {
            Some(upstream) => upstream.address(),
            None => fastcgi_application(),
        };
        let faults = FaultProxy::start(address);
        let proxied = faults.address;
        let target = match protocol {
            Protocol::Http1 => format!("proxy = \"http://{proxied}/\""),
            Protocol::Http2 => format!("proxy = \"h2c://{proxied}/\""),
            Protocol::FastCgi => format!("fastcgi = \"{proxied}\""),
        };
        let config = format!(
            "listen = \"127.0.0.1:0\"\nworkers = 1\nlog.access = \"none\"\n\
             status = {{ listen = \"127.0.0.1:0\", hosts = [\"a\"] }}\n\
             [hosts.\"*\"]\n\"/\" = {{ {target}, response_timeout = \"2s\", body_timeout = \"2s\", \
             connect_timeout = \"4s\" }}\n"
        );
        fs::write(folder.path().join("weft.toml"), config).unwrap();
        let mut command = weft([Path::new("--config"), &folder.path().join("weft.toml")]);
        Site { server: Weft::start(&mut command), faults, _upstream: upstream, _folder: folder }
    }

    fn request(&self) -> Outcome {
        let mut stream = TcpStream::connect(self.server.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(b"GET /large HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
        let (mut received, mut buffer) = (Vec::new(), [0; 16_384]);
        let is_reset = loop {
            match stream.read(&mut buffer) {
                Ok(0) => break false,
                Ok(length) => received.extend_from_slice(&buffer[..length]),
                Err(error) => {
                    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
                    break true;
                }
            }
        };
        let text = String::from_utf8_lossy(&received);
        if is_reset && text.is_empty() {
            return Outcome::Cut;
        }
        let status: u16 = text[9..12].parse().unwrap();
        if status != 200 {
            return Outcome::Status(status);
        }
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let is_chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
        let is_whole = match is_chunked {
            true => body.ends_with("\r\n0\r\n\r\n") && body.matches('x').count() == BODY_BYTES,
            false => body.len() == BODY_BYTES,
        };
        // The end of an incomplete response must not look like the end of a whole response.
        assert!(is_whole || is_reset || !is_chunked || !body.ends_with("\r\n0\r\n\r\n"), "{head}");
        if is_whole { Outcome::Whole } else { Outcome::Cut }
    }

    /// Number of connections in use.
    fn in_use(&self) -> u64 {
        let body = Client::tcp(self.server.status_address()).get("/status.json").body;
        let json: serde_json::Value = serde_json::from_slice(&body).unwrap();
        json["upstreams"][0]["connections_in_use"].as_u64().unwrap()
    }
}

/// Starts an application of FastCGI that responds to each request with the large body, and closes.
fn fastcgi_application() -> SocketAddr {
    crate::common::raw_upstream(|_, mut stream| {
        let mut head = [0; 8];
        // Until the end of the standard input, a record without content.
        loop {
            if stream.read_exact(&mut head).is_err() {
                return;
            }
            let length = usize::from(u16::from_be_bytes([head[4], head[5]])) + usize::from(head[6]);
            let mut content = vec![0; length];
            stream.read_exact(&mut content).unwrap();
            if head[1] == 5 && length == 0 {
                break;
            }
        }
        let record = |kind: u8, content: &[u8]| {
            let [high, low] = u16::try_from(content.len()).unwrap().to_be_bytes();
            [&[1, kind, 0, 1, high, low, 0, 0], content].concat()
        };
        let mut all = record(6, b"Content-Type: text/plain\r\n\r\n");
        for part in vec![b'x'; BODY_BYTES].chunks(30_000) {
            all.extend(record(6, part));
        }
        all.extend(record(6, b""));
        all.extend(record(3, &[0; 8]));
        // The program may have closed the connection.
        let _ = stream.write_all(&all);
    })
}

/// Runs all toxics with a protocol, each on a connection without a former one.
fn check(protocol: Protocol) {
    let millis = Duration::from_millis;
    for (toxic, expected) in [
        (Toxic::Latency(millis(100)), &[Outcome::Whole][..]),
        (Toxic::Bandwidth(4_096), &[Outcome::Whole]),
        (Toxic::Slicer(1_000), &[Outcome::Whole]),
        (Toxic::SlowClose(millis(300)), &[Outcome::Whole]),
        // Slower than `response_timeout`, or than `body_timeout` after the head.
        (Toxic::Latency(millis(3_000)), &[Outcome::Status(504), Outcome::Cut]),
        (Toxic::Blackhole, &[Outcome::Status(504)]),
        (Toxic::BlackholeAfter(10_000), &[Outcome::Cut]),
        (Toxic::LimitData(0), &[Outcome::Status(502)]),
        // Within the head, within the body.
        (Toxic::LimitData(20), &[Outcome::Status(502)]),
        (Toxic::LimitData(10_000), &[Outcome::Cut]),
        (Toxic::ResetAfter(0), &[Outcome::Status(502)]),
        (Toxic::ResetAfter(20), &[Outcome::Status(502)]),
        (Toxic::ResetAfter(10_000), &[Outcome::Cut]),
        (Toxic::Down, &[Outcome::Status(502)]),
    ] {
        let site = Site::start(protocol);
        assert_eq!(site.request(), Outcome::Whole, "{protocol:?}");
        site.faults.set(toxic);
        let start = Instant::now();
        let outcome = site.request();
        println!("{protocol:?}, {toxic:?}: {outcome:?} after {:?}", start.elapsed());
        assert!(expected.contains(&outcome), "{protocol:?}, {toxic:?}: {outcome:?}");
        until("each place is returned", || site.in_use() == 0);
        site.faults.set(Toxic::None);
        // A connection of HTTP/2 on which a body was late is left after one more request.
        let outcomes = [site.request(), site.request()];
        assert_eq!(outcomes[1], Outcome::Whole, "{protocol:?} after {toxic:?}: {outcomes:?}");
    }
}

#[test]
fn toxics_of_http1_have_their_outcomes() {
    check(Protocol::Http1);
}

#[test]
fn toxics_of_http2_have_their_outcomes() {
    check(Protocol::Http2);
}

#[test]
fn toxics_of_fastcgi_have_their_outcomes() {
    check(Protocol::FastCgi);
}
