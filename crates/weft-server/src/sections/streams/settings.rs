//! Settings of a stream: every limit and timeout, in one plain struct.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use weft::net::IpNetwork;
use weft_upstream::{BalancePolicy, DnsSettings, UpstreamMember, UpstreamUrl};

use crate::base::log_target::LogTarget;

/// Upstreams of a stream, and the limits of its connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StreamSettings {
    /// Upstreams of all connections, or of those without one of
    /// [`server_names`](StreamSettings::server_names). Default none.
    pub(crate) to: Vec<UpstreamMember>,

    /// Upstreams by the server name in the TLS ClientHello (RFC 6066 §3). If there are any, the
    /// client must send first. Default none.
    pub(crate) server_names: Vec<(ServerNamePattern, Vec<UpstreamMember>)>,

    /// Networks of the clients that are allowed. Default none: all that are not denied.
    pub(crate) allow: Vec<IpNetwork>,

    /// Networks of clients whose connections are closed, even within allowed ones. Default none.
    pub(crate) deny: Vec<IpNetwork>,

    /// Files with further networks that are allowed or denied. Default none.
    pub(crate) allow_file: Option<PathBuf>,
    pub(crate) deny_file: Option<PathBuf>,

    /// TLS is terminated, with the certificates of `[tls]`. Default false: it passes through.
    pub(crate) tls: bool,

    /// File with the authorities of upstreams with TLS. Default: the authorities of the system.
    pub(crate) ca: Option<PathBuf>,

    /// Resolution of the names of the upstreams.
    pub(crate) dns: DnsSettings,

    /// Selection of the upstream for the next connection. Default [`BalancePolicy::RoundRobin`].
    pub(crate) balance: BalancePolicy,

    /// Version of the PROXY header that upstreams get. Default none.
    pub(crate) proxy_protocol: Option<ProxyVersion>,

    /// Proxies in front of this server, which must send a PROXY header. A header of any other peer
    /// is forwarded as data. Default none.
    pub(crate) proxy_protocol_from: Vec<IpNetwork>,

    /// Destination of a line for each connection. Default none.
    pub(crate) access_log: Option<LogTarget>,

    /// Format of the lines in `access_log`. Default text.
    pub(crate) log_format: LineFormat,

    /// Longest time to establish a connection to one upstream; beyond it another one is tried.
    /// Default 5 s.
    pub(crate) connect_timeout: Duration,

    /// Time between two checks of an upstream. Each check opens a connection. Default
    /// [`Duration::MAX`]: none.
    pub(crate) check_interval: Duration,

    /// Failures of an upstream in a row after which it is tried last. Default 3.
    pub(crate) max_failures: u32,

    /// Time for which a failure counts. Default 10 s.
    pub(crate) failure_window: Duration,

    /// Time for which an upstream is tried last. Default 10 s.
    pub(crate) down_time: Duration,

    /// Longest time for the PROXY header, the ClientHello and the handshake of TLS together.
    /// Default 10 s.
    pub(crate) handshake_timeout: Duration,

    /// Longest time without data in both directions. Default 10 min, as nginx.
    pub(crate) idle_timeout: Duration,

    /// Longest time of a session of UDP without datagrams in both directions. Default 30 s.
    pub(crate) udp_idle_timeout: Duration,

    /// Number of datagrams of the upstream for each one of the client. A session ends after them.
    /// Default 0: any number.
    pub(crate) udp_responses: u64,

    /// Maximum size of a datagram; larger ones are dropped. Default 64 KiB, which none exceeds.
    pub(crate) max_datagram_bytes: usize,

    /// Maximum number of connections and of sessions of UDP; further ones are closed. Default
    /// 1,024.
    pub(crate) max_connections: usize,

    /// Maximum number of connections of one client, which is an IPv4 address or an IPv6 /64
    /// network. Default 0: half of [`max_connections`](StreamSettings::max_connections).
    pub(crate) max_connections_per_client: usize,
}

/// Format of the lines of an access log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LineFormat {
    #[default]
    Text,
    Json,
}

impl Default for StreamSettings {
    fn default() -> StreamSettings {
        StreamSettings {
            to: Vec::new(),
            server_names: Vec::new(),
            allow: Vec::new(),
            deny: Vec::new(),
            allow_file: None,
            deny_file: None,
            tls: false,
            ca: None,
            dns: DnsSettings::default(),
            balance: BalancePolicy::default(),
            proxy_protocol: None,
            proxy_protocol_from: Vec::new(),
            access_log: None,
            log_format: LineFormat::Text,
            connect_timeout: Duration::from_secs(5),
            check_interval: Duration::MAX,
            max_failures: 3,
            failure_window: Duration::from_secs(10),
            down_time: Duration::from_secs(10),
            handshake_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(600),
            udp_idle_timeout: Duration::from_secs(30),
            udp_responses: 0,
            max_datagram_bytes: 64 << 10,
            max_connections: 1_024,
            max_connections_per_client: 0,
        }
    }
}

impl StreamSettings {
    /// Returns the upstreams, also those by name.
    pub(crate) fn upstreams(&self) -> impl Iterator<Item = &UpstreamUrl> {
        self.groups().flatten().map(|member| &member.url)
    }

    /// Returns the upstreams that share connections: those for all others, and those by name.
    pub(crate) fn groups(&self) -> impl Iterator<Item = &Vec<UpstreamMember>> {
        [&self.to].into_iter().chain(self.server_names.iter().map(|(_, members)| members))
    }

    /// Returns true if the peer sends a PROXY header.
    pub(crate) fn is_proxy(&self, peer: IpAddr) -> bool {
        self.proxy_protocol_from.iter().any(|network| network.contains(peer))
    }
}

/// Version of a PROXY header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProxyVersion {
    V1,
    V2,
}

/// A server name in lower case, or `*.` and a domain for all names below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerNamePattern(String);

impl ServerNamePattern {
    pub(crate) fn matches(&self, name: &str) -> bool {
        match self.0.strip_prefix('*') {
            // With the dot, so that at least one label is in front of the domain.
            Some(domain) => {
                let at = name.len().checked_sub(domain.len()).filter(|at| *at > 0);
                at.and_then(|at| name.get(at..)).is_some_and(|end| end.eq_ignore_ascii_case(domain))
            }
            None => self.0.eq_ignore_ascii_case(name),
        }
    }

    /// The greatest one of several matching patterns decides.
    pub(crate) fn precedence(&self) -> (bool, usize) {
        (!self.0.starts_with('*'), self.0.len())
    }
}

impl FromStr for ServerNamePattern {
    type Err = String;

    fn from_str(text: &str) -> Result<ServerNamePattern, String> {
        let name = text.strip_prefix("*.").unwrap_or(text);
        let is_label = |label: &str| {
            !label.is_empty()
                && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        };
        match name.split('.').all(is_label) {
            true => Ok(ServerNamePattern(text.to_ascii_lowercase())),
            false => Err(format!(
                "expected a server name such as db.example.org, or *.example.org, found {text:?}"
            )),
        }
    }
}

impl fmt::Display for ServerNamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
