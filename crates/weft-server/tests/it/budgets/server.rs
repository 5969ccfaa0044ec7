//! The attacked server: its configuration and upstream, what it costs as seen from outside, and its
//! ordinary clients.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use rustls::{ClientConnection, StreamOwned};
use tempfile::TempDir;

use crate::common::external::{pattern, words};
use crate::common::tls_client::tls_settings;
use crate::common::{LONG_PATIENCE, PATIENCE, Weft, raw_upstream, read_head, weft};

/// Timeouts short enough for a test, and long enough for a heavily loaded machine. Connections are
/// accepted at once, because an attack ends when the server has no socket of it.
const CONFIGURATION: &str = r#"
listen = ["127.0.0.1:0"]
workers = 1
defer_accept = false
[log]
access = "access.log"
[tls]
listen = ["127.0.0.1:0"]
self_signed = true
[files]
languages = ["en", "de"]
[hosts."*"]
"/" = "-> www"
"/cgi/" = { cgi = "cgi", timeout = "1s", body_timeout = "1s", max_processes = 16, max_spooled_bytes = "1MiB" }
"/good/" = { proxy = "GOOD", max_concurrent_requests = 32 }
"/password/" = { files = "www", basic_auth = "users" }
"/token/" = { files = "www", jwt_keys = "keys.json" }
"/app/" = { fastcgi = "APPLICATION", response_timeout = "1s", max_connections = 4, queue_timeout = "1s" }
"/up/" = { proxy = "UPSTREAM", max_body_bytes = "1GiB", response_timeout = "1s", body_timeout = "1s", tunnel_timeout = "1s", max_idle_connections = 1 }
[hosts.patterns]
"= /exact" = "-> www"
'~ ^/a/[^/]+/[^/]+$' = { respond = "no", status = 403 }
'~ \.(php|cgi)$' = { respond = "no", status = 403 }
'~ ^/[a-z]+;v=[0-9]+/' = { respond = "no", status = 403 }
"/" = "-> www"
[hosts.conditions]
"/" = "-> www"
CONDITIONS[limits]
head_timeout = "1s"
idle_timeout = "1s"
stall_timeout = "1s"
linger_timeout = "200ms"
proxy_protocol = ["127.0.0.9"]
"#;

/// As many patterns about cookies and parameters as a path may have.
fn conditions() -> String {
    let route = |number: usize| {
        let subject = if number.is_multiple_of(2) { "cookie" } else { "query" };
        format!(
            "\"/ @r{number}\" = {{ respond = \"no\", when = {{ {subject} = {{ n{number} = \"~ ^(a|b)*c$\" }} }} }}\n"
        )
    };
    (0..64).map(route).collect()
}

/// The user of `/password/`.
const USERS: &str = "alice:$2b$04$13JgGd/o0lgo1LEw3aX1Q.wexhYWPu/4NSjFzpo1zhhNouxntxg2e\n";

/// The key of `/token/`, of the most expensive kind: the base point of P-384 (FIPS 186-4 §D.1.2.4).
const KEYS: &str = r#"{ "keys": [{
    "kty": "EC", "crv": "P-384",
    "x": "qofKIr6LBTeOscce8yCtdG4dO2KLp5uYWfdB4IJUKjhVAvJdv1UpbDpUXjhydgq3",
    "y": "NhfeSpYmLG9dnpi_kpLcKfj0Hb0omhR86doxE7XwuMAKYLHOHX6BnXpDHXyQ6g5f"
}] }"#;

/// Scripts below `/cgi/`.
const SCRIPTS: [(&str, &str); 3] = [
    ("small", "printf 'Content-Type: text/plain\\nContent-Length: 2\\n\\nok'\n"),
    ("sink", "cat >/dev/null; printf 'Content-Type: text/plain\\nContent-Length: 2\\n\\nok'\n"),
    ("endless-head", "while true; do printf 'X-Field: 0123456789012345678901234567890\\n'; done\n"),
];

/// Files to serve, and an upstream.
pub struct Site {
    folder: TempDir,
    upstream: SocketAddr,
    /// Serves the route of the clients that are not hostile.
    good_upstream: SocketAddr,
}

