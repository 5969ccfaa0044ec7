//! Parser for request heads and trailer sections (RFC 9112 §2 to §5). Pure.
//!
//! The result is a complete head, a request for more input, or an error with its reason. The parser
//! stores positions only, and resumes at the line at which the last call stopped: the cost of a
//! head that arrives byte by byte is linear in its length, not quadratic.
//!
//! ```
//! use weft_proto::http1::parse::{Limits, ParsedHead};
//!
//! let limits = Limits { request_line: 8_192, head: 16_384, fields: 100 };
//! let input = b"GET /?a=b HTTP/1.1\r\nHost: example.org\r\nAccept: */*\r\n\r\n";
//! let mut head = ParsedHead::new();
//! // The input may arrive in pieces.
//! assert_eq!(head.read(&input[..30], &limits)?, None);
//! assert_eq!(head.read(input, &limits)?, Some(input.len()));
//! assert_eq!((head.method.as_str(), head.target.of(input)), ("GET", &b"/?a=b"[..]));
//! assert_eq!(head.fields[1].name.of(input), b"Accept");
//! assert_eq!(head.fields[1].value.of(input), b"*/*");
//! # Ok::<(), weft_proto::Error>(())
//! ```

use http::{Method, Version};
use smallvec::SmallVec;

use crate::http1::scan;
use crate::name_sketch::NameSketch;
use crate::names::is_same_name;
use crate::{Error, ErrorKind, Result};

const fn malformed(reason: &'static str) -> Error {
    Error::malformed(reason)
}

/// Largest head that two-byte positions can address; no configured limit may exceed it.
pub const MAX_HEAD_BYTES: usize = u16::MAX as usize;

/// The positions of a field's name and value in the head.
///
/// Each position has two bytes, so a head has at most [`MAX_HEAD_BYTES`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Field {
    /// The name, as received.
    pub name: Span,
    /// The value without the white space around it.
    pub value: Span,
}

/// A range of bytes in the head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    start: u16,
    end: u16,
}

impl Span {
    /// Creates the range from `start` to `end`, which is at most [`MAX_HEAD_BYTES`].
    #[inline]
    pub fn new(start: usize, end: usize) -> Span {
        debug_assert!(start <= end && end <= MAX_HEAD_BYTES);
        Span { start: start as u16, end: end as u16 }
    }

    /// Returns the number of bytes.
    #[inline]
    pub fn len(self) -> usize {
        usize::from(self.end - self.start)
    }

    /// Returns true if there are no bytes.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// Returns the range from `start` to `end`, both relative to the start of this span.
    #[inline]
    pub fn slice(self, start: usize, end: usize) -> Span {
        Span::new(self.start as usize + start, self.start as usize + end)
    }

    /// Returns the bytes of this span in `head`.
    ///
    /// # Panics
    /// If the span exceeds `head`.
    #[inline]
    pub fn of(self, head: &[u8]) -> &[u8] {
        &head[self.start as usize..self.end as usize]
    }

    /// Returns the bytes of `head` from the start of this span to the end of `head`.
    #[inline]
    pub(super) fn with_rest(self, head: &[u8]) -> &[u8] {
        &head[self.start as usize..]
    }
}

/// The fields of a head, in order. Sixteen fit without an allocation.
pub type Fields = SmallVec<[Field; 16]>;

/// A request head, parsed incrementally. Its parts are positions in the input.
#[derive(Debug)]
pub struct ParsedHead {
    /// The method.
    pub method: Method,
    /// The position of the request target.
    pub target: Span,
    /// The HTTP version: 1.1 or 1.0.
    pub version: Version,
    /// The positions of the fields, in the order received.
    pub fields: Fields,
    pub(crate) name_sketch: NameSketch,
    pub(super) known: KnownFields,
    progress: Progress,
}

#[derive(Clone, Copy, Debug)]
enum Progress {
    /// At the start of the head.
    Start,
    /// In the request line: its start, and the number of input bytes scanned without finding its
    /// end.
    RequestLine(usize, usize),
    /// In a field line: the same two positions.
    FieldLine(usize, usize),
}

