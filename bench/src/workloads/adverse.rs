//! The workloads of `--adverse`: loads that are not 64 kept connections with small responses.

use crate::load::{H2load, Handshakes, Load, Pace, Paths, Saturate, Uploads, Varied, Wrk};
use crate::request::{RequestSpec, Scheme, http};
use crate::site::FileSet;
use crate::workload::{Workers, Workload, wrk};

const PROGRAMS: &[&str] = &["weft", "nginx", "h2o", "caddy"];
const PROXIES: &[&str] = &["weft", "nginx", "haproxy", "h2o", "caddy"];
/// Servers that are configured as proxies of gRPC and FastCGI.
const GATEWAYS: &[&str] = &["weft", "nginx"];
const AXUM: &[&str] = &["axum-weft", "axum"];

/// With the handlers on the runtime of the caller.
const AXUM_RUNTIME: &[&str] = &["axum-weft-runtime", "axum-runtime"];
const CLOSE: &[(&str, &str)] = &[("Connection", "close")];
const GZIP: &[(&str, &str)] = &[("Accept-Encoding", "gzip")];

/// More files than the caches of most servers have entries.
pub const MANY: FileSet = FileSet { folder: "many", count: 10_000, bytes: 1_000 };
/// More bytes than the server may have memory.
pub const COLD: FileSet = FileSet { folder: "cold", count: 256, bytes: 1 << 20 };
const COLD_MEMORY: u64 = 128 << 20;

const CLOSED: Varied = Varied { kept: 64, fresh: 0, paths: Paths::One, pace: Pace::Closed };

const fn workload(
    name: &'static str,
    title: &'static str,
    note: &'static str,
    peers: &'static [&'static str],
    request: RequestSpec,
    load: Load,
) -> Workload {
    Workload { name, title, note, peers, request, load, workers: Workers::One }
}

