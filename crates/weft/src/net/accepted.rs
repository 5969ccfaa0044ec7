//! An accepted connection before it is registered with the event loop of its worker.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::net::{SocketAddrAny, SocketFlags};

use crate::net::address::LocalAddress;
use crate::net::connection_limiter::ConnectionPermit;
use crate::net::reader::Transport;
use crate::net::secure::SecureAcceptor;
use crate::peer::Peer;

/// A connection accepted for a worker.
pub(crate) struct Accepted {
    pub(crate) socket: AcceptedSocket,
    pub(crate) peer: Peer,
    pub(crate) permit: ConnectionPermit,
    pub(crate) tls: Option<Arc<dyn SecureAcceptor>>,
}

/// A socket that is not registered with an event loop yet.
pub(crate) enum AcceptedSocket {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

impl AcceptedSocket {
    /// Accepts a connection from a nonblocking listening socket.
    pub(crate) fn accept(
        listener: &impl AsFd,
        bound: &LocalAddress,
    ) -> io::Result<(AcceptedSocket, Peer)> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (accepted, address) = rustix::net::acceptfrom_with(listener, flags)?;
        let address = address.and_then(|address: SocketAddrAny| SocketAddr::try_from(address).ok());
        let canonical = |a: SocketAddr| SocketAddr::new(a.ip().to_canonical(), a.port());
        let socket = match bound {
            LocalAddress::Tcp(_) | LocalAddress::Tls(_) => AcceptedSocket::Tcp(accepted.into()),
            LocalAddress::Unix(_) | LocalAddress::UnixTls(_) => {
                AcceptedSocket::Unix(accepted.into())
            }
        };
        let address = address.map(canonical);
        Ok((socket, Peer { address, local_address: bound.address(), tls: None }))
    }

    /// Registers the socket with the event loop of the current worker.
    pub(crate) fn register(self) -> io::Result<Transport> {
        Ok(match self {
            AcceptedSocket::Tcp(socket) => Transport::Tcp(tokio::net::TcpStream::from_std(socket)?),
            AcceptedSocket::Unix(socket) => {
                Transport::Unix(tokio::net::UnixStream::from_std(socket)?)
            }
        })
    }
}
