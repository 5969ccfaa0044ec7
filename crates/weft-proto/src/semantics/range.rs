//! Range requests (RFC 9110 §14). Pure.
//!
//! ```
//! use weft_proto::semantics::range::{Selection, content_range, select};
//!
//! let Selection::One(part) = select(b"bytes=-100", 1_000) else { panic!("expected one part") };
//! assert_eq!(part, 900..1_000);
//! assert_eq!(content_range(&part, 1_000), "bytes 900-999/1000");
//! assert_eq!(select(b"bytes=1000-", 1_000), Selection::Unsatisfiable);
//! ```

use std::ops::Range;

use crate::list::list_members;

/// The parts that a Range field selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// 200 with the whole file: the field is ignored.
    Whole,
    /// 206 with one part.
    One(Range<u64>),
    /// 206 with several parts in a [`Multipart`], in ascending order and with gaps of at least 80
    /// bytes.
    Several(Vec<Range<u64>>),
    /// 416: no range is satisfiable.
    Unsatisfiable,
}

/// Maximum number of ranges in a request. A request with more is treated as an attack and its Range
/// field ignored (RFC 9110 §17.15).
const MAX_SPECS: usize = 50;

/// Maximum size of the field, in bytes: 50 ranges of numbers with 40 digits. A larger field is
/// ignored too.
const MAX_BYTES: usize = 4_096;

/// Maximum number of parts in a response.
const MAX_PARTS: usize = 16;

/// Approximate cost of another part in bytes. Sending a smaller gap is cheaper (RFC 9110
/// §15.3.7.2).
const PART_OVERHEAD: u64 = 80;

/// Selects the parts of a file of that length by the value of the only Range field.
///
/// A value that is malformed, of an unknown unit or abusive is ignored, as RFC 9110 §14.2 permits:
/// the whole file is always a correct response. A range of an empty file is ignored too: some
/// caches send a range in each request (the `slice` of nginx, Azure's CDN), and fail with 416.
pub fn select(value: &[u8], length: u64) -> Selection {
    if length == 0 {
        return Selection::Whole;
    }
    let Some(ranges) = parse_satisfiable(value, length) else { return Selection::Whole };
    if ranges.is_empty() {
        return Selection::Unsatisfiable;
    }
    // Ranges with more bytes in total than the file request some bytes twice.
    let total = ranges.iter().fold(0u64, |sum, range| sum.saturating_add(range.end - range.start));
    if total > length {
        return Selection::Whole;
    }
    let parts = merge(ranges);
    match &parts[..] {
        [part] => Selection::One(part.clone()),
        [..] if parts.len() > MAX_PARTS => Selection::Whole,
        [..] => Selection::Several(parts),
    }
}

/// Parses the satisfiable ranges, in the order of the request; `None` if the field is ignored.
fn parse_satisfiable(value: &[u8], length: u64) -> Option<Vec<Range<u64>>> {
    if value.len() > MAX_BYTES {
        return None;
    }
    let (unit, set) = value.split_at_checked(b"bytes=".len())?;
    if !unit.eq_ignore_ascii_case(b"bytes=") {
        return None;
    }
    // RFC 9110 §14.1.1: the set has at least one member.
    list_members(set).next()?;
    let mut ranges = Vec::new();
    for (index, spec) in list_members(set).enumerate() {
        if index == MAX_SPECS {
            return None;
        }
        ranges.extend(parse_spec(spec, length)?);
    }
    Some(ranges)
}

/// Parses a range-spec (RFC 9110 §14.1.2); `None` if it is malformed, `Some(None)` if it is
/// unsatisfiable.
fn parse_spec(spec: &[u8], length: u64) -> Option<Option<Range<u64>>> {
    let dash = spec.iter().position(|&b| b == b'-')?;
    let (first, last) = (&spec[..dash], &spec[dash + 1..]);
    if first.is_empty() {
        let suffix = parse_number(last)?;
        return Some((suffix > 0).then(|| length.saturating_sub(suffix)..length));
    }
    let first = parse_number(first)?;
    let last = if last.is_empty() { u64::MAX } else { parse_number(last)? };
    if last < first {
        return None;
    }
    Some((first < length).then(|| first..length.min(last.saturating_add(1))))
}

/// Parses a number that consists of digits only. A number of more than 64 bits is beyond the end of
/// any file, so it saturates.
fn parse_number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |number, b| {
        let digit = b.is_ascii_digit().then(|| u64::from(b - b'0'))?;
        Some(number.saturating_mul(10).saturating_add(digit))
    })
}

