//! The handshake of a connection by rustls, as the transport requires it (RFC 9001). The session of
//! the transport's crate returns neither the cipher suite nor the resumption of a session.

use std::any::Any;
use std::io::Cursor;
use std::sync::Arc;

use bytes::Bytes;
use quinn_proto::crypto::rustls::{NoInitialCipherSuite, QuicServerConfig};
use quinn_proto::crypto::{
    ExportKeyingMaterialError, KeyPair, Keys, PacketKey, ServerConfig, Session, UnsupportedVersion,
};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{ConnectionId, Side, TransportError, TransportErrorCode};
use rustls::HandshakeKind;
use rustls::quic::{Connection, KeyChange, Secrets, ServerConnection, Version};

use crate::net::secure::QuicHandshake;

/// Configuration of handshakes.
pub(super) struct ServerCrypto {
    tls: Arc<rustls::ServerConfig>,
    /// Keys of Initial and Retry packets, which do not depend on the session.
    initial: Arc<QuicServerConfig>,
}

impl ServerCrypto {
    pub(super) fn new(
        tls: Arc<rustls::ServerConfig>,
    ) -> Result<ServerCrypto, NoInitialCipherSuite> {
        let initial = Arc::new(QuicServerConfig::try_from(tls.clone())?);
        Ok(ServerCrypto { tls, initial })
    }
}

impl ServerConfig for ServerCrypto {
    fn initial_keys(
        &self,
        version: u32,
        destination: &ConnectionId,
    ) -> Result<Keys, UnsupportedVersion> {
        self.initial.initial_keys(version, destination)
    }

    fn retry_tag(&self, version: u32, original: &ConnectionId, packet: &[u8]) -> [u8; 16] {
        self.initial.retry_tag(version, original, packet)
    }

    fn start_session(
        self: Arc<Self>,
        version: u32,
        parameters: &TransportParameters,
    ) -> Box<dyn Session> {
        // The drafts before 33 have other keys.
        let quic_version = match version {
            0xff00_001d..=0xff00_0020 => Version::V1Draft,
            _ => Version::V1,
        };
        let mut encoded = Vec::new();
        parameters.write(&mut encoded);
        let connection = ServerConnection::new(self.tls.clone(), quic_version, encoded);
        let connection = connection.expect("the configuration permits TLS 1.3");
        Box::new(ServerSession {
            connection: Connection::Server(connection),
            initial: self.initial.clone(),
            version,
            next_secrets: None,
            is_reported: false,
        })
    }
}

/// The handshake of a connection.
struct ServerSession {
    connection: Connection,
    initial: Arc<QuicServerConfig>,
    version: u32,
    next_secrets: Option<Secrets>,
    /// Set when the transport knows that the parameters of the handshake are available.
    is_reported: bool,
}

impl Session for ServerSession {
    /// The keys of a server.
    fn initial_keys(&self, destination: &ConnectionId, _: Side) -> Keys {
        let keys = self.initial.initial_keys(self.version, destination);
        let Ok(keys) = keys else { unreachable!("a session has a supported version") };
        keys
    }

    /// A [`QuicHandshake`].
    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        let Connection::Server(connection) = &self.connection else { return None };
        let suite = connection.negotiated_cipher_suite()?;
        let certificates = connection.peer_certificates().unwrap_or_default();
        Some(Box::new(QuicHandshake {
            server_name: connection.server_name().map(Box::from),
            cipher_suite: suite.suite().as_str().unwrap_or_default(),
            certificates: certificates.iter().map(|der| Bytes::copy_from_slice(der)).collect(),
            is_resumed: connection.handshake_kind() == Some(HandshakeKind::Resumed),
        }))
    }

    /// The certificates are in the [`QuicHandshake`].
    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        None
    }

    fn early_crypto(
        &self,
    ) -> Option<(Box<dyn quinn_proto::crypto::HeaderKey>, Box<dyn PacketKey>)> {
        let keys = self.connection.zero_rtt_keys()?;
        Some((Box::new(keys.header), Box::new(keys.packet)))
    }

    /// Only clients are told.
    fn early_data_accepted(&self) -> Option<bool> {
        None
    }

    fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    fn read_handshake(&mut self, input: &[u8]) -> Result<bool, TransportError> {
        self.connection.read_hs(input).map_err(|error| {
            let alert = self.connection.alert();
            let code = alert.map(|alert| TransportErrorCode::crypto(alert.into()));
            let code = code.unwrap_or(TransportErrorCode::PROTOCOL_VIOLATION);
            TransportError { code, frame: None, reason: error.to_string() }
        })?;
        let is_known = self.connection.negotiated_cipher_suite().is_some();
        Ok(is_known && !std::mem::replace(&mut self.is_reported, true))
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        let Some(bytes) = self.connection.quic_transport_parameters() else { return Ok(None) };
        Ok(Some(TransportParameters::read(Side::Server, &mut Cursor::new(bytes))?))
    }

    fn write_handshake(&mut self, output: &mut Vec<u8>) -> Option<Keys> {
        Some(keys(match self.connection.write_hs(output)? {
            KeyChange::Handshake { keys } => keys,
            KeyChange::OneRtt { keys, next } => {
                self.next_secrets = Some(next);
                keys
            }
        }))
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        let keys = self.next_secrets.as_mut()?.next_packet_keys();
        Some(KeyPair { local: Box::new(keys.local), remote: Box::new(keys.remote) })
    }

    /// Only clients receive Retry packets.
    fn is_valid_retry(&self, _: &ConnectionId, _: &[u8], _: &[u8]) -> bool {
        false
    }

    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        let exported = self.connection.export_keying_material(output, label, Some(context));
        exported.map(|_| ()).map_err(|_| ExportKeyingMaterialError)
    }
}

fn keys(keys: rustls::quic::Keys) -> Keys {
    let rustls::quic::Keys { local, remote } = keys;
    Keys {
        header: KeyPair { local: Box::new(local.header), remote: Box::new(remote.header) },
        packet: KeyPair { local: Box::new(local.packet), remote: Box::new(remote.packet) },
    }
}
