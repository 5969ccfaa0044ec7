//! Reasons to reject a form.

use crate::error::{Error, ErrorKind, Result};
use crate::message::request_head::RequestHead;

/// Checks that the request has the media type `expected`, and returns its parameters.
pub(super) fn expect_type<'a>(head: &'a RequestHead, expected: &str) -> Result<&'a [u8]> {
    let found = head.headers().get_bytes("content-type").unwrap_or_default();
    let end = found.iter().position(|&b| b == b';').unwrap_or(found.len());
    let (found, parameters) = found.split_at(end);
    if found.trim_ascii().eq_ignore_ascii_case(expected.as_bytes()) {
        return Ok(parameters);
    }
    let found = match found.trim_ascii() {
        b"" => "nothing",
        found => &String::from_utf8_lossy(found),
    };
    let reason = format!("expected a form as {expected}, and Content-Type says {found}");
    Err(Error::new(ErrorKind::MediaTypeUnsupported, reason))
}

/// Limits of [`FormSettings`](super::FormSettings), as errors name them.
pub(super) const MAX_FIELDS: &str = "FormSettings::max_fields";
pub(super) const MAX_FIELD: &str = "FormSettings::max_field_bytes";
pub(super) const MAX_ALL: &str = "FormSettings::max_all_fields_bytes";
pub(super) const MAX_FILES: &str = "FormSettings::max_files";
pub(super) const MAX_FILE: &str = "FormSettings::max_file_bytes";
pub(super) const MAX_PART_FIELDS: &str = "FormSettings::max_part_fields";

/// The error of a form over a limit.
pub(super) fn too_large(limit: &'static str, reason: String) -> Error {
    Error::new(ErrorKind::BodyTooLarge, reason).with_limit(limit)
}
