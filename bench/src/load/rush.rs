//! An HTTP/1 client that needs less CPU time per request than any server, so that the server is the
//! bottleneck and is never idle.
//!
//! wrk needs more. A server that is faster than wrk becomes idle in between: it is woken up for
//! every second request, while a slower server finds requests on all 64 connections. The faster
//! server therefore pays for wakeups that the slower one does not have.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::{LoadResult, Run};
use crate::Result;
use crate::request::RequestSpec;

pub struct Saturate {
    pub connections: u32,
}

impl Saturate {
    pub fn run(&self, run: &Run<'_>) -> Result<LoadResult> {
        let start = Instant::now();
        let until = start + Duration::from_secs(run.seconds.into());
        let threads = (run.machine.load_cpus.len() as u32).min(self.connections);
        let requests = Exchange::new(run).and_then(|exchange| {
            thread::scope(|scope| {
                let spawn = |thread| {
                    let (exchange, share) = (&exchange, (self.connections + thread) / threads);
                    scope.spawn(move || exchange.repeat(share, until))
                };
                let threads: Vec<_> = (0..threads).map(spawn).collect();
                threads
                    .into_iter()
                    .map(|thread| thread.join().expect("no panic"))
                    .sum::<io::Result<u64>>()
            })
        });
        let requests = requests.map_err(|error| format!("bench/src/load/rush.rs: {error}"))?;
        Ok(LoadResult {
            requests,
            errors: 0,
            seconds: start.elapsed().as_secs_f64(),
            latency: None,
        })
    }

    pub fn arguments(&self, url: &str, seconds: u32) -> String {
        format!("bench/src/load/rush.rs: {} connections, {seconds} s, {url}", self.connections)
    }
}

/// The opening handshake of a WebSocket, and one masked message of 100 bytes. The key and the mask
/// need not be random here.
const OPENING: &str = "Host: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
const MESSAGE_BYTES: usize = 100;

/// Sends the next message on each WebSocket as soon as the former one has come back.
pub fn echo(run: &Run<'_>, connections: u32) -> Result<LoadResult> {
    let start = Instant::now();
    let until = start + Duration::from_secs(run.seconds.into());
    let mut message = vec![0x82, 0x80 | MESSAGE_BYTES as u8, 1, 2, 3, 4];
    message.extend([b'x'; MESSAGE_BYTES]);
    let exchange = Exchange {
        port: run.port(),
        opening: format!("GET {} HTTP/1.1\r\n{OPENING}", run.request.path),
        request: message,
        response_len: 2 + MESSAGE_BYTES,
        response_start: &[0x82, MESSAGE_BYTES as u8],
    };
    let requests = exchange.repeat(connections, until);
    let requests = requests.map_err(|error| format!("bench/src/load/rush.rs: {error}"))?;
    Ok(LoadResult { requests, errors: 0, seconds: start.elapsed().as_secs_f64(), latency: None })
}

/// A request, and the expected length of its response.
struct Exchange {
    port: u16,
    /// The request at the start of a connection that changes the protocol; may be empty.
    opening: String,
    request: Vec<u8>,
    /// The length of each response, including its head.
    response_len: usize,
    response_start: &'static [u8],
}

struct Connection {
    socket: TcpStream,
    /// Remaining bytes of the current response.
    remaining: usize,
}

