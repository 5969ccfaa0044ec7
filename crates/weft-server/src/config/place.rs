//! Where something was said, and what is wrong with it.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// Where something was said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A line and a column of a file, both from 1.
    File { name: Arc<str>, line: usize, column: usize },
    /// An option, with its dashes.
    Option(String),
    /// Somewhere else on the command line, or nowhere.
    Unknown,
}

impl Place {
    pub(crate) fn is_in_file(&self) -> bool {
        matches!(self, Place::File { .. })
    }
}

/// A value, and where it was said.
#[derive(Clone)]
pub(crate) struct At<T> {
    pub(crate) place: Place,
    pub(crate) value: T,
}

impl<T> At<T> {
    pub(crate) fn problem(&self, message: impl Into<String>) -> Problem {
        Problem { place: self.place.clone(), message: message.into() }
    }

    pub(crate) fn map<U>(self, change: impl FnOnce(T) -> U) -> At<U> {
        At { place: self.place, value: change(self.value) }
    }
}

/// Without the place: two ways to say the same are the same.
impl<T: fmt::Debug> fmt::Debug for At<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

/// What is wrong, with what to do about it, in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) place: Place,
    pub(crate) message: String,
}

/// Whether something was as it should be.
pub(crate) type Checked<T = ()> = Result<T, Problem>;

impl Problem {
    /// One that is not about anything that was said.
    pub(crate) fn of_system(message: impl Into<String>) -> Problem {
        Problem { place: Place::Unknown, message: message.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::File { name, line, column } => write!(f, "{name}:{line}:{column}: ")?,
            Place::Option(option) => write!(f, "{option}: ")?,
            Place::Unknown => {}
        }
        f.write_str(&self.message)
    }
}

/// A file's text, in which places are found.
pub(crate) struct Text {
    name: Arc<str>,
    text: String,
    line_starts: Vec<usize>,
}

impl Text {
    pub(crate) fn new(name: &str, text: String) -> Text {
        let behind_line_ends = text.match_indices('\n').map(|(at, _)| at + 1);
        let line_starts = std::iter::once(0).chain(behind_line_ends).collect();
        Text { name: name.into(), text, line_starts }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// The place of these bytes.
    pub(crate) fn place(&self, span: Range<usize>) -> Place {
        let line = self.line_starts.partition_point(|&start| start <= span.start);
        let start = self.line_starts[line - 1];
        let before = self.text.get(start..span.start).unwrap_or_default();
        Place::File { name: self.name.clone(), line, column: before.chars().count() + 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_have_a_line_and_a_column() {
        let text = Text::new("f", "a\nü = b\n\nc".to_owned());
        for (at, expected) in [(0, "f:1:1: x"), (2, "f:2:1: x"), (7, "f:2:5: x"), (10, "f:4:1: x")]
        {
            let problem = Problem { place: text.place(at..at), message: "x".to_owned() };
            assert_eq!(problem.to_string(), expected, "{at}");
        }
    }
}
