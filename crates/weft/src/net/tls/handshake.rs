//! The state of a handshake, for the driver in `server`.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::BytesMut;
use rustls::{ProtocolVersion, ServerConfig, ServerConnection};

use crate::error::{Error, ErrorKind, Result};
use crate::net::reader::ReadHalf;
use crate::net::secure::{SecureHandshake, SecureRead, SecureWrite};
use crate::net::tls::session::session;
use crate::net::tls::session_age::{self, SessionStart};
use crate::net::tls::stream;
use crate::net::writer::WriteHalf;
use crate::peer::{AuthPolicy, TlsSession};

/// A connection whose handshake is in progress.
pub(super) struct Handshake {
    connection: ServerConnection,
    session_start: SessionStart,
    /// Policy that was in effect when the handshake began.
    policy: Arc<AuthPolicy>,
}

impl Handshake {
    pub(super) fn new(config: Arc<ServerConfig>, policy: Arc<AuthPolicy>) -> Result<Handshake> {
        let connection = ServerConnection::new(config).map_err(failed)?;
        Ok(Handshake { connection, session_start: None, policy })
    }
}

impl SecureHandshake for Handshake {
    fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    fn process(&mut self, ciphertext: &mut BytesMut) -> Result<()> {
        session_age::with_session(&mut self.session_start, || {
            stream::process_records(&mut self.connection, ciphertext).map(|_| ()).map_err(failed)
        })
    }

    /// Records that TLS 1.3 sends after the handshake, session tickets, can be sent with the first
    /// response.
    fn must_flush(&self) -> bool {
        self.connection.is_handshaking()
            || self.connection.protocol_version() != Some(ProtocolVersion::TLSv1_3)
    }

    fn poll_send(&mut self, half: &mut WriteHalf, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        stream::poll_send(&mut self.connection, half, cx)
    }

    fn session(&self) -> TlsSession {
        session(&self.connection, self.policy.clone())
    }

    fn split(
        self: Box<Self>,
        ciphertext: BytesMut,
        read: ReadHalf,
        write: WriteHalf,
    ) -> (Box<dyn SecureRead>, Box<dyn SecureWrite>) {
        let (read, write) = stream::split(self.connection, ciphertext, read, write);
        (Box::new(read), Box::new(write))
    }
}

fn failed(error: rustls::Error) -> Error {
    Error::new(ErrorKind::TlsFailed, "the TLS handshake failed").with_source(error)
}
