//! Bytes → request head. Pure.
//!
//! The parser answers done, not yet, or an error with its reason. It keeps only
//! positions, and goes on at the line where the last call ended: a head that comes
//! byte by byte costs what its length costs, not its square.

use http::{Method, Version};
use smallvec::SmallVec;

use crate::error::{Error, ErrorKind};
use crate::proto::http1::scan;

/// Why a head is refused. Small, so that the parser can hand it on in registers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal(ErrorKind, &'static str);

impl From<Refusal> for Error {
    fn from(Refusal(kind, reason): Refusal) -> Error {
        Error::new(kind, reason)
    }
}

type Result<T> = std::result::Result<T, Refusal>;

fn malformed(reason: &'static str) -> Refusal {
    Refusal(ErrorKind::Malformed, reason)
}

/// What positions of two bytes reach; no limit may be higher.
pub(crate) const MOST_BYTES: usize = u16::MAX as usize;

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
        debug_assert!(start <= end && end <= MOST_BYTES);
        Span { start: start as u16, end: end as u16 }
    }

    /// The bytes from `start` to `end` of this part.
    pub(crate) fn part(self, start: usize, end: usize) -> Span {
        Span::new(self.start as usize + start, self.start as usize + end)
    }

    pub(crate) fn of(self, head: &[u8]) -> &[u8] {
        &head[self.start as usize..self.end as usize]
    }

    /// The same and all that is behind it.
    pub(super) fn and_behind(self, head: &[u8]) -> &[u8] {
        &head[self.start as usize..]
    }
}

/// The fields of a head, in order. Sixteen fit without an allocation.
pub(crate) type Fields = SmallVec<[Field; 16]>;

/// A head, read in as many calls as it takes: its parts are positions in the bytes.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) method: Method,
    pub(crate) target: Span,
    pub(crate) version: Version,
    pub(crate) fields: Fields,
    pub(crate) known: Known,
    progress: Progress,
}

#[derive(Clone, Copy, Debug)]
enum Progress {
    /// The request line starts at this place, and does not end before the other.
    RequestLine(usize, usize),
    /// So does this field line.
    FieldLine(usize, usize),
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

/// The longest method that is looked at; the registered ones stay below 20.
const MAX_METHOD: usize = 32;

impl Default for Head {
    fn default() -> Head {
        Head::new()
    }
}

impl Head {
    /// A head of which nothing was read yet.
    pub(crate) fn new() -> Head {
        Head {
            method: Method::GET,
            target: Span::default(),
            version: Version::HTTP_11,
            fields: Fields::new(),
            known: Known::default(),
            progress: Progress::RequestLine(0, 0),
        }
    }

    /// Forgets what was read, for the next head.
    pub(crate) fn clear(&mut self) {
        self.fields.clear();
        self.known = Known::default();
        self.progress = Progress::RequestLine(0, 0);
    }

    /// Reads `input`, which starts with the head and has grown since the last call. Says
    /// the length of the head when it is whole; `None` asks for more.
    pub(crate) fn read(&mut self, input: &[u8], limits: &Limits) -> Result<Option<usize>> {
        let (Progress::RequestLine(line, seen) | Progress::FieldLine(line, seen)) = self.progress;
        // A line that was not whole is looked at again only when it may end.
        if seen > line && !input[seen - 1..].iter().any(|b| matches!(b, b'\r' | b'\n')) {
            return self.wait(line, input, limits);
        }
        let mut line = match self.progress {
            Progress::FieldLine(line, _) => line,
            Progress::RequestLine(..) => {
                // RFC 9112 §2.2: one empty line before is forgiven.
                let start = match input {
                    [b'\r'] => return self.wait(0, input, limits),
                    [b'\r', b'\n', ..] => 2,
                    _ => 0,
                };
                match self.request_line(input, start, limits)? {
                    Some(next) => next,
                    None => return self.wait(start, input, limits),
                }
            }
        };
        loop {
            match field_line(input, line, limits.head)? {
                Line::Field(field, name, next) => {
                    if self.fields.len() == limits.fields {
                        return Err(Refusal(ErrorKind::HeadTooLarge, "too many fields"));
                    }
                    self.known.note(name, field.value);
                    self.fields.push(field);
                    line = next;
                }
                Line::End(length) if length <= limits.head => return Ok(Some(length)),
                Line::End(_) => return Err(head_too_large()),
                Line::Partial => {
                    self.progress = Progress::FieldLine(line, 0);
                    return self.wait(line, input, limits);
                }
            }
        }
    }