/// The fields that determine the framing, recorded during parsing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KnownFields {
    pub(super) host: Occurrence,
    pub(super) content_length: Occurrence,
    pub(super) transfer_encoding: Occurrence,
    pub(super) connection: Occurrence,
    pub(super) expect: Occurrence,
}

/// The occurrences of a field: none, one with its value, or several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Occurrence {
    #[default]
    Absent,
    Once(Span),
    Repeated,
}

impl Occurrence {
    fn record(&mut self, value: Span) {
        *self = match self {
            Occurrence::Absent => Occurrence::Once(value),
            _ => Occurrence::Repeated,
        }
    }
}

/// Size limits of a head or a trailer section.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum length of the request line in bytes, without its CRLF.
    pub request_line: usize,
    /// Maximum length of the head or trailer section in bytes: at most [`MAX_HEAD_BYTES`].
    pub head: usize,
    /// Maximum number of fields.
    pub fields: usize,
}

/// Longest accepted method in bytes; the registered methods have fewer than 20.
const MAX_METHOD_BYTES: usize = 32;

/// Maximum length of the empty lines before a request line, which are ignored: one is an old
/// client's after a body (RFC 9112 §2.2), and more are as harmless. Four lines.
const MAX_EMPTY_LINES_BYTES: usize = 8;

/// Returns the length of the empty lines at the start of `input`.
#[cold]
fn empty_lines(input: &[u8]) -> usize {
    let input = &input[..input.len().min(MAX_EMPTY_LINES_BYTES)];
    2 * input.chunks_exact(2).take_while(|line| line == b"\r\n").count()
}

impl Default for ParsedHead {
    fn default() -> ParsedHead {
        ParsedHead::new()
    }
}

impl ParsedHead {
    /// Creates a parser at the start of a head.
    pub fn new() -> ParsedHead {
        ParsedHead {
            method: Method::GET,
            target: Span::default(),
            version: Version::HTTP_11,
            fields: Fields::new(),
            name_sketch: NameSketch::default(),
            known: KnownFields::default(),
            progress: Progress::Start,
        }
    }

    /// Resets the parser for the next head and keeps the allocation of the field list.
    #[inline]
    pub fn clear(&mut self) {
        self.fields.clear();
        self.name_sketch = NameSketch::default();
        self.known = KnownFields::default();
        self.progress = Progress::Start;
    }

    /// Parses `input`, which starts with the head and may have grown since the last call. Returns
    /// the length of the head if it is complete, and `None` if more input is needed.
    ///
    /// # Errors
    /// [`Malformed`](ErrorKind::Malformed) if the input is not a request head;
    /// [`TargetTooLong`](ErrorKind::TargetTooLong) or [`HeadTooLarge`](ErrorKind::HeadTooLarge) if
    /// it exceeds the limits; [`VersionUnsupported`](ErrorKind::VersionUnsupported) for a major
    /// version other than 1; [`NotImplemented`](ErrorKind::NotImplemented) for a method of more
    /// than 32 bytes. The parser must not be used after an error until it is
    /// [cleared](ParsedHead::clear).
    pub fn read(&mut self, input: &[u8], limits: &Limits) -> Result<Option<usize>> {
        match self.progress {
            Progress::Start => {}
            Progress::RequestLine(line, scanned) | Progress::FieldLine(line, scanned) => {
                // An incomplete line is parsed again only if the new input can contain its end.
                let has_line_end =
                    || input[scanned - 1..].iter().any(|b| matches!(b, b'\r' | b'\n'));
                if scanned > line && !has_line_end() {
                    return self.need_more(line, input, limits);
                }
            }
        }
        let mut line = match self.progress {
            Progress::FieldLine(line, _) => line,
            Progress::Start | Progress::RequestLine(..) => {
                let start = match input {
                    [b'\r', ..] => empty_lines(input),
                    _ => 0,
                };
                if input[start..] == *b"\r" && start < MAX_EMPTY_LINES_BYTES {
                    return self.need_more(start, input, limits);
                }
                match self.request_line(input, start, limits)? {
                    Some(next) => next,
                    None => return self.need_more(start, input, limits),
                }
            }
        };
        let mut free = limits.fields.saturating_sub(self.fields.len());
        loop {
            match field_line(input, line, limits.head)? {
                FieldLine::Field(field, name, next) => {
                    if free == 0 {
                        return Err(Error::new(ErrorKind::HeadTooLarge, "too many fields"));
                    }
                    free -= 1;
                    self.known.record(name, field.value);
                    self.name_sketch.insert(name);
                    self.fields.push(field);
                    line = next;
                }
                FieldLine::End(length) if length <= limits.head => return Ok(Some(length)),
                FieldLine::End(_) => return Err(head_too_large()),
                FieldLine::Partial => {
                    self.progress = Progress::FieldLine(line, 0);
                    return self.need_more(line, input, limits);
                }
            }
        }
    }

