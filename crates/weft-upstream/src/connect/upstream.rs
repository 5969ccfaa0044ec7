//! An upstream: its address, its health, and new connections to it.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use futures_util::future::{BoxFuture, Either};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, UdpSocket, UnixStream};
use tokio::time::error::Elapsed;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;

use super::happy_eyeballs;
use super::upstream_connection::UpstreamConnection;
use crate::base::random;
use crate::base::throttled_warning::ThrottledWarning;
use crate::dns::answer_cache::AddressCache;
use crate::dns::dns_settings::DnsSettings;
use crate::dns::query::unspecified;
use crate::dns::{Resolved, Resolver};
use crate::health::operator_control::{Control, ControlChange, UpstreamMode};
use crate::health::upstream_health::{HealthChange, UpstreamHealth};
use crate::url::http_version::HttpVersion;
use crate::url::upstream_url::{UpstreamAddress, UpstreamUrl};

/// State of an upstream that all workers share.
pub struct Upstream {
    pub(crate) url: UpstreamUrl,
    /// Health of the upstream.
    pub health: UpstreamHealth,
    pub(crate) http_version: HttpVersion,
    control: Control,
    failures: AtomicU64,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    resolver: Resolver,
    addresses: AddressCache,
    /// Logged if requests are rejected because the upstream has no free connection.
    overload_warning: ThrottledWarning,
}

/// Addresses of a name, with their TTL.
type LookupFuture = BoxFuture<'static, io::Result<(Vec<SocketAddr>, Option<Duration>)>>;

/// Delay before another attempt to connect to a Unix socket whose backlog is full.
const BACKLOG_RETRY_DELAY: Duration = Duration::from_millis(5);

impl Upstream {
    /// Creates an upstream of HTTP/1.1, and uses `tls` if its URL is `https`.
    ///
    /// # Errors
    /// If the host is not a valid name for a certificate.
    pub fn new(
        url: UpstreamUrl,
        health: UpstreamHealth,
        tls: &Option<Arc<ClientConfig>>,
    ) -> Result<Upstream, String> {
        let tls = match tls.as_ref().filter(|_| url.is_tls()) {
            Some(config) => {
                let name = ServerName::try_from(url.host().to_owned());
                let name = name.map_err(|error| format!("{url}: {error}"))?;
                Some((TlsConnector::from(config.clone()), name))
            }
            None => None,
        };
        if tls.is_some() || url.has_name() {
            random::prepare();
        }
        let (failures, addresses, overload_warning) = Default::default();
        let resolver = Resolver::new(&[]);
        let http_version = HttpVersion::default();
        let control = Control::new(1);
        Ok(Upstream {
            url,
            health,
            http_version,
            control,
            failures,
            tls,
            resolver,
            addresses,
            overload_warning,
        })
    }

    /// Sets the name that is sent in TLS handshakes (SNI) and verified in certificates. `None`: the
    /// host of the URL.
    ///
    /// # Errors
    /// If it is not a valid name for a certificate.
    pub(crate) fn with_server_name(mut self, name: Option<&str>) -> Result<Upstream, String> {
        if let (Some((_, server_name)), Some(name)) = (&mut self.tls, name) {
            let parsed = ServerName::try_from(name.to_owned());
            *server_name = parsed.map_err(|error| format!("the TLS name {name:?}: {error}"))?;
        }
        Ok(self)
    }

    /// Sets the version of HTTP that is spoken. `tls` has to offer it.
    pub(crate) fn with_http_version(self, http_version: HttpVersion) -> Upstream {
        Upstream { http_version, ..self }
    }

    /// Sets the servers that resolve its name, and bounds of the time for which addresses are used.
    pub fn with_dns(self, dns: &DnsSettings) -> Upstream {
        let addresses = AddressCache::new(dns.ttl);
        Upstream { resolver: Resolver::new(&dns.servers), addresses, ..self }
    }

    /// Sets the configured weight.
    pub fn with_weight(self, weight: u32) -> Upstream {
        Upstream { control: Control::new(weight), ..self }
    }

    /// Returns true if neither its health nor an operator keeps requests from the upstream.
    pub(crate) fn may_get_requests(&self) -> bool {
        self.control.mode() == UpstreamMode::Up && self.health.passes_checks()
    }

    /// Returns true if the upstream may get requests of sessions that it has.
    pub(crate) fn may_get_requests_of_session(&self) -> bool {
        self.control.mode() != UpstreamMode::Disabled && self.health.passes_checks()
    }

