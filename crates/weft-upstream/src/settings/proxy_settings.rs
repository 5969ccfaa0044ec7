//! Settings of a proxy: every limit and timeout, in one plain struct.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use weft::StatusCode;
use weft::header::HeaderName;
use weft::net::IpNetwork;

use super::fastcgi_settings::FastCgiSettings;
use super::health_check_settings::{HealthCheck, HealthCheckTarget};
use super::mirror_settings::MirrorSettings;
use super::sticky_settings::StickySettings;
use crate::base::invalid_settings::InvalidSettings;
use crate::dns::dns_settings::DnsSettings;
use crate::tls::{ClientIdentity, KeyPin};
use crate::url::http_version::HttpVersion;
use crate::url::into_upstreams::{self, IntoUpstreams};
use crate::url::member::UpstreamMember;
use crate::url::upstream_url::UpstreamUrl;

/// Upstreams of a proxy, and the limits within which requests are forwarded to them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProxySettings {
    /// Upstreams that requests are forwarded to. At least one.
    pub upstreams: Vec<UpstreamMember>,

    /// Protocol of the upstreams. Default [`UpstreamProtocol::Http1`].
    pub protocol: UpstreamProtocol,

    /// Version of HTTP that is spoken to the upstreams; `h2c://` in a URL overrides it. Default
    /// [`HttpVersion::Http1`].
    pub http_version: HttpVersion,

    /// Maximum connections of HTTP/2 of one worker to one upstream. Another one is opened if all
    /// streams of the others are in use. Default 8.
    pub max_http2_connections: usize,

    /// Maximum streams of one connection of HTTP/2 that are in use at the same time; an upstream
    /// may permit fewer. Each may hold 64 KiB of a response that the client does not read. Default
    /// 128.
    pub max_streams: usize,

    /// Convert calls of gRPC-Web, of scripts in web pages, to gRPC. Default false.
    pub grpc_web: bool,

    /// Scripts of upstreams that use FastCGI or SCGI.
    pub fastcgi: FastCgiSettings,

    /// Selection of the upstream for the next request. Default [`BalancePolicy::RoundRobin`].
    pub balance: BalancePolicy,

    /// Template of the text that requests are hashed by, with [`BalancePolicy::Hash`]. Default the
    /// address of the client.
    pub hash_key: String,

    /// Cookie that leads the requests of a client to the same upstream. Default none.
    pub sticky: StickySettings,

    /// Value of `Host` in forwarded requests. Default [`ForwardedHost::Client`].
    pub host: ForwardedHost,

    /// Proxies in front of this one whose `Forwarded` and `X-Forwarded-*` are trusted and extended;
    /// from any other peer these fields are replaced, and others by which proxies describe their
    /// clients are dropped. If the list is not empty, peers on Unix
    /// sockets are trusted, too.
    ///
    /// Default none: if every peer were trusted, any client could choose its own address.
    pub trusted: Option<Vec<IpNetwork>>,

    /// Names of fields that are forwarded. Default [`ForwardedNames::Plain`].
    pub field_names: ForwardedNames,

    /// Fields that are forwarded in the trailer section of a request. Default none: upstreams merge
    /// trailers into the fields of the head, after checks that saw the head only.
    pub request_trailers: Arc<[HeaderName]>,

    /// Certificates of the client that upstreams get. Default [`ClientCert::Leaf`].
    pub client_cert: ClientCert,

    /// Name of this proxy in `Via` (RFC 9110 §7.6.3); empty: no `Via` is added. Default `weft`.
    pub via: String,

    /// Longest time to establish a connection, including name lookup and the TCP and TLS
    /// handshakes; beyond it another upstream is tried, or the response is 504. Default 5 s.
    pub connect_timeout: Duration,

    /// Longest time from the sent request to the head of the response; beyond it: 504. Progress of
    /// the request body restarts the timeout, and time spent waiting for the client does not count.
    /// Default 60 s, as nginx.
    pub response_timeout: Duration,

    /// Longest pause in the body of a response; beyond it the response is truncated. Time spent
    /// waiting for the client does not count, and event streams use
    /// [`tunnel_timeout`](ProxySettings::tunnel_timeout). Default 60 s, as nginx.
    pub body_timeout: Duration,

    /// Longest time without data in both directions of a tunnel (such as a WebSocket), or without
    /// an event in an event stream (`text/event-stream`). Default one hour: protocols that run over
    /// tunnels have their own pings.
    pub tunnel_timeout: Duration,

    /// Maximum connections of HTTP/1.1 of one worker to one upstream; further requests are queued.
    /// Default 256.
    pub max_connections: usize,

    /// Maximum connections of one worker to one upstream that one client uses at the same time; its
    /// further requests are queued, and do not delay requests of other clients. A client is an IPv4
    /// address or an IPv6 /64 network. [Trusted](ProxySettings::trusted) proxies and peers on Unix
    /// sockets are not limited: they forward requests of many clients. Default 0: half of
    /// [`max_connections`](ProxySettings::max_connections).
    pub max_connections_per_client: usize,

    /// Maximum requests of one worker that wait for a connection to one upstream; beyond it: 503
    /// with `Retry-After`. One client may have the same share of them as of the connections.
    /// Default 256.
    pub max_queued: usize,

    /// Longest time in that queue; beyond it: 503. Default 5 s.
    pub queue_timeout: Duration,

    /// Maximum idle connections of one worker to one upstream. Default 64.
    pub max_idle_connections: usize,

    /// Time after which an idle connection is closed. Default 30 s: shorter than the time of most
    /// upstreams, so that the proxy is the side that closes.
    pub keep_alive_timeout: Duration,

    /// Maximum size of a request body, in bytes; larger: 413. Default 16 MiB, as for all routes.
    pub max_body_bytes: u64,

    /// Receive the body of a request before a connection is leased, so that slow clients occupy
    /// none. Default true; false for upstreams that respond while they receive the body.
    pub buffer_requests: bool,

    /// Receive the body of a response as fast as the upstream sends it, so that slow clients occupy
    /// no connection. Event streams are never buffered. Default true.
    pub buffer_responses: bool,

    /// Maximum memory of a buffered request body, in bytes; more is stored in a temporary file.
    /// Default 16 KiB: few requests other than uploads of files are larger.
    pub request_buffer_bytes: usize,

    /// Maximum memory of a buffered response body, in bytes; more is stored in a temporary file.
    /// Default 16 KiB: many pages, and a sixteenth of the memory that a client may use.
    pub response_buffer_bytes: usize,

    /// Maximum size of the temporary file of a buffered body, in bytes; more is streamed. 0: none
    /// is used. Default 1 GiB, as nginx.
    pub max_temp_file_bytes: u64,

    /// Maximum size of the head of a response, in bytes, including preceding interim responses;
    /// larger: 502. Default 32 KiB, at most 65,535.
    pub max_response_head_bytes: usize,

    /// Accept two errors in the heads of responses: lines that end in a bare LF, and equal repeated
    /// `Content-Length` fields. Default false: a server that does not keep to the framing of HTTP
    /// may be misread at other places, too.
    pub lenient_responses: bool,

    /// Maximum retries of a request, on another upstream or another connection. A request is
    /// retried if no byte of it was sent, or if it is idempotent, has no body, and no byte of a
    /// response was received. Default 2.
    pub max_retries: usize,
    /// Doubled slashes in a path are removed for the upstream, as for the router. Default `None`:
    /// if the URL of the upstream has a path.
    pub merge_slashes: Option<bool>,
    /// Time for which a request is held, and sent again every 250 ms, while no upstream accepts
    /// connections. At most `max_queued` requests are held. Default zero: none is.
    pub try_duration: Duration,

    /// Failures within the [window](ProxySettings::failure_window) after which an upstream gets no
    /// requests for [`down_time`](ProxySettings::down_time), if there is another upstream. Default
    /// 3.
    pub max_failures: u32,

    /// Statuses of responses that count as failures. A request that may be sent again is sent to
    /// another upstream, if there is one. Default none.
    pub failure_statuses: Vec<StatusCode>,

    /// Time from the request to the head of a response beyond which the response counts as a
    /// failure; it is forwarded nevertheless. Default zero: none does.
    pub failure_latency: Duration,
    /// Share of the upstreams that must be available, in millionths. If fewer are available,
    /// upstreams in their down time get requests, too. Default none.
    pub min_available: Option<u32>,
    /// Share of the requests of a window beyond which their failures take an upstream down, in
    /// millionths. Default none.
    pub failure_rate: Option<u32>,

    /// Period in which failures are counted. Default 10 s.
    pub failure_window: Duration,

    /// Time for which an upstream that failed gets no requests. Then it is tried again; the next
    /// failure starts another such period. Default 10 s.
    pub down_time: Duration,

    /// Time in which the share of an upstream that has recovered grows to its weight. Default zero:
    /// it has its full share at once.
    pub slow_start: Duration,

    /// Periodic health check of the upstreams. Default none.
    pub check: Option<HealthCheck>,

    /// Text at the beginning of `Location` and `Refresh`, and the text in its place. If there is
    /// none for a value, the URL of the upstream becomes the prefix of the route. `None`: both
    /// fields are forwarded as they are. Default no replacements besides that one.
    pub rewrite_location: Option<Vec<TextReplacement>>,

    /// Text at the beginning of the attribute `Path` of cookies, and the text in its place.
    pub cookie_path: Vec<TextReplacement>,

    /// Values of the attribute `Domain` of cookies, and the values in their place. Empty: no
    /// attribute.
    pub cookie_domain: Vec<TextReplacement>,

    /// Copies of requests for another server. Default none.
    pub mirror: MirrorSettings,

    /// Resolution of the names of the upstreams.
    pub dns: DnsSettings,

    /// PEM file of the trusted certificate authorities. `None`: the authorities of the system.
    pub ca: Option<PathBuf>,

    /// PEM file of the certificate, with its chain, that upstreams get if they ask for one. Default
    /// none.
    pub tls_cert: Option<PathBuf>,
    /// PEM file of the key for [`tls_cert`](ProxySettings::tls_cert).
    pub tls_key: Option<PathBuf>,

    /// Name that is sent in TLS handshakes (SNI) and verified in the certificates of upstreams.
    /// Default none: the host of the URL.
    pub tls_name: Option<String>,

    /// Permitted keys in the certificates of upstreams. Default none: any key.
    pub tls_pin: Vec<KeyPin>,
}

