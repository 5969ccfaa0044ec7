//! Bytes → request head. Pure.
//!
//! The parser answers done, not yet, or an error with its reason. It keeps only
//! positions, and goes on at the line where the last call ended: a head that comes
//! byte by byte costs what its length costs, not its square.

use http::{Method, Version};
use smallvec::SmallVec;

use super::scan;
use crate::error::{Error, ErrorKind, Result};

/// Where one field stands in the head.
///
/// Two bytes each: [`Settings::max_head_bytes`](crate::Settings) is at most 65,535.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) name: Span,
    pub(crate) value: Span,
}

/// A part of the head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    start: u16,
    end: u16,
}

impl Span {
    pub(crate) fn new(start: usize, end: usize) -> Span {
        debug_assert!(start <= end && end <= u16::MAX as usize);
        Span { start: start as u16, end: end as u16 }
    }

    /// The bytes from `start` to `end` of this part.
    pub(crate) fn part(self, start: usize, end: usize) -> Span {
        Span::new(self.start as usize + start, self.start as usize + end)
    }

    pub(crate) fn of(self, head: &[u8]) -> &[u8] {
        &head[self.start as usize..self.end as usize]
    }
}

/// The fields of a head, in order. Sixteen fit without an allocation.
pub(crate) type Fields = SmallVec<[Field; 16]>;

/// A whole head: positions in the `length` bytes that it takes.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) length: usize,
    pub(crate) method: Method,
    pub(crate) target: Span,
    pub(crate) version: Version,
    pub(crate) fields: Fields,
    pub(crate) known: Known,
}

/// The fields that the engine itself needs, noted as they pass.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Known {
    pub(crate) host: Occurrence,
    pub(crate) content_length: Occurrence,
    pub(crate) transfer_encoding: Occurrence,
    pub(crate) connection: Occurrence,
    pub(crate) expect: Occurrence,
}

/// How often a field occurs, and where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Occurrence {
    #[default]
    Never,
    Once(Span),
    Repeated,
}

impl Occurrence {
    fn note(&mut self, value: Span) {
        *self = match self {
            Occurrence::Never => Occurrence::Once(value),
            _ => Occurrence::Repeated,
        }
    }
}

/// How large a head may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) request_line: usize,
    pub(crate) head: usize,
    pub(crate) fields: usize,
}

/// Reads one head, in as many calls as it takes.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    /// The start of the first line that was not whole yet.
    line: usize,
    /// The line does not end before this place.
    seen: usize,
    request_line: Option<RequestLine>,
    fields: Fields,
    known: Known,
}

#[derive(Debug)]
struct RequestLine {
    method: Method,
    target: Span,
    version: Version,
}

/// The longest method that is looked at; the registered ones stay below 20.
const MAX_METHOD: usize = 32;

impl Parser {
    /// Parses `input`, which starts with the head and has grown since the last
    /// call. `None` asks for more of it.
    pub(crate) fn parse(&mut self, input: &[u8], limits: &Limits) -> Result<Option<Head>> {
        // A line that was not whole is looked at again only when it may end.
        if self.seen > self.line {
            let news = &input[self.seen - 1..];
            if !news.iter().any(|b| matches!(b, b'\r' | b'\n')) {
                return self.wait(input, limits);
            }
        }
        if self.request_line.is_none() {
            // RFC 9112 §2.2: one empty line before is forgiven.
            match input {
                [b'\r'] => return self.wait(input, limits),
                [b'\r', b'\n', ..] => self.line = 2,
                _ => {}
            }
            match request_line(input, self.line, limits)? {
                Some((line, next)) => {
                    self.request_line = Some(line);
                    self.line = next;
                }
                None => return self.wait(input, limits),
            }
        }
        loop {
            match field_line(input, self.line)? {
                Line::Field(field, next) => {
                    if next > limits.head {
                        return Err(head_too_large());
                    }
                    if self.fields.len() == limits.fields {
                        return Err(Error::new(ErrorKind::HeadTooLarge, "too many fields"));
                    }
                    self.known.note(field.name.of(input), field.value);
                    self.fields.push(field);
                    self.line = next;
                }
                Line::Partial => return self.wait(input, limits),
                Line::End(length) if length > limits.head => return Err(head_too_large()),
                Line::End(length) => return Ok(Some(self.head(length))),
            }
        }
    }

