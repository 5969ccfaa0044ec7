//! Rejection of connections that are not served.
//!
//! A rejected connection is closed when its client has closed it, or soon after: closing a socket
//! resets the connection if input is unread or arrives later, and the reset would destroy the
//! response (RFC 9112 §9.6).

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::Sleep;

use crate::sys::{self, AsFd, Direction, OwnedFd};

/// Maximum time for which a rejected connection lingers.
const MAX_LINGER: Duration = Duration::from_secs(1);

/// Maximum number of bytes that are received from a lingering connection and discarded.
const MAX_DISCARDED_BYTES: usize = 64 << 10;

/// Maximum number of lingering connections of a listener. A further one replaces the oldest.
const MAX_LINGERING: usize = 32;

/// The reason for the rejection of a connection.
#[derive(Clone, Copy)]
pub(super) enum Rejection {
    TooManyOfPeer,
    OutOfDescriptors,
}

impl Rejection {
    /// Sends a 503 response on a connection that is not served, and ends the sending direction.
    /// Does not wait for the request, which may never arrive. Returns `None` if the connection
    /// cannot linger.
    pub(super) fn send(self, socket: OwnedFd) -> Option<Lingering> {
        // Read first, in case the connection lingers for too short a time. If the response cannot
        // be sent, the connection is only closed.
        let mut request = [0; 4096];
        let _ = sys::receive(socket.as_fd(), &mut request);
        let _ = sys::send(socket.as_fd(), self.response(), false);
        let _ = sys::shutdown(socket.as_fd(), Direction::Write);
        Lingering::start(socket).ok()
    }

    fn response(self) -> &'static [u8] {
        match self {
            Rejection::TooManyOfPeer => {
                b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain\r\n\
                content-length: 37\r\nretry-after: 10\r\nconnection: close\r\n\r\n\
                Too many connections from one client\n"
            }
            Rejection::OutOfDescriptors => {
                b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain\r\n\
                content-length: 21\r\nretry-after: 10\r\nconnection: close\r\n\r\n\
                Too many connections\n"
            }
        }
    }
}

/// A rejected connection whose client has not closed it.
pub(super) struct Lingering {
    /// Registered with the event loop. The type also serves for Unix sockets.
    stream: TcpStream,
    timeout: Pin<Box<Sleep>>,
    discarded_bytes: usize,
}

impl Lingering {
    fn start(socket: OwnedFd) -> io::Result<Lingering> {
        let stream = TcpStream::from_std(socket.into())?;
        let timeout = Box::pin(tokio::time::sleep(MAX_LINGER));
        Ok(Lingering { stream, timeout, discarded_bytes: 0 })
    }

    /// Discards input. Ready when the connection may be closed.
    pub(super) fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.timeout.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let mut input = [0; 4096];
        while ready!(self.stream.poll_read_ready(cx)).is_ok() {
            match self.stream.try_read(&mut input) {
                Ok(bytes @ 1..) => self.discarded_bytes += bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                _ => break,
            }
            if self.discarded_bytes > MAX_DISCARDED_BYTES {
                break;
            }
        }
        Poll::Ready(())
    }

    /// Returns the socket, which is no longer registered with the event loop.
    pub(super) fn into_socket(self) -> io::Result<OwnedFd> {
        self.stream.into_std().map(OwnedFd::from)
    }
}

/// The lingering connections of a listener, the oldest first.
#[derive(Default)]
pub(super) struct LingeringConnections(VecDeque<Lingering>);

impl LingeringConnections {
    /// Adds a connection, if it can linger.
    pub(super) fn extend(&mut self, connection: Option<Lingering>) {
        if self.0.len() >= MAX_LINGERING {
            self.0.pop_front();
        }
        self.0.extend(connection);
    }

    /// Closes the connections that need not linger any longer.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) {
        self.0.retain_mut(|connection| connection.poll_closed(cx).is_pending());
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn the_oldest_of_many_lingering_connections_is_closed() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _entered = runtime.enter();
        let mut lingering = LingeringConnections::default();
        let mut clients: Vec<UnixStream> = Vec::new();
        for _ in 0..=MAX_LINGERING {
            let (client, server) = UnixStream::pair().unwrap();
            server.set_nonblocking(true).unwrap();
            lingering.extend(Rejection::TooManyOfPeer.send(server.into()));
            clients.push(client);
        }
        assert_eq!(lingering.0.len(), MAX_LINGERING);
        let is_closed: Vec<bool> =
            clients.iter_mut().map(|client| client.write_all(b"x").is_err()).collect();
        assert!(is_closed[0] && is_closed[1..].iter().all(|is_closed| !is_closed));
        let mut response = String::new();
        clients[0].read_to_string(&mut response).unwrap();
        assert!(response.starts_with("HTTP/1.1 503 "), "{response}");
    }
}
