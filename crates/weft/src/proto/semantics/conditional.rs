//! Does the client's idea of a representation still hold? Preconditions (RFC 9110 §13). Pure.

use std::iter;

use http::Method;

use crate::proto::headers::Headers;
use crate::proto::semantics::date_parse::parse_http_date;

/// What a representation can be recognised by.
pub(crate) struct Validators<'a> {
    /// With its quotes, and `W/` before them if it is weak.
    pub(crate) etag: Option<&'a [u8]>,
    /// Seconds since 1970, as Last-Modified tells them.
    pub(crate) modified: Option<u64>,
}

/// What a request's preconditions come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// All of them hold, or there is none.
    Proceed,
    /// 304: the client has this representation. Only for GET and HEAD.
    NotModified,
    /// 412.
    Failed,
}

/// Judges a request whose target has a representation, in the order of RFC 9110 §13.2.2.
///
/// To be asked when the answer would be a success otherwise (§13.2.1). `now` is in seconds
/// since 1970.
pub(crate) fn judge(
    method: &Method,
    headers: &Headers,
    validators: &Validators<'_>,
    now: u64,
) -> Verdict {
    // §13.2.1: methods that select no representation have no preconditions.
    if matches!(*method, Method::CONNECT | Method::OPTIONS | Method::TRACE) {
        return Verdict::Proceed;
    }
    let reads = matches!(*method, Method::GET | Method::HEAD);
    let unmodified_since =
        |field| date(headers, field, now).zip(validators.modified).map(|(date, last)| last <= date);

    let is_the_one = names(headers, "if-match", validators, same_strongly)
        .or_else(|| unmodified_since("if-unmodified-since"));
    if is_the_one == Some(false) {
        return Verdict::Failed;
    }
    let is_known = match names(headers, "if-none-match", validators, same_weakly) {
        None if reads => unmodified_since("if-modified-since"),
        is_known => is_known,
    };
    match is_known {
        Some(true) if reads => Verdict::NotModified,
        Some(true) => Verdict::Failed,
        Some(false) | None => Verdict::Proceed,
    }
}

/// Whether the Range field is to be looked at (RFC 9110 §13.1.5): without an If-Range, or
/// when that is a strong validator of this very representation.
///
/// When in doubt it is not: the whole representation is never wrong, and parts of two
/// different ones put together are.
pub(crate) fn range_applies(headers: &Headers, validators: &Validators<'_>, now: u64) -> bool {
    let mut lines = headers.get_all("if-range");
    let value = match (lines.next(), lines.next()) {
        (None, _) => return true,
        (Some(value), None) => value,
        (Some(_), Some(_)) => return false,
    };
    match entity_tag(value) {
        Some((tag, b"")) => validators.etag.is_some_and(|etag| same_strongly(etag, tag)),
        Some(_) => false,
        None => validators.modified.is_some_and(|modified| {
            is_strong(modified, now) && parse_http_date(value, now) == Some(modified)
        }),
    }
}

/// Whether a Last-Modified of this value is a strong validator (RFC 9110 §8.8.2.2).
///
/// A file that changed twice within a second had two contents under one date, and the client
/// may hold a part of the first. Only the client can tell that it came after that second,
/// and else must not send the date (§13.1.5). But while the second is not over, it cannot
/// have. The date may be from another machine's clock, so the wait is the minute of
/// RFC 7232 §2.2.2, not the second of its successor.
fn is_strong(modified: u64, now: u64) -> bool {
    now.saturating_sub(modified) >= 60
}

/// The date in a field. No date, more than one line, or what is malformed is ignored
/// (RFC 9110 §13.1.3, §13.1.4).
fn date(headers: &Headers, field: &str, now: u64) -> Option<u64> {
    let mut lines = headers.get_all(field);
    match (lines.next(), lines.next()) {
        (Some(value), None) => parse_http_date(value, now),
        _ => None,
    }
}

/// Whether a field is `*` or lists the representation's entity-tag; `None` without such a
/// field.
///
/// A list that is malformed anywhere names nothing. So If-Match stops the change that its
/// sender wanted to be careful with, and If-None-Match has the representation sent again.
fn names(
    headers: &Headers,
    field: &str,
    validators: &Validators<'_>,
    same: fn(&[u8], &[u8]) -> bool,
) -> Option<bool> {
    let mut lines = headers.get_all(field);
    let first = lines.next()?;
    if first == b"*" {
        return Some(lines.next().is_none());
    }
    let is_ours = |tag: &[u8]| validators.etag.is_some_and(|etag| same(etag, tag));
    let found = iter::once(first)
        .chain(lines)
        .try_fold(false, |found, line| Some(any_tag(line, is_ours)? || found));
    Some(found == Some(true))
}

/// Whether any entity-tag of a list is such a one; `None` if the list is malformed. Commas
/// may also stand within a tag, and elements be empty (RFC 9110 §5.6.1.2).
fn any_tag(list: &[u8], is_such: impl Fn(&[u8]) -> bool) -> Option<bool> {
    let mut found = false;
    let mut rest = list.trim_ascii_start();
    while let Some(&b) = rest.first() {
        if b == b',' {
            rest = rest[1..].trim_ascii_start();
            continue;
        }
        let (tag, behind) = entity_tag(rest)?;
        found |= is_such(tag);
        rest = behind.trim_ascii_start();
        if !matches!(rest, [] | [b',', ..]) {
            return None;
        }
    }
    Some(found)
}

