//! A relay for UDP that imitates a path: delay, loss, and a bottleneck with a queue.
//!
//! `udp-relay --delay 25 --loss 1 127.0.0.1:9001=127.0.0.1:8443 127.0.0.1:9002=127.0.0.1:8444`
//!
//! All pairs of addresses share the bottleneck, one for each direction. Datagrams keep their order.

use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use lexopt::prelude::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

const HELP: &str = "\
usage: udp-relay [OPTION]... LISTEN=SERVER...

  --delay MS      delay in each direction (25)
  --loss PERCENT  lost datagrams in each direction (0)
  --rate MBITS    rate of each direction in Mbit/s (200)
  --queue MS      longest wait for the bottleneck; further datagrams are lost (100)
  --seed N        seed of the losses (1)
";

const BUFFER_BYTES: usize = 4 << 20;

/// Maximum number of clients. Datagrams of further ones are lost.
const MAX_FLOWS: usize = 4_096;

struct Options {
    delay: Duration,
    loss: f64,
    bytes_per_second: f64,
    queue: Duration,
    seed: u64,
    pairs: Vec<(SocketAddr, SocketAddr)>,
}

/// One direction of the path.
struct Direction {
    /// Time at which the bottleneck has sent all datagrams before.
    free: Instant,
    waiting: VecDeque<Datagram>,
    lost: u64,
    overflown: u64,
}

struct Datagram {
    due: Instant,
    flow: usize,
    bytes: Vec<u8>,
}

/// A client, with the socket on which the server sees it.
struct Flow {
    client: SocketAddr,
    pair: usize,
    socket: UdpSocket,
}

struct Relay {
    options: Options,
    listeners: Vec<UdpSocket>,
    flows: Vec<Flow>,
    by_client: HashMap<(usize, SocketAddr), usize>,
    to_server: Direction,
    to_client: Direction,
    random: u64,
}

fn main() -> ExitCode {
    let relay = options().map_err(|error| format!("{error}\n\n{HELP}")).and_then(|options| {
        Relay::new(options).and_then(|mut relay| relay.run()).map_err(|error| error.to_string())
    });
    match relay {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("udp-relay: {error}");
            ExitCode::FAILURE
        }
    }
}

fn options() -> Result<Options, lexopt::Error> {
    let mut options = Options {
        delay: Duration::from_millis(25),
        loss: 0.0,
        bytes_per_second: 200e6 / 8.0,
        queue: Duration::from_millis(100),
        seed: 1,
        pairs: Vec::new(),
    };
    let mut arguments = lexopt::Parser::from_env();
    let milliseconds = |number: f64| Duration::from_secs_f64(number / 1e3);
    while let Some(argument) = arguments.next()? {
        match argument {
            Long("delay") => options.delay = milliseconds(arguments.value()?.parse()?),
            Long("loss") => options.loss = arguments.value()?.parse::<f64>()? / 100.0,
            Long("rate") => {
                options.bytes_per_second = arguments.value()?.parse::<f64>()? * 1e6 / 8.0;
            }
            Long("queue") => options.queue = milliseconds(arguments.value()?.parse()?),
            Long("seed") => options.seed = arguments.value()?.parse()?,
            Long("help") => {
                print!("{HELP}");
                std::process::exit(0);
            }
            Value(value) => {
                let pair = value.string()?;
                let (listen, server) = pair.split_once('=').ok_or("a pair needs =")?;
                let parse = |text: &str| {
                    text.parse().map_err(|_| format!("{text:?} is not an address and a port"))
                };
                options.pairs.push((parse(listen)?, parse(server)?));
            }
            _ => return Err(argument.unexpected()),
        }
    }
    match options.pairs.is_empty() {
        true => Err("no LISTEN=SERVER".into()),
        false => Ok(options),
    }
}

fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(address)?;
    socket.set_nonblocking(true)?;
    rustix::net::sockopt::set_socket_recv_buffer_size(&socket, BUFFER_BYTES)?;
    rustix::net::sockopt::set_socket_send_buffer_size(&socket, BUFFER_BYTES)?;
    Ok(socket)
}

impl Relay {
    fn new(options: Options) -> io::Result<Relay> {
        let direction =
            || Direction { free: Instant::now(), waiting: VecDeque::new(), lost: 0, overflown: 0 };
        Ok(Relay {
            listeners: options
                .pairs
                .iter()
                .map(|(listen, _)| bind(*listen))
                .collect::<Result<_, _>>()?,
            flows: Vec::new(),
            by_client: HashMap::new(),
            to_server: direction(),
            to_client: direction(),
            // An odd state never becomes 0.
            random: options.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            options,
        })
    }

