//! A TLS session of a client that changes what its transport sends: transport parameters, and the
//! frames and reserved bits of packets before they are encrypted.

use std::any::Any;
use std::io::Cursor;
use std::sync::{Arc, Mutex};

use bytes::BytesMut;
use quinn_proto::crypto::{
    self, CryptoError, ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey, Session,
};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{ConnectError, ConnectionId, Side, TransportError, TransportErrorCode};
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::quic::{ClientConnection, Connection, KeyChange, Secrets, Version};

/// The packets of a client that are changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    Handshake,
    OneRtt,
}

/// A change of the packets of a level.
#[derive(Clone, Debug)]
pub struct Change {
    pub level: Level,
    /// Frames in place of the payload.
    pub frames: Option<Vec<u8>>,
    /// Bits of the first byte that are set.
    pub first_byte: u8,
}

/// The change in force.
pub type Changes = Arc<Mutex<Option<Change>>>;

pub struct CraftingConfig {
    pub tls: Arc<rustls::ClientConfig>,
    pub changes: Changes,
    /// Identifier of a transport parameter that is removed, and parameters that are added.
    pub removed: Option<u8>,
    pub added: Vec<u8>,
}

impl crypto::ClientConfig for CraftingConfig {
    fn start_session(
        self: Arc<Self>,
        _: u32,
        server_name: &str,
        parameters: &TransportParameters,
    ) -> Result<Box<dyn Session>, ConnectError> {
        let mut encoded = Vec::new();
        parameters.write(&mut encoded);
        let parameters = [remove(&encoded, self.removed), self.added.clone()].concat();
        let name = server_name.to_owned().try_into().unwrap();
        let connection = ClientConnection::new(self.tls.clone(), Version::V1, name, parameters);
        Ok(Box::new(CraftingSession {
            connection: Connection::Client(connection.unwrap()),
            changes: self.changes.clone(),
            next: None,
        }))
    }
}

/// Removes a parameter (RFC 9000 §18) whose identifier and length have one byte.
fn remove(mut encoded: &[u8], removed: Option<u8>) -> Vec<u8> {
    let varint = |bytes: &[u8]| {
        let length = 1 << (bytes[0] >> 6);
        let value = bytes[1..length]
            .iter()
            .fold(usize::from(bytes[0] & 0x3f), |value, byte| value << 8 | usize::from(*byte));
        (value, length)
    };
    let mut kept = Vec::new();
    while !encoded.is_empty() {
        let (id, id_length) = varint(encoded);
        let (length, length_length) = varint(&encoded[id_length..]);
        let (parameter, rest) = encoded.split_at(id_length + length_length + length);
        if removed.map(usize::from) != Some(id) {
            kept.extend_from_slice(parameter);
        }
        encoded = rest;
    }
    kept
}

struct CraftingSession {
    connection: Connection,
    changes: Changes,
    next: Option<Secrets>,
}

impl CraftingSession {
    fn local(&self, key: Box<dyn rustls::quic::PacketKey>, level: Level) -> Box<dyn PacketKey> {
        Box::new(CraftingKey { key, level, changes: self.changes.clone() })
    }
}

impl Session for CraftingSession {
    fn initial_keys(&self, destination: &ConnectionId, _: Side) -> Keys {
        let suite = TLS13_AES_128_GCM_SHA256.tls13().unwrap().quic_suite().unwrap();
        let keys = suite.keys(destination, rustls::Side::Client, Version::V1);
        let packet = Box::new(keys.local.packet);
        pair(keys.local.header, packet, keys.remote)
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        None
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        None
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        None
    }

    fn early_data_accepted(&self) -> Option<bool> {
        None
    }

    fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    fn read_handshake(&mut self, input: &[u8]) -> Result<bool, TransportError> {
        self.connection.read_hs(input).map_err(|error| TransportError {
            code: TransportErrorCode::PROTOCOL_VIOLATION,
            frame: None,
            reason: error.to_string(),
        })?;
        Ok(false)
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        let Some(bytes) = self.connection.quic_transport_parameters() else { return Ok(None) };
        Ok(Some(TransportParameters::read(Side::Client, &mut Cursor::new(bytes))?))
    }

    fn write_handshake(&mut self, output: &mut Vec<u8>) -> Option<Keys> {
        let (keys, level) = match self.connection.write_hs(output)? {
            KeyChange::Handshake { keys } => (keys, Level::Handshake),
            KeyChange::OneRtt { keys, next } => {
                self.next = Some(next);
                (keys, Level::OneRtt)
            }
        };
        let packet = self.local(keys.local.packet, level);
        Some(pair(keys.local.header, packet, keys.remote))
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        let keys = self.next.as_mut()?.next_packet_keys();
        let local = self.local(keys.local, Level::OneRtt);
        Some(KeyPair { local, remote: Box::new(keys.remote) })
    }

    fn is_valid_retry(&self, _: &ConnectionId, _: &[u8], _: &[u8]) -> bool {
        false
    }

    fn export_keying_material(
        &self,
        _: &mut [u8],
        _: &[u8],
        _: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        Err(ExportKeyingMaterialError)
    }
}

fn pair(
    header: Box<dyn rustls::quic::HeaderProtectionKey>,
    packet: Box<dyn PacketKey>,
    remote: rustls::quic::DirectionalKeys,
) -> Keys {
    Keys {
        header: KeyPair { local: Box::new(header), remote: Box::new(remote.header) },
        packet: KeyPair { local: packet, remote: Box::new(remote.packet) },
    }
}

struct CraftingKey {
    key: Box<dyn rustls::quic::PacketKey>,
    level: Level,
    changes: Changes,
}

impl PacketKey for CraftingKey {
    fn encrypt(&self, packet: u64, buffer: &mut [u8], header_length: usize) {
        let mut changes = self.changes.lock().unwrap();
        if let Some(change) = changes.as_ref().filter(|change| change.level == self.level) {
            let end = buffer.len() - self.key.tag_len();
            let payload = &mut buffer[header_length..end];
            let frames = change.frames.as_deref().unwrap_or_default();
            if frames.len() <= payload.len() {
                if !frames.is_empty() {
                    // The rest is PADDING.
                    payload.fill(0);
                    payload[..frames.len()].copy_from_slice(frames);
                }
                buffer[0] |= change.first_byte;
                *changes = None;
            }
        }
        drop(changes);
        PacketKey::encrypt(&self.key, packet, buffer, header_length);
    }

    fn decrypt(
        &self,
        packet: u64,
        header: &[u8],
        payload: &mut BytesMut,
    ) -> Result<(), CryptoError> {
        PacketKey::decrypt(&self.key, packet, header, payload)
    }

    fn tag_len(&self) -> usize {
        self.key.tag_len()
    }

    fn confidentiality_limit(&self) -> u64 {
        self.key.confidentiality_limit()
    }

    fn integrity_limit(&self) -> u64 {
        self.key.integrity_limit()
    }
}
