//! Resolver of host names and services (SRV) that also returns the TTL of its answers.
//!
//! By default, it uses the files of the system: `/etc/hosts`, and the servers and search domains of
//! `/etc/resolv.conf`. If these do not resolve a name, the resolver of the C library looks it up.
//! It has other sources (nsswitch.conf), but reports no times.

mod address_order;
pub(crate) mod answer_cache;
pub(crate) mod dns_settings;
pub(crate) mod local_services;
pub mod message;
pub(crate) mod query;
pub(crate) mod services;
mod system_files;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::lookup_host;
use tokio::task::spawn_blocking;

pub use crate::dns::message::{MAX_RECORDS, SrvRecord};
use crate::dns::message::{RecordData, RecordType, Records};
use crate::dns::query::{Servers, unspecified};
pub use crate::dns::system_files::SystemFiles;

/// Port of the servers.
pub const PORT: u16 = 53;

/// Time for which an address of `/etc/hosts` is valid.
const FILE_TTL: Duration = Duration::from_secs(5);

/// Resolves names by the servers of the configuration, or as the system does.
#[derive(Clone, Debug)]
pub struct Resolver {
    /// Empty: as the system does.
    servers: Arc<[SocketAddr]>,
    files: SystemFiles,
}

/// Results of a lookup, and the time for which they are valid; `None`: unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Resolved<T> {
    /// Results of the lookup.
    pub items: Vec<T>,
    /// Time for which the results are valid.
    pub ttl: Option<Duration>,
}

impl Resolver {
    /// Creates a resolver that queries these servers. Without servers, it is the resolver of the
    /// system.
    pub fn new(servers: &[SocketAddr]) -> Resolver {
        Resolver { servers: servers.into(), files: SystemFiles::default() }
    }

    /// Uses other files than the files of the system.
    #[cfg(test)]
    fn with_files(self, files: SystemFiles) -> Resolver {
        Resolver { files, ..self }
    }

    /// Looks up the addresses of a host, in the order in which to try them.
    ///
    /// # Errors
    /// If no server answers, or if the host has no addresses.
    pub async fn addresses(&self, host: &str) -> io::Result<Resolved<IpAddr>> {
        if let Some(loopback) = localhost(host) {
            return Ok(Resolved { items: loopback, ttl: None });
        }
        let mut found = match self.own_servers() {
            Some(servers) => servers.addresses(host).await?,
            None => self.addresses_of_system(host).await?,
        };
        address_order::sort(&mut found.items, source_of);
        Ok(found)
    }

    /// Looks up the servers of a service, such as `_http._tcp.example.org`.
    ///
    /// # Errors
    /// If no server answers, or if there is no such service.
    pub async fn services(&self, name: &str) -> io::Result<Resolved<SrvRecord>> {
        let servers = match self.own_servers() {
            Some(servers) => servers,
            None => self.load_files(name).await?.1.ok_or_else(|| {
                io::Error::new(io::ErrorKind::NotFound, "/etc/resolv.conf has no servers")
            })?,
        };
        let records = servers.search(name, &[RecordType::Srv]).await?;
        Ok(resolved(records, |data| match data {
            RecordData::Srv(service) => Some(service),
            RecordData::Address(_) => None,
        }))
    }

    /// Returns the configured servers, if there are any. Names are absolute for them.
    fn own_servers(&self) -> Option<Servers> {
        (!self.servers.is_empty()).then(|| Servers::new(self.servers.to_vec()))
    }

    async fn addresses_of_system(&self, host: &str) -> io::Result<Resolved<IpAddr>> {
        let (in_hosts, servers) = self.load_files(host).await?;
        if !in_hosts.is_empty() {
            return Ok(Resolved { items: in_hosts, ttl: Some(FILE_TTL) });
        }
        if let Some(servers) = servers
            && let Ok(found) = servers.addresses(host).await
        {
            return Ok(found);
        }
        let addresses = lookup_host((host, 0)).await?;
        let mut items: Vec<IpAddr> = addresses.map(|address| address.ip()).collect();
        items.dedup();
        items.truncate(MAX_RECORDS);
        Ok(Resolved { items, ttl: None })
    }

    /// Returns the addresses of a host in `/etc/hosts`, and the servers in `/etc/resolv.conf`.
    async fn load_files(&self, host: &str) -> io::Result<(Vec<IpAddr>, Option<Servers>)> {
        let (files, host) = (self.files.clone(), host.to_owned());
        let loaded = spawn_blocking(move || (files.addresses(&host), files.servers())).await;
        loaded.map_err(io::Error::other)
    }
}

impl Servers {
    async fn addresses(&self, host: &str) -> io::Result<Resolved<IpAddr>> {
        let records = self.search(host, &[RecordType::Aaaa, RecordType::A]).await?;
        Ok(resolved(records, |data| match data {
            RecordData::Address(address) => Some(address),
            RecordData::Srv(_) => None,
        }))
    }
}

fn resolved<T>(records: Records, item: impl FnMut(RecordData) -> Option<T>) -> Resolved<T> {
    let ttl = Some(Duration::from_secs(records.ttl.into()));
    Resolved { items: records.data.into_iter().filter_map(item).collect(), ttl }
}

/// Returns the addresses of a name that always stands for this host (RFC 6761 §6.3).
fn localhost(host: &str) -> Option<Vec<IpAddr>> {
    let name = host.trim_end_matches('.').to_ascii_lowercase();
    let is_local = name == "localhost" || name.ends_with(".localhost");
    is_local.then(|| vec![Ipv6Addr::LOCALHOST.into(), Ipv4Addr::LOCALHOST.into()])
}

/// Returns the local address from which the system would reach an address. `None`: there is no
/// route. Nothing is sent.
fn source_of(address: IpAddr) -> Option<IpAddr> {
    let socket = UdpSocket::bind((unspecified(address.is_ipv4()), 0)).ok()?;
    socket.connect((address, PORT)).ok()?;
    socket.local_addr().ok().map(|source| source.ip())
}

#[cfg(test)]
mod tests;
