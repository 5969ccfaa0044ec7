//! Cryptography of aws-lc-rs.

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::digest::{Context, SHA256};
pub(in crate::net::tls) use aws_lc_rs::hkdf;
#[cfg(feature = "http3")]
pub(in crate::net::tls) use aws_lc_rs::{aead::quic as header_protection, hmac};
pub(in crate::net::tls) use rustls::crypto::aws_lc_rs::default_provider;

/// Fills a buffer with random bytes. `None` if the system has none.
pub(in crate::net::tls) fn fill_random(bytes: &mut [u8]) -> Option<()> {
    aws_lc_rs::rand::fill(bytes).ok()
}

/// Returns the SHA-256 digest of the concatenated parts.
pub(in crate::net::tls) fn sha256<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> [u8; 32] {
    let mut digest = Context::new(&SHA256);
    parts.into_iter().for_each(|part| digest.update(part));
    digest.finish().as_ref().try_into().expect("a SHA-256 digest has 32 bytes")
}

/// AES-256-GCM with a random nonce in front of each encrypted text.
pub(in crate::net::tls) struct TicketCipher(RandomizedNonceKey);

impl TicketCipher {
    pub(in crate::net::tls) fn new(secret: &[u8]) -> Option<TicketCipher> {
        RandomizedNonceKey::new(&AES_256_GCM, secret).ok().map(TicketCipher)
    }

    pub(in crate::net::tls) fn encrypt(&self, format: &[u8], plain: &[u8]) -> Option<Vec<u8>> {
        let mut sealed = plain.to_vec();
        let nonce = self.0.seal_in_place_append_tag(Aad::from(format), &mut sealed).ok()?;
        Some([&nonce.as_ref()[..], &sealed].concat())
    }

    pub(in crate::net::tls) fn decrypt(&self, format: &[u8], text: &[u8]) -> Option<Vec<u8>> {
        let (nonce, sealed) = text.split_first_chunk::<NONCE_LEN>()?;
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let mut sealed = sealed.to_vec();
        let plain = self.0.open_in_place(nonce, Aad::from(format), &mut sealed).ok()?;
        Some(plain.to_vec())
    }
}
