//! Evaluation of preconditions (RFC 9110 §13). Pure.
//!
//! ```
//! use http::Method;
//! use weft_proto::Headers;
//! use weft_proto::semantics::conditional::{Outcome, Validators, evaluate};
//!
//! let headers = Headers::parse("If-None-Match: \"v1\"\r\n\r\n")?;
//! let now = 1_785_542_400;
//! let current = Validators { etag: Some(b"\"v1\""), modified: None };
//! assert_eq!(evaluate(&Method::GET, &headers, &current, now), Outcome::NotModified);
//! let changed = Validators { etag: Some(b"\"v2\""), modified: None };
//! assert_eq!(evaluate(&Method::GET, &headers, &changed, now), Outcome::Proceed);
//! # Ok::<(), weft_proto::Error>(())
//! ```

use std::iter;

use http::Method;

use crate::headers::Headers;
use crate::semantics::date::parse_http_date;

/// The validators of a representation (RFC 9110 §8.8).
#[derive(Clone, Copy, Debug)]
pub struct Validators<'a> {
    /// The entity-tag with its quotes, and with `W/` before them if it is weak.
    pub etag: Option<&'a [u8]>,
    /// The value of Last-Modified in seconds since 1970.
    pub modified: Option<u64>,
}

/// The result of the preconditions of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All preconditions are true, or there is none.
    Proceed,
    /// 304: the client has the current representation. Only for GET and HEAD.
    NotModified,
    /// 412: a precondition is false.
    Failed,
}

/// Evaluates the preconditions of a request whose target has a representation, in the order of
/// RFC 9110 §13.2.2.
///
/// To be called only if the response would be a success without preconditions (§13.2.1). `now` is
/// in seconds since 1970.
pub fn evaluate(
    method: &Method,
    headers: &Headers,
    validators: &Validators<'_>,
    now: u64,
) -> Outcome {
    // §13.2.1: preconditions do not apply to methods that select no representation.
    if matches!(*method, Method::CONNECT | Method::OPTIONS | Method::TRACE) {
        return Outcome::Proceed;
    }
    let is_get_or_head = matches!(*method, Method::GET | Method::HEAD);
    let unmodified_since = |field| {
        date_field(headers, field, now).zip(validators.modified).map(|(date, last)| last <= date)
    };

    let is_expected = lists_current(headers, "if-match", validators, strong_eq)
        .or_else(|| unmodified_since("if-unmodified-since"));
    if is_expected == Some(false) {
        return Outcome::Failed;
    }
    let is_cached = match lists_current(headers, "if-none-match", validators, weak_eq) {
        None if is_get_or_head => unmodified_since("if-modified-since"),
        is_cached => is_cached,
    };
    match is_cached {
        Some(true) if is_get_or_head => Outcome::NotModified,
        Some(true) => Outcome::Failed,
        Some(false) | None => Outcome::Proceed,
    }
}

/// Returns true if the Range field applies (RFC 9110 §13.1.5): without If-Range, or if If-Range is
/// a strong validator of the current representation.
///
/// In doubt the result is false: the whole representation is always correct, but a combination of
/// parts of different representations is not.
pub fn range_applies(headers: &Headers, validators: &Validators<'_>, now: u64) -> bool {
    let mut lines = headers.get_all("if-range");
    let value = match (lines.next(), lines.next()) {
        (None, _) => return true,
        (Some(value), None) => value,
        (Some(_), Some(_)) => return false,
    };
    match parse_entity_tag(value) {
        Some((tag, b"")) => validators.etag.is_some_and(|etag| strong_eq(etag, tag)),
        Some(_) => false,
        None => validators.modified.is_some_and(|modified| {
            is_strong_date(modified, now) && parse_http_date(value, now) == Some(modified)
        }),
    }
}

/// Returns true if a Last-Modified of this value is a strong validator (RFC 9110 §8.8.2.2).
///
/// A file that changed twice within a second had two contents with one date, and the client may
/// have a part of the first. Only the client can determine that it received its part after that
/// second; otherwise it must not send the date (§13.1.5). Before the second is over, it cannot
/// have done so. The date may be from the clock of another machine, so the required age is one
/// minute as in RFC 7232 §2.2.2, not one second as in its successor.
fn is_strong_date(modified: u64, now: u64) -> bool {
    now.saturating_sub(modified) >= 60
}

