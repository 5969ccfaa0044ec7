//! A connection between its acceptance and its worker.

use std::sync::Arc;

use crate::net::listen::ConnectionPermit;
use crate::net::reader::Transport;
use crate::net::secure::SecureAcceptor;
use crate::peer::Peer;

/// A connection that was accepted for a worker.
pub(crate) struct Accepted {
    pub(crate) socket: AcceptedSocket,
    pub(crate) peer: Peer,
    pub(crate) permit: ConnectionPermit,
    pub(crate) tls: Option<Arc<dyn SecureAcceptor>>,
}

/// A socket that no event loop knows yet.
pub(crate) enum AcceptedSocket {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

impl AcceptedSocket {
    /// Makes the socket known to this worker's event loop.
    pub(crate) fn register(self) -> std::io::Result<Transport> {
        Ok(match self {
            AcceptedSocket::Tcp(socket) => Transport::Tcp(tokio::net::TcpStream::from_std(socket)?),
            AcceptedSocket::Unix(socket) => {
                Transport::Unix(tokio::net::UnixStream::from_std(socket)?)
            }
        })
    }
}
