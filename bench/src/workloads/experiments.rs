//! The workloads of the experiments that compare servers. `docs/experiments.md` describes them.

use crate::load::{Load, Wrk};
use crate::request::{RequestSpec, http};
use crate::workload::{Workers, Workload, wrk};

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
