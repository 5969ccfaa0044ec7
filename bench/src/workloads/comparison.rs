//! The workloads of the comparison.

use crate::load::{H2load, Handshakes, Load, Saturate, Wrk};
use crate::request::{RequestSpec, Scheme, http};
use crate::workload::{Workers, Workload, wrk};

/// Servers that respond from memory and support all measured features of HTTP/1.
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

/// The same without the lower bounds and may, which have no timeouts and never close a connection.
const SERVERS: &[&str] = &["weft-lib", "hyper", "axum", "actix", "ntex", "nginx", "caddy", "warp"];

const FILES: &[&str] = &["weft", "nginx", "h2o", "lighttpd", "caddy", "warp"];

/// The same, and the lower bound, which sends the same bytes from memory.
const SMALL_FILE: &[&str] = &["weft", "nginx", "h2o", "lighttpd", "caddy", "warp", "epoll"];

/// Programs only: for features that need additional libraries in Warp.
const PROGRAMS: &[&str] = &["weft", "nginx", "h2o", "lighttpd", "caddy"];

/// The header fields of Chromium.
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

pub const WORKLOADS: &[Workload] = &[
    Workload {
        name: "memory",
        title: "A response of 151 bytes from memory",
        note: "64 persistent connections; the request has no fields except `Host`.",
        peers: MEMORY,
        request: http("/memory"),
        load: wrk(64),
        workers: Workers::One,
    },
    Workload {
        name: "browser",
        title: "The same, with the header fields of a browser",
        note: "64 connections; the sixteen fields of Chromium. No two of 4,096 requests have the same query, \
               referrer and cookie.",
        peers: MEMORY,
        request: RequestSpec { fields: BROWSER, varies: true, ..http("/memory") },
        load: wrk(64),
        workers: Workers::One,
    },
    Workload {
        name: "pipelined",
        title: "The same, pipelined by sixteen",
        note: "64 connections; sixteen requests without fields in one write.",
        peers: MEMORY,
        request: http("/memory"),
        load: Load::Wrk(Wrk { pipelined: 16, ..Wrk::new(64) }),
        workers: Workers::One,
    },
    Workload {
        name: "seeds",
        title: "The original benchmark: 100,000 requests over 1,000 connections",
        note: "The file `index.html` of 151 bytes, requested as `/` over persistent connections. The \
               original weighttp is replaced by `h2load --h1`, with the same `-n 100000 -c 1000`. From one worker to \
               the number of CPUs for servers, each worker with its own CPU.",
        peers: FILES,
        request: http("/"),
        load: Load::H2load(H2load { requests: Some(100_000), connections: 1_000, streams: 1 }),
        workers: Workers::UpToAll,
    },
    Workload {
        name: "file",
        title: "A file of 151 bytes",
        note: "64 connections; requested by name, so that no server looks up an index file. The lower bound \
               sends the same bytes from memory.",
        peers: SMALL_FILE,
        request: http("/index.html"),
        load: wrk(64),
        workers: Workers::One,
    },
    Workload {
        name: "file-16k",
        title: "A file of 16 KiB",
        note: "64 connections.",
        peers: FILES,
        request: http("/16k.bin"),
        load: wrk(64),
        workers: Workers::One,
    },
    Workload {
        name: "file-full",
        title: "A file of 151 bytes, the server never idle",
        note: "As before, but with a load generator that is faster than the servers. wrk is not: a server \
               that is faster than wrk becomes idle in between, and pays for the wakeups.",
        peers: SMALL_FILE,
        request: http("/index.html"),
        load: Load::Saturate(Saturate { connections: 64 }),
        workers: Workers::One,
    },
    Workload {
        name: "file-16k-full",
        title: "A file of 16 KiB, the server never idle",
        note: "64 connections.",
        peers: FILES,
        request: http("/16k.bin"),
        load: Load::Saturate(Saturate { connections: 64 }),
        workers: Workers::One,
    },
    Workload {
        name: "file-1m",
        title: "A file of 1 MiB",
        note: "16 connections.",
        peers: FILES,
        request: http("/1m.bin"),
        load: wrk(16),
        workers: Workers::One,
    },
    Workload {
        name: "file-100m",
        title: "A file of 100 MiB",
        note: "2 connections.",
        peers: FILES,
        request: http("/100m.bin"),
        load: wrk(2),
        workers: Workers::One,
    },
    Workload {
        name: "churn",
        title: "A connection for each request",
        note: "64 connections at a time; each request has `Connection: close`. The response is in memory.",
        peers: SERVERS,
        request: RequestSpec { fields: &[("Connection", "close")], ..http("/memory") },
        load: wrk(64),
        workers: Workers::One,
    },
    Workload {
        name: "latency",
        title: "One connection, one request at a time",
        note: "From memory. The relevant metric is the latency.",
        peers: MEMORY,
        request: http("/memory"),
        load: wrk(1),
        workers: Workers::One,
    },
    Workload {
        name: "latency-file",
        title: "One connection, one file of 16 KiB at a time",
        note: "Shows servers that send head and body in two packets and let Nagle's algorithm delay the \
               second.",
        peers: FILES,
        request: http("/16k.bin"),
        load: wrk(1),
        workers: Workers::One,
    },
    Workload {
        name: "idle",
        title: "15,000 idle connections",
        note: "The connections come from eight addresses, send one request each and then stay idle; memory \
               per connection is the growth of the server during that. Then 64 active connections are measured \
               in addition. nginx allocates its connection table at start, which is not included in the figure \
               per connection, but in its memory.",
        peers: &["weft-lib", "hyper", "axum", "actix", "ntex", "nginx", "caddy", "warp"],
        request: http("/memory"),
        load: Load::Idle { idle: 15_000, active: Wrk::new(64) },
        workers: Workers::One,
    },
    Workload {
        name: "slow-clients",
        title: "With 1,000 clients that send one byte per second",
        note: "A slowloris attack: each client occupies a connection and never finishes its head. The \
               figures are those of 64 regular connections meanwhile.",
        peers: SERVERS,
        request: http("/memory"),
        load: Load::SlowClients { slow: 1_000, active: Wrk::new(64) },
        workers: Workers::One,
    },
    Workload {
        name: "mixed",
        title: "One of a hundred requests takes 10 ms",
        note: "64 connections. The slow handler sleeps; p50 is the latency of the others.",
        peers: &["weft-lib", "hyper", "axum", "axum-weft", "actix", "ntex", "may", "warp"],
        request: http("/memory"),
        load: Load::Wrk(Wrk { slow: true, ..Wrk::new(64) }),
        workers: Workers::One,
    },
    Workload {
        name: "h2-memory",
        title: "HTTP/2: a response from memory",
        note: "32 connections with 32 streams each, without TLS.",
        peers: &["weft-lib", "hyper", "axum", "nginx", "caddy", "warp"],
        request: RequestSpec { scheme: Scheme::H2c, ..http("/memory") },
        load: Load::H2load(H2load { requests: None, connections: 32, streams: 32 }),
        workers: Workers::One,
    },
    Workload {
        name: "h2-file",
        title: "HTTP/2: a file of 151 bytes",
        note: "32 connections with 32 streams each, without TLS.",
        peers: FILES,
        request: RequestSpec { scheme: Scheme::H2c, ..http("/index.html") },
        load: Load::H2load(H2load { requests: None, connections: 32, streams: 32 }),
        workers: Workers::One,
    },
    Workload {
        name: "tls-handshake",
        title: "TLS handshakes",
        note: "Sequential full handshakes, TLS 1.3, a P-256 certificate; one \"request\" is one handshake. \
               The key exchange is negotiated: OpenSSL's client does not offer the post-quantum one.",
        peers: PROGRAMS,
        request: RequestSpec { scheme: Scheme::Https, ..http("/index.html") },
        load: Load::Handshakes(Handshakes::Full),
        workers: Workers::One,
    },
    Workload {
        name: "tls-resumption",
        title: "TLS session resumption",
        note: "As before, but with TLS 1.2 and the ticket or the session of the first handshake.",
        peers: PROGRAMS,
        request: RequestSpec { scheme: Scheme::Https, ..http("/index.html") },
        load: Load::Handshakes(Handshakes::Resumed),
        workers: Workers::One,
    },
    Workload {
        name: "h2-tls",
        title: "HTTP/2 over TLS: a file of 16 KiB",
        note: "16 connections with 8 streams each.",
        peers: PROGRAMS,
        request: RequestSpec { scheme: Scheme::Https, ..http("/16k.bin") },
        load: Load::H2load(H2load { requests: None, connections: 16, streams: 8 }),
        workers: Workers::One,
    },
    Workload {
        name: "tls-bulk",
        title: "TLS: a file of 1 MiB",
        note: "16 connections, TLS 1.3.",
        peers: PROGRAMS,
        request: RequestSpec { scheme: Scheme::Https, ..http("/1m.bin") },
        load: wrk(16),
        workers: Workers::One,
    },
    Workload {
        name: "proxy",
        title: "Reverse proxy",
        note: "64 connections; the upstream is the lower bound `epoll`, on the CPUs of the load. The CPU time \
               is that of the proxy.",
        peers: PROGRAMS,
        request: http("/proxy/memory"),
        load: wrk(64),
        workers: Workers::One,
    },
    Workload {
        name: "compressed",
        title: "A text of 100 KiB in gzip",
        note: "64 connections. Weft and lighttpd cache compressed files, the others compress each \
               response. Compression levels are the defaults.",
        peers: PROGRAMS,
        request: RequestSpec { fields: &[("Accept-Encoding", "gzip")], ..http("/text.txt") },
        load: wrk(64),
        workers: Workers::One,
    },
    Workload {
        name: "calls",
        title: "System calls: a response from memory",
        note: "64 connections, with strace, which slows the servers down: only the counts are meaningful.",
        peers: MEMORY,
        request: http("/memory"),
        load: Load::Strace(Wrk::new(64)),
        workers: Workers::One,
    },
    Workload {
        name: "calls-file",
        title: "System calls: a file of 16 KiB",
        note: "64 connections, with strace.",
        peers: FILES,
        request: http("/16k.bin"),
        load: Load::Strace(Wrk::new(64)),
        workers: Workers::One,
    },
    Workload {
        name: "axum",
        title: "axum on Weft and on axum::serve",
        note: "The same router, with the header fields of a browser; 64 connections; the requests differ as those of \
               `browser`.",
        peers: &["axum-weft", "axum"],
        request: RequestSpec { fields: BROWSER, varies: true, ..http("/memory") },
        load: wrk(64),
        workers: Workers::One,
    },
    Workload {
        name: "two-workers",
        title: "Two workers and one",
        note: "From memory, 64 connections, on the same two CPUs. The CPU time per request should not depend \
               on the number of workers. If there is only one CPU for servers, they run on all CPUs in this \
               workload, together with the load.",
        peers: &["weft-lib", "hyper", "actix", "nginx"],
        request: http("/memory"),
        load: wrk(64),
        workers: Workers::OneAndTwo,
    },
];
