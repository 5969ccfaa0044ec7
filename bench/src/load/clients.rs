//! Own clients: idle connections, and slow clients that send one byte per second.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::net::{
    AddressFamily, RecvFlags, SocketFlags, SocketType, bind, connect, recv, socket_with,
};

use crate::Result;
use crate::request::RequestSpec;

/// Number of client addresses; servers limit the connections per address.
const ADDRESSES: u32 = 8;

/// Connections that have received one response and are idle.
pub struct Idle(Vec<TcpStream>);

impl Idle {
    pub fn open(port: u16, spec: &RequestSpec, count: u32) -> Result<Idle> {
        let request = format!("GET {} HTTP/1.1\r\nHost: localhost\r\n\r\n", spec.path);
        let mut connections = Vec::new();
        for number in 0..count {
            let connection = open(port, number).and_then(|mut connection| {
                connection.write_all(request.as_bytes())?;
                // The head and the body of 151 bytes arrive together.
                match connection.read(&mut [0; 4096])? {
                    0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
                    _ => Ok(connection),
                }
            });
            let number = number + 1;
            connections.push(connection.map_err(|error| format!("connection {number}: {error}"))?);
        }
        Ok(Idle(connections))
    }

    /// Returns the number of connections closed by the server.
    pub fn closed_count(&self) -> usize {
        let is_closed = |connection: &&TcpStream| {
            let read = recv(connection, &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT);
            matches!(read, Ok((0, _)))
        };
        self.0.iter().filter(is_closed).count()
    }
}

/// Clients that never finish their request head, until `end` is called.
pub struct SlowClients {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl SlowClients {
    pub fn start(port: u16, count: u32) -> Result<SlowClients> {
        let connections: std::io::Result<Vec<TcpStream>> =
            (0..count).map(|number| open(port, number)).collect();
        let connections = connections.map_err(|error| format!("slow clients: {error}"))?;
        let stop = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let stop = stop.clone();
            move || send_slowly(&connections, &stop)
        });
        Ok(SlowClients { stop, thread })
    }

    pub fn end(self) -> Result<()> {
        self.stop.store(true, Relaxed);
        self.thread.join().map_err(|_| "the slow clients have failed".into())
    }
}

/// Sends one byte per second on each connection, spread over the second.
fn send_slowly(connections: &[TcpStream], stop: &AtomicBool) {
    let head =
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ".iter().chain(std::iter::repeat(&b'a'));
    for byte in head {
        for group in connections.chunks(connections.len().div_ceil(50)) {
            if stop.load(Relaxed) {
                return;
            }
            for mut connection in group {
                // The server may have closed the connection.
                let _ = connection.write(&[*byte]);
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Connects from one of several loopback addresses.
pub(super) fn open(port: u16, number: u32) -> std::io::Result<TcpStream> {
    // wrk, which is started later, must not inherit the sockets.
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    let from = Ipv4Addr::from(u32::from(Ipv4Addr::LOCALHOST) + 1 + number % ADDRESSES);
    bind(&socket, &SocketAddrV4::new(from, 0))?;
    connect(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))?;
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    Ok(stream)
}
