//! Fields of a response that decide if its body is buffered. Pure.

use weft::header::Headers;

/// Returns true if the body is an event stream.
pub(crate) fn is_event_stream(fields: &Headers) -> bool {
    const EVENTS: &[u8] = b"text/event-stream";
    let kind = fields.get_bytes("content-type").unwrap_or_default();
    kind.get(..EVENTS.len()).is_some_and(|kind| kind.eq_ignore_ascii_case(EVENTS))
}

/// Returns true if the upstream or the script asks for its response not to be buffered, as with
/// nginx.
pub(crate) fn refuses_buffering(fields: &Headers) -> bool {
    let value = fields.get_bytes("x-accel-buffering");
    value.is_some_and(|value| value.eq_ignore_ascii_case(b"no"))
}
