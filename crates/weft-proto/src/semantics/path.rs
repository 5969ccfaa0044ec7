//! Percent-decoding, and the segments of a path. Pure.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

/// Percent-decodes a text (RFC 3986 §2.1). A `%` that is not followed by two hexadecimal digits is
/// kept.
///
/// ```
/// use weft_proto::semantics::path::decode;
///
/// assert_eq!(&*decode(b"d%C3%ADas"), "días".as_bytes());
/// assert_eq!(&*decode(b"100%"), b"100%");
/// ```
pub fn decode(text: &[u8]) -> Cow<'_, [u8]> {
    let Some(first) = text.iter().position(|&b| b == b'%') else { return Cow::Borrowed(text) };
    let mut decoded = Vec::with_capacity(text.len());
    decoded.extend_from_slice(&text[..first]);
    let mut rest = &text[first..];
    while let Some((&b, after)) = rest.split_first() {
        let value = match *rest {
            [b'%', high, low, ..] => hex_value(high).zip(hex_value(low)),
            _ => None,
        };
        match value {
            Some((high, low)) => {
                decoded.push(high << 4 | low);
                rest = &rest[3..];
            }
            None => {
                decoded.push(b);
                rest = after;
            }
        }
    }
    Cow::Owned(decoded)
}

/// Appends bytes to `out`, percent-encoded except for slashes and unreserved characters (RFC 3986
/// §2.3).
///
/// ```
/// use weft_proto::semantics::path::encode;
///
/// let mut path = String::new();
/// encode(&mut path, "/días 1".as_bytes());
/// assert_eq!(path, "/d%C3%ADas%201");
/// ```
pub fn encode(out: &mut String, bytes: &[u8]) {
    for &b in bytes {
        match b {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' | b'~' => {
                out.push(b.into());
            }
            _ => {
                out.push('%');
                for digit in [b >> 4, b & 15] {
                    out.push(b"0123456789ABCDEF"[usize::from(digit)].into());
                }
            }
        }
    }
}

/// Returns the value of a hexadecimal digit.
#[inline]
pub(crate) fn hex_value(digit: u8) -> Option<u8> {
    match HEX[digit as usize] {
        NOT_HEX => None,
        value => Some(value),
    }
}

const NOT_HEX: u8 = 0xff;

static HEX: [u8; 256] = {
    let mut table = [NOT_HEX; 256];
    let mut value = 0;
    while value < 16 {
        table[b"0123456789abcdef"[value] as usize] = value as u8;
        table[b"0123456789ABCDEF"[value] as usize] = value as u8;
        value += 1;
    }
    table
};

/// The segments of a path. The path is split at its slashes before each segment is decoded, so that
/// an encoded slash stays within its segment.
///
/// Invalid UTF-8 becomes U+FFFD; `%00` becomes the character U+0000.
///
/// ```
/// use weft_proto::semantics::path::{Segments, decode_segments};
///
/// let path = "/buenos/d%C3%ADas";
/// let decoded = decode_segments(path);
/// assert_eq!(*Segments::new(path, || &decoded), ["buenos", "días"]);
/// ```
///
/// The destructor does not use the path: an application may take the body of a request in a `match`
/// on the segments of its path.
#[derive(Clone)]
pub struct Segments<'a>(SegmentList<'a>);

