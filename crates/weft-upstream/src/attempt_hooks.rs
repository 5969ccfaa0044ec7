//! Hooks for the attempts to send a request to an upstream, such as for access logs.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use weft::{Request, StatusCode};

use crate::retry_reason::RetryReason;

/// Hooks for the attempts to send one request. Each attempt begins with
/// [`begin_attempt`](AttemptHooks::begin_attempt), and the other functions are about the last one.
///
/// They are called by the thread of the worker, and for a body that has moved, by another one.
pub trait AttemptHooks: Send + Sync {
    /// The request is sent to an upstream: its host and port as configured, or the path of its socket.
    fn begin_attempt(&self, upstream: &Arc<str>);

    /// The attempt has waited so long for a connection in use by others.
    fn on_queue_time(&self, time: Duration);

    /// The attempt has a connection. A Unix socket has no address.
    fn on_connection(&self, address: Option<SocketAddr>);

    /// The head of the response was received.
    fn on_status(&self, status: StatusCode);

    /// The response has ended, or the attempt has failed.
    fn end_attempt(&self);

    /// Another attempt follows, for this reason.
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
