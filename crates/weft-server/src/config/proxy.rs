//! Keys of a proxy route, besides `proxy` itself.

use std::time::Duration;

use super::key::{Key, ValueKind};
use super::keys::{quoted, quoted_list};
use super::limits::{limit, networks};
use super::location::{ConfigResult, Located};
use super::units::{show_size, show_time};
use crate::apps::proxy::{Balance, Check, Host, ProxySettings};

const MAX_COUNT: u64 = 65_535;

/// Valid only in the table of a route. They have no command-line options, because `--route` takes
/// only the short form.
pub(crate) static PROXY: [Key<ProxySettings>; 23] = [
    Key {
        name: "balance",
        flag: "",
        argument: "",
        help: "which of several gets a request: round-robin or least-connections",
        kind: ValueKind::Choice(&["round-robin", "least-connections"], |settings, choice| {
            settings.balance = match choice {
                "round-robin" => Balance::RoundRobin,
                _ => Balance::LeastConnections,
            };
        }),
        show: |settings| match settings.balance {
            Balance::RoundRobin => quoted("round-robin"),
            Balance::LeastConnections => quoted("least-connections"),
        },
    },
    Key {
        name: "host",
        flag: "",
        argument: "",
        help: "what upstreams see in `Host`: that of the client or of the upstream",
        kind: ValueKind::Choice(&["client", "upstream"], |settings, choice| {
            settings.host = if choice == "client" { Host::Client } else { Host::Upstream };
        }),
        show: |settings| match settings.host {
            Host::Client => quoted("client"),
            Host::Upstream => quoted("upstream"),
        },
    },
    Key {
        name: "trusted",
        flag: "",
        argument: "",
        help: "the proxies in front whose `Forwarded` and `X-Forwarded-*` are believed and added \
               to; of all others they are replaced",
        kind: ValueKind::Texts(set_trusted),
        show: |settings| quoted_list(settings.trusted.iter().map(ToString::to_string)),
    },
    Key {
        name: "via",
        flag: "",
        argument: "",
        help: "our name in `Via`; empty: no such field",
        kind: ValueKind::Text(set_via),
        show: |settings| quoted(&settings.via),
    },
    limit!(
        connect_timeout,
        "",
        time,
        "how long a new connection may take, TLS and the look-up of its name included; then 504"
    ),
    limit!(
        response_timeout,
        "",
        time,
        "how long an upstream may take for the head of its response; then 504"
    ),
    limit!(
        body_timeout,
        "",
        time,
        "how long an upstream may be silent in the middle of a response; then it is cut"
    ),
    limit!(
        tunnel_timeout,
        "",
        time,
        "how long a WebSocket or another tunnel may be silent both ways, and a stream of events"
    ),
    limit!(max_connections, "", count 1..=MAX_COUNT,
        "the most connections of one worker to one upstream"),
    limit!(max_queued, "", count 0..=MAX_COUNT,
        "the most requests of one worker that wait for one of them; more: 503"),
    limit!(queue_timeout, "", time, "how long they wait; then 503"),
    limit!(max_idle_connections, "", count 0..=MAX_COUNT,
        "the most connections that one worker keeps to one upstream while they are not used"),
    limit!(keep_alive_timeout, "", time, "how long they are kept"),
    limit!(max_body_bytes, "", size 0..=u64::MAX, "the largest body of a request; larger: 413"),
    limit!(max_response_head_bytes, "", size 8_192..=65_535,
        "the largest head of a response, with interim ones before it; larger: 502"),
    limit!(max_retries, "", count 0..=10,
        "how often a request is tried once more, if that is safe"),
    limit!(max_failures, "", count 1..=1_000,
        "after so many failures one of several upstreams is left alone for a while"),
    limit!(failure_window, "", time, "how long a failure is remembered"),
    limit!(down_time, "", time, "how long an upstream is left alone"),
    Key {
        name: "check",
        flag: "",
        argument: "",
        help: "a path that upstreams are asked for from time to time: without a success they get \
               no requests",
        kind: ValueKind::Text(|settings, path| {
            check(settings).path = path.value;
            Ok(())
        }),
        show: |settings| settings.check.as_ref().map_or(String::new(), |check| quoted(&check.path)),
    },
    Key {
        name: "check_interval",
        flag: "",
        argument: "",
        help: "how long from one such request to the next",
        kind: ValueKind::Time(|settings, time: Duration| check(settings).interval = time),
        show: |settings| show_check(settings, |check| quoted(&show_time(check.interval))),
    },
    Key {
        name: "check_timeout",
        flag: "",
        argument: "",
        help: "how long it may take",
        kind: ValueKind::Time(|settings, time: Duration| check(settings).timeout = time),
        show: |settings| show_check(settings, |check| quoted(&show_time(check.timeout))),
    },
    Key {
        name: "ca",
        flag: "",
        argument: "",
        help: "the authorities, in PEM, whose certificates are believed, in place of the system's",
        kind: ValueKind::Path(|settings, path| settings.ca = Some(path.value)),
        show: |settings| {
            let path = settings.ca.as_ref();
            path.map_or(String::new(), |path| quoted(&path.to_string_lossy()))
        },
    },
];

/// Returns the health check settings. Enables health checks if they are not enabled yet.
fn check(settings: &mut ProxySettings) -> &mut Check {
    settings.check.get_or_insert_default()
}

fn show_check(settings: &ProxySettings, show: impl Fn(&Check) -> String) -> String {
    settings.check.as_ref().map_or(String::new(), show)
}

fn set_trusted(settings: &mut ProxySettings, proxies: Vec<Located<String>>) -> ConfigResult {
    settings.trusted = networks(proxies)?;
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
