//! An accepted connection before a worker has it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::net::connection_limiter::ConnectionPermit;
use crate::net::secure::SecureAcceptor;
use crate::peer::Peer;
use crate::sys::{self, NewConnection, OwnedFd};

/// A connection accepted for a worker.
pub(crate) struct Accepted {
    /// Not registered with an event loop.
    pub(crate) socket: OwnedFd,
    pub(crate) peer: Peer,
    pub(crate) permit: ConnectionPermit,
    pub(crate) tls: Option<Arc<dyn SecureAcceptor>>,
}

/// Accepts a connection from a nonblocking listening socket. Returns it and the address of the
/// client, if it has one.
pub(super) fn accept_now(listener: &OwnedFd) -> io::Result<NewConnection> {
    let (socket, address) = sys::accept(listener)?;
    Ok((socket, address.map(canonical)))
}

impl Accepted {
    /// Determines the server's end of the connection, if its listener has an unspecified address.
    pub(crate) fn resolve_local_address(&mut self) {
        // In all other cases, the connection has the address of the listener.
        if let Some(bound) = &mut self.peer.local_address
            && bound.ip().is_unspecified()
            && let Some(address) = sys::local_address(&self.socket)
        {
            *bound = canonical(address);
        }
    }
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
