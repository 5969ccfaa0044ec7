//! Hooks for the attempts to send a request to an upstream, such as for access logs.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use weft::{Request, StatusCode};

use crate::retry_reason::RetryReason;

/// Hooks for the attempts to send one request. Each attempt begins with
/// [`begin_attempt`](AttemptHooks::begin_attempt). The other functions are about the last attempt.
///
/// The thread of the worker calls them. If a body has moved to another thread, that thread calls
/// [`end_attempt`](AttemptHooks::end_attempt).
pub trait AttemptHooks: Send + Sync {
    /// Begins an attempt. `upstream` is the configured host and port, or the path of a socket.
    fn begin_attempt(&self, upstream: &Arc<str>);

    /// Records the time for which the attempt has waited for a connection in use by other requests.
    fn on_queue_time(&self, time: Duration);

    /// Records the connection of the attempt. A Unix socket has no address.
    fn on_connection(&self, address: Option<SocketAddr>);

    /// Records that the head of the response was received.
    fn on_status(&self, status: StatusCode);

    /// Ends an attempt: its response has ended, or it has failed.
    fn end_attempt(&self);

    /// Records the reason of another attempt, which follows.
    fn on_retry(&self, reason: RetryReason);
}

/// Extension of a request with hooks.
#[derive(Clone)]
struct Attached(Arc<dyn AttemptHooks>);

/// Attaches hooks to a request.
pub fn attach(request: &mut Request, hooks: Arc<dyn AttemptHooks>) {
    request.extensions_mut().insert(Attached(hooks));
}

/// Returns the hooks of a request, if it has any.
pub(crate) fn of(request: &Request) -> Option<&Arc<dyn AttemptHooks>> {
    request.extensions().get::<Attached>().map(|Attached(hooks)| hooks)
}
