//! HTTP/1 by a client that does less for a request than any server does for it, so that the
//! server is what is slowest and always has work.
//!
//! wrk does more, and where a server is faster than wrk that one rests in between: it is woken
//! for every second request, while a slower one finds all 64 waiting. So the faster one pays for
//! wakes that the slower one does not have.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::{Run, Tally};
use crate::Result;
use crate::workload::Ask;

pub struct Rush {
    pub connections: u32,
}

impl Rush {
    pub fn run(&self, run: &Run<'_>) -> Result<Tally> {
        let begun = Instant::now();
        let until = begun + Duration::from_secs(run.seconds.into());
        let threads = (run.machine.load_cpus.len() as u32).min(self.connections);
        let requests = Exchange::new(run).and_then(|exchange| {
            thread::scope(|scope| {
                let start = |thread| {
                    let (exchange, share) = (&exchange, (self.connections + thread) / threads);
                    scope.spawn(move || exchange.repeat(share, until))
                };
                let threads: Vec<_> = (0..threads).map(start).collect();
                threads
                    .into_iter()
                    .map(|thread| thread.join().expect("no panic"))
                    .sum::<io::Result<u64>>()
            })
        });
        let requests = requests.map_err(|error| format!("rush: {error}"))?;
        Ok(Tally { requests, errors: 0, seconds: begun.elapsed().as_secs_f64(), latency: None })
    }

    pub fn words(&self, url: &str, seconds: u32) -> String {
        format!("bench/src/load/rush.rs: {} connections, {seconds} s, {url}", self.connections)
    }
}

/// A request, and what is known of its answer.
struct Exchange {
    port: u16,
    request: String,
    /// How long every answer is, with its head.
    answer: usize,
}

struct Connection {
    socket: TcpStream,
    /// How much of an answer has not come.
    missing: usize,
}

impl Exchange {
    /// Asks once, to know how long an answer is.
    fn new(run: &Run<'_>) -> io::Result<Exchange> {
        let (port, request) = (run.ask.port(run.server), request(run.ask));
        let mut socket = open(port)?;
        socket.write_all(request.as_bytes())?;
        let (mut text, mut room) = (Vec::new(), [0; 4096]);
        loop {
            let received = socket.read(&mut room)?;
            text.extend_from_slice(&room[..received]);
            if let Some(answer) = answer_length(&text) {
                return Ok(Exchange { port, request, answer });
            }
            if received == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Asks again on each connection as soon as it is answered; tells how many answers came.
    fn repeat(&self, connections: u32, until: Instant) -> io::Result<u64> {
        let poll = epoll::create(CreateFlags::CLOEXEC)?;
        let mut all = Vec::new();
        for key in 0..connections {
            let mut socket = open(self.port)?;
            epoll::add(&poll, &socket, EventData::new_u64(key.into()), EventFlags::IN)?;
            socket.write_all(self.request.as_bytes())?;
            all.push(Connection { socket, missing: self.answer });
        }
        let (mut answers, mut room) = (0, vec![0; 64 << 10]);
        let mut events = Vec::with_capacity(all.len());
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(answers);
            }
            let left = Timespec::try_from(left).map_err(io::Error::other)?;
            events.clear();
            match epoll::wait(&poll, spare_capacity(&mut events), Some(&left)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                let connection = &mut all[event.data.u64() as usize];
                answers += u64::from(self.go_on(connection, &mut room)?);
            }
        }
    }

    /// Takes what has come, and asks again if that was the rest; tells whether it was.
    fn go_on(&self, connection: &mut Connection, room: &mut [u8]) -> io::Result<bool> {
        let received = match recv(&connection.socket, &mut *room, RecvFlags::DONTWAIT) {
            Ok((0, _)) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok((received, _)) => received,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let is_right = connection.missing < self.answer || room.starts_with(b"HTTP/1.1 200 ");
        match connection.missing.checked_sub(received).filter(|_| is_right) {
            None => Err(io::Error::other("an answer that is not like the first")),
            Some(0) => {
                connection.missing = self.answer;
                connection.socket.write_all(self.request.as_bytes())?;
                Ok(true)
            }
            Some(missing) => {
                connection.missing = missing;
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

fn request(ask: &Ask) -> String {
    let fields = ask.fields.iter().map(|(name, value)| format!("{name}: {value}\r\n"));
    format!("GET {} HTTP/1.1\r\nHost: localhost\r\n{}\r\n", ask.path, fields.collect::<String>())
}

/// How long an answer is, with its head, if all of that is there.
fn answer_length(text: &[u8]) -> Option<usize> {
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

    use super::{Exchange, answer_length, request};
    use crate::workload::http;

    #[test]
    fn lengths() {
        let head = "HTTP/1.1 200 OK\r\nA: b\r\ncontent-length: 3\r\n\r\n";
        assert_eq!(answer_length(head.as_bytes()), Some(head.len() + 3));
        assert_eq!(answer_length(&head.as_bytes()[..head.len() - 1]), None);
        assert_eq!(answer_length(b"HTTP/1.1 200 OK\r\n\r\n"), None);
    }

    /// Answers so many requests of one connection, then with something else.
    fn repeat(answers: usize, last: &'static str) -> std::io::Result<u64> {
        const ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let exchange = Exchange {
            port: listener.local_addr()?.port(),
            request: request(&http("/")),
            answer: ANSWER.len(),
        };
        let server = thread::spawn(move || -> std::io::Result<()> {
            let mut socket = listener.accept()?.0;
            let mut room = [0; 1024];
            for number in 0.. {
                if socket.read(&mut room)? == 0 {
                    break;
                }
                let answer = if number < answers { ANSWER } else { last };
                socket.write_all(answer.as_bytes())?;
            }
            Ok(())
        });
        let found = exchange.repeat(1, Instant::now() + Duration::from_millis(200));
        // A reset is its end as well.
        let _ = server.join().expect("no panic");
        found
    }

    #[test]
    fn answers_are_counted_and_looked_at() {
        assert!(repeat(usize::MAX, "").is_ok_and(|count| count > 0));
        let other = "HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n";
        for last in [other, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nno!"] {
            assert!(repeat(3, last).is_err(), "{last}");
        }
    }
}
