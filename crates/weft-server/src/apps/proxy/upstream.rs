//! One upstream: where it is, how it is, and connections to it.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use weft::Stream;

use super::health::{Health, Trouble};
use super::url::{Place, UpstreamUrl};

/// How long the addresses of a name are believed.
const BELIEVED: Duration = Duration::from_secs(30);

/// What all workers know of an upstream.
pub(super) struct Upstream {
    pub(super) url: UpstreamUrl,
    pub(super) health: Health,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    /// Where its name leads, and since when that is known. It is looked at when a connection
    /// is made, not for each request.
    addresses: Mutex<Option<(Arc<[SocketAddr]>, Instant)>>,
}

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
        Ok(Upstream { url, health, tls, addresses: Mutex::new(None) })
    }

    /// A new connection, whose handshakes are done, if there is one within that time.
    pub(super) async fn connect(&self, patience: Duration) -> io::Result<Box<dyn Stream>> {
        let connected = match &self.url.place {
            Place::Unix(path) => timeout(patience, self.connect_unix(path)).await,
            Place::Tcp { host, port, .. } => {
                timeout(patience, self.connect_tcp(host, *port, patience)).await
            }
        };
        connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    async fn connect_unix(&self, path: &Path) -> io::Result<Box<dyn Stream>> {
        Ok(Box::new(UnixStream::connect(path).await?))
    }

    async fn connect_tcp(
        &self,
        host: &str,
        port: u16,
        patience: Duration,
    ) -> io::Result<Box<dyn Stream>> {
        let end = Instant::now() + patience;
        let addresses = self.addresses(host, port).await?;
        let mut failure = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for (tried, address) in addresses.iter().enumerate() {
            // One that does not answer leaves time for the others.
            let left = end.saturating_duration_since(Instant::now());
            let share = left / u32::try_from(addresses.len() - tried).unwrap_or(u32::MAX);
            match timeout(share, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => return self.secure(stream).await,
                Ok(Err(error)) => failure = error,
                Err(_) => failure = io::ErrorKind::TimedOut.into(),
            }
        }
        // It may be somewhere else by now.
        *self.known() = None;
        Err(failure)
    }

    async fn secure(&self, stream: TcpStream) -> io::Result<Box<dyn Stream>> {
        stream.set_nodelay(true)?;
        match &self.tls {
            None => Ok(Box::new(stream)),
            Some((connector, name)) => Ok(Box::new(connector.connect(name.clone(), stream).await?)),
        }
    }

    /// The addresses of the name, from the system's resolver. While one looks them up anew, the
    /// others believe the old ones.
    async fn addresses(&self, host: &str, port: u16) -> io::Result<Arc<[SocketAddr]>> {
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Ok([SocketAddr::new(ip, port)].into());
        }
        let now = Instant::now();
        let old = match &mut *self.known() {
            Some((addresses, since)) if now.duration_since(*since) < BELIEVED => {
                return Ok(addresses.clone());
            }
            Some((addresses, since)) => {
                *since = now;
                Some(addresses.clone())
            }
            None => None,
        };
        // It waits in a thread of the runtime's pool.
        match (lookup_host((host, port)).await, old) {
            (Ok(found), _) => {
                let found: Arc<[SocketAddr]> = found.collect();
                *self.known() = Some((found.clone(), now));
                Ok(found)
            }
            // Better the old ones than none.
            (Err(_), Some(old)) => Ok(old),
            (Err(error), None) => Err(error),
        }
    }

    fn known(&self) -> MutexGuard<'_, Option<(Arc<[SocketAddr]>, Instant)>> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It was not there, or did not do what it should. It is told when that begins and when it is
    /// left alone, not each time.
    pub(super) fn failed(&self, why: &str) {
        match self.health.failed(Instant::now()) {
            Some(Trouble::Begins) => log::warn!("the upstream {self}: {why}"),
            Some(Trouble::PutOut) => {
                log::warn!("the upstream {self} fails again and again: {why}");
            }
            None => {}
        }
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
