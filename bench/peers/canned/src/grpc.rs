//! A gRPC server on HTTP/2 without TLS that responds to each call with the same messages. It does not
//! decode the heads of requests.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::TcpStream;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;

const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

const INITIAL_WINDOW_SIZE: u16 = 4;
const DEFAULT_WINDOW: i64 = 65_535;
const PREFACE_BYTES: usize = 24;

/// Size of a write.
const WRITE_BYTES: usize = 32 << 10;

/// Number of received bytes after which the window of the connection is opened again.
const UPDATE_BYTES: u32 = 16 << 10;

/// A message with a text of 50 bytes as its first field.
const TEXT_BYTES: usize = 50;

/// The payloads of the frames of a response.
pub struct Response {
    head: Vec<u8>,
    message: Vec<u8>,
    messages: usize,
    trailers: Vec<u8>,
}

impl Response {
    pub fn new(messages: usize) -> Response {
        // The index of `:status: 200` in the static table of HPACK.
        let mut head = vec![0x88];
        literal(&mut head, "content-type", "application/grpc");
        let mut trailers = Vec::new();
        literal(&mut trailers, "grpc-status", "0");
        let mut message = vec![0, 0, 0, 0, TEXT_BYTES as u8 + 2, 10, TEXT_BYTES as u8];
        message.extend_from_slice(&[b'x'; TEXT_BYTES]);
        Response { head, message, messages, trailers }
    }
}

/// Writes a field without an index and without Huffman coding (RFC 7541 §6.2.2).
fn literal(out: &mut Vec<u8>, name: &str, value: &str) {
    out.push(0);
    for text in [name, value] {
        out.push(u8::try_from(text.len()).expect("a short text"));
        out.extend_from_slice(text.as_bytes());
    }
}

pub fn serve(socket: TcpStream, response: &Response) -> io::Result<()> {
    let mut connection = Connection {
        socket,
        response,
        output: Vec::new(),
        window: DEFAULT_WINDOW,
        initial_window: DEFAULT_WINDOW,
        received: 0,
        calls: VecDeque::new(),
    };
    connection.frame(SETTINGS, 0, 0, &[]);
    connection.run()
}

struct Connection<'a> {
    socket: TcpStream,
    response: &'a Response,
    output: Vec<u8>,
    /// The window of the connection, for what is sent.
    window: i64,
    initial_window: i64,
    /// Bytes received since the last update of a window.
    received: u32,
    calls: VecDeque<Call>,
}

struct Call {
    stream: u32,
    window: i64,
    /// The request has ended.
    is_complete: bool,
    has_head: bool,
    /// Number of messages that were sent.
    sent: usize,
}

impl Connection<'_> {
    fn run(&mut self) -> io::Result<()> {
        let mut input = Vec::new();
        let mut buffer = vec![0; 64 << 10];
        let mut has_preface = false;
        loop {
            match self.socket.read(&mut buffer)? {
                0 => return Ok(()),
                bytes => input.extend_from_slice(&buffer[..bytes]),
            }
            let mut used = 0;
            if !has_preface && input.len() >= PREFACE_BYTES {
                (has_preface, used) = (true, PREFACE_BYTES);
            }
            while has_preface && let [a, b, c, kind, flags, s, t, u, v, rest @ ..] = &input[used..]
            {
                let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
                let Some(payload) = rest.get(..length) else { break };
                self.receive(*kind, *flags, u32::from_be_bytes([*s, *t, *u, *v]), payload);
                used += 9 + length;
            }
            input.drain(..used);
            self.respond()?;
            self.flush()?;
        }
    }

    fn receive(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        match kind {
            HEADERS if !self.calls.iter().any(|call| call.stream == stream) => {
                let (window, is_complete) = (self.initial_window, flags & END_STREAM != 0);
                self.calls.push_back(Call {
                    stream,
                    window,
                    is_complete,
                    has_head: false,
                    sent: 0,
                });
            }
            DATA | HEADERS => {
                if kind == DATA {
                    self.received += payload.len() as u32;
                }
                if let Some(call) = self.call(stream) {
                    call.is_complete |= flags & END_STREAM != 0;
                }
                if self.received >= UPDATE_BYTES {
                    let increment = std::mem::take(&mut self.received).to_be_bytes();
                    self.frame(WINDOW_UPDATE, 0, 0, &increment);
                }
            }
            SETTINGS if flags & ACK == 0 => {
                for setting in payload.chunks_exact(6) {
                    if u16::from_be_bytes([setting[0], setting[1]]) == INITIAL_WINDOW_SIZE {
                        let window = i64::from(number(&setting[2..]));
                        let difference = window - self.initial_window;
                        self.initial_window = window;
                        self.calls.iter_mut().for_each(|call| call.window += difference);
                    }
                }
                self.frame(SETTINGS, ACK, 0, &[]);
            }
            PING if flags & ACK == 0 => self.frame(PING, ACK, 0, payload),
            WINDOW_UPDATE if stream == 0 => self.window += i64::from(number(payload)),
            WINDOW_UPDATE => {
                if let Some(call) = self.call(stream) {
                    call.window += i64::from(number(payload));
                }
            }
            RST_STREAM => self.calls.retain(|call| call.stream != stream),
            _ => {}
        }
    }

    fn call(&mut self, stream: u32) -> Option<&mut Call> {
        self.calls.iter_mut().find(|call| call.stream == stream)
    }

    /// Sends as much of the responses as the windows permit, one after the other.
    fn respond(&mut self) -> io::Result<()> {
        let Response { head, message, messages, trailers } = self.response;
        let size = message.len() as i64;
        for index in 0..self.calls.len() {
            let Call { stream, mut window, is_complete, has_head, mut sent } = self.calls[index];
            if !is_complete {
                continue;
            }
            if !has_head {
                self.frame(HEADERS, END_HEADERS, stream, head);
            }
            while sent < *messages && window.min(self.window) >= size {
                self.frame(DATA, 0, stream, message);
                self.window -= size;
                window -= size;
                sent += 1;
                if self.output.len() >= WRITE_BYTES {
                    self.flush()?;
                }
            }
            if sent == *messages {
                self.frame(HEADERS, END_HEADERS | END_STREAM, stream, trailers);
            }
            self.calls[index] = Call { stream, window, is_complete, has_head: true, sent };
        }
        self.calls.retain(|call| call.sent < *messages);
        Ok(())
    }

    fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = (payload.len() as u32).to_be_bytes();
        self.output.extend_from_slice(&length[1..]);
        self.output.extend_from_slice(&[kind, flags]);
        self.output.extend_from_slice(&stream.to_be_bytes());
        self.output.extend_from_slice(payload);
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.write_all(&self.output)?;
        self.output.clear();
        Ok(())
    }
}

fn number(bytes: &[u8]) -> u32 {
    let bytes = bytes.get(..4).and_then(|bytes| bytes.try_into().ok()).unwrap_or_default();
    u32::from_be_bytes(bytes) & 0x7fff_ffff
}
