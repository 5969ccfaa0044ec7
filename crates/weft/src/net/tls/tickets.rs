//! Session tickets under keys that several servers share.
//!
//! A ticket is the name of its key, a nonce, and the session as rustls writes it, encrypted by
//! AES-256-GCM.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use rustls::server::ProducesTickets;

use crate::error::Result;
use crate::net::tls::client_auth::Rule;
use crate::net::tls::identity::{Text, read};
use crate::net::tls::invalid;

/// Keys of a file: the first encrypts, all decrypt.
pub(super) struct SharedKeys {
    keys: Vec<Key>,
    /// Part of each ticket's proof: a session that began without a client's certificate must
    /// not go on where one is demanded, though the keys are the same.
    rule: Rule,
}

struct Key {
    name: [u8; NAME_BYTES],
    key: RandomizedNonceKey,
}

const NAME_BYTES: usize = 16;
const KEY_BYTES: usize = NAME_BYTES + 32;

/// How long clients are told to keep a ticket, in seconds. Keys that go sooner end it sooner.
const LIFETIME: u32 = 12 * 60 * 60;

impl SharedKeys {
    pub(super) fn read(path: &Path, rule: Rule) -> Result<Arc<dyn ProducesTickets>> {
        let bytes = read(Text::File(path))?;
        let keys = SharedKeys::new(&bytes, rule).ok_or_else(|| {
            let (path, length) = (path.display(), bytes.len());
            invalid(format!(
                "{path} has {length} bytes, and keys of session tickets have {KEY_BYTES} each"
            ))
        })?;
        Ok(Arc::new(keys))
    }

    fn new(bytes: &[u8], rule: Rule) -> Option<SharedKeys> {
        let (keys, []) = bytes.as_chunks::<KEY_BYTES>() else { return None };
        let key = |bytes: &[u8; KEY_BYTES]| {
            let (name, secret) = bytes.split_first_chunk::<NAME_BYTES>()?;
            let key = RandomizedNonceKey::new(&AES_256_GCM, secret).ok()?;
            Some(Key { name: *name, key })
        };
        let keys: Vec<Key> = keys.iter().map(key).collect::<Option<_>>()?;
        (!keys.is_empty()).then_some(SharedKeys { keys, rule })
    }
}

impl ProducesTickets for SharedKeys {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        LIFETIME
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let Key { name, key } = &self.keys[0];
        let mut sealed = plain.to_vec();
        let nonce = key.seal_in_place_append_tag(Aad::from(self.rule), &mut sealed).ok()?;
        Some([&name[..], nonce.as_ref(), &sealed].concat())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (name, rest) = ticket.split_first_chunk::<NAME_BYTES>()?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_LEN>()?;
        let Key { key, .. } = self.keys.iter().find(|key| key.name == *name)?;
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let mut sealed = sealed.to_vec();
        let plain = key.open_in_place(nonce, Aad::from(self.rule), &mut sealed).ok()?;
        Some(plain.to_vec())
    }
}

/// Without the keys.
impl fmt::Debug for SharedKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedKeys({})", self.keys.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_can_read_a_ticket() {
        let (a, b) = ([b'a'; KEY_BYTES], [b'b'; KEY_BYTES]);
        let keys = |bytes: &[u8], rule: u8| SharedKeys::new(bytes, [rule; 32]).unwrap();
        let writer = keys(&a, 0);
        let ticket = writer.encrypt(b"session").unwrap();
        assert_ne!(ticket, writer.encrypt(b"session").unwrap(), "a nonce is used once");
        for (case, reader, can) in [
            ("itself", &writer, true),
            ("the same keys", &keys(&a, 0), true),
            ("a newer key in front", &keys(&[b, a].concat(), 0), true),
            ("a newer key alone", &keys(&b, 0), false),
            ("another rule for clients", &keys(&a, 1), false),
        ] {
            assert_eq!(reader.decrypt(&ticket).as_deref() == Some(b"session"), can, "{case}");
        }
        for at in 0..ticket.len() {
            let mut other = ticket.clone();
            other[at] ^= 1;
            assert_eq!(writer.decrypt(&other), None, "byte {at} was changed");
            assert_eq!(writer.decrypt(&ticket[..at]), None, "cut at {at}");
        }
    }

    #[test]
    fn a_file_has_whole_keys() {
        for (length, count) in [(0, None), (47, None), (48, Some(1)), (49, None), (96, Some(2))] {
            let keys = SharedKeys::new(&vec![0; length], [0; 32]);
            assert_eq!(keys.map(|keys| keys.keys.len()), count, "{length} bytes");
        }
    }
}