    #[cold]
    fn need_more(&mut self, line: usize, input: &[u8], limits: &Limits) -> Result<Option<usize>> {
        self.progress = match self.progress {
            Progress::FieldLine(..) => Progress::FieldLine(line, input.len()),
            _ if input.len() - line > limits.request_line + 1 => return Err(target_too_long()),
            _ => Progress::RequestLine(line, input.len()),
        };
        if input.len() >= limits.head { Err(head_too_large()) } else { Ok(None) }
    }

    /// Parses `method SP target SP HTTP/x.y CRLF` (RFC 9112 §3); returns the start of the next
    /// line.
    #[inline(always)]
    fn request_line(
        &mut self,
        input: &[u8],
        start: usize,
        limits: &Limits,
    ) -> Result<Option<usize>> {
        let line = &input[start..];
        let target = match line {
            [b'G', b'E', b'T', b' ', ..] => {
                if self.method != Method::GET {
                    self.method = Method::GET;
                }
                b"GET ".len()
            }
            _ => match other_method(line)? {
                Some((method, length)) => {
                    self.method = method;
                    length + 1
                }
                None => return Ok(None),
            },
        };
        let target_end = target + scan::target(&line[target..]);
        let version = if line[target_end..].starts_with(VERSION) && target_end > target {
            Version::HTTP_11
        } else {
            match other_version(line, target, target_end, limits)? {
                Some(version) => version,
                None => return Ok(None),
            }
        };
        let next = target_end + VERSION.len();
        if next - b"\r\n".len() > limits.request_line {
            return Err(target_too_long());
        }
        self.target = Span::new(start + target, start + target_end);
        self.version = version;
        Ok(Some(start + next))
    }
}

impl KnownFields {
    /// Records `value` if `name` is one of these fields.
    #[inline]
    pub(super) fn record(&mut self, name: &[u8], value: Span) {
        let slot = match name.len() {
            4 if is_same_name(name, b"host") => &mut self.host,
            6 if is_same_name(name, b"expect") => &mut self.expect,
            10 if is_same_name(name, b"connection") => &mut self.connection,
            14 if is_same_name(name, b"content-length") => &mut self.content_length,
            17 if is_same_name(name, b"transfer-encoding") => &mut self.transfer_encoding,
            _ => return,
        };
        slot.record(value);
    }
}

/// Parses a method and the space behind it. Returns the method and its length.
fn other_method(line: &[u8]) -> Result<Option<(Method, usize)>> {
    let length = scan::token(line);
    if length > MAX_METHOD_BYTES {
        return Err(Error::new(ErrorKind::NotImplemented, "the method is too long"));
    }
    let no_method = || malformed("the request does not start with a method");
    match line.get(length) {
        None => Ok(None),
        // Fails if it is empty.
        Some(b' ') => match Method::from_bytes(&line[..length]) {
            Ok(method) => Ok(Some((method, length))),
            Err(_) => Err(no_method()),
        },
        Some(_) => Err(no_method()),
    }
}

/// The end of nearly all request lines.
const VERSION: &[u8; 11] = b" HTTP/1.1\r\n";

