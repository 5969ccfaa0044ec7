//! An HTTP/1 client for loads that other load generators do not have: many paths, kept connections
//! beside new ones, and an open loop.
//!
//! In an open loop requests become due at a fixed rate, whether or not the server has responded to
//! the ones before. A latency is counted from the time at which a request is due, so that it
//! includes the time for which the request waits for a free connection.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::rush::response_length;
use super::{LoadResult, Run};
use crate::Result;
use crate::site::FileSet;
use crate::stats::percentile;

pub struct Varied {
    /// Number of connections that are kept.
    pub kept: u32,
    /// Number of connections that end with their response; each is followed by a new one.
    pub fresh: u32,
    pub paths: Paths,
    pub pace: Pace,
}

/// The requested paths.
pub enum Paths {
    /// The path of the workload.
    One,
    /// The files of a set, in an order without a pattern.
    Of(&'static FileSet),
}

#[derive(Clone, Copy)]
pub enum Pace {
    /// Each connection sends its next request after a response.
    Closed,
    /// Requests per second in an open loop.
    Open(u32),
}

impl Varied {
    pub fn run(&self, run: &Run<'_>) -> Result<LoadResult> {
        let start = Instant::now();
        let client = Client::new(self, run);
        let client = client.and_then(|mut client| {
            client.exchange(start + Duration::from_secs(run.seconds.into())).map(|()| client)
        });
        let client = client.map_err(|error| format!("bench/src/load/varied.rs: {error}"))?;
        let mut latencies = client.latencies;
        latencies.sort_by(f64::total_cmp);
        let at = |per_mille| percentile(&latencies, per_mille).unwrap_or(0.0);
        Ok(LoadResult {
            requests: latencies.len() as u64,
            // Requests that were due and not sent: the rate is too high for the server.
            errors: client.due.len() as u64,
            seconds: start.elapsed().as_secs_f64(),
            latency: Some([at(500), at(990), at(999)]),
        })
    }

    pub fn arguments(&self, url: &str, seconds: u32) -> String {
        let Varied { kept, fresh, .. } = self;
        let url = match self.paths {
            Paths::One => url.to_owned(),
            Paths::Of(set) => format!("each of {} files in /{}/", set.count, set.folder),
        };
        let pace = match self.pace {
            Pace::Closed => String::new(),
            Pace::Open(rate) => format!(", {rate} requests per second"),
        };
        format!(
            "bench/src/load/varied.rs: {kept} kept and {fresh} new connections, {seconds} s{pace}, {url}"
        )
    }
}

struct Client<'a> {
    load: &'a Varied,
    run: &'a Run<'a>,
    poll: OwnedFd,
    connections: Vec<Connection>,
    /// Connections without a request, in an open loop.
    idle: Vec<usize>,
    /// Times of requests that wait for a connection, in an open loop.
    due: VecDeque<Instant>,
    /// Latencies of all responses in microseconds.
    latencies: Vec<f64>,
    sent: u64,
}

struct Connection {
    socket: TcpStream,
    is_kept: bool,
    due: Instant,
    /// Received bytes of a head that is not complete.
    head: Vec<u8>,
    /// Remaining bytes of a response whose head is complete.
    remaining: usize,
}

