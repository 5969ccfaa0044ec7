//! The workloads of `--http3`: HTTP/3, beside HTTP/2 over TLS by Weft for the same loads.

use crate::load::{H2load, Http3, Load, Mode};
use crate::request::{RequestSpec, Scheme, http};
use crate::workload::{Workers, Workload};

/// Servers in the root of `--root`, whose versions have HTTP/3.
const PEERS: &[&str] = &["weft", "nginx-http3", "haproxy-http3", "caddy-http3"];

/// Servers that serve files.
const FILE_PEERS: &[&str] = &["weft", "nginx-http3", "caddy-http3"];

const WEFT: &[&str] = &["weft"];

const fn workload(
    (name, title): (&'static str, &'static str),
    peers: &'static [&'static str],
    path: &'static str,
    load: Load,
) -> Workload {
    let request = RequestSpec { scheme: Scheme::Https, varies: true, ..http(path) };
    let note = "QUIC with UDP payloads of up to 1,452 bytes. Requests differ in query, cookie and \
                referrer. All bytes of all responses are verified. The handshakes and half a second \
                are not measured.";
    Workload { name, title, note, peers, request, load, workers: Workers::One }
}

/// HTTP/2 over TLS for the same load, with its handshakes.
const fn tcp(
    (name, title): (&'static str, &'static str),
    path: &'static str,
    (connections, streams): (u32, u32),
) -> Workload {
    let request = RequestSpec { scheme: Scheme::Https, varies: true, ..http(path) };
    let load = Load::H2load(H2load { requests: None, connections, streams });
    let note = "The reference for HTTP/3.";
    Workload { name, title, note, peers: WEFT, request, load, workers: Workers::One }
}

const fn streams(connections: u32, streams: u32) -> Load {
    Load::Http3(Http3 { connections, mode: Mode::Streams(streams) })
}

const fn connections(connections: u32, mode: Mode) -> Load {
    Load::Http3(Http3 { connections, mode })
}

pub const WORKLOADS: &[Workload] = &[
    workload(
        ("h3-64x64", "HTTP/3: a page from memory, 64 connections with 64 streams each"),
        PEERS,
        "/memory",
        streams(64, 64),
    ),
    tcp(("h3-64x64-tcp", "HTTP/2: the same"), "/memory", (64, 64)),
    workload(
        ("h3-64x1", "HTTP/3: a page from memory, 64 connections with one stream each"),
        PEERS,
        "/memory",
        streams(64, 1),
    ),
    tcp(("h3-64x1-tcp", "HTTP/2: the same"), "/memory", (64, 1)),
    workload(
        ("h3-1x1", "HTTP/3: a page from memory, one connection with one stream"),
        PEERS,
        "/memory",
        streams(1, 1),
    ),
    tcp(("h3-1x1-tcp", "HTTP/2: the same"), "/memory", (1, 1)),
    workload(
        ("h3-16k", "HTTP/3: a file of 16 KiB, 64 connections with 8 streams each"),
        FILE_PEERS,
        "/16k.bin",
        streams(64, 8),
    ),
    tcp(("h3-16k-tcp", "HTTP/2: the same"), "/16k.bin", (64, 8)),
    workload(
        ("h3-128k", "HTTP/3: a file of 128 KiB, 16 connections with 4 streams each"),
        FILE_PEERS,
        "/128k.bin",
        streams(16, 4),
    ),
    tcp(("h3-128k-tcp", "HTTP/2: the same"), "/128k.bin", (16, 4)),
    workload(
        ("h3-1m", "HTTP/3: a file of 1 MiB, 8 connections with one stream each"),
        FILE_PEERS,
        "/1m.bin",
        streams(8, 1),
    ),
    tcp(("h3-1m-tcp", "HTTP/2: the same"), "/1m.bin", (8, 1)),
    workload(
        ("h3-handshake", "HTTP/3: a full handshake and a request, 16 at a time"),
        PEERS,
        "/memory",
        connections(16, Mode::Handshakes),
    ),
    workload(
        ("h3-resumed", "HTTP/3: a resumed handshake and a request, 16 at a time"),
        PEERS,
        "/memory",
        connections(16, Mode::Resumed),
    ),
    workload(
        ("h3-idle", "HTTP/3: 2,000 idle connections"),
        PEERS,
        "/memory",
        connections(2_000, Mode::Idle),
    ),
];
