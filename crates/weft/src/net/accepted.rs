//! An accepted connection before it is registered with the event loop of its worker.

use std::sync::Arc;

use crate::net::listen::ConnectionPermit;
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
    /// Registers the socket with the event loop of the current worker.
    pub(crate) fn register(self) -> std::io::Result<Transport> {
        Ok(match self {
            AcceptedSocket::Tcp(socket) => Transport::Tcp(tokio::net::TcpStream::from_std(socket)?),
            AcceptedSocket::Unix(socket) => {
                Transport::Unix(tokio::net::UnixStream::from_std(socket)?)
            }
        })
    }
}
