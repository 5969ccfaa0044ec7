//! Tests of the values that a request has of one name. Pure.

use super::{MAX_REPETITIONS, Undecided};
use crate::template::Pattern;

/// Maximum number of values in a condition.
const MAX_VALUES: usize = 64;

/// Tests of the values of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ValueTests {
    /// The request has the name, with any value.
    Present,
    /// The request does not have the name.
    Absent,
    /// One of the values is accepted, and none is refused.
    Values {
        /// Empty: all values that are not refused are accepted, and so is a request without a
        /// value.
        accepted: Vec<ValueTest>,
        refused: Vec<ValueTest>,
    },
}

/// A test of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ValueTest {
    Equal(Box<str>),
    Pattern(Pattern),
}

impl ValueTests {
    /// Parses values such as `a`, `!= a`, `~ ^a` and `!~ ^a`.
    ///
    /// # Errors
    /// With an invalid pattern, and with too many values.
    pub(super) fn parse<'t>(texts: impl Iterator<Item = &'t str>) -> Result<ValueTests, String> {
        let (mut accepted, mut refused) = (Vec::new(), Vec::new());
        for text in texts {
            let (is_refused, test) = ValueTest::parse(text)?;
            if is_refused { &mut refused } else { &mut accepted }.push(test);
        }
        match accepted.len() + refused.len() {
            0 => Err("expected at least one value".to_owned()),
            1..=MAX_VALUES => Ok(ValueTests::Values { accepted, refused }),
            count => Err(format!("a condition has at most {MAX_VALUES} values, found {count}")),
        }
    }

    /// Returns true if the values of a name pass the tests.
    ///
    /// # Errors
    /// With too many values, unless one of the first is refused.
    pub(super) fn match_values<'v>(
        &self,
        values: impl Iterator<Item = &'v [u8]>,
    ) -> Result<bool, Undecided> {
        let mut values = values.peekable();
        let (accepted, refused) = match self {
            ValueTests::Present => return Ok(values.peek().is_some()),
            ValueTests::Absent => return Ok(values.peek().is_none()),
            ValueTests::Values { accepted, refused } => (accepted, refused),
        };
        let passes = |tests: &[ValueTest], value| tests.iter().any(|test| test.matches(value));
        let mut is_accepted = accepted.is_empty();
        for (number, value) in values.enumerate() {
            if number == MAX_REPETITIONS {
                return Err(Undecided);
            }
            if passes(refused, value) {
                return Ok(false);
            }
            is_accepted = is_accepted || passes(accepted, value);
        }
        Ok(is_accepted)
    }

    /// Returns true if a text passes the tests. An empty one counts as absent.
    pub(super) fn match_text(&self, text: &[u8]) -> Result<bool, Undecided> {
        match self {
            ValueTests::Present => Ok(!text.is_empty()),
            ValueTests::Absent => Ok(text.is_empty()),
            ValueTests::Values { .. } => self.match_values(std::iter::once(text)),
        }
    }

    pub(super) fn count_patterns(&self) -> usize {
        self.values().filter(|(_, test)| matches!(test, ValueTest::Pattern(_))).count()
    }

    /// Returns the tests, each with true if it refuses.
    fn values(&self) -> impl Iterator<Item = (bool, &ValueTest)> {
        let lists = match self {
            ValueTests::Values { accepted, refused } => Some((accepted, refused)),
            _ => None,
        };
        lists.into_iter().flat_map(|(accepted, refused)| {
            let accepted = accepted.iter().map(|test| (false, test));
            accepted.chain(refused.iter().map(|test| (true, test)))
        })
    }

    /// Returns the values as in a file.
    pub(super) fn texts(&self) -> impl Iterator<Item = String> {
        self.values().map(|(is_refused, test)| match (is_refused, test) {
            (false, ValueTest::Equal(text)) => match ValueTest::parse(text) {
                // The text begins with no operator.
                Ok((false, ValueTest::Equal(parsed))) if parsed == *text => text.to_string(),
                _ => format!("= {text}"),
            },
            (true, ValueTest::Equal(text)) => format!("!= {text}"),
            (false, ValueTest::Pattern(pattern)) => format!("~ {}", pattern.source()),
            (true, ValueTest::Pattern(pattern)) => format!("!~ {}", pattern.source()),
        })
    }
}

impl ValueTest {
    /// Parses a value, and returns true with a test that refuses.
    fn parse(text: &str) -> Result<(bool, ValueTest), String> {
        let pattern = |source: &str| {
            let pattern = Pattern::parse(source);
            pattern.map_err(|reason| format!("the value {text:?} {reason}")).map(ValueTest::Pattern)
        };
        let is_refused = text.starts_with('!');
        Ok(match split_operator(text) {
            Some(("~" | "!~", source)) => (is_refused, pattern(source)?),
            Some((_, value)) => (is_refused, ValueTest::Equal(value.into())),
            None => (false, ValueTest::Equal(text.into())),
        })
    }

    fn matches(&self, value: &[u8]) -> bool {
        match self {
            ValueTest::Equal(text) => text.as_bytes() == value,
            ValueTest::Pattern(pattern) => pattern.matches(value),
        }
    }
}

/// Splits `= VALUE`, `!= VALUE`, `~ PATTERN` or `!~ PATTERN`.
pub(super) fn split_operator(text: &str) -> Option<(&str, &str)> {
    text.split_once(' ').filter(|(sign, _)| matches!(*sign, "=" | "!=" | "~" | "!~"))
}
