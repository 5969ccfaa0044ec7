//! Who is measured, and how each is started. What stands between `@` is replaced by the
//! server that is started; see `server.rs`.

use crate::experiments;

pub struct Peer {
    pub name: &'static str,
    pub origin: Origin,
    pub command: &'static [&'static str],
    /// The file in `configs` that it is given.
    pub config: Option<&'static str>,
    /// What is said of it in the report.
    pub note: &'static str,
}

/// Where it comes from, which is also how its version is found.
#[derive(Clone, Copy, PartialEq)]
pub enum Origin {
    /// The program in this repository.
    Weft,
    /// A package of this workspace, and the crate that it is about.
    Crate(&'static str, &'static str),
    /// A package of Debian's, its program, and what makes that say its version.
    Debian(&'static str, &'static str, &'static str),
    /// What is compiled with GHC.
    Haskell,
}

const ALL: &[Peer] = &[
    Peer {
        name: "weft-lib",
        origin: Origin::Crate("peer-weft", "weft-http"),
        command: &["@bin@/peer-weft", "127.0.0.1:@port@", "@workers@"],
        config: None,
        note: "the library with an application of one function; all limits and clocks as by default",
    },
    Peer {
        name: "weft",
        origin: Origin::Weft,
        command: &["@weft@", "--config", "@config@"],
        config: Some("weft.toml"),
        note: "the program; all limits and clocks as by default, no log",
    },
    Peer {
        name: "axum-weft",
        origin: Origin::Crate("peer-axum-weft", "axum"),
        command: &["@bin@/peer-axum-weft", "127.0.0.1:@port@", "@workers@"],
        config: None,
        note: "an axum router on Weft",
    },
    Peer {
        name: "epoll",
        origin: Origin::Crate("peer-epoll", "rustix"),
        command: &["@bin@/peer-epoll", "127.0.0.1:@port@", "@workers@"],
        config: None,
        note: "a floor: a bare epoll loop that looks for the ends of heads and sends a canned answer",
    },
    Peer {
        name: "tokio",
        origin: Origin::Crate("peer-tokio", "tokio"),
        command: &["@bin@/peer-tokio", "127.0.0.1:@port@", "@workers@"],
        config: None,
        note: "a floor: the same on tokio",
    },
    Peer {
        name: "hyper",
        origin: Origin::Crate("peer-hyper", "hyper"),
        command: &["@bin@/peer-hyper", "127.0.0.1:@port@", "@workers@"],
        config: None,
        note: "an event loop and a listening socket per worker, no timer and so no timeouts, \
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
        note: "stackful coroutines; a minimal HTTP without timeouts that keeps every connection",
    },
    Peer {
        name: "warp",
        origin: Origin::Haskell,
        command: &["@bin@/warp", "@port@", "@site@", "+RTS", "-qa", "-A128m", "-N@workers@"],
        config: None,
        note: "Haskell's Warp with the caches and the options of the runtime that the seeds name",
    },
    Peer {
        name: "nginx",
        origin: Origin::Debian("nginx", "nginx", "-v"),
        command: &["nginx", "-c", "@config@"],
        config: Some("nginx.conf"),
        note: "no log, kept descriptors, sendfile",
    },
    Peer {
        name: "h2o",
        origin: Origin::Debian("h2o", "h2o", "--version"),
        command: &["h2o", "-c", "@config@"],
        config: Some("h2o.conf"),
        note: "no log",
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

/// What serves the answers that a reverse proxy passes on.
pub const UPSTREAM: &str = "epoll";

pub fn named(name: &str) -> &'static Peer {
    all().find(|peer| peer.name == name).expect("workloads name peers that there are")
}

/// With those of the experiments.
pub fn all() -> impl Iterator<Item = &'static Peer> {
    ALL.iter().chain(experiments::PEERS)
}