    pub(crate) fn mode(&self) -> UpstreamMode {
        self.control.mode()
    }

    /// Returns the configured weight, or the weight that an operator has set.
    pub(crate) fn set_weight(&self) -> u32 {
        self.control.weight()
    }

    /// Returns the current weight, in hundredths: less for a time after a recovery.
    pub fn weight(&self, now: Instant) -> u32 {
        self.control.weight() * self.health.percent(now)
    }

    /// Makes a change of an operator. An upstream that is put back starts slowly.
    pub fn change(&self, change: ControlChange) {
        if self.control.mode() != UpstreamMode::Up && change.mode == Some(UpstreamMode::Up) {
            self.health.set_recovered(Instant::now());
        }
        self.control.apply(change);
    }

    /// Takes over the state that operators have set for the same upstream in a former
    /// configuration, and the result of its health checks.
    pub(crate) fn take_over(&self, former: &Upstream) {
        if !std::ptr::eq(self, former) {
            self.control.take_over(&former.control);
            self.health.take_over(&former.health);
        }
    }

    /// Opens a connection within `connect_timeout`, including all handshakes.
    pub fn connect(
        &self,
        connect_timeout: Duration,
    ) -> impl Future<Output = io::Result<UpstreamConnection>> {
        self.connect_with_preface(&[], connect_timeout)
    }

    /// Opens a connection as [`connect`](Upstream::connect), and sends `preface` on it before the
    /// handshake of TLS.
    ///
    /// Clients may keep many connections waiting for an upstream. Rarely needed state is boxed, and
    /// without `async`, the future contains each argument once.
    pub fn connect_with_preface(
        &self,
        preface: &[u8],
        connect_timeout: Duration,
    ) -> impl Future<Output = io::Result<UpstreamConnection>> {
        match &self.url.address {
            UpstreamAddress::Unix(path) => {
                let connected = timeout(connect_timeout, self.connect_unix(path, preface));
                let connected = async move { connected.await.unwrap_or_else(timed_out) };
                Either::Left(Box::pin(connected))
            }
            UpstreamAddress::Tcp { host, port, .. } => {
                Either::Right(self.connect_tcp((host, *port), preface, connect_timeout))
            }
        }
    }