pub const WORKLOADS: &[Workload] = &[
    workload(
        "churn-file",
        "A connection for each request: a file of 151 bytes",
        "64 connections at a time; each request has `Connection: close`.",
        PROGRAMS,
        RequestSpec { fields: CLOSE, ..http("/index.html") },
        wrk(64),
    ),
    workload(
        "churn-memory",
        "A connection for each request: a response of the configuration",
        "The same, from memory.",
        &["weft", "nginx", "caddy"],
        RequestSpec { fields: CLOSE, ..http("/memory") },
        wrk(64),
    ),
    workload(
        "churn-tls",
        "A TLS 1.3 handshake and a request",
        "Sequential connections; a P-256 certificate.",
        PROGRAMS,
        RequestSpec { scheme: Scheme::Https, ..http("/index.html") },
        Load::Handshakes(Handshakes::WithRequest),
    ),
    workload(
        "mixed-connections",
        "32 kept connections and 32 that are new for each request",
        "A file of 151 bytes.",
        PROGRAMS,
        http("/index.html"),
        Load::Varied(Varied { kept: 32, fresh: 32, ..CLOSED }),
    ),
    workload(
        "many-files",
        "10,000 different files of 1,000 bytes",
        "64 connections. The caches have their default sizes, and that of nginx 20,000 entries.",
        PROGRAMS,
        http("/index.html"),
        Load::Varied(Varied { paths: Paths::Of(&MANY), ..CLOSED }),
    ),
    workload(
        "cold-files",
        "256 files of 1 MiB in 128 MiB of memory",
        "16 connections. The files are removed from the page cache before, and a memory cgroup limits the \
         server with its part of the page cache.",
        PROGRAMS,
        http("/index.html"),
        Load::Cold(Varied { kept: 16, paths: Paths::Of(&COLD), ..CLOSED }, &COLD, COLD_MEMORY),
    ),
    workload(
        "idle-18000",
        "18,000 idle connections and 64 active ones",
        "As the workload `idle`.",
        &["weft", "nginx", "h2o", "caddy"],
        http("/index.html"),
        Load::Idle { idle: 18_000, active: Wrk::new(64) },
    ),
    workload(
        "slow-readers",
        "200 slow readers beside 64 fast connections",
        "Each slow reader takes 80 KiB per second of a file of 100 MiB. The figures are those of the fast \
         connections, which request a file of 151 bytes.",
        PROGRAMS,
        http("/index.html"),
        Load::SlowReaders { slow: 200, path: "/100m.bin", active: Wrk::new(64) },
    ),
    workload(
        "download-100m",
        "A file of 100 MiB",
        "2 connections.",
        PROGRAMS,
        http("/100m.bin"),
        wrk(2),
    ),
    workload(
        "upload",
        "Uploads of 1 GiB",
        "One after the other; the application counts the bytes.",
        &["weft-lib", "hyper"],
        http("/upload"),
        Load::Uploads(Uploads { bytes: 1 << 30 }),
    ),
    workload(
        "proxy-upload",
        "Uploads of 1 GiB through the proxy",
        "The proxies do not buffer the request (nginx: `proxy_request_buffering off`). The upstream is \
         `weft-lib`.",
        PROGRAMS,
        http("/proxy/upload"),
        Load::Uploads(Uploads { bytes: 1 << 30 }),
    ),
    workload(
        "proxy-small",
        "151 bytes through the proxy",
        "64 connections; the upstream is the lower bound `epoll`.",
        PROXIES,
        http("/proxy/memory"),
        wrk(64),
    ),
    workload(
        "proxy-16k",
        "16 KiB through the proxy",
        "64 connections. The upstream is `weft-lib`.",
        PROXIES,
        http("/proxy/16k.bin"),
        wrk(64),
    ),
    workload(
        "proxy-1m",
        "1 MiB through the proxy",
        "16 connections. The upstream is `weft-lib`.",
        PROXIES,
        http("/proxy/1m.bin"),
        wrk(16),
    ),
    workload(
        "compress",
        "A text of 100 KiB, compressed for each response",
        "16 connections. The proxies compress the response of an upstream, with their default levels.",
        PROGRAMS,
        RequestSpec { fields: GZIP, ..http("/proxy/text.txt") },
        wrk(16),
    ),
    workload(
        "compress-3",
        "The same, at level 3 of gzip",
        "nginx has `gzip_comp_level 3`, Weft `gzip_level = 3`.",
        &["weft", "nginx"],
        RequestSpec { fields: GZIP, ..http("/proxy/level-3/text.txt") },
        wrk(16),
    ),
    workload(
        "json",
        "Twenty records in JSON",
        "64 connections; serialized for each request by serde_json.",
        &["weft-lib", "hyper", "axum", "actix"],
        http("/json"),
        wrk(64),
    ),
    workload(
        "websocket",
        "WebSocket messages",
        "64 connections. Each returns messages of 100 bytes.",
        &["weft-lib", "websocket", "actix"],
        http("/echo"),
        Load::Echo { connections: 64 },
    ),
    workload(
        "grpc",
        "A unary gRPC method",
        "tonic's service; 16 connections with 16 streams each.",
        &["grpc-weft", "grpc-tonic"],
        RequestSpec { scheme: Scheme::H2c, ..http("/bench.Echo/Unary") },
        Load::Grpc(H2load { requests: None, connections: 16, streams: 16 }),
    ),
    workload(
        "proxy-grpc",
        "A unary gRPC method through the proxy",
        "A message of 57 bytes in both directions; 8 connections with 4 streams each. The upstream speaks \
         HTTP/2 without TLS.",
        GATEWAYS,
        RequestSpec { scheme: Scheme::H2c, ..http("/proxy/grpc/Unary") },
        Load::Grpc(H2load { requests: None, connections: 8, streams: 4 }),
    ),
    workload(
        "proxy-grpc-stream",
        "A gRPC stream of 1,000 messages through the proxy",
        "Messages of 57 bytes in a DATA frame each, which the upstream has ready; 8 connections with 4 \
         streams each. The CPU time is that of a stream.",
        GATEWAYS,
        RequestSpec { scheme: Scheme::H2c, ..http("/proxy/grpc/Stream") },
        Load::Grpc(H2load { requests: None, connections: 8, streams: 4 }),
    ),
    workload(
        "proxy-fastcgi",
        "FastCGI: a canned response of 151 bytes",
        "64 connections; those of the application server are kept.",
        GATEWAYS,
        http("/proxy/fastcgi"),
        wrk(64),
    ),
    workload(
        "axum-hello",
        "axum: a page of 151 bytes",
        "64 connections; the request has no fields except `Host`.",
        AXUM,
        http("/memory"),
        wrk(64),
    ),
    workload(
        "axum-hello-full",
        "axum: a page of 151 bytes, by a client that is faster than the servers",
        "64 connections; the server always has work.",
        AXUM,
        http("/memory"),
        Load::Saturate(Saturate { connections: 64 }),
    ),
    workload(
        "axum-runtime",
        "axum: a page of 151 bytes, handlers on the caller's runtime",
        "64 connections; the request has no fields except `Host`.",
        AXUM_RUNTIME,
        http("/memory"),
        wrk(64),
    ),
    workload(
        "axum-json",
        "axum: JSON in both directions",
        "A document of 100 bytes is parsed by axum's `Json` and returned; 64 connections.",
        AXUM,
        http("/document"),
        Load::Json(H2load { requests: None, connections: 64, streams: 1 }),
    ),
    workload(
        "axum-websocket",
        "axum: WebSocket messages",
        "64 connections. Each returns messages of 100 bytes, by axum's `WebSocketUpgrade`.",
        AXUM,
        http("/echo"),
        Load::Echo { connections: 64 },
    ),
    workload(
        "axum-events",
        "axum: events for 1,000 clients",
        "Each client receives ten events per second. The CPU time is that of an event.",
        AXUM,
        http("/events"),
        Load::Events { clients: 1_000 },
    ),
    workload(
        "half-load",
        "Latency at half load",
        "64 connections, an open loop of 30,000 requests per second for a file of 151 bytes. The latency \
         counts from the time at which a request is due.",
        PROGRAMS,
        http("/index.html"),
        Load::Varied(Varied { pace: Pace::Open(30_000), ..CLOSED }),
    ),
];
