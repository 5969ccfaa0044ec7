//! Percent-decoding, and the segments of a path. Pure.

use std::borrow::Cow;
use std::ops::Deref;

use smallvec::SmallVec;

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
#[derive(Clone, Debug)]
pub struct Segments<'a>(SmallVec<[&'a str; 8]>);

impl<'a> Segments<'a> {
    /// Splits a path. If it is percent-encoded, the segments are borrowed from `decoded`, which
    /// returns the result of [`decode_segments`].
    pub fn new(path: &'a str, decoded: impl FnOnce() -> &'a [String]) -> Segments<'a> {
        let path = path.strip_prefix('/').unwrap_or(path);
        match path {
            "" => Segments(SmallVec::new()),
            path if path.contains('%') => Segments(decoded().iter().map(String::as_str).collect()),
            path => Segments(path.split('/').collect()),
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

    fn deref(&self) -> &[&'a str] {
        &self.0
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
}
