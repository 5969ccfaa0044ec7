//! Shortages of file descriptors or memory.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::deadline::Stopwatch;
use crate::net::accepted::accept_now;
use crate::net::reject::Rejection;
use crate::net::secure::SecureAcceptor;

/// Duration of a shortage of resources after which waiting clients are rejected.
const MAX_SHORTAGE: Duration = Duration::from_secs(1);

/// A lack of file descriptors or memory, by which `accept4(2)` fails, and a descriptor in reserve
/// for it.
pub(super) struct Shortage {
    /// Closed to accept a connection that is rejected at once, instead of waiting in the accept
    /// queue without an answer. A duplicate of the listening socket.
    reserve: Option<OwnedFd>,
    since: Option<Stopwatch>,
}

impl Shortage {
    pub(super) fn new(socket: &OwnedFd) -> Shortage {
        Shortage { reserve: socket.try_clone().ok(), since: None }
    }

    /// Ends the shortage: a connection was accepted.
    pub(super) fn end(&mut self) {
        self.since = None;
    }

    /// Returns `true` if the shortage has lasted for [`MAX_SHORTAGE`]. The first call starts it.
    pub(super) fn is_long(&mut self) -> bool {
        self.since.get_or_insert_with(Stopwatch::start).elapsed() >= MAX_SHORTAGE
    }

    /// Accepts a connection with the reserved descriptor, and rejects it. Returns `false` if that
    /// failed.
    pub(super) fn reject_one(
        &mut self,
        socket: &OwnedFd,
        tls: &Option<Arc<dyn SecureAcceptor>>,
    ) -> bool {
        drop(self.reserve.take());
        let accepted = accept_now(socket);
        if let Ok((socket, _)) = &accepted
            && tls.is_none()
        {
            Rejection::OutOfDescriptors.send(socket);
        }
        let is_rejected = accepted.is_ok();
        drop(accepted);
        self.reserve = socket.try_clone().ok();
        is_rejected
    }
}