/// Text at the beginning of a value, and the text in its place.
pub type TextReplacement = (String, String);

/// Protocol of an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum UpstreamProtocol {
    /// HTTP, in the version of [`http_version`](ProxySettings::http_version).
    #[default]
    Http1,
    /// FastCGI.
    FastCgi,
    /// SCGI.
    Scgi,
    /// uwsgi.
    Uwsgi,
}

/// Selection of one of several upstreams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BalancePolicy {
    /// Each upstream in turn.
    #[default]
    RoundRobin,
    /// The upstream with the fewest requests in progress from the same worker.
    LeastConnections,
    /// The one with fewer requests in progress, of two that are chosen at random.
    RandomTwo,
    /// The same upstream for the same [key](ProxySettings::hash_key), by consistent hashing with
    /// bounded loads.
    Hash,
}

/// Value of `Host` in forwarded requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum ForwardedHost {
    /// The value sent by the client.
    #[default]
    Client,
    /// The host and port of the upstream's URL.
    Upstream,
    /// This host.
    Fixed(String),
}

/// Names of fields that are forwarded. Upstreams that map names to variables (WSGI, Rack, CGI, PHP)
/// do not distinguish `X_Forwarded_For` from `X-Forwarded-For`, and some map all other punctuation
/// likewise. In no case do they get a field that they would mistake for a generated field of the
/// proxy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ForwardedNames {
    /// Letters, digits and hyphens.
    #[default]
    Plain,
    /// Also underscores.
    Underscores,
    /// All names that are valid in HTTP.
    Any,
}

