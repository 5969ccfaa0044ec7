//! What the tests share: a server's address, and responses read as data.
#![allow(dead_code, reason = "each test file uses a part of it")]

pub mod frames;
pub mod tree;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use weft::{Bound, Running, Settings};

/// The address of the server's first socket.
pub fn address(server: &Running) -> SocketAddr {
    match &server.addresses()[0] {
        Bound::Tcp(address) => *address,
        other => panic!("{other} is no TCP address"),
    }
}

/// Short, but longer than a busy machine mostly holds up a client that means well.
pub const SHORT: Duration = Duration::from_millis(500);

/// Settings whose clocks of connections are short.
pub fn quick() -> Settings {
    Settings {
        head_timeout: SHORT,
        idle_timeout: SHORT,
        stall_timeout: SHORT,
        linger_timeout: SHORT,
        ..Settings::default()
    }
}

/// A response as a client sees it.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// How many bytes it took.
    pub length: usize,
}

impl Response {
    /// The first response of these bytes, if it is whole. One without a length has
    /// all of them.
    pub fn parse(bytes: &[u8], head_only: bool) -> Option<Response> {
        let head = bytes.windows(4).position(|w| w == b"\r\n\r\n")? + 4;
        let text = std::str::from_utf8(&bytes[..head]).expect("a head is text");
        let mut lines = text.split("\r\n").filter(|line| !line.is_empty());
        let status = lines.next()?.split(' ').nth(1)?.parse().expect("a status");
        let headers = lines.map(|line| {
            let (name, value) = line.split_once(": ").expect("name: value");
            (name.to_owned(), value.to_owned())
        });
        let mut response =
            Response { status, headers: headers.collect(), body: Vec::new(), length: head };
        let mut rest = &bytes[head..];
        if head_only || status < 200 || status == 204 || status == 304 {
            return Some(response);
        }
        if response.header("transfer-encoding") == Some("chunked") {
            loop {
                let line = rest.windows(2).position(|w| w == b"\r\n")?;
                let size = std::str::from_utf8(&rest[..line]).unwrap();
                let size = usize::from_str_radix(size, 16).expect("a chunk's size");
                rest = &rest[line + 2..];
                if size == 0 {
                    // The tests' trailers are few: up to the empty line.
                    while !rest.starts_with(b"\r\n") {
                        rest = &rest[rest.windows(2).position(|w| w == b"\r\n")? + 2..];
                    }
                    rest = &rest[2..];
                    break;
                }
                response.body.extend_from_slice(rest.get(..size)?);
                rest = rest.get(size + 2..)?;
            }
        } else {
            let length = response.header("content-length").map(|n| n.parse().expect("a number"));
            response.body.extend_from_slice(rest.get(..length.unwrap_or(rest.len()))?);
            rest = &rest[response.body.len()..];
        }
        response.length = bytes.len() - rest.len();
        Some(response)
    }

    /// Whether it says itself where it ends.
    fn is_framed(&self) -> bool {
        self.status < 200
            || matches!(self.status, 204 | 304)
            || self.header("content-length").is_some()
            || self.header("transfer-encoding").is_some()
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("a text")
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }
}

/// A client that says exactly what it is told to.
pub struct Client {
    socket: TcpStream,
    came: Vec<u8>,
}

impl Client {
    pub fn connect(server: &Running) -> Client {
        Client::at(address(server))
    }

    pub fn at(address: SocketAddr) -> Client {
        let socket = TcpStream::connect(address).expect("a connection");
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
        Client { socket, came: Vec::new() }
    }

    /// A client that has sent this.
    pub fn with(server: &Running, bytes: impl AsRef<[u8]>) -> Client {
        let mut client = Client::connect(server);
        client.send(bytes);
        client
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.socket.write_all(bytes.as_ref()).expect("the server takes it");
    }

    /// Sends a request line and `Host`.
    pub fn get(&mut self, target: &str) {
        self.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
    }

    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    pub fn half_close(&self) {
        self.socket.shutdown(Shutdown::Write).expect("the connection is there");
    }

    /// The next response, interim ones included.
    #[track_caller]
    pub fn response(&mut self) -> Response {
        self.next(false)
    }

    /// The next response, to a HEAD.
    #[track_caller]
    pub fn head(&mut self) -> Response {
        self.next(true)
    }

    #[track_caller]
    fn next(&mut self, head_only: bool) -> Response {
        loop {
            let whole = Response::parse(&self.came, head_only);
            if let Some(response) = whole.filter(|r| r.is_framed() || head_only) {
                self.came.drain(..response.length);
                return response;
            }
            if self.read() == 0 {
                let came = std::mem::take(&mut self.came);
                let whole = Response::parse(&came, head_only);
                return whole.unwrap_or_else(|| panic!("cut: {}", came.escape_ascii()));
            }
        }
    }

    /// Reads once more; 0 is the end.
    #[track_caller]
    pub fn read(&mut self) -> usize {
        let mut buffer = [0; 65536];
        match self.socket.read(&mut buffer) {
            Ok(n) => {
                self.came.extend_from_slice(&buffer[..n]);
                n
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => 0,
            Err(error) if error.kind() == ErrorKind::Interrupted => self.read(),
            Err(error) => panic!("{error}, after {}", self.came.escape_ascii()),
        }
    }

    /// What came and was not looked at.
    pub fn came(&self) -> &[u8] {
        &self.came
    }

    /// Puts away what came.
    pub fn forget(&mut self) {
        self.came.clear();
    }

    /// Reads to the end; nothing more must come.
    #[track_caller]
    pub fn assert_closed(&mut self) {
        while self.read() > 0 {}
        assert_eq!(self.came.escape_ascii().to_string(), "", "something came before the end");
    }

    /// Asks once more and is answered: the connection is alive.
    #[track_caller]
    pub fn assert_open(&mut self, target: &str) {
        self.get(target);
        assert_eq!(self.response().status, 200);
    }
}

/// How long a test waits for what must come: not to be met, however busy the machine is.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until it is so.
#[track_caller]
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Stops a server that has nothing important to do.
pub fn stop(server: Running) {
    server.shutdown(Duration::from_millis(100));
}

/// Whether an outside program is installed. If it is not, the test that needs it says so
/// and passes; with `WEFT_REQUIRE_TOOLS=1` in the environment it fails instead.
#[track_caller]
pub fn tool(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = std::env::split_paths(&path).any(|folder| folder.join(name).is_file());
    if !is_there {
        let required = std::env::var_os("WEFT_REQUIRE_TOOLS").is_some_and(|value| value == "1");
        assert!(!required, "{name} is not installed, and WEFT_REQUIRE_TOOLS=1");
        let line = format!("SKIPPED: {name} is not installed\n");
        // The test harness hides what a test that passes prints, but not what it writes.
        std::io::stderr().write_all(line.as_bytes()).expect("stderr is there");
    }
    is_there
}
