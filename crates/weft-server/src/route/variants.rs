//! All readings of a path, for hosts with exact paths and patterns. Pure.
//!
//! The extreme [readings](super::reading) decide about prefixes only. A pattern may match a reading
//! between them: `^/a/[^/]+/[^/]+$` matches `/a/b%2Fc\d` if the encoded slash separates segments
//! and the backslash does not.

/// Maximum length of all readings of a path together, in bytes. It bounds the time that a path
/// costs; ordinary paths with one kind of ambiguity always fit.
const MAX_BYTES: usize = 64 << 10;

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

/// Empty segments, and those of a single dot, that are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EmptySegments {
    All,
    /// The slash at the end.
    Last,
    None,
}

/// Returns the readings of a path other than that of the router; `None` if they are too long
/// together.
pub(super) fn readings(path: &str) -> Option<impl Iterator<Item = Vec<u8>>> {
    let rules = rules(path);
    (rules.len() * path.len() <= MAX_BYTES)
        .then(|| rules.into_iter().map(|rules| read(path, rules)))
}

/// Returns the rules that may differ for a path.
fn rules(path: &str) -> Vec<Rules> {
    let (mut slashes, mut backslashes) = (vec![false], vec![Backslashes::None]);
    let (mut before, mut after) = (vec![false], vec![false]);
    for Unit { byte, is_encoded, .. } in units(path) {
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
                    use EmptySegments::{All, Last, None};
                    all.extend([All, Last, None].map(rules));
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

fn read(path: &str, rules: Rules) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(path.len());
    let mut in_parameter = false;
    for Unit { byte, is_encoded, .. } in units(path) {
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
        let without = |segment: &[u8]| segment.split(|&b| b == b';').next().map(<[u8]>::to_vec);
        let segments: Vec<_> = decoded.split(|&b| b == b'/').filter_map(without).collect();
        decoded = segments.join(&b'/');
    }
    match rules.empty_segments {
        EmptySegments::All => decoded,
        kept => without_empty_segments(&decoded, kept),
    }
}

fn without_empty_segments(decoded: &[u8], kept: EmptySegments) -> Vec<u8> {
    let segments = decoded.split(|&b| b == b'/').filter(|it| !matches!(*it, b"" | b"."));
    let mut path: Vec<u8> = segments.flat_map(|segment| [b"/", segment].concat()).collect();
    if path.is_empty() || kept == EmptySegments::Last && decoded.ends_with(b"/") {
        path.push(b'/');
    }
    path
}

/// Stands for a slash that is percent-encoded in a segment. This byte does not occur in UTF-8, so
/// that no prefix contains it.
pub(super) const ENCODED_SLASH: u8 = 0xff;

/// A decoded byte of a path.
pub(crate) struct Unit {
    /// Position in the path.
    pub(crate) at: usize,
    pub(crate) byte: u8,
    pub(crate) is_encoded: bool,
}

/// Returns the bytes of a path, decoded as [`weft::path::decode`] does.
pub(crate) fn units(path: &str) -> impl Iterator<Item = Unit> {
    let (bytes, mut next) = (path.as_bytes(), 0);
    std::iter::from_fn(move || {
        let (at, byte) = (next, *bytes.get(next)?);
        let decoded = match byte {
            b'%' => bytes.get(at..at + 3).map(weft::path::decode),
            _ => None,
        };
        match decoded.as_deref() {
            Some(&[byte]) => {
                next += 3;
                Some(Unit { at, byte, is_encoded: true })
            }
            _ => {
                next += 1;
                Some(Unit { at, byte, is_encoded: false })
            }
        }
    })
}

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
            readings(path).unwrap().map(shown).for_each(|reading| add(&mut found, reading));
            let mut expected: Vec<_> = expected.split(' ').map(str::to_owned).collect();
            found.sort();
            expected.sort();
            assert_eq!(found, expected, "{path}");
        }
    }

    #[test]
    fn bounds_the_length_of_all_readings() {
        for (ambiguous, is_read) in [("%2F", true), ("\\%5C", true), ("%2F\\%5C;%3B", false)] {
            let path = format!("/{}{ambiguous}", "a".repeat(7000));
            assert_eq!(readings(&path).is_some(), is_read, "{ambiguous}");
            assert!(readings(&format!("/a{ambiguous}")).is_some());
        }
    }
}
