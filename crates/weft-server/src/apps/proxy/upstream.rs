//! One upstream: where it is, how it is, and connections to it.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;

use super::addresses::Addresses;
use super::health::{Health, Trouble};
use super::trouble::Seldom;
use super::url::{Place, UpstreamUrl};
use super::wire::Wire;

/// What all workers know of an upstream.
pub(super) struct Upstream {
    pub(super) url: UpstreamUrl,
    pub(super) health: Health,
    failures: AtomicU64,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    addresses: Addresses,
    /// It has no room for more requests.
    crowd: Seldom,
}

/// How long it takes until one tries again where too many wait to be accepted.
const PAUSE: Duration = Duration::from_millis(5);

impl Upstream {
    /// With what TLS is to be spoken with, should it be.
    ///
    /// # Errors
    /// If no certificate could be for this name.
    pub(super) fn new(
        url: UpstreamUrl,
        health: Health,
        tls: &Option<Arc<ClientConfig>>,
    ) -> Result<Upstream, String> {
        let tls = match (&url.place, tls) {
            (Place::Tcp { host, tls: true, .. }, Some(config)) => {
                let name = ServerName::try_from(host.clone());
                let name = name.map_err(|error| format!("{url}: {error}"))?;
                Some((TlsConnector::from(config.clone()), name))
            }
            _ => None,
        };
        let (failures, addresses, crowd) = Default::default();
        Ok(Upstream { url, health, failures, tls, addresses, crowd })
    }

    /// A new connection, whose handshakes are done, if there is one within that time.
    pub(super) async fn connect(&self, patience: Duration) -> io::Result<Wire> {
        let connected = match &self.url.place {
            Place::Unix(path) => timeout(patience, self.connect_unix(path)).await,
            Place::Tcp { host, port, .. } => {
                timeout(patience, self.connect_tcp(host, *port, patience)).await
            }
        };
        connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    async fn connect_unix(&self, path: &Path) -> io::Result<Wire> {
        loop {
            match UnixStream::connect(path).await {
                // Too many wait to be accepted, and nobody is told when there are fewer.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => sleep(PAUSE).await,
                connected => return Ok(Wire::new(Box::new(connected?))),
            }
        }
    }

    async fn connect_tcp(&self, host: &str, port: u16, patience: Duration) -> io::Result<Wire> {
        let start = Instant::now();
        // The system's resolver waits in a thread of the runtime's pool.
        let look_up = move |host: String| async move {
            lookup_host((host, port)).await.map(Iterator::collect::<Vec<_>>)
        };
        let addresses = self.addresses.get((host, port), start, look_up).await?;
        let mut failure = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for (tried, address) in addresses.iter().enumerate() {
            // One that does not answer leaves time for the others.
            let left = patience.saturating_sub(start.elapsed());
            let share = left / u32::try_from(addresses.len() - tried).unwrap_or(u32::MAX);
            match timeout(share, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => return self.secure(stream).await,
                Ok(Err(error)) => failure = error,
                Err(_) => failure = io::ErrorKind::TimedOut.into(),
            }
        }
        self.addresses.forget();
        Err(failure)
    }

    async fn secure(&self, stream: TcpStream) -> io::Result<Wire> {
        stream.set_nodelay(true)?;
        match &self.tls {
            None => Ok(Wire::new(Box::new(stream))),
            Some((connector, name)) => {
                Ok(Wire::new(Box::new(connector.connect(name.clone(), stream).await?)))
            }
        }
    }

    /// It was not there, or did not do what it should. It is told when that begins and when it is
    /// left alone, not each time.
    pub(super) fn failed(&self, why: &str) {
        self.failures.fetch_add(1, Relaxed);
        match self.health.failed(Instant::now()) {
            Some(Trouble::Begins) => log::warn!("the upstream {self}: {why}"),
            Some(Trouble::PutOut) => {
                log::warn!("the upstream {self} fails again and again: {why}");
            }
            None => {}
        }
    }

    /// A request was sent away, because too many are under way.
    pub(super) fn was_full(&self) {
        self.crowd.tell(&format!("the upstream {self}: too many requests are under way"));
    }

    /// How often it has failed.
    pub(super) fn failures(&self) -> u64 {
        self.failures.load(Relaxed)
    }

    /// It has answered.
    pub(super) fn succeeded(&self) {
        if self.health.succeeded() {
            log::info!("the upstream {self} is back");
        }
    }
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.url.fmt(f)
    }
}
