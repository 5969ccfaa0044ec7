//! Helpers shared by the test files: a server's address, parsed responses, a raw HTTP/1 client.
#![allow(dead_code, reason = "the memory tests use a part of it")]

#[cfg(feature = "tls")]
pub mod clients;
pub mod frames;
#[cfg(feature = "http3")]
pub mod http3;
#[cfg(feature = "files")]
pub mod tree;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use weft::net::LocalAddress;
use weft::server::ServerHandle;
use weft::{Application, BoxApplication, Server, Settings};

/// Creates a server for an application. The application is boxed, because the compiler translates
/// the whole server again for each type of application, which would take most of the time of a
/// build.
pub fn boxed_server(app: impl Application + Clone + Send + 'static) -> Server<BoxApplication> {
    Server::new(BoxApplication::new(app))
}

/// The address of the server's first socket.
pub fn address(server: &ServerHandle) -> SocketAddr {
    match &server.addresses()[0] {
        LocalAddress::Tcp(address) => *address,
        other => panic!("{other} is no TCP address"),
    }
}

/// A timeout that keeps tests fast, but is longer than the usual scheduling delay of a
/// well-behaved client on a busy machine.
pub const SHORT_TIMEOUT: Duration = Duration::from_millis(500);

/// Settings with short connection timeouts.
pub fn short_timeouts() -> Settings {
    Settings {
        head_timeout: SHORT_TIMEOUT,
        idle_timeout: SHORT_TIMEOUT,
        stall_timeout: SHORT_TIMEOUT,
        linger_timeout: SHORT_TIMEOUT,
        ..Settings::default()
    }
}

/// A response as received by a client.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// Length of the whole message in bytes.
    pub length: usize,
}

impl Response {
    /// Parses the first response in `bytes`; `None` if it is incomplete. A response without a
    /// length extends to the end of `bytes`.
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
                    // Skip the trailer section, up to the empty line.
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

    /// Returns true if the message framing determines the end of the response.
    pub fn is_framed(&self) -> bool {
        self.status < 200
            || matches!(self.status, 204 | 304)
            || self.header("content-length").is_some()
            || self.header("transfer-encoding").is_some()
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("UTF-8 text")
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }
}

/// The server's end of a connection to this process.
pub struct ServerSocket {
    /// The target of its descriptor in `/proc/self/fd`.
    link: String,
}

impl ServerSocket {
    /// Finds the other end of `client` by its addresses (proc_pid_net(5)).
    pub fn of(client: &TcpStream) -> ServerSocket {
        let port = |address: SocketAddr| format!(":{:04X}", address.port());
        let (local, remote) =
            (port(client.peer_addr().unwrap()), port(client.local_addr().unwrap()));
        let table = std::fs::read_to_string("/proc/self/net/tcp").expect("a table");
        let columns = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let is_other_end =
            |columns: &Vec<&str>| columns[1].ends_with(&local) && columns[2].ends_with(&remote);
        let row = columns.skip(1).find(is_other_end).expect("a row");
        let socket = ServerSocket { link: format!("socket:[{}]", row[9]) };
        assert!(socket.is_open());
        socket
    }

    /// Returns true if this process has a descriptor of it.
    pub fn is_open(&self) -> bool {
        let entries = std::fs::read_dir("/proc/self/fd").expect("a folder");
        let links = entries.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
        links.into_iter().any(|link| link.as_os_str() == &*self.link)
    }
}

/// Makes the kernel reset the connection when the socket is closed.
pub fn reset_on_close(socket: &TcpStream) {
    rustix::net::sockopt::set_socket_linger(socket, Some(Duration::ZERO)).unwrap();
}

/// An HTTP/1 client that sends exactly the given bytes.
pub struct Client {
    socket: TcpStream,
    received: Vec<u8>,
}

impl Client {
    pub fn connect(server: &ServerHandle) -> Client {
        Client::connect_to(address(server))
    }

    pub fn connect_to(address: SocketAddr) -> Client {
        let socket = TcpStream::connect(address).expect("a connection");
        socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        socket.set_write_timeout(Some(TEST_TIMEOUT)).unwrap();
        Client { socket, received: Vec::new() }
    }