/// The entity-tag at the start of a text, and what is behind it (RFC 9110 §8.8.3).
fn entity_tag(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let opaque = opaque_tag(text).strip_prefix(b"\"")?;
    let length = opaque.iter().position(|&b| !is_etagc(b))?;
    let behind = opaque[length..].strip_prefix(b"\"")?;
    Some((&text[..text.len() - behind.len()], behind))
}

/// What may stand between an entity-tag's quotes: no white space, no controls, no quotes.
fn is_etagc(b: u8) -> bool {
    matches!(b, 0x21 | 0x23..=0x7e | 0x80..)
}

/// RFC 9110 §8.8.3.2.
fn same_strongly(a: &[u8], b: &[u8]) -> bool {
    a == b && !a.starts_with(b"W/")
}

/// RFC 9110 §8.8.3.2.
fn same_weakly(a: &[u8], b: &[u8]) -> bool {
    opaque_tag(a) == opaque_tag(b)
}

/// An entity-tag without the mark of weakness, which is case-sensitive.
fn opaque_tag(tag: &[u8]) -> &[u8] {
    tag.strip_prefix(b"W/").unwrap_or(tag)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Verdict::*;

    const NOW: u64 = 1_785_542_400;

    /// Sun, 06 Nov 1994 08:49:37 GMT
    const MODIFIED: u64 = 784_111_777;

    const STRONG: Validators<'_> = Validators { etag: Some(b"\"a,b\""), modified: Some(MODIFIED) };
    const WEAK: Validators<'_> = Validators { etag: Some(b"W/\"a,b\""), modified: Some(MODIFIED) };
    const NOTHING: Validators<'_> = Validators { etag: None, modified: None };

    /// The header list of these lines, which a `|` divides.
    fn headers(lines: &str) -> Headers {
        let lines: String = lines.split_terminator('|').map(|line| format!("{line}\r\n")).collect();
        crate::testing::request(format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n"))
            .headers()
            .clone()
    }

    #[test]
    fn verdicts_on_reading() {
        // For GET and HEAD.
        for (lines, verdict) in [
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
            // Both pairs: the first can only fail, the second decides after it.
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
            // Others have no say.
            ("If-Range: \"x\"", Proceed),
            ("If: \"x\"", Proceed),
        ] {
            for method in [Method::GET, Method::HEAD] {
                assert_eq!(judge(&method, &headers(lines), &STRONG, NOW), verdict, "{lines}");
            }
        }
    }

    #[test]
    fn verdicts_on_other_methods() {
        for (method, lines, verdict) in [
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
            let got = judge(&method, &headers(lines), &STRONG, NOW);
            assert_eq!(got, verdict, "{method} {lines}");
        }
    }

    #[test]
    fn verdicts_by_validators() {
        for (validators, lines, verdict) in [
            (WEAK, "If-Match: W/\"a,b\"", Failed),
            (WEAK, "If-Match: \"a,b\"", Failed),
            (WEAK, "If-Match: *", Proceed),
            (WEAK, "If-None-Match: W/\"a,b\"", NotModified),
            (WEAK, "If-None-Match: \"a,b\"", NotModified),
            (WEAK, "If-None-Match: \"x\"", Proceed),
            (NOTHING, "If-Match: *", Proceed),
            (NOTHING, "If-Match: \"a,b\"", Failed),
            (NOTHING, "If-Match: \"\"", Failed),
            (NOTHING, "If-Unmodified-Since: Thu, 01 Jan 1970 00:00:00 GMT", Proceed),
            (NOTHING, "If-None-Match: *", NotModified),
            (NOTHING, "If-None-Match: \"a,b\"", Proceed),
            (NOTHING, "If-None-Match: \"\"", Proceed),
            (NOTHING, "If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT", Proceed),
        ] {
            let got = judge(&Method::GET, &headers(lines), &validators, NOW);
            assert_eq!(got, verdict, "{lines}");
        }
    }

    #[test]
    fn ranges_apply_to_what_the_client_has() {
        for (validators, lines, applies) in [
            (STRONG, "", true),
            (NOTHING, "", true),
            (STRONG, "If-Range: \"a,b\"", true),
            (STRONG, "If-Range: \"x\"", false),
            (STRONG, "If-Range: W/\"a,b\"", false),
            (WEAK, "If-Range: W/\"a,b\"", false),
            (WEAK, "If-Range: \"a,b\"", false),
            (NOTHING, "If-Range: \"a,b\"", false),
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
            (NOTHING, "If-Range: Sun, 06 Nov 1994 08:49:37 GMT", false),
            (NOTHING, "If-Range: Thu, 01 Jan 1970 00:00:00 GMT", false),
        ] {
            assert_eq!(range_applies(&headers(lines), &validators, NOW), applies, "{lines}");
        }
    }

    #[test]
    fn a_date_is_strong_after_a_minute() {
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
