//! Statuses of the requests that a log has.

use std::ops::RangeInclusive;

use weft_config::{ConfigResult, Located, quoted_list};

/// Statuses such as `404`, `5xx` or `400-404`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StatusRange(RangeInclusive<u16>);

impl StatusRange {
    pub(crate) fn contains(&self, status: u16) -> bool {
        self.0.contains(&status)
    }

    /// Returns the first and the last status.
    pub(crate) fn range(&self) -> RangeInclusive<u16> {
        self.0.clone()
    }

    /// Reads a text of the configuration.
    ///
    /// # Errors
    /// If the text is no status.
    pub(crate) fn read(text: &Located<String>) -> ConfigResult<StatusRange> {
        let invalid = "expected a status such as \"404\", \"5xx\" or \"400-404\"";
        StatusRange::parse(&text.value).ok_or_else(|| text.problem(invalid))
    }

    fn parse(text: &str) -> Option<StatusRange> {
        let status = |text: &str| {
            let digits = text.len() == 3 && text.bytes().all(|b| b.is_ascii_digit());
            text.parse().ok().filter(|status| digits && (100..=599).contains(status))
        };
        let (first, last) = match (text.strip_suffix("xx"), text.split_once('-')) {
            (Some(class), _) if class.len() == 1 => {
                (status(&format!("{class}00"))?, status(&format!("{class}99"))?)
            }
            (_, Some((first, last))) => (status(first)?, status(last)?),
            _ => (status(text)?, status(text)?),
        };
        (first <= last).then_some(StatusRange(first..=last))
    }
}

impl std::fmt::Display for StatusRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.0.start(), self.0.end()) {
            (first, last) if first == last => write!(f, "{first}"),
            (first, last) if first % 100 == 0 && *last == first + 99 => {
                write!(f, "{}xx", first / 100)
            }
            (first, last) => write!(f, "{first}-{last}"),
        }
    }
}

/// Parses the values of a key.
pub(super) fn parse_statuses(texts: Vec<Located<String>>) -> ConfigResult<Vec<StatusRange>> {
    texts.iter().map(StatusRange::read).collect()
}

/// Formats statuses as in a file.
pub(super) fn show_statuses(statuses: &[StatusRange]) -> String {
    match statuses {
        [] => String::new(),
        statuses => quoted_list(statuses.iter().map(ToString::to_string)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_statuses() {
        for (text, expected) in [
            ("404", Some("404")),
            ("5xx", Some("5xx")),
            ("500-599", Some("5xx")),
            ("400-404", Some("400-404")),
            ("499", Some("499")),
            ("600", None),
            ("0xx", None),
            ("xx", None),
            ("404-400", None),
            ("+40", None),
            ("", None),
        ] {
            let shown = StatusRange::parse(text).map(|range| range.to_string());
            assert_eq!(shown.as_deref(), expected, "{text}");
        }
    }
}
