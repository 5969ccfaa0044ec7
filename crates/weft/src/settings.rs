//! Every limit and timeout, one plain struct.

use std::net::SocketAddr;
use std::time::Duration;

use crate::proto::proxy_protocol::Network;

/// The limits and clocks of a server. The defaults are fit for the open Internet.
///
/// Change what you need and take the rest from [`Default`]:
///
/// ```
/// use std::time::Duration;
/// let settings = weft::Settings {
///     max_body_bytes: 100 << 20,
///     idle_timeout: Duration::from_secs(15),
///     ..Default::default()
/// };
/// # let _ = settings;
/// ```
///
/// Clocks are kept by one sweeper per worker: they end up to half of the shortest of them
/// late, one second at most, and never early. While the event loop stands still, because an
/// application blocks it, they do, too. [`Duration::MAX`] turns one off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The longest request line, in bytes without its CRLF; longer: 414.
    ///
    /// Default 8,192, the least that RFC 9112 §3 recommends; at most 65,000.
    pub max_request_line_bytes: usize,

    /// The largest head (request line and fields), in bytes; larger: 431.
    ///
    /// Default 16,384: room for a browser's cookies. At most 65,000.
    pub max_head_bytes: usize,

    /// The most fields in a head or a trailer section; more: 431.
    ///
    /// Default 100, as nginx and Apache.
    pub max_fields: usize,

    /// The largest trailer section of a chunked body, in bytes; larger: 400.
    ///
    /// Default 8,192; at most 65,000.
    pub max_trailer_bytes: usize,

    /// The largest request body, in bytes as decoded; larger: 413.
    ///
    /// Default 16 MiB. An application that takes larger ones raises it here, or for
    /// one request with [`Body::set_limit`](crate::Body::set_limit).
    pub max_body_bytes: u64,

    /// How much of a body that the application left unread is read and thrown away so
    /// that the connection can go on; more: the connection closes after the response, or
    /// over HTTP/2 the client is told to stop.
    ///
    /// Default 64 KiB: less than a new connection costs.
    pub max_drain_bytes: u64,

    /// How many requests one connection may bring; the last is answered with
    /// `Connection: close`. 0: any number.
    ///
    /// Default 0: a connection is cheap to keep.
    pub max_requests: u64,

    /// How much of one connection's responses is gathered before it is sent; then the
    /// application waits until the client has taken it. A client that reads slowly costs
    /// this and one chunk of a body in our memory, and what the kernel buffers
    /// (`net.ipv4.tcp_wmem`).
    ///
    /// Default 32 KiB: larger writes do not get cheaper by the byte.
    pub max_gathered_bytes: usize,

    /// The most connections at a time, over all workers; further ones wait in the
    /// kernel's queue.
    ///
    /// Default 16,384: with descriptors to spare for files under the usual limit of 20,000.
    pub max_connections: usize,

    /// The most connections at a time from one peer address, or from one /64 of IPv6;
    /// further ones are answered 503 and closed. Unix sockets have no address and are not
    /// counted, nor are the clients of the [`proxies`](Settings::proxies).
    ///
    /// Default 4,096: a quarter of the places; a proxy in front may need more.
    pub max_connections_per_peer: usize,

    /// How many completed connections the kernel may queue for us (`listen(2)`'s backlog).
    ///
    /// Default 4,096; the kernel may lower it (`net.core.somaxconn`).
    pub backlog: u16,

    /// Whether each worker listens on a socket of its own (`SO_REUSEPORT`), among which the
    /// kernel deals connections out by chance. Otherwise one thread accepts, and gives
    /// each connection to the worker that has the fewest. Unix sockets have one acceptor
    /// in any case. To be set before [`Server::listen`](crate::Server::listen).
    ///
    /// Default false: chance leaves some workers with twice the connections of others.
    pub reuse_port: bool,

    /// From accepting a connection, or from the first byte of a later request, to
    /// the end of the head: absolute, however many bytes come; then 408.
    ///
    /// Default 20 s.
    pub head_timeout: Duration,

    /// How long a connection may rest between two requests.
    ///
    /// Default 60 s: most clients give up first.
    pub idle_timeout: Duration,

    /// The slowest that a body may come in or a response be taken, in bytes a second,
    /// once [`stall_timeout`](Settings::stall_timeout) is used up. Time in which the
    /// application does not read or write is not counted; a read that it has begun counts
    /// until it comes back to it.
    ///
    /// Default 500: slower than any modem, far faster than an attack can afford.
    pub min_bytes_per_second: u32,

    /// How long a body or a response may stand still. The credit shrinks while we
    /// wait for the peer and grows with the bytes that it moves.
    ///
    /// Default 20 s.
    pub stall_timeout: Duration,

    /// How long a connection that was closed on our side goes on reading, so that the
    /// peer gets our last response before the reset (RFC 9112 §9.6).
    ///
    /// Default 2 s.
    pub linger_timeout: Duration,

    /// The proxies in front that say who the client is, by the PROXY protocol (version 1
    /// or 2). Each connection of theirs must begin so, and is not counted among those of
    /// its peer; from anybody else such a header is a malformed request. If there are
    /// any, peers on Unix sockets are such proxies too.
    ///
    /// Default none: who believes everybody lets everybody choose an address.
    pub proxies: Vec<Network>,

    /// Whether HTTP/2 is spoken: to clients that begin with its preface (RFC 9113 §3.3), and
    /// over TLS to those that choose it by ALPN.
    ///
    /// Default true.
    pub http2: bool,

    /// The most requests at a time on one connection of HTTP/2; further ones are refused, and
    /// the client may send them again (RFC 9113 §5.1.2).
    ///
    /// Default 128, as nginx and h2o.
    pub max_concurrent_streams: u32,

    /// How much of the request bodies of one HTTP/2 connection may be under way, or here and
    /// not yet read by the application, in bytes; for one body it is a quarter. The client
    /// waits then (RFC 9113 §5.2). From 65,535 to 2^31 - 1.
    ///
    /// Default 1 MiB: 5 MB/s for one upload over a way of 50 ms.
    pub body_window_bytes: u32,

    /// What becomes of the application's future when the client goes away before the
    /// response.
    ///
    /// Default [`Disconnect::Cancel`].
    pub disconnect: Disconnect,

    /// What the `Server` field says; empty: no such field.
    ///
    /// Default `weft`: no version, which only helps an attacker.
    pub server_name: String,
}

