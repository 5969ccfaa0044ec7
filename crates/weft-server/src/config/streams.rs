//! The keys of a section of `[streams]`.

use std::path::Path;
use std::time::Duration;

use weft::Network;
use weft_config::{
    ConfigResult, Key, Located, Pair, ValueKind, quoted, quoted_list, quoted_table, show_size,
    show_time,
};

use super::balance::{POLICY_NAMES, policy, policy_name};
use super::dns::{max_ttl, min_ttl, resolver};

use super::stream_settings::{LineFormat, ProxyVersion, StreamSettings};
use crate::apps::proxy::{UpstreamMember, UpstreamUrl};
use crate::sections::limits::{limit, networks};
use crate::sections::log::target::{LOG_TARGET, LogTarget};

/// A section of `[streams]`: addresses to listen on, separated by spaces, and its keys.
#[derive(Debug)]
pub(crate) struct StreamConfig {
    pub(crate) listen: Located<String>,
    pub(crate) settings: StreamSettings,
}

const MAX_CONNECTIONS: u64 = 1_000_000;

/// Keys of a stream, which have no command-line options.
pub(crate) static STREAM: [Key<StreamSettings>; 28] = [
    Key {
        name: "to",
        flag: "",
        argument: "",
        help: "upstreams: HOST:PORT, tls://HOST:PORT for connections with TLS, srv+tcp://SERVICE, \
               srv+udp://SERVICE, or unix:/SOCKET, each with its options; of all connections, or of those without one \
               of the `server_names`",
        kind: ValueKind::Texts(|stream, texts| {
            let groups = texts.iter().map(upstreams).collect::<ConfigResult<Vec<_>>>()?;
            stream.to = groups.into_iter().flatten().collect();
            Ok(())
        }),
        show: |stream| quoted_list(stream.to.iter().map(UpstreamMember::to_string)),
    },
    Key {
        name: "server_names",
        flag: "",
        argument: "",
        help: "upstreams, separated by spaces, by the server name that a TLS client sends: \
               { \"a.example\" = \"HOST:PORT\", \"*.b.example\" = \"HOST:PORT\" }; without `tls`, \
               the connection stays encrypted",
        kind: ValueKind::Pairs(set_server_names),
        show: |stream| {
            let texts = |members: &Vec<UpstreamMember>| {
                members.iter().map(UpstreamMember::to_string).collect::<Vec<_>>().join(" ")
            };
            let names = stream.server_names.iter();
            quoted_table(names.map(|(name, members)| (name.to_string(), texts(members))))
        },
    },
    Key {
        name: "allow",
        flag: "",
        argument: "",
        help: "networks of the clients that are allowed; connections of others are closed",
        kind: ValueKind::Texts(|stream, texts| networks(texts).map(|list| stream.allow = list)),
        show: |stream| quoted_list(stream.allow.iter().map(Network::to_string)),
    },
    Key {
        name: "deny",
        flag: "",
        argument: "",
        help: "networks of clients whose connections are closed, even within allowed ones",
        kind: ValueKind::Texts(|stream, texts| networks(texts).map(|list| stream.deny = list)),
        show: |stream| quoted_list(stream.deny.iter().map(Network::to_string)),
    },
    Key {
        name: "allow_file",
        flag: "",
        argument: "",
        help: "file with further networks that are allowed, one in each line, # begins a comment; \
               reloaded when it changes",
        kind: ValueKind::Path(|stream, path| stream.allow_file = Some(path.value)),
        show: |stream| show_path(stream.allow_file.as_deref()),
    },
    Key {
        name: "deny_file",
        flag: "",
        argument: "",
        help: "file with further networks that are denied, as in `allow_file`",
        kind: ValueKind::Path(|stream, path| stream.deny_file = Some(path.value)),
        show: |stream| show_path(stream.deny_file.as_deref()),
    },
    limit!(
        tls,
        "",
        switch,
        "terminate TLS with the certificates of [tls]; upstreams get the decrypted bytes"
    ),
    Key {
        name: "ca",
        flag: "",
        argument: "",
        help: "trusted CA certificates in PEM for upstreams with tls://, in place of those of the \
               system",
        kind: ValueKind::Path(|stream, path| stream.ca = Some(path.value)),
        show: |stream| show_path(stream.ca.as_deref()),
    },
    Key {
        name: "balance",
        flag: "",
        argument: "",
        help: "load balancing between upstreams: round-robin, least-connections, random-two (of two at \
               random, the one with fewer connections) or hash (by the address of the client)",
        kind: ValueKind::Choice(&POLICY_NAMES, |stream, choice| stream.balance = policy(choice)),
        show: |stream| quoted(policy_name(stream.balance)),
    },
    Key {
        name: "proxy_protocol",
        flag: "",
        argument: "",
        help: "version of the PROXY protocol header by which upstreams get the address of the \
               client: none, v1 or v2",
        kind: ValueKind::Choice(&["none", "v1", "v2"], |stream, choice| {
            stream.proxy_protocol = match choice {
                "v1" => Some(ProxyVersion::V1),
                "v2" => Some(ProxyVersion::V2),
                _ => None,
            };
        }),
        show: |stream| match stream.proxy_protocol {
            None => quoted("none"),
            Some(ProxyVersion::V1) => quoted("v1"),
            Some(ProxyVersion::V2) => quoted("v2"),
        },
    },
    Key {
        name: "proxy_protocol_from",
        flag: "",
        argument: "",
        help: "proxies in front of the server, each of whose connections must begin with a PROXY \
               protocol header",
        kind: ValueKind::Texts(|stream, texts| {
            networks(texts).map(|proxies| stream.proxy_protocol_from = proxies)
        }),
        show: |stream| quoted_list(stream.proxy_protocol_from.iter().map(Network::to_string)),
    },
    Key {
        name: "access_log",
        flag: "",
        argument: "",
        help: "destination of a line for each connection that has ended, as of `access` in [log]: \
               none, stdout, a file, syslog or journald",
        kind: ValueKind::Custom(&LOG_TARGET, |stream, given| {
            let to = LogTarget::read(given)?;
            stream.access_log = Some(to.value).filter(|to| *to != LogTarget::None);
            Ok(())
        }),
        show: |stream| stream.access_log.as_ref().unwrap_or(&LogTarget::None).show(),
    },
    Key {
        name: "log_format",
        flag: "",
        argument: "",
        help: "format of these lines: text or json",
        kind: ValueKind::Choice(&["text", "json"], |stream, choice| {
            stream.log_format = match choice {
                "json" => LineFormat::Json,
                _ => LineFormat::Text,
            };
        }),
        show: |stream| match stream.log_format {
            LineFormat::Text => quoted("text"),
            LineFormat::Json => quoted("json"),
        },
    },
    resolver(),
    min_ttl(),
    max_ttl(),
    limit!(
        connect_timeout,
        "",
        time,
        "maximum time to connect to one upstream, before another one is tried"
    ),
    limit!(
        handshake_timeout,
        "",
        time,
        "maximum time for the PROXY protocol header, the server name and the handshake of TLS"
    ),
    limit!(
        check_interval,
        "",
        time,
        "time between two checks of each upstream, which gets connections only while it accepts them"
    ),
    limit!(max_failures, "", count 1..=1_000,
        "number of failures in a row after which an upstream is tried last for `down_time`"),
    limit!(failure_window, "", time, "time for which a failure is counted"),
    limit!(down_time, "", time, "time for which an upstream is tried last after `max_failures`"),
    limit!(
        idle_timeout,
        "",
        time,
        "time without data in both directions after which a connection is closed"
    ),
    limit!(
        udp_idle_timeout,
        "",
        time,
        "time without datagrams in both directions after which a session of UDP ends"
    ),
    limit!(udp_responses, "", count 0..=MAX_CONNECTIONS,
        "number of datagrams of the upstream for each one of a client, after which a session of UDP \
         ends; 0: any number"),
    limit!(max_datagram_bytes, "", size 1..=65_536,
        "maximum size of a datagram of UDP; larger ones are dropped"),
    limit!(max_connections, "", count 1..=MAX_CONNECTIONS,
        "maximum number of connections and sessions of UDP; further ones are closed"),
    limit!(max_connections_per_client, "", count 0..=MAX_CONNECTIONS,
        "maximum number of these of one client address, or /64 of IPv6; 0: half of \
         `max_connections`"),
];

/// Parses upstreams, each with its options behind it.
fn upstreams(text: &Located<String>) -> ConfigResult<Vec<UpstreamMember>> {
    let members = UpstreamMember::parse_list(&text.value, UpstreamUrl::tcp);
    match members.map_err(|message| text.problem(message))? {
        none if none.is_empty() => Err(text.problem("expected an upstream such as 127.0.0.1:5432")),
        members => Ok(members),
    }
}

fn show_path(path: Option<&Path>) -> String {
    path.map_or_else(String::new, |path| quoted(&path.to_string_lossy()))
}

fn set_server_names(stream: &mut StreamSettings, pairs: Vec<Pair>) -> ConfigResult {
    stream.server_names = Vec::new();
    for Pair { name, value, .. } in pairs {
        let pattern = name.value.parse().map_err(|message| name.problem(message))?;
        stream.server_names.push((pattern, upstreams(&value)?));
    }
    Ok(())
}
