//! All limits and timeouts, in one plain struct.

use std::net::SocketAddr;
use std::time::Duration;

use weft_proto::proxy_protocol::IpNetwork;

/// Default of [`Settings::max_body_bytes`]. Bodies that axum's extractors read have axum's limit in
/// place of it.
pub(crate) const DEFAULT_MAX_BODY_BYTES: u64 = 16 << 20;

/// Limits and timeouts of a server. The defaults are suitable for the open Internet.
///
/// Set the fields you need and take the rest from [`Default`]:
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
/// One sweeper per worker checks all timeouts. A timeout expires late by up to half of the shortest
/// one, one second at most, and never early. While the event loop is blocked by an application, the
/// timeouts stop, too. [`Duration::MAX`] disables a timeout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Maximum length of a request line, in bytes without its CRLF. A longer one is answered with
    /// 414.
    ///
    /// Default 8,192, the minimum that RFC 9112 §3 recommends; at most 65,000.
    pub max_request_line_bytes: usize,

    /// Maximum size of a request head (request line and fields), in bytes. A larger one is answered
    /// with 431. Over HTTP/2, the heads of concurrent requests may have 16 times this size, without
    /// the first KiB of each; further requests are refused.
    ///
    /// Default 16,384: room for a browser's cookies. At most 65,000.
    pub max_head_bytes: usize,

    /// Maximum number of fields in a head or a trailer section. More are answered with 431.
    ///
    /// Default 100, as in nginx and Apache. Calls of gRPC with much metadata need more.
    pub max_fields: usize,

    /// Maximum size of the trailer section of a chunked body, in bytes. A larger one is answered
    /// with 400.
    ///
    /// Default 8,192; at most 65,000.
    pub max_trailer_bytes: usize,

    /// Maximum size of a request body, in bytes after decoding the transfer coding. A larger one is
    /// answered with 413.
    ///
    /// It does not apply to a stream: a body of unknown length that is received while the response
    /// is sent, as in a bidirectional call of gRPC. It has no end to wait for, and the application
    /// processes it piece by piece.
    ///
    /// Default 16 MiB. An application that accepts larger bodies raises it here, or for one request
    /// with [`Body::set_limit`](crate::Body::set_limit).
    ///
    /// The default does not apply to routers of axum ([`weft::axum`](crate#features)), whose
    /// extractors have axum's own limit, nor to streams of gRPC in any tower service. A value other
    /// than the default applies to them, too.
    pub max_body_bytes: u64,

    /// Maximum number of bytes of an unread request body that are read and discarded so that the
    /// connection can be reused. If more is left, the connection closes after the response; over
    /// HTTP/2 the stream is reset.
    ///
    /// Default 64 KiB: cheaper than a new connection.
    pub max_discarded_bytes: u64,

    /// Maximum number of requests on one connection; the last response has `Connection: close`. 0
    /// means no limit.
    ///
    /// Default 0: an idle connection is cheap.
    pub max_requests: u64,

    /// Maximum number of bytes of one connection's responses that are buffered before they are
    /// written; then the application waits until the client has read them. A slow client costs this
    /// much and one chunk of a body in process memory, and the socket buffer in the kernel
    /// (`net.ipv4.tcp_wmem`).
    ///
    /// Default 32 KiB: larger writes do not cost less per byte.
    pub max_write_buffer_bytes: usize,

    /// Maximum number of concurrent connections, over all workers. While a further client waits in
    /// the kernel's accept queue, connections without a request are closed, those first that have
    /// waited longest: for another request, or for more than two seconds for the first one.
    /// Connections with a request in progress are never closed.
    ///
    /// Each connection needs a file descriptor. The process must be permitted to open more
    /// descriptors than this (`RLIMIT_NOFILE`), which the library does not change.
    ///
    /// Default 16,384: this leaves file descriptors for files under the usual limit of 20,000.
    pub max_connections: usize,

    /// Maximum number of concurrent connections from one peer: from one IPv4 address, or from one
    /// [IPv6 prefix](Settings::ipv6_prefix_length). Further ones are answered with 503 and closed.
    /// Connections over Unix sockets, which have no peer address, and connections from the networks
    /// of [`proxy_protocol`](Settings::proxy_protocol) are not counted. All peers of an IPv6 /48
    /// network have half of the rest of `max_connections` in addition.
    ///
    /// Default 4,096: a quarter of `max_connections`; a proxy in front may need more.
    pub max_connections_per_peer: usize,

    /// Length of the IPv6 prefix whose addresses are one peer, in bits up to 128.
    ///
    /// Default 64: one network, and a client usually controls all of its addresses. Some providers
    /// give each customer a /56 or a /48.
    pub ipv6_prefix_length: u8,

    /// Maximum number of completed connections in the kernel's accept queue (the backlog of
    /// `listen(2)`).
    ///
    /// Default 4,096; the kernel may lower it (`net.core.somaxconn`).
    pub backlog: u16,

    /// If `true`, each worker listens on its own socket (`SO_REUSEPORT`), and the kernel
    /// distributes connections by a hash of their addresses. Otherwise one thread accepts, and
    /// gives each connection to the worker with the fewest. Unix sockets always have one acceptor.
    /// Set it before [`Server::listen`](crate::Server::listen).
    ///
    /// Default `false`: the kernel's distribution leaves some workers with twice the connections of
    /// others.
    pub reuse_port: bool,

    /// Maximum time from accepting a connection, or from the first byte of a later request, to the
    /// end of the head. It is absolute: received bytes do not extend it. Afterwards the request is
    /// answered with 408.
    ///
    /// Default 20 s.
    pub head_timeout: Duration,

    /// Maximum idle time of a connection between two requests. Over HTTP/2, a PING restarts it,
    /// because a request would have the same effect. An HTTP/2 connection with an open stream is
    /// not idle.
    ///
    /// Default 60 s: most clients close the connection earlier.
    pub idle_timeout: Duration,

    /// Minimum rate at which a body must be received or a response read, in bytes per second, once
    /// [`stall_timeout`](Settings::stall_timeout) is used up. Time in which the application neither
    /// reads nor writes is not counted; a read that it has started counts until the application
    /// polls it again.
    ///
    /// A stream (see [`max_body_bytes`](Settings::max_body_bytes)) may be received at any rate. For
    /// other bodies, [`Body::set_min_rate`](crate::Body::set_min_rate) and the middleware
    /// [`BodyRate`](crate::middleware::BodyRate) change the rate.
    ///
    /// Default 500: slower than any modem, and far faster than an attack can afford. 0 means
    /// no minimum rate: each byte restores the whole credit of `stall_timeout`.
    pub min_bytes_per_second: u32,

    /// Maximum time for which a body or a response may stall. Waiting for the peer consumes this
    /// time credit, and transferred bytes restore it.
    ///
    /// Default 20 s.
    pub stall_timeout: Duration,

    /// Time for which the server continues to read after it has shut down its sending direction,
    /// so that the peer receives the last response before a reset (RFC 9112 §9.6).
    ///
    /// Default 2 s.
    pub linger_timeout: Duration,

    /// Trusted proxies that send the client address by the PROXY protocol (version 1 or 2). Each
    /// connection from them must begin with a PROXY header, and is not counted under
    /// `max_connections_per_peer`. From any other peer such a header is a malformed request. If the
    /// list is not empty, peers on Unix sockets are trusted proxies, too.
    ///
    /// Default empty: trusting every peer would let every client forge its address.
    pub proxy_protocol: Vec<IpNetwork>,

    /// Enables HTTP/2, for clients that begin with its connection preface (RFC 9113 §3.3), and
    /// over TLS for clients that select it by ALPN.
    ///
    /// Default `true`.
    pub http2: bool,

    /// Enables HTTP/3 on all TCP addresses that listen with TLS: the server binds the same port for
    /// UDP, and names it in `Alt-Svc` (RFC 7838). Without the feature `http3` it has no effect.
    ///
    /// Default `true`.
    pub http3: bool,

    /// Congestion control of HTTP/3 connections. Without the feature `http3` it has no effect.
    ///
    /// Default [`Congestion::Cubic`], which shares a path fairly.
    pub congestion: Congestion,

    /// Maximum number of concurrent streams on one HTTP/2 or HTTP/3 connection. Over HTTP/2,
    /// further ones are refused, and the client may retry them (RFC 9113 §5.1.2); over HTTP/3 the
    /// client waits.
    ///
    /// Default 128, as in nginx and h2o. Clients that send all their calls over one connection, as
    /// gRPC clients do, may need more. Each stream may hold a request head, a part of
    /// [`body_window_bytes`](Settings::body_window_bytes), and the memory of the application.
    pub max_concurrent_streams: u32,

    /// Receive window of an HTTP/2 connection, in bytes: the request body data that may be in
    /// transit, or received and not yet read by the application. The window of one stream is a
    /// quarter of it. When a window is used up, the client waits (RFC 9113 §5.2). From 65,535 to
    /// 2^31 - 1.
    ///
    /// Default 1 MiB: 5 MB/s for one upload at a round-trip time of 50 ms.
    pub body_window_bytes: u32,

    /// Handling of the application's future when the client disconnects before the response.
    ///
    /// Default [`Disconnect::Cancel`].
    pub disconnect: Disconnect,

    /// Value of the `Server` field. If it is empty, the field is not sent.
    ///
    /// Default `weft`, without a version, which would only help an attacker.
    pub server_name: String,
}

