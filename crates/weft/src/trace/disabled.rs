//! The engine without the feature `tracing`.

use crate::error::Error;
use crate::hooks::SlowHandler;
use crate::message::request_head::RequestHead;
use crate::peer::Peer;

pub(crate) fn report_error(_: &Peer, _: Option<&RequestHead>, _: &Error) {}

/// Writes the warning to standard error in debug builds, unless hooks get it.
pub(crate) fn report_slow_handler(slow: &SlowHandler<'_>, has_hooks: bool) {
    if cfg!(debug_assertions) && !has_hooks {
        eprintln!("weft: {slow}");
    }
}
