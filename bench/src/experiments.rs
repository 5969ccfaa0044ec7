//! The seeds' experiments, as far as they compare servers: further peers and workloads.
//! `docs/experiments.md` says what each is about.

use crate::load::{Load, Wrk};
use crate::peer::{Origin, Peer};
use crate::workload::{Ask, Workers, Workload, http, wrk};

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
        "the same, and connections are kept",
    ),
    experiment(
        "bytes-keep",
        &["@bin@/ladder", "127.0.0.1:@port@", "@workers@", "bytes-keep"],
        "the same, and connections are kept",
    ),
    experiment(
        "callbacks-keep",
        &["@bin@/ladder", "127.0.0.1:@port@", "@workers@", "callbacks-keep"],
        "the same, and connections are kept",
    ),
    experiment(
        "wait",
        &["@bin@/schedule", "127.0.0.1:@port@", "@workers@", "wait"],
        "no read before the kernel says that there is something",
    ),
    experiment(
        "yield",
        &["@bin@/schedule", "127.0.0.1:@port@", "@workers@", "yield"],
        "a turn for the others, and then a read",
    ),
    experiment(
        "read",
        &["@bin@/schedule", "127.0.0.1:@port@", "@workers@", "read"],
        "a read right after the send",
    ),
    experiment(
        "one-packet",
        &["@bin@/packets", "127.0.0.1:@port@", "@workers@", "one"],
        "head and body in one call",
    ),
    experiment(
        "two-packets",
        &["@bin@/packets", "127.0.0.1:@port@", "@workers@", "two"],
        "head and body in two calls",
    ),
    experiment(
        "two-nodelay",
        &["@bin@/packets", "127.0.0.1:@port@", "@workers@", "two-nodelay"],
        "the same, with TCP_NODELAY",
    ),
    experiment(
        "sweeper",
        &["@bin@/timers", "127.0.0.1:@port@", "@workers@", "sweeper"],
        "a store for each request, and a task that looks at all connections",
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
        "Weft; the contents of small files are kept",
    ),
    experiment(
        "descriptor",
        &["@bin@/files", "127.0.0.1:@port@", "@workers@", "descriptor", "@site@"],
        "Weft; the file is kept open",
    ),
    experiment(
        "nothing",
        &["@bin@/files", "127.0.0.1:@port@", "@workers@", "nothing", "@site@"],
        "Weft; nothing is kept, and the file opened for each request",
    ),
];

const SCHEDULES: &[&str] = &["wait", "yield", "read", "weft-lib"];
/// Light enough that no request waits behind another one.
const LIGHT: Wrk = Wrk { rests: true, ..Wrk::new(8) };
const KEPT: &[&str] = &["contents", "descriptor", "nothing"];

pub const WORKLOADS: &[Workload] = &[
    Workload {
        name: "ladder",
        title: "The ladder of simple servers",
        note: "A connection for each request, as the ladder was measured; 64 at a time.",
        peers: &["weft-lib", "strings", "bytes", "callbacks"],
        ask: Ask { fields: &[("Connection", "close")], ..http("/memory") },
        load: wrk(64),
        workers: Workers::One,
    },
    Workload {
        name: "ladder-keep",
        title: "The ladder, with connections that are kept",
        note: "64 connections.",
        peers: &["weft-lib", "strings-keep", "bytes-keep", "callbacks-keep"],
        ask: http("/memory"),
        load: wrk(64),
        workers: Workers::One,
    },
    Workload {
        name: "schedule",
        title: "What comes behind the send, under full load",
        note: "64 connections.",
        peers: SCHEDULES,
        ask: http("/memory"),
        load: wrk(64),
        workers: Workers::One,
    },
    Workload {
        name: "schedule-calls",
        title: "What comes behind the send, under full load: system calls",
        note: "64 connections, with strace.",
        peers: SCHEDULES,
        ask: http("/memory"),
        load: Load::Strace(Wrk::new(64)),
        workers: Workers::One,
    },
    Workload {
        name: "schedule-light",
        title: "What comes behind the send, under light load",
        note: "Eight connections, each of which rests for a millisecond before its next request.",
        peers: SCHEDULES,
        ask: http("/memory"),
        load: Load::Wrk(LIGHT),
        workers: Workers::One,
    },
    Workload {
        name: "schedule-light-calls",
        title: "What comes behind the send, under light load: system calls",
        note: "Eight connections, each of which rests for a millisecond before its next request; with strace.",
        peers: SCHEDULES,
        ask: http("/memory"),
        load: Load::Strace(LIGHT),
        workers: Workers::One,
    },
    Workload {
        name: "packets",
        title: "Head and body in one packet, and in two",
        note: "One connection.",
        peers: &["one-packet", "two-packets", "two-nodelay"],
        ask: http("/memory"),
        load: wrk(1),
        workers: Workers::One,
    },
    Workload {
        name: "timers",
        title: "A timer per request, and one sweeper",
        note: "64 connections.",
        peers: &["sweeper", "timer", "no-timeout"],
        ask: http("/memory"),
        load: wrk(64),
        workers: Workers::One,
    },
    Workload {
        name: "fd-cache",
        title: "What is kept of a file of 151 bytes",
        note: "64 connections.",
        peers: KEPT,
        ask: http("/index.html"),
        load: wrk(64),
        workers: Workers::One,
    },
    Workload {
        name: "fd-cache-calls",
        title: "What is kept of a file of 151 bytes: system calls",
        note: "64 connections, with strace.",
        peers: KEPT,
        ask: http("/index.html"),
        load: Load::Strace(Wrk::new(64)),
        workers: Workers::One,
    },
];
