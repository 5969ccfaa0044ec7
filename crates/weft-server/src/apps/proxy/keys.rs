//! Keys of a proxy route, besides `proxy` itself.

use std::ops::RangeInclusive;
use std::time::Duration;

use weft::header::HeaderName;
use weft::net::IpNetwork;
use weft_config::{
    BoolOrPairs, ConfigResult, Key, Located, Pair, ValueKind, quoted, quoted_list, quoted_path,
    quoted_table, show_size, show_time,
};
use weft_upstream::{
    ClientCert, ForwardedHost, ForwardedNames, HttpVersion, ProxySettings, TextReplacement,
    may_permit_in_request_trailers,
};

use super::balance::{
    BALANCE, FAILURE_LATENCY, FAILURE_RATE, FAILURE_STATUSES, HASH_KEY, MIN_AVAILABLE, SLOW_START,
    STICKY_COOKIE, STICKY_MAX_AGE, STICKY_SECRET, TRY_DURATION,
};
use super::check::{
    CHECK, CHECK_BODY, CHECK_FALL, CHECK_HOST, CHECK_INTERVAL, CHECK_RISE, CHECK_STATUSES,
    CHECK_TIMEOUT,
};
use super::mirror::{MAX_MIRRORED, MIRROR, MIRROR_SHARE, MIRROR_TIMEOUT};
use crate::base::engine_fields::is_host;
use crate::base::network_set::networks;
use crate::sections::limits::limit;
use crate::sections::resolver::{max_ttl, min_ttl, resolver};

const MAX_COUNT: u64 = 65_535;

/// Range of the memory for one buffered body.
pub(in crate::apps) const BUFFER_BYTES: RangeInclusive<u64> = 4 << 10..=64 << 20;