impl Site {
    pub fn new() -> Site {
        let folder = tempfile::tempdir().unwrap();
        for name in ["www", "cgi"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let files: [(&str, Vec<u8>); 7] = [
            ("small.txt", vec![b'x'; 100]),
            ("large.bin", pattern(8 << 20)),
            ("words.txt", words(8 << 10).into_bytes()),
            ("text.txt", words(1 << 20).into_bytes()),
            ("page.html", b"<p>Default".to_vec()),
            ("page.html.en", b"<p>English".to_vec()),
            ("page.html.de", b"<p>Deutsch".to_vec()),
        ];
        // Files modified within the last two seconds are not cached.
        let modified = SystemTime::now() - Duration::from_secs(60);
        for (name, contents) in files {
            let path = folder.path().join("www").join(name);
            fs::write(&path, contents).unwrap();
            File::options().append(true).open(&path).unwrap().set_modified(modified).unwrap();
        }
        for (name, text) in [("users", USERS), ("keys.json", KEYS)] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        for (name, text) in SCRIPTS {
            let path = folder.path().join("cgi").join(name);
            fs::write(&path, format!("#!/bin/sh\n{text}")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let [upstream, good_upstream] =
            [(); 2].map(|()| raw_upstream(|_, stream| drop(serve_upstream(stream))));
        Site { folder, upstream, good_upstream }
    }

    /// Starts a server with short timeouts. Each row has its own, so that it does not depend on the
    /// memory that another has freed.
    pub fn start(&self) -> Target {
        self.start_with(CONFIGURATION)
    }

    /// Starts a server that keeps slow clients for longer than a measurement.
    pub fn start_patiently(&self) -> Target {
        let limits = "max_connections_per_peer = 256\n";
        self.start_with(&[&CONFIGURATION.replace("\"1s\"", "\"20s\""), limits].concat())
    }

    fn start_with(&self, configuration: &str) -> Target {
        let file = self.folder.path().join("weft.toml");
        let text = configuration
            .replace("UPSTREAM", &format!("http://{}/", self.upstream))
            // A request without the end of a head: the upstream is silent.
            .replace("APPLICATION", &self.upstream.to_string())
            .replace("CONDITIONS", &conditions())
            .replace("GOOD", &format!("http://{}/", self.good_upstream));
        fs::write(&file, text).unwrap();
        let weft = Weft::start(&mut weft([Path::new("--config"), &file]));
        Target::new(weft)
    }
}

/// The upstream: the path of a request selects its behavior.
fn serve_upstream(mut stream: TcpStream) -> io::Result<()> {
    while let Some(head) = read_head(&mut stream) {
        let mut endlessly = |first: &str, repeated: &str| -> io::Result<()> {
            stream.write_all(first.as_bytes())?;
            let repeated = repeated.repeat(64 << 10 >> repeated.len().ilog2());
            loop {
                stream.write_all(repeated.as_bytes())?;
            }
        };
        match head.split(' ').nth(1).expect("a target") {
            "/large" => {
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 67108864\r\n\r\n")?;
                (0..1024).try_for_each(|_| stream.write_all(&[b'x'; 64 << 10]))?;
            }
            "/endless-head" => endlessly("HTTP/1.1 200 OK\r\n", "X-Field: 012345678901234\r\n")?,
            "/interim" => endlessly("", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")?,
            "/extensions" => {
                endlessly("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1", ";name=value")?;
            }
            "/trailers" => {
                let first = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n";
                endlessly(first, "X-Field: 012345678901234\r\n")?;
            }
            "/tiny-chunks" => {
                let first = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
                stream.write_all(
                    [first, &"1\r\nx\r\n".repeat(100_000), "0\r\n\r\n"].concat().as_bytes(),
                )?;
            }
            "/silent" => drop(stream.read(&mut [0])),
            "/unread" => std::thread::sleep(Duration::from_secs(5)),
            "/sink" => {
                let _length = stream.read(&mut [0; 64 << 10])?;
                while stream.read(&mut [0; 64 << 10])? > 0 {}
            }
            "/websocket" => {
                let fields = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
                let accept = "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n";
                let head = ["HTTP/1.1 101 Switching Protocols\r\n", fields, accept, "\r\n"];
                stream.write_all(head.concat().as_bytes())?;
                while stream.read(&mut [0; 64 << 10])? > 0 {}
            }
            _ => stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")?,
        }
    }
    Ok(())
}

/// A running server.
pub struct Target {
    weft: Weft,
    /// CPU time of each thread in nanoseconds, also of ended threads, by the number of the thread.
    threads: Mutex<HashMap<OsString, u64>>,
}

/// Cost of a server at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    pub memory_bytes: u64,
    pub cpu: Duration,
    pub descriptors: usize,
    /// Number of descriptors among them that are sockets.
    pub sockets: usize,
    /// Bytes of the pages written to files. None are counted in a file system in memory.
    pub written_bytes: u64,
}

impl Target {
    pub fn new(weft: Weft) -> Target {
        Target { weft, threads: Mutex::default() }
    }

    pub fn address(&self) -> SocketAddr {
        self.weft.address()
    }

    pub fn tls_address(&self) -> SocketAddr {
        self.weft.tls_address()
    }

    /// Returns the address of the first stream over `tcp` or `udp`.
    pub fn stream_address(&self, protocol: &str) -> SocketAddr {
        let (addresses, scheme) = (self.weft.addresses(), format!("{protocol}://"));
        let stream = addresses.iter().find_map(|address| address.strip_prefix(&scheme));
        stream.expect("a stream").parse().expect("an address")
    }

    pub fn stop(self) {
        self.weft.stop();
    }

    fn proc(&self, path: &str) -> std::path::PathBuf {
        format!("/proc/{}/{path}", self.weft.id()).into()
    }

    /// Anonymous resident memory, without the pages of the program's file.
    pub fn memory_bytes(&self) -> u64 {
        let status = fs::read_to_string(self.proc("status")).expect("the server runs");
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("a line");
        let kilobytes = line.trim().strip_suffix(" kB").expect("a unit");
        kilobytes.parse::<u64>().expect("a number") << 10
    }

    /// CPU time of all threads, with the resolution of the scheduler: the times of proc(5)'s
    /// `stat` are multiples of 10 ms.
    pub fn cpu(&self) -> Duration {
        let mut threads = self.threads.lock().unwrap();
        for thread in fs::read_dir(self.proc("task")).expect("the server runs").flatten() {
            // A thread may have ended since.
            let text = fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
            if let Some(nanoseconds) = text.split(' ').next().and_then(|it| it.parse().ok()) {
                threads.insert(thread.file_name(), nanoseconds);
            }
        }
        Duration::from_nanos(threads.values().sum())
    }

    /// Number of descriptors, and of those among them that are sockets.
    pub fn descriptors(&self) -> (usize, usize) {
        let entries = fs::read_dir(self.proc("fd")).expect("the server runs");
        let targets = entries.flatten().map(|entry| fs::read_link(entry.path()).ok());
        targets.fold((0, 0), |(all, sockets), target| {
            let is_socket =
                target.is_some_and(|path| path.to_string_lossy().starts_with("socket:"));
            (all + 1, sockets + usize::from(is_socket))
        })
    }

    pub fn sample(&self) -> Sample {
        let (descriptors, sockets) = self.descriptors();
        let (memory_bytes, written_bytes) = (self.memory_bytes(), self.written_bytes());
        Sample { memory_bytes, cpu: self.cpu(), descriptors, sockets, written_bytes }
    }

    /// Bytes of the pages written to files (proc_pid_io(5)).
    fn written_bytes(&self) -> u64 {
        let counters = fs::read_to_string(self.proc("io")).expect("the server runs");
        let line = counters.lines().find_map(|line| line.strip_prefix("write_bytes: "));
        line.expect("a line").parse().expect("a number")
    }

    /// Waits until the server is idle: all of its threads sleep, and they have used at most 1 % of
    /// a CPU for 40 ms. On a busy machine, a thread that is ready to run may get no CPU for longer.
    #[track_caller]
    pub fn wait_until_idle(&self) {
        let start = Instant::now();
        let mut before = self.cpu();
        loop {
            std::thread::sleep(Duration::from_millis(40));
            let now = self.cpu();
            let is_idle = now.saturating_sub(before) < Duration::from_micros(400);
            if is_idle && self.is_asleep() {
                return;
            }
            assert!(start.elapsed() < LONG_PATIENCE, "timed out waiting until the server is idle");
            before = now;
        }
    }

    /// Returns true if no thread runs or is ready to run (proc_pid_stat(5)).
    fn is_asleep(&self) -> bool {
        let threads = fs::read_dir(self.proc("task")).expect("the server runs").flatten();
        let state = |stat: String| stat.rsplit_once(") ").map(|(_, rest)| rest.starts_with('R'));
        !threads
            .filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok())
            .any(|stat| state(stat).expect("a state"))
    }
}

// -- ordinary clients

/// CPU time of ordinary clients.
#[derive(Clone, Copy, Debug)]
pub struct Ordinary {
    pub per_request: Duration,
    per_connection: Duration,
    per_byte: f64,
}

impl Ordinary {
    /// Measures keep-alive requests for `target`, and connections with one request each.
    pub fn measure(server: &Target, target: &str, tls: bool) -> Ordinary {
        let (requests, connections) =
            if target.starts_with("/cgi/") { (10, 10) } else { (200, 16) };
        let mut client = OrdinaryClient::connect(server, tls);
        (0..requests / 10 + 1).for_each(|_| client.get(target));
        let before = server.cpu();
        (0..requests).for_each(|_| client.get(target));
        let per_request = (server.cpu() - before) / requests;
        let before = server.cpu();
        for _ in 0..connections {
            OrdinaryClient::connect(server, tls).get(target);
        }
        let per_connection = ((server.cpu() - before) / connections).saturating_sub(per_request);
        let per_byte = per_request.as_secs_f64() / OrdinaryClient::request(target).len() as f64;
        Ordinary { per_request, per_connection, per_byte }
    }

    /// The higher costs of two measurements.
    pub fn max(self, other: Ordinary) -> Ordinary {
        Ordinary {
            per_request: self.per_request.max(other.per_request),
            per_connection: self.per_connection.max(other.per_connection),
            per_byte: self.per_byte.max(other.per_byte),
        }
    }

    /// CPU time of ordinary clients with as many connections and bytes.
    pub fn cpu(&self, connections: usize, bytes: u64) -> Duration {
        let bytes = Duration::from_secs_f64(self.per_byte * bytes as f64);
        self.per_connection * connections as u32 + bytes
    }
}

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// A client that sends one request after the other.
pub struct OrdinaryClient(Box<dyn Stream>);

impl OrdinaryClient {
    pub fn connect(server: &Target, tls: bool) -> OrdinaryClient {
        let address = if tls { server.tls_address() } else { server.address() };
        let socket = TcpStream::connect(address).expect("a connection");
        socket.set_nodelay(true).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        if !tls {
            return OrdinaryClient(Box::new(socket));
        }
        let settings = Arc::new(tls_settings(&["http/1.1"]));
        let name = "localhost".try_into().expect("a name");
        let connection = ClientConnection::new(settings, name).expect("settings");
        OrdinaryClient(Box::new(StreamOwned::new(connection, socket)))
    }

    fn request(target: &str) -> String {
        format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n")
    }

    /// Sends a request and reads its response, which must be a 200.
    #[track_caller]
    pub fn get(&mut self, target: &str) {
        self.0.write_all(OrdinaryClient::request(target).as_bytes()).expect("an open connection");
        let mut received = Vec::new();
        let mut buffer = [0; 4096];
        let length = |received: &[u8]| {
            let head_end = received.windows(4).position(|bytes| bytes == b"\r\n\r\n")? + 4;
            let head = String::from_utf8_lossy(&received[..head_end]).to_lowercase();
            let (_, rest) = head.split_once("content-length: ").expect("a length");
            Some(head_end + rest.split_once("\r\n")?.0.parse::<usize>().expect("a number"))
        };
        while length(&received).is_none_or(|length| received.len() < length) {
            let n = self.0.read(&mut buffer).expect("a response");
            assert!(n > 0, "truncated: {}", received.escape_ascii());
            received.extend(&buffer[..n]);
        }
        assert!(received.starts_with(b"HTTP/1.1 200"), "{}", received.escape_ascii());
    }
}
