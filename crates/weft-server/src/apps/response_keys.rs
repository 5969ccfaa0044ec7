//! Status and media type of a response: keys of several forms.

use weft::StatusCode;
use weft::header::HeaderValue;
use weft_config::{ConfigResult, Key, Located, ValueKind, quoted};

/// Returns the key of the status.
pub(super) const fn status_key<F>(set: fn(&mut F, u64), show: fn(&F) -> String) -> Key<F> {
    Key {
        name: "status",
        help: "status of the response",
        kind: ValueKind::Count(200..=599, set),
        show,
        ..Key::FILE_ONLY
    }
}

pub(super) fn show_status(status: Option<u16>) -> String {
    status.map_or_else(String::new, |status| status.to_string())
}

/// Converts a status that was read by its key.
pub(super) fn status_code(number: Option<u16>) -> StatusCode {
    let status = number.and_then(|number| StatusCode::from_u16(number).ok());
    status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// Returns the key of the media type.
pub(super) const fn content_type_key<F>(
    set: fn(&mut F, Located<String>) -> ConfigResult,
    show: fn(&F) -> String,
) -> Key<F> {
    Key {
        name: "content_type",
        help: "media type of the response (by the name of a file; text/plain)",
        kind: ValueKind::Text(set),
        show,
        ..Key::FILE_ONLY
    }
}

pub(super) fn parse_content_type(text: &Located<String>) -> ConfigResult<HeaderValue> {
    let is_type =
        |value: &HeaderValue| value.to_str().is_ok_and(|value| value.split_once('/').is_some());
    let value = HeaderValue::from_str(&text.value).ok().filter(is_type);
    value.ok_or_else(|| text.problem("expected a media type such as application/json"))
}

pub(super) fn show_content_type(value: Option<&HeaderValue>) -> String {
    let value = value.and_then(|value| value.to_str().ok());
    value.map_or_else(String::new, quoted)
}
