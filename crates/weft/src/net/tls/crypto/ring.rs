//! Cryptography of ring.

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::digest::{Context, SHA256};
pub(in crate::net::tls) use ring::hkdf;
use ring::rand::{SecureRandom, SystemRandom};
pub(in crate::net::tls) use rustls::crypto::ring::default_provider;

/// Fills a buffer with random bytes. `None` if the system has none.
pub(in crate::net::tls) fn fill_random(bytes: &mut [u8]) -> Option<()> {
    SystemRandom::new().fill(bytes).ok()
}

/// Returns the SHA-256 digest of the concatenated parts.
pub(in crate::net::tls) fn sha256<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> [u8; 32] {
    let mut digest = Context::new(&SHA256);
    parts.into_iter().for_each(|part| digest.update(part));
    digest.finish().as_ref().try_into().expect("a SHA-256 digest has 32 bytes")
}

/// AES-256-GCM with a random nonce in front of each encrypted text.
pub(in crate::net::tls) struct TicketCipher(LessSafeKey);

impl TicketCipher {
    pub(in crate::net::tls) fn new(secret: &[u8]) -> Option<TicketCipher> {
        UnboundKey::new(&AES_256_GCM, secret).ok().map(LessSafeKey::new).map(TicketCipher)
    }

    pub(in crate::net::tls) fn encrypt(&self, format: &[u8], plain: &[u8]) -> Option<Vec<u8>> {
        let mut nonce = [0; NONCE_LEN];
        fill_random(&mut nonce)?;
        let mut sealed = plain.to_vec();
        let unique = Nonce::assume_unique_for_key(nonce);
        self.0.seal_in_place_append_tag(unique, Aad::from(format), &mut sealed).ok()?;
        Some([&nonce[..], &sealed].concat())
    }

    pub(in crate::net::tls) fn decrypt(&self, format: &[u8], text: &[u8]) -> Option<Vec<u8>> {
        let (nonce, sealed) = text.split_first_chunk::<NONCE_LEN>()?;
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let mut sealed = sealed.to_vec();
        let plain = self.0.open_in_place(nonce, Aad::from(format), &mut sealed).ok()?;
        Some(plain.to_vec())
    }
}
