//! Rejection of connections that are not served.

use std::os::fd::AsFd;

/// The reason why a connection is rejected.
#[derive(Clone, Copy)]
pub(super) enum Rejection {
    TooManyOfPeer,
    OutOfDescriptors,
}

impl Rejection {
    /// Sends a 503 response on a connection that is not served. Does not wait for the request, which
    /// may never arrive.
    pub(super) fn send(self, socket: &impl AsFd) {
        // Received bytes are read first: closing a socket with unread input resets the connection. If
        // the response cannot be sent, the connection is only closed.
        let mut request = [0; 4096];
        let _ = rustix::net::recv(socket, &mut request, rustix::net::RecvFlags::DONTWAIT);
        let _ = rustix::net::send(socket, self.response(), rustix::net::SendFlags::NOSIGNAL);
        let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Write);
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
