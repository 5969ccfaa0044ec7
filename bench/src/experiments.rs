//! The peers and workloads of the experiments that compare servers. `docs/experiments.md` describes
//! them.

use crate::load::{Load, Wrk};
use crate::peer::{Origin, Peer};
use crate::workload::{RequestSpec, Workers, Workload, http, wrk};

const fn experiment(
    name: &'static str,
    command: &'static [&'static str],
    note: &'static str,
) -> Peer {
    Peer { name, origin: Origin::Crate("weft-experiments", "tokio"), command, config: None, note }
}

pub const PEERS: &[Peer] = &[
    experiment(
        "strings",
        &["@bin@/ladder", "127.0.0.1:@port@", "@workers@", "strings"],
        "a thread per connection, lines, formatted strings",
    ),
    experiment(
        "bytes",
        &["@bin@/ladder", "127.0.0.1:@port@", "@workers@", "bytes"],
        "a thread per connection, bytes",
    ),
    experiment(
        "callbacks",
        &["@bin@/ladder", "127.0.0.1:@port@", "@workers@", "callbacks"],
        "one thread, epoll, a callback per event",
    ),
    experiment(
        "strings-keep",
        &["@bin@/ladder", "127.0.0.1:@port@", "@workers@", "strings-keep"],
        "the same, with persistent connections",
    ),
    experiment(
        "bytes-keep",
        &["@bin@/ladder", "127.0.0.1:@port@", "@workers@", "bytes-keep"],
        "the same, with persistent connections",
    ),
    experiment(
        "callbacks-keep",
        &["@bin@/ladder", "127.0.0.1:@port@", "@workers@", "callbacks-keep"],
        "the same, with persistent connections",
    ),
    experiment(
        "wait",
        &["@bin@/schedule", "127.0.0.1:@port@", "@workers@", "wait"],
        "waits until the socket is readable before each read",
    ),
    experiment(
        "yield",
        &["@bin@/schedule", "127.0.0.1:@port@", "@workers@", "yield"],
        "yields to other tasks, then reads",
    ),
    experiment(
        "read",
        &["@bin@/schedule", "127.0.0.1:@port@", "@workers@", "read"],
        "reads immediately after the send",
    ),
    experiment(
        "one-packet",
        &["@bin@/packets", "127.0.0.1:@port@", "@workers@", "one"],
        "head and body in one system call",
    ),
    experiment(
        "two-packets",
        &["@bin@/packets", "127.0.0.1:@port@", "@workers@", "two"],
        "head and body in two system calls",
    ),
    experiment(
        "two-nodelay",
        &["@bin@/packets", "127.0.0.1:@port@", "@workers@", "two-nodelay"],
        "the same, with TCP_NODELAY",
    ),
    experiment(
        "sweeper",
        &["@bin@/timers", "127.0.0.1:@port@", "@workers@", "sweeper"],
        "one store per request, and a task that checks all connections",
    ),
    experiment(
        "timer",
        &["@bin@/timers", "127.0.0.1:@port@", "@workers@", "timer"],
        "a timer around each read and each write",
    ),
    experiment(
        "no-timeout",
        &["@bin@/timers", "127.0.0.1:@port@", "@workers@", "none"],
        "no timeout",
    ),
    experiment(
        "contents",
        &["@bin@/files", "127.0.0.1:@port@", "@workers@", "contents", "@site@"],
        "Weft; contents of small files are cached",
    ),
    experiment(
        "descriptor",
        &["@bin@/files", "127.0.0.1:@port@", "@workers@", "descriptor", "@site@"],
        "Weft; the open file is cached",
    ),
    experiment(
        "nothing",
        &["@bin@/files", "127.0.0.1:@port@", "@workers@", "nothing", "@site@"],
        "Weft; nothing is cached, the file is opened for each request",
    ),
];

const SCHEDULES: &[&str] = &["wait", "yield", "read", "weft-lib"];
/// A load so light that no request waits for another one.
const LIGHT: Wrk = Wrk { has_pause: true, ..Wrk::new(8) };
const FILE_CACHES: &[&str] = &["contents", "descriptor", "nothing"];

pub const WORKLOADS: &[Workload] = &[
    Workload {
        name: "ladder",
        title: "Simple servers, a connection per request",
        note: "64 connections at a time, as in the original measurement.",
        peers: &["weft-lib", "strings", "bytes", "callbacks"],
        request: RequestSpec { fields: &[("Connection", "close")], ..http("/memory") },
        load: wrk(64),
        workers: Workers::One,
    },
    Workload {
        name: "ladder-keep",
        title: "Simple servers, persistent connections",
        note: "64 connections.",
        peers: &["weft-lib", "strings-keep", "bytes-keep", "callbacks-keep"],
        request: http("/memory"),
        load: wrk(64),
        workers: Workers::One,
    },
    Workload {
        name: "schedule",
        title: "Scheduling after the send, full load",
        note: "64 connections.",
        peers: SCHEDULES,
        request: http("/memory"),
        load: wrk(64),
        workers: Workers::One,
    },
    Workload {
        name: "schedule-calls",
        title: "Scheduling after the send, full load: system calls",
        note: "64 connections, with strace.",
        peers: SCHEDULES,
        request: http("/memory"),
        load: Load::Strace(Wrk::new(64)),
        workers: Workers::One,
    },
    Workload {
        name: "schedule-light",
        title: "Scheduling after the send, light load",
        note: "Eight connections, each with a pause of 1 ms before each request.",
        peers: SCHEDULES,
        request: http("/memory"),
        load: Load::Wrk(LIGHT),
        workers: Workers::One,
    },
    Workload {
        name: "schedule-light-calls",
        title: "Scheduling after the send, light load: system calls",
        note: "Eight connections, each with a pause of 1 ms before each request; with strace.",
        peers: SCHEDULES,
        request: http("/memory"),
        load: Load::Strace(LIGHT),
        workers: Workers::One,
    },
    Workload {
        name: "packets",
        title: "Head and body in one packet or two",
        note: "One connection.",
        peers: &["one-packet", "two-packets", "two-nodelay"],
        request: http("/memory"),
        load: wrk(1),
        workers: Workers::One,
    },
    Workload {
        name: "timers",
        title: "Timers per request or one sweeper",
        note: "64 connections.",
        peers: &["sweeper", "timer", "no-timeout"],
        request: http("/memory"),
        load: wrk(64),
        workers: Workers::One,
    },
    Workload {
        name: "fd-cache",
        title: "Caching a file of 151 bytes",
        note: "64 connections.",
        peers: FILE_CACHES,
        request: http("/index.html"),
        load: wrk(64),
        workers: Workers::One,
    },
    Workload {
        name: "fd-cache-calls",
        title: "Caching a file of 151 bytes: system calls",
        note: "64 connections, with strace.",
        peers: FILE_CACHES,
        request: http("/index.html"),
        load: Load::Strace(Wrk::new(64)),
        workers: Workers::One,
    },
];