/// Certificates of a client, verified in the TLS handshake, that upstreams get (RFC 9440).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ClientCert {
    /// The certificate of the client, in `Client-Cert`.
    #[default]
    Leaf,
    /// Also the intermediate certificates that the client sent, in `Client-Cert-Chain`.
    Chain,
    /// No certificates.
    None,
}

impl ProxySettings {
    /// Creates the default settings for one upstream or a list of them, each a URL such as
    /// `http://127.0.0.1:3000` or `unix:/run/app.sock`, behind which options may follow:
    /// `http://app:3000 weight=3 backup`.
    ///
    /// # Errors
    /// If there is no URL, or one of them is invalid.
    pub fn new(upstreams: impl IntoUpstreams) -> Result<ProxySettings, InvalidSettings> {
        let upstreams = upstreams.into_upstreams()?;
        Ok(ProxySettings { upstreams, ..ProxySettings::default() })
    }

    /// Returns the defaults for upstreams that use FastCGI.
    ///
    /// No connection is kept: a process of PHP-FPM serves one connection at a time, so that idle
    /// connections would occupy all of them.
    pub fn fastcgi() -> ProxySettings {
        ProxySettings {
            protocol: UpstreamProtocol::FastCgi,
            via: String::new(),
            max_idle_connections: 0,
            ..ProxySettings::default()
        }
    }