/// The algorithm that determines how fast an HTTP/3 connection sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Congestion {
    /// CUBIC (RFC 9438), the algorithm of most TCP connections.
    #[default]
    Cubic,
    /// BBR: as fast as the client has received so far. A loss that is not caused by congestion, as
    /// on radio links, does not slow it down: 10 MB over a path of 50 ms that loses 1 % of the
    /// packets take about 2 seconds, and with CUBIC about 40. But it leaves a connection with CUBIC
    /// on the same path 3 to 8 % of the bandwidth.
    Bbr,
}

/// Handling of the application's future when its client disconnects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Disconnect {
    /// The future is dropped at its next `.await` once the connection is broken: reset by the
    /// client, a failed write, or over TLS its end without close_notify. A client that has only
    /// shut down its sending direction still gets the response.
    ///
    /// TCP shows no difference between such a client and one that has closed both directions, until
    /// a segment is sent to it. Behind the end of the input, the kernel therefore sends probes
    /// every 15 seconds. The system of a client that has left resets the connection then, on Linux
    /// after a minute at most.
    #[default]
    Cancel,
    /// Acts as `Cancel`, and at the end of the input, too, as nginx and Go do: a client that has
    /// shut down its sending direction counts as disconnected.
    ///
    /// The server detects this, as a reset, by reading ahead. It is not detected while a body holds
    /// the input (then the body's next read fails), nor behind 8 KiB of further requests.
    CancelAtEof,
    /// The future runs to completion. A client that has only shut down its sending direction still
    /// gets the response. The socket of a broken connection is closed meanwhile.
    Detach,
}