/// Parses `SP HTTP/x.y CRLF` behind a target. A higher minor version is treated as 1.1 (RFC 9110
/// §2.5).
fn other_version(
    line: &[u8],
    target: usize,
    target_end: usize,
    limits: &Limits,
) -> Result<Option<Version>> {
    if target_end > limits.request_line {
        return Err(target_too_long());
    }
    let line = &line[target_end..line.len().min(target_end + VERSION.len())];
    match line {
        [] => return Ok(None),
        [b' ', ..] if target_end > target => {}
        [b, ..] => return Err(malformed(target_error(*b))),
    }
    let fits = line.iter().zip(VERSION).all(|(&b, &pattern)| match pattern {
        b'1' => b.is_ascii_digit(),
        pattern => b == pattern,
    });
    match *line {
        _ if !fits => Err(malformed("the request line does not end in HTTP/1.1 and CRLF")),
        [.., b'1', b'.', b'0', b'\r', b'\n'] => Ok(Some(Version::HTTP_10)),
        [.., b'1', b'.', _, b'\r', b'\n'] => Ok(Some(Version::HTTP_11)),
        [.., b'\r', b'\n'] => Err(Error::new(
            ErrorKind::VersionUnsupported,
            "unsupported HTTP version (expected HTTP/1.0 or HTTP/1.1)",
        )),
        _ => Ok(None),
    }
}

#[cold]
fn target_error(b: u8) -> &'static str {
    match b {
        b' ' => "the request target is empty",
        b'\r' | b'\n' => "the request line has no version",
        _ => "an invalid byte in the request target",
    }
}

/// The result of parsing one line of a field section.
pub(super) enum FieldLine<'a> {
    /// A field, the bytes of its name, and the start of the next line.
    Field(Field, &'a [u8], usize),
    /// The empty line that ends the section, and the position after it.
    End(usize),
    /// The line is incomplete.
    Partial,
}

/// Parses `name ":" OWS value OWS CRLF` (RFC 9112 §5), or the empty line. The line must end
/// within the first `limit` bytes of the input.
#[inline(always)]
pub(super) fn field_line(input: &[u8], start: usize, limit: usize) -> Result<FieldLine<'_>> {
    let line = &input[start..];
    match line {
        [b'\r', b'\n', ..] => return Ok(FieldLine::End(start + 2)),
        [] | [b'\r'] => return Ok(FieldLine::Partial),
        _ => {}
    }
    let (name, text) = match line.split_at(scan::plain_name(line)) {
        (name @ [_, ..], [b':', text @ ..]) => (name, text),
        _ => match other_name(line)? {
            Some(name_and_text) => name_and_text,
            None => return Ok(FieldLine::Partial),
        },
    };
    let length = scan::field_value(text);
    match text[length..] {
        [b'\r', b'\n', ..] => {}
        [] | [b'\r'] => return Ok(FieldLine::Partial),
        [b, ..] => return Err(malformed(value_error(b))),
    }
    let name_end = start + name.len();
    let text_start = name_end + 1;
    let next = text_start + length + 2;
    if next > limit {
        return Err(head_too_large());
    }
    let value = match text[..length] {
        // Fast path for the usual form: one space before the value and none after it.
        [b' ', first, .., last] if first > b' ' && last > b' ' => {
            Span::new(text_start + 1, text_start + length)
        }
        ref text => trim(text, text_start),
    };
    let field = Field { name: Span::new(start, name_end), value };
    Ok(FieldLine::Field(field, name, next))
}

/// Splits a line after a name with other bytes than letters, digits and hyphens, and the colon
/// behind it.
#[cold]
fn other_name(line: &[u8]) -> Result<Option<(&[u8], &[u8])>> {
    match line.split_at(scan::token(line)) {
        (name @ [_, ..], [b':', text @ ..]) => Ok(Some((name, text))),
        (_, []) => Ok(None),
        (name, [b, ..]) => Err(malformed(name_error(*b, name.is_empty()))),
    }
}

/// Returns the span of a field value without the white space around it (OWS, RFC 9110 §5.5).
fn trim(text: &[u8], start: usize) -> Span {
    let is_space = |&b: &u8| b == b' ' || b == b'\t';
    let leading = text.iter().take_while(|&b| is_space(b)).count();
    let trailing = text[leading..].iter().rev().take_while(|&b| is_space(b)).count();
    Span::new(start + leading, start + text.len() - trailing)
}

