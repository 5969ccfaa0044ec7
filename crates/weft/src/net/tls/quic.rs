//! TLS of QUIC connections (RFC 9001). The transport drives the handshakes.

use std::sync::Arc;

use bytes::Bytes;
use quinn_proto::crypto::{HandshakeTokenKey, HmacKey};
use rustls::ServerConfig;

use crate::error::{Error, ErrorKind, Result};
use crate::net::secure::QuicSecurity;
use crate::net::tls::config::Configs;
use crate::net::tls::crypto::{fill_random, hkdf, hmac};
use crate::peer::TlsSession;

pub(crate) use crate::net::tls::session_age::{SessionStart, with_session};

/// The protocol of HTTP/3 in ALPN (RFC 9114 §3.1).
const H3: &[u8] = b"h3";

/// Configuration of new connections, as of a time.
pub(super) struct QuicTls(Arc<Configs>);

impl QuicTls {
    pub(super) fn new(current: Arc<Configs>) -> QuicTls {
        QuicTls(current)
    }
}

impl QuicSecurity for QuicTls {
    fn version(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    fn server_config(&self) -> Arc<ServerConfig> {
        let mut config = ServerConfig::clone(self.0.http2.for_any_client());
        config.alpn_protocols = vec![H3.to_vec()];
        // The order of the client tells whether it has instructions for AES.
        config.ignore_client_order = false;
        Arc::new(config)
    }

    fn session(&self, server_name: Option<String>, peer_certificates: Vec<Bytes>) -> TlsSession {
        TlsSession {
            version: "TLSv1.3",
            cipher_suite: "",
            alpn: Some("h3"),
            server_name: server_name.map(Into::into),
            peer_certificates: peer_certificates.into(),
            is_resumed: false,
            policy: self.0.policy.clone(),
        }
    }
}

/// Generates the keys of stateless resets and of tokens.
pub(crate) fn generate_keys() -> Result<(Arc<dyn HmacKey>, Arc<dyn HandshakeTokenKey>)> {
    let mut secret = [0; 64];
    fill_random(&mut secret)
        .ok_or_else(|| Error::new(ErrorKind::Listen, "the system has no random numbers"))?;
    let reset = hmac::Key::new(hmac::HMAC_SHA256, &secret);
    let token = hkdf::Salt::new(hkdf::HKDF_SHA256, b"weft token").extract(&secret);
    Ok((Arc::new(reset), Arc::new(token)))
}
