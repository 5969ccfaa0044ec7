//! Sessions whose clients may send early data (RFC 8446 §8.1).
//!
//! Another party can record the first flight of a client and repeat it. The server therefore keeps
//! these sessions, instead of sending them to the clients in tickets, and forgets a session when it
//! is resumed: a repeated flight has no session, and its early data cannot be decrypted.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::server::{ServerSessionMemoryCache, StoresServerSessions};

use crate::clock::wall;
use crate::net::secure::QuicLimits;
use crate::net::tls::client_auth::ClientAuth;
use crate::net::tls::session_age::{with_start, without_start};
use crate::net::tls::settings::TlsSettings;
use crate::net::tls::tickets::NoTickets;

/// Maximum number of sessions. Each has a few hundred bytes; the oldest is dropped first.
const MAX_SESSIONS: usize = 1 << 13;

/// The sessions of all workers.
#[derive(Clone, Debug)]
pub(in crate::net::tls) struct EarlySessions(Arc<ServerSessionMemoryCache>);

/// The sessions that were begun with these limits. A client sends early data within the limits of
/// its session, and they must not have been reduced (RFC 9000 §7.4.1).
#[derive(Debug)]
struct LimitedSessions {
    sessions: Arc<ServerSessionMemoryCache>,
    limits: QuicLimits,
}

impl EarlySessions {
    /// Returns `None` if the settings permit no early data. Clients with certificates have no
    /// sessions.
    pub(in crate::net::tls) fn new(settings: &TlsSettings) -> Option<EarlySessions> {
        let is_permitted = settings.early_data && matches!(settings.client_auth, ClientAuth::None);
        is_permitted.then(|| EarlySessions(ServerSessionMemoryCache::new(MAX_SESSIONS)))
    }

    /// Uses these sessions, and no tickets.
    pub(in crate::net::tls) fn enable(&self, config: &mut ServerConfig, limits: QuicLimits) {
        config.session_storage = Arc::new(LimitedSessions { sessions: self.0.clone(), limits });
        config.ticketer = Arc::new(NoTickets);
        // The only value that QUIC permits: its flow control limits early data (RFC 9001 §4.6.1).
        config.max_early_data_size = u32::MAX;
    }
}

impl LimitedSessions {
    fn key(&self, identifier: &[u8]) -> Vec<u8> {
        let limits = self.limits.iter().flat_map(|limit| limit.to_be_bytes());
        identifier.iter().copied().chain(limits).collect()
    }
}

impl StoresServerSessions for LimitedSessions {
    fn put(&self, identifier: Vec<u8>, session: Vec<u8>) -> bool {
        self.sessions.put(self.key(&identifier), with_start(&session, wall::now()))
    }

    /// Sessions of TLS 1.2, which QUIC does not have.
    fn get(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn take(&self, identifier: &[u8]) -> Option<Vec<u8>> {
        without_start(&self.sessions.take(&self.key(identifier))?, wall::now())
    }

    fn can_cache(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_taken_once_and_with_their_limits() {
        let settings = TlsSettings { early_data: true, ..TlsSettings::default() };
        let EarlySessions(sessions) = EarlySessions::new(&settings).unwrap();
        let with = |limits| LimitedSessions { sessions: sessions.clone(), limits };
        assert!(with([1, 2, 3]).put(b"id".to_vec(), b"session".to_vec()));
        assert_eq!(with([1, 2, 4]).take(b"id"), None);
        assert_eq!(with([1, 2, 3]).take(b"id").as_deref(), Some(&b"session"[..]));
        assert_eq!(with([1, 2, 3]).take(b"id"), None);
        assert!(EarlySessions::new(&TlsSettings::default()).is_none());
    }

    #[test]
    fn sessions_are_bounded() {
        let settings = TlsSettings { early_data: true, ..TlsSettings::default() };
        let EarlySessions(sessions) = EarlySessions::new(&settings).unwrap();
        let sessions = LimitedSessions { sessions, limits: [0; 3] };
        for number in 0..3 * MAX_SESSIONS as u64 {
            sessions.put(number.to_be_bytes().to_vec(), b"session".to_vec());
        }
        assert_eq!(sessions.take(&0_u64.to_be_bytes()), None);
        let is_kept = |number: &u64| sessions.take(&number.to_be_bytes()).is_some();
        let kept = (0..3 * MAX_SESSIONS as u64).filter(is_kept).count();
        assert!((1..=2 * MAX_SESSIONS).contains(&kept), "{kept}");
    }
}