/// Valid only in the table of a route. They have no command-line options, because `--route` takes
/// only the short form.
pub(super) static PROXY: [Key<ProxySettings>; 66] = [
    BALANCE,
    HASH_KEY,
    STICKY_COOKIE,
    STICKY_MAX_AGE,
    STICKY_SECRET,
    Key {
        name: "host",
        help: "`Host` in upstream requests: client (as received), upstream (of its URL), or \
               another such as app.internal:8080",
        kind: ValueKind::Text(set_host),
        show: |settings| match &settings.host {
            ForwardedHost::Client => quoted("client"),
            ForwardedHost::Upstream => quoted("upstream"),
            ForwardedHost::Fixed(host) => quoted(host),
        },
        ..Key::FILE_ONLY
    },
    Key {
        name: "merge_slashes",
        help: "replace doubled slashes in paths by one for upstreams, as for the choice of the \
               route; by default if the URL of the upstream has a path",
        kind: ValueKind::Bool(|settings, switch| settings.merge_slashes = Some(switch)),
        show: |settings| settings.merge_slashes.map_or_else(String::new, |it| it.to_string()),
        ..Key::FILE_ONLY
    },
    Key {
        name: "http_version",
        help: "version of HTTP for upstreams: 1.1, 2 (by ALPN with `https://`, or else by prior \
               knowledge, as always with `h2c://`) or auto (by ALPN)",
        kind: ValueKind::Choice(&["1.1", "2", "auto"], |settings, choice| {
            settings.http_version = match choice {
                "1.1" => HttpVersion::Http1,
                "2" => HttpVersion::Http2,
                _ => HttpVersion::Negotiated,
            };
        }),
        show: |settings| match settings.http_version {
            HttpVersion::Http1 => quoted("1.1"),
            HttpVersion::Http2 => quoted("2"),
            _ => quoted("auto"),
        },
        ..Key::FILE_ONLY
    },
    limit!(
        grpc_web,
        "",
        switch,
        "convert calls of gRPC-Web, from scripts of web pages, to gRPC for upstreams with HTTP/2"
    ),
    Key {
        name: "trusted",
        help: "trusted proxies: their `Forwarded` and `X-Forwarded-*` fields are extended, and \
               their other fields about the client, such as `X-Real-IP`, are forwarded; fields \
               of other clients are replaced or dropped (`trusted_proxies`)",
        kind: ValueKind::Texts(set_trusted),
        show: |settings| {
            let show = |trusted: &Vec<_>| quoted_list(trusted.iter().map(IpNetwork::to_string));
            settings.trusted.as_ref().map_or_else(String::new, show)
        },
        ..Key::FILE_ONLY
    },
    Key {
        name: "field_names",
        help: "names of request fields that are forwarded: plain (letters, digits, hyphens), \
               underscores (also `_`) or any",
        kind: ValueKind::Choice(&["plain", "underscores", "any"], |settings, choice| {
            settings.field_names = match choice {
                "plain" => ForwardedNames::Plain,
                "underscores" => ForwardedNames::Underscores,
                _ => ForwardedNames::Any,
            };
        }),
        show: |settings| match settings.field_names {
            ForwardedNames::Plain => quoted("plain"),
            ForwardedNames::Underscores => quoted("underscores"),
            ForwardedNames::Any => quoted("any"),
        },
        ..Key::FILE_ONLY
    },
    Key {
        name: "request_trailers",
        help: "names of fields that are forwarded in the trailer section of a request; others are \
               dropped",
        kind: ValueKind::Texts(set_request_trailers),
        show: |settings| quoted_list(settings.request_trailers.iter().map(ToString::to_string)),
        ..Key::FILE_ONLY
    },
    Key {
        name: "client_cert",
        help: "verified certificates of the client that upstreams get (RFC 9440): leaf (in \
               `Client-Cert`), chain (also in `Client-Cert-Chain`) or none",
        kind: ValueKind::Choice(&["leaf", "chain", "none"], |settings, choice| {
            settings.client_cert = match choice {
                "leaf" => ClientCert::Leaf,
                "chain" => ClientCert::Chain,
                _ => ClientCert::None,
            };
        }),
        show: |settings| match settings.client_cert {
            ClientCert::Leaf => quoted("leaf"),
            ClientCert::Chain => quoted("chain"),
            ClientCert::None => quoted("none"),
        },
        ..Key::FILE_ONLY
    },
    Key {
        name: "via",
        help: "name in `Via`; empty: no field",
        kind: ValueKind::Text(set_via),
        show: |settings| quoted(&settings.via),
        ..Key::FILE_ONLY
    },
    limit!(
        connect_timeout,
        "",
        time,
        "timeout for connecting, including name resolution and TLS; then 504"
    ),
    limit!(response_timeout, "", time, "timeout for the response head of an upstream; then 504"),
    limit!(
        body_timeout,
        "",
        time,
        "idle timeout within a response body; then the response is aborted"
    ),
    limit!(
        tunnel_timeout,
        "",
        time,
        "idle timeout of a WebSocket or another tunnel, and of an event stream"
    ),
    limit!(max_connections, "", count 1..=MAX_COUNT,
        "maximum number of connections per worker and upstream"),
    limit!(max_connections_per_client, "", count 0..=MAX_COUNT,
        "maximum number of these connections that one client address, or /64 of IPv6, uses at the \
         same time; 0: half of `max_connections`"),
    limit!(max_http2_connections, "", count 1..=1_024,
        "maximum number of connections per worker and upstream with `http_version = \"2\"`"),
    limit!(max_streams, "", count 1..=MAX_COUNT,
        "maximum number of streams in use per connection of HTTP/2; an upstream may permit fewer"),
    limit!(max_queued, "", count 0..=MAX_COUNT,
        "maximum number of requests per worker that wait for a connection; more: 503"),
    limit!(queue_timeout, "", time, "timeout in the queue; then 503"),
    limit!(max_idle_connections, "", count 0..=MAX_COUNT,
        "maximum number of idle connections per worker and upstream"),
    limit!(keep_alive_timeout, "", time, "maximum time for which an idle connection is kept"),
    limit!(
        buffer_requests,
        "",
        switch,
        "receive a request body before a connection is used for it"
    ),
    limit!(
        buffer_responses,
        "",
        switch,
        "receive a response body as fast as the upstream sends it, except for event streams"
    ),
    limit!(request_buffer_bytes, "", size BUFFER_BYTES,
        "maximum memory of a buffered request body; more is stored in a temporary file"),
    limit!(response_buffer_bytes, "", size BUFFER_BYTES,
        "maximum memory of a buffered response body; more is stored in a temporary file"),
    limit!(max_temp_file_bytes, "", size 0..=u64::MAX,
        "maximum size of the temporary file of a buffered body; more is streamed; 0: no file"),
    limit!(max_response_head_bytes, "", size 8_192..=65_535,
        "maximum size of a response head, including interim responses; larger: 502"),
    limit!(
        lenient_responses,
        "",
        switch,
        "accept responses of devices: bare LF as line ends, equal repeated lengths, and a length beside \
         `chunked` or `chunked` twice, after which the connection is closed"
    ),
    limit!(max_retries, "", count 0..=10,
        "maximum number of retries of a request, if a retry is safe"),
    TRY_DURATION,
    limit!(max_failures, "", count 1..=1_000,
        "number of failures after which one of several upstreams gets no requests for `down_time`"),
    FAILURE_STATUSES,
    FAILURE_LATENCY,
    FAILURE_RATE,
    limit!(failure_window, "", time, "time for which a failure is counted"),
    limit!(down_time, "", time, "time for which an upstream gets no requests after `max_failures`"),
    MIN_AVAILABLE,
    SLOW_START,
    CHECK,
    CHECK_HOST,
    CHECK_INTERVAL,
    CHECK_TIMEOUT,
    CHECK_STATUSES,
    CHECK_BODY,
    CHECK_FALL,
    CHECK_RISE,
    Key {
        name: "rewrite_location",
        help: "replace the URL of the upstream at the beginning of `Location` and `Refresh` by the prefix \
               of the route; before that, other texts: `{ \"http://app.local/\" = \"/app/\" }`",
        kind: ValueKind::BoolOrPairs(|settings, value| {
            settings.rewrite_location = match value {
                BoolOrPairs::Bool(is_on) => is_on.then(Vec::new),
                BoolOrPairs::Pairs(pairs) => Some(replacements(pairs)?),
            };
            Ok(())
        }),
        show: |settings| match &settings.rewrite_location {
            None => "false".to_owned(),
            Some(pairs) if pairs.is_empty() => "true".to_owned(),
            Some(pairs) => quoted_table(pairs.iter().cloned()),
        },
        ..Key::FILE_ONLY
    },
    Key {
        name: "cookie_path",
        help: "replace the beginning of the attribute `Path` of cookies: `{ \"/\" = \"/app/\" }`",
        kind: ValueKind::Pairs(|settings, pairs| {
            settings.cookie_path = replacements(pairs)?;
            Ok(())
        }),
        show: |settings| quoted_table(settings.cookie_path.iter().cloned()),
        ..Key::FILE_ONLY
    },
    Key {
        name: "cookie_domain",
        help: "replace the attribute `Domain` of cookies: `{ \"app.local\" = \"example.org\" }`; an \
               empty value removes it",
        kind: ValueKind::Pairs(|settings, pairs| {
            settings.cookie_domain = replacements(pairs)?;
            Ok(())
        }),
        show: |settings| quoted_table(settings.cookie_domain.iter().cloned()),
        ..Key::FILE_ONLY
    },
    MIRROR,
    MIRROR_SHARE,
    MIRROR_TIMEOUT,
    MAX_MIRRORED,
    resolver(),
    min_ttl(),
    max_ttl(),
    Key {
        name: "ca",
        help: "trusted CA certificates in PEM, in place of the certificates of the system",
        kind: ValueKind::Path(|settings, path| settings.ca = Some(path.value)),
        show: |settings| quoted_path(settings.ca.as_ref()),
        ..Key::FILE_ONLY
    },
    Key {
        name: "tls_cert",
        help: "certificate in PEM, with its chain, that upstreams get if they ask for one",
        kind: ValueKind::Path(|settings, path| settings.tls_cert = Some(path.value)),
        show: |settings| quoted_path(settings.tls_cert.as_ref()),
        ..Key::FILE_ONLY
    },
    Key {
        name: "tls_key",
        help: "private key of `tls_cert` in PEM",
        kind: ValueKind::Path(|settings, path| settings.tls_key = Some(path.value)),
        show: |settings| quoted_path(settings.tls_key.as_ref()),
        ..Key::FILE_ONLY
    },
    Key {
        name: "tls_name",
        help: "name that upstreams get in TLS handshakes (SNI), and that their certificates must have; \
               by default the host of the URL",
        kind: ValueKind::Text(|settings, name| {
            settings.tls_name = Some(name.value);
            Ok(())
        }),
        show: |settings| settings.tls_name.as_deref().map_or(String::new(), quoted),
        ..Key::FILE_ONLY
    },
    Key {
        name: "tls_pin",
        help: "public keys; the certificate of an upstream must have one of them, besides all \
               else: sha256/ and the SHA-256 in base64",
        kind: ValueKind::Texts(|settings, pins| {
            let parse = |text: Located<String>| {
                text.value.parse().map_err(|invalid: String| text.problem(invalid))
            };
            settings.tls_pin = pins.into_iter().map(parse).collect::<ConfigResult<_>>()?;
            Ok(())
        }),
        show: |settings| quoted_list(settings.tls_pin.iter().map(ToString::to_string)),
        ..Key::FILE_ONLY
    },
];