    #[cold]
    fn wait(&mut self, line: usize, input: &[u8], limits: &Limits) -> Result<Option<usize>> {
        self.progress = match self.progress {
            Progress::FieldLine(..) => Progress::FieldLine(line, input.len()),
            Progress::RequestLine(..) if input.len() - line > limits.request_line + 1 => {
                return Err(target_too_long());
            }
            Progress::RequestLine(..) => Progress::RequestLine(line, input.len()),
        };
        if input.len() >= limits.head { Err(head_too_large()) } else { Ok(None) }
    }

    /// `method SP target SP HTTP/x.y CRLF` (RFC 9112 §3); says where the next line starts.
    #[inline(always)]
    fn request_line(
        &mut self,
        input: &[u8],
        start: usize,
        limits: &Limits,
    ) -> Result<Option<usize>> {
        let method_end = match input[start..] {
            [b'G', b'E', b'T', b' ', ..] => start + 3,
            _ => start + scan::token(&input[start..]),
        };
        if method_end - start > MAX_METHOD {
            return Err(Refusal(ErrorKind::NotImplemented, "the method is too long"));
        }
        match input.get(method_end) {
            None => return Ok(None),
            Some(b' ') if method_end > start => {}
            Some(_) => return Err(malformed("the request does not start with a method")),
        }
        let target = method_end + 1;
        let target_end = target + scan::target(&input[target..]);
        if target_end - start > limits.request_line {
            return Err(target_too_long());
        }
        match input.get(target_end) {
            None => return Ok(None),
            Some(b' ') if target_end > target => {}
            Some(&b) => return Err(malformed(wrong_target(b))),
        }
        let Some(version) = version(&input[target_end + 1..])? else { return Ok(None) };
        let line_end = target_end + VERSION.len() - 1;
        if line_end - start > limits.request_line {
            return Err(target_too_long());
        }
        self.method = match &input[start..method_end] {
            b"GET" => Method::GET,
            token => {
                Method::from_bytes(token).map_err(|_| malformed("the method is not a token"))?
            }
        };
        self.target = Span::new(target, target_end);
        self.version = version;
        Ok(Some(line_end + 2))
    }
}

impl Known {
    #[inline]
    pub(super) fn note(&mut self, name: &[u8], value: Span) {
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

const VERSION: &[u8; 10] = b"HTTP/1.1\r\n";

/// `HTTP/x.y CRLF`. A higher minor version is spoken to as 1.1 (RFC 9110 §2.5).
#[inline(always)]
fn version(input: &[u8]) -> Result<Option<Version>> {
    if input.starts_with(VERSION) { Ok(Some(Version::HTTP_11)) } else { other_version(input) }
}

fn other_version(input: &[u8]) -> Result<Option<Version>> {
    let line = &input[..input.len().min(VERSION.len())];
    let fits = line.iter().zip(VERSION).all(|(&b, &pattern)| match pattern {
        b'1' => b.is_ascii_digit(),
        pattern => b == pattern,
    });
    match *line {
        _ if !fits => Err(malformed("the request line does not end in HTTP/1.1 and CRLF")),
        [.., b'1', b'.', b'0', b'\r', b'\n'] => Ok(Some(Version::HTTP_10)),
        [.., b'1', b'.', _, b'\r', b'\n'] => Ok(Some(Version::HTTP_11)),
        [.., b'\r', b'\n'] => {
            Err(Refusal(ErrorKind::VersionUnsupported, "only HTTP/1.x is spoken here"))
        }
        _ => Ok(None),
    }
}

#[cold]
fn wrong_target(b: u8) -> &'static str {
    match b {
        b' ' => "the request target is empty",
        b'\r' | b'\n' => "the request line has no version",
        _ => "a byte that no request target may have",
    }
}

/// What stands at the start of a line.
pub(super) enum Line<'a> {
    /// A field, its name, and where the next line starts.
    Field(Field, &'a [u8], usize),
    /// The empty line, and what follows it.
    End(usize),
    Partial,
}

/// `name ":" OWS value OWS CRLF` (RFC 9112 §5), or the empty line. The line must end
/// within `limit`.
#[inline(always)]
pub(super) fn field_line(input: &[u8], start: usize, limit: usize) -> Result<Line<'_>> {
    let line = &input[start..];
    match line {
        [b'\r', b'\n', ..] => return Ok(Line::End(start + 2)),
        [] | [b'\r'] => return Ok(Line::Partial),
        _ => {}
    }
    let name = scan::token(line);
    match line.get(name) {
        None => return Ok(Line::Partial),
        Some(b':') if name > 0 => {}
        Some(&b) => return Err(malformed(wrong_name(b, name == 0))),
    }
    let text = &line[name + 1..];
    let length = scan::field_value(text);
    match text[length..] {
        [b'\r', b'\n', ..] => {}
        [] | [b'\r'] => return Ok(Line::Partial),
        [b, ..] => return Err(malformed(wrong_value(b))),
    }
    let text_start = start + name + 1;
    let next = text_start + length + 2;
    if next > limit {
        return Err(head_too_large());
    }
    let value = match text[..length] {
        // One space before and none behind, as nearly everybody writes it.
        [b' ', first, .., last] if first > b' ' && last > b' ' => {
            Span::new(text_start + 1, text_start + length)
        }
        ref text => trim(text, text_start),
    };
    let field = Field { name: Span::new(start, start + name), value };
    Ok(Line::Field(field, &line[..name], next))
}

/// Where a value stands without the white space around it.
fn trim(text: &[u8], start: usize) -> Span {
    let is_space = |&b: &u8| b == b' ' || b == b'\t';
    let before = text.iter().take_while(|&b| is_space(b)).count();
    let behind = text[before..].iter().rev().take_while(|&b| is_space(b)).count();
    Span::new(start + before, start + text.len() - behind)
}

#[cold]
fn wrong_name(b: u8, at_start: bool) -> &'static str {
    match b {
        b' ' | b'\t' if at_start => "a folded field line",
        b' ' | b'\t' => "a space before the colon of a field",
        b':' => "a field without a name",
        b'\n' => "a line ends in a bare LF",
        b'\r' if at_start => "a bare CR",
        b'\r' => "a field line without a colon",
        _ => "a byte that no field name may have",
    }
}

