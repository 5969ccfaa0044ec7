//! Clients of server-sent events.

use std::io::{self, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::{LoadResult, Run, clients};
use crate::Result;
use crate::stats::Sample;

/// A connection, and the last byte that it has received.
struct Client(TcpStream, u8);

/// Connects the clients, and counts the events that they receive from then on.
pub fn run(run: &Run<'_>, count: u32) -> Result<Sample> {
    let request = format!("GET {} HTTP/1.1\r\nHost: localhost\r\n\r\n", run.request.path);
    let open = |number| {
        let mut socket = clients::open(run.server.port, number)?;
        socket.write_all(request.as_bytes())?;
        Ok(Client(socket, 0))
    };
    let clients: io::Result<Vec<_>> = (0..count).map(open).collect();
    let mut clients = clients.map_err(|error| format!("clients of events: {error}"))?;
    // The first events arrive with the heads.
    let start = Duration::from_millis(500);
    receive(&mut clients, start).map_err(|error| format!("clients of events: {error}"))?;
    run.metered(|| {
        let time = Duration::from_secs(run.seconds.into());
        let requests =
            receive(&mut clients, time).map_err(|error| format!("clients of events: {error}"))?;
        Ok(LoadResult { requests, errors: 0, seconds: run.seconds.into(), latency: None })
    })
}

/// Receives for this time. Returns the number of events: each ends with an empty line.
fn receive(clients: &mut [Client], time: Duration) -> io::Result<u64> {
    let poll = epoll::create(CreateFlags::CLOEXEC)?;
    for (number, Client(socket, _)) in clients.iter().enumerate() {
        epoll::add(&poll, socket, EventData::new_u64(number as u64), EventFlags::IN)?;
    }
    let (deadline, mut count) = (Instant::now() + time, 0);
    let mut ready = Vec::with_capacity(1024);
    let mut buffer = [0; 4096];
    while Instant::now() < deadline {
        let timeout = Duration::from_millis(20).try_into().expect("a short time");
        ready.clear();
        match epoll::wait(&poll, rustix::buffer::spare_capacity(&mut ready), Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in &ready {
            let Client(socket, last) = &mut clients[event.data.u64() as usize];
            let received = match recv(&*socket, &mut buffer, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok((received, _)) => &buffer[..received],
                Err(Errno::AGAIN | Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            for byte in received {
                count += u64::from(*byte == b'\n' && *last == b'\n');
                *last = *byte;
            }
        }
    }
    Ok(count)
}
