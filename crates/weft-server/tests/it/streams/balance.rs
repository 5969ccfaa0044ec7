//! Weights, backups and limits of the upstreams of a stream.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use rustix::net::{AddressFamily, SocketType};

use super::{Streams, connect, echo, exchange, read_to_close};
use crate::common::{run, until, unused_address};

/// Returns the numbers of connections that each upstream gets, by the text that it sends.
fn distribution(streams: &Streams, count: usize) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for _ in 0..count {
        let name = String::from_utf8(exchange(streams.connect(), b"x")).unwrap();
        *found.entry(name.trim_end_matches('x').to_owned()).or_default() += 1;
    }
    found
}

fn counts<const N: usize>(of: [(&str, usize); N]) -> BTreeMap<String, usize> {
    of.into_iter().map(|(name, count)| (name.to_owned(), count)).collect()
}

#[test]
fn connections_are_distributed_by_weight_and_backups_replace_all_others() {
    let (a, b, c) = (echo("a"), echo("b"), echo("c"));
    let gone = unused_address();
    for (keys, expected) in [
        (format!("to = [\"{a} weight=3\", \"{b}\"]"), counts([("a", 30), ("b", 10)])),
        // In one text, as in `server_names`.
        (format!("to = \"{a} weight=3 {b}\""), counts([("a", 30), ("b", 10)])),
        (
            format!("to = [\"{a}\", \"{b} weight=3\", \"{c} weight=9 backup\"]"),
            counts([("a", 10), ("b", 30)]),
        ),
        (format!("to = [\"{gone}\", \"{b} backup\"]"), counts([("b", 40)])),
        (
            format!("to = [\"{gone}\", \"{b} backup weight=3\", \"{c} backup\"]"),
            counts([("b", 30), ("c", 10)]),
        ),
    ] {
        let streams = Streams::start(&format!("[streams.\"127.0.0.1:0\"]\n{keys}\n"));
        assert_eq!(distribution(&streams, 40), expected, "{keys}");
    }
}

#[test]
fn one_client_has_one_upstream_by_hash() {
    let (a, b, c) = (echo("a"), echo("b"), echo("c"));
    let streams = Streams::start(&format!(
        "[streams.\"127.0.0.1:0\"]\nto = [\"{a}\", \"{b}\", \"{c}\"]\nbalance = \"hash\"\n"
    ));
    assert_eq!(distribution(&streams, 20).len(), 1);
    let streams = Streams::start(&format!(
        "[streams.\"127.0.0.1:0\"]\nto = [\"{a}\", \"{b}\"]\nbalance = \"random-two\"\n"
    ));
    assert_eq!(distribution(&streams, 60).len(), 2);
}

/// Opens a connection and waits until it is forwarded; returns the name of its upstream.
fn open(streams: &Streams) -> (TcpStream, u8) {
    let mut stream = connect(streams.addresses()[0]);
    stream.write_all(b"x").unwrap();
    let mut name = [0; 2];
    stream.read_exact(&mut name).unwrap();
    (stream, name[0])
}

#[test]
fn an_upstream_has_at_most_its_maximum_of_connections() {
    let (a, b) = (echo("a"), echo("b"));
    let streams = Streams::start(&format!(
        "[streams.\"127.0.0.1:0\"]\n\
         to = [\"{a} max_connections=2\", \"{b} max_connections=1 backup\"]\n"
    ));
    let mut opened = [(); 3].map(|()| open(&streams)).into_iter().collect::<Vec<_>>();
    assert_eq!(opened.iter().map(|(_, name)| *name).collect::<Vec<_>>(), b"aab");
    assert_eq!(read_to_close(streams.connect()), b"");
    until("the limit is logged", || {
        streams.server.stderr().contains("`max_connections` of the upstreams")
    });
    // A connection that has ended leaves its place to another one.
    drop(opened.remove(0));
    until("a place is free", || {
        let mut stream = connect(streams.addresses()[0]);
        let mut name = [0];
        stream.write_all(b"x").is_ok() && stream.read(&mut name).is_ok_and(|_| name == *b"a")
    });
}

/// An upstream that never accepts a connection: its backlog is full.
fn unresponsive() -> (TcpListener, Vec<TcpStream>, SocketAddr) {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    rustix::net::listen(&socket, 0).unwrap();
    let listener = TcpListener::from(socket);
    let address = listener.local_addr().unwrap();
    let timeout = std::time::Duration::from_millis(50);
    let connected = std::iter::from_fn(|| TcpStream::connect_timeout(&address, timeout).ok());
    (listener, connected.collect(), address)
}

#[test]
fn connections_that_are_being_opened_count() {
    let (_listener, _connected, address) = unresponsive();
    let streams = Streams::start(&format!(
        "[streams.\"127.0.0.1:0\"]\nto = \"{address} max_connections=1\"\nconnect_timeout = \"5s\"\n"
    ));
    let first = streams.connect();
    until("the second one is refused", || {
        let _ = read_to_close(streams.connect());
        streams.server.stderr().contains("`max_connections` of the upstreams")
    });
    drop(first);
}

#[test]
fn invalid_upstreams_are_reported() {
    for (to, expected) in [
        ("[\"h:1 weight=0\"]", "weight=0: expected weight= and a number from 1 to 65535"),
        ("[\"h:1 wieght=2\"]", "wieght=2: unknown option of an upstream"),
        ("[\"weight=2\"]", "weight=2: an option stands behind the URL of its upstream"),
        ("[\"\"]", "expected an upstream such as 127.0.0.1:5432"),
        ("[\"h:1 backup\", \"i:1 backup\"]", "all upstreams are backups"),
        ("[\"h:1\", \"tcp://h:1\"]", "h:1 and tcp://h:1 are the same upstream"),
        ("\"h:1\"\nallow_file = \"absent\"", "cannot read"),
        ("\"h:1\"\nallow = \"10.0.0.0/33\"", "expected an address, or one with /bits"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("weft.toml");
        std::fs::write(&file, format!("[streams.\"127.0.0.1:0\"]\nto = {to}\n")).unwrap();
        let output = run([std::ffi::OsStr::new("check"), file.as_os_str()]);
        assert_ne!(output.status, Ok(0), "{to}");
        assert!(output.stderr.contains(expected), "{to}: {}", output.stderr);
    }
}