    fn wait(&mut self, input: &[u8], limits: &Limits) -> Result<Option<Head>> {
        self.seen = input.len();
        if self.request_line.is_none() && input.len() - self.line > limits.request_line + 1 {
            return Err(target_too_long());
        }
        if input.len() >= limits.head {
            return Err(head_too_large());
        }
        Ok(None)
    }

    fn head(&mut self, length: usize) -> Head {
        let RequestLine { method, target, version } =
            self.request_line.take().expect("the request line was parsed before the fields");
        let Parser { fields, known, .. } = std::mem::take(self);
        Head { length, method, target, version, fields, known }
    }
}

impl Known {
    #[inline]
    fn note(&mut self, name: &[u8], value: Span) {
        let slot = match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => &mut self.host,
            6 if name.eq_ignore_ascii_case(b"expect") => &mut self.expect,
            10 if name.eq_ignore_ascii_case(b"connection") => &mut self.connection,
            14 if name.eq_ignore_ascii_case(b"content-length") => &mut self.content_length,
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => &mut self.transfer_encoding,
            _ => return,
        };
        slot.note(value);
    }
}

/// `method SP target SP HTTP/x.y CRLF` (RFC 9112 §3), and where the next line starts.
fn request_line(
    input: &[u8],
    start: usize,
    limits: &Limits,
) -> Result<Option<(RequestLine, usize)>> {
    let (method, at) = match input.get(start..start + 4) {
        Some(b"GET ") => (Some(Method::GET), start + 3),
        _ => (None, start + scan::token(&input[start..])),
    };
    if at - start > MAX_METHOD {
        return Err(Error::new(ErrorKind::NotImplemented, "the method is too long"));
    }
    match input.get(at) {
        None => return Ok(None),
        Some(b' ') if at > start => {}
        Some(_) => return Err(Error::malformed("the request does not start with a method")),
    }
    let method = match method {
        Some(method) => method,
        None => Method::from_bytes(&input[start..at])
            .map_err(|_| Error::malformed("the method is not a token"))?,
    };

    let target_start = at + 1;
    let at = target_start + scan::target(&input[target_start..]);
    if at - start > limits.request_line {
        return Err(target_too_long());
    }
    match input.get(at) {
        None => return Ok(None),
        Some(b' ') if at > target_start => {}
        Some(b' ') => return Err(Error::malformed("the request target is empty")),
        Some(b'\r' | b'\n') => return Err(Error::malformed("the request line has no version")),
        Some(_) => return Err(Error::malformed("a byte that no request target may have")),
    }
    let target = (target_start, at);

    let Some((version, next)) = version(input, at + 1)? else { return Ok(None) };
    if next - 2 - start > limits.request_line {
        return Err(target_too_long());
    }
    if next > limits.head {
        return Err(head_too_large());
    }
    let target = Span::new(target.0, target.1);
    Ok(Some((RequestLine { method, target, version }, next)))
}

/// `HTTP/x.y CRLF`, and where the next line starts. A higher minor version is
/// spoken to as 1.1 (RFC 9110 §2.5).
fn version(input: &[u8], start: usize) -> Result<Option<(Version, usize)>> {
    const PATTERN: &[u8; 10] = b"HTTP/0.0\r\n";
    let line = &input[start..input.len().min(start + PATTERN.len())];
    let fits = line.iter().zip(PATTERN).all(|(&b, &p)| match p {
        b'0' => b.is_ascii_digit(),
        p => b == p,
    });
    if !fits {
        return Err(Error::malformed("the request line does not end in HTTP/1.1 and CRLF"));
    }
    if line.len() < PATTERN.len() {
        return Ok(None);
    }
    match (line[5], line[7]) {
        (b'1', b'0') => Ok(Some((Version::HTTP_10, start + PATTERN.len()))),
        (b'1', _) => Ok(Some((Version::HTTP_11, start + PATTERN.len()))),
        _ => Err(Error::new(ErrorKind::VersionUnsupported, "only HTTP/1.x is spoken here")),
    }
}

