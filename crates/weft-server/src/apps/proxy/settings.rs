//! ProxySettings of a proxy: every limit and timeout, in one plain struct.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use weft::Network;

use super::url::UpstreamUrl;

/// Upstreams of a proxy, and the limits within which requests are forwarded to them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ProxySettings {
    /// Upstreams that requests are forwarded to. At least one.
    pub(crate) upstreams: Vec<UpstreamUrl>,

    /// Selection of the upstream for the next request. Default [`Balance::RoundRobin`].
    pub(crate) balance: Balance,

    /// Value of `Host` in forwarded requests. Default [`Host::Client`].
    pub(crate) host: Host,

    /// Proxies in front of this one whose `Forwarded` and `X-Forwarded-*` are trusted and extended;
    /// from any other peer these fields are replaced. If the list is not empty, peers on Unix
    /// sockets are trusted, too.
    ///
    /// Default none: if every peer were trusted, any client could choose its own address.
    pub(crate) trusted: Vec<Network>,

    /// Name of this proxy in `Via` (RFC 9110 §7.6.3); empty: no `Via` is added. Default `weft`.
    pub(crate) via: String,

    /// Longest time to establish a connection, including name lookup and the TCP and TLS
    /// handshakes; beyond it another upstream is tried, or the response is 504. Default 5 s.
    pub(crate) connect_timeout: Duration,

    /// Longest time from the sent request to the head of the response; beyond it: 504. Progress of
    /// the request body restarts the timeout, and time spent waiting for the client does not count.
    /// Default 60 s, as nginx.
    pub(crate) response_timeout: Duration,

    /// Longest pause in the body of a response; beyond it the response is truncated. Time spent
    /// waiting for the client does not count, and event streams use
    /// [`tunnel_timeout`](ProxySettings::tunnel_timeout). Default 60 s, as nginx.
    pub(crate) body_timeout: Duration,

    /// Longest time without data in both directions of a tunnel (such as a WebSocket), or without
    /// an event in an event stream (`text/event-stream`). Default one hour: protocols that run over
    /// tunnels have their own pings.
    pub(crate) tunnel_timeout: Duration,

    /// Maximum connections of one worker to one upstream; further requests are queued. Default 256.
    pub(crate) max_connections: usize,

    /// Maximum requests of one worker that wait for a connection to one upstream; beyond it: 503
    /// with `Retry-After`. Default 256.
    pub(crate) max_queued: usize,

    /// Longest time in that queue; beyond it: 503. Default 5 s.
    pub(crate) queue_timeout: Duration,

    /// Maximum idle connections of one worker to one upstream. Default 64.
    pub(crate) max_idle_connections: usize,

    /// Time after which an idle connection is closed. Default 30 s: shorter than that of most
    /// upstreams, so that the proxy is the side that closes.
    pub(crate) keep_alive_timeout: Duration,

    /// Maximum size of a request body, in bytes; larger: 413. Default 1 GiB: bodies are streamed
    /// and use no memory.
    pub(crate) max_body_bytes: u64,

    /// Maximum size of the head of a response, in bytes, including preceding interim responses;
    /// larger: 502. Default 32 KiB, at most 65,535.
    pub(crate) max_response_head_bytes: usize,

    /// Maximum retries of a request, on another upstream or another connection. A request is
    /// retried if no byte of it was sent, or if it is idempotent, has no body, and no byte of a
    /// response was received. Default 2.
    pub(crate) max_retries: usize,

    /// Failures within the [window](ProxySettings::failure_window) after which an upstream gets no
    /// requests for [`down_time`](ProxySettings::down_time), if there is another upstream. Default 3.
    pub(crate) max_failures: u32,

    /// Period in which failures are counted. Default 10 s.
    pub(crate) failure_window: Duration,

    /// Time for which an upstream that failed gets no requests. Then it is tried again; the next
    /// failure starts another such period. Default 10 s.
    pub(crate) down_time: Duration,

    /// Periodic health check of the upstreams. Default none.
    pub(crate) check: Option<Check>,

    /// PEM file of the trusted certificate authorities; `None`: those of the system.
    pub(crate) ca: Option<PathBuf>,
}

