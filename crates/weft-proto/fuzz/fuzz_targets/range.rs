//! Range requests: the selected parts are nonempty, within the file, ascending and disjoint, and
//! contain exactly the bytes that a second parser selects, apart from small gaps between them.
#![no_main]

use std::ops::Range;

use libfuzzer_sys::fuzz_target;
use weft_proto::semantics::range::{Multipart, Selection, select};

fuzz_target!(|input: (u16, &[u8])| {
    let (length, value) = (u64::from(input.0), input.1);
    if value.iter().any(|&byte| byte < b' ' && byte != b'\t') {
        // No field has such a value (RFC 9110 §5.5).
        return;
    }
    let parts = match select(value, length) {
        Selection::Whole => return,
        Selection::Unsatisfiable => vec![],
        Selection::One(part) => vec![part],
        Selection::Several(parts) => {
            assert!(parts.len() > 1);
            parts
        }
    };
    let mut end = 0;
    for part in &parts {
        assert!(part.start < part.end && part.end <= length, "{parts:?} of {length}");
        assert!(part.start >= end, "{parts:?} overlap");
        end = part.end;
    }
    let expected = parse(value, length).expect("only a valid value selects parts");
    assert_eq!(parts.is_empty(), expected.is_empty());
    for range in &expected {
        let is_covered = |part: &Range<u64>| part.start <= range.start && range.end <= part.end;
        assert!(parts.iter().any(is_covered), "{range:?} is not in {parts:?}");
    }
    for part in &parts {
        assert!(expected.iter().any(|range| range.start == part.start), "{part:?} starts early");
        assert!(expected.iter().any(|range| range.end == part.end), "{part:?} ends late");
    }
    if parts.len() > 1 {
        let framing = Multipart::new(&parts, length, Some(b"text/plain"), "boundary");
        let heads: usize = (0..parts.len()).map(|index| framing.part_head(index).len()).sum();
        let content: u64 = parts.iter().map(|part| part.end - part.start).sum();
        let total = (heads + framing.end().len()) as u64 + content;
        assert_eq!(framing.content_length(), total);
    }
});

/// Returns the satisfiable ranges in the order of the request; `None` if the value is malformed
/// (RFC 9110 §14.1.1).
fn parse(value: &[u8], length: u64) -> Option<Vec<Range<u64>>> {
    let value = std::str::from_utf8(value).ok()?.trim_matches([' ', '\t']);
    let (unit, set) = value.split_once('=')?;
    if !unit.eq_ignore_ascii_case("bytes") {
        return None;
    }
    let number = |digits: &str| {
        let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        is_number.then(|| digits.parse::<u64>().unwrap_or(u64::MAX))
    };
    let mut ranges = Vec::new();
    for spec in set.split(',').map(|spec| spec.trim_matches([' ', '\t'])) {
        if spec.is_empty() {
            continue;
        }
        let (first, last) = spec.split_once('-')?;
        let range = match (first, last) {
            ("", suffix) => length.saturating_sub(number(suffix)?)..length,
            (first, "") => number(first)?..length,
            (first, last) => {
                let (first, last) = (number(first)?, number(last)?);
                if last < first {
                    return None;
                }
                first..last.saturating_add(1).min(length)
            }
        };
        if range.start < range.end {
            ranges.push(range);
        }
    }
    Some(ranges)
}
