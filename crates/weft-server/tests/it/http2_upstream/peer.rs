//! An upstream that reads and writes frames of HTTP/2 (RFC 9113 §4.1).

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::common::raw_upstream;

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PUSH_PROMISE: u8 = 5;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

pub const END_STREAM: u8 = 1;
pub const ACK: u8 = 1;
pub const END_HEADERS: u8 = 4;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

#[derive(Debug)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A head with a status and fields, none of them in a table of HPACK (RFC 7541 §6.2.2).
pub fn head(flags: u8, stream: u32, fields: &[(&str, &str)]) -> Vec<u8> {
    frame(HEADERS, flags | END_HEADERS, stream, &fields_block(fields))
}

pub fn fields_block(fields: &[(&str, &str)]) -> Vec<u8> {
    let text = |text: &str| {
        let length = u8::try_from(text.len()).ok().filter(|length| *length < 127);
        [&[length.expect("a short text")], text.as_bytes()].concat()
    };
    fields.iter().flat_map(|(name, value)| [vec![0], text(name), text(value)].concat()).collect()
}

/// The head of a response without a body.
pub fn empty_response(stream: u32, status: &str) -> Vec<u8> {
    head(END_STREAM, stream, &[(":status", status)])
}

/// A response with a body of text.
pub fn text_response(stream: u32, text: &str) -> Vec<u8> {
    let head = head(0, stream, &[(":status", "200"), ("content-length", &text.len().to_string())]);
    [head, frame(DATA, END_STREAM, stream, text.as_bytes())].concat()
}

pub fn goaway(last_stream: u32, code: u32) -> Vec<u8> {
    frame(GOAWAY, 0, 0, &[last_stream.to_be_bytes(), code.to_be_bytes()].concat())
}

pub fn reset(stream: u32, code: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &code.to_be_bytes())
}

pub fn setting(id: u16, value: u32) -> Vec<u8> {
    frame(SETTINGS, 0, 0, &[&id.to_be_bytes()[..], &value.to_be_bytes()].concat())
}

/// Starts an upstream that exchanges frames; the handler gets the number of the connection.
pub fn http2_upstream(handler: impl Fn(usize, &mut Peer) + Send + Sync + 'static) -> SocketAddr {
    http2_upstream_with(frame(SETTINGS, 0, 0, &[]), handler)
}

/// Starts an upstream that begins each connection with the frame `settings`.
pub fn http2_upstream_with(
    settings: Vec<u8>,
    handler: impl Fn(usize, &mut Peer) + Send + Sync + 'static,
) -> SocketAddr {
    raw_upstream(move |number, stream| {
        if let Some(mut peer) = Peer::start(stream, &settings) {
            handler(number, &mut peer);
        }
    })
}

/// The upstream's end of a connection.
pub struct Peer {
    pub stream: TcpStream,
}

impl Peer {
    /// Reads the preface and sends the frame `settings`. `None` if the connection closes.
    pub fn start(stream: TcpStream, settings: &[u8]) -> Option<Peer> {
        let mut peer = Peer { stream };
        let mut preface = [0; PREFACE.len()];
        peer.stream.read_exact(&mut preface).ok()?;
        assert_eq!(preface, PREFACE);
        peer.send(settings);
        Some(peer)
    }

    /// Sends bytes; the other end may have closed the connection.
    pub fn send(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    /// Reads the next frame; `None` at the end of the connection.
    pub fn read(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        self.stream.read_exact(&mut payload).ok()?;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        Some(Frame { kind: head[3], flags: head[4], stream, payload })
    }

    /// Reads to the next frame of one of these types, and acknowledges settings.
    pub fn read_one_of(&mut self, kinds: &[u8]) -> Option<Frame> {
        loop {
            let next = self.read()?;
            if next.kind == SETTINGS && next.flags & ACK == 0 {
                self.send(&frame(SETTINGS, ACK, 0, &[]));
            }
            if kinds.contains(&next.kind) {
                return Some(next);
            }
        }
    }

    /// Reads to the head of the next request and returns the number of its stream.
    pub fn request(&mut self) -> Option<u32> {
        self.read_one_of(&[HEADERS]).map(|head| head.stream)
    }

    /// Reads to the end of the next request; returns its stream and its body.
    pub fn whole_request(&mut self) -> Option<(u32, Vec<u8>)> {
        let head = self.read_one_of(&[HEADERS])?;
        let (mut body, mut has_ended) = (Vec::new(), head.flags & END_STREAM > 0);
        while !has_ended {
            let data = self.read_one_of(&[DATA])?;
            body.extend_from_slice(&data.payload);
            if let Some(bytes) = u32::try_from(data.payload.len()).ok().filter(|bytes| *bytes > 0) {
                for id in [0, head.stream] {
                    self.send(&frame(WINDOW_UPDATE, 0, id, &bytes.to_be_bytes()));
                }
            }
            has_ended = data.flags & END_STREAM > 0;
        }
        Some((head.stream, body))
    }
}
