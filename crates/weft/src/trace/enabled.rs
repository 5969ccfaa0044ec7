//! Events of the engine, with the target `weft`.

use std::cell::Cell;
use std::time::Duration;

use tracing::{Level, enabled, event};

use super::SlowHandler;
use crate::clock::deadline::Stopwatch;
use crate::error::{Error, ErrorKind, Fault};
use crate::message::request_head::RequestHead;
use crate::peer::Peer;

/// Maximum number of events per second and worker that peers can cause.
const MAX_PEER_EVENTS: u32 = 100;

thread_local! {
    static PEER_EVENTS: Cell<PeerEvents> = const { Cell::new(PeerEvents::NONE) };
}

/// Number of the events that peers have caused in the current second.
#[derive(Clone, Copy)]
struct PeerEvents {
    start: Option<Stopwatch>,
    count: u32,
}

impl PeerEvents {
    const NONE: PeerEvents = PeerEvents { start: None, count: 0 };

    /// Counts an event. Returns true if it may be emitted.
    fn admit(&mut self) -> bool {
        if self.start.is_none_or(|start| start.elapsed() >= Duration::from_secs(1)) {
            *self = PeerEvents { start: Some(Stopwatch::start()), count: 0 };
        }
        self.count = self.count.saturating_add(1);
        self.count <= MAX_PEER_EVENTS
    }
}

/// Emits an error of the application or of the system as `ERROR` or `WARN`, a failed handshake and
/// a body over a limit as `INFO`, and other errors of peers, which any client can cause, as
/// `DEBUG`.
pub(crate) fn report_error(peer: &Peer, head: Option<&RequestHead>, error: &Error) {
    /// Emits the event at a level, which has to be a constant.
    macro_rules! emit {
        ($level:expr) => {
            if enabled!(target: "weft", $level) {
                event!(
                    target: "weft",
                    $level,
                    kind = ?error.kind(),
                    peer = peer.address().map(tracing::field::display),
                    method = head.map(|head| head.method().as_str()),
                    path = head.map(|head| head.full_path()),
                    "{error}"
                );
            }
        };
    }
    match error.kind() {
        ErrorKind::Cancelled => emit!(Level::DEBUG),
        kind => match kind.fault() {
            Fault::Application => emit!(Level::ERROR),
            Fault::System => emit!(Level::WARN),
            Fault::Peer if !enabled!(target: "weft", Level::INFO) || !admit_peer_event() => {}
            Fault::Peer => match kind {
                ErrorKind::TlsFailed | ErrorKind::ProxyHeader | ErrorKind::BodyTooLarge => {
                    emit!(Level::INFO);
                }
                _ => emit!(Level::DEBUG),
            },
        },
    }
}

fn admit_peer_event() -> bool {
    let mut events = PEER_EVENTS.get();
    let is_admitted = events.admit();
    PEER_EVENTS.set(events);
    is_admitted
}

/// Emits a handler that has blocked its worker as `WARN`.
pub(crate) fn report_slow_handler(slow: &SlowHandler<'_>) {
    event!(target: "weft", Level::WARN, duration = ?slow.duration, "{slow}");
}

/// Returns true if the program has set a subscriber, for all of its threads or for some.
pub(super) fn has_subscriber() -> bool {
    tracing::dispatcher::has_been_set()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_peers_are_limited_per_second() {
        let mut events = PeerEvents::NONE;
        let admitted = (0..10 * MAX_PEER_EVENTS).filter(|_| events.admit()).count();
        // The second may end in between.
        assert!((100..1_000).contains(&admitted), "{admitted}");
    }
}
