//! Descriptors by which a process takes over the HTTP/3 connections and sockets of another one.

use std::net::SocketAddr;

use crate::error::{Error, ErrorKind, Result};
use crate::sys::{self, OwnedFd};

/// A descriptor of HTTP/3 that a process passes to its successor: a UDP socket, or a channel to a
/// process whose connections have not ended.
///
/// [`ServerHandle::http3_descriptors`](crate::server::ServerHandle::http3_descriptors) returns them.
/// Send each with its [text](Http3Descriptor::into_parts) to the new process, and give them to its
/// listeners by [`Listener::inherit_http3`](crate::net::Listener::inherit_http3).
#[derive(Debug)]
pub struct Http3Descriptor {
    pub(crate) address: SocketAddr,
    pub(crate) role: Http3Role,
    pub(crate) descriptor: OwnedFd,
}

/// Use of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Http3Role {
    Socket,
    /// Channel to the process of this generation.
    Process(u16),
}

impl Http3Descriptor {
    /// Takes over a bound UDP socket, such as a socket of the service manager.
    ///
    /// # Errors
    /// [`Listen`](ErrorKind::Listen) if it is not a UDP socket on an Internet address.
    pub fn socket(descriptor: impl Into<OwnedFd>) -> Result<Http3Descriptor> {
        let descriptor = descriptor.into();
        let address = sys::datagram_address(&descriptor).ok_or_else(|| {
            let reason = "the inherited descriptor is not a UDP socket on an Internet address";
            Error::new(ErrorKind::Listen, reason)
        })?;
        Ok(Http3Descriptor { address, role: Http3Role::Socket, descriptor })
    }

    /// Returns the address of the socket, or of the channel's connections.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the text and the descriptor, from which another process makes the same value.
    pub fn into_parts(self) -> (String, OwnedFd) {
        let text = match self.role {
            Http3Role::Socket => format!("socket {}", self.address),
            Http3Role::Process(generation) => format!("process {generation} {}", self.address),
        };
        (text, self.descriptor)
    }

    /// Returns the value with this text and this descriptor; `None` if the text is invalid.
    pub fn from_parts(text: &str, descriptor: OwnedFd) -> Option<Http3Descriptor> {
        let (role, address) = parse(text)?;
        Some(Http3Descriptor { address, role, descriptor })
    }
}

fn parse(text: &str) -> Option<(Http3Role, SocketAddr)> {
    match text.split_once(' ')? {
        ("socket", address) => Some((Http3Role::Socket, address.parse().ok()?)),
        ("process", rest) => {
            let (generation, address) = rest.split_once(' ')?;
            Some((Http3Role::Process(generation.parse().ok()?), address.parse().ok()?))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_round_trip_as_text() {
        for (text, is_valid) in [
            ("socket 127.0.0.1:443", true),
            ("socket [::]:443", true),
            ("process 65535 127.0.0.1:443", true),
            ("process 65536 127.0.0.1:443", false),
            ("process 127.0.0.1:443", false),
            ("socket 127.0.0.1", false),
            ("", false),
        ] {
            let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            let parsed = Http3Descriptor::from_parts(text, socket.into());
            let shown = parsed.map(|parsed| parsed.into_parts().0);
            assert_eq!(shown.as_deref(), is_valid.then_some(text));
        }
    }
}
