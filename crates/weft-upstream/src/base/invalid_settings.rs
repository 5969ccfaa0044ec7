//! The error for invalid settings.

use std::fmt;

/// Reason for which settings are invalid, or a file that they name cannot be read. The text has the
/// names of fields in backquotes: `mirror.share` is a field of
/// [`ProxySettings::mirror`](crate::ProxySettings::mirror).
#[derive(Clone, PartialEq, Eq)]
pub struct InvalidSettings(String);

impl InvalidSettings {
    /// Returns the text with the names that `name` returns for the names in backquotes, such as
    /// keys of a configuration file.
    pub fn with_names<'a>(&'a self, name: impl Fn(&'a str) -> &'a str) -> String {
        let parts = self.0.split('`').enumerate();
        let parts = parts.map(|(index, part)| if index % 2 == 1 { name(part) } else { part });
        parts.collect::<Vec<_>>().join("`")
    }
}

/// The same text, which `fn main() -> Result<(), Box<dyn Error>>` prints.
impl fmt::Debug for InvalidSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

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

impl From<&str> for InvalidSettings {
    fn from(reason: &str) -> InvalidSettings {
        InvalidSettings(reason.to_owned())
    }
}

/// The same text, so that `fn main() -> weft::Result<()>` may use `?`.
impl From<InvalidSettings> for weft::Error {
    fn from(invalid: InvalidSettings) -> weft::Error {
        weft::Error::new(weft::ErrorKind::InvalidSetting, invalid.0)
    }
}

impl From<InvalidSettings> for String {
    fn from(InvalidSettings(reason): InvalidSettings) -> String {
        reason
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_fields_are_replaced() {
        let invalid = InvalidSettings::from("`a.b` and `c` need `a.c`");
        let key = |field| if field == "a.b" { "a_b" } else { field };
        assert_eq!(invalid.with_names(key), "`a_b` and `c` need `a.c`");
    }

    #[test]
    fn becomes_an_error_of_the_library() {
        let fails = || -> weft::Result<()> { Err(InvalidSettings::from("`a` needs `b`"))? };
        let error = fails().unwrap_err();
        assert_eq!(error.kind(), weft::ErrorKind::InvalidSetting);
        assert_eq!(format!("{error:?}"), "`a` needs `b`");
    }
}
