//! Proactive content negotiation: lists of members with weights (RFC 9110 §12.4.2, §12.5). Pure.
//!
//! A malformed member is ignored, as if the client had not sent it. So are members beyond the
//! bounds of [`Headers::bounded_list`]. Each function reads its field once.
//!
//! ```
//! use weft_proto::Headers;
//! use weft_proto::semantics::accept;
//! use weft_proto::semantics::coding::Coding;
//!
//! let headers = Headers::parse(
//!     "Accept: text/html;q=0.5, application/json\r\n\
//!      Accept-Encoding: gzip, br;q=0.8\r\n\
//!      Accept-Language: en-GB, fr;q=0.7\r\n\r\n",
//! )?;
//! assert!(accept::prefers(&headers, "application/json", "text/html"));
//! assert_eq!(accept::coding(&headers, &[Coding::Brotli, Coding::Gzip]), Some(Coding::Gzip));
//! let offered = ["fr", "en"].map(String::from);
//! assert_eq!(accept::language(&headers, &offered), Some(1));
//! # Ok::<(), weft_proto::Error>(())
//! ```

use std::cmp::Reverse;

use crate::headers::Headers;
use crate::semantics::coding::Coding;

/// Selects the best of the offered content codings by `Accept-Encoding` (RFC 9110 §12.5.3); among
/// equal weights the offer that comes first. `None` means identity, without a coding.
///
/// A request without the field accepts any coding, according to the RFC. In practice no client that
/// omits the field decodes responses, so it gets identity.
pub fn coding(headers: &Headers, offered: &[Coding]) -> Option<Coding> {
    let (mut named, mut others, mut identity) = ([None; Coding::ALL.len()], None, None);
    for (name, weight) in weighted(headers, "accept-encoding") {
        let of_name = match name {
            b"*" => &mut others,
            name if name.eq_ignore_ascii_case(b"identity") => &mut identity,
            name => match Coding::ALL.into_iter().find(|coding| coding.is_named(name)) {
                Some(coding) => &mut named[coding as usize],
                None => continue,
            },
        };
        // Of several members with one name, the first applies.
        of_name.get_or_insert(weight);
    }
    let (others, identity) = (others.unwrap_or(0), identity.unwrap_or(0));
    let weight_of = |coding: Coding| named[coding as usize].unwrap_or(others);
    let candidates = offered.iter().map(|&coding| (coding, weight_of(coding)));
    let (best, weight) = candidates.reduce(|a, b| if b.1 > a.1 { b } else { a })?;
    (weight > 0 && weight >= identity).then_some(best)
}

/// Returns true if `Accept` (RFC 9110 §12.5.1) names the media type `wanted` with a higher weight
/// than `other`.
pub fn prefers(headers: &Headers, wanted: &str, other: &str) -> bool {
    let mut weights = [None; 2];
    for (range, weight) in headers.bounded_list("accept").map(parse_media_range) {
        for (media_type, of_type) in [wanted, other].into_iter().zip(&mut weights) {
            if range.eq_ignore_ascii_case(media_type.as_bytes()) {
                of_type.get_or_insert(weight);
            }
        }
    }
    let [wanted, other] = weights.map(|weight| weight.unwrap_or(0));
    wanted > other
}

/// Selects the index of the best offered language by `Accept-Language` (RFC 9110 §12.5.4); among
/// equal weights the language that the client names first. Returns `None` without the field, or if
/// none of the languages is acceptable.
///
/// Each range is looked up by RFC 4647 §3.4: `ja-JP` finds `ja`. If the lookup fails, the first
/// language that matches the range by RFC 4647 §3.3.1 is selected: for `en` that may be `en-US`.
pub fn language(headers: &Headers, offered: &[String]) -> Option<usize> {
    let ranges: Vec<_> = weighted(headers, "accept-language").collect();
    let mut wanted: Vec<_> = ranges.iter().filter(|(_, weight)| *weight > 0).collect();
    // RFC 4647 §3.4: `*` is considered after the named ranges.
    wanted.sort_by_key(|(range, weight)| (Reverse(*weight), *range == b"*"));
    let named: Vec<_> = offered.iter().map(|tag| most_specific(&ranges, tag.as_bytes())).collect();
    let find = |matches: &dyn Fn(usize, &[u8]) -> bool| {
        let is_excluded = |at: usize| named[at].is_some_and(|(_, weight)| weight == 0);
        (0..offered.len()).find(|&at| !is_excluded(at) && matches(at, offered[at].as_bytes()))
    };
    wanted.iter().find_map(|(range, _)| {
        if *range == b"*" {
            return find(&|at, _| named[at].is_none_or(|(range, _)| range == b"*"));
        }
        let mut truncations = std::iter::successors(Some(*range), |range| truncated(range));
        truncations
            .find_map(|range| find(&|_, tag| tag.eq_ignore_ascii_case(range)))
            .or_else(|| find(&|_, tag| matches_range(tag, range)))
    })
}

