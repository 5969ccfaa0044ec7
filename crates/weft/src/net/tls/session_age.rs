//! The maximum age of a session that is resumed by tickets.
//!
//! rustls issues new tickets with each resumption, so that a client could extend a session without
//! end (RFC 8446 §4.6.1 recommends a limit). Each ticket therefore holds the time of the full
//! handshake that its session began with, and all tickets of a session expire together.

use std::cell::Cell;
use std::sync::Arc;

use rustls::server::ProducesTickets;

use crate::clock::wall;

/// Maximum age of a session in seconds, counted from its full handshake: 12 hours. RFC 8446 §4.6.1
/// permits 7 days.
pub(super) const MAX_SESSION_SECS: u32 = 12 * 60 * 60;

/// Tickets of sessions that are not older than [`MAX_SESSION_SECS`].
#[derive(Debug)]
pub(super) struct AgedTickets(pub(super) Arc<dyn ProducesTickets>);

/// Start of a session, in seconds since 1970. `None` before the first ticket is read or issued.
pub(crate) type SessionStart = Option<u64>;

const START_BYTES: usize = size_of::<u64>();

thread_local! {
    /// Session of the handshake that this thread is processing. rustls calls a ticketer without a
    /// reference to the connection.
    static CURRENT: Cell<SessionStart> = const { Cell::new(None) };
}

/// Processes a step of the handshake of a session.
pub(crate) fn with_session<T>(start: &mut SessionStart, step: impl FnOnce() -> T) -> T {
    CURRENT.set(*start);
    let result = step();
    *start = CURRENT.take();
    result
}

/// Returns true if a session with this start can be resumed. The clocks of servers that share
/// ticket keys may differ.
fn is_current(start: u64, now: u64) -> bool {
    now.abs_diff(start) < MAX_SESSION_SECS.into()
}

/// Returns a session with the start of the session that the thread is processing.
pub(super) fn with_start(session: &[u8], now: u64) -> Vec<u8> {
    let start = CURRENT.get().unwrap_or(now);
    CURRENT.set(Some(start));
    [&start.to_be_bytes(), session].concat()
}

/// Returns a session without its start, unless it is too old.
pub(super) fn without_start(dated: &[u8], now: u64) -> Option<Vec<u8>> {
    let (start, session) = dated.split_first_chunk::<START_BYTES>()?;
    let start = u64::from_be_bytes(*start);
    if !is_current(start, now) {
        return None;
    }
    CURRENT.set(Some(start));
    Some(session.to_vec())
}

impl AgedTickets {
    fn encrypt_at(&self, plain: &[u8], now: u64) -> Option<Vec<u8>> {
        self.0.encrypt(&with_start(plain, now))
    }

    fn decrypt_at(&self, ticket: &[u8], now: u64) -> Option<Vec<u8>> {
        without_start(&self.0.decrypt(ticket)?, now)
    }
}

impl ProducesTickets for AgedTickets {
    fn enabled(&self) -> bool {
        self.0.enabled()
    }

    /// The remaining lifetime of the session.
    fn lifetime(&self) -> u32 {
        let now = wall::now();
        let age = now.saturating_sub(CURRENT.get().unwrap_or(now));
        MAX_SESSION_SECS.saturating_sub(age.try_into().unwrap_or(u32::MAX))
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.encrypt_at(plain, wall::now())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        self.decrypt_at(ticket, wall::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_of_resumed_sessions_expire_with_the_first() {
        let tickets = AgedTickets(rustls::crypto::aws_lc_rs::Ticketer::new().unwrap());
        let hour = |number: u64| 1_700_000_000 + 3_600 * number;
        let mut ticket = tickets.encrypt_at(b"session", hour(0)).unwrap();
        CURRENT.set(None);
        // Each resumption issues a new ticket.
        for (number, is_resumed) in [(1, true), (6, true), (11, true), (12, false), (30, false)] {
            let mut start = None;
            let resumed = with_session(&mut start, || {
                let resumed = tickets.decrypt_at(&ticket, hour(number));
                resumed.inspect(|_| ticket = tickets.encrypt_at(b"session", hour(number)).unwrap())
            });
            assert_eq!(resumed.as_deref() == Some(b"session"), is_resumed, "hour {number}");
            assert_eq!(start, is_resumed.then_some(hour(0)), "hour {number}");
            assert_eq!(CURRENT.get(), None);
        }
        let from_the_future = tickets.encrypt_at(b"session", hour(12)).unwrap();
        assert_eq!(tickets.decrypt_at(&from_the_future, hour(0)), None);
    }

    #[test]
    fn interleaved_handshakes_keep_their_sessions() {
        let (mut first, mut second) = (Some(1), None);
        with_session(&mut first, || assert_eq!(CURRENT.get(), Some(1)));
        with_session(&mut second, || CURRENT.set(Some(2)));
        with_session(&mut first, || {});
        assert_eq!((first, second), (Some(1), Some(2)));
    }
}