/// Keys of a proxy route that concern HTTP to the upstream.
const HTTP_KEYS: [&str; 33] = [
    "mirror",
    "mirror_share",
    "mirror_timeout",
    "max_mirrored",
    "http_version",
    "max_http2_connections",
    "max_streams",
    "grpc_web",
    "host",
    "merge_slashes",
    "trusted",
    "field_names",
    "request_trailers",
    "client_cert",
    "via",
    "tunnel_timeout",
    "lenient_responses",
    "rewrite_location",
    "max_retries",
    "try_duration",
    "check",
    "check_host",
    "check_interval",
    "check_timeout",
    "check_statuses",
    "check_body",
    "check_fall",
    "check_rise",
    "ca",
    "tls_cert",
    "tls_key",
    "tls_name",
    "tls_pin",
];

/// Returns the keys that do not depend on the protocol of the upstreams.
pub(in crate::apps) fn upstream_keys() -> impl Iterator<Item = &'static Key<ProxySettings>> + Clone
{
    PROXY.iter().filter(|key| !HTTP_KEYS.contains(&key.name))
}

/// Returns texts that replace others.
fn replacements(pairs: Vec<Pair>) -> ConfigResult<Vec<TextReplacement>> {
    let replacement = |Pair { name, value, .. }: Pair| {
        if name.value.is_empty() {
            return Err(name.problem("expected a text that is replaced"));
        }
        // The value becomes a part of a field, in which a semicolon would begin an attribute.
        let is_permitted = |b: u8| b.is_ascii_graphic() && !b"\"\\;".contains(&b);
        match value.value.bytes().all(is_permitted) {
            true => Ok((name.value, value.value)),
            false => Err(value.problem(format!("{:?} has a byte that no URL has", value.value))),
        }
    };
    pairs.into_iter().map(replacement).collect()
}