/// Merges ranges that overlap or are separated by a small gap (RFC 9110 §15.3.7.2).
///
/// The parts are in ascending order regardless of the request's order, so that the file is read
/// sequentially.
fn merge(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut parts: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match parts.last_mut() {
            Some(last) if range.start.saturating_sub(last.end) < PART_OVERHEAD => {
                last.end = last.end.max(range.end);
            }
            _ => parts.push(range),
        }
    }
    parts
}

/// Formats the Content-Range of a nonempty part: `bytes 0-4/10` (RFC 9110 §14.4).
pub fn content_range(range: &Range<u64>, length: u64) -> String {
    format!("bytes {}-{}/{length}", range.start, range.end - 1)
}

/// Formats the Content-Range of a 416 response: `bytes */10` (RFC 9110 §15.5.17).
pub fn unsatisfied_content_range(length: u64) -> String {
    format!("bytes */{length}")
}

/// Framing of a `multipart/byteranges` body (RFC 9110 §14.6): delimiters and heads of the parts.
///
/// The body consists of the head of each part followed by the part, then the end.
///
/// ```
/// use weft_proto::semantics::range::Multipart;
///
/// let file = b"0123456789";
/// let parts = [0..2, 8..10];
/// let framing = Multipart::new(&parts, 10, Some(b"text/plain"), "boundary");
/// let mut body = Vec::new();
/// for (index, part) in parts.iter().enumerate() {
///     body.extend_from_slice(framing.part_head(index));
///     body.extend_from_slice(&file[part.start as usize..part.end as usize]);
/// }
/// body.extend_from_slice(framing.end());
/// assert_eq!(body.len() as u64, framing.content_length());
/// ```
#[derive(Clone, Debug)]
pub struct Multipart {
    heads: Vec<Vec<u8>>,
    end: Vec<u8>,
    content_length: u64,
    content_type: String,
}

impl Multipart {
    /// Creates the framing for parts of a file of that length and media type.
    ///
    /// The boundary is a token of at most 70 bytes (RFC 2046 §5.1.1), so it needs no quotes. It
    /// must not occur in the file, so it should be random.
    pub fn new(
        ranges: &[Range<u64>],
        length: u64,
        content_type: Option<&[u8]>,
        boundary: &str,
    ) -> Multipart {
        let mut heads: Vec<Vec<u8>> = Vec::with_capacity(ranges.len());
        for range in ranges {
            // The line end before a boundary is part of the delimiter (RFC 2046 §5.1.1).
            let line_end = if heads.is_empty() { "" } else { "\r\n" };
            let mut head = format!("{line_end}--{boundary}\r\n").into_bytes();
            if let Some(content_type) = content_type {
                head.extend_from_slice(b"Content-Type: ");
                head.extend_from_slice(content_type);
                head.extend_from_slice(b"\r\n");
            }
            let content_range = content_range(range, length);
            head.extend_from_slice(format!("Content-Range: {content_range}\r\n\r\n").as_bytes());
            heads.push(head);
        }
        let end = format!("\r\n--{boundary}--\r\n").into_bytes();
        let framing = heads.iter().map(Vec::len).sum::<usize>() + end.len();
        let parts = ranges.iter().map(|range| range.end - range.start).sum::<u64>();
        let content_type = format!("multipart/byteranges; boundary={boundary}");
        Multipart { heads, end, content_length: framing as u64 + parts, content_type }
    }

    /// Returns the bytes before the part with this index: the delimiter and the head of the part.
    ///
    /// # Panics
    /// If there is no such part.
    pub fn part_head(&self, index: usize) -> &[u8] {
        &self.heads[index]
    }

    /// Returns the bytes after the last part: the closing delimiter.
    pub fn end(&self) -> &[u8] {
        &self.end
    }

    /// Returns the length of the whole body.
    pub fn content_length(&self) -> u64 {
        self.content_length
    }

