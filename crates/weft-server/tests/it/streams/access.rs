//! Networks of clients that a stream serves or refuses.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};

use super::{Streams, echo, read_to_close};
use crate::common::{self, PATIENCE, until};

/// Connects from 127.0.0.`last`.
fn connect_from(last: u8, server: SocketAddr) -> TcpStream {
    let stream = common::connect_from([127, 0, 0, last], server);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Returns true if a connection from an address is forwarded.
fn is_served(streams: &Streams, last: u8, sent: &[u8]) -> bool {
    let mut stream = connect_from(last, streams.addresses()[0]);
    // The server may have closed the connection.
    let _ = stream.write_all(sent);
    let mut byte = [0];
    match stream.read(&mut byte) {
        Ok(count) => count == 1,
        Err(_) => false,
    }
}

#[test]
fn networks_decide_which_clients_are_served() {
    let upstream = echo("");
    let from_1 = &b"PROXY TCP4 192.0.2.1 192.0.2.8 4711 25\r\nhello"[..];
    let from_2 = &b"PROXY TCP4 192.0.2.2 192.0.2.8 4711 25\r\nhello"[..];
    let local = &b"PROXY UNKNOWN\r\nhello"[..];
    let proxied = "proxy_protocol_from = \"127.0.0.0/8\"";
    for (keys, expected) in [
        ("allow = \"127.0.0.2\"".to_owned(), &[(1, &b"x"[..], false), (2, b"x", true)][..]),
        ("deny = \"127.0.0.2\"".to_owned(), &[(1, b"x", true), (2, b"x", false)]),
        // A denied network is refused even inside of an allowed one.
        (
            "allow = [\"127.0.0.0/30\", \"127.0.0.9\"]\ndeny = \"127.0.0.2/31\"".to_owned(),
            &[
                (1, b"x", true),
                (2, b"x", false),
                (3, b"x", false),
                (4, b"x", false),
                (9, b"x", true),
            ],
        ),
        // The address that a proxy sends decides, not the address of the proxy.
        (
            format!("{proxied}\nallow = \"192.0.2.1\""),
            &[(1, from_1, true), (1, from_2, false), (1, local, false)],
        ),
        (format!("{proxied}\ndeny = \"127.0.0.1\""), &[(1, from_1, true), (1, local, false)]),
        // A header of another peer is data.
        ("allow = \"192.0.2.1\"".to_owned(), &[(1, from_1, false)]),
    ] {
        let section = format!("[streams.\"127.0.0.1:0\"]\nto = \"{upstream}\"\n{keys}\n");
        let streams = Streams::start(&section);
        for (last, sent, is_expected) in expected {
            let found = is_served(&streams, *last, sent);
            assert_eq!(found, *is_expected, "{keys}: 127.0.0.{last}");
        }
    }
}

#[test]
fn refused_connections_are_recorded_and_use_no_place() {
    let upstream = echo("");
    let streams = Streams::start(&format!(
        "[streams.\"127.0.0.1:0\"]\nto = \"{upstream}\"\ndeny = \"127.0.0.2\"\n\
         max_connections = 1\naccess_log = \"access.log\"\n"
    ));
    let mut open = connect_from(1, streams.addresses()[0]);
    open.write_all(b"x").unwrap();
    open.read_exact(&mut [0]).unwrap();
    // It would be refused because of the limit otherwise.
    read_to_close(connect_from(2, streams.addresses()[0]));
    let log = || fs::read_to_string(streams.path("access.log")).unwrap_or_default();
    until("the line is written", || log().contains('\n'));
    assert!(log().contains(" - 0 0 ") && log().contains(" denied -"), "{}", log());
}

#[test]
fn files_of_networks_are_reloaded() {
    let upstream = echo("");
    let folder = tempfile::tempdir().unwrap();
    let (allowed, denied) = (folder.path().join("allowed"), folder.path().join("denied"));
    fs::write(&allowed, "# office\n127.0.0.0/30\n").unwrap();
    fs::write(&denied, "127.0.0.2\n").unwrap();
    let streams = Streams::start(&format!(
        "[streams.\"127.0.0.1:0\"]\nto = \"{upstream}\"\nallow_file = {allowed:?}\n\
         deny_file = {denied:?}\n"
    ));
    let found = || [1, 2, 5].map(|last| is_served(&streams, last, b"x"));
    assert_eq!(found(), [true, false, false]);
    let mut open = connect_from(1, streams.addresses()[0]);
    open.write_all(b"x").unwrap();
    open.read_exact(&mut [0]).unwrap();
    fs::write(&allowed, "127.0.0.4/30\n").unwrap();
    until("the file is reloaded", || found() == [false, false, true]);
    // A file with an error leaves the former content in effect.
    fs::write(&allowed, "127.0.0.4/30 127.0.0.1\n").unwrap();
    until("the error is logged", || {
        is_served(&streams, 5, b"x");
        streams.server.stderr().contains("the former content stays in effect")
    });
    assert_eq!(found(), [false, false, true]);
    // A connection that is open continues.
    open.write_all(b"y").unwrap();
    open.read_exact(&mut [0]).unwrap();
}

#[test]
fn datagrams_of_refused_clients_are_dropped() {
    let upstream = UdpSocket::bind("127.0.0.1:0").unwrap();
    upstream.set_read_timeout(Some(PATIENCE)).unwrap();
    let streams = Streams::start(&format!(
        "[streams.\"udp://127.0.0.1:0\"]\nto = \"{}\"\ndeny = \"127.0.0.2\"\n",
        upstream.local_addr().unwrap()
    ));
    let addresses = streams.server.addresses();
    let server = addresses.iter().find_map(|address| address.strip_prefix("udp://")).unwrap();
    let [refused, allowed] = ["127.0.0.2:0", "127.0.0.1:0"].map(|it| UdpSocket::bind(it).unwrap());
    refused.send_to(b"refused", server).unwrap();
    allowed.send_to(b"allowed", server).unwrap();
    let mut buffer = [0; 16];
    let length = upstream.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], b"allowed");
    upstream.set_nonblocking(true).unwrap();
    assert!(upstream.recv(&mut buffer).is_err());
}