enum Line {
    /// A field, and where the next line starts.
    Field(Field, usize),
    /// The empty line, and what follows it.
    End(usize),
    Partial,
}

/// `name ":" OWS value OWS CRLF` (RFC 9112 §5), or the empty line.
#[inline]
fn field_line(input: &[u8], start: usize) -> Result<Line> {
    let name_end = start + scan::token(&input[start..]);
    match input.get(name_end) {
        None => return Ok(Line::Partial),
        Some(b':') if name_end > start => {}
        Some(b'\r') if name_end == start => return empty_line(input, start),
        Some(&b) => return Err(Error::malformed(wrong_name(b, name_end == start))),
    }
    let value_start = name_end + 1;
    let end = value_start + scan::field_value(&input[value_start..]);
    match (input.get(end), input.get(end + 1)) {
        (None, _) | (Some(b'\r'), None) => Ok(Line::Partial),
        (Some(b'\r'), Some(b'\n')) if end <= u16::MAX as usize => {
            let value = trim(input, value_start, end);
            Ok(Line::Field(Field { name: Span::new(start, name_end), value }, end + 2))
        }
        (Some(b'\r'), Some(b'\n')) => Err(head_too_large()),
        (Some(b'\r'), _) => Err(Error::malformed("a bare CR in a field value")),
        (Some(b'\n'), _) => Err(Error::malformed("a line ends in a bare LF")),
        _ => Err(Error::malformed("a control character in a field value")),
    }
}

fn empty_line(input: &[u8], start: usize) -> Result<Line> {
    match input.get(start + 1) {
        None => Ok(Line::Partial),
        Some(b'\n') => Ok(Line::End(start + 2)),
        Some(_) => Err(Error::malformed("a bare CR")),
    }
}

#[cold]
fn wrong_name(b: u8, at_start: bool) -> &'static str {
    match b {
        b' ' | b'\t' if at_start => "a folded field line",
        b' ' | b'\t' => "a space before the colon of a field",
        b':' => "a field without a name",
        b'\n' => "a line ends in a bare LF",
        b'\r' => "a field line without a colon",
        _ => "a byte that no field name may have",
    }
}

/// The value without the optional white space around it.
fn trim(input: &[u8], mut start: usize, mut end: usize) -> Span {
    let is_space = |b: u8| b == b' ' || b == b'\t';
    while start < end && is_space(input[start]) {
        start += 1;
    }
    while start < end && is_space(input[end - 1]) {
        end -= 1;
    }
    Span::new(start, end)
}

#[cold]
fn target_too_long() -> Error {
    Error::new(ErrorKind::TargetTooLong, "the request line is too long")
}

#[cold]
fn head_too_large() -> Error {
    Error::new(ErrorKind::HeadTooLarge, "the head is too large")
}

/// Field lines up to the empty line, as trailers are sent (RFC 9112 §7.1.2):
/// the fields and the length of the section.
pub(crate) fn trailers(input: &[u8], limits: &Limits) -> Result<Option<(Fields, usize)>> {
    let mut fields = Fields::new();
    let mut at = 0;
    loop {
        match field_line(input, at)? {
            Line::Field(field, next) if fields.len() < limits.fields && next <= limits.head => {
                fields.push(field);
                at = next;
            }
            Line::End(length) if length <= limits.head => return Ok(Some((fields, length))),
            Line::Partial if input.len() < limits.head => return Ok(None),
            _ => return Err(Error::malformed("the trailer section is too large")),
        }
    }
}
