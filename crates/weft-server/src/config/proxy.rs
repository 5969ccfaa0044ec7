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
        help: "load balancing between upstreams: round-robin or least-connections",
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
        help: "`Host` in upstream requests: that of the client or of the upstream",
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
        help: "trusted proxies: their `Forwarded` and `X-Forwarded-*` fields are extended; those \
               of other clients are replaced",
        kind: ValueKind::Texts(set_trusted),
        show: |settings| quoted_list(settings.trusted.iter().map(ToString::to_string)),
    },
    Key {
        name: "via",
        flag: "",
        argument: "",
        help: "name in `Via`; empty: no field",
        kind: ValueKind::Text(set_via),
        show: |settings| quoted(&settings.via),
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
    limit!(max_queued, "", count 0..=MAX_COUNT,
        "maximum number of requests per worker that wait for a connection; more: 503"),
    limit!(queue_timeout, "", time, "timeout in the queue; then 503"),
    limit!(max_idle_connections, "", count 0..=MAX_COUNT,
        "maximum number of idle connections per worker and upstream"),
    limit!(keep_alive_timeout, "", time, "maximum time for which an idle connection is kept"),
    limit!(max_body_bytes, "", size 0..=u64::MAX, "maximum size of a request body; larger: 413"),
    limit!(max_response_head_bytes, "", size 8_192..=65_535,
        "maximum size of a response head, including interim responses; larger: 502"),
    limit!(max_retries, "", count 0..=10,
        "maximum number of retries of a request, if a retry is safe"),
    limit!(max_failures, "", count 1..=1_000,
        "number of failures after which one of several upstreams gets no requests for `down_time`"),
    limit!(failure_window, "", time, "time for which a failure is counted"),
    limit!(down_time, "", time, "time for which an upstream gets no requests after `max_failures`"),
    Key {
        name: "check",
        flag: "",
        argument: "",
        help: "path of health checks: an upstream gets requests only after a successful check",
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
        help: "interval between health checks",
        kind: ValueKind::Time(|settings, time: Duration| check(settings).interval = time),
        show: |settings| show_check(settings, |check| quoted(&show_time(check.interval))),
    },
    Key {
        name: "check_timeout",
        flag: "",
        argument: "",
        help: "timeout of a health check",
        kind: ValueKind::Time(|settings, time: Duration| check(settings).timeout = time),
        show: |settings| show_check(settings, |check| quoted(&show_time(check.timeout))),
    },
    Key {
        name: "ca",
        flag: "",
        argument: "",
        help: "trusted CA certificates in PEM, in place of those of the system",
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
