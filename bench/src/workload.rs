//! What is measured: a request, how often it comes, and who has to answer it.

use crate::experiments;
use crate::load::{H2load, Handshakes, Load, Rush, Wrk};

pub struct Workload {
    pub name: &'static str,
    pub title: &'static str,
    /// What has to be known of it, for the report.
    pub note: &'static str,
    /// Whose answers are compared: Weft's first, then all others'.
    pub peers: &'static [&'static str],
    pub ask: Ask,
    pub load: Load,
    /// With how many workers each server is started.
    pub workers: Workers,
}

/// A request.
#[derive(Clone, Copy)]
pub struct Ask {
    pub scheme: Scheme,
    pub path: &'static str,
    pub fields: &'static [(&'static str, &'static str)],
}

#[derive(Clone, Copy, PartialEq)]
pub enum Scheme {
    Http,
    Https,
    /// HTTP/2 by prior knowledge.
    H2c,
}

pub enum Workers {
    One,
    OneAndTwo,
    /// From one to as many as there are cores for servers.
    UpToAll,
}

/// Who answers from memory, and speaks all of HTTP/1 that is measured.
const MEMORY: &[&str] = &[
    "weft-lib",
    "epoll",
    "tokio",
    "hyper",
    "axum",
    "axum-weft",
    "actix",
    "ntex",
    "may",
    "nginx",
    "caddy",
    "warp",
];

/// Without the floors and may, which neither close nor know of time.
const SERVERS: &[&str] = &["weft-lib", "hyper", "axum", "actix", "ntex", "nginx", "caddy", "warp"];

const FILES: &[&str] = &["weft", "nginx", "h2o", "lighttpd", "caddy", "warp"];

/// And the floor, which has no files, but sends the same bytes.
const SMALL_FILE: &[&str] = &["weft", "nginx", "h2o", "lighttpd", "caddy", "warp", "epoll"];

/// Programs alone: for what Warp would need further libraries.
const PROGRAMS: &[&str] = &["weft", "nginx", "h2o", "lighttpd", "caddy"];

/// What Chromium sends.
const BROWSER: &[(&str, &str)] = &[
    ("Connection", "keep-alive"),
    ("sec-ch-ua", "\"Chromium\";v=\"140\", \"Not=A?Brand\";v=\"24\""),
    ("sec-ch-ua-mobile", "?0"),
    ("sec-ch-ua-platform", "\"Linux\""),
    ("Upgrade-Insecure-Requests", "1"),
    (
        "User-Agent",
        "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36",
    ),
    (
        "Accept",
        "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8",
    ),
    ("Sec-Fetch-Site", "none"),
    ("Sec-Fetch-Mode", "navigate"),
    ("Sec-Fetch-User", "?1"),
    ("Sec-Fetch-Dest", "document"),
    ("Accept-Encoding", "gzip, deflate, br, zstd"),
    ("Accept-Language", "en-GB,en;q=0.9"),
];

pub const fn http(path: &'static str) -> Ask {
    Ask { scheme: Scheme::Http, path, fields: &[] }
}

pub const fn wrk(connections: u32) -> Load {
    Load::Wrk(Wrk::new(connections))
}

