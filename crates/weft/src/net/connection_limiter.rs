//! Limits of the number of open connections.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use tokio::sync::Notify;

use crate::settings::Settings;
use crate::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use crate::sync::{Arc, Mutex, MutexGuard, PoisonError};
use weft_proto::proxy_protocol::IpNetwork;

/// Delay before the next attempt when no connection can be accepted for lack of resources, or none
/// can be closed.
pub(crate) const RETRY_DELAY: Duration = Duration::from_millis(50);

/// Time for a connection to close before another one is closed in its place.
const CLOSE_DELAY: Duration = Duration::from_millis(200);

/// Maximum number of connections that are closed in one attempt to make room for another. The
/// number starts at 1 and doubles with each attempt.
const MAX_CLOSED_AT_ONCE: usize = 32;

/// Limits the number of open connections, in total and per peer, over all workers.
pub(crate) struct ConnectionLimiter {
    max: AtomicUsize,
    open: AtomicUsize,
    peers: Mutex<Peers>,
    released: Notify,
}

/// Number of open connections of each peer, and of all peers of an IPv6 /48 network. The type
/// `ClientLimit` has no settings that change, and its clients have no prefix of another length.
#[derive(Default)]
struct Peers {
    open: OpenConnections,
    open_by_site: OpenConnections,
    max: usize,
    max_per_site: usize,
    /// Peers that are not counted.
    proxies: Vec<IpNetwork>,
    /// Length of the IPv6 prefixes that are counted as one peer.
    ipv6_prefix_length: u8,
}

/// Number of open connections by network.
#[derive(Default)]
struct OpenConnections(HashMap<IpAddr, usize>);

impl OpenConnections {
    fn of(&self, network: IpAddr) -> usize {
        self.0.get(&network).copied().unwrap_or(0)
    }

    fn add(&mut self, network: IpAddr) {
        *self.0.entry(network).or_default() += 1;
    }

    fn remove(&mut self, network: IpAddr) {
        if let Some(open) = self.0.get_mut(&network) {
            *open -= 1;
            if *open == 0 {
                self.0.remove(&network);
            }
        }
    }
}

impl Peers {
    /// Counts a connection of a peer, if it may have another one.
    fn try_add(&mut self, peer: IpAddr) -> bool {
        let site = site(peer);
        let is_permitted = self.open.of(peer) < self.max
            && site.is_none_or(|site| self.open_by_site.of(site) < self.max_per_site);
        if is_permitted {
            self.open.add(peer);
            site.into_iter().for_each(|site| self.open_by_site.add(site));
        }
        is_permitted
    }

    fn remove(&mut self, peer: IpAddr) {
        self.open.remove(peer);
        site(peer).into_iter().for_each(|site| self.open_by_site.remove(site));
    }
}

/// Permit for one connection; dropping it releases the slot.
pub(crate) struct ConnectionPermit {
    limiter: Arc<ConnectionLimiter>,
    peer: Option<IpAddr>,
    load: Option<Arc<AtomicUsize>>,
}

impl ConnectionLimiter {
    pub(crate) fn new(settings: &Settings) -> Arc<ConnectionLimiter> {
        let limiter = ConnectionLimiter {
            max: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            peers: Mutex::default(),
            released: Notify::new(),
        };
        limiter.update_settings(settings);
        Arc::new(limiter)
    }

    /// Sets the limits. Open connections are not closed.
    pub(crate) fn update_settings(&self, settings: &Settings) {
        let mut peers = self.peers();
        let max_per_peer = settings.max_connections_per_peer;
        peers.max = max_per_peer;
        // Half of the connections that one of its peers leaves, too.
        peers.max_per_site =
            max_per_peer + settings.max_connections.saturating_sub(max_per_peer) / 2;
        peers.proxies = settings.proxy_protocol.clone();
        peers.ipv6_prefix_length = settings.ipv6_prefix_length;
        drop(peers);
        self.max.store(settings.max_connections, Relaxed);
        self.released.notify_one();
    }

    /// Waits until another connection is permitted. Closes connections by `close_idle`, which
    /// returns false if none waits for a request, until one is.
    pub(super) async fn wait_for_capacity(&self, close_idle: impl AsyncFn() -> bool) {
        let mut count = 1;
        while !self.has_capacity() {
            let mut closed = 0;
            while closed < count && close_idle().await {
                closed += 1;
            }
            let released = async {
                while !self.has_capacity() {
                    self.released.notified().await;
                }
            };
            // A connection that is busy now may wait for a request later, and a client that does
            // not answer a GOAWAY delays the end of its connection.
            let delay = if closed == 0 { RETRY_DELAY } else { CLOSE_DELAY };
            let _ = tokio::time::timeout(delay, released).await;
            count = (count + closed).min(MAX_CLOSED_AT_ONCE);
        }
        // Another acceptor may wait, too, and this one may have no connection to accept.
        self.released.notify_one();
    }

    pub(super) fn has_capacity(&self) -> bool {
        self.open.load(Relaxed) < self.max.load(Relaxed)
    }

