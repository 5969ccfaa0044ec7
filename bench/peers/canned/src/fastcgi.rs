//! A FastCGI responder with one response for all requests, on one thread: a thread for each connection
//! would sleep between its requests, and the wakeups are a part of the CPU time of the proxies.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

const END_REQUEST: u8 = 3;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;

const HEAD: &[u8] = b"Content-Type: text/html\r\nContent-Length: 151\r\n\r\n";
const PAGE: &[u8] = include_bytes!("../../../site/index.html");

struct Connection {
    socket: TcpStream,
    /// The incomplete record at the end of the input.
    input: Vec<u8>,
}

pub fn serve(address: &str) -> io::Result<()> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let poll = epoll::create(CreateFlags::CLOEXEC)?;
    let data = |socket: &dyn AsRawFd| EventData::new_u64(socket.as_raw_fd() as u64);
    epoll::add(&poll, &listener, data(&listener), EventFlags::IN)?;
    let mut connections = HashMap::new();
    let mut events = Vec::with_capacity(256);
    loop {
        events.clear();
        epoll::wait(&poll, spare_capacity(&mut events), None)?;
        for event in events.drain(..) {
            let key = event.data.u64();
            if key == data(&listener).u64() {
                while let Ok((socket, _)) = listener.accept() {
                    socket.set_nonblocking(true)?;
                    socket.set_nodelay(true)?;
                    epoll::add(&poll, &socket, data(&socket), EventFlags::IN)?;
                    let key = data(&socket).u64();
                    connections.insert(key, Connection { socket, input: Vec::new() });
                }
            } else if let Some(connection) = connections.get_mut(&key)
                && connection.respond().is_err()
            {
                connections.remove(&key);
            }
        }
    }
}

impl Connection {
    /// Responds to the requests that have arrived. An error is the end of the connection.
    fn respond(&mut self) -> io::Result<()> {
        let mut buffer = [0; 16 << 10];
        let bytes = match self.socket.read(&mut buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        };
        self.input.extend_from_slice(&buffer[..bytes]);
        let (mut used, mut output) = (0, Vec::new());
        while let [_, kind, id_high, id_low, high, low, padding, _, rest @ ..] = &self.input[used..]
        {
            let length = usize::from(u16::from_be_bytes([*high, *low]));
            let total = length + usize::from(*padding);
            if rest.len() < total {
                break;
            }
            if *kind == STDIN && length == 0 {
                let id = [*id_high, *id_low];
                record(&mut output, STDOUT, id, &[HEAD, PAGE].concat());
                record(&mut output, STDOUT, id, &[]);
                record(&mut output, END_REQUEST, id, &[0; 8]);
            }
            used += 8 + total;
        }
        self.input.drain(..used);
        self.socket.write_all(&output)
    }
}

fn record(output: &mut Vec<u8>, kind: u8, id: [u8; 2], content: &[u8]) {
    let length = u16::try_from(content.len()).expect("a small record").to_be_bytes();
    output.extend_from_slice(&[1, kind, id[0], id[1], length[0], length[1], 0, 0]);
    output.extend_from_slice(content);
}
