//! TLS of QUIC connections (RFC 9001). The transport drives the handshakes.

use std::sync::Arc;

use rustls::ServerConfig;

use crate::error::{Error, ErrorKind, Result};
use crate::net::secure::{
    ID_RANDOM_BYTES, MaskConnectionId, QuicHandshake, QuicKeys, QuicLimits, QuicSecurity,
};
use crate::net::tls::config::Configs;
use crate::net::tls::crypto::header_protection::{self, HeaderProtectionKey};
use crate::net::tls::crypto::{fill_random, hkdf, hmac};
use crate::net::tls::session::registered;
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

    fn server_config(&self, limits: QuicLimits) -> Arc<ServerConfig> {
        let mut config = ServerConfig::clone(self.0.http2.for_any_client());
        config.alpn_protocols = vec![H3.to_vec()];
        // The order of the client tells whether it has instructions for AES.
        config.ignore_client_order = false;
        if let Some(sessions) = &self.0.early_sessions {
            sessions.enable(&mut config, limits);
        }
        Arc::new(config)
    }

    fn keys(&self) -> Result<QuicKeys> {
        let secret = self.0.quic_secret();
        let keys = secret.or_else(generate_secret).as_ref().and_then(derive_keys);
        keys.ok_or_else(|| Error::new(ErrorKind::Listen, "the system has no random numbers"))
    }

    fn session(&self, handshake: QuicHandshake) -> TlsSession {
        TlsSession {
            version: "TLSv1.3",
            cipher_suite: registered(handshake.cipher_suite),
            alpn: Some("h3"),
            server_name: handshake.server_name,
            peer_certificates: handshake.certificates,
            is_resumed: handshake.is_resumed,
            policy: self.0.policy.clone(),
        }
    }
}

/// Derives the keys of QUIC from a secret.
fn derive_keys(secret: &hkdf::Prk) -> Option<QuicKeys> {
    let reset: hmac::Key = secret.expand(&[b"stateless reset"], hmac::HMAC_SHA256).ok()?.into();
    let token: hkdf::Prk = secret.expand(&[b"token"], hkdf::HKDF_SHA256).ok()?.into();
    let mask = secret.expand(&[b"connection id"], &header_protection::AES_128).ok()?;
    let mask = IdMask(HeaderProtectionKey::from(mask));
    Some(QuicKeys { reset: Arc::new(reset), token: Arc::new(token), ids: Arc::new(mask) })
}

/// Returns a secret that no other process has.
fn generate_secret() -> Option<hkdf::Prk> {
    let mut secret = [0; 64];
    fill_random(&mut secret)?;
    Some(hkdf::Salt::new(hkdf::HKDF_SHA256, b"weft quic").extract(&secret))
}

/// The mask of the worker in a connection identifier: the header protection of QUIC, which is AES
/// of one block.
struct IdMask(HeaderProtectionKey);

impl MaskConnectionId for IdMask {
    fn mask(&self, random: &[u8; ID_RANDOM_BYTES]) -> u8 {
        let mut sample = [0; 2 * ID_RANDOM_BYTES];
        sample[..ID_RANDOM_BYTES].copy_from_slice(random);
        // An error means a sample of another length.
        self.0.new_mask(&sample).map_or(0, |mask| mask[0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(bytes: &[u8]) -> hkdf::Prk {
        hkdf::Salt::new(hkdf::HKDF_SHA256, b"weft quic").extract(bytes)
    }

    #[test]
    fn servers_with_one_secret_have_the_same_keys() {
        let derive = |bytes: &[u8]| {
            let keys = derive_keys(&secret(bytes)).unwrap();
            let mut reset = [0; 32];
            keys.reset.sign(b"identifier", &mut reset);
            let mut token = b"token".to_vec();
            keys.token.aead_from_hkdf(b"random").seal(&mut token, b"").unwrap();
            let ids = [[0; 8], [1; 8], [2; 8], [3; 8]];
            (reset, token, ids.map(|random| keys.ids.mask(&random)))
        };
        let (a, b) = (derive(b"a"), derive(b"b"));
        assert_eq!(a, derive(b"a"));
        assert!(a.0 != b.0 && a.1 != b.1 && a.2 != b.2);
    }

    #[test]
    fn generated_secrets_differ() {
        let generate = || {
            let mut reset = [0; 32];
            derive_keys(&generate_secret().unwrap()).unwrap().reset.sign(b"", &mut reset);
            reset
        };
        assert_ne!(generate(), generate());
    }
}
