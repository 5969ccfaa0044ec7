//! Events of the engine for the crate `tracing`, and for programs without it.

#[cfg(not(feature = "tracing"))]
#[path = "trace/disabled.rs"]
mod events; // no events
#[cfg(feature = "tracing")]
#[path = "trace/enabled.rs"]
mod events; // events with the target `weft`
mod slow_handler; // handlers that block their worker

use crate::error::{Error, ErrorKind, Fault};

pub(crate) use self::events::{report_error, report_slow_handler};
pub use self::slow_handler::SlowHandler;
pub(crate) use self::slow_handler::default_slow_handler_threshold;

/// Writes an error of the application or of the system, and a body over a limit, to standard error,
/// in debug builds without a subscriber of `tracing`.
pub(crate) fn print_error(error: &Error) {
    let is_own = error.kind().fault() != Fault::Peer && error.kind() != ErrorKind::Cancelled;
    let is_limit = error.kind() == ErrorKind::BodyTooLarge;
    if cfg!(debug_assertions) && (is_own || is_limit) && !events::has_subscriber() {
        eprintln!("weft: {error}");
    }
}

/// Writes a handler that has blocked its worker to standard error, in debug builds without a
/// subscriber of `tracing`.
pub(crate) fn print_slow_handler(slow: &SlowHandler<'_>) {
    if cfg!(debug_assertions) && !events::has_subscriber() {
        eprintln!("weft: {slow}");
    }
}
