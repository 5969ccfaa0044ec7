//! The servers of the experiments. `docs/experiments.md` describes them.

use crate::peer::{Origin, Peer};

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