const ALL: &[Workload] = &[
    Workload {
        name: "memory",
        title: "An answer of 151 bytes from memory",
        note: "64 connections that are kept; the request has no fields but `Host`.",
        peers: MEMORY,
        ask: http("/memory"),
        load: wrk(64),
        workers: Workers::One,
    },
    Workload {
        name: "browser",
        title: "The same, with a browser's fields",
        note: "64 connections; fourteen fields as Chromium sends them.",
        peers: MEMORY,
        ask: Ask { fields: BROWSER, ..http("/memory") },
        load: wrk(64),
        workers: Workers::One,
    },
    Workload {
        name: "pipelined",
        title: "The same, sixteen requests at a time",
        note: "64 connections; sixteen requests in one write, without fields.",
        peers: MEMORY,
        ask: http("/memory"),
        load: Load::Wrk(Wrk { pipelined: 16, ..Wrk::new(64) }),
        workers: Workers::One,
    },
    Workload {
        name: "seeds",
        title: "The seeds' own: 100,000 requests over 1,000 connections",
        note: "The file `index.html` of 151 bytes, asked for as `/`; connections are kept. The seeds' \
               weighttp is replaced by `h2load --h1`, with the same `-n 100000 -c 1000`. From one worker to as many as \
               there are cores for servers, each with its own core.",
        peers: FILES,
        ask: http("/"),
        load: Load::H2load(H2load { requests: Some(100_000), connections: 1_000, streams: 1 }),
        workers: Workers::UpToAll,
    },
    Workload {
        name: "file",
        title: "A file of 151 bytes",
        note: "64 connections; asked for by its name, so that nobody has to look for an index. The floor \
               sends the same bytes from memory.",
        peers: SMALL_FILE,
        ask: http("/index.html"),
        load: wrk(64),
        workers: Workers::One,
    },
    Workload {
        name: "file-16k",
        title: "A file of 16 KiB",
        note: "64 connections.",
        peers: FILES,
        ask: http("/16k.bin"),
        load: wrk(64),
        workers: Workers::One,
    },
    Workload {
        name: "file-full",
        title: "A file of 151 bytes, the server never idle",
        note: "As before, but loaded by a client that is faster than the servers. wrk is not: a server \
               that is faster than wrk rests in between, and pays for being woken.",
        peers: SMALL_FILE,
        ask: http("/index.html"),
        load: Load::Rush(Rush { connections: 64 }),
        workers: Workers::One,
    },
    Workload {
        name: "file-16k-full",
        title: "A file of 16 KiB, the server never idle",
        note: "64 connections.",
        peers: FILES,
        ask: http("/16k.bin"),
        load: Load::Rush(Rush { connections: 64 }),
        workers: Workers::One,
    },
    Workload {
        name: "file-1m",
        title: "A file of 1 MiB",
        note: "16 connections.",
        peers: FILES,
        ask: http("/1m.bin"),
        load: wrk(16),
        workers: Workers::One,
    },
    Workload {
        name: "file-100m",
        title: "A file of 100 MiB",
        note: "2 connections.",
        peers: FILES,
        ask: http("/100m.bin"),
        load: wrk(2),
        workers: Workers::One,
    },
    Workload {
        name: "churn",
        title: "A connection for each request",
        note: "64 connections at a time; each request says `Connection: close`. The answer is in memory.",
        peers: SERVERS,
        ask: Ask { fields: &[("Connection", "close")], ..http("/memory") },
        load: wrk(64),
        workers: Workers::One,
    },
    Workload {
        name: "latency",
        title: "One connection, one request at a time",
        note: "From memory. What counts is the latency.",
        peers: MEMORY,
        ask: http("/memory"),
        load: wrk(1),
        workers: Workers::One,
    },
    Workload {
        name: "latency-file",
        title: "One connection, one file of 16 KiB at a time",
        note: "Whoever sends head and body in two packets and lets Nagle's algorithm hold the second \
               is found here.",
        peers: FILES,
        ask: http("/16k.bin"),
        load: wrk(1),
        workers: Workers::One,
    },
    Workload {
        name: "idle",
        title: "15,000 idle connections",
        note: "They come from eight addresses, send one request each and then rest; memory per \
               connection is what the server grows by meanwhile. Then 64 active ones are measured beside \
               them. nginx makes its table of connections at start, which is not in the figure per \
               connection, but is in its memory.",
        peers: &["weft-lib", "hyper", "axum", "actix", "ntex", "nginx", "caddy", "warp"],
        ask: http("/memory"),
        load: Load::Idle { idle: 15_000, active: Wrk::new(64) },
        workers: Workers::One,
    },
    Workload {
        name: "slow-clients",
        title: "Beside 1,000 clients that send a byte a second",
        note: "An attack: each of them has a place and never finishes its head. What is measured is what \
               64 good connections get meanwhile.",
        peers: SERVERS,
        ask: http("/memory"),
        load: Load::SlowClients { slow: 1_000, active: Wrk::new(64) },
        workers: Workers::One,
    },
    Workload {
        name: "mixed",
        title: "One request of a hundred waits 10 ms",
        note: "64 connections. The slow handler sleeps; p50 is that of the others.",
        peers: &["weft-lib", "hyper", "axum", "axum-weft", "actix", "ntex", "may", "warp"],
        ask: http("/memory"),
        load: Load::Wrk(Wrk { slow: true, ..Wrk::new(64) }),
        workers: Workers::One,
    },
    Workload {
        name: "h2-memory",
        title: "HTTP/2: an answer from memory",
        note: "32 connections with 32 streams each, without TLS.",
        peers: &["weft-lib", "hyper", "axum", "nginx", "caddy", "warp"],
        ask: Ask { scheme: Scheme::H2c, ..http("/memory") },
        load: Load::H2load(H2load { requests: None, connections: 32, streams: 32 }),
        workers: Workers::One,
    },
    Workload {
        name: "h2-file",
        title: "HTTP/2: a file of 151 bytes",
        note: "32 connections with 32 streams each, without TLS.",
        peers: FILES,
        ask: Ask { scheme: Scheme::H2c, ..http("/index.html") },
        load: Load::H2load(H2load { requests: None, connections: 32, streams: 32 }),
        workers: Workers::One,
    },
    Workload {
        name: "tls-handshake",
        title: "TLS handshakes",
        note: "Full handshakes one after another, TLS 1.3, a certificate with P-256; one \"request\" is one \
               handshake. The key exchange is what client and server agree on: OpenSSL's client does not \
               offer the post-quantum one.",
        peers: PROGRAMS,
        ask: Ask { scheme: Scheme::Https, ..http("/index.html") },
        load: Load::Handshakes(Handshakes::Full),
        workers: Workers::One,
    },
    Workload {
        name: "tls-resumption",
        title: "TLS sessions that are resumed",
        note: "As before, but by TLS 1.2 and with the ticket or the session of the first handshake.",
        peers: PROGRAMS,
        ask: Ask { scheme: Scheme::Https, ..http("/index.html") },
        load: Load::Handshakes(Handshakes::Resumed),
        workers: Workers::One,
    },
    Workload {
        name: "h2-tls",
        title: "HTTP/2 over TLS: a file of 16 KiB",
        note: "16 connections with 8 streams each.",
        peers: PROGRAMS,
        ask: Ask { scheme: Scheme::Https, ..http("/16k.bin") },
        load: Load::H2load(H2load { requests: None, connections: 16, streams: 8 }),
        workers: Workers::One,
    },
    Workload {
        name: "tls-bulk",
        title: "TLS: a file of 1 MiB",
        note: "16 connections, TLS 1.3.",
        peers: PROGRAMS,
        ask: Ask { scheme: Scheme::Https, ..http("/1m.bin") },
        load: wrk(16),
        workers: Workers::One,
    },
    Workload {
        name: "proxy",
        title: "Passed on to an upstream",
        note: "64 connections; the upstream is the floor with epoll, on the cores for the load. The CPU time \
               is the proxy's.",
        peers: PROGRAMS,
        ask: http("/proxy/memory"),
        load: wrk(64),
        workers: Workers::One,
    },
    Workload {
        name: "compressed",
        title: "A text of 100 KiB in gzip",
        note: "64 connections. Weft and lighttpd keep what they have compressed, the others compress each \
               time. The levels are those by default.",
        peers: PROGRAMS,
        ask: Ask { fields: &[("Accept-Encoding", "gzip")], ..http("/text.txt") },
        load: wrk(64),
        workers: Workers::One,
    },
    Workload {
        name: "calls",
        title: "System calls: an answer from memory",
        note: "64 connections, with strace, which makes everything slow: nothing but the counts is of use.",
        peers: MEMORY,
        ask: http("/memory"),
        load: Load::Strace(Wrk::new(64)),
        workers: Workers::One,
    },
    Workload {
        name: "calls-file",
        title: "System calls: a file of 16 KiB",
        note: "64 connections, with strace.",
        peers: FILES,
        ask: http("/16k.bin"),
        load: Load::Strace(Wrk::new(64)),
        workers: Workers::One,
    },
    Workload {
        name: "axum",
        title: "axum on Weft, beside axum::serve",
        note: "The same router, with a browser's fields; 64 connections.",
        peers: &["axum-weft", "axum"],
        ask: Ask { fields: BROWSER, ..http("/memory") },
        load: wrk(64),
        workers: Workers::One,
    },
    Workload {
        name: "two-workers",
        title: "Two workers against one",
        note: "From memory, 64 connections, on the same two cores. The CPU time of a request should be the \
               same with two. Where the servers have one core only, they run on all cores in this workload, \
               beside the load.",
        peers: &["weft-lib", "hyper", "actix", "nginx"],
        ask: http("/memory"),
        load: wrk(64),
        workers: Workers::OneAndTwo,
    },
];

