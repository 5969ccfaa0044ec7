//! The engine without the feature `tracing`.

use super::SlowHandler;
use crate::error::Error;
use crate::message::request_head::RequestHead;
use crate::peer::Peer;

pub(crate) fn report_error(_: &Peer, _: Option<&RequestHead>, _: &Error) {}

pub(crate) fn report_slow_handler(_: &SlowHandler<'_>) {}

pub(super) fn has_subscriber() -> bool {
    false
}
