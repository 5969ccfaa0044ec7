//! Statuses of responses: single ones, and classes such as `5xx`.

use std::fmt;

use weft::StatusCode;

/// Statuses that a rule applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::options) enum Statuses {
    One(StatusCode),
    /// All statuses with this first digit.
    Class(u16),
}

impl Statuses {
    /// Parses statuses and classes that are separated by spaces, such as `404 5xx`.
    pub(in crate::options) fn parse_list(text: &str) -> Result<Vec<Statuses>, String> {
        let parsed: Option<Vec<_>> = text.split_whitespace().map(Statuses::parse).collect();
        parsed.filter(|list| !list.is_empty()).ok_or_else(|| {
            format!("expected statuses such as 404 or 5xx, separated by spaces, found {text:?}")
        })
    }

    fn parse(word: &str) -> Option<Statuses> {
        match word.as_bytes() {
            [digit @ b'2'..=b'5', b'x', b'x'] => Some(Statuses::Class(u16::from(digit - b'0'))),
            [b'2'..=b'5', _, _] => word.parse().ok().map(Statuses::One),
            _ => None,
        }
    }

    pub(in crate::options) fn contains(self, status: StatusCode) -> bool {
        match self {
            Statuses::One(one) => one == status,
            Statuses::Class(class) => status.as_u16() / 100 == class,
        }
    }

    /// Returns true if all statuses of `other` are among these.
    pub(in crate::options) fn covers(self, other: Statuses) -> bool {
        match other {
            Statuses::One(status) => self.contains(status),
            Statuses::Class(_) => self == other,
        }
    }

    pub(in crate::options) fn is_single(self) -> bool {
        matches!(self, Statuses::One(_))
    }

    /// Returns true if all statuses are errors.
    pub(in crate::options) fn are_errors(self) -> bool {
        match self {
            Statuses::One(status) => status.as_u16() >= 400,
            Statuses::Class(class) => class >= 4,
        }
    }
}

impl fmt::Display for Statuses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Statuses::One(status) => f.write_str(status.as_str()),
            Statuses::Class(class) => write!(f, "{class}xx"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_and_shows_statuses() {
        for (text, expected) in [
            ("404", Some("404")),
            (" 404  5xx ", Some("404 5xx")),
            ("200 599", Some("200 599")),
            ("", None),
            ("100", None),
            ("600", None),
            ("1xx", None),
            ("4x", None),
            ("5XX", None),
            ("404,405", None),
            ("+04", None),
        ] {
            let shown = Statuses::parse_list(text)
                .ok()
                .map(|list| list.iter().map(Statuses::to_string).collect::<Vec<_>>().join(" "));
            assert_eq!(shown.as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn classes_cover_their_statuses() {
        let parse = |word| Statuses::parse(word).unwrap();
        for (a, b, expected) in [
            ("404", "404", true),
            ("4xx", "404", true),
            ("404", "4xx", false),
            ("4xx", "4xx", true),
            ("5xx", "404", false),
        ] {
            assert_eq!(parse(a).covers(parse(b)), expected, "{a} {b}");
        }
    }
}