    async fn connect_unix(&self, path: &Path, preface: &[u8]) -> io::Result<UpstreamConnection> {
        loop {
            match UnixStream::connect(path).await {
                // The backlog is full, and there is no notification when it has room again.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    sleep(BACKLOG_RETRY_DELAY).await
                }
                connected => {
                    let mut stream = connected?;
                    stream.write_all(preface).await?;
                    return Ok(UpstreamConnection::new(Box::new(stream), None));
                }
            }
        }
    }

    fn connect_tcp(
        &self,
        (host, port): (&str, u16),
        preface: &[u8],
        connect_timeout: Duration,
    ) -> impl Future<Output = io::Result<UpstreamConnection>> {
        let start = Instant::now();
        let found = Box::pin(self.resolve(host, port, start));
        async move {
            let remaining = || connect_timeout.saturating_sub(start.elapsed());
            let addresses = timeout(connect_timeout, found).await.unwrap_or_else(timed_out)?;
            let connected = match *addresses {
                [address] => {
                    let connecting = timeout(remaining(), TcpStream::connect(address)).await;
                    connecting.map(|connected| connected.map(|stream| (stream, address)))
                }
                // Boxed: few names have several addresses.
                _ => timeout(remaining(), Box::pin(happy_eyeballs::connect(&addresses))).await,
            };
            let (stream, address) = match connected.unwrap_or_else(timed_out) {
                Ok(connected) => connected,
                Err(failure) => {
                    self.addresses.invalidate(Instant::now());
                    return Err(failure);
                }
            };
            stream.set_nodelay(true)?;
            if preface.is_empty() && self.tls.is_none() {
                return Ok(UpstreamConnection::new(Box::new(stream), Some(address)));
            }
            let wrapped = timeout(remaining(), self.wrap_stream(stream, address, preface));
            Box::pin(wrapped).await.unwrap_or_else(timed_out)
        }
    }

    async fn resolve(&self, host: &str, port: u16, now: Instant) -> io::Result<Arc<[SocketAddr]>> {
        match host.parse::<IpAddr>() {
            Ok(address) => Ok([SocketAddr::new(address, port)].into()),
            Err(_) => self.addresses.get(host, now, self.lookup(port)).await,
        }
    }

    /// Returns the function that resolves its name.
    fn lookup(&self, port: u16) -> impl FnOnce(String) -> LookupFuture + use<> {
        let resolver = self.resolver.clone();
        move |host| {
            Box::pin(async move {
                let Resolved { items, ttl } = resolver.addresses(&host).await?;
                let address = |ip| SocketAddr::new(ip, port);
                Ok((items.into_iter().map(address).collect(), ttl))
            })
        }
    }

    /// Starts a lookup if the addresses of the name have expired. Requests on idle connections do
    /// not start one.
    pub(crate) fn refresh_addresses(&self, now: Instant) {
        if self.addresses.is_due(now)
            && let UpstreamAddress::Tcp { host, port, .. } = &self.url.address
        {
            self.addresses.refresh(host, now, self.lookup(*port));
        }
    }

    /// Returns true if a connection leads to an address that the name of the upstream has.
    /// `compared_at` is the number of changes of these addresses at the last comparison, and is
    /// updated.
    pub(crate) fn has_address(&self, address: Option<SocketAddr>, compared_at: &mut u64) -> bool {
        let changes = self.addresses.changes();
        if *compared_at == changes {
            return true;
        }
        *compared_at = changes;
        address.is_none_or(|address| self.addresses.contains(&address))
    }

    /// Opens a socket that exchanges datagrams with the upstream.
    ///
    /// # Errors
    /// If the name cannot be resolved within `limit`, if no socket can be opened, or for a Unix
    /// socket.
    pub async fn connect_udp(&self, limit: Duration) -> io::Result<UdpSocket> {
        let UpstreamAddress::Tcp { host, port, .. } = &self.url.address else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let found = timeout(limit, self.resolve(host, *port, Instant::now())).await;
        let addresses = found.unwrap_or_else(timed_out)?;
        let mut failure = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in addresses.iter() {
            let socket = UdpSocket::bind((unspecified(address.is_ipv4()), 0)).await?;
            match socket.connect(address).await {
                Ok(()) => return Ok(socket),
                Err(error) => failure = error,
            }
        }
        self.addresses.invalidate(Instant::now());
        Err(failure)
    }

    /// Sends a preface, and performs the handshake of TLS.
    async fn wrap_stream(
        &self,
        mut stream: TcpStream,
        address: SocketAddr,
        preface: &[u8],
    ) -> io::Result<UpstreamConnection> {
        stream.write_all(preface).await?;
        let Some((connector, name)) = &self.tls else {
            return Ok(UpstreamConnection::new(Box::new(stream), Some(address)));
        };
        let stream = connector.connect(name.clone(), stream).await?;
        let has_negotiated_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        if self.http_version == HttpVersion::Http2 && !has_negotiated_http2 {
            let reason =
                "it does not offer HTTP/2 by ALPN; `http_version` may permit both versions";
            return Err(io::Error::new(io::ErrorKind::Unsupported, reason));
        }
        let mut connection = UpstreamConnection::new(Box::new(stream), Some(address));
        connection.has_negotiated_http2 = has_negotiated_http2;
        Ok(connection)
    }

    /// Records a failure of the upstream. Only the first of a series and the start of a down
    /// time are logged.
    pub fn record_failure(&self, reason: &str) {
        self.failures.fetch_add(1, Relaxed);
        match self.health.record_failure(Instant::now()) {
            Some(HealthChange::FirstFailure) => log::warn!("the upstream {self}: {reason}"),
            Some(HealthChange::WentDown) => {
                log::warn!("the upstream {self} fails again and again: {reason}");
            }
            None => {}
        }
    }

    /// Logs that a request was rejected because too many are in progress. The warning is
    /// rate-limited.
    pub(crate) fn warn_overloaded(&self) {
        self.overload_warning.warn(&format!("the upstream {self}: too many requests in progress"));
    }

    /// Returns the number of all failures.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Relaxed)
    }

    /// Records a response of the upstream.
    pub fn record_success(&self) {
        if self.health.record_success(Instant::now) {
            log::info!("the upstream {self} responds again");
        }
    }
}

fn timed_out<T>(_: Elapsed) -> io::Result<T> {
    Err(io::ErrorKind::TimedOut.into())
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.url.fmt(f)
    }
}
