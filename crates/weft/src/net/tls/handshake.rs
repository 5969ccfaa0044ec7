//! The state of a handshake, for the driver in `server`.

use std::io;
use std::task::{Context, Poll};

use bytes::BytesMut;
use rustls::{ProtocolVersion, ServerConnection};

use crate::error::{Error, ErrorKind, Result};
use crate::net::reader::ReadHalf;
use crate::net::secure::{SecureHandshake, SecureRead, SecureWrite};
use crate::net::tls::session::session;
use crate::net::tls::stream;
use crate::net::writer::WriteHalf;
use crate::peer::TlsSession;

impl SecureHandshake for ServerConnection {
    fn is_handshaking(&self) -> bool {
        (**self).is_handshaking()
    }

    fn process(&mut self, ciphertext: &mut BytesMut) -> Result<()> {
        stream::process_records(self, ciphertext).map(|_| ()).map_err(failed)
    }

    /// Records that TLS 1.3 sends after the handshake, session tickets, can be sent with the first
    /// response.
    fn must_flush(&self) -> bool {
        (**self).is_handshaking() || self.protocol_version() != Some(ProtocolVersion::TLSv1_3)
    }

    fn poll_send(&mut self, half: &mut WriteHalf, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        stream::poll_send(self, half, cx)
    }

    fn session(&self) -> TlsSession {
        session(self)
    }

    fn split(
        self: Box<Self>,
        ciphertext: BytesMut,
        read: ReadHalf,
        write: WriteHalf,
    ) -> (Box<dyn SecureRead>, Box<dyn SecureWrite>) {
        let (read, write) = stream::split(*self, ciphertext, read, write);
        (Box::new(read), Box::new(write))
    }
}

pub(super) fn failed(error: rustls::Error) -> Error {
    Error::new(ErrorKind::TlsFailed, "the TLS handshake failed").with_source(error)
}