#[cold]
fn name_error(b: u8, at_start: bool) -> &'static str {
    match b {
        b' ' | b'\t' if at_start => "a folded field line",
        b' ' | b'\t' => "a space before the colon of a field",
        b':' => "a field without a name",
        b'\n' => "a line ends in a bare LF",
        b'\r' if at_start => "a bare CR",
        b'\r' => "a field line without a colon",
        _ => "an invalid byte in a field name",
    }
}

#[cold]
fn value_error(b: u8) -> &'static str {
    match b {
        b'\r' => "a bare CR in a field value",
        b'\n' => "a line ends in a bare LF",
        _ => "a control character in a field value",
    }
}

#[cold]
fn target_too_long() -> Error {
    Error::new(ErrorKind::TargetTooLong, "the request line is too long")
}

#[cold]
pub(super) fn head_too_large() -> Error {
    Error::new(ErrorKind::HeadTooLarge, "the head is too large")
}

/// Parses a trailer section up to its empty line (RFC 9112 §7.1.2). Returns the fields and the
/// length of the section, or `None` if more input is needed.
///
/// ```
/// use weft_proto::http1::parse::{Limits, trailers};
///
/// let limits = Limits { request_line: 0, head: 16_384, fields: 100 };
/// let input = b"Expires: 0\r\n\r\n";
/// let (fields, length) = trailers(input, &limits)?.expect("the section is complete");
/// assert_eq!((fields[0].name.of(input), length), (&b"Expires"[..], input.len()));
/// # Ok::<(), weft_proto::Error>(())
/// ```
///
/// # Errors
/// [`Malformed`](ErrorKind::Malformed) for invalid lines, and for a section that exceeds the
/// limits.
pub fn trailers(input: &[u8], limits: &Limits) -> Result<Option<(Fields, usize)>> {
    let mut section = FieldSection::default();
    let length = section.read(input, limits)?;
    Ok(length.map(|length| (section.fields, length)))
}

/// A section of field lines, parsed incrementally: [`trailers`], or the head of a part of a
/// multipart body (RFC 2046 §5.1). Like [`ParsedHead`], it resumes at the line at which the last
/// call stopped.
#[derive(Clone, Debug, Default)]
pub struct FieldSection {
    /// The fields of the complete lines.
    pub fields: Fields,
    next_line: usize,
}

impl FieldSection {
    /// Parses the section at the start of `input`. Returns its length, or `None` if more input is
    /// needed; the next call gets the same input with more bytes at its end.
    ///
    /// # Errors
    /// The errors of [`trailers`].
    pub fn read(&mut self, input: &[u8], limits: &Limits) -> Result<Option<usize>> {
        loop {
            match field_line(input, self.next_line, limits.head) {
                Ok(FieldLine::Field(field, _, next)) if self.fields.len() < limits.fields => {
                    self.fields.push(field);
                    self.next_line = next;
                }
                Ok(FieldLine::End(length)) if length <= limits.head => return Ok(Some(length)),
                Ok(FieldLine::Partial) if input.len() < limits.head => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Malformed => return Err(error),
                _ => return Err(malformed("the trailer section is too large")),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_invalid_request_lines() {
        let limits = Limits { request_line: 40, head: 100, fields: 1 };
        for (line, expected) in [
            (" / HTTP/1.1", "the request does not start with a method"),
            ("G@T / HTTP/1.1", "the request does not start with a method"),
            ("GET  HTTP/1.1", "the request target is empty"),
            ("PUT  HTTP/1.1", "the request target is empty"),
            ("GET /", "the request line has no version"),
            ("GET /#a HTTP/1.1", "an invalid byte in the request target"),
            ("GET / HTTP/1.1 ", "the request line does not end in HTTP/1.1 and CRLF"),
            ("GET /23456789-123456789-1234567 HTTP/1.1", ""),
            ("GET /23456789-123456789-12345678 HTTP/1.1", "the request line is too long"),
            ("GET /23456789-123456789-12345678 HTTP/1.0", "the request line is too long"),
            ("GET /23456789-123456789-123456789-1234567#", "the request line is too long"),
        ] {
            let head = format!("{line}\r\n\r\n");
            let result = ParsedHead::new().read(head.as_bytes(), &limits);
            let reason = result.err().map_or_else(String::new, |error| error.to_string());
            assert_eq!(reason, expected, "{line}");
        }
    }
}
