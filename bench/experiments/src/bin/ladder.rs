//! A series of simple servers of increasing sophistication: `ladder ADDRESS 1 VARIANT`. Each
//! variant closes the connection after a response; with the suffix `-keep` connections persist. The
//! last step of the series is the peer `weft-lib`.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::thread;

use peer::PAGE;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};

fn main() {
    let (address, _) = peer::arguments();
    let variant = weft_experiments::variant();
    let (server, keep) = match variant.strip_suffix("-keep") {
        Some(server) => (server, true),
        None => (variant.as_str(), false),
    };
    match server {
        "strings" => thread_per_connection(address, move |socket| strings(socket, keep)),
        "bytes" => thread_per_connection(address, move |socket| bytes(socket, keep)),
        "callbacks" => callbacks(address, keep),
        other => panic!("unknown variant {other:?}"),
    }
}

fn thread_per_connection(
    address: SocketAddr,
    serve: impl Fn(TcpStream) -> std::io::Result<()> + Copy + Send + 'static,
) {
    for socket in TcpListener::bind(address).expect("cannot bind the address").incoming().flatten()
    {
        // Errors are disconnected clients.
        thread::spawn(move || drop(serve(socket)));
    }
}

/// Reads lines through a buffered handle, and formats the response for each request.
fn strings(socket: TcpStream, keep: bool) -> std::io::Result<()> {
    let mut input = BufReader::new(socket.try_clone()?);
    let mut output = socket;
    loop {
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            if input.read_line(&mut line)? == 0 {
                return Ok(());
            }
        }
        let connection = if keep { "keep-alive" } else { "close" };
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: {connection}\r\n\r\n",
            "text/html",
            PAGE.len()
        );
        let response: String = head.chars().chain(PAGE.chars()).collect();
        output.write_all(response.as_bytes())?;
        if !keep {
            return Ok(());
        }
    }
}

/// Uses a buffer on the stack, and sends a response that is a compile-time constant.
fn bytes(mut socket: TcpStream, keep: bool) -> std::io::Result<()> {
    let mut input = [0; 4096];
    // Each request of wrk arrives in one read.
    while socket.read(&mut input)? > 0 {
        socket.write_all(canned(keep))?;
        if !keep {
            return Ok(());
        }
    }
    Ok(())
}

/// Runs one thread with a callback per event, which accepts or responds.
fn callbacks(address: SocketAddr, keep: bool) {
    const LISTENER: u64 = u64::MAX;
    let listener = peer::listener(address);
    let poll = epoll::create(CreateFlags::CLOEXEC).expect("epoll");
    epoll::add(&poll, &listener, EventData::new_u64(LISTENER), EventFlags::IN).expect("added");
    let mut connections: HashMap<RawFd, TcpStream> = HashMap::new();
    let mut events = Vec::with_capacity(1024);
    loop {
        events.clear();
        match epoll::wait(&poll, spare_capacity(&mut events), None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => panic!("epoll: {error}"),
        }
        for event in events.drain(..) {
            match event.data.u64() {
                LISTENER => accept(&listener, &poll, &mut connections),
                key => respond(key as RawFd, keep, &mut connections),
            }
        }
    }
}

fn accept(listener: &TcpListener, poll: &OwnedFd, connections: &mut HashMap<RawFd, TcpStream>) {
    while let Ok(socket) = accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
        let key = socket.as_raw_fd();
        epoll::add(poll, &socket, EventData::new_u64(key as u64), EventFlags::IN).expect("added");
        connections.insert(key, socket.into());
    }
}

fn respond(key: RawFd, keep: bool, connections: &mut HashMap<RawFd, TcpStream>) {
    let Some(socket) = connections.get_mut(&key) else { return };
    let is_open = match socket.read(&mut [0; 4096]) {
        Ok(1..) => socket.write_all(canned(keep)).is_ok() && keep,
        Ok(0) => false,
        Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
    };
    if !is_open {
        connections.remove(&key);
    }
}

fn canned(keep: bool) -> &'static [u8] {
    const KEEP: &str = concat!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 151\r\nConnection: keep-alive\r\n\r\n",
        include_str!("../../../site/index.html")
    );
    const CLOSE: &str = concat!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 151\r\nConnection: close\r\n\r\n",
        include_str!("../../../site/index.html")
    );
    if keep { KEEP.as_bytes() } else { CLOSE.as_bytes() }
}
