//! The keys of `[limits]`: all fields of [`Settings`], with the same names.

use std::time::Duration;

use weft::Settings;
use weft::server::{Congestion, Disconnect};
use weft_config::{
    ConfigResult, Key, Located, ValueKind, quoted, quoted_list, show_size, show_time,
};

use crate::base::network_set::networks;

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

pub(crate) use limit;

/// Maximum head size of the parser in bytes.
const MAX_HEAD: u64 = 65_000;

const MAX_COUNT: u64 = u32::MAX as u64;

pub(crate) static LIMITS: [Key<Settings>; 26] = [
    limit!(max_request_line_bytes, "max-request-line-bytes", size 1..=MAX_HEAD,
        "maximum length of the request line; longer: 414"),
    limit!(max_head_bytes, "max-head-bytes", size 1..=MAX_HEAD,
        "maximum size of a request head, including the request line; larger: 431"),
    limit!(max_fields, "max-fields", count 1..=10_000,
        "maximum number of header or trailer fields; more: 431"),
    limit!(max_trailer_bytes, "max-trailer-bytes", size 1..=MAX_HEAD,
        "maximum size of the trailer section of a chunked body; larger: 400"),
    limit!(max_body_bytes, "max-body-bytes", size 0..=u64::MAX,
        "maximum size of a request body, if its route has no `max_body_bytes`; larger: 413"),
    limit!(max_discarded_bytes, "max-discarded-bytes", size 0..=u64::MAX,
        "maximum size of an unread request body that is discarded to keep the connection open"),
    limit!(max_requests, "max-requests", count 0..=u64::MAX,
        "maximum number of requests per connection; 0: unlimited"),
    limit!(max_write_buffer_bytes, "max-write-buffer-bytes", size 1..=MAX_COUNT,
        "maximum size of buffered response data per connection before it is sent"),
    limit!(max_connections, "max-connections", count 1..=MAX_COUNT,
        "maximum number of connections; idle ones are closed for further ones"),
    limit!(max_connections_per_peer, "max-connections-per-peer", count 1..=MAX_COUNT,
        "maximum number of connections per client address or IPv6 prefix; further ones: 503"),
    limit!(ipv6_prefix_length, "ipv6-prefix-length", count 1..=128,
        "length of the IPv6 prefix that is counted as one client"),
    limit!(backlog, "backlog", count 1..=65_535,
        "maximum length of the kernel's accept queue"),
    limit!(
        reuse_port,
        "reuse-port",
        switch,
        "each worker listens on its own socket (SO_REUSEPORT), and the kernel distributes \
         connections"
    ),
    limit!(head_timeout, "head-timeout", time, "timeout for receiving a request head; then 408"),
    limit!(
        idle_timeout,
        "idle-timeout",
        time,
        "timeout of an idle connection between two requests"
    ),
    limit!(min_bytes_per_second, "min-bytes-per-second", count 0..=MAX_COUNT,
        "minimum rate at which a request body is received or a response is sent; 0: none"),
    limit!(
        stall_timeout,
        "stall-timeout",
        time,
        "timeout for a request body or a response without progress"
    ),
    limit!(
        linger_timeout,
        "linger-timeout",
        time,
        "time for which a connection is still read after its sending side is closed"
    ),
    Key {
        name: "proxy_protocol",
        flag: "proxy-protocol",
        argument: "NETWORK",
        help: "trusted proxies that send the client address with the PROXY protocol",
        kind: ValueKind::Texts(set_proxy_protocol),
        show: |settings| quoted_list(settings.proxy_protocol.iter().map(ToString::to_string)),
    },
    limit!(http2, "http2", switch, "enable HTTP/2"),
    limit!(http3, "http3", switch, "enable HTTP/3: listen on UDP wherever TLS listens on TCP"),
    Key {
        name: "congestion",
        flag: "congestion",
        argument: "NAME",
        help: "congestion control of HTTP/3: cubic, as most TCP connections have, or bbr, which \
               losses without congestion do not slow down, and which displaces other connections",
        kind: ValueKind::Choice(&["cubic", "bbr"], |settings, choice| {
            settings.congestion = match choice {
                "bbr" => Congestion::Bbr,
                _ => Congestion::Cubic,
            };
        }),
        show: |settings| match settings.congestion {
            Congestion::Bbr => quoted("bbr"),
            _ => quoted("cubic"),
        },
    },
    limit!(max_concurrent_streams, "max-concurrent-streams", count 1..=MAX_COUNT,
        "maximum number of concurrent streams per HTTP/2 or HTTP/3 connection"),
    limit!(body_window_bytes, "body-window-bytes", size 65_535..=0x7fff_ffff,
        "flow-control window for request bodies per HTTP/2 or HTTP/3 connection"),
    Key {
        name: "disconnect",
        flag: "disconnect",
        argument: "MODE",
        help: "handling of requests after the client disconnects: cancel, cancel_at_eof, which \
               also ends them when the client has closed only its sending direction, or detach",
        kind: ValueKind::Choice(&["cancel", "cancel_at_eof", "detach"], |settings, choice| {
            settings.disconnect = match choice {
                "detach" => Disconnect::Detach,
                "cancel_at_eof" => Disconnect::CancelAtEof,
                _ => Disconnect::Cancel,
            };
        }),
        show: |settings| match settings.disconnect {
            Disconnect::CancelAtEof => quoted("cancel_at_eof"),
            Disconnect::Detach => quoted("detach"),
            _ => quoted("cancel"),
        },
    },
    Key {
        name: "server_name",
        flag: "server-name",
        argument: "TEXT",
        help: "value of the field `Server`; empty: no field",
        kind: ValueKind::Text(set_server_name),
        show: |settings| quoted(&settings.server_name),
    },
];

/// Returns the keys that have changed, and whose values a running process cannot apply.
pub(crate) fn restart_only_changes(
    settings: &Settings,
    former: &Settings,
) -> impl Iterator<Item = &'static str> + use<> {
    let changed = [
        ("backlog", settings.backlog != former.backlog),
        ("http3", settings.http3 != former.http3),
        ("reuse_port", settings.reuse_port != former.reuse_port),
    ];
    changed.into_iter().filter(|(_, is_changed)| *is_changed).map(|(name, _)| name)
}

fn set_proxy_protocol(settings: &mut Settings, proxies: Vec<Located<String>>) -> ConfigResult {
    settings.proxy_protocol = networks(proxies)?;
    Ok(())
}

fn set_server_name(settings: &mut Settings, name: Located<String>) -> ConfigResult {
    match weft::header::HeaderValue::from_str(&name.value) {
        Ok(_) if name.value.is_ascii() => settings.server_name = name.value,
        _ => {
            return Err(name
                .problem(format!("{:?} is not a valid value of the field `Server`", name.value)));
        }
    }
    Ok(())
}