    /// Relays until an error.
    fn run(&mut self) -> io::Result<()> {
        let mut reported = (0, 0);
        loop {
            self.wait()?;
            self.receive_from_clients()?;
            self.receive_from_servers();
            self.deliver();
            let total = (
                self.to_client.lost + self.to_server.lost,
                self.to_client.overflown + self.to_server.overflown,
            );
            if self.to_client.waiting.is_empty()
                && self.to_server.waiting.is_empty()
                && total != reported
            {
                reported = total;
                eprintln!("lost {} by chance, {} by the full queue", total.0, total.1);
            }
        }
    }

    /// Waits for a datagram or the next delivery.
    fn wait(&self) -> io::Result<()> {
        let first = [&self.to_server, &self.to_client].map(|it| it.waiting.front());
        let due = first.into_iter().flatten().map(|datagram| datagram.due).min();
        let timeout =
            due.map_or(Duration::from_secs(1), |due| due.saturating_duration_since(Instant::now()));
        let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
        let sockets = self.listeners.iter().chain(self.flows.iter().map(|flow| &flow.socket));
        let mut fds: Vec<PollFd<'_>> =
            sockets.map(|socket| PollFd::new(socket, PollFlags::IN)).collect();
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn receive_from_clients(&mut self) -> io::Result<()> {
        let mut buffer = [0; 1 << 16];
        for pair in 0..self.listeners.len() {
            loop {
                match self.listeners[pair].recv_from(&mut buffer) {
                    Ok((length, client)) => {
                        if let Some(flow) = self.flow(pair, client)? {
                            self.admit(true, flow, &buffer[..length]);
                        }
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    // A client has closed its socket.
                    Err(_) => {}
                }
            }
        }
        Ok(())
    }

    fn flow(&mut self, pair: usize, client: SocketAddr) -> io::Result<Option<usize>> {
        if let Some(flow) = self.by_client.get(&(pair, client)) {
            return Ok(Some(*flow));
        }
        if self.flows.len() == MAX_FLOWS {
            return Ok(None);
        }
        let socket = bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)))?;
        socket.connect(self.options.pairs[pair].1)?;
        self.flows.push(Flow { client, pair, socket });
        self.by_client.insert((pair, client), self.flows.len() - 1);
        Ok(Some(self.flows.len() - 1))
    }

    fn receive_from_servers(&mut self) {
        let mut buffer = [0; 1 << 16];
        for flow in 0..self.flows.len() {
            loop {
                match self.flows[flow].socket.recv(&mut buffer) {
                    Ok(length) => self.admit(false, flow, &buffer[..length]),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    // The server does not listen.
                    Err(_) => break,
                }
            }
        }
    }

    /// Queues a datagram for the bottleneck, or loses it.
    fn admit(&mut self, to_server: bool, flow: usize, bytes: &[u8]) {
        let is_lost = self.next_random() < self.options.loss;
        let direction = if to_server { &mut self.to_server } else { &mut self.to_client };
        let now = Instant::now();
        let free = direction.free.max(now);
        if free - now > self.options.queue {
            direction.overflown += 1;
            return;
        }
        let time = bytes.len() as f64 / self.options.bytes_per_second;
        direction.free = free + Duration::from_secs_f64(time);
        if is_lost {
            direction.lost += 1;
            return;
        }
        let due = direction.free + self.options.delay;
        direction.waiting.push_back(Datagram { due, flow, bytes: bytes.to_vec() });
    }

    /// Returns a number from 0 to 1.
    fn next_random(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Sends the datagrams that are due. A datagram that a socket does not accept is lost.
    fn deliver(&mut self) {
        let now = Instant::now();
        while let Some(datagram) = self.to_server.waiting.pop_front_if(|it| it.due <= now) {
            let _ = self.flows[datagram.flow].socket.send(&datagram.bytes);
        }
        while let Some(datagram) = self.to_client.waiting.pop_front_if(|it| it.due <= now) {
            let Flow { client, pair, .. } = &self.flows[datagram.flow];
            let _ = self.listeners[*pair].send_to(&datagram.bytes, client);
        }
    }
}
