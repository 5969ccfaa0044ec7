//! The lower bound: an epoll loop that finds the ends of heads and sends a constant response for
//! each. It has no parser, no limits and no timeouts.

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::thread;

use memchr::memmem;
use peer::{CANNED, arguments, listener};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, accept_with, recv, send};

const LISTENER: u64 = u64::MAX;

/// A connection, and the last three bytes received: the end of a head may be split between reads.
struct Connection {
    socket: OwnedFd,
    tail: [u8; 3],
}

fn main() {
    let (address, workers) = arguments();
    let workers: Vec<_> = (0..workers)
        .map(|_| listener(address))
        .map(|listener| thread::spawn(move || serve(listener)))
        .collect();
    for worker in workers {
        worker.join().expect("a worker panicked");
    }
}

fn serve(listener: TcpListener) {
    let poll = epoll::create(CreateFlags::CLOEXEC).expect("epoll");
    epoll::add(&poll, &listener, EventData::new_u64(LISTENER), EventFlags::IN).expect("added");
    let mut connections: Vec<Option<Connection>> = Vec::new();
    let mut free = Vec::new();
    let mut buffer = [0; 16 << 10];
    let responses = CANNED.repeat(64);
    let mut events = Vec::with_capacity(1024);
    loop {
        events.clear();
        match epoll::wait(&poll, spare_capacity(&mut events), None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => panic!("epoll: {error}"),
        }
        for event in events.drain(..) {
            let key = event.data.u64();
            if key == LISTENER {
                while let Ok(socket) =
                    accept_with(&listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)
                {
                    let key = free.pop().unwrap_or(connections.len());
                    epoll::add(&poll, &socket, EventData::new_u64(key as u64), EventFlags::IN)
                        .expect("added");
                    let connection = Connection { socket, tail: [0; 3] };
                    match connections.get_mut(key) {
                        Some(slot) => *slot = Some(connection),
                        None => connections.push(Some(connection)),
                    }
                }
                continue;
            }
            let slot = &mut connections[key as usize];
            if slot.as_mut().is_some_and(|conn| !respond(conn, &mut buffer, responses.as_bytes())) {
                *slot = None;
                free.push(key as usize);
            }
        }
    }
}

/// Responds to the received requests. Returns false if the connection has ended.
fn respond(connection: &mut Connection, buffer: &mut [u8], responses: &[u8]) -> bool {
    buffer[..3].copy_from_slice(&connection.tail);
    let length = match recv(&connection.socket, &mut buffer[3..], RecvFlags::empty()) {
        Ok((0, _)) => return false,
        Ok((length, _)) => 3 + length,
        Err(Errno::AGAIN | Errno::INTR) => return true,
        Err(_) => return false,
    };
    connection.tail.copy_from_slice(&buffer[length - 3..length]);
    let mut heads = memmem::find_iter(&buffer[..length], b"\r\n\r\n").count();
    while heads > 0 {
        let batch = heads.min(64);
        let bytes = &responses[..batch * CANNED.len()];
        // A partial send means that the client has gone or reads too slowly; it is disconnected.
        if send(&connection.socket, bytes, SendFlags::NOSIGNAL) != Ok(bytes.len()) {
            return false;
        }
        heads -= batch;
    }
    true
}