/// Selection of one of several upstreams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Balance {
    /// Each upstream in turn.
    #[default]
    RoundRobin,
    /// The upstream with the fewest requests in progress from the same worker.
    LeastConnections,
}

/// Value of `Host` in forwarded requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Host {
    /// The value sent by the client.
    #[default]
    Client,
    /// The host and port of the upstream's URL.
    Upstream,
}

/// A health check: a request that is sent to an upstream periodically.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Check {
    /// Request target, appended to the path of the upstream's URL.
    pub(crate) path: String,
    /// Time between two checks.
    pub(crate) interval: Duration,
    /// Longest time for a check; beyond it the check has failed.
    pub(crate) timeout: Duration,
    /// Status expected of a healthy upstream; `None`: any of 200 to 399.
    pub(crate) status: Option<u16>,
    /// Consecutive failures after which the upstream gets no requests.
    pub(crate) fall: u32,
    /// Consecutive successes after which it gets requests again.
    pub(crate) rise: u32,
}

impl Default for Check {
    fn default() -> Check {
        Check {
            path: "/".to_owned(),
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(2),
            status: None,
            fall: 2,
            rise: 1,
        }
    }
}

impl ProxySettings {
    /// Parses URLs separated by white space.
    pub(crate) fn parse_upstreams(text: &str) -> Result<Vec<UpstreamUrl>, String> {
        let urls: Vec<UpstreamUrl> =
            text.split_whitespace().map(str::parse).collect::<Result<_, String>>()?;
        if urls.is_empty() {
            return Err("expected the URL of an upstream, such as http://127.0.0.1:3000/".into());
        }
        Ok(urls)
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// The first invalid setting.
    pub(crate) fn validate(&self) -> Result<(), String> {
        let at_least_one = [
            ("max_connections", self.max_connections),
            ("max_failures", self.max_failures as usize),
            ("the check's `fall`", self.check.as_ref().map_or(1, |check| check.fall as usize)),
            ("the check's `rise`", self.check.as_ref().map_or(1, |check| check.rise as usize)),
        ];
        if let Some((name, _)) = at_least_one.into_iter().find(|(_, number)| *number == 0) {
            return Err(format!("proxy: {name} must be at least 1"));
        }
        if self.upstreams.is_empty() {
            return Err("a proxy needs at least one upstream".to_owned());
        }
        if !RESPONSE_HEAD_BYTES.contains(&self.max_response_head_bytes) {
            let (min, max) = (RESPONSE_HEAD_BYTES.start(), RESPONSE_HEAD_BYTES.end());
            return Err(format!("max_response_head_bytes must be between {min} and {max}"));
        }
        match &self.check {
            Some(check) if !check.path.starts_with('/') => {
                Err("the path of a check must begin with a slash".to_owned())
            }
            Some(check) if check.path.bytes().any(|b| b <= b' ' || b == 0x7f) => {
                Err("the path of a check must not contain spaces or control characters".to_owned())
            }
            Some(check) if check.interval.is_zero() => {
                Err("the interval of a check must be longer than zero".to_owned())
            }
            _ => Ok(()),
        }
    }
}

/// Range of `max_response_head_bytes`: smaller limits would reject common responses, larger ones
/// are not supported by [`weft_proto::http1::client`].
const RESPONSE_HEAD_BYTES: RangeInclusive<usize> = 8_192..=65_535;

impl Default for ProxySettings {
    fn default() -> ProxySettings {
        ProxySettings {
            upstreams: Vec::new(),
            balance: Balance::default(),
            host: Host::default(),
            trusted: Vec::new(),
            via: "weft".to_owned(),
            connect_timeout: Duration::from_secs(5),
            response_timeout: Duration::from_secs(60),
            body_timeout: Duration::from_secs(60),
            tunnel_timeout: Duration::from_secs(3600),
            max_connections: 256,
            max_queued: 256,
            queue_timeout: Duration::from_secs(5),
            max_idle_connections: 64,
            keep_alive_timeout: Duration::from_secs(30),
            max_body_bytes: 1 << 30,
            max_response_head_bytes: 32 << 10,
            max_retries: 2,
            max_failures: 3,
            failure_window: Duration::from_secs(10),
            down_time: Duration::from_secs(10),
            check: None,
            ca: None,
        }
    }
}
