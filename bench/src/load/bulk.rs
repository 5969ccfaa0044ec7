//! Uploads, and clients that read slowly.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::net::{
    AddressFamily, RecvFlags, SocketFlags, SocketType, connect, recv, socket_with, sockopt,
};

use super::{LoadResult, Run};
use crate::Result;

/// Uploads of this size, one after the other.
pub struct Uploads {
    pub bytes: u64,
}

impl Uploads {
    pub fn run(&self, run: &Run<'_>) -> Result<LoadResult> {
        let start = Instant::now();
        let until = start + Duration::from_secs(run.seconds.into());
        let mut requests = 0;
        while requests == 0 || Instant::now() < until {
            self.upload(run).map_err(|error| format!("bench/src/load/bulk.rs: {error}"))?;
            requests += 1;
        }
        Ok(LoadResult {
            requests,
            errors: 0,
            seconds: start.elapsed().as_secs_f64(),
            latency: None,
        })
    }

    fn upload(&self, run: &Run<'_>) -> io::Result<()> {
        let mut socket = TcpStream::connect((Ipv4Addr::LOCALHOST, run.port()))?;
        socket.set_read_timeout(Some(Duration::from_secs(30)))?;
        let (path, bytes) = (run.request.path, self.bytes);
        write!(
            socket,
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {bytes}\r\n\r\n"
        )?;
        let piece = vec![b'x'; 256 << 10];
        let mut remaining = bytes;
        while remaining > 0 {
            let length = remaining.min(piece.len() as u64);
            socket.write_all(&piece[..length as usize])?;
            remaining -= length;
        }
        let mut response = String::new();
        socket.read_to_string(&mut response)?;
        // The server responds with the number of received bytes.
        match response.starts_with("HTTP/1.1 200 ") && response.contains(&bytes.to_string()) {
            true => Ok(()),
            false => Err(io::Error::other(format!("unexpected response {response:?}"))),
        }
    }
}

/// Connections that read 80 KiB per second of a large file.
pub struct SlowReaders {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl SlowReaders {
    pub fn start(port: u16, path: &str, count: u32) -> Result<SlowReaders> {
        let connections: io::Result<Vec<TcpStream>> =
            (0..count).map(|_| open(port, path)).collect();
        let connections = connections.map_err(|error| format!("slow readers: {error}"))?;
        let stop = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let stop = stop.clone();
            move || read_slowly(&connections, &stop)
        });
        Ok(SlowReaders { stop, thread })
    }

    pub fn end(self) -> Result<()> {
        self.stop.store(true, Relaxed);
        self.thread.join().map_err(|_| "the slow readers have failed".into())
    }
}

fn read_slowly(connections: &[TcpStream], stop: &AtomicBool) {
    let mut buffer = [0; 8 << 10];
    while !stop.load(Relaxed) {
        for connection in connections {
            // The server may have closed the connection.
            let _ = recv(connection, &mut buffer, RecvFlags::DONTWAIT);
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// Requests a file on a connection with a small receive buffer.
fn open(port: u16, path: &str) -> io::Result<TcpStream> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_recv_buffer_size(&socket, 32 << 10)?;
    connect(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))?;
    let mut stream = TcpStream::from(socket);
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    Ok(stream)
}
