//! Locations of configuration values, and error messages that name them.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Source location of a configuration value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigLocation {
    /// Line and column in a file, both counted from 1.
    File {
        /// Path of the file.
        name: Arc<str>,
        /// Number of the line.
        line: usize,
        /// Number of the character in the line.
        column: usize,
    },
    /// Name of an option, with its dashes.
    Option(String),
    /// A positional argument of the command line, or no location.
    Unknown,
}

impl ConfigLocation {
    /// Returns true if the value is from a file.
    pub fn is_in_file(&self) -> bool {
        matches!(self, ConfigLocation::File { .. })
    }

    /// Returns the file and the number of the line.
    pub fn line(&self) -> Option<(&str, usize)> {
        match self {
            ConfigLocation::File { name, line, .. } => Some((name, *line)),
            ConfigLocation::Option(_) | ConfigLocation::Unknown => None,
        }
    }

    /// Refers to this location in a message about `later`: `, first in line 3`. Adds the name of
    /// the file if `later` is in another file.
    pub fn relative_to(&self, later: &ConfigLocation) -> String {
        match (self, later) {
            (ConfigLocation::File { name, line, .. }, ConfigLocation::File { name: other, .. })
                if name == other =>
            {
                format!(", first in line {line}")
            }
            (ConfigLocation::File { name, line, .. }, _) => format!(", first in {name}:{line}"),
            (ConfigLocation::Option(_) | ConfigLocation::Unknown, _) => String::new(),
        }
    }
}

/// A value with its location.
#[derive(Clone)]
pub struct Located<T> {
    /// Location of the value.
    pub location: ConfigLocation,
    /// The value.
    pub value: T,
}

impl AsRef<Path> for Located<PathBuf> {
    fn as_ref(&self) -> &Path {
        &self.value
    }
}

impl<T> Located<T> {
    /// Returns a value that is in no file and in no option.
    pub fn without_location(value: T) -> Located<T> {
        Located { location: ConfigLocation::Unknown, value }
    }

    /// Returns a problem at the location of the value.
    pub fn problem(&self, message: impl Into<String>) -> Problem {
        Problem { location: self.location.clone(), message: message.into() }
    }

    /// Changes the value, and keeps the location.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Located<U> {
        Located { location: self.location, value: change(self.value) }
    }
}

/// Ignores the location: a value stays the same if its line moves.
impl<T: PartialEq> PartialEq for Located<T> {
    fn eq(&self, other: &Located<T>) -> bool {
        self.value == other.value
    }
}

impl<T: Eq> Eq for Located<T> {}

/// Omits the location, so that equal values from different sources have the same output.
impl<T: fmt::Debug> fmt::Debug for Located<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

/// An error message in one line, with its location: the cause, and how to fix it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Location of the value that causes the problem.
    pub location: ConfigLocation,
    /// The cause, and how to fix it, in one line.
    pub message: String,
}

/// A checked value, or the problem with it.
pub type ConfigResult<T = ()> = Result<T, Problem>;

impl Problem {
    /// A problem that is not caused by a configuration value.
    pub fn without_location(message: impl Into<String>) -> Problem {
        Problem { location: ConfigLocation::Unknown, message: message.into() }
    }

    /// Formats a problem that is no error.
    pub fn as_warning(&self) -> String {
        let Problem { location, message } = self.clone();
        Problem { location, message: format!("warning: {message}") }.to_string()
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.location {
            ConfigLocation::File { name, line, column } => write!(f, "{name}:{line}:{column}: ")?,
            ConfigLocation::Option(option) => write!(f, "{option}: ")?,
            ConfigLocation::Unknown => {}
        }
        f.write_str(&self.message)
    }
}

/// The text of a file, with an index of its lines for locations.
#[derive(Clone)]
pub struct ConfigText {
    name: Arc<str>,
    text: String,
    line_starts: Vec<usize>,
}

impl ConfigText {
    /// Takes the text of the file `name`.
    pub fn new(name: &str, text: String) -> ConfigText {
        let line_begins = text.match_indices('\n').map(|(at, _)| at + 1);
        let line_starts = std::iter::once(0).chain(line_begins).collect();
        ConfigText { name: name.into(), text, line_starts }
    }

    /// Returns the name of the file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the whole text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the location of the first byte of `span`.
    pub fn location(&self, span: Range<usize>) -> ConfigLocation {
        let line = self.line_starts.partition_point(|&start| start <= span.start);
        let start = self.line_starts[line - 1];
        let before = self.text.get(start..span.start).unwrap_or_default();
        ConfigLocation::File { name: self.name.clone(), line, column: before.chars().count() + 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn location_has_line_and_column() {
        let text = ConfigText::new("f", "a\nü = b\n\nc".to_owned());
        for (at, expected) in [(0, "f:1:1: x"), (2, "f:2:1: x"), (7, "f:2:5: x"), (10, "f:4:1: x")]
        {
            let problem = Problem { location: text.location(at..at), message: "x".to_owned() };
            assert_eq!(problem.to_string(), expected, "{at}");
        }
    }
}
