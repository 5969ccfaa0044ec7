//! The parameters negotiated by a handshake.

use std::sync::Arc;

use bytes::Bytes;
use rustls::{ProtocolVersion, ServerConnection};

use crate::net::tls::alpn_challenge::ACME_TLS;
use crate::peer::{AuthPolicy, TlsSession};

/// The session that `connection` has negotiated under `policy`.
pub(super) fn session(connection: &ServerConnection, policy: Arc<AuthPolicy>) -> TlsSession {
    let version = match connection.protocol_version() {
        Some(ProtocolVersion::TLSv1_3) => "TLSv1.3",
        _ => "TLSv1.2",
    };
    let suite = connection.negotiated_cipher_suite();
    let alpn = match connection.alpn_protocol() {
        Some(b"h2") => Some("h2"),
        Some(b"acme-tls/1") => Some(ACME_TLS),
        Some(b"http/1.0") => Some("http/1.0"),
        Some(_) => Some("http/1.1"),
        None => None,
    };
    let certificates = connection.peer_certificates().unwrap_or_default();
    let kind = connection.handshake_kind();
    TlsSession {
        version,
        cipher_suite: suite.and_then(|suite| suite.suite().as_str()).map_or("", registered),
        alpn,
        server_name: connection.server_name().map(Box::from),
        peer_certificates: certificates.iter().map(|der| Bytes::copy_from_slice(der)).collect(),
        is_resumed: kind == Some(rustls::HandshakeKind::Resumed),
        policy,
    }
}

/// rustls writes `TLS13_` where the registry of IANA has `TLS_`.
pub(super) fn registered(name: &'static str) -> &'static str {
    match name {
        "TLS13_AES_256_GCM_SHA384" => "TLS_AES_256_GCM_SHA384",
        "TLS13_AES_128_GCM_SHA256" => "TLS_AES_128_GCM_SHA256",
        "TLS13_CHACHA20_POLY1305_SHA256" => "TLS_CHACHA20_POLY1305_SHA256",
        name => name,
    }
}