/// Returns the date in a field. A field without a date, with more than one field line or with a
/// malformed value is ignored (RFC 9110 §13.1.3, §13.1.4).
fn date_field(headers: &Headers, field: &str, now: u64) -> Option<u64> {
    let mut lines = headers.get_all(field);
    match (lines.next(), lines.next()) {
        (Some(value), None) => parse_http_date(value, now),
        _ => None,
    }
}

/// Maximum size of the list of entity-tags in a field, in bytes: 60 tags of 64 bytes. HTTP/2 makes
/// large fields from a few bytes on the wire.
const MAX_TAG_LIST_BYTES: usize = 4_096;

/// Returns true if a field is `*` or lists the current entity-tag; `None` without such a field.
///
/// A list that is malformed or larger than [`MAX_TAG_LIST_BYTES`] matches nothing. So such an
/// If-Match prevents the change, and such an If-None-Match has the representation sent again.
fn lists_current(
    headers: &Headers,
    field: &str,
    validators: &Validators<'_>,
    eq: fn(&[u8], &[u8]) -> bool,
) -> Option<bool> {
    let mut lines = headers.get_all(field);
    let first = lines.next()?;
    if first == b"*" {
        return Some(lines.next().is_none());
    }
    if headers.get_all(field).map(<[u8]>::len).sum::<usize>() > MAX_TAG_LIST_BYTES {
        return Some(false);
    }
    let is_current = |tag: &[u8]| validators.etag.is_some_and(|etag| eq(etag, tag));
    let found = iter::once(first)
        .chain(lines)
        .try_fold(false, |found, line| Some(any_tag(line, is_current)? || found));
    Some(found == Some(true))
}

/// Returns true if `predicate` is true for any entity-tag of a list; `None` if the list is
/// malformed. A tag may contain commas, and elements may be empty (RFC 9110 §5.6.1.2).
fn any_tag(list: &[u8], predicate: impl Fn(&[u8]) -> bool) -> Option<bool> {
    let mut found = false;
    let mut rest = list.trim_ascii_start();
    while let Some(&b) = rest.first() {
        if b == b',' {
            rest = rest[1..].trim_ascii_start();
            continue;
        }
        let (tag, after) = parse_entity_tag(rest)?;
        found |= predicate(tag);
        rest = after.trim_ascii_start();
        if !matches!(rest, [] | [b',', ..]) {
            return None;
        }
    }
    Some(found)
}

/// Parses the entity-tag at the start of a text (RFC 9110 §8.8.3). Returns the tag and the rest.
fn parse_entity_tag(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let opaque = opaque_tag(text).strip_prefix(b"\"")?;
    let length = opaque.iter().position(|&b| !is_etagc(b))?;
    let after = opaque[length..].strip_prefix(b"\"")?;
    Some((&text[..text.len() - after.len()], after))
}

/// `etagc` (RFC 9110 §8.8.3): characters other than white space, controls and quotes.
fn is_etagc(b: u8) -> bool {
    matches!(b, 0x21 | 0x23..=0x7e | 0x80..)
}

/// Strong comparison (RFC 9110 §8.8.3.2).
fn strong_eq(a: &[u8], b: &[u8]) -> bool {
    a == b && !a.starts_with(b"W/")
}

/// Weak comparison (RFC 9110 §8.8.3.2).
fn weak_eq(a: &[u8], b: &[u8]) -> bool {
    opaque_tag(a) == opaque_tag(b)
}