/// What is measured if nothing else is said.
pub fn usual() -> impl Iterator<Item = &'static Workload> {
    ALL.iter()
}

/// With the experiments.
pub fn all() -> impl Iterator<Item = &'static Workload> {
    ALL.iter().chain(experiments::WORKLOADS)
}

impl Workload {
    /// On how many cores so many workers run: with two against one, on two in both cases.
    pub fn cores(&self, workers: usize) -> usize {
        match self.workers {
            Workers::OneAndTwo => 2,
            Workers::One | Workers::UpToAll => workers,
        }
    }

    pub fn worker_counts(&self, server_cpus: usize) -> Vec<usize> {
        match self.workers {
            Workers::One => vec![1],
            Workers::OneAndTwo => vec![1, 2],
            Workers::UpToAll => (1..=server_cpus).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::peer;

    #[test]
    fn workloads_have_names_of_their_own_and_peers_that_there_are() {
        let peers: BTreeSet<&str> = peer::all().map(|peer| peer.name).collect();
        assert_eq!(peers.len(), peer::all().count());
        let names: BTreeSet<&str> = all().map(|workload| workload.name).collect();
        assert_eq!(names.len(), all().count());
        for workload in all() {
            let unknown: Vec<_> =
                workload.peers.iter().filter(|peer| !peers.contains(*peer)).collect();
            assert!(unknown.is_empty(), "{}: {unknown:?}", workload.name);
        }
    }
}
