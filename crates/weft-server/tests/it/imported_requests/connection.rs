//! A client that sends several requests over a connection, in plain text or with TLS, and accepts
//! each certificate.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

use crate::common::tls_client::tls_settings;
use crate::common::{PATIENCE, take_front};

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

pub struct Connection {
    stream: Box<dyn Stream>,
    received: Vec<u8>,
    /// The server sends no further response.
    is_closed: bool,
}

/// A response with its decoded body.
pub struct ReceivedResponse {
    pub head: String,
    pub body: Vec<u8>,
}

impl Connection {
    /// Connects to a server. With TLS, the client names this host.
    pub fn open(address: SocketAddr, tls_host: Option<&str>) -> Connection {
        let stream = TcpStream::connect(address).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        let stream: Box<dyn Stream> = match tls_host {
            None => Box::new(stream),
            Some(host) => Box::new(StreamOwned::new(tls_client(host), stream)),
        };
        Connection { stream, received: Vec::new(), is_closed: false }
    }

    /// Returns true if the server can respond to another request.
    pub fn is_open(&self) -> bool {
        !self.is_closed
    }

    /// Sends a request and reads its response; `None` if the server closes without a response.
    pub fn exchange(&mut self, request: &[u8], is_head: bool) -> Option<ReceivedResponse> {
        // A server may respond and close before it has read all of a body that it rejects.
        let _ = self.stream.write_all(request).and_then(|()| self.stream.flush());
        let response = self.read_response(is_head);
        self.is_closed |= response.is_none();
        response
    }

    fn read_response(&mut self, is_head: bool) -> Option<ReceivedResponse> {
        let head = loop {
            match self.received.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                Some(end) => {
                    let head = take_front(&mut self.received, end + 4);
                    let head = String::from_utf8_lossy(&head).into_owned();
                    if !head.starts_with("HTTP/1.1 100") && !head.starts_with("HTTP/1.1 103") {
                        break head;
                    }
                }
                None if self.read() => {}
                None => return None,
            }
        };
        let lower = head.to_ascii_lowercase();
        let field = |name: &str| {
            let line = lower.split("\r\n").find_map(|line| line.strip_prefix(name));
            line.map(|value| value.trim().to_owned())
        };
        let length = field("content-length:").map(|value| value.parse().expect("a length"));
        let has_body =
            !is_head && ![" 101 ", " 204 ", " 304 "].iter().any(|it| head[8..].starts_with(it));
        self.is_closed |= field("connection:").is_some_and(|value| value == "close");
        let body = match length {
            _ if !has_body => Vec::new(),
            Some(length) => self.take(length),
            None if field("transfer-encoding:").is_some() => self.read_chunks(),
            None => {
                while self.read() {}
                self.is_closed = true;
                std::mem::take(&mut self.received)
            }
        };
        Some(ReceivedResponse { head, body })
    }

    fn read_chunks(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let line = loop {
                match self.received.windows(2).position(|bytes| bytes == b"\r\n") {
                    Some(end) => break take_front(&mut self.received, end + 2),
                    None if self.read() => {}
                    None => return body,
                }
            };
            let size = String::from_utf8_lossy(&line);
            let size = usize::from_str_radix(size.trim(), 16).expect("the size of a chunk");
            body.extend(self.take(size));
            self.take(2);
            if size == 0 {
                return body;
            }
        }
    }

    /// Reads the next bytes, fewer if the connection ends.
    fn take(&mut self, length: usize) -> Vec<u8> {
        while self.received.len() < length && self.read() {}
        let length = length.min(self.received.len());
        take_front(&mut self.received, length)
    }

    /// Reads once. Returns false at the end of the connection.
    fn read(&mut self) -> bool {
        let mut buffer = [0; 16_384];
        match self.stream.read(&mut buffer) {
            Ok(length) => {
                self.received.extend_from_slice(&buffer[..length]);
                length > 0
            }
            // The end of TLS may come without its alert.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof
                ) =>
            {
                false
            }
            Err(error) => panic!("{error}, after {}", self.received.escape_ascii()),
        }
    }
}

/// Accepts each certificate: the tests compare responses, and their certificates have other names.
fn tls_client(host: &str) -> ClientConnection {
    let name = ServerName::try_from(host.to_owned()).expect("a host");
    ClientConnection::new(Arc::new(tls_settings(&[])), name).unwrap()
}
