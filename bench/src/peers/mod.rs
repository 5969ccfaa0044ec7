//! The measured servers. Placeholders of the form `@name@` in their commands are replaced when a server is
//! started; see `server.rs`.

mod comparison;
mod experiments;
mod http3;

use crate::peer::Peer;

/// The upstream server of the reverse proxy workload.
pub const UPSTREAM: &str = "epoll";

/// The upstream server of proxies with large bodies.
pub const LARGE_UPSTREAM: &str = "weft-lib";

/// Returns the peer with this name.
pub fn named(name: &str) -> &'static Peer {
    all().find(|peer| peer.name == name).expect("workloads refer to existing peers")
}

/// Returns all peers, including the peers of the experiments.
pub fn all() -> impl Iterator<Item = &'static Peer> {
    let first = comparison::COMPARISON.iter().chain(comparison::CANNED);
    first.chain(experiments::PEERS).chain(http3::PEERS)
}
