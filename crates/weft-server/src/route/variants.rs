//! All readings of a path, for hosts with exact paths and patterns. Pure.
//!
//! The extreme [readings](super::reading) decide about prefixes only. A pattern may match a reading
//! between them: `^/a/[^/]+/[^/]+$` matches `/a/b%2Fc\d` if the encoded slash separates segments
//! and the backslash does not.

use crate::template::{Unit, units};

/// Maximum length of all readings of a path together, in bytes. It bounds the time that a path
/// costs, also one that HPACK repeats by a byte. A path whose only ambiguity is encoded slashes has
/// six readings and may have 1,365 bytes; one with all kinds of ambiguity has 72 and may have 113.
const MAX_BYTES: usize = 8 << 10;

/// The differences between servers that a path depends on.
#[derive(Clone, Copy, Debug)]
struct Rules {
    /// Encoded slashes separate segments.
    slashes: bool,
    backslashes: Backslashes,
    /// Parameters are removed before decoding, from `;` to the next slash.
    parameters_before: bool,
    /// Parameters are removed after decoding, from `;` or `%3B` to the next separator.
    parameters_after: bool,
    empty_segments: EmptySegments,
}

/// Backslashes that separate segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Backslashes {
    None,
    NotEncoded,
    All,
}

/// Empty segments and segments of a single dot that are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EmptySegments {
    All,
    /// The slash at the end.
    Last,
    None,
}

/// Returns the readings of a path besides the reading of the router; `None` if they are too long
/// together.
pub(crate) fn all_readings(path: &str) -> Option<impl Iterator<Item = Vec<u8>>> {
    let units: Vec<Unit> = units(path).collect();
    let rules = rules(&units);
    (rules.len() == 1 || rules.len() * path.len() <= MAX_BYTES)
        .then(|| rules.into_iter().map(move |rules| read(&units, rules)))
}

/// Returns the rules that may differ for a path.
fn rules(units: &[Unit]) -> Vec<Rules> {
    let (mut slashes, mut backslashes) = (vec![false], vec![Backslashes::None]);
    let (mut before, mut after) = (vec![false], vec![false]);
    for &Unit { byte, is_encoded, .. } in units {
        match (byte, is_encoded) {
            (b'/', true) => add(&mut slashes, true),
            (b'\\', true) => {
                add(&mut backslashes, Backslashes::NotEncoded);
                add(&mut backslashes, Backslashes::All);
            }
            (b'\\', false) => add(&mut backslashes, Backslashes::All),
            (b';', is_encoded) => {
                add(&mut after, true);
                if !is_encoded {
                    add(&mut before, true);
                }
            }
            _ => {}
        }
    }
    let is_ambiguous = [slashes.len(), backslashes.len(), before.len(), after.len()] != [1; 4];
    let empty_segments: &[EmptySegments] = match is_ambiguous || has_empty_segments(units) {
        true => &[EmptySegments::All, EmptySegments::Last, EmptySegments::None],
        false => &[EmptySegments::All],
    };
    let mut all = Vec::new();
    for &slashes in &slashes {
        for &backslashes in &backslashes {
            for &parameters_before in &before {
                for &parameters_after in &after {
                    let rules = |empty_segments| Rules {
                        slashes,
                        backslashes,
                        parameters_before,
                        parameters_after,
                        empty_segments,
                    };
                    all.extend(empty_segments.iter().copied().map(rules));
                }
            }
        }
    }
    all
}

fn add<T: PartialEq>(list: &mut Vec<T>, item: T) {
    if !list.contains(&item) {
        list.push(item);
    }
}

fn read(units: &[Unit], rules: Rules) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(units.len());
    let mut in_parameter = false;
    for &Unit { byte, is_encoded, .. } in units {
        let is_separator = match (byte, is_encoded) {
            (b'/', true) => rules.slashes,
            (b'/', false) => true,
            (b'\\', true) => rules.backslashes == Backslashes::All,
            (b'\\', false) => rules.backslashes != Backslashes::None,
            _ => false,
        };
        in_parameter &= is_encoded || !is_separator;
        in_parameter |= rules.parameters_before && !is_encoded && byte == b';';
        match byte {
            _ if in_parameter => {}
            _ if is_separator => decoded.push(b'/'),
            b'/' => decoded.push(ENCODED_SLASH),
            byte => decoded.push(byte),
        }
    }
    if rules.parameters_after {
        let mut in_parameter = false;
        decoded.retain(|&byte| {
            in_parameter = byte == b';' || in_parameter && byte != b'/';
            !in_parameter
        });
    }
    match rules.empty_segments {
        EmptySegments::All => decoded,
        kept => without_empty_segments(&decoded, kept),
    }
}

fn without_empty_segments(decoded: &[u8], kept: EmptySegments) -> Vec<u8> {
    let mut path = Vec::with_capacity(decoded.len() + 1);
    for segment in decoded.split(|&b| b == b'/').filter(|it| !matches!(*it, b"" | b".")) {
        path.push(b'/');
        path.extend_from_slice(segment);
    }
    if path.is_empty() || kept == EmptySegments::Last && decoded.ends_with(b"/") {
        path.push(b'/');
    }
    path
}

/// Returns true if a segment other than the one after the last slash is empty, or any is a dot.
fn has_empty_segments(units: &[Unit]) -> bool {
    let mut segments = units.split(|unit| unit.byte == b'/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        if segment.is_empty() && !is_last || matches!(segment, [unit] if unit.byte == b'.') {
            return true;
        }
    }
    false
}

/// Stands for a slash that is percent-encoded in a segment. This byte does not occur in UTF-8, so
/// that no prefix contains it.
pub(super) const ENCODED_SLASH: u8 = 0xff;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_paths_in_all_ways() {
        for (path, expected) in [
            ("/a%FF", r"/a\xff"),
            ("/a%2Fb/", r"/a\xffb/ /a\xffb /a/b/ /a/b"),
            ("/a%2F/b", r"/a\xff/b /a//b /a/b"),
            (r"/a%2fb\c", r"/a\xffb\\c /a\xffb/c /a/b\\c /a/b/c"),
            (r"/a\b%5Cc", r"/a\\b\\c /a/b\\c /a/b/c"),
            ("/a;x=1/b", "/a;x=1/b /a/b"),
            ("/a%3Bx/b", "/a;x/b /a/b"),
            ("/a;%2Fb/c", r"/a;\xffb/c /a/c /a;/b/c /a/b/c"),
            ("/;x/b", "/;x/b //b /b"),
            ("/a%2F.", r"/a\xff. /a/. /a"),
            ("/;x", "/;x /"),
        ] {
            let mut found = Vec::new();
            let shown = |reading: Vec<u8>| reading.escape_ascii().to_string();
            all_readings(path).unwrap().map(shown).for_each(|reading| add(&mut found, reading));
            let mut expected: Vec<_> = expected.split(' ').map(str::to_owned).collect();
            found.sort();
            expected.sort();
            assert_eq!(found, expected, "{path}");
        }
    }

    #[test]
    fn bounds_the_length_of_all_readings() {
        for (ambiguous, is_read) in [("%2F", true), ("\\%5C", true), ("%2F\\%5C;%3B", false)] {
            let path = format!("/{}{ambiguous}", "a".repeat(600));
            assert_eq!(all_readings(&path).is_some(), is_read, "{ambiguous}");
            assert!(all_readings(&format!("/a{ambiguous}")).is_some());
        }
        assert!(all_readings(&format!("/{}%20", "a".repeat(8000))).is_some());
    }
}