/// What becomes of the application's future when its client goes away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Disconnect {
    /// It is dropped at its next `.await`. A client that has sent its last byte and
    /// shut down that direction counts as gone. This is noticed by reading ahead: not while
    /// a body holds the input (then the body's next read fails), and not behind 8 KiB of
    /// further requests.
    #[default]
    Cancel,
    /// It runs to its end; a client that only shut down its sending direction still
    /// gets the response.
    Detach,
}

impl Settings {
    /// Whether a peer is one of the [`proxies`](Settings::proxies).
    pub(crate) fn is_proxy(&self, peer: Option<SocketAddr>) -> bool {
        let is_in = |network: &Network| peer.is_none_or(|peer| network.contains(peer.ip()));
        self.proxies.iter().any(is_in)
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            max_request_line_bytes: 8_192,
            max_head_bytes: 16_384,
            max_fields: 100,
            max_trailer_bytes: 8_192,
            max_body_bytes: 16 << 20,
            max_drain_bytes: 64 << 10,
            max_requests: 0,
            max_gathered_bytes: 32 << 10,
            max_connections: 16_384,
            max_connections_per_peer: 4_096,
            backlog: 4_096,
            reuse_port: false,
            head_timeout: Duration::from_secs(20),
            idle_timeout: Duration::from_secs(60),
            min_bytes_per_second: 500,
            stall_timeout: Duration::from_secs(20),
            linger_timeout: Duration::from_secs(2),
            proxies: Vec::new(),
            http2: true,
            max_concurrent_streams: 128,
            body_window_bytes: 1 << 20,
            disconnect: Disconnect::Cancel,
            server_name: "weft".to_owned(),
        }
    }
}
