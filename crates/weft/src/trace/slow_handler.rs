//! Handlers that block their worker.

use std::fmt;
use std::time::Duration;

use crate::message::request_head::RequestHead;
use crate::peer::Peer;

/// Default of [`Hooks::slow_handler_threshold`](crate::Hooks::slow_handler_threshold), also
/// without hooks.
pub(crate) fn default_slow_handler_threshold() -> Duration {
    if cfg!(debug_assertions) { Duration::from_millis(100) } else { Duration::MAX }
}

/// A handler that has blocked its worker: while it computed or waited without `.await`, no other
/// connection of the worker made progress.
///
/// Its text names the request, the duration and the remedy.
#[derive(Debug)]
#[non_exhaustive]
pub struct SlowHandler<'a> {
    /// The peer that sent the request.
    pub peer: &'a Peer,
    /// The request head.
    pub head: Option<&'a RequestHead>,
    /// Time of one poll of the handler, or of the body of its response.
    pub duration: Duration,
}

impl fmt::Display for SlowHandler<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (method, path) =
            self.head.map_or(("", ""), |head| (head.method().as_str(), head.full_path()));
        write!(
            f,
            "the handler of {method} {} has blocked its worker for {:?}, which delayed the other \
             connections of the worker: move code that blocks or computes for long to \
             `tokio::task::spawn_blocking`",
            path.escape_debug(),
            self.duration
        )
    }
}