fn set_trusted(settings: &mut ProxySettings, proxies: Vec<Located<String>>) -> ConfigResult {
    settings.trusted = Some(networks(proxies)?);
    Ok(())
}

fn set_host(settings: &mut ProxySettings, text: Located<String>) -> ConfigResult {
    settings.host = match &*text.value {
        "client" => ForwardedHost::Client,
        "upstream" => ForwardedHost::Upstream,
        host if is_host(host.as_bytes()) => ForwardedHost::Fixed(text.value),
        host => {
            let message = format!(
                "expected client, upstream or a host such as app.internal:8080, found {host:?}"
            );
            return Err(text.problem(message));
        }
    };
    Ok(())
}

fn set_request_trailers(settings: &mut ProxySettings, names: Vec<Located<String>>) -> ConfigResult {
    let parse = |name: Located<String>| {
        let is_plain = name.value.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        let parsed = HeaderName::try_from(&*name.value).ok().filter(|_| is_plain);
        let permitted =
            parsed.filter(|parsed| may_permit_in_request_trailers(parsed.as_str().as_bytes()));
        permitted.ok_or_else(|| {
            name.problem(format!("{:?} is not the name of a field for trailers", name.value))
        })
    };
    settings.request_trailers = names.into_iter().map(parse).collect::<ConfigResult<_>>()?;
    Ok(())
}

fn set_via(settings: &mut ProxySettings, name: Located<String>) -> ConfigResult {
    let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:".contains(&b);
    if !name.value.bytes().all(is_token) {
        return Err(name.problem(format!("{:?} is not a valid name in `Via`", name.value)));
    }
    settings.via = name.value;
    Ok(())
}
