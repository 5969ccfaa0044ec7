//! What the tests share: a server's address, and responses read as data.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::net::SocketAddr;

use weft::{Bound, Running};

/// The address of the server's first socket.
pub fn address(server: &Running) -> SocketAddr {
    match &server.addresses()[0] {
        Bound::Tcp(address) => *address,
        other => panic!("{other} is no TCP address"),
    }
}

/// A response as a client sees it.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// How many bytes it took.
    pub length: usize,
}

impl Response {
    /// The first response of these bytes, if it is whole. One without a length has
    /// all of them.
    pub fn parse(bytes: &[u8], head_only: bool) -> Option<Response> {
        let head = bytes.windows(4).position(|w| w == b"\r\n\r\n")? + 4;
        let text = std::str::from_utf8(&bytes[..head]).expect("a head is text");
        let mut lines = text.split("\r\n").filter(|line| !line.is_empty());
        let status = lines.next()?.split(' ').nth(1)?.parse().expect("a status");
        let headers = lines.map(|line| {
            let (name, value) = line.split_once(": ").expect("name: value");
            (name.to_owned(), value.to_owned())
        });
        let mut response =
            Response { status, headers: headers.collect(), body: Vec::new(), length: head };
        let mut rest = &bytes[head..];
        if head_only || status < 200 || status == 204 || status == 304 {
            return Some(response);
        }
        if response.header("transfer-encoding") == Some("chunked") {
            loop {
                let line = rest.windows(2).position(|w| w == b"\r\n")?;
                let size = std::str::from_utf8(&rest[..line]).unwrap();
                let size = usize::from_str_radix(size, 16).expect("a chunk's size");
                rest = &rest[line + 2..];
                if size == 0 {
                    // The tests' trailers are few: up to the empty line.
                    while !rest.starts_with(b"\r\n") {
                        rest = &rest[rest.windows(2).position(|w| w == b"\r\n")? + 2..];
                    }
                    rest = &rest[2..];
                    break;
                }
                response.body.extend_from_slice(rest.get(..size)?);
                rest = rest.get(size + 2..)?;
            }
        } else {
            let length = response.header("content-length").map(|n| n.parse().expect("a number"));
            response.body.extend_from_slice(rest.get(..length.unwrap_or(rest.len()))?);
            rest = &rest[response.body.len()..];
        }
        response.length = bytes.len() - rest.len();
        Some(response)
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }
}