/// Returns an entity-tag without the weakness indicator `W/`, which is case-sensitive.
fn opaque_tag(tag: &[u8]) -> &[u8] {
    tag.strip_prefix(b"W/").unwrap_or(tag)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Outcome::*;

    const NOW: u64 = 1_785_542_400;

    /// Sun, 06 Nov 1994 08:49:37 GMT
    const MODIFIED: u64 = 784_111_777;

    const STRONG: Validators<'_> = Validators { etag: Some(b"\"a,b\""), modified: Some(MODIFIED) };
    const WEAK: Validators<'_> = Validators { etag: Some(b"W/\"a,b\""), modified: Some(MODIFIED) };
    const NO_VALIDATORS: Validators<'_> = Validators { etag: None, modified: None };

    /// Makes headers from field lines, separated by `|`.
    fn headers(lines: &str) -> Headers {
        let lines: String = lines.split_terminator('|').map(|line| format!("{line}\r\n")).collect();
        Headers::parse(format!("Host: a\r\n{lines}\r\n")).unwrap()
    }

    #[test]
    fn evaluates_preconditions_of_get_and_head() {
        for (lines, outcome) in [
            ("", Proceed),
            // If-Match.
            ("If-Match: *", Proceed),
            ("If-Match: \"a,b\"", Proceed),
            ("If-Match: \"x\", \"a,b\"", Proceed),
            ("If-Match: \"x\"|If-Match: \"a,b\"", Proceed),
            ("If-Match: \"a,b\"|If-Match: \"x\"", Proceed),
            ("If-Match: ,\"x\" ,\t\"a,b\" ,,", Proceed),
            ("If-Match: \"x\",\"a,b\",\"y\"", Proceed),
            ("If-Match: \"x\"", Failed),
            ("If-Match: \"A,B\"", Failed),
            ("If-Match: W/\"a,b\"", Failed),
            ("If-Match: \"a\", \"b\"", Failed),
            ("If-Match: \"\"", Failed),
            ("If-Match:", Failed),
            ("If-Match: ,", Failed),
            ("If-Match: a,b", Failed),
            ("If-Match: *,", Failed),
            ("If-Match: **", Failed),
            ("If-Match: \"*\"", Failed),
            ("If-Match: *|If-Match: *", Failed),
            ("If-Match: *, \"a,b\"", Failed),
            ("If-Match: \"a,b\", *", Failed),
            ("If-Match: \"a,b\"|If-Match: *", Failed),
            ("If-Match: \"a,b", Failed),
            ("If-Match: a,b\"", Failed),
            ("If-Match: \"a,b\"x", Failed),
            ("If-Match: \"a,b\" \"x\"", Failed),
            ("If-Match: \"a,b\";\"x\"", Failed),
            ("If-Match: \"a,b\", x", Failed),
            ("If-Match: \"a,b\", \"x y\"", Failed),
            ("If-Match: \"a,b\"|If-Match: \"x", Failed),
            ("If-Match: \"a|If-Match: b\"", Failed),
            // If-Unmodified-Since.
            ("If-Unmodified-Since: Sun, 06 Nov 1994 08:49:37 GMT", Proceed),
            ("If-Unmodified-Since: Sun, 06 Nov 1994 08:49:38 GMT", Proceed),
            ("If-Unmodified-Since: Sun, 06 Nov 1994 08:49:36 GMT", Failed),
            ("If-Unmodified-Since: Sunday, 06-Nov-94 08:49:36 GMT", Failed),
            ("If-Unmodified-Since: Sun Nov  6 08:49:36 1994", Failed),
            ("If-Unmodified-Since: Sun, 06 Nov 1994 08:49:36 UTC", Proceed),
            ("If-Unmodified-Since:", Proceed),
            (
                "If-Unmodified-Since: Sun, 06 Nov 1994 08:49:36 GMT\
                 |If-Unmodified-Since: Sun, 06 Nov 1994 08:49:36 GMT",
                Proceed,
            ),
            ("If-Match: *|If-Unmodified-Since: Sun, 06 Nov 1994 08:49:36 GMT", Proceed),
            ("If-Match: \"x\"|If-Unmodified-Since: Sun, 06 Nov 1994 08:49:38 GMT", Failed),
            // If-None-Match.
            ("If-None-Match: *", NotModified),
            ("If-None-Match: \"a,b\"", NotModified),
            ("If-None-Match: W/\"a,b\"", NotModified),
            ("If-None-Match: \"x\", W/\"a,b\"", NotModified),
            ("If-None-Match: \"x\",W/\"y\",\"a,b\"", NotModified),
            ("If-None-Match: \"x\"|If-None-Match: \"a,b\"", NotModified),
            ("If-None-Match: \"x\u{e9}\",,\"a,b\"", NotModified),
            ("If-None-Match: \"\", \"a,b\"", NotModified),
            ("If-None-Match: \"x\\\", \"a,b\"", NotModified),
            ("If-None-Match: \"x\"", Proceed),
            ("If-None-Match: \"a\", \"b\"", Proceed),
            ("If-None-Match: w/\"a,b\"", Proceed),
            ("If-None-Match: W/ \"a,b\"", Proceed),
            ("If-None-Match: W/W/\"a,b\"", Proceed),
            ("If-None-Match: W/", Proceed),
            ("If-None-Match:", Proceed),
            ("If-None-Match: a,b", Proceed),
            ("If-None-Match: 'a,b'", Proceed),
            ("If-None-Match: \"a,b\", x", Proceed),
            ("If-None-Match: \"a,b\"|If-None-Match: x", Proceed),
            ("If-None-Match: *|If-None-Match: \"a,b\"", Proceed),
            // If-Modified-Since.
            ("If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT", NotModified),
            ("If-Modified-Since: Sun, 06 Nov 1994 08:49:38 GMT", NotModified),
            ("If-Modified-Since: Fri, 31 Dec 9999 23:59:59 GMT", NotModified),
            ("If-Modified-Since: Sunday, 06-Nov-94 08:49:37 GMT", NotModified),
            ("If-Modified-Since: Sun Nov  6 08:49:37 1994", NotModified),
            ("If-Modified-Since: Sun, 06 Nov 1994 08:49:36 GMT", Proceed),
            ("If-Modified-Since: Thu, 01 Jan 1970 00:00:00 GMT", Proceed),
            ("If-Modified-Since: Mon, 01 Jan 1900 00:00:00 GMT", Proceed),
            ("If-Modified-Since: Sun, 31 Nov 1999 08:49:37 GMT", Proceed),
            ("If-Modified-Since: 784111777", Proceed),
            ("If-Modified-Since: 0", Proceed),
            (
                "If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\
                 |If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT",
                Proceed,
            ),
            ("If-None-Match: \"x\"|If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT", Proceed),
            ("If-None-Match: x|If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT", Proceed),
            ("If-None-Match: *|If-Modified-Since: Sun, 06 Nov 1994 08:49:36 GMT", NotModified),
            // Both pairs: the first can only fail, then the second is evaluated.
            ("If-Match: \"a,b\"|If-None-Match: \"a,b\"", NotModified),
            ("If-None-Match: \"a,b\"|If-Match: \"x\"", Failed),
            ("If-Match: \"a,b\"|If-None-Match: \"x\"", Proceed),
            ("If-Match: \"a,b\"|If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT", NotModified),
            (
                "If-Unmodified-Since: Sun, 06 Nov 1994 08:49:37 GMT\
                 |If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT",
                NotModified,
            ),
            ("If-Unmodified-Since: Sun, 06 Nov 1994 08:49:36 GMT|If-None-Match: \"a,b\"", Failed),
            // Other fields have no effect.
            ("If-Range: \"x\"", Proceed),
            ("If: \"x\"", Proceed),
        ] {
            for method in [Method::GET, Method::HEAD] {
                assert_eq!(evaluate(&method, &headers(lines), &STRONG, NOW), outcome, "{lines}");
            }
        }
    }

    #[test]
    fn bounds_the_list_of_entity_tags() {
        let tags = |count: usize| "\"1234\",".repeat(count);
        for (lines, current) in [
            (format!("{}\"a,b\"", tags(584)), true),
            (format!("{}\"a,b\"", tags(585)), false),
            (format!("\"a,b\",{}", tags(585)), false),
            (format!("{}|F: {}\"a,b\"", tags(292), tags(292)), true),
            (format!("{}|F: {}\"a,b\"", tags(292), tags(293)), false),
        ] {
            for (field, if_current, otherwise) in
                [("If-None-Match", NotModified, Proceed), ("If-Match", Proceed, Failed)]
            {
                let headers = headers(&format!("F: {lines}").replace("F: ", &format!("{field}: ")));
                let expected = if current { if_current } else { otherwise };
                assert_eq!(evaluate(&Method::GET, &headers, &STRONG, NOW), expected, "{field}");
            }
        }
    }

    #[test]
    fn evaluates_preconditions_of_other_methods() {
        for (method, lines, outcome) in [
            ("PUT", "", Proceed),
            ("PUT", "If-Match: *", Proceed),
            ("PUT", "If-Match: \"a,b\"", Proceed),
            ("PUT", "If-Match: \"x\"", Failed),
            ("PUT", "If-Match: x", Failed),
            ("PUT", "If-Unmodified-Since: Sun, 06 Nov 1994 08:49:37 GMT", Proceed),
            ("PUT", "If-Unmodified-Since: Sun, 06 Nov 1994 08:49:36 GMT", Failed),
            ("PUT", "If-None-Match: *", Failed),
            ("PUT", "If-None-Match: W/\"a,b\"", Failed),
            ("PUT", "If-None-Match: \"x\"", Proceed),
            ("PUT", "If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT", Proceed),
            ("POST", "If-None-Match: \"a,b\"", Failed),
            ("DELETE", "If-Match: W/\"a,b\"", Failed),
            ("DELETE", "If-Match: \"a,b\"|If-None-Match: \"a,b\"", Failed),
            ("PATCH", "If-None-Match: \"a,b\"", Failed),
            ("QUERY", "If-None-Match: \"a,b\"", Failed),
            ("get", "If-None-Match: \"a,b\"", Failed),
            ("OPTIONS", "If-Match: \"x\"", Proceed),
            ("OPTIONS", "If-None-Match: *", Proceed),
            ("TRACE", "If-Match: \"x\"", Proceed),
            ("CONNECT", "If-Unmodified-Since: Sun, 06 Nov 1994 08:49:36 GMT", Proceed),
        ] {
            let method = method.parse().unwrap();
            let got = evaluate(&method, &headers(lines), &STRONG, NOW);
            assert_eq!(got, outcome, "{method} {lines}");
        }
    }

    #[test]
    fn evaluates_weak_and_missing_validators() {
        for (validators, lines, outcome) in [
            (WEAK, "If-Match: W/\"a,b\"", Failed),
            (WEAK, "If-Match: \"a,b\"", Failed),
            (WEAK, "If-Match: *", Proceed),
            (WEAK, "If-None-Match: W/\"a,b\"", NotModified),
            (WEAK, "If-None-Match: \"a,b\"", NotModified),
            (WEAK, "If-None-Match: \"x\"", Proceed),
            (NO_VALIDATORS, "If-Match: *", Proceed),
            (NO_VALIDATORS, "If-Match: \"a,b\"", Failed),
            (NO_VALIDATORS, "If-Match: \"\"", Failed),
            (NO_VALIDATORS, "If-Unmodified-Since: Thu, 01 Jan 1970 00:00:00 GMT", Proceed),
            (NO_VALIDATORS, "If-None-Match: *", NotModified),
            (NO_VALIDATORS, "If-None-Match: \"a,b\"", Proceed),
            (NO_VALIDATORS, "If-None-Match: \"\"", Proceed),
            (NO_VALIDATORS, "If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT", Proceed),
        ] {
            let got = evaluate(&Method::GET, &headers(lines), &validators, NOW);
            assert_eq!(got, outcome, "{lines}");
        }
    }

    #[test]
    fn range_applies_if_if_range_is_current() {
        for (validators, lines, applies) in [
            (STRONG, "", true),
            (NO_VALIDATORS, "", true),
            (STRONG, "If-Range: \"a,b\"", true),
            (STRONG, "If-Range: \"x\"", false),
            (STRONG, "If-Range: W/\"a,b\"", false),
            (WEAK, "If-Range: W/\"a,b\"", false),
            (WEAK, "If-Range: \"a,b\"", false),
            (NO_VALIDATORS, "If-Range: \"a,b\"", false),
            (STRONG, "If-Range: \"a,b\", \"x\"", false),
            (STRONG, "If-Range: \"a,b\",", false),
            (STRONG, "If-Range: \"a,b", false),
            (STRONG, "If-Range: a,b", false),
            (STRONG, "If-Range: *", false),
            (STRONG, "If-Range:", false),
            (STRONG, "If-Range: \"a,b\"|If-Range: \"a,b\"", false),
            (STRONG, "If-Range: Sun, 06 Nov 1994 08:49:37 GMT", true),
            (WEAK, "If-Range: Sun, 06 Nov 1994 08:49:37 GMT", true),
            (STRONG, "If-Range: Sunday, 06-Nov-94 08:49:37 GMT", true),
            (STRONG, "If-Range: Sun Nov  6 08:49:37 1994", true),
            (STRONG, "If-Range: Sun, 06 Nov 1994 08:49:38 GMT", false),
            (STRONG, "If-Range: Sun, 06 Nov 1994 08:49:36 GMT", false),
            (STRONG, "If-Range: Sun, 06 Nov 1994 08:49:37 UTC", false),
            (NO_VALIDATORS, "If-Range: Sun, 06 Nov 1994 08:49:37 GMT", false),
            (NO_VALIDATORS, "If-Range: Thu, 01 Jan 1970 00:00:00 GMT", false),
        ] {
            assert_eq!(range_applies(&headers(lines), &validators, NOW), applies, "{lines}");
        }
    }

    #[test]
    fn date_is_strong_after_a_minute() {
        let headers = headers("If-Range: Sun, 06 Nov 1994 08:49:37 GMT");
        for (now, applies) in [
            (MODIFIED - 1, false),
            (MODIFIED, false),
            (MODIFIED + 59, false),
            (MODIFIED + 60, true),
            (NOW, true),
        ] {
            assert_eq!(range_applies(&headers, &STRONG, now), applies, "at {now}");
        }
    }
}
