//! Groups of the patterns that matched a path, for the placeholders `{re.1}` and `{re.name}`, and
//! the name of a host, for `{host.1}` and `{host.name}`. Pure.

use std::fmt;
use std::ops::Range;

use super::path_units::units;

/// Number or name of a group in a pattern.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Group {
    Number(usize),
    Name(Box<str>),
}

impl Group {
    pub(crate) fn parse(text: &str) -> Group {
        match text.parse() {
            Ok(number) => Group::Number(number),
            Err(_) => Group::Name(text.into()),
        }
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Group::Number(number) => number.fmt(f),
            Group::Name(name) => name.fmt(f),
        }
    }
}

/// Groups of a match, each a part of the path as the client sent it: a group of the decoded path
/// could not be encoded again, because an encoded slash in it is no separator.
#[derive(Clone, Debug)]
pub(crate) struct Captures(Box<[Capture]>);

/// Groups of a match with the name of a host, in lower case.
#[derive(Clone, Debug)]
pub(crate) struct HostCaptures(Captures);

#[derive(Clone, Debug)]
struct Capture {
    name: Option<Box<str>>,
    /// Matched text, of a path percent-encoded; empty for a group without a part in the match.
    text: Box<str>,
}

impl Captures {
    /// Takes the groups out of `path`. Their ranges are those in the decoded path.
    pub(crate) fn new<'n>(
        path: &str,
        groups: impl Iterator<Item = (Option<&'n str>, Option<Range<usize>>)>,
    ) -> Captures {
        Captures::of_encoded(path, &Positions::new(path), groups)
    }

    fn of_encoded<'n>(
        path: &str,
        positions: &Positions,
        groups: impl Iterator<Item = (Option<&'n str>, Option<Range<usize>>)>,
    ) -> Captures {
        let captures = groups.map(|(name, range)| Capture {
            name: name.map(Into::into),
            text: range.map_or("", |range| positions.part(path, range)).into(),
        });
        Captures(captures.collect())
    }

    /// Returns the text of a group, percent-encoded; `None` if the pattern does not have it.
    pub(crate) fn get(&self, group: &Group) -> Option<&str> {
        match group {
            Group::Number(number) => self.0.get(*number).map(|capture| &*capture.text),
            Group::Name(name) => self.named(name),
        }
    }

    /// Returns the text of a group by its number or name, like [`get`](Captures::get).
    pub(crate) fn find(&self, group: &str) -> Option<&str> {
        match group.parse() {
            Ok(number) => self.get(&Group::Number(number)),
            Err(_) => self.named(group),
        }
    }

    fn named(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|capture| capture.name.as_deref() == Some(name));
        found.map(|capture| &*capture.text)
    }
}

impl HostCaptures {
    /// Takes the groups out of the name of a host, in which nothing is encoded.
    pub(crate) fn new<'n>(
        host: &str,
        groups: impl Iterator<Item = (Option<&'n str>, Option<Range<usize>>)>,
    ) -> HostCaptures {
        HostCaptures(Captures::of_encoded(host, &Positions(None), groups))
    }

    /// Returns the text of a group; `None` if the pattern does not have it.
    pub(crate) fn get(&self, group: &Group) -> Option<&str> {
        self.0.get(group)
    }

    /// Returns the text of a group by its number or name, like [`get`](HostCaptures::get).
    pub(crate) fn find(&self, group: &str) -> Option<&str> {
        self.0.find(group)
    }
}

/// Positions of the decoded bytes of a path in the path. `None` if nothing is encoded.
struct Positions(Option<Vec<usize>>);

impl Positions {
    fn new(path: &str) -> Positions {
        let bytes = path.as_bytes();
        if !bytes.contains(&b'%') {
            return Positions(None);
        }
        let starts = units(path).map(|unit| unit.at);
        Positions(Some(starts.chain([bytes.len()]).collect()))
    }

    /// Returns the part of the path that is decoded to a range.
    fn part<'p>(&self, path: &'p str, range: Range<usize>) -> &'p str {
        let range = match &self.0 {
            Some(positions) => positions[range.start]..positions[range.end],
            None => range,
        };
        // A pattern matches bytes, and may end within a character that is not encoded.
        path.get(range).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_a_host_are_not_decoded() {
        let groups = [(None, Some(0..5)), (Some("name"), Some(1..5))];
        let captures = HostCaptures::new("a%41b.example", groups.into_iter());
        for (group, expected) in [("0", Some("a%41b")), ("name", Some("%41b")), ("2", None)] {
            assert_eq!(captures.get(&Group::parse(group)), expected, "{group}");
        }
    }

    #[test]
    fn groups_are_parts_of_the_encoded_path() {
        for (path, range, expected) in [
            ("/a/b", 1..2, "a"),
            ("/a/b", 0..4, "/a/b"),
            ("/%61%2Fb/c", 1..4, "%61%2Fb"),
            ("/%61%2Fb/c", 2..3, "%2F"),
            ("/%61%2Fb/c", 4..6, "/c"),
            ("/100%/%4", 1..8, "100%/%4"),
            ("/%%41", 1..3, "%%41"),
            ("/%c3%ad", 1..2, "%c3"),
            ("/%41", 2..2, ""),
            // Within a character that is not encoded.
            ("/í", 1..2, ""),
        ] {
            let groups = [(None, None), (Some("name"), Some(range))];
            let captures = Captures::new(path, groups.into_iter());
            for (group, expected) in [("0", Some("")), ("1", Some(expected)), ("2", None)] {
                assert_eq!(captures.get(&Group::parse(group)), expected, "{path} {group}");
            }
            assert_eq!(captures.get(&Group::parse("name")), Some(expected), "{path}");
            assert_eq!(captures.get(&Group::parse("nam")), None);
        }
    }
}
