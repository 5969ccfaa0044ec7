//! What a proxy is set up with: every limit and timeout, one plain struct.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use weft::Network;

use super::url::UpstreamUrl;

/// Where requests are passed on to, and within which limits.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Whom requests are passed on to. There is at least one.
    pub(crate) upstreams: Vec<UpstreamUrl>,

    /// Which of several gets the next request. Default [`Balance::RoundRobin`].
    pub(crate) balance: Balance,

    /// What the upstream sees in `Host`. Default [`Host::Client`].
    pub(crate) host: Host,

    /// The proxies in front whose `Forwarded` and `X-Forwarded-*` are believed and added to; of
    /// everybody else they are replaced. If there are any, peers on Unix sockets are such
    /// proxies too.
    ///
    /// Default none: who believes everybody lets everybody choose an address.
    pub(crate) trusted: Vec<Network>,

    /// By which name we appear in `Via` (RFC 9110 §7.6.3); empty: not at all. Default `weft`.
    pub(crate) via: String,

    /// From the first try to the end of TCP's and TLS's handshakes, the look-up of the name
    /// included; longer: another upstream, or 504. Default 5 s.
    pub(crate) connect_timeout: Duration,

    /// How long an upstream may take for the head of its response once it has the request;
    /// longer: 504. Bytes of the request's body that move begin it anew, and waiting for the
    /// client is not counted. Default 60 s, as nginx.
    pub(crate) response_timeout: Duration,

    /// How long an upstream may be silent in the middle of a response's body; longer: the
    /// response is cut. Waiting for the client is not counted, and streams of events have the
    /// [time of tunnels](Settings::tunnel_timeout). Default 60 s, as nginx.
    pub(crate) body_timeout: Duration,

    /// How long a tunnel (a WebSocket, say) may be silent in both directions, or a stream of
    /// events (`text/event-stream`) have none. Default one hour: those who talk over one have
    /// pings of their own.
    pub(crate) tunnel_timeout: Duration,

    /// The most connections to one upstream that one worker has; further requests queue.
    /// Default 256.
    pub(crate) max_connections: usize,

    /// The most requests that wait for a connection to one upstream in one worker; more: 503
    /// with `Retry-After`. Default 256.
    pub(crate) max_queued: usize,

    /// How long they wait; longer: 503. Default 5 s.
    pub(crate) queue_timeout: Duration,

    /// The most connections to one upstream that one worker keeps while they are not used.
    /// Default 64.
    pub(crate) max_idle_connections: usize,

    /// How long they are kept. Default 30 s: shorter than most upstreams do, so that it is us
    /// who closes.
    pub(crate) keep_alive_timeout: Duration,

    /// The largest body of a request, in bytes; larger: 413. Default 1 GiB: it is streamed,
    /// and costs no memory.
    pub(crate) max_body_bytes: u64,

    /// The largest head of a response, in bytes, together with the interim ones before it;
    /// larger: 502. Default 32 KiB, at most 65,535.
    pub(crate) max_response_head_bytes: usize,

    /// How often a request is tried once more, elsewhere or on another connection: if nothing of
    /// it was sent, or if it is idempotent, has no body, and nothing of a response has come.
    /// Default 2.
    pub(crate) max_retries: usize,

    /// After so many failures within the [window](Settings::failure_window) an upstream gets no
    /// requests for a while, if there is another. Default 3.
    pub(crate) max_failures: u32,

    /// How long a failure is remembered. Default 10 s.
    pub(crate) failure_window: Duration,

    /// How long an upstream that failed is left alone. Then it is tried again; the next failure
    /// puts it out for as long again. Default 10 s.
    pub(crate) down_time: Duration,

    /// Whether upstreams are asked from time to time how they are. Default no.
    pub(crate) check: Option<Check>,

    /// The authorities whose certificates are believed, in PEM; `None`: those of the system.
    pub(crate) ca: Option<PathBuf>,
}

/// Which of several upstreams gets a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Balance {
    /// One after the other.
    #[default]
    RoundRobin,
    /// The one with the fewest requests under way from the same worker.
    LeastConnections,
}

/// What the upstream sees in `Host`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Host {
    /// What the client has sent.
    #[default]
    Client,
    /// The host and port of the upstream's URL.
    Upstream,
}

/// A request that an upstream is sent from time to time.
#[derive(Clone, Debug)]
pub(crate) struct Check {
    /// The target, behind the path of the upstream's URL.
    pub(crate) path: String,
    /// How long from one to the next.
    pub(crate) interval: Duration,
    /// How long it may take.
    pub(crate) timeout: Duration,
    /// The status of an upstream that is well; `None`: any of 200 to 399.
    pub(crate) status: Option<u16>,
    /// After so many failures in a row it gets no requests.
    pub(crate) fall: u32,
    /// After so many successes in a row it gets them again.
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

impl Settings {
    /// URLs with white space between them.
    pub(crate) fn parse_upstreams(text: &str) -> Result<Vec<UpstreamUrl>, String> {
        let urls: Vec<UpstreamUrl> =
            text.split_whitespace().map(str::parse).collect::<Result<_, String>>()?;
        if urls.is_empty() {
            return Err("expected the URL of an upstream, such as http://127.0.0.1:3000/".into());
        }
        Ok(urls)
    }

    /// What makes no sense.
    pub(crate) fn validate(&self) -> Result<(), String> {
        let least_one = [
            ("max_connections", self.max_connections),
            ("max_failures", self.max_failures as usize),
            ("the check's fall", self.check.as_ref().map_or(1, |check| check.fall as usize)),
            ("the check's rise", self.check.as_ref().map_or(1, |check| check.rise as usize)),
        ];
        if let Some((name, _)) = least_one.into_iter().find(|(_, number)| *number == 0) {
            return Err(format!("{name} of a proxy is at least 1"));
        }
        if self.upstreams.is_empty() {
            return Err("a proxy needs an upstream".to_owned());
        }
        if !HEAD_BYTES.contains(&self.max_response_head_bytes) {
            let (least, most) = (HEAD_BYTES.start(), HEAD_BYTES.end());
            return Err(format!("max_response_head_bytes is between {least} and {most}"));
        }
        match &self.check {
            Some(check) if !check.path.starts_with('/') => {
                Err("the path of a check begins with a slash".to_owned())
            }
            Some(check) if check.path.bytes().any(|b| b <= b' ' || b == 0x7f) => {
                Err("the path of a check has neither spaces nor controls".to_owned())
            }
            Some(check) if check.interval.is_zero() => {
                Err("the interval of a check is longer than nothing".to_owned())
            }
            _ => Ok(()),
        }
    }
}

/// Less would refuse what is usual; more is not read by [`weft::client`].
const HEAD_BYTES: RangeInclusive<usize> = 8_192..=65_535;

impl Default for Settings {
    fn default() -> Settings {
        Settings {
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
