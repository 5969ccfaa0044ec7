//! Patterns: regular expressions that match decoded paths, in time linear in the length of the
//! path. Pure.

use regex::bytes::{Regex, RegexBuilder, RegexSet, RegexSetBuilder};

use super::captures::{Captures, Group, HostCaptures};

/// Maximum number of patterns of a host.
const MAX_PATTERNS: usize = 256;

/// Maximum size of a compiled pattern, in bytes. The time for a byte of a path is at most
/// proportional to it.
const MAX_PATTERN_BYTES: usize = 256 << 10;

/// Maximum size of all compiled patterns of a host together, in bytes.
const MAX_SET_BYTES: usize = 4 << 20;

/// Maximum size of the states that a worker caches for a pattern, in bytes.
const MAX_CACHE_BYTES: usize = 256 << 10;

/// A pattern that matches decoded paths, anywhere unless it has anchors.
#[derive(Clone)]
pub(crate) struct Pattern {
    source: Box<str>,
    regex: Regex,
}

impl Pattern {
    /// Compiles a pattern. It matches bytes, as a decoded path may be invalid UTF-8, and `.` also
    /// matches bytes that end lines: otherwise `%FF` or `%0A` in a path would lead past `~ ^/a/.*`.
    ///
    /// # Errors
    /// With an invalid pattern. The message has the position.
    pub(crate) fn parse(source: &str) -> Result<Pattern, String> {
        let mut builder = RegexBuilder::new(source);
        builder.unicode(false).dot_matches_new_line(true);
        builder.size_limit(MAX_PATTERN_BYTES).dfa_size_limit(MAX_CACHE_BYTES);
        let regex = builder.build().map_err(|error| describe(&error))?;
        Ok(Pattern { source: source.into(), regex })
    }

    pub(crate) fn source(&self) -> &str {
        &self.source
    }

    pub(crate) fn matches(&self, decoded: &[u8]) -> bool {
        self.regex.is_match(decoded)
    }

    /// Returns the number of groups, which are numbered from 1.
    pub(crate) fn count_groups(&self) -> usize {
        self.regex.captures_len() - 1
    }

    pub(crate) fn has_group(&self, group: &Group) -> bool {
        match group {
            Group::Number(number) => (1..=self.count_groups()).contains(number),
            Group::Name(name) => self.group_names().any(|known| known == &**name),
        }
    }

    pub(crate) fn group_names(&self) -> impl Iterator<Item = &str> {
        self.regex.capture_names().flatten()
    }

    /// Returns the groups of a path that matches; `None` if the pattern has no groups.
    pub(crate) fn captures(&self, path: &str, decoded: &[u8]) -> Option<Captures> {
        if self.count_groups() == 0 {
            return None;
        }
        let groups = self.regex.captures(decoded)?;
        let ranges = groups.iter().map(|group| group.map(|group| group.range()));
        Some(Captures::new(path, self.regex.capture_names().zip(ranges)))
    }

    /// Returns the groups of a host that matches; `None` if the pattern has no groups.
    pub(crate) fn host_captures(&self, host: &str) -> Option<HostCaptures> {
        if self.count_groups() == 0 {
            return None;
        }
        let groups = self.regex.captures(host.as_bytes())?;
        let ranges = groups.iter().map(|group| group.map(|group| group.range()));
        Some(HostCaptures::new(host, self.regex.capture_names().zip(ranges)))
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Pattern) -> bool {
        self.source == other.source
    }
}

impl Eq for Pattern {}

impl std::fmt::Debug for Pattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.source.fmt(f)
    }
}

/// All patterns of a host, which are matched together.
pub(crate) struct PatternSet(RegexSet);

