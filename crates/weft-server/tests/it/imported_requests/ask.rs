//! Requests, and what their responses disclose.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use crate::common::external::curl;
use crate::common::{PATIENCE, Program};
use crate::idioms::file::Request;

/// The parts of a response that are compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// 0 for a connection that is closed without a response.
    pub status: u16,
    /// Location of a redirect, without the requested host.
    pub location: String,
    /// First line of the content, if it is the content of a file, a script or an upstream.
    pub content: String,
    body: String,
    /// Only the status is known.
    is_recorded: bool,
}

impl Answer {
    fn parse(response: &[u8], host: &str) -> Answer {
        let text = String::from_utf8_lossy(response);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { return Answer::default() };
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok());
        let location = lines.filter_map(|line| line.split_once(": "));
        let mut location = location.filter(|(name, _)| name.eq_ignore_ascii_case("location"));
        let location = location.next().map_or("", |(_, value)| value);
        // A chunked body begins with a size.
        let is_chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
        let body = match body.split_once("\r\n") {
            Some((_, rest)) if is_chunked => rest,
            _ => body,
        };
        let line = body.lines().next().unwrap_or_default();
        let marks = ["text of", "secret of", "ran ", "GET ", "POST ", "PUT ", "DELETE ", "<?php"];
        let is_mark = marks.iter().any(|mark| line.contains(mark));
        Answer {
            status: status.unwrap_or(0),
            location: own_location(location, host),
            // An empty and an absent PATH_INFO are the same.
            content: if is_mark { line.replace("  ", " - ") } else { String::new() },
            body: body.to_owned(),
            is_recorded: false,
        }
    }

    /// Returns the recorded status as the response of a server that is not installed.
    pub fn of_status(status: u16) -> Answer {
        let status = if status == 444 { 0 } else { status };
        let body = "unknown".to_owned();
        Answer { status, body, is_recorded: true, ..Answer::default() }
    }

    /// Returns true if a client sees no difference.
    pub fn is_like(&self, other: &Answer) -> bool {
        self.status == other.status
            && (other.is_recorded
                || (&self.location, &self.content) == (&other.location, &other.content))
    }

    pub fn show(&self) -> String {
        let status = self.recorded_status();
        format!("{status} {} {}", self.location, self.content).trim_end().replace("  ", " ")
    }

    /// Returns the status 444 of nginx for a connection that is closed.
    pub fn recorded_status(&self) -> u16 {
        if self.status == 0 { 444 } else { self.status }
    }

    /// Returns true if the response discloses nothing: an error, or no content.
    pub fn is_closed(&self) -> bool {
        self.status >= 400 || self.status == 0 || self.status == 200 && self.body.is_empty()
    }

    /// Returns the reason for which this response of Weft is more than the response of the other
    /// server.
    pub fn opens(&self, other: &Answer) -> Option<&'static str> {
        let is_secret = self.body.contains("secret of") && self.content != other.content;
        match () {
            () if other.is_recorded && !other.is_closed() => None,
            () if self.body.contains("<?php") && !other.body.contains("<?php") => Some("a source"),
            () if is_secret => Some("a secret"),
            () if other.is_closed() && !self.is_closed() => Some("a response"),
            () => None,
        }
    }
}

/// Returns a location without its scheme and host, if the request has the same.
fn own_location(location: &str, host: &str) -> String {
    let rest = location.strip_prefix("http://").or(location.strip_prefix("https://"));
    let own = rest.and_then(|rest| rest.strip_prefix(host));
    let path = own.map(|rest| {
        let rest = rest.strip_prefix(':').unwrap_or(rest);
        rest.trim_start_matches(|c: char| c.is_ascii_digit())
    });
    path.filter(|path| path.starts_with('/')).unwrap_or(location).to_owned()
}

/// Sends a request over a connection of its own.
pub fn send(address: SocketAddr, request: &Request, folder: &Path) -> Answer {
    let response = match request.is_secure {
        true => send_tls(address, request, folder),
        false => send_plain(address, request),
    };
    Answer::parse(&response, &request.host)
}

fn send_plain(address: SocketAddr, request: &Request) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let Request { method, target, host, .. } = request;
    let mut head = format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n");
    for (name, value) in request.fields.iter().filter(|(name, _)| name != "Listener") {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if request.body_length > 0 {
        head.push_str(&format!("Content-Length: {}\r\n", request.body_length));
    }
    head.push_str("\r\n");
    // A server may respond and close before it has read all of a body that it rejects.
    let _ = stream.write_all(head.as_bytes());
    let _ = stream.write_all(&vec![b'x'; request.body_length]);
    let mut response = Vec::new();
    match stream.read_to_end(&mut response) {
        Err(error) if error.kind() != ErrorKind::ConnectionReset => {
            panic!("{}: {error}", request.line);
        }
        _ => response,
    }
}

fn send_tls(address: SocketAddr, request: &Request, folder: &Path) -> Vec<u8> {
    let port = address.port();
    let output = folder.join(format!("response-{port}"));
    let mut command = curl();
    command.args(["--insecure", "--include", "--raw", "--http1.1", "--path-as-is"]);
    command.args(["--max-time", "60", "--connect-to", &format!("::{address}")]);
    command.args(["--request", &request.method]).arg("--output").arg(&output);
    for (name, value) in request.fields.iter().filter(|(name, _)| name != "Listener") {
        command.args(["--header", &format!("{name}: {value}")]);
    }
    if request.body_length > 0 {
        command.args(["--data", &"x".repeat(request.body_length)]);
    }
    command.arg(format!("https://{}{}", request.host, request.target));
    // The server may close the connection without a response.
    Program::start(&mut command).wait_with_output();
    let response = fs::read(&output).unwrap_or_default();
    let _ = fs::remove_file(output);
    response
}
