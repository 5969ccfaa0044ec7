//! The keys of `[limits]`: all fields of [`Settings`], with the same names.

use std::time::Duration;

use weft::{Disconnect, Network, Settings};

use super::key::{Key, ValueKind};
use super::keys::{quoted, quoted_list};
use super::location::{ConfigResult, Located};
use super::units::{show_size, show_time};

/// A key with the name of its field.
macro_rules! limit {
    ($name:ident, $flag:literal, size $range:expr, $help:literal) => {
        Key {
            name: stringify!($name),
            flag: $flag,
            argument: "SIZE",
            help: $help,
            // `$range` is within the range of the field's type, so that the cast is lossless.
            kind: ValueKind::Size($range, |settings, bytes| settings.$name = bytes as _),
            show: |settings| quoted(&show_size(settings.$name as u64)),
        }
    };
    ($name:ident, $flag:literal, count $range:expr, $help:literal) => {
        Key {
            name: stringify!($name),
            flag: $flag,
            argument: "N",
            help: $help,
            kind: ValueKind::Count($range, |settings, count| settings.$name = count as _),
            show: |settings| settings.$name.to_string(),
        }
    };
    ($name:ident, $flag:literal, time, $help:literal) => {
        Key {
            name: stringify!($name),
            flag: $flag,
            argument: "TIME",
            help: $help,
            kind: ValueKind::Time(|settings, time: Duration| settings.$name = time),
            show: |settings| quoted(&show_time(settings.$name)),
        }
    };
    ($name:ident, $flag:literal, switch, $help:literal) => {
        Key {
            name: stringify!($name),
            flag: $flag,
            argument: "",
            help: $help,
            kind: ValueKind::Bool(|settings, switch| settings.$name = switch),
            show: |settings| settings.$name.to_string(),
        }
    };
}

pub(super) use limit;

/// Maximum head size of the parser in bytes.
const MAX_HEAD: u64 = 65_000;

const MAX_COUNT: u64 = u32::MAX as u64;

pub(crate) static LIMITS: [Key<Settings>; 23] = [
    limit!(max_request_line_bytes, "max-request-line-bytes", size 1..=MAX_HEAD,
        "the longest request line; longer: 414"),
    limit!(max_head_bytes, "max-head-bytes", size 1..=MAX_HEAD,
        "the largest head, request line and fields; larger: 431"),
    limit!(max_fields, "max-fields", count 1..=10_000,
        "the most fields in a head or behind a body; more: 431"),
    limit!(max_trailer_bytes, "max-trailer-bytes", size 1..=MAX_HEAD,
        "the most that may follow a chunked body as fields; more: 400"),
    limit!(max_body_bytes, "max-body-bytes", size 0..=u64::MAX,
        "the largest request body; larger: 413"),
    limit!(max_drain_bytes, "max-drain-bytes", size 0..=u64::MAX,
        "how much of a body that nobody reads is thrown away so that the connection can go on"),
    limit!(max_requests, "max-requests", count 0..=u64::MAX,
        "how many requests a connection may bring; 0: any number"),
    limit!(max_write_buffer_bytes, "max-gathered-bytes", size 1..=MAX_COUNT,
        "how much of a connection's responses is gathered before it is sent"),
    limit!(max_connections, "max-connections", count 1..=MAX_COUNT,
        "the most connections at a time; further ones wait"),
    limit!(max_connections_per_peer, "max-connections-per-peer", count 1..=MAX_COUNT,
        "the most connections at a time from one address, or /64 of IPv6; further ones: 503"),
    limit!(backlog, "backlog", count 1..=65_535,
        "how many connections the kernel may queue"),
    limit!(
        reuse_port,
        "reuse-port",
        switch,
        "each worker listens on a socket of its own, and the kernel deals connections out"
    ),
    limit!(head_timeout, "head-timeout", time, "how long a head may take; then 408"),
    limit!(
        idle_timeout,
        "idle-timeout",
        time,
        "how long a connection may rest between two requests"
    ),
    limit!(min_bytes_per_second, "min-bytes-per-second", count 0..=MAX_COUNT,
        "the slowest that a body may come in or a response be taken"),
    limit!(stall_timeout, "stall-timeout", time, "how long a body or a response may stand still"),
    limit!(
        linger_timeout,
        "linger-timeout",
        time,
        "how long a connection that is closed on our side goes on reading"
    ),
    Key {
        name: "proxies",
        flag: "proxies",
        argument: "NETWORK",
        help: "the proxies in front that say who the client is, by the PROXY protocol",
        kind: ValueKind::Texts(set_proxies),
        show: |settings| quoted_list(settings.proxies.iter().map(ToString::to_string)),
    },
    limit!(http2, "http2", switch, "speak HTTP/2 with clients that do"),
    limit!(max_concurrent_streams, "max-concurrent-streams", count 1..=MAX_COUNT,
        "the most requests at a time on one connection of HTTP/2"),
    limit!(body_window_bytes, "body-window-bytes", size 65_535..=0x7fff_ffff,
        "how much of request bodies may be under way on one connection of HTTP/2"),
    Key {
        name: "disconnect",
        flag: "disconnect",
        argument: "WHAT",
        help: "what becomes of the work for a client that goes away: cancel or detach",
        kind: ValueKind::Choice(&["cancel", "detach"], |settings, choice| {
            settings.disconnect =
                if choice == "detach" { Disconnect::Detach } else { Disconnect::Cancel };
        }),
        show: |settings| match settings.disconnect {
            Disconnect::Cancel => quoted("cancel"),
            Disconnect::Detach => quoted("detach"),
        },
    },
    Key {
        name: "server_name",
        flag: "server-name",
        argument: "TEXT",
        help: "what the field `Server` says; empty: no such field",
        kind: ValueKind::Text(set_server_name),
        show: |settings| quoted(&settings.server_name),
    },
];

fn set_proxies(settings: &mut Settings, proxies: Vec<Located<String>>) -> ConfigResult {
    settings.proxies = networks(proxies)?;
    Ok(())
}

pub(super) fn networks(texts: Vec<Located<String>>) -> ConfigResult<Vec<Network>> {
    let network = |text: Located<String>| {
        text.value
            .parse()
            .map_err(|error: weft_proto::Error| text.problem(error.reason().to_owned()))
    };
    texts.into_iter().map(network).collect()
}

fn set_server_name(settings: &mut Settings, name: Located<String>) -> ConfigResult {
    match weft::HeaderValue::from_str(&name.value) {
        Ok(_) if name.value.is_ascii() => settings.server_name = name.value,
        _ => {
            return Err(name
                .problem(format!("{:?} is not a valid value of the field `Server`", name.value)));
        }
    }
    Ok(())
}