impl<'a> Client<'a> {
    fn new(load: &'a Varied, run: &'a Run<'a>) -> io::Result<Client<'a>> {
        let mut client = Client {
            load,
            run,
            poll: epoll::create(CreateFlags::CLOEXEC)?,
            connections: Vec::new(),
            idle: Vec::new(),
            due: VecDeque::new(),
            latencies: Vec::new(),
            sent: 0,
        };
        for key in 0..load.kept + load.fresh {
            let (socket, is_kept) = (client.open(key as usize)?, key < load.kept);
            let (due, head) = (Instant::now(), Vec::new());
            client.connections.push(Connection { socket, is_kept, due, head, remaining: 0 });
        }
        Ok(client)
    }

    fn open(&self, key: usize) -> io::Result<TcpStream> {
        let port = self.run.port();
        let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        socket.set_nodelay(true)?;
        epoll::add(&self.poll, &socket, EventData::new_u64(key as u64), EventFlags::IN)?;
        Ok(socket)
    }

    /// Sends requests and receives responses until the time is over.
    fn exchange(&mut self, until: Instant) -> io::Result<()> {
        let all = 0..self.connections.len();
        match self.load.pace {
            Pace::Closed => all.into_iter().try_for_each(|key| self.send(key, Instant::now()))?,
            Pace::Open(_) => self.idle.extend(all),
        }
        let mut next = Instant::now();
        let (mut buffer, mut events) = (vec![0; 256 << 10], Vec::with_capacity(1_024));
        while Instant::now() < until {
            let mut timeout = Duration::from_millis(10);
            if let Pace::Open(rate) = self.load.pace {
                self.send_due(&mut next, Duration::from_secs(1) / rate)?;
                // The client has a CPU of its own: it does not sleep, so that it is never late.
                timeout = Duration::ZERO;
            }
            let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
            events.clear();
            match epoll::wait(&self.poll, spare_capacity(&mut events), Some(&timeout)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                self.receive(event.data.u64() as usize, &mut buffer)?;
            }
        }
        Ok(())
    }

    /// Sends the requests that are due, as far as connections are idle.
    fn send_due(&mut self, next: &mut Instant, interval: Duration) -> io::Result<()> {
        let now = Instant::now();
        while *next <= now {
            self.due.push_back(*next);
            *next += interval;
        }
        while let (Some(&due), false) = (self.due.front(), self.idle.is_empty()) {
            self.due.pop_front();
            // The connection that has been idle for the longest time.
            let key = self.idle.remove(0);
            self.send(key, due)?;
        }
        Ok(())
    }

    fn send(&mut self, key: usize, due: Instant) -> io::Result<()> {
        self.sent += 1;
        let path = match self.load.paths {
            Paths::One => self.run.request.path.to_owned(),
            // A multiple of a prime visits all files.
            Paths::Of(set) => set.path(self.sent.wrapping_mul(7_919) % set.count),
        };
        let connection = &mut self.connections[key];
        connection.due = due;
        let close = if connection.is_kept { "" } else { "Connection: close\r\n" };
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{close}\r\n");
        connection.socket.write_all(request.as_bytes())
    }

    /// Receives available bytes. After a complete response, the connection sends the next request.
    fn receive(&mut self, key: usize, buffer: &mut [u8]) -> io::Result<()> {
        let connection = &mut self.connections[key];
        let received = match recv(&connection.socket, &mut *buffer, RecvFlags::DONTWAIT) {
            Ok((0, _)) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok((received, _)) => received,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        if !connection.count(&buffer[..received])? {
            return Ok(());
        }
        let latency = connection.due.elapsed();
        if !connection.is_kept {
            let socket = self.open(key)?;
            self.connections[key].socket = socket;
        }
        self.latencies.push(latency.as_secs_f64() * 1e6);
        match self.load.pace {
            Pace::Closed => self.send(key, Instant::now()),
            Pace::Open(_) => {
                self.idle.push(key);
                Ok(())
            }
        }
    }
}

impl Connection {
    /// Counts received bytes. Returns true if the response is complete.
    fn count(&mut self, received: &[u8]) -> io::Result<bool> {
        if self.remaining > 0 {
            let remaining = self.remaining.checked_sub(received.len());
            self.remaining = remaining.ok_or_else(|| io::Error::other("too many bytes"))?;
            return Ok(self.remaining == 0);
        }
        self.head.extend_from_slice(received);
        let Some(length) = response_length(&self.head) else { return Ok(false) };
        if !self.head.starts_with(b"HTTP/1.1 200 ") {
            return Err(io::Error::other("a response with an unexpected status"));
        }
        self.remaining = length.saturating_sub(self.head.len());
        self.head.clear();
        Ok(self.remaining == 0)
    }
}
