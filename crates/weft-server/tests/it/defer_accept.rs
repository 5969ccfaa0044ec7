//! Connections that the kernel passes on with their first bytes (`defer_accept`).
//!
//! One connection of a client is permitted at a time, so that another one is refused while the
//! server has accepted a silent one.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::common::{Client, PATIENCE, Signal, Weft, until, weft};

const CONFIG: &str = "listen = [\"127.0.0.1:0\"]\n\
    [limits]\nmax_connections_per_peer = 1\nhead_timeout = \"1s\"\n\
    [hosts.\"*\"]\n\"/\" = { respond = \"hello\" }\n";

/// Attempts to observe something within less than the second after which a silent connection is
/// accepted in any case.
const ATTEMPTS: usize = 20;

/// Sends a request on a connection that ends with it. Returns true if it is refused.
fn is_refused(address: SocketAddr) -> bool {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut response = Vec::new();
    // Accepted before its request, a refused connection may be reset.
    let exchanged = stream
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .and_then(|()| stream.read_to_end(&mut response));
    let is_reset = exchanged.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset);
    let is_served = response.starts_with(b"HTTP/1.1 200 ");
    assert!(is_reset || is_served || response.starts_with(b"HTTP/1.1 503 "), "{response:?}");
    !is_served
}

/// Waits until the server has no connection, then opens a connection and sends nothing.
fn connect_silently(address: SocketAddr) -> TcpStream {
    until("the server has no connection", || !is_refused(address));
    TcpStream::connect(address).unwrap()
}

/// Returns true if a silent connection does not count at first.
fn is_deferred(address: SocketAddr) -> bool {
    (0..ATTEMPTS).any(|_| {
        let _silent = connect_silently(address);
        !is_refused(address)
    })
}

/// Returns true if a silent connection counts within less than a second.
fn is_accepted_at_once(address: SocketAddr) -> bool {
    (0..ATTEMPTS).any(|_| {
        let _silent = connect_silently(address);
        let start = Instant::now();
        until("the silent connection is accepted", || is_refused(address));
        start.elapsed() < Duration::from_millis(500)
    })
}

#[test]
fn silent_connections_are_deferred_and_a_reload_changes_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("weft.toml");
    fs::write(&file, CONFIG).unwrap();
    let server = Weft::start(weft(["--no-log", "--config"]).arg(&file));
    let reload = |config: &str| {
        let count = || server.stderr().matches("reloaded").count();
        let before = count();
        fs::write(&file, config).unwrap();
        server.signal(Signal::HUP);
        until("the configuration is reloaded", || count() > before);
    };
    assert!(is_deferred(server.address()));
    reload(&format!("defer_accept = false\n{CONFIG}"));
    assert!(is_accepted_at_once(server.address()));
    reload(CONFIG);
    assert!(is_deferred(server.address()));
}

#[test]
fn silent_connections_are_accepted_after_a_second_and_time_out() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("weft.toml");
    fs::write(&file, CONFIG).unwrap();
    let server = Weft::start(weft(["--no-log", "--config"]).arg(&file));
    Client::from_stream(TcpStream::connect(server.address()).unwrap()).assert_closed();
    until("the server has no connection", || !is_refused(server.address()));
}

#[test]
fn port_checks_leave_no_connection() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("weft.toml");
    fs::write(&file, CONFIG).unwrap();
    let server = Weft::start(weft(["--no-log", "--config"]).arg(&file));
    for _ in 0..100 {
        drop(TcpStream::connect(server.address()).unwrap());
    }
    until("the server has no connection", || !is_refused(server.address()));
    let stderr = server.stop().stderr;
    assert!(!stderr.contains("error"), "{stderr}");
}
