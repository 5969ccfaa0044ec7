//! Servers with HTTP/3, in a root of their own: see `--root` and `debian-root.sh`.

use crate::peer::{Origin, Peer};

pub const PEERS: &[Peer] = &[
    Peer {
        name: "nginx-http3",
        origin: Origin::Root("nginx", "-v"),
        command: &["chroot", "@root@", "nginx", "-c", "@config@"],
        config: Some("nginx-http3.conf"),
        note: "no log, cached descriptors, `quic_gso`",
    },
    Peer {
        name: "haproxy-http3",
        origin: Origin::Root("haproxy", "-v"),
        command: &["chroot", "@root@", "haproxy", "-f", "@config@"],
        config: Some("haproxy-http3.cfg"),
        note: "no log; a response of the configuration",
    },
    Peer {
        name: "caddy-http3",
        origin: Origin::Root("caddy", "version"),
        command: &[
            "chroot",
            "@root@",
            "env",
            "GOMAXPROCS=@workers@",
            "HOME=@run@",
            "XDG_DATA_HOME=@run@",
            "XDG_CONFIG_HOME=@run@",
            "caddy",
            "run",
            "--adapter",
            "caddyfile",
            "--config",
            "@config@",
        ],
        config: Some("Caddyfile-http3"),
        note: "no log",
    },
];