/// Returns the most specific range for a tag: the longest that matches it, or `*`.
fn most_specific<'a>(ranges: &[(&'a [u8], u16)], tag: &[u8]) -> Option<(&'a [u8], u16)> {
    let matching = ranges.iter().filter(|(range, _)| *range == b"*" || matches_range(tag, range));
    matching.copied().max_by_key(|(range, _)| if *range == b"*" { 0 } else { range.len() })
}

/// Returns true if a tag matches a range by basic filtering: it is equal or more specific
/// (RFC 4647 §3.3.1).
fn matches_range(tag: &[u8], range: &[u8]) -> bool {
    tag.get(..range.len()).is_some_and(|start| start.eq_ignore_ascii_case(range))
        && matches!(tag.get(range.len()), None | Some(b'-'))
}

/// Truncates a range by its last subtag and a single-letter subtag before it (RFC 4647 §3.4).
fn truncated(range: &[u8]) -> Option<&[u8]> {
    let rest = &range[..range.iter().rposition(|&b| b == b'-')?];
    match rest {
        [rest @ .., b'-', _] => Some(rest),
        _ => Some(rest),
    }
}

/// Parses the members of a list and their weights, in thousandths.
fn weighted<'a>(headers: &'a Headers, field: &'a str) -> impl Iterator<Item = (&'a [u8], u16)> {
    headers.bounded_list(field).filter_map(parse_weighted)
}

/// Parses a media range and its weight. Other parameters are ignored.
fn parse_media_range(member: &[u8]) -> (&[u8], u16) {
    let mut parts = member.split(|&b| b == b';').map(<[u8]>::trim_ascii);
    let range = parts.next().unwrap_or_default();
    let weight = parts.find_map(|part| match part {
        [b'q' | b'Q', b'=', weight @ ..] => Some(parse_qvalue(weight).unwrap_or(0)),
        _ => None,
    });
    (range, weight.unwrap_or(1_000))
}

/// Parses `name` or `name;q=weight`.
fn parse_weighted(member: &[u8]) -> Option<(&[u8], u16)> {
    let (name, weight) = match member.iter().position(|&b| b == b';') {
        None => (member, 1_000),
        Some(end) => match member[end + 1..].trim_ascii_start() {
            [b'q' | b'Q', b'=', weight @ ..] => {
                (member[..end].trim_ascii_end(), parse_qvalue(weight)?)
            }
            _ => return None,
        },
    };
    (!name.is_empty() && name.iter().all(u8::is_ascii_graphic)).then_some((name, weight))
}