    /// Returns the media type of the whole body, with the boundary.
    pub fn content_type(&self) -> String {
        self.content_type.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Selection::*;

    #[test]
    fn selects_single_ranges() {
        for (value, length, selection) in [
            ("bytes=0-4", 10, One(0..5)),
            ("bytes=0-0", 10, One(0..1)),
            ("bytes=0-", 10, One(0..10)),
            ("bytes=9-", 10, One(9..10)),
            ("bytes=9-9", 10, One(9..10)),
            ("bytes=0-9", 10, One(0..10)),
            ("bytes=000-004", 10, One(0..5)),
            ("bytes=-5", 10, One(5..10)),
            ("bytes=-1", 10, One(9..10)),
            ("bytes=-10", 10, One(0..10)),
            ("BYTES=0-4", 10, One(0..5)),
            ("bYtEs=-5", 10, One(5..10)),
            // A last position beyond the end of the file is cut.
            ("bytes=0-10", 10, One(0..10)),
            ("bytes=5-99", 10, One(5..10)),
            ("bytes=-11", 10, One(0..10)),
            ("bytes=5-18446744073709551615", 10, One(5..10)),
            ("bytes=5-18446744073709551616", 10, One(5..10)),
            ("bytes=5-99999999999999999999999999", 10, One(5..10)),
            ("bytes=-99999999999999999999999999", 10, One(0..10)),
            ("bytes=0-", u64::MAX, One(0..u64::MAX)),
            ("bytes=-1", u64::MAX, One(u64::MAX - 1..u64::MAX)),
            // A first position beyond the end selects nothing, nor does a suffix of length 0.
            ("bytes=10-", 10, Unsatisfiable),
            ("bytes=10-10", 10, Unsatisfiable),
            ("bytes=11-20", 10, Unsatisfiable),
            ("bytes=-0", 10, Unsatisfiable),
            ("bytes=-000", 10, Unsatisfiable),
            ("bytes=18446744073709551615-", u64::MAX, Unsatisfiable),
            ("bytes=18446744073709551616-", 10, Unsatisfiable),
            ("bytes=99999999999999999999-99999999999999999998", 10, Unsatisfiable),
            // A range of an empty file is ignored.
            ("bytes=0-", 0, Whole),
            ("bytes=0-0", 0, Whole),
            ("bytes=0-1048575", 0, Whole),
            ("bytes=5-", 0, Whole),
            ("bytes=-0", 0, Whole),
            ("bytes=-5", 0, Whole),
            ("bytes=0-0,-5", 0, Whole),
            ("bytes=1-", 1, Unsatisfiable),
        ] {
            assert_eq!(select(value.as_bytes(), length), selection, "{value} of {length}");
        }
    }

    #[test]
    fn ignores_malformed_ranges() {
        for value in [
            "",
            "bytes",
            "bytes=",
            "bytes= ",
            "bytes=,",
            "bytes= , ,",
            "bytes=-",
            "bytes=5",
            "bytes=5-2",
            "bytes=99999999999999999999-5",
            "bytes=--5",
            "bytes=5--6",
            "bytes=-5-",
            "bytes=0-4-",
            "bytes=+0-4",
            "bytes=0-+4",
            "bytes=0x0-4",
            "bytes=a-b",
            "bytes=0-b",
            "bytes=0.5-4",
            "bytes=0 -4",
            "bytes=0- 4",
            "bytes=\"0-4\"",
            "bytes=0-4 5-6",
            "bytes=0-4;5-6",
            "bytes=0-4,x",
            "bytes=x,0-4",
            "bytes=0-4,5-2",
            "bytes=20-,5-2",
            "bytes:0-4",
            "bytes =0-4",
            " bytes=0-4",
            "byte=0-4",
            "bytess=0-4",
            "items=0-4",
            "0-4",
            "bytes 0-4/10",
            "bytes=0\u{663}-4",
        ] {
            assert_eq!(select(value.as_bytes(), 10), Whole, "{value:?}");
        }
        assert_eq!(select(b"bytes=\xff-4", 10), Whole);
    }

    #[test]
    fn selects_and_merges_several_ranges() {
        for (value, length, selection) in [
            // The examples of RFC 9110 §14.1.2.
            ("bytes=0-0,-1", 10_000, Several(vec![0..1, 9_999..10_000])),
            (
                "bytes= 0-999, 4500-5499, -1000",
                10_000,
                Several(vec![0..1_000, 4_500..5_500, 9_000..10_000]),
            ),
            ("bytes=500-600,601-999", 10_000, One(500..1_000)),
            ("bytes=500-700,601-999", 10_000, One(500..1_000)),
            // White space and empty elements (§5.6.1.2).
            ("bytes=0-4 , 500-504", 1_000, Several(vec![0..5, 500..505])),
            ("bytes=0-4\t,\t500-504", 1_000, Several(vec![0..5, 500..505])),
            ("bytes=,0-4,,500-504,", 1_000, Several(vec![0..5, 500..505])),
            ("bytes=0-4,", 10, One(0..5)),
            (" , 0-4", 10, Whole),
            // Unsatisfiable ranges are ignored beside satisfiable ones.
            ("bytes=0-4,10-", 10, One(0..5)),
            ("bytes=10-,0-4", 10, One(0..5)),
            ("bytes=-0,0-4", 10, One(0..5)),
            ("bytes=99999999999999999999-,-5", 10, One(5..10)),
            ("bytes=0-4,500-504,2000-", 1_000, Several(vec![0..5, 500..505])),
            ("bytes=10-,11-,-0", 10, Unsatisfiable),
            // A gap of 79 bytes is sent, one of 80 bytes is not.
            ("bytes=0-4,84-90", 1_000, One(0..91)),
            ("bytes=0-4,85-90", 1_000, Several(vec![0..5, 85..91])),
            ("bytes=0-0,-1", 80, One(0..80)),
            ("bytes=0-0,-1", 82, Several(vec![0..1, 81..82])),
            // Order, overlaps.
            ("bytes=500-504,0-4", 1_000, Several(vec![0..5, 500..505])),
            ("bytes=200-299,0-99,50-149", 1_000, One(0..300)),
            ("bytes=0-299,100-149", 1_000, One(0..300)),
            ("bytes=0-99,0-99", 1_000, One(0..100)),
            ("bytes=700-,0-99,650-750", 1_000, Several(vec![0..100, 650..1_000])),
            ("bytes=0-4,5-9", 10, One(0..10)),
            // More bytes in total than the file has.
            ("bytes=0-,0-", 10, Whole),
            ("bytes=0-,-1", 10, Whole),
            ("bytes=0-6,3-9", 10, Whole),
            ("bytes=0-,0-", u64::MAX, One(0..u64::MAX)),
        ] {
            assert_eq!(select(value.as_bytes(), length), selection, "{value} of {length}");
        }
    }

    #[test]
    fn limits_ranges_and_merged_parts() {
        // Number of ranges, their distance, and the expected number of parts (0: the whole file).
        for (count, distance, parts) in
            [(2, 100, 2), (16, 100, 16), (17, 100, 0), (50, 100, 0), (50, 10, 1), (51, 10, 0)]
        {
            let specs: Vec<_> = (0..count).map(|i| format!("{0}-{0}", i * distance)).collect();
            let value = format!("bytes={}", specs.join(","));
            let got = match select(value.as_bytes(), 1_000_000) {
                One(_) => 1,
                Several(parts) => parts.len(),
                Whole => 0,
                Unsatisfiable => panic!("{value}"),
            };
            assert_eq!(got, parts, "{count} ranges {distance} bytes apart");
        }
        // Unsatisfiable ranges count, empty elements do not.
        assert_eq!(select(format!("bytes=0-4{}", ",99-".repeat(49)).as_bytes(), 10), One(0..5));
        assert_eq!(select(format!("bytes=0-4{}", ",99-".repeat(50)).as_bytes(), 10), Whole);
        assert_eq!(select(format!("bytes=0-4{}", ",".repeat(99)).as_bytes(), 10), One(0..5));
        // A field of at most 4,096 bytes is read.
        assert_eq!(select(format!("bytes=0-4{}", ",".repeat(4_087)).as_bytes(), 10), One(0..5));
        assert_eq!(select(format!("bytes=0-4{}", ",".repeat(4_088)).as_bytes(), 10), Whole);
    }

    #[test]
    fn formats_content_ranges() {
        for (range, length, text) in [
            (0..5, 10, "bytes 0-4/10"),
            (9..10, 10, "bytes 9-9/10"),
            (0..u64::MAX, u64::MAX, "bytes 0-18446744073709551614/18446744073709551615"),
        ] {
            assert_eq!(content_range(&range, length), text);
        }
        assert_eq!(unsatisfied_content_range(10), "bytes */10");
        assert_eq!(unsatisfied_content_range(0), "bytes */0");
    }

    #[test]
    fn frames_multipart_bodies() {
        let file: Vec<u8> = (0..200).map(|i| b'a' + i % 26).collect();
        for (ranges, content_type, expected) in [
            (
                vec![0..3, 100..104],
                Some(&b"text/plain"[..]),
                "--B\r\nContent-Type: text/plain\r\nContent-Range: bytes 0-2/200\r\n\r\nabc\
                 \r\n--B\r\nContent-Type: text/plain\r\nContent-Range: bytes 100-103/200\r\n\r\n\
                 wxyz\r\n--B--\r\n",
            ),
            (
                vec![0..1, 90..91, 199..200],
                None,
                "--B\r\nContent-Range: bytes 0-0/200\r\n\r\na\
                 \r\n--B\r\nContent-Range: bytes 90-90/200\r\n\r\nm\
                 \r\n--B\r\nContent-Range: bytes 199-199/200\r\n\r\nr\r\n--B--\r\n",
            ),
        ] {
            let multipart = Multipart::new(&ranges, 200, content_type, "B");
            let mut body = Vec::new();
            for (index, range) in ranges.iter().enumerate() {
                body.extend_from_slice(multipart.part_head(index));
                body.extend_from_slice(&file[range.start as usize..range.end as usize]);
            }
            body.extend_from_slice(multipart.end());
            assert_eq!(String::from_utf8(body).unwrap(), expected);
            assert_eq!(multipart.content_length(), expected.len() as u64);
            assert_eq!(multipart.content_type(), "multipart/byteranges; boundary=B");
        }
    }
}