impl Exchange {
    /// Sends one request to determine the length of the response.
    fn new(run: &Run<'_>) -> io::Result<Exchange> {
        let (port, request) = (run.port(), serialize(run.request).into_bytes());
        let mut socket = open(port)?;
        socket.write_all(&request)?;
        let (mut text, mut buffer) = (Vec::new(), [0; 4096]);
        loop {
            let received = socket.read(&mut buffer)?;
            text.extend_from_slice(&buffer[..received]);
            if let Some(response_len) = response_length(&text) {
                let (opening, response_start) = (String::new(), b"HTTP/1.1 200 ");
                return Ok(Exchange { port, opening, request, response_len, response_start });
            }
            if received == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Sends the next request on each connection as soon as it has a response. Returns the number
    /// of responses.
    fn repeat(&self, connections: u32, until: Instant) -> io::Result<u64> {
        let poll = epoll::create(CreateFlags::CLOEXEC)?;
        let mut all = Vec::new();
        for key in 0..connections {
            let mut socket = open(self.port)?;
            self.open(&mut socket)?;
            epoll::add(&poll, &socket, EventData::new_u64(key.into()), EventFlags::IN)?;
            socket.write_all(&self.request)?;
            all.push(Connection { socket, remaining: self.response_len });
        }
        let (mut responses, mut buffer) = (0, vec![0; 64 << 10]);
        let mut events = Vec::with_capacity(all.len());
        loop {
            let timeout = until.saturating_duration_since(Instant::now());
            if timeout.is_zero() {
                return Ok(responses);
            }
            let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
            events.clear();
            match epoll::wait(&poll, spare_capacity(&mut events), Some(&timeout)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                let connection = &mut all[event.data.u64() as usize];
                responses += u64::from(self.receive(connection, &mut buffer)?);
            }
        }
    }

    /// Changes the protocol of a connection, if necessary.
    fn open(&self, socket: &mut TcpStream) -> io::Result<()> {
        if self.opening.is_empty() {
            return Ok(());
        }
        socket.write_all(self.opening.as_bytes())?;
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") {
            socket.read_exact(&mut byte)?;
            head.push(byte[0]);
        }
        match head.starts_with(b"HTTP/1.1 101 ") {
            true => Ok(()),
            false => Err(io::Error::other(String::from_utf8_lossy(&head))),
        }
    }

    /// Receives available bytes, and sends the next request if the response is complete. Returns
    /// true if it is.
    fn receive(&self, connection: &mut Connection, buffer: &mut [u8]) -> io::Result<bool> {
        let received = match recv(&connection.socket, &mut *buffer, RecvFlags::DONTWAIT) {
            Ok((0, _)) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok((received, _)) => received,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let is_valid =
            connection.remaining < self.response_len || buffer.starts_with(self.response_start);
        match connection.remaining.checked_sub(received).filter(|_| is_valid) {
            None => Err(io::Error::other("a response differs from the first one")),
            Some(0) => {
                connection.remaining = self.response_len;
                connection.socket.write_all(&self.request)?;
                Ok(true)
            }
            Some(remaining) => {
                connection.remaining = remaining;
                Ok(false)
            }
        }
    }
}

fn open(port: u16) -> io::Result<TcpStream> {
    let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(Duration::from_secs(5)))?;
    Ok(socket)
}

fn serialize(request: &RequestSpec) -> String {
    let fields = request.fields.iter().map(|(name, value)| format!("{name}: {value}\r\n"));
    format!(
        "GET {} HTTP/1.1\r\nHost: localhost\r\n{}\r\n",
        request.path,
        fields.collect::<String>()
    )
}

/// Returns the length of a response, including its head, if the head is complete.
pub(super) fn response_length(text: &[u8]) -> Option<usize> {
    let text = String::from_utf8_lossy(text);
    let (head, _) = text.split_once("\r\n\r\n")?;
    let mut fields = head.lines().filter_map(|line| line.split_once(':'));
    let (_, length) = fields.find(|(name, _)| name.eq_ignore_ascii_case("content-length"))?;
    Some(head.len() + "\r\n\r\n".len() + length.trim().parse::<usize>().ok()?)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;
    use std::time::{Duration, Instant};

    use super::{Exchange, response_length, serialize};
    use crate::request::http;

    #[test]
    fn computes_response_lengths() {
        let head = "HTTP/1.1 200 OK\r\nA: b\r\ncontent-length: 3\r\n\r\n";
        assert_eq!(response_length(head.as_bytes()), Some(head.len() + 3));
        assert_eq!(response_length(&head.as_bytes()[..head.len() - 1]), None);
        assert_eq!(response_length(b"HTTP/1.1 200 OK\r\n\r\n"), None);
    }

    /// Runs a server that sends `count` regular responses, then `last`.
    fn repeat(count: usize, last: &'static str) -> std::io::Result<u64> {
        const RESPONSE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let exchange = Exchange {
            port: listener.local_addr()?.port(),
            opening: String::new(),
            request: serialize(&http("/")).into_bytes(),
            response_len: RESPONSE.len(),
            response_start: b"HTTP/1.1 200 ",
        };
        let server = thread::spawn(move || -> std::io::Result<()> {
            let mut socket = listener.accept()?.0;
            let mut buffer = [0; 1024];
            for number in 0.. {
                if socket.read(&mut buffer)? == 0 {
                    break;
                }
                let response = if number < count { RESPONSE } else { last };
                socket.write_all(response.as_bytes())?;
            }
            Ok(())
        });
        let responses = exchange.repeat(1, Instant::now() + Duration::from_millis(200));
        // The server also ends after a connection reset.
        let _ = server.join().expect("no panic");
        responses
    }

    #[test]
    fn counts_responses_and_rejects_different_ones() {
        assert!(repeat(usize::MAX, "").is_ok_and(|count| count > 0));
        let other = "HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n";
        for last in [other, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nno!"] {
            assert!(repeat(3, last).is_err(), "{last}");
        }
    }
}