/// Parses a `qvalue` (RFC 9110 §12.4.2), from 0 to 1 with up to three decimals, to thousandths.
fn parse_qvalue(weight: &[u8]) -> Option<u16> {
    let (whole, decimals) = match weight {
        [whole @ (b'0' | b'1')] => (whole, &[][..]),
        [whole @ (b'0' | b'1'), b'.', decimals @ ..] if decimals.len() <= 3 => (whole, decimals),
        _ => return None,
    };
    let mut sum = u16::from(whole - b'0');
    for index in 0..3 {
        let digit = *decimals.get(index).unwrap_or(&b'0');
        if !digit.is_ascii_digit() {
            return None;
        }
        sum = sum * 10 + u16::from(digit - b'0');
    }
    (sum <= 1_000).then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Coding::{Brotli, Gzip, Zstd};

    fn headers(fields: &str) -> Headers {
        Headers::parse(format!("Host: a\r\n{fields}\r\n")).unwrap()
    }

    #[test]
    fn parses_weights() {
        for (member, weight) in [
            ("a", Some(1_000)),
            ("a;q=1", Some(1_000)),
            ("a;q=0", Some(0)),
            ("a;q=0.", Some(0)),
            ("a;q=0.5", Some(500)),
            ("a;q=0.05", Some(50)),
            ("a;Q=0.005", Some(5)),
            ("a \t; \tq=0.999", Some(999)),
            ("a;q=1.000", Some(1_000)),
            ("a;q=1.001", None),
            ("a;q=0.0001", None),
            ("a;q=2", None),
            ("a;q=.5", None),
            ("a;q=0,5", None),
            ("a;q=0.5x", None),
            ("a;q=-1", None),
            ("a;q=", None),
            ("a;q = 1", None),
            ("a;q", None),
            ("a;", None),
            ("a;x=1", None),
            (";q=1", None),
            ("a b", None),
        ] {
            assert_eq!(
                parse_weighted(member.as_bytes()).map(|(_, weight)| weight),
                weight,
                "{member}"
            );
        }
    }

    #[test]
    fn selects_the_best_coding() {
        for (accepted, best) in [
            ("", None),
            ("gzip", Some(Gzip)),
            ("GZip", Some(Gzip)),
            ("x-gzip", Some(Gzip)),
            ("gzip, deflate, br, zstd", Some(Brotli)),
            ("gzip, deflate", Some(Gzip)),
            ("deflate, compress", None),
            ("br;q=0.9, zstd, gzip;q=0.95", Some(Zstd)),
            ("br;q=0.5, gzip;q=0.5", Some(Brotli)),
            ("br;q=0, gzip", Some(Gzip)),
            ("gzip;q=0", None),
            ("*", Some(Brotli)),
            ("*;q=0", None),
            ("gzip;q=0, *;q=0", None),
            ("*, br;q=0", Some(Zstd)),
            ("*;q=0.1, gzip;q=0.2", Some(Gzip)),
            ("identity", None),
            ("identity, gzip", Some(Gzip)),
            ("identity, gzip;q=0.5", None),
            ("identity;q=0.5, gzip;q=0.4, br;q=0.6", Some(Brotli)),
            ("identity;q=0, gzip;q=0.001", Some(Gzip)),
            ("identity;q=0", None),
            ("gzip;q=x, zstd", Some(Zstd)),
            ("br;level=5, gzip", Some(Gzip)),
            (", ,gzip,", Some(Gzip)),
            ("gzip;q=0, gzip", None),
            ("brotli, gz", None),
        ] {
            let headers = headers(&format!("Accept-Encoding: {accepted}\r\n"));
            assert_eq!(coding(&headers, &[Brotli, Zstd, Gzip]), best, "{accepted}");
        }
    }

    #[test]
    fn selects_a_coding_from_several_field_lines_or_none() {
        let none = headers("");
        let two = headers("Accept-Encoding: br\r\naccept-encoding: gzip\r\n");
        assert_eq!(coding(&none, &[Gzip]), None);
        assert_eq!(coding(&two, &[]), None);
        assert_eq!(coding(&two, &[Gzip]), Some(Gzip));
        assert_eq!(coding(&two, &[Gzip, Brotli]), Some(Gzip));
        assert_eq!(coding(&two, &[Brotli, Gzip]), Some(Brotli));
    }

    #[test]
    fn ignores_members_beyond_the_bounds() {
        let offered = ["en".to_owned()];
        for (filler, is_considered) in [
            ("x,".repeat(31), true),
            ("x,".repeat(32), false),
            (format!("{},", "x".repeat(1_000)), true),
            (format!("{},", "x".repeat(1_024)), false),
            (",".repeat(1_000), true),
            (",".repeat(15_000), false),
        ] {
            let headers = headers(&format!(
                "Accept: {filler}a/b\r\nAccept-Encoding: {filler}gzip\r\nAccept-Language: {filler}en\r\n"
            ));
            let considered = [
                prefers(&headers, "a/b", "c/d"),
                coding(&headers, &[Gzip]).is_some(),
                language(&headers, &offered).is_some(),
            ];
            assert_eq!(considered, [is_considered; 3], "{filler}");
        }
    }

    #[test]
    fn selects_the_best_language() {
        for (accepted, offered, best) in [
            ("de", "en de", Some("de")),
            ("DE", "en de", Some("de")),
            ("de;q=0.5, en;q=0.6", "de en", Some("en")),
            ("de, en", "en de", Some("de")),
            ("fr", "en de", None),
            ("", "en de", None),
            // A range falls back to a less specific language.
            ("ja-JP", "en ja", Some("ja")),
            ("de-CH, en;q=0.5", "en de", Some("de")),
            ("zh-Hant-TW", "zh zh-Hant", Some("zh-Hant")),
            ("zh-Hant-CN-x-private1", "zh-Hant-CN-x zh-Hant", Some("zh-Hant")),
            ("de-1996", "de", Some("de")),
            // A more specific language is used for a range, but no other.
            ("en", "de en-US en-GB", Some("en-US")),
            ("en", "en-US en", Some("en")),
            ("en, de;q=0.9", "de en-US", Some("en-US")),
            ("en-GB", "en-US", None),
            ("en", "eng", None),
            // Any language.
            ("*", "de en", Some("de")),
            ("fr, *;q=0.1", "de en", Some("de")),
            ("*, en", "de en", Some("en")),
            ("*, en;q=0.5", "en de", Some("de")),
            ("*, de;q=0", "de en", Some("en")),
            // Languages with weight 0.
            ("en;q=0", "en", None),
            ("en;q=0, *", "en en-US de", Some("de")),
            ("en;q=0, en-US", "en en-US", Some("en-US")),
            ("en-US;q=0, en", "en-US", None),
            ("de-CH, de;q=0", "de", None),
            ("*;q=0, en;q=0.1", "de en", Some("en")),
            ("de;q=x, en", "de en", Some("en")),
        ] {
            let offered: Vec<String> = offered.split(' ').map(str::to_owned).collect();
            let headers = headers(&format!("Accept-Language: {accepted}\r\n"));
            let found = language(&headers, &offered).map(|at| &*offered[at]);
            assert_eq!(found, best, "{accepted} of {offered:?}");
        }
    }
}
