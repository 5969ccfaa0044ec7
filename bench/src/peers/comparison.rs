//! The servers of the comparison, and the upstream servers behind them.

use crate::peer::{Origin, Peer};

pub const COMPARISON: &[Peer] = &[
    Peer {
        name: "weft-lib",
        origin: Origin::Crate("peer-weft", "weft-http"),
        command: &["@bin@/peer-weft", "127.0.0.1:@port@", "@workers@", "@site@"],
        config: None,
        note: "the library with an application of one function; default limits and timeouts",
    },
    Peer {
        name: "weft",
        origin: Origin::Weft,
        command: &["@weft@", "--config", "@config@"],
        config: Some("weft.toml"),
        note: "the program; default limits and timeouts, no log",
    },
    Peer {
        name: "axum-weft",
        origin: Origin::Crate("peer-axum-weft", "axum"),
        command: &["@bin@/peer-axum-weft", "127.0.0.1:@port@", "@workers@"],
        config: None,
        note: "an axum router on Weft",
    },
    Peer {
        name: "axum-weft-runtime",
        origin: Origin::Crate("peer-axum-runtime", "axum"),
        command: &["@bin@/peer-axum-runtime", "127.0.0.1:@port@", "@workers@", "weft"],
        config: None,
        note: "the same by `weft::axum::serve`: the handlers run on a runtime of several threads",
    },
    Peer {
        name: "websocket",
        origin: Origin::Crate("peer-websocket", "tokio-tungstenite"),
        command: &["@bin@/peer-websocket", "127.0.0.1:@port@", "@workers@"],
        config: None,
        note: "tungstenite on hyper, without timeouts",
    },
    Peer {
        name: "grpc-weft",
        origin: Origin::Crate("peer-grpc", "weft-http"),
        command: &["@bin@/peer-grpc", "127.0.0.1:@port@", "@workers@", "weft"],
        config: None,
        note: "tonic's service on Weft",
    },
    Peer {
        name: "grpc-tonic",
        origin: Origin::Crate("peer-grpc", "tonic"),
        command: &["@bin@/peer-grpc", "127.0.0.1:@port@", "@workers@", "tonic"],
        config: None,
        note: "the same service on tonic's transport",
    },
    Peer {
        name: "epoll",
        origin: Origin::Crate("peer-epoll", "rustix"),
        command: &["@bin@/peer-epoll", "127.0.0.1:@port@", "@workers@"],
        config: None,
        note: "a lower bound: a bare epoll loop that finds the ends of heads and sends a constant response",
    },
    Peer {
        name: "tokio",
        origin: Origin::Crate("peer-tokio", "tokio"),
        command: &["@bin@/peer-tokio", "127.0.0.1:@port@", "@workers@"],
        config: None,
        note: "a lower bound: the same on tokio",
    },
    Peer {
        name: "hyper",
        origin: Origin::Crate("peer-hyper", "hyper"),
        command: &["@bin@/peer-hyper", "127.0.0.1:@port@", "@workers@"],
        config: None,
        note: "an event loop and a listening socket per worker, no timer and therefore no timeouts, \
               `pipeline_flush`",
    },
    Peer {
        name: "axum",
        origin: Origin::Crate("peer-axum", "axum"),
        command: &["@bin@/peer-axum", "127.0.0.1:@port@", "@workers@"],
        config: None,
        note: "the same router on `axum::serve`; an event loop and a listening socket per worker",
    },
    Peer {
        name: "axum-runtime",
        origin: Origin::Crate("peer-axum-runtime", "axum"),
        command: &["@bin@/peer-axum-runtime", "127.0.0.1:@port@", "@workers@", "axum"],
        config: None,
        note: "the same router on `axum::serve`, on a runtime of several threads",
    },
    Peer {
        name: "actix",
        origin: Origin::Crate("peer-actix", "actix-web"),
        command: &["@bin@/peer-actix", "127.0.0.1:@port@", "@workers@"],
        config: None,
        note: "two routes, no middleware",
    },
    Peer {
        name: "ntex",
        origin: Origin::Crate("peer-ntex", "ntex"),
        command: &["@bin@/peer-ntex", "127.0.0.1:@port@", "@workers@"],
        config: None,
        note: "two routes, no middleware; on tokio",
    },
    Peer {
        name: "may",
        origin: Origin::Crate("peer-may", "may_minihttp"),
        command: &["@bin@/peer-may", "127.0.0.1:@port@", "@workers@"],
        config: None,
        note: "stackful coroutines; minimal HTTP without timeouts that never closes a connection",
    },
    Peer {
        name: "warp",
        origin: Origin::Haskell,
        command: &["@bin@/warp", "@port@", "@site@", "+RTS", "-qa", "-A128m", "-N@workers@"],
        config: None,
        note: "Haskell's Warp with the caches and the runtime options of the original measurements",
    },
    Peer {
        name: "nginx",
        origin: Origin::Debian("nginx", "nginx", "-v"),
        command: &["nginx", "-c", "@config@"],
        config: Some("nginx.conf"),
        note: "no log, cached descriptors, sendfile",
    },
    Peer {
        name: "h2o",
        origin: Origin::Debian("h2o", "h2o", "--version"),
        command: &["h2o", "-c", "@config@"],
        config: Some("h2o.conf"),
        note: "no log",
    },
    Peer {
        name: "haproxy",
        origin: Origin::Debian("haproxy", "haproxy", "-v"),
        command: &["haproxy", "-f", "@config@"],
        config: Some("haproxy.cfg"),
        note: "no log, shared connections to the upstream",
    },
    Peer {
        name: "lighttpd",
        origin: Origin::Debian("lighttpd", "lighttpd", "-v"),
        command: &["lighttpd", "-D", "-f", "@config@"],
        config: Some("lighttpd.conf"),
        note: "no log, sendfile",
    },
    Peer {
        name: "caddy",
        origin: Origin::Debian("caddy", "caddy", "version"),
        command: &[
            "env",
            "GOMAXPROCS=@workers@",
            "XDG_DATA_HOME=@run@",
            "XDG_CONFIG_HOME=@run@",
            "caddy",
            "run",
            "--adapter",
            "caddyfile",
            "--config",
            "@config@",
        ],
        config: Some("Caddyfile"),
        note: "no log",
    },
];

/// Upstream servers with canned responses.
pub const CANNED: &[Peer] = &[
    canned("canned-unary", &["@bin@/peer-canned", "127.0.0.1:@port@", "1", "grpc", "1"]),
    canned("canned-stream", &["@bin@/peer-canned", "127.0.0.1:@port@", "1", "grpc", "1000"]),
    canned("canned-fastcgi", &["@bin@/peer-canned", "127.0.0.1:@port@", "1", "fastcgi"]),
];

const fn canned(name: &'static str, command: &'static [&'static str]) -> Peer {
    let origin = Origin::Crate("peer-canned", "peer-canned");
    Peer { name, origin, command, config: None, note: "an upstream server, not measured" }
}
