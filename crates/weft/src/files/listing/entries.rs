//! The entries of a folder.

use weft_proto::semantics::date::civil_from_days;

/// The entries of a folder, unsorted.
#[derive(Debug)]
pub(crate) struct Listing {
    /// The folder's path beneath the root, decoded, without slashes at its ends; empty for the
    /// root.
    pub(crate) path: Vec<u8>,
    /// The prefix under which the root is served, decoded: empty, or `/prefix`.
    pub(crate) mount: Vec<u8>,
    pub(crate) entries: Vec<Entry>,
    /// Set if the folder has more entries than these.
    pub(crate) truncated: bool,
}

/// A file or a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: Vec<u8>,
    pub(crate) is_folder: bool,
    /// Length in bytes; 0 for a folder.
    pub(crate) length: u64,
    /// Time of the last change in seconds since 1970; `None` for embedded files.
    pub(crate) modified: Option<i64>,
}

impl Listing {
    /// Returns the folder's path as clients see it, with a slash at each end.
    pub(crate) fn whole_path(&self) -> Vec<u8> {
        [&self.mount[..], &self.absolute_path()].concat()
    }

    /// Returns the folder's path from the root, with a slash at each end.
    pub(crate) fn absolute_path(&self) -> Vec<u8> {
        match &self.path[..] {
            b"" => b"/".into(),
            path => [b"/", path, b"/"].concat(),
        }
    }
}

/// Formats a time in RFC 3339 format: `2026-11-21T10:51:01Z`. A time before 1970 is shown as the
/// first second of 1970, as in all metadata of files that is sent.
pub(crate) fn timestamp(seconds: i64) -> String {
    // 9999 is the last year with four digits.
    let seconds = u64::try_from(seconds).unwrap_or(0).min(253_402_300_799);
    let (year, month, day) = civil_from_days(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}
