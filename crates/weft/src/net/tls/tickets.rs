//! Session tickets, encrypted with keys that several servers share or with generated keys.
//!
//! A ticket consists of the name of its key, a nonce, and the session as serialized by rustls,
//! encrypted with AES-256-GCM.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::GetRandomFailed;
use rustls::server::ProducesTickets;
use rustls::ticketer::TicketRotator;

use crate::error::{Error, Result};
#[cfg(feature = "http3")]
use crate::net::tls::crypto::hkdf;
use crate::net::tls::crypto::{TicketCipher, fill_random};
use crate::net::tls::identity::{DataSource, read};
use crate::net::tls::session_age::MAX_SESSION_SECS;

/// Keys: the first encrypts, all decrypt.
pub(super) struct TicketKeys {
    keys: Vec<TicketKey>,
    /// Secret for the keys of QUIC, derived from the first key.
    #[cfg(feature = "http3")]
    pub(super) quic_secret: hkdf::Prk,
}

/// Neither issues nor accepts tickets.
#[derive(Debug)]
pub(super) struct NoTickets;

struct TicketKey {
    name: [u8; NAME_BYTES],
    key: TicketCipher,
}

/// Time after which a generated key is replaced. Until then, far fewer tickets are encrypted than
/// the 2^32 that the random nonces of a key permit (NIST SP 800-38D §8.3).
const ROTATION_SECS: u32 = 6 * 60 * 60;

const NAME_BYTES: usize = 16;
pub(super) const KEY_BYTES: usize = NAME_BYTES + 32;

/// Additional authenticated data of each ticket: the version of the format. Tickets of earlier
/// versions are not accepted.
const FORMAT: &[u8] = b"weft session ticket 2";

impl TicketKeys {
    pub(super) fn read(path: &Path) -> Result<Arc<TicketKeys>> {
        let bytes = read(DataSource::File(path))?;
        let keys = TicketKeys::new(&bytes).ok_or_else(|| {
            let (path, length) = (path.display(), bytes.len());
            Error::invalid_setting(format!(
                "{path} has {length} bytes, and keys of session tickets have {KEY_BYTES} each"
            ))
        })?;
        Ok(Arc::new(keys))
    }

    /// Generates keys, and new ones every [`ROTATION_SECS`]. The former key decrypts as long again.
    /// The two tickets of a TLS 1.3 handshake take 11,700 instructions. The tickets of rustls, with
    /// AES-256-CBC and HMAC, take 27,700.
    pub(super) fn generated() -> Result<Arc<dyn ProducesTickets>, rustls::Error> {
        TicketKeys::rotating(ROTATION_SECS)
    }

    fn rotating(seconds: u32) -> Result<Arc<dyn ProducesTickets>, rustls::Error> {
        Ok(Arc::new(TicketRotator::new(seconds, || Ok(Box::new(TicketKeys::generate()?)))?))
    }

    fn generate() -> Result<TicketKeys, GetRandomFailed> {
        let mut bytes = [0; KEY_BYTES];
        fill_random(&mut bytes).ok_or(GetRandomFailed)?;
        TicketKeys::new(&bytes).ok_or(GetRandomFailed)
    }

    pub(super) fn new(bytes: &[u8]) -> Option<TicketKeys> {
        let (keys, []) = bytes.as_chunks::<KEY_BYTES>() else { return None };
        let key = |bytes: &[u8; KEY_BYTES]| {
            let (name, secret) = bytes.split_first_chunk::<NAME_BYTES>()?;
            let key = TicketCipher::new(secret)?;
            Some(TicketKey { name: *name, key })
        };
        let keys: Vec<TicketKey> = keys.iter().map(key).collect::<Option<_>>()?;
        (!keys.is_empty()).then_some(TicketKeys {
            keys,
            #[cfg(feature = "http3")]
            quic_secret: hkdf::Salt::new(hkdf::HKDF_SHA256, b"weft quic")
                .extract(bytes.get(..KEY_BYTES)?),
        })
    }
}

impl ProducesTickets for TicketKeys {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        MAX_SESSION_SECS
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let TicketKey { name, key } = &self.keys[0];
        Some([&name[..], &key.encrypt(FORMAT, plain)?].concat())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (name, text) = ticket.split_first_chunk::<NAME_BYTES>()?;
        let TicketKey { key, .. } = self.keys.iter().find(|key| key.name == *name)?;
        key.decrypt(FORMAT, text)
    }
}

impl ProducesTickets for NoTickets {
    fn enabled(&self) -> bool {
        false
    }

    fn lifetime(&self) -> u32 {
        0
    }

    fn encrypt(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn decrypt(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

/// Does not show the keys.
impl fmt::Debug for TicketKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TicketKeys({})", self.keys.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread::sleep;
    use std::time::{Duration, Instant};

    #[test]
    fn only_matching_keys_decrypt_a_ticket() {
        let (a, b) = ([b'a'; KEY_BYTES], [b'b'; KEY_BYTES]);
        let keys = |bytes: &[u8]| TicketKeys::new(bytes).unwrap();
        let writer = keys(&a);
        let ticket = writer.encrypt(b"session").unwrap();
        assert_ne!(ticket, writer.encrypt(b"session").unwrap(), "each ticket has a new nonce");
        for (case, reader, decrypts) in [
            ("itself", &writer, true),
            ("the same keys", &keys(&a), true),
            ("a newer key in front", &keys(&[b, a].concat()), true),
            ("a newer key alone", &keys(&b), false),
        ] {
            assert_eq!(reader.decrypt(&ticket).as_deref() == Some(b"session"), decrypts, "{case}");
        }
        for at in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[at] ^= 1;
            assert_eq!(writer.decrypt(&changed), None, "byte {at} was changed");
            assert_eq!(writer.decrypt(&ticket[..at]), None, "cut at {at}");
        }
    }

    #[test]
    fn the_former_key_decrypts_until_the_next_rotation() {
        let tickets = TicketKeys::rotating(1).unwrap();
        let issue = || tickets.encrypt(b"session").unwrap();
        let key_of = |ticket: &[u8]| ticket[..NAME_BYTES].to_vec();
        let start = Instant::now();
        let rotated = |key: &[u8]| loop {
            let ticket = issue();
            if key_of(&ticket) != key {
                return ticket;
            }
            assert!(start.elapsed() < Duration::from_secs(60), "no rotation");
            sleep(Duration::from_millis(10));
        };
        let (old, current) = loop {
            let old = issue();
            let current = rotated(&key_of(&old));
            let decrypted = tickets.decrypt(&old);
            // Otherwise this thread was interrupted for the second between two rotations.
            if key_of(&issue()) == key_of(&current) {
                assert_eq!(decrypted.as_deref(), Some(&b"session"[..]), "by the former key");
                break (old, current);
            }
        };
        rotated(&key_of(&current));
        assert_eq!(tickets.decrypt(&old), None, "by the key before that");
    }

    #[test]
    fn rejects_files_with_incomplete_keys() {
        for (length, count) in [(0, None), (47, None), (48, Some(1)), (49, None), (96, Some(2))] {
            let keys = TicketKeys::new(&vec![0; length]);
            assert_eq!(keys.map(|keys| keys.keys.len()), count, "{length} bytes");
        }
    }
}
