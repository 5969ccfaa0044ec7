//! The reverse proxy, with real and misbehaving clients and upstreams.

mod messages;
mod request_bodies;
mod connections;
mod upgrades;
mod balance;
mod program;

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::proxy::Proxy;
use crate::common::{
    Client, PATIENCE, Program, Signal, Weft, has_tool, raw_upstream, read_head, run, until,
    unused_address, weft,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use weft::testing::TestServer;
use weft::{Body, Request, Response, StatusCode, header};

// -- proxies and upstreams

fn http_url(address: SocketAddr) -> String {
    format!("http://{address}/")
}

/// Returns an address with a free port, for an external program.
fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// Returns a handler that responds to each request on a connection with these bytes.
fn respond_with(bytes: &'static [u8]) -> impl Fn(usize, TcpStream) + Send + Sync + 'static {
    move |_, mut stream| {
        while read_head(&mut stream).is_some() {
            stream.write_all(bytes).unwrap();
        }
    }
}

/// Responds with the received request as text: method and target, fields, body, trailers.
async fn echo(mut request: Request) -> Response {
    let mut text = format!("{} {}\n", request.method(), request.target());
    for (name, value) in request.headers().iter() {
        text += &format!("{name}: {}\n", String::from_utf8_lossy(value));
    }
    text.push('\n');
    while let Some(chunk) = request.body().chunk().await.unwrap() {
        text += &String::from_utf8_lossy(&chunk);
    }
    if let Some(trailers) = request.body().trailers() {
        for (name, value) in trailers.iter() {
            text += &format!("\ntrailer {name}: {}", String::from_utf8_lossy(value));
        }
    }
    Response::text(text)
        .with_header(header::SET_COOKIE, "a=1")
        .with_appended_header("set-cookie", "b")
}

// -- a client that reads to the end of the connection

/// The response that a client received before the end of its connection.
#[derive(Debug, PartialEq, Eq)]
struct ReceivedResponse {
    status: u16,
    /// Field lines in lower case, without `Date` and `Server`; an interim response is one entry.
    fields: Vec<String>,
    body: String,
    is_complete: bool,
}

/// Sends a request with `Connection: close` and reads the response to the end of the connection.
fn send_request(server: SocketAddr, request: &str) -> ReceivedResponse {
    let mut stream = TcpStream::connect(server).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    read_response(&mut stream, request.starts_with("HEAD"))
}

fn get(server: SocketAddr, target: &str) -> ReceivedResponse {
    send_request(server, &format!("GET {target} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"))
}

fn read_response(stream: &mut TcpStream, head_only: bool) -> ReceivedResponse {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("{error} after {}", bytes.escape_ascii()),
    }
    parse(&bytes, head_only)
}

fn parse(bytes: &[u8], head_only: bool) -> ReceivedResponse {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head: {text}"));
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let fields: Vec<String> = lines.map(|line| line.to_ascii_lowercase()).collect();
    if (100..200).contains(&status) && status != 101 {
        let rest = parse(body.as_bytes(), head_only);
        let interim = format!("{status}: {}", fields.join(", "));
        return ReceivedResponse { fields: [vec![interim], rest.fields].concat(), ..rest };
    }
    let length = fields.iter().find_map(|field| field.strip_prefix("content-length: "));
    let (body, is_complete) = if head_only || [204, 304].contains(&status) {
        (body.to_owned(), body.is_empty())
    } else if fields.iter().any(|field| field == "transfer-encoding: chunked") {
        dechunk(body)
    } else if let Some(length) = length {
        (body.to_owned(), body.len() == length.parse::<usize>().unwrap())
    } else {
        (body.to_owned(), true)
    };
    let varies = |field: &String| field.starts_with("date: ") || field.starts_with("server: ");
    let fields = fields.into_iter().filter(|field| !varies(field)).collect();
    ReceivedResponse { status, fields, body, is_complete }
}

/// Decodes a chunked body; returns the data followed by the trailers, and true if the body is
/// complete.
fn dechunk(mut text: &str) -> (String, bool) {
    let mut data = String::new();
    loop {
        let Some((size, rest)) = text.split_once("\r\n") else { return (data, false) };
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            return match rest.strip_suffix("\r\n") {
                Some(trailers) => (data + trailers, true),
                None => (data, false),
            };
        }
        let Some((chunk, rest)) = rest.split_at_checked(size + 2) else { return (data, false) };
        data += &chunk[..size];
        text = rest;
    }
}

// -- shared by the modules

fn proxy_route(urls: &str) -> String {
    format!("/ >> {urls}")
}