#[cold]
fn wrong_value(b: u8) -> &'static str {
    match b {
        b'\r' => "a bare CR in a field value",
        b'\n' => "a line ends in a bare LF",
        _ => "a control character in a field value",
    }
}

#[cold]
fn target_too_long() -> Refusal {
    Refusal(ErrorKind::TargetTooLong, "the request line is too long")
}

#[cold]
pub(super) fn head_too_large() -> Refusal {
    Refusal(ErrorKind::HeadTooLarge, "the head is too large")
}

/// Field lines up to the empty line, as trailers are sent (RFC 9112 §7.1.2):
/// the fields and the length of the section.
pub(crate) fn trailers(input: &[u8], limits: &Limits) -> Result<Option<(Fields, usize)>> {
    let mut fields = Fields::new();
    let mut at = 0;
    loop {
        match field_line(input, at, limits.head) {
            Ok(Line::Field(field, _, next)) if fields.len() < limits.fields => {
                fields.push(field);
                at = next;
            }
            Ok(Line::End(length)) if length <= limits.head => return Ok(Some((fields, length))),
            Ok(Line::Partial) if input.len() < limits.head => return Ok(None),
            Err(refusal @ Refusal(ErrorKind::Malformed, _)) => return Err(refusal),
            _ => return Err(malformed("the trailer section is too large")),
        }
    }
}