impl Settings {
    /// Settings for applications that ran on hyper or axum before: the defaults, with heads of 32
    /// KiB and request lines of 16 KiB. [`weft::axum::serve`](crate#features) has them.
    ///
    /// hyper permits heads of 400 KiB, so that such applications may have cookies and URLs that the
    /// defaults reject. A connection holds a head while it is received, for
    /// [`head_timeout`](Settings::head_timeout) at most, and while its request is in progress. One
    /// client, with 4,096 connections, can occupy 128 MiB by heads in place of 64 MiB; over HTTP/2,
    /// a connection 512 KiB in place of 256 KiB.
    ///
    /// ```
    /// use weft::Settings;
    ///
    /// let settings = Settings { max_requests: 1_000, ..Settings::for_frameworks() };
    /// assert_eq!(settings.max_head_bytes, 32 << 10);
    /// ```
    pub fn for_frameworks() -> Settings {
        Settings {
            max_request_line_bytes: 16 << 10,
            max_head_bytes: 32 << 10,
            ..Settings::default()
        }
    }

    /// Returns true if a peer is in one of the networks of
    /// [`proxy_protocol`](Settings::proxy_protocol).
    pub(crate) fn is_proxy(&self, peer: Option<SocketAddr>) -> bool {
        let contains_peer =
            |network: &IpNetwork| peer.is_none_or(|peer| network.contains(peer.ip()));
        self.proxy_protocol.iter().any(contains_peer)
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            max_request_line_bytes: 8_192,
            max_head_bytes: 16_384,
            max_fields: 100,
            max_trailer_bytes: 8_192,
            max_body_bytes: DEFAULT_MAX_BODY_BYTES,
            max_discarded_bytes: 64 << 10,
            max_requests: 0,
            max_write_buffer_bytes: 32 << 10,
            max_connections: 16_384,
            max_connections_per_peer: 4_096,
            ipv6_prefix_length: 64,
            backlog: 4_096,
            reuse_port: false,
            head_timeout: Duration::from_secs(20),
            idle_timeout: Duration::from_secs(60),
            min_bytes_per_second: 500,
            stall_timeout: Duration::from_secs(20),
            linger_timeout: Duration::from_secs(2),
            proxy_protocol: Vec::new(),
            http2: true,
            http3: true,
            congestion: Congestion::Cubic,
            max_concurrent_streams: 128,
            body_window_bytes: 1 << 20,
            disconnect: Disconnect::Cancel,
            server_name: "weft".to_owned(),
        }
    }
}