/// The segments. A `SmallVec` has a destructor that, to the compiler, uses the borrowed path.
#[derive(Clone)]
enum SegmentList<'a> {
    Few([&'a str; FEW_SEGMENTS], usize),
    Many(Vec<&'a str>),
}

/// Maximum number of segments that need no allocation.
const FEW_SEGMENTS: usize = 8;

impl<'a> Segments<'a> {
    /// Splits a path. If it is percent-encoded, the segments are borrowed from `decoded`, which
    /// returns the result of [`decode_segments`].
    pub fn new(path: &'a str, decoded: impl FnOnce() -> &'a [String]) -> Segments<'a> {
        let path = path.strip_prefix('/').unwrap_or(path);
        match path {
            "" => Segments::of([].into_iter()),
            path if path.contains('%') => Segments::of(decoded().iter().map(String::as_str)),
            path => Segments::of(path.split('/')),
        }
    }

    fn of(mut segments: impl Iterator<Item = &'a str>) -> Segments<'a> {
        let mut few = [""; FEW_SEGMENTS];
        for count in 0..FEW_SEGMENTS {
            let Some(segment) = segments.next() else {
                return Segments(SegmentList::Few(few, count));
            };
            few[count] = segment;
        }
        match segments.next() {
            None => Segments(SegmentList::Few(few, FEW_SEGMENTS)),
            Some(next) => {
                let all = few.into_iter().chain([next]).chain(segments);
                Segments(SegmentList::Many(all.collect()))
            }
        }
    }
}

/// Splits a path and decodes each segment. Used with [`Segments::new`], so that the caller owns the
/// decoded text.
pub fn decode_segments(path: &str) -> Vec<String> {
    let path = path.strip_prefix('/').unwrap_or(path);
    path.split('/')
        .map(|segment| String::from_utf8_lossy(&decode(segment.as_bytes())).into_owned())
        .collect()
}

impl<'a> Deref for Segments<'a> {
    type Target = [&'a str];

    #[inline]
    fn deref(&self) -> &[&'a str] {
        match &self.0 {
            SegmentList::Few(list, count) => &list[..*count],
            SegmentList::Many(list) => list,
        }
    }
}

impl fmt::Debug for Segments<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodes_only_whole_triplets() {
        for (text, bytes) in [
            ("", &b""[..]),
            ("plain", b"plain"),
            ("%41%62", b"Ab"),
            ("%2f%2F", b"//"),
            ("%", b"%"),
            ("%4", b"%4"),
            ("%zz%4g%g4", b"%zz%4g%g4"),
            ("%%41", b"%A"),
            ("%2541", b"%41"),
            ("%00", b"\0"),
            ("%ff%C3", b"\xff\xc3"),
            ("+", b"+"),
        ] {
            assert_eq!(&*decode(text.as_bytes()), bytes, "{text}");
        }
    }

    #[test]
    fn splits_a_path_before_decoding_it() {
        for (path, expected) in [
            ("/", &[][..]),
            ("", &[]),
            ("/a", &["a"]),
            ("/a/", &["a", ""]),
            ("/a/b", &["a", "b"]),
            ("//a", &["", "a"]),
            ("/a%2Fb/c", &["a/b", "c"]),
            ("/buenos/d%C3%ADas", &["buenos", "días"]),
            ("/%ff", &["\u{fffd}"]),
            ("/%00", &["\0"]),
            ("/%2e%2e/x", &["..", "x"]),
        ] {
            let decoded = decode_segments(path);
            assert_eq!(&*Segments::new(path, || &decoded), expected, "{path}");
        }
    }

    #[test]
    fn holds_any_number_of_segments() {
        for count in [1, 7, 8, 9, 10, 1_000] {
            let expected: Vec<_> = (0..count).map(|n| n.to_string()).collect();
            let path = format!("/{}", expected.join("/"));
            let segments = Segments::new(&path, || unreachable!("nothing is encoded"));
            assert_eq!(*segments, expected);
            assert_eq!(format!("{:?}", segments.clone()), format!("{expected:?}"));
        }
    }

    /// The borrow checker accepts a change of the path while the segments are still in scope.
    #[test]
    fn segments_do_not_use_the_path_when_they_are_dropped() {
        let mut path = String::from("/a/b");
        let segments = Segments::new(&path, || unreachable!("nothing is encoded"));
        let last = segments.last().map(|last| last.len());
        path.clear();
        assert_eq!((last, path.len()), (Some(1), 0));
    }
}