    /// Returns the certificate of the proxy for upstreams, if there is one.
    pub(crate) fn client_identity(&self) -> Option<ClientIdentity> {
        let (certificate, key) = (self.tls_cert.clone()?, self.tls_key.clone()?);
        Some(ClientIdentity { certificate, key })
    }

    /// Returns the defaults for upstreams that use SCGI, which has one request in a connection.
    pub fn scgi() -> ProxySettings {
        ProxySettings { protocol: UpstreamProtocol::Scgi, ..ProxySettings::fastcgi() }
    }

    /// Returns the defaults for upstreams that use uwsgi, which has one request in a connection.
    pub fn uwsgi() -> ProxySettings {
        ProxySettings { protocol: UpstreamProtocol::Uwsgi, ..ProxySettings::fastcgi() }
    }

    /// Parses URLs separated by white space, each with its options behind it.
    ///
    /// # Errors
    /// If there is no URL, or if a URL or an option is invalid. The error names it.
    pub fn parse_upstreams(text: &str) -> Result<Vec<UpstreamMember>, String> {
        into_upstreams::parse_upstreams(text)
    }

    /// Returns the URLs of the upstreams.
    pub(crate) fn urls(&self) -> impl Iterator<Item = &UpstreamUrl> + Clone {
        self.upstreams.iter().map(|member| &member.url)
    }

    /// Returns the trusted proxies in front of this one.
    pub fn trusted(&self) -> &[IpNetwork] {
        self.trusted.as_deref().unwrap_or_default()
    }

    /// Returns the version of HTTP that an upstream is used with.
    pub(crate) fn http_version_of(&self, url: &UpstreamUrl) -> HttpVersion {
        match self.http_version {
            _ if url.is_h2c() => HttpVersion::Http2,
            HttpVersion::Negotiated if !url.is_tls() => HttpVersion::Http1,
            version => version,
        }
    }

    /// Returns true if servers of the DNS are given, and no name of an upstream is resolved.
    pub fn has_unused_resolver(&self) -> bool {
        !self.dns.servers.is_empty() && !self.urls().any(UpstreamUrl::has_name)
    }