    /// Connects and sends `bytes`.
    pub fn connect_and_send(server: &ServerHandle, bytes: impl AsRef<[u8]>) -> Client {
        let mut client = Client::connect(server);
        client.send(bytes);
        client
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.socket.write_all(bytes.as_ref()).expect("the server reads it");
    }

    /// Sends a GET request with only a `Host` field.
    pub fn get(&mut self, target: &str) {
        self.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
    }

    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Resets the connection, so that the server can tell a client that has left from one that has
    /// sent its last request.
    pub fn leave(self) {
        reset_on_close(&self.socket);
    }

    pub fn half_close(&self) {
        self.socket.shutdown(Shutdown::Write).expect("the connection is open");
    }

    /// Reads the next response, interim responses included.
    #[track_caller]
    pub fn response(&mut self) -> Response {
        self.next(false)
    }

    /// Reads the next response, which answers a HEAD request.
    #[track_caller]
    pub fn head(&mut self) -> Response {
        self.next(true)
    }

    #[track_caller]
    fn next(&mut self, head_only: bool) -> Response {
        loop {
            let parsed = Response::parse(&self.received, head_only);
            if let Some(response) = parsed.filter(|r| r.is_framed() || head_only) {
                self.received.drain(..response.length);
                return response;
            }
            if self.read() == 0 {
                let received = std::mem::take(&mut self.received);
                let parsed = Response::parse(&received, head_only);
                return parsed.unwrap_or_else(|| panic!("incomplete: {}", received.escape_ascii()));
            }
        }
    }

    /// Reads from the socket once; 0 means end of stream or a reset.
    #[track_caller]
    pub fn read(&mut self) -> usize {
        let mut buffer = [0; 65536];
        match self.socket.read(&mut buffer) {
            Ok(n) => {
                self.received.extend_from_slice(&buffer[..n]);
                n
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => 0,
            Err(error) if error.kind() == ErrorKind::Interrupted => self.read(),
            Err(error) => panic!("{error}, after {}", self.received.escape_ascii()),
        }
    }

    /// Bytes received and not yet consumed as a response.
    pub fn received(&self) -> &[u8] {
        &self.received
    }

    /// Takes the first received bytes away.
    pub fn take_received(&mut self, bytes: usize) {
        self.received.drain(..bytes);
    }

    /// Discards the received bytes.
    pub fn clear_received(&mut self) {
        self.received.clear();
    }

    /// Reads to the end of the stream and asserts that no further bytes are received.
    #[track_caller]
    pub fn assert_closed(&mut self) {
        while self.read() > 0 {}
        assert_eq!(self.received.escape_ascii().to_string(), "", "bytes received before the end");
    }

    /// Asserts that the connection is open: a GET request receives a 200.
    #[track_caller]
    pub fn assert_open(&mut self, target: &str) {
        self.get(target);
        assert_eq!(self.response().status, 200);
    }
}

/// Upper bound on waiting for an expected event. Long enough never to expire on a busy machine.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Polls `condition` every 5 ms until it returns true; panics after `TEST_TIMEOUT`.
#[track_caller]
pub fn until(description: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < TEST_TIMEOUT, "timed out: {description}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Stops a server with a grace period of 100 ms.
pub fn stop(server: ServerHandle) {
    server.shutdown(Duration::from_millis(100));
}

/// Returns true if the external program `name` is in `PATH`. Otherwise prints `SKIPPED` and
/// returns false, so that the test passes; with `WEFT_REQUIRE_TOOLS=1` in the environment it
/// panics instead.
#[track_caller]
pub fn has_tool(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_installed = std::env::split_paths(&path).any(|folder| folder.join(name).is_file());
    if !is_installed {
        let required = std::env::var_os("WEFT_REQUIRE_TOOLS").is_some_and(|value| value == "1");
        assert!(!required, "{name} is not installed, and WEFT_REQUIRE_TOOLS=1");
        let line = format!("SKIPPED: {name} is not installed\n");
        // The test harness captures the output of `print!` and `eprintln!` in tests that pass, but
        // not writes to the stderr handle.
        std::io::stderr().write_all(line.as_bytes()).expect("stderr is writable");
    }
    is_installed
}
