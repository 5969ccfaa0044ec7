//! Session tickets of several servers, with keys that are derived from a secret and the time.
//!
//! Each server derives the same keys, and needs neither the others nor a file that changes.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::server::ProducesTickets;

use crate::clock::wall;
use crate::net::tls::crypto::hkdf;
use crate::net::tls::session_age::MAX_SESSION_SECS;
use crate::net::tls::tickets::{KEY_BYTES, TicketKeys};

/// A secret of several servers, for [`ticket_secrets`](crate::tls::TlsSettings::ticket_secrets).
#[derive(Clone, PartialEq, Eq)]
pub struct TicketSecret([u8; 32]);

/// Keys that change with the time. Tickets of the two epochs before are accepted, so that a session
/// lives as long as its maximum age, and tickets of the next one: the clocks of servers differ.
pub(super) struct SharedTickets {
    secrets: Vec<hkdf::Prk>,
    current: RwLock<Option<(u64, Arc<TicketKeys>)>>,
}

/// Time for which a key encrypts.
const EPOCH_SECS: u64 = 6 * 60 * 60;

/// Number of epochs before the current one whose tickets are accepted: a session may have begun at
/// the end of the first of them.
const FORMER_EPOCHS: u64 = 2;

impl TicketSecret {
    /// Creates a secret of random bytes, which all servers have, and nobody else.
    pub fn new(secret: [u8; 32]) -> TicketSecret {
        TicketSecret(secret)
    }
}

/// Does not show the secret.
impl fmt::Debug for TicketSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TicketSecret")
    }
}

/// Length of a derived key.
struct KeyLength(usize);

impl hkdf::KeyType for KeyLength {
    fn len(&self) -> usize {
        self.0
    }
}

impl SharedTickets {
    /// Returns the tickets of these secrets: the first encrypts, all decrypt. `None` without any.
    pub(super) fn new(secrets: &[TicketSecret]) -> Option<Arc<SharedTickets>> {
        let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, b"weft tickets");
        let secrets: Vec<_> = secrets.iter().map(|secret| salt.extract(&secret.0)).collect();
        (!secrets.is_empty())
            .then(|| Arc::new(SharedTickets { secrets, current: RwLock::default() }))
    }

    /// Returns the secret for the keys of QUIC, which all servers have and which does not change.
    #[cfg(feature = "http3")]
    pub(super) fn quic_secret(&self) -> Option<hkdf::Prk> {
        self.secrets.first()?.expand(&[b"quic"], hkdf::HKDF_SHA256).ok().map(hkdf::Prk::from)
    }

    /// Derives the keys of an epoch.
    fn derive(&self, epoch: u64) -> Option<TicketKeys> {
        let mut keys = Vec::new();
        for secret in &self.secrets {
            for accepted in [epoch].into_iter().chain(neighbors(epoch)) {
                let mut key = [0; KEY_BYTES];
                let info = [&b"ticket"[..], &accepted.to_be_bytes()];
                secret.expand(&info, KeyLength(KEY_BYTES)).ok()?.fill(&mut key).ok()?;
                keys.extend(key);
            }
        }
        TicketKeys::new(&keys)
    }

    /// Returns the keys at a time, in seconds since 1970.
    fn keys_at(&self, now: u64) -> Option<Arc<TicketKeys>> {
        let epoch = now / EPOCH_SECS;
        let known = |current: &Option<(u64, Arc<TicketKeys>)>| {
            current.as_ref().filter(|(known, _)| *known == epoch).map(|(_, keys)| keys.clone())
        };
        if let Some(keys) = known(&self.current.read().unwrap_or_else(PoisonError::into_inner)) {
            return Some(keys);
        }
        let keys = Arc::new(self.derive(epoch)?);
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        *current = Some((epoch, keys.clone()));
        Some(keys)
    }
}

/// Returns the other epochs whose tickets are accepted.
fn neighbors(epoch: u64) -> impl Iterator<Item = u64> {
    let former = (1..=FORMER_EPOCHS).filter_map(move |age| epoch.checked_sub(age));
    former.chain(epoch.checked_add(1))
}

impl ProducesTickets for SharedTickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        MAX_SESSION_SECS
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.keys_at(wall::now())?.encrypt(plain)
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        self.keys_at(wall::now())?.decrypt(ticket)
    }
}

/// Does not show the keys.
impl fmt::Debug for SharedTickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedTickets({})", self.secrets.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tickets(secrets: &[u8]) -> Arc<SharedTickets> {
        let secrets: Vec<_> = secrets.iter().map(|byte| TicketSecret::new([*byte; 32])).collect();
        SharedTickets::new(&secrets).unwrap()
    }

    #[test]
    fn tickets_are_accepted_by_other_servers_near_in_time() {
        const START: u64 = 80_000 * EPOCH_SECS;
        let ticket = tickets(&[1]).keys_at(START).unwrap().encrypt(b"session").unwrap();
        for (case, secrets, now, is_accepted) in [
            ("at the same time", &[1][..], START, true),
            ("within the epoch", &[1], START + EPOCH_SECS - 1, true),
            ("by a clock that is behind", &[1], START - 1, true),
            ("by a clock that is far behind", &[1], START - EPOCH_SECS - 1, false),
            ("two epochs later", &[1], START + 3 * EPOCH_SECS - 1, true),
            ("three epochs later", &[1], START + 3 * EPOCH_SECS, false),
            ("with another secret", &[2], START, false),
            ("with a newer secret first", &[2, 1], START, true),
        ] {
            let server = tickets(secrets);
            let decrypted = server.keys_at(now).unwrap().decrypt(&ticket);
            assert_eq!(decrypted.as_deref() == Some(&b"session"[..]), is_accepted, "{case}");
        }
    }

    #[test]
    fn keys_change_with_each_epoch() {
        let server = tickets(&[1, 2]);
        let name = |now| server.keys_at(now).unwrap().encrypt(b"").unwrap()[..16].to_vec();
        let first = name(0);
        assert_eq!(name(EPOCH_SECS - 1), first);
        let second = name(EPOCH_SECS);
        assert_ne!(second, first);
        assert_eq!(name(0), first, "a clock may be set back");
        assert_ne!(name(u64::MAX), second);
        assert_eq!(tickets(&[1]).keys_at(0).unwrap().encrypt(b"").unwrap()[..16], first);
        assert!(SharedTickets::new(&[]).is_none());
    }

    #[test]
    fn secrets_are_not_shown() {
        let secret = TicketSecret::new([77; 32]);
        assert!(!format!("{secret:?}{:?}", tickets(&[77])).contains("77"));
    }
}