    /// Returns true if connections to an upstream use TLS.
    pub fn has_tls_upstream(&self) -> bool {
        self.urls().any(UpstreamUrl::is_tls)
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// The first invalid setting.
    pub fn validate(&self) -> Result<(), InvalidSettings> {
        let check_numbers = self.check.as_ref().map_or((1, 1), |check| (check.fall, check.rise));
        let at_least_one = [
            ("max_connections", self.max_connections),
            ("max_http2_connections", self.max_http2_connections),
            ("max_streams", self.max_streams),
            ("max_failures", self.max_failures as usize),
            ("check.fall", check_numbers.0 as usize),
            ("check.rise", check_numbers.1 as usize),
        ];
        if let Some((name, _)) = at_least_one.into_iter().find(|(_, number)| *number == 0) {
            return Err(format!("`{name}` must be at least 1").into());
        }
        if self.upstreams.is_empty() {
            return Err("a proxy needs at least one upstream".into());
        }
        UpstreamMember::check_list(&self.upstreams)?;
        if !RESPONSE_HEAD_BYTES.contains(&self.max_response_head_bytes) {
            let (min, max) = (RESPONSE_HEAD_BYTES.start(), RESPONSE_HEAD_BYTES.end());
            return Err(format!("`max_response_head_bytes` must be between {min} and {max}").into());
        }
        if self.grpc_web && !self.has_only_http2() {
            return Err(
                "`grpc_web` needs upstreams with HTTP/2: `h2c://`, or `http_version`".into()
            );
        }
        self.sticky.validate()?;
        self.dns.validate()?;
        self.mirror.validate()?;
        let mirror = self.mirror.url.as_ref();
        if let Some(url) = mirror.filter(|url| self.urls().any(|it| it.is_same_upstream(url))) {
            return Err(format!("{url} is an upstream, and cannot be the mirror, too").into());
        }
        self.validate_tls()?;
        self.check.as_ref().map_or(Ok(()), |check| self.validate_check(check))
    }

    fn has_only_http2(&self) -> bool {
        self.urls().all(|url| self.http_version_of(url) == HttpVersion::Http2)
    }

    fn validate_tls(&self) -> Result<(), InvalidSettings> {
        if self.tls_cert.is_some() != self.tls_key.is_some() {
            return Err("`tls_cert` and `tls_key` need each other".into());
        }
        if !self.tls_pin.is_empty() && !self.urls().all(UpstreamUrl::is_tls) {
            return Err("`tls_pin` needs upstreams with `https://`".into());
        }
        // The DNS is not authenticated: the name of a server in a record proves nothing.
        let mut services = self.urls().filter(|url| url.is_service() && url.is_tls());
        match services.next().filter(|_| self.tls_name.is_none()) {
            Some(url) => {
                Err(format!("{url} needs `tls_name`, which the certificates of its servers have")
                    .into())
            }
            None => Ok(()),
        }
    }

    fn validate_check(&self, check: &HealthCheck) -> Result<(), InvalidSettings> {
        match &check.target {
            HealthCheckTarget::Path(path) if !path.starts_with('/') => {
                Err("the path of a check must begin with a slash".into())
            }
            HealthCheckTarget::Path(path) if path.bytes().any(|b| b <= b' ' || b == 0x7f) => {
                Err("the path of a check must not contain spaces or control characters".into())
            }
            HealthCheckTarget::Grpc(service) if service.len() > MAX_SERVICE_BYTES => {
                Err(format!("the service of a check must not exceed {MAX_SERVICE_BYTES} bytes")
                    .into())
            }
            HealthCheckTarget::Grpc(_) if !self.has_only_http2() => {
                Err("a check by gRPC needs upstreams with HTTP/2: `h2c://`, or `http_version`"
                    .into())
            }
            _ if check.host.bytes().any(|b| b <= b' ' || b >= 0x7f) => {
                Err("`check.host` must be a host, such as app.example".into())
            }
            HealthCheckTarget::Grpc(_) if !check.statuses.is_empty() || !check.body.is_empty() => {
                Err("`check.statuses` and `check.body` need a check with a path".into())
            }
            _ if check.interval.is_zero() => {
                Err("the interval of a check must be longer than zero".into())
            }
            _ => Ok(()),
        }
    }
}

/// Longest name of a service in a health check, in bytes.
const MAX_SERVICE_BYTES: usize = 100;

/// Range of `max_response_head_bytes`: smaller limits would reject common responses, larger ones
/// are not supported by [`weft_proto::http1::client`].
const RESPONSE_HEAD_BYTES: RangeInclusive<usize> = 8_192..=65_535;

impl ProxySettings {
    /// Returns the settings of the proxy for copies, if there is one. It has no retries, no queue,
    /// and a connection for each copy.
    pub(crate) fn of_mirror(&self) -> Option<ProxySettings> {
        let MirrorSettings { url, timeout, max_copies, .. } = self.mirror.clone();
        let upstreams = vec![url?.into()];
        Some(ProxySettings {
            upstreams,
            balance: BalancePolicy::default(),
            mirror: MirrorSettings::default(),
            sticky: Default::default(),
            check: None,
            grpc_web: false,
            connect_timeout: self.connect_timeout.min(timeout),
            response_timeout: timeout,
            body_timeout: timeout,
            max_connections: max_copies,
            max_connections_per_client: max_copies,
            max_queued: 0,
            max_idle_connections: max_copies.min(self.max_idle_connections),
            buffer_responses: false,
            max_temp_file_bytes: 0,
            max_retries: 0,
            try_duration: Duration::ZERO,
            failure_statuses: Vec::new(),
            failure_latency: Duration::ZERO,
            failure_rate: None,
            rewrite_location: None,
            tls_name: None,
            tls_pin: Vec::new(),
            ..self.clone()
        })
    }
    /// Returns true if some responses count as failures.
    pub fn has_failing_responses(&self) -> bool {
        !self.failure_statuses.is_empty() || !self.failure_latency.is_zero()
    }
}

impl Default for ProxySettings {
    fn default() -> ProxySettings {
        ProxySettings {
            upstreams: Vec::new(),
            protocol: UpstreamProtocol::default(),
            http_version: HttpVersion::default(),
            max_http2_connections: 8,
            max_streams: 128,
            grpc_web: false,
            fastcgi: FastCgiSettings::default(),
            balance: BalancePolicy::default(),
            hash_key: "{client_ip}".to_owned(),
            sticky: StickySettings::default(),
            host: ForwardedHost::default(),
            trusted: None,
            field_names: ForwardedNames::default(),
            request_trailers: Arc::default(),
            client_cert: ClientCert::default(),
            via: "weft".to_owned(),
            connect_timeout: Duration::from_secs(5),
            response_timeout: Duration::from_secs(60),
            body_timeout: Duration::from_secs(60),
            tunnel_timeout: Duration::from_secs(3600),
            max_connections: 256,
            max_connections_per_client: 0,
            max_queued: 256,
            queue_timeout: Duration::from_secs(5),
            max_idle_connections: 64,
            keep_alive_timeout: Duration::from_secs(30),
            max_body_bytes: 16 << 20,
            buffer_requests: true,
            buffer_responses: true,
            request_buffer_bytes: 16 << 10,
            response_buffer_bytes: 16 << 10,
            max_temp_file_bytes: 1 << 30,
            max_response_head_bytes: 32 << 10,
            lenient_responses: false,
            max_retries: 2,
            merge_slashes: None,
            try_duration: Duration::ZERO,
            max_failures: 3,
            failure_statuses: Vec::new(),
            failure_latency: Duration::ZERO,
            min_available: None,
            failure_rate: None,
            failure_window: Duration::from_secs(10),
            down_time: Duration::from_secs(10),
            slow_start: Duration::ZERO,
            check: None,
            rewrite_location: Some(Vec::new()),
            cookie_path: Vec::new(),
            cookie_domain: Vec::new(),
            mirror: MirrorSettings::default(),
            dns: DnsSettings::default(),
            ca: None,
            tls_cert: None,
            tls_key: None,
            tls_name: None,
            tls_pin: Vec::new(),
        }
    }
}
