//! Exhaustion of file descriptors or memory.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::clock::deadline::Stopwatch;
use crate::net::accepted::accept_now;
use crate::net::reject::{Lingering, Rejection};
use crate::sys::{NewConnection, OwnedFd, replace_descriptor};

/// Duration of an exhaustion after which waiting clients are rejected.
const MAX_EXHAUSTION: Duration = Duration::from_secs(1);

/// Time for which a rejected connection has the reserve while another client waits for it.
const MIN_LINGER: Duration = Duration::from_millis(100);

/// Exhaustion of file descriptors or memory, so that `accept4(2)` fails, and a descriptor in
/// reserve for it.
pub(super) struct Exhaustion {
    listener: Arc<OwnedFd>,
    /// Closed to accept a connection that is rejected, instead of waiting in the accept queue
    /// without an answer. A duplicate of the listening socket; `None` while it is used, and if
    /// another user has taken the descriptor.
    reserve: Option<OwnedFd>,
    /// The connection that uses the reserve, and the time of its rejection.
    lingering: Option<(Lingering, Stopwatch)>,
    since: Option<Stopwatch>,
}

/// The result of a use of the reserve.
pub(super) enum ReserveOutcome {
    /// A connection was accepted and can be served: the reserve was restored beside it.
    Accepted(NewConnection),
    Rejected,
    /// No connection can be accepted now.
    Unavailable,
}

impl Exhaustion {
    pub(super) fn new(listener: Arc<OwnedFd>) -> Exhaustion {
        let reserve = listener.try_clone().ok();
        Exhaustion { listener, reserve, lingering: None, since: None }
    }

    /// Ends the exhaustion: a connection was accepted.
    pub(super) fn end(&mut self) {
        self.since = None;
    }

    /// Returns true if the exhaustion has lasted for [`MAX_EXHAUSTION`]. The first call starts it.
    pub(super) fn is_long(&mut self) -> bool {
        self.since.get_or_insert_with(Stopwatch::start).elapsed() >= MAX_EXHAUSTION
    }

    /// Accepts a connection with the reserved descriptor, and rejects it if there is still no other
    /// one. Over TLS it is only closed.
    pub(super) fn use_reserve(&mut self, is_tls: bool) -> ReserveOutcome {
        if let Some((_, since)) = &self.lingering
            && since.elapsed() < MIN_LINGER
        {
            return ReserveOutcome::Unavailable;
        }
        drop((self.reserve.take(), self.lingering.take()));
        let accepted = accept_now(&self.listener);
        self.reserve = self.listener.try_clone().ok();
        match accepted {
            Err(_) => ReserveOutcome::Unavailable,
            Ok(connection) if self.reserve.is_some() => ReserveOutcome::Accepted(connection),
            Ok((socket, _)) if is_tls => {
                self.reserve = self.replace(socket);
                ReserveOutcome::Rejected
            }
            Ok((socket, _)) => {
                match Rejection::OutOfDescriptors.send(socket) {
                    Some(lingering) => self.lingering = Some((lingering, Stopwatch::start())),
                    None => self.reserve = self.listener.try_clone().ok(),
                }
                ReserveOutcome::Rejected
            }
        }
    }

    /// Lets a rejected connection linger. Ready when it no longer uses the reserve.
    pub(super) fn poll_freed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some((mut lingering, since)) = self.lingering.take() else { return Poll::Pending };
        if lingering.poll_closed(cx).is_pending() {
            self.lingering = Some((lingering, since));
            return Poll::Pending;
        }
        let socket = lingering.into_socket().ok();
        self.reserve = socket.and_then(|socket| self.replace(socket));
        Poll::Ready(())
    }

    /// Closes a connection whose descriptor becomes the reserve. No other user can take it in
    /// between.
    fn replace(&self, mut socket: OwnedFd) -> Option<OwnedFd> {
        replace_descriptor(&self.listener, &mut socket).ok()?;
        Some(socket)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn serves_a_connection_if_the_exhaustion_has_ended() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let mut exhaustion = Exhaustion::new(Arc::new(listener.into()));
        assert!(
            matches!(exhaustion.use_reserve(false), ReserveOutcome::Unavailable),
            "no client waits"
        );
        let client = TcpStream::connect(address).unwrap();
        let ReserveOutcome::Accepted((_, Some(peer))) = exhaustion.use_reserve(false) else {
            panic!("not accepted")
        };
        assert_eq!(peer, client.local_addr().unwrap());
        assert!(exhaustion.reserve.is_some());
    }
}
