//! Events of the engine for the crate `tracing`.

#[cfg(not(feature = "tracing"))]
#[path = "trace/disabled.rs"]
mod events; // no events
#[cfg(feature = "tracing")]
#[path = "trace/enabled.rs"]
mod events; // events with the target `weft`

pub(crate) use self::events::{report_error, report_slow_handler};