    /// Returns a permit, or `None` if the peer has too many connections.
    pub(super) fn try_acquire(
        self: &Arc<ConnectionLimiter>,
        peer: Option<IpAddr>,
    ) -> Option<ConnectionPermit> {
        // A proxy's connections belong to many clients.
        let mut peers = self.peers();
        let is_proxy = |ip: &IpAddr| peers.proxies.iter().any(|network| network.contains(*ip));
        let network = |ip| peer_network(ip, peers.ipv6_prefix_length);
        let peer = peer.filter(|ip| !is_proxy(ip)).map(network);
        if peer.is_some_and(|peer| !peers.try_add(peer)) {
            return None;
        }
        drop(peers);
        self.open.fetch_add(1, Relaxed);
        Some(ConnectionPermit { limiter: self.clone(), peer, load: None })
    }

    fn peers(&self) -> MutexGuard<'_, Peers> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the address under which a peer is counted: an IPv4 address, or the prefix of an IPv6
/// address, because a client controls all addresses of a network.
fn peer_network(address: IpAddr, ipv6_prefix_length: u8) -> IpAddr {
    match address {
        IpAddr::V6(ipv6) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(ipv6_prefix_length.min(128)));
            IpAddr::from((ipv6.to_bits() & mask.unwrap_or(0)).to_be_bytes())
        }
        ipv4 => ipv4,
    }
}

/// Returns the IPv6 /48 network of a peer: the largest network that most customers of a provider
/// get.
fn site(peer: IpAddr) -> Option<IpAddr> {
    peer.is_ipv6().then(|| peer_network(peer, 48))
}

impl ConnectionPermit {
    /// Adds the connection to a worker's number of open connections.
    pub(crate) fn count_for_worker(&mut self, load: &Arc<AtomicUsize>) {
        load.fetch_add(1, Relaxed);
        self.load = Some(load.clone());
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        if let Some(load) = &self.load {
            load.fetch_sub(1, Relaxed);
        }
        if let Some(peer) = self.peer {
            self.limiter.peers().remove(peer);
        }
        self.limiter.open.fetch_sub(1, Relaxed);
        self.limiter.released.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_ipv6_peers_by_prefix() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        for (length, address, peer) in [
            (64, "192.0.2.7", "192.0.2.7"),
            (0, "2001:db8:aabb:ccdd::7", "::"),
            (48, "2001:db8:aabb:ccdd::7", "2001:db8:aabb::"),
            (56, "2001:db8:aabb:ccdd::7", "2001:db8:aabb:cc00::"),
            (64, "2001:db8:aabb:ccdd::7", "2001:db8:aabb:ccdd::"),
            (128, "2001:db8:aabb:ccdd::7", "2001:db8:aabb:ccdd::7"),
        ] {
            assert_eq!(peer_network(ip(address), length), ip(peer), "{address}/{length}");
        }
        let settings =
            Settings { max_connections_per_peer: 1, ipv6_prefix_length: 56, ..Settings::default() };
        let limiter = ConnectionLimiter::new(&settings);
        let _first = limiter.try_acquire(Some(ip("2001:db8::1"))).expect("first of the prefix");
        assert!(limiter.try_acquire(Some(ip("2001:db8:0:ff::2"))).is_none(), "the same /56");
        assert!(limiter.try_acquire(Some(ip("2001:db8:0:100::1"))).is_some(), "the next /56");
    }

    #[test]
    fn peers_of_a_site_have_half_of_the_rest() {
        let settings =
            Settings { max_connections: 10, max_connections_per_peer: 2, ..Settings::default() };
        let limiter = ConnectionLimiter::new(&settings);
        let connect = |site: u16, network: u16| {
            limiter.try_acquire(Some(IpAddr::from([0x2001, 0xdb8, site, network, 0, 0, 0, 1])))
        };
        // Six connections from the /64 networks of one /48 network.
        let mut open: Vec<_> = (0..9).map_while(|network| connect(1, network)).collect();
        assert_eq!(open.len(), 6);
        let _other = connect(2, 0).expect("a connection of another site");
        open.pop();
        let _next = connect(1, 9).expect("a connection in place of a closed one");
        assert!(connect(1, 10).is_none());
        drop((open, _next));
        assert_eq!(limiter.peers().open_by_site.0.len(), 1);
        assert_eq!(limiter.peers().open.0.len(), 1);
    }

    #[test]
    fn limits_connections_in_total_and_per_peer() {
        let settings =
            Settings { max_connections: 3, max_connections_per_peer: 2, ..Settings::default() };
        let limiter = ConnectionLimiter::new(&settings);
        let (a, b) = (Some(IpAddr::from([127, 0, 0, 1])), Some(IpAddr::from([127, 0, 0, 2])));
        let first = limiter.try_acquire(a).expect("first connection of a");
        let _second = limiter.try_acquire(a).expect("second connection of a");
        assert!(limiter.try_acquire(a).is_none(), "third connection of a");
        let _other = limiter.try_acquire(b).expect("first connection of b");
        assert_eq!(limiter.open.load(Relaxed), 3);
        drop(first);
        assert_eq!(limiter.open.load(Relaxed), 2);
        limiter.try_acquire(a).expect("a dropped permit is free again");
    }
}