impl PatternSet {
    /// # Errors
    /// If there are too many patterns, or too large ones.
    pub(crate) fn new<'p>(
        patterns: impl ExactSizeIterator<Item = &'p Pattern>,
    ) -> Result<PatternSet, String> {
        PatternSet::with_maximum(patterns, MAX_PATTERNS, "the host")
    }

    /// Compiles at most `maximum` patterns of `owner`, which is named in messages.
    ///
    /// # Errors
    /// If there are too many patterns, or too large ones.
    pub(crate) fn with_maximum<'p>(
        patterns: impl ExactSizeIterator<Item = &'p Pattern>,
        maximum: usize,
        owner: &str,
    ) -> Result<PatternSet, String> {
        let count = patterns.len();
        if count > maximum {
            return Err(format!("{owner} has {count} patterns; {maximum} are permitted"));
        }
        let mut builder = RegexSetBuilder::new(patterns.map(Pattern::source));
        builder.unicode(false).dot_matches_new_line(true);
        builder.size_limit(MAX_SET_BYTES).dfa_size_limit(MAX_SET_BYTES);
        let set = builder.build().map_err(|_| {
            format!("the patterns of {owner} are larger than {MAX_SET_BYTES} bytes together")
        })?;
        Ok(PatternSet(set))
    }

    /// Returns the numbers of all patterns that match.
    pub(crate) fn matches(&self, decoded: &[u8]) -> impl Iterator<Item = usize> + use<> {
        self.0.matches(decoded).into_iter()
    }

    /// Returns the number of the first pattern that matches.
    pub(crate) fn first_match(&self, decoded: &[u8]) -> Option<usize> {
        self.0.matches(decoded).iter().next()
    }
}

/// Describes an error in one line, as the predicate of a sentence about the pattern.
fn describe(error: &regex::Error) -> String {
    if let regex::Error::CompiledTooBig(_) = error {
        return format!(
            "has a pattern that is larger than {MAX_PATTERN_BYTES} bytes when compiled"
        );
    }
    // The text has the pattern, a line that marks the position, and the reason.
    let text = error.to_string();
    let marker = |line: &&str| line.contains('^') && line.bytes().all(|b| matches!(b, b' ' | b'^'));
    let position = text.lines().find(marker).and_then(|line| line.find('^'));
    let position =
        position.map_or(String::new(), |at| format!(" at character {}", at - INDENT + 1));
    let reason = text.lines().last().unwrap_or_default();
    let reason = reason.strip_prefix("error: ").unwrap_or(reason);
    format!("has an invalid pattern{position}: {reason}")
}

/// Indentation of the pattern in the text of an error.
const INDENT: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_bytes() {
        for (pattern, decoded, expected) in [
            (r"^/a/.*$", &b"/a/\xff\n"[..], true),
            (r"\.php$", b"/x.php", true),
            (r"\.php$", b"/x.php\n", false),
            (r"^/\w+$", "/í".as_bytes(), false),
            (r"^/día", "/días".as_bytes(), true),
            (r"(?i)^/A", b"/a", true),
            (r"^/A", b"/a", false),
            // Linear, although it takes other implementations years.
            (r"^/(a+)+$", &[b"/", &b"a".repeat(8000)[..], b"!"].concat(), false),
        ] {
            let pattern = Pattern::parse(pattern).unwrap();
            assert_eq!(pattern.matches(decoded), expected, "{pattern:?}");
            let set = PatternSet::new([pattern].iter()).unwrap();
            assert_eq!(set.first_match(decoded).is_some(), expected);
        }
    }

    #[test]
    fn reports_invalid_patterns_with_their_position() {
        for (pattern, expected) in [
            ("^/(a", "has an invalid pattern at character 3: unclosed group"),
            ("^/a[b-a]", "at character 5: invalid character class range"),
            ("^/(?!a)", "at character 3: look-around, including look-ahead"),
            (r"^/(a)\1", "at character 6: backreferences are not supported"),
            ("^/días[í]", "Unicode not allowed here"),
            ("(a{1000}){1000}", "larger than 262144 bytes when compiled"),
        ] {
            let message = Pattern::parse(pattern).unwrap_err();
            assert!(message.contains(expected), "{pattern}: {message}");
            assert!(!message.contains('\n'), "{message}");
        }
    }

    #[test]
    fn bounds_the_patterns_of_a_host() {
        let patterns = |count, source: &str| vec![Pattern::parse(source).unwrap(); count];
        let small = patterns(MAX_PATTERNS + 1, "a");
        assert!(PatternSet::new(small[1..].iter()).is_ok());
        assert!(PatternSet::new(small.iter()).is_err());
        assert!(PatternSet::new(patterns(MAX_PATTERNS, "[^/]{1,800}").iter()).is_err());
    }
}
