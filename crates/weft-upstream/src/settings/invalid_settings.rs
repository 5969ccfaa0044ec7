//! The error for invalid settings.

use std::fmt;

/// Reason for which settings are invalid, or a file that they name cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidSettings(String);

impl fmt::Display for InvalidSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for InvalidSettings {}

impl From<String> for InvalidSettings {
    fn from(reason: String) -> InvalidSettings {
        InvalidSettings(reason)
    }
}

impl From<InvalidSettings> for String {
    fn from(InvalidSettings(reason): InvalidSettings) -> String {
        reason
    }
}
