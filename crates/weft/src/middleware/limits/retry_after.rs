//! The field `Retry-After` of responses to requests beyond a limit.

use std::time::Duration;

use http::StatusCode;
use http::header::RETRY_AFTER;

use crate::message::response::Response;

/// Builds a response with `Retry-After` in whole seconds, rounded up, at least one
/// (RFC 9110 §10.2.3).
pub(super) fn retry_after(status: StatusCode, after: Duration) -> Response {
    let seconds = after.as_secs().saturating_add(u64::from(after.subsec_nanos() > 0));
    Response::from(status).with_header(RETRY_AFTER, seconds.max(1).to_string())
}
