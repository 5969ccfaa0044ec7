//! A client of reports: bytes on a connection, or curl.

use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use super::pattern;
use crate::common::external::{curl, run_successfully};
use crate::common::{PATIENCE, take_front};

/// A response, without the framing of its content.
pub struct Received {
    pub status_line: String,
    /// Lines of fields.
    fields: Vec<String>,
    content: Vec<u8>,
}

impl Received {
    /// Returns the values of the field lines with this name.
    pub fn values(&self, name: &str) -> Vec<&str> {
        let fields = self.fields.iter().filter_map(|field| field.split_once(':'));
        let named = fields.filter(|(found, _)| found.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.trim()).collect()
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.content).replace("\r\n", "\n")
    }
}

impl fmt::Display for Received {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}\n{}\n\n{}", self.status_line, self.fields.join("\n"), self.text())
    }
}

/// The bytes that a client has received, and the connection from which more arrive.
#[derive(Default)]
pub struct Conversation {
    connection: Option<TcpStream>,
    received: Vec<u8>,
    /// Methods of requests without a response.
    is_head: Vec<bool>,
}

impl Conversation {
    pub fn connect(&mut self, address: SocketAddr) {
        let stream = TcpStream::connect(address).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        *self = Conversation { connection: Some(stream), ..Conversation::default() };
    }

    /// Sends bytes. A server may close a connection before it has read all of them.
    pub fn send(&mut self, bytes: &[u8], half_closed: bool) {
        let mut stream = self.connection.as_ref().expect("a connection");
        let _ = stream.write_all(bytes);
        let _ = half_closed.then(|| stream.shutdown(Shutdown::Write));
        let lines = bytes.split(|&byte| byte == b'\n');
        let requests = lines.filter(|line| line.windows(6).any(|part| part == b" HTTP/"));
        self.is_head.extend(requests.map(|line| line.starts_with(b"HEAD ")));
    }

    /// Runs curl; its output takes the place of a connection that the server has closed.
    pub fn run_curl(&mut self, arguments: &str) {
        let mut command = curl();
        command.args(["--include", "--max-time", "60"]).args(arguments.lines());
        let output = run_successfully(&mut command).stdout.into_bytes();
        let is_head = vec![arguments.lines().any(|line| line == "--head")];
        *self = Conversation { connection: None, received: output, is_head };
    }

    /// Compares the next response, also an interim one, with its description.
    pub fn expect_response(&mut self, expected: &str) -> Result<(), String> {
        let received = self.response()?;
        pattern::matches(&received, expected)
    }

    pub fn expect_end(&mut self) -> Result<(), String> {
        while self.read()? > 0 {}
        match self.received.is_empty() {
            true => Ok(()),
            false => Err(format!("received {}", self.received.escape_ascii())),
        }
    }

    fn response(&mut self) -> Result<Received, String> {
        let end = loop {
            match self.received.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                Some(end) => break end,
                None if self.read()? == 0 => {
                    return Err(format!("no response: {}", self.received.escape_ascii()));
                }
                None => {}
            }
        };
        let head = take_front(&mut self.received, end + 4);
        let head = String::from_utf8_lossy(&head).into_owned();
        let mut lines = head.trim_end().split("\r\n").map(|line| line.trim_end().to_owned());
        let status_line = lines.next().unwrap_or_default();
        let mut received = Received { status_line, fields: lines.collect(), content: Vec::new() };
        received.content = self.content(&received)?;
        Ok(received)
    }

    /// Reads the content of a response (RFC 9112 §6.3).
    fn content(&mut self, received: &Received) -> Result<Vec<u8>, String> {
        let code = received.status_line.split(' ').nth(1).unwrap_or_default();
        if code.starts_with('1') {
            return Ok(Vec::new());
        }
        let is_head = !self.is_head.is_empty() && self.is_head.remove(0);
        if is_head || code == "204" || code == "304" {
            return Ok(Vec::new());
        }
        if let Some(length) = received.values("content-length").first() {
            return self.take(length.parse().expect("a length"));
        }
        // curl has decoded the content.
        let is_chunked =
            self.connection.is_some() && received.values("transfer-encoding") == ["chunked"];
        match is_chunked {
            true => self.chunks(),
            false => {
                while self.read()? > 0 {}
                Ok(std::mem::take(&mut self.received))
            }
        }
    }

    fn chunks(&mut self) -> Result<Vec<u8>, String> {
        let mut content = Vec::new();
        loop {
            let size = self.line()?;
            let size = usize::from_str_radix(&size, 16).map_err(|_| format!("chunk {size:?}"))?;
            content.extend(self.take(size)?);
            if size == 0 {
                while !self.line()?.is_empty() {}
                return Ok(content);
            }
            self.line()?;
        }
    }

    fn line(&mut self) -> Result<String, String> {
        loop {
            if let Some(end) = self.received.windows(2).position(|bytes| bytes == b"\r\n") {
                let line = take_front(&mut self.received, end + 2);
                return Ok(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            if self.read()? == 0 {
                return Err("the content is truncated".to_owned());
            }
        }
    }

    fn take(&mut self, length: usize) -> Result<Vec<u8>, String> {
        while self.received.len() < length {
            if self.read()? == 0 {
                return Err(format!("{} bytes of {length}", self.received.len()));
            }
        }
        Ok(take_front(&mut self.received, length))
    }

    /// Reads once and returns the number of bytes; 0 is the end of the connection.
    fn read(&mut self) -> Result<usize, String> {
        let Some(mut stream) = self.connection.as_ref() else { return Ok(0) };
        let mut buffer = [0; 65536];
        loop {
            return match stream.read(&mut buffer) {
                Ok(n) => {
                    self.received.extend_from_slice(&buffer[..n]);
                    Ok(n)
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(0),
                Err(error) => Err(format!("{error}, after {}", self.received.escape_ascii())),
            };
        }
    }
}
