//! A sans-I/O HTTP/1 client: parses responses from bytes.
//!
//! For applications that forward requests over their own connection to a server. This module uses
//! neither a socket nor a clock: it splits heads, body pieces and trailers off an input buffer
//! without copying them. Ambiguous framing is rejected, as it is in requests: two parties that
//! disagree about the end of a response can be made to deliver one client's response to another.
//!
//! ```
//! use bytes::BytesMut;
//! use http::Method;
//! use weft_proto::http1::client::{BodyLength, BodyPiece, BodyReader, HeadReader};
//!
//! let mut input = BytesMut::from("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
//! let mut heads = HeadReader::new(16 << 10);
//! let head = heads.read(&mut input, &Method::GET)?.expect("the head is complete");
//! assert_eq!((head.status.as_u16(), head.length), (200, BodyLength::Sized(5)));
//! assert!(head.keep_alive);
//!
//! let mut body = BodyReader::new(head.length);
//! let BodyPiece::Data(data) = body.read(&mut input)? else { panic!("expected body data") };
//! assert_eq!(data, "hello");
//! assert!(matches!(body.read(&mut input)?, BodyPiece::End));
//! # Ok::<(), weft_proto::Error>(())
//! ```

use bytes::{Buf, Bytes, BytesMut};
use http::{Method, StatusCode, Version};

use crate::headers::Headers;
use crate::http1::chunked::{BodyDecoder, Step};
use crate::http1::framing::{self, content_length, keep_alive};
use crate::http1::parse::{
    Field, FieldLine, Fields, KnownFields, Limits, MAX_HEAD_BYTES, Occurrence, Span, field_line,
    head_too_large,
};
use crate::http1::scan;
use crate::name_sketch::NameSketch;
use crate::{Error, ErrorKind, Result};

/// Largest number of fields in a head or a trailer section.
const MAX_FIELDS: usize = 256;

/// Largest trailer section in bytes.
const MAX_TRAILER_BYTES: usize = 16 << 10;

/// The head of a response.
#[derive(Clone, Debug)]
pub struct ResponseHead {
    /// The status.
    pub status: StatusCode,
    /// The HTTP version of the response: 1.1 or 1.0.
    pub version: Version,
    /// The header fields, in the order received.
    pub headers: Headers,
    /// The length of the body.
    pub length: BodyLength,
    /// Set if the connection can be reused after the body has been read to its end. If any input
    /// remains after the body, the connection must not be reused; the head cannot show this.
    pub keep_alive: bool,
}

/// The length of a response's body (RFC 9112 §6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyLength {
    /// This many bytes. 0 for responses that have no body, regardless of their fields.
    Sized(u64),
    /// The body uses the chunked transfer coding.
    Chunked,
    /// The body extends to the end of the connection.
    UntilClose,
}

/// Maximum number of interim responses to one request. A server that sends one of them before each
/// timeout would otherwise keep its client waiting for hours.
const MAX_INTERIM_RESPONSES: u32 = 32;

/// Incremental parser for the head of a response and the interim responses before it.
#[derive(Debug)]
pub struct HeadReader {
    limits: Limits,
    status: Option<(StatusCode, Version)>,
    fields: Fields,
    name_sketch: NameSketch,
    known: KnownFields,
    /// Start of the first incomplete line.
    line: usize,
    /// Number of input bytes scanned without finding the end of that line.
    scanned: usize,
    is_lenient: bool,
    /// Start of the first line whose end has not been found, if lenient.
    unmended: usize,
    /// Number of interim responses that may still be received.
    remaining_interim: u32,
}

impl HeadReader {
    /// Creates a parser for a head of at most `max_bytes`, including the interim responses before
    /// it. The highest limit is 65,535 bytes. A head may have 256 fields, and follow 32 interim
    /// responses.
    pub fn new(max_bytes: usize) -> HeadReader {
        let head = max_bytes.min(MAX_HEAD_BYTES);
        HeadReader {
            limits: Limits { request_line: head, head, fields: MAX_FIELDS },
            status: None,
            fields: Fields::new(),
            name_sketch: NameSketch::default(),
            known: KnownFields::default(),
            line: 0,
            scanned: 0,
            is_lenient: false,
            unmended: 0,
            remaining_interim: MAX_INTERIM_RESPONSES,
        }
    }

    /// Accepts errors that occur in responses of old servers and embedded devices, as far as RFC
    /// 9112 permits:
    ///
    /// - lines of a head that end in LF without CR (§2.2);
    /// - equal repeated lengths, in one `Content-Length` field or in several: the first one is kept
    ///   (§6.3);
    /// - a length beside the coding `chunked`, which overrides it (§6.3), and `chunked` named
    ///   twice. The connection is closed after such a response.
    ///
    /// Different lengths stay an error, and so do all other ambiguities.
    ///
    /// Only for servers that need it, and if the head is not forwarded as it is: a recipient that
    /// reads it in another way would find another end of the response.
    pub fn lenient(mut self, is_lenient: bool) -> HeadReader {
        self.is_lenient = is_lenient;
        self
    }

    /// Splits a head off the start of `input` if it is complete; `None` means that more input is
    /// needed. `method` is the method of the request.
    ///
    /// Interim responses (1xx) are returned, too: call this method again for the next head, unless
    /// the status was 101.
    ///
    /// # Errors
    /// [`Malformed`](ErrorKind::Malformed) if the input is not a response head or the end of its
    /// body is ambiguous, [`HeadTooLarge`](ErrorKind::HeadTooLarge) if it exceeds the limits.
    pub fn read(&mut self, input: &mut BytesMut, method: &Method) -> Result<Option<ResponseHead>> {
        if self.is_lenient {
            self.mend_line_ends(input);
        }
        let Some((length, status, version)) = self.find_end(input)? else { return Ok(None) };
        if status.is_informational() {
            self.remaining_interim =
                self.remaining_interim.checked_sub(1).ok_or_else(too_many_interim_responses)?;
        }
        let text = input.split_to(length).freeze();
        let is_overridden = self.is_lenient && self.resolve_length(&text);
        let (fields, known) = (std::mem::take(&mut self.fields), std::mem::take(&mut self.known));
        let name_sketch = std::mem::take(&mut self.name_sketch);
        self.limits.head -= length;
        (self.status, self.line, self.scanned, self.unmended) = (None, 0, 0, 0);
        let declared = body_length(&known, &text, version)?;
        let (length, is_unambiguous) = match status {
            // The fields of a response to HEAD describe the response to GET (RFC 9110 §9.3.2).
            _ if *method == Method::HEAD => (BodyLength::Sized(0), true),
            StatusCode::NOT_MODIFIED => (BodyLength::Sized(0), true),
            // A server that declares a body for such a status may send one: the connection cannot
            // be reused.
            status if framing::is_bodiless(status) => (
                BodyLength::Sized(0),
                matches!(declared, BodyLength::UntilClose | BodyLength::Sized(0)),
            ),
            _ => (declared, true),
        };
        let headers = Headers::parsed(text, fields, name_sketch);
        let http_10 = version == Version::HTTP_10;
        let keep_alive = match known.connection {
            _ if is_overridden || !is_unambiguous || length == BodyLength::UntilClose => false,
            Occurrence::Absent => !http_10,
            _ => keep_alive(headers.list("connection"), http_10),
        };
        Ok(Some(ResponseHead { status, version, headers, length, keep_alive }))
    }

    /// Returns the length of the head, its status and its version if the head is complete.
    fn find_end(&mut self, input: &[u8]) -> Result<Option<(usize, StatusCode, Version)>> {
        // An incomplete line is parsed again only if the new input can contain its end.
        let is_line_end = |b: &u8| matches!(b, b'\r' | b'\n');
        if self.scanned > self.line && !input[self.scanned - 1..].iter().any(is_line_end) {
            return self.need_more(input);
        }
        let (status, version) = match self.status {
            Some(found) => found,
            None => match status_line(input)? {
                None => return self.need_more(input),
                Some((status, version, length)) => {
                    self.line = length;
                    *self.status.insert((status, version))
                }
            },
        };
        loop {
            match field_line(input, self.line, self.limits.head)? {
                FieldLine::Field(field, name, next) => {
                    if self.fields.len() == self.limits.fields {
                        return Err(too_many_fields());
                    }
                    self.known.record(name, field.value);
                    self.name_sketch.insert(name);
                    self.fields.push(field);
                    self.line = next;
                }
                FieldLine::End(length) if length <= self.limits.head => {
                    return Ok(Some((length, status, version)));
                }
                FieldLine::End(_) => return Err(head_too_large()),
                FieldLine::Partial => return self.need_more(input),
            }
        }
    }

    /// Replaces the ends of the lines that end in a bare LF, up to the end of the head.
    fn mend_line_ends(&mut self, input: &mut BytesMut) {
        let mut mended = BytesMut::new();
        let mut at = self.unmended;
        let mut copied = 0;
        while let Some(length) = input[at..].iter().position(|&b| b == b'\n') {
            let end = at + length;
            let line = &input[at..end];
            if !line.ends_with(b"\r") {
                mended.extend_from_slice(&input[copied..end]);
                mended.extend_from_slice(b"\r\n");
                copied = end + 1;
            }
            let is_last = matches!(line, b"" | b"\r");
            at = end + 1;
            if is_last {
                break;
            }
        }
        self.unmended = at;
        if copied > 0 {
            self.unmended = mended.len() + (at - copied);
            mended.extend_from_slice(&input[copied..]);
            *input = mended;
            // A line that had no end may have one now.
            self.scanned = self.line;
        }
    }

    /// Resolves the ambiguities of the length that [`lenient`](HeadReader::lenient) permits.
    /// Returns true if the length is known by the transfer coding only: the connection must be
    /// closed.
    fn resolve_length(&mut self, text: &[u8]) -> bool {
        let number = |value: &[u8]| content_length(value);
        let is_equal =
            |value: &[u8], other: &[u8]| number(value).is_some() && number(value) == number(other);
        if let Some(length) = self.merge(text, b"content-length", is_equal) {
            self.known.content_length = Occurrence::Once(length);
        }
        let is_chunked = |value: &[u8], _: &[u8]| value.eq_ignore_ascii_case(b"chunked");
        let coding = self.merge(text, b"transfer-encoding", is_chunked);
        if let Some(coding) = coding {
            self.known.transfer_encoding = Occurrence::Once(coding);
        }
        let has_coding = self.known.transfer_encoding != Occurrence::Absent;
        let has_both = has_coding && self.known.content_length != Occurrence::Absent;
        if has_both {
            // RFC 9112 §6.3: the coding overrides the length, which is not forwarded.
            self.fields.retain(|field| !has_name(field, text, b"content-length"));
            self.known.content_length = Occurrence::Absent;
        }
        coding.is_some() || has_both
    }

    /// Merges the members of a list into the first, if there are several and they are equal.
    /// Returns the value.
    fn merge(
        &mut self,
        text: &[u8],
        name: &[u8],
        is_equal: impl Fn(&[u8], &[u8]) -> bool,
    ) -> Option<Span> {
        let named = self.fields.iter().filter(|field| has_name(field, text, name));
        let members: Vec<Span> = named.clone().flat_map(|it| members(it.value, text)).collect();
        let [first, others @ ..] = &*members else { return None };
        let is_list = !others.is_empty();
        if !is_list || !members.iter().all(|it| is_equal(it.of(text), first.of(text))) {
            return None;
        }
        let kept = named.map(|field| field.name).next()?;
        self.fields.retain(|field| !has_name(field, text, name));
        self.fields.push(Field { name: kept, value: *first });
        Some(*first)
    }

    fn need_more<T>(&mut self, input: &[u8]) -> Result<Option<T>> {
        self.scanned = input.len();
        if input.len() >= self.limits.head { Err(head_too_large()) } else { Ok(None) }
    }
}

fn has_name(field: &Field, text: &[u8], name: &[u8]) -> bool {
    field.name.of(text).eq_ignore_ascii_case(name)
}

/// Returns the members of a list (RFC 9110 §5.6.1).
fn members(list: Span, text: &[u8]) -> Vec<Span> {
    let mut start = 0;
    let member = |part: &[u8]| {
        let begin = start + part.len() - part.trim_ascii_start().len();
        let length = part.trim_ascii().len();
        start += part.len() + 1;
        list.slice(begin, begin + length)
    };
    list.of(text).split(|&b| b == b',').map(member).collect()
}

fn too_many_fields() -> Error {
    Error::new(ErrorKind::HeadTooLarge, "too many fields")
}

fn too_many_interim_responses() -> Error {
    Error::new(ErrorKind::HeadTooLarge, "too many interim responses")
}

/// Parses `HTTP/1.x SP status [SP reason] CRLF` (RFC 9112 §4). Returns the status, the version and
/// the length of the line. Many servers omit the second space if there is no reason phrase.
fn status_line(input: &[u8]) -> Result<Option<(StatusCode, Version, usize)>> {
    const START: &[u8; 9] = b"HTTP/1.1 ";
    let malformed = |reason| Err(Error::malformed(reason));
    let version = match input.first_chunk() {
        Some(START) => Version::HTTP_11,
        Some(&[b'H', b'T', b'T', b'P', b'/', b'1', b'.', minor, b' '])
            if minor.is_ascii_digit() =>
        {
            if minor == b'0' {
                Version::HTTP_10
            } else {
                Version::HTTP_11
            }
        }
        Some(_) => return malformed("the response does not start with HTTP/1.0 or HTTP/1.1"),
        None => {
            let fits = |(at, &b): (usize, &u8)| b == START[at] || (at == 7 && b.is_ascii_digit());
            let is_valid_prefix = input.iter().enumerate().all(fits);
            return if is_valid_prefix {
                Ok(None)
            } else {
                malformed("the response does not start with HTTP/1.0 or HTTP/1.1")
            };
        }
    };
    let Some((status, rest)) = input[START.len()..].split_first_chunk::<3>() else {
        return Ok(None);
    };
    let Ok(status) = StatusCode::from_bytes(status) else {
        return malformed("the response has an invalid status code");
    };
    let reason = match rest {
        [b' ', ..] => scan::field_value(rest),
        _ => 0,
    };
    match rest[reason..] {
        [b'\r', b'\n', ..] => Ok(Some((status, version, START.len() + 3 + reason + 2))),
        [] | [b'\r'] => Ok(None),
        _ => malformed("the status line does not end in CRLF"),
    }
}

/// Determines the length of the body from the fields (RFC 9112 §6.3), without the RFC's
/// leniencies.
fn body_length(known: &KnownFields, text: &[u8], version: Version) -> Result<BodyLength> {
    use Occurrence::{Absent, Once, Repeated};
    let malformed = |reason| Err(Error::malformed(reason));
    match (known.transfer_encoding, known.content_length) {
        (Absent, Absent) => Ok(BodyLength::UntilClose),
        (Absent, Once(value)) => match content_length(value.of(text)) {
            Some(length) => Ok(BodyLength::Sized(length)),
            None => malformed("Content-Length is not one decimal number"),
        },
        (Absent, Repeated) => malformed("more than one Content-Length"),
        // §6.1: possibly an attempt at response splitting or request smuggling.
        (_, Once(_) | Repeated) => malformed("both Content-Length and Transfer-Encoding"),
        _ if version == Version::HTTP_10 => malformed("Transfer-Encoding in HTTP/1.0"),
        (Once(value), Absent) if value.of(text).eq_ignore_ascii_case(b"chunked") => {
            Ok(BodyLength::Chunked)
        }
        _ => malformed("unsupported transfer coding (only a single chunked is supported)"),
    }
}

/// The next part of a body.
#[derive(Debug)]
pub enum BodyPiece {
    /// Bytes of the body.
    Data(Bytes),
    /// The trailer fields (RFC 9110 §6.5). The body ends after them.
    Trailers(Headers),
    /// The end of the body.
    End,
    /// More input is needed.
    Wait,
}

/// Incremental decoder for the body of a response. Removes the chunked transfer coding.
#[derive(Debug)]
pub struct BodyReader(State);

#[derive(Debug)]
enum State {
    Framed(BodyDecoder),
    UntilClose,
}

impl BodyReader {
    /// Creates a decoder for a body of this length.
    pub fn new(length: BodyLength) -> BodyReader {
        BodyReader(match length {
            BodyLength::Sized(bytes) => {
                State::Framed(BodyDecoder::new(framing::Length::Sized(bytes)))
            }
            BodyLength::Chunked => State::Framed(BodyDecoder::new(framing::Length::Chunked)),
            BodyLength::UntilClose => State::UntilClose,
        })
    }

    /// Splits the next piece of the body off the start of `input`. A trailer section may have 16
    /// KiB and 256 fields.
    ///
    /// # Errors
    /// [`Malformed`](ErrorKind::Malformed) for invalid chunked coding. The decoder must not be used
    /// after an error.
    pub fn read(&mut self, input: &mut BytesMut) -> Result<BodyPiece> {
        let decoder = match &mut self.0 {
            State::Framed(decoder) => decoder,
            State::UntilClose if input.is_empty() => return Ok(BodyPiece::Wait),
            State::UntilClose => return Ok(BodyPiece::Data(input.split().freeze())),
        };
        let limits = Limits { request_line: 0, head: MAX_TRAILER_BYTES, fields: MAX_FIELDS };
        loop {
            match decoder.step(input, &limits)? {
                Step::Skip(bytes) => input.advance(bytes),
                Step::Data(bytes) => return Ok(BodyPiece::Data(input.split_to(bytes).freeze())),
                Step::Trailers(fields, bytes) => {
                    let text = input.split_to(bytes).freeze();
                    if !fields.is_empty() {
                        return Ok(BodyPiece::Trailers(Headers::new(text, fields)));
                    }
                }
                Step::End => return Ok(BodyPiece::End),
                Step::Wait => return Ok(BodyPiece::Wait),
            }
        }
    }

    /// Returns the number of remaining bytes, if known: 0 at the end.
    #[inline]
    pub fn remaining(&self) -> Option<u64> {
        match &self.0 {
            State::Framed(decoder) => decoder.remaining(),
            State::UntilClose => None,
        }
    }

    /// Returns true if the body is complete when the connection ends at this point.
    #[inline]
    pub fn may_end_at_eof(&self) -> bool {
        matches!(self.0, State::UntilClose | State::Framed(BodyDecoder::Done))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns status, length (`~` for until-close, `*` for chunked), `k` if the connection can be
    /// reused; or `!` for an error, `?` if more input is needed.
    fn read(text: &[u8], method: &Method, piece: usize) -> String {
        let (mut input, mut heads) = (BytesMut::new(), HeadReader::new(120));
        let mut found = String::new();
        for piece in text.chunks(piece) {
            input.extend_from_slice(piece);
            loop {
                match heads.read(&mut input, method) {
                    Err(_) => return found + "!",
                    Ok(None) => break,
                    Ok(Some(head)) => {
                        found += head.status.as_str();
                        found += &match head.length {
                            BodyLength::Sized(bytes) => format!(" {bytes}"),
                            BodyLength::Chunked => " *".to_owned(),
                            BodyLength::UntilClose => " ~".to_owned(),
                        };
                        found += if head.keep_alive { "k " } else { " " };
                        if !head.status.is_informational() {
                            return found;
                        }
                    }
                }
            }
        }
        found + "?"
    }

    #[test]
    fn lenient_reader_mends_heads_but_accepts_no_ambiguity() {
        for (text, expected) in [
            ("HTTP/1.1 200 OK\nContent-Length: 2\n\na\nb", Some((2, "a\nb", 1))),
            ("HTTP/1.1 200 OK\r\nA: b\nContent-Length: 2\r\n\na", Some((2, "a", 2))),
            ("HTTP/1.1 200 OK\nContent-Length: 2\n\r\n\n\n", Some((2, "\n\n", 1))),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nA: b\r\ncontent-length: 2\r\n\r\n",
                Some((2, "", 2)),
            ),
            ("HTTP/1.1 200 OK\nContent-Length: 2\nContent-Length: 02\n\n", Some((2, "", 1))),
            // A head in order is left as it is.
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n\n", Some((2, "\n", 1))),
            ("HTTP/1.1 200 OK\nContent-Length: 2\nContent-Length: 3\n\n", None),
            ("HTTP/1.1 200 OK\nContent-Length: x\nContent-Length: x\n\n", None),
            ("HTTP/1.1 200 OK\nContent-Length: 2, 2\n\n", Some((2, "", 1))),
            (
                "HTTP/1.1 200 OK\nContent-Length: 2 ,02\nA: b\nContent-Length: 2\n\n",
                Some((2, "", 2)),
            ),
            ("HTTP/1.1 200 OK\nContent-Length: 2, 3\n\n", None),
            ("HTTP/1.1 200 OK\nContent-Length: 2,\n\n", None),
            ("HTTP/1.1 200 OK\nContent-Length: 2\nTransfer-Encoding: gzip\n\n", None),
            ("HTTP/1.1 200 OK\nA: b\n c\nContent-Length: 2\n\n", None),
            ("HTTP/1.1 200 OK\nA: b\rContent-Length: 2\n\n", None),
            ("HTTP/1.1 200 OK\nA: b\r\r\nContent-Length: 2\n\n", None),
        ] {
            for piece in 1..=text.len() {
                let (mut input, mut read) = (BytesMut::new(), Ok(None));
                let mut reader = HeadReader::new(200).lenient(true);
                for piece in text.as_bytes().chunks(piece) {
                    input.extend_from_slice(piece);
                    if matches!(read, Ok(None)) {
                        read = reader.read(&mut input, &Method::GET);
                    }
                }
                let found = read.ok().map(|head| {
                    let head = head.expect("a complete head");
                    let BodyLength::Sized(length) = head.length else { panic!("no length") };
                    (length, head.headers.len())
                });
                let rest = expected.map(|(_, rest, _)| rest);
                let expected = expected.map(|(length, _, fields)| (length, fields));
                assert_eq!(found, expected, "{text:?} in pieces of {piece}");
                if let Some(rest) = rest {
                    assert_eq!(input, rest.as_bytes(), "{text:?} in pieces of {piece}");
                }
            }
        }
    }

    /// Each row: the fields of a response, and if they are accepted.
    #[test]
    fn lenient_reader_prefers_the_coding_and_closes_the_connection() {
        for (fields, is_accepted) in [
            ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", true),
            ("Transfer-Encoding: chunked\r\nContent-Length: 5\r\nContent-Length: 6\r\n", true),
            ("Transfer-Encoding: chunked\r\nTransfer-Encoding: Chunked\r\n", true),
            ("Transfer-Encoding: chunked, chunked\r\n", true),
            ("Transfer-Encoding: chunked, chunked\r\nContent-Length: 5\r\n", true),
            ("Transfer-Encoding: gzip, chunked\r\nContent-Length: 5\r\n", false),
            ("Transfer-Encoding: chunked, gzip\r\n", false),
        ] {
            for (version, is_lenient) in [("1.1", true), ("1.1", false), ("1.0", true)] {
                let text =
                    format!("HTTP/{version} 200 OK\r\n{fields}Connection: keep-alive\r\n\r\n");
                let mut input = BytesMut::from(&*text);
                let mut reader = HeadReader::new(200).lenient(is_lenient);
                let head = reader.read(&mut input, &Method::GET).ok().flatten();
                let found = head.map(|head| {
                    let has_length = head.headers.contains("content-length");
                    (head.length, head.keep_alive, has_length)
                });
                let accepts = is_accepted && is_lenient && version == "1.1";
                let expected = accepts.then_some((BodyLength::Chunked, false, false));
                assert_eq!(found, expected, "{text:?} {is_lenient}");
            }
        }
    }

    #[test]
    fn parses_response_heads_in_pieces_of_any_size() {
        let long = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(96));
        let too_long = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(97));
        let flood = "HTTP/1.1 102 A\r\n\r\n".repeat(7);
        let (get, head) = (Method::GET, Method::HEAD);
        for (method, text, expected) in [
            (&get, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "200 5k "),
            (&get, "HTTP/1.1 200\r\ncontent-length: 0\r\n\r\n", "200 0k "),
            (&get, "HTTP/1.1 200 \r\ncontent-length:0 \r\n\r\n", "200 0k "),
            (&get, "HTTP/1.9 999 a\tb \u{ff}\r\nContent-Length: 5\r\n\r\n", "999 5k "),
            (&get, "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n", "200 *k "),
            (&get, "HTTP/1.1 200 OK\r\n\r\n", "200 ~ "),
            (&get, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: Close\r\n\r\n", "200 1 "),
            (&get, "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\n", "200 1 "),
            (
                &get,
                "HTTP/1.0 200 OK\r\nContent-Length: 1\r\nConnection: keep-alive\r\n\r\n",
                "200 1k ",
            ),
            // Responses without a body, regardless of their fields.
            (&get, "HTTP/1.1 204 No\r\n\r\n", "204 0k "),
            (&get, "HTTP/1.1 204 No\r\nContent-Length: 5\r\n\r\n", "204 0 "),
            (&get, "HTTP/1.1 204 No\r\nTransfer-Encoding: chunked\r\n\r\n", "204 0 "),
            (&get, "HTTP/1.1 304 No\r\nContent-Length: 5\r\n\r\n", "304 0k "),
            (&head, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "200 0k "),
            (&head, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "200 0k "),
            (&head, "HTTP/1.1 200 OK\r\n\r\n", "200 0k "),
            // Interim responses before the final one.
            (
                &get,
                "HTTP/1.1 103 Hints\r\nLink: a\r\n\r\nHTTP/1.1 100 C\r\n\r\nHTTP/1.1 204 No\r\n\r\n",
                "103 0k 100 0k 204 0k ",
            ),
            (&get, &flood, "102 0k 102 0k 102 0k 102 0k 102 0k 102 0k !"),
            (&get, &long, "200 ~ "),
            (&get, &too_long, "!"),
            // Ambiguous lengths.
            (&get, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", "!"),
            (&get, "HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\n\r\n", "!"),
            (&get, "HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\n", "!"),
            (&get, "HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\n", "!"),
            (&get, "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551616\r\n\r\n", "!"),
            (&head, "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", "!"),
            (
                &get,
                "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
                "!",
            ),
            (&get, "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "!"),
            (&get, "HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\n", "!"),
            (
                &get,
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
                "!",
            ),
            (&get, "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "!"),
            // Malformed heads.
            (&get, "HTTP/2.0 200 OK\r\n\r\n", "!"),
            (&get, "HTTP/1.1 2000 OK\r\n\r\n", "!"),
            (&get, "HTTP/1.1 20 OK\r\n\r\n", "!"),
            (&get, "HTTP/1.1 099 OK\r\n\r\n", "!"),
            (&get, "HTTP/1.1  200 OK\r\n\r\n", "!"),
            (&get, "\r\nHTTP/1.1 200 OK\r\n\r\n", "!"),
            (&get, "HTTP/1.1 200 OK\n\r\n", "!"),
            (&get, "HTTP/1.1 200 O\0K\r\n\r\n", "!"),
            (&get, "HTTP/1.1 200 OK\r\nA : b\r\n\r\n", "!"),
            (&get, "HTTP/1.1 200 OK\r\nA: b\n\r\n", "!"),
            (&get, "HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n", "!"),
            (&get, "HTTP/1.1 200 OK\r\nA\r\n\r\n", "!"),
            (&get, "ICY 200 OK\r\n\r\n", "!"),
            (&get, "HTTP/1.1 200 OK\r\nA: b\r\n\r", "?"),
            (&get, "HTTP/1.1 2", "?"),
            (&get, "", "?"),
        ] {
            // Each character is one byte (Latin-1).
            let bytes: Vec<u8> = text.chars().map(|letter| letter as u8).collect();
            for piece in 1..=bytes.len().max(1) {
                assert_eq!(read(&bytes, method, piece), expected, "{text:?} by {piece}");
            }
        }
    }

    #[test]
    fn rejects_head_with_too_many_fields() {
        for (count, expected) in [(MAX_FIELDS, "200 ~ "), (MAX_FIELDS + 1, "!")] {
            let text = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a:b\r\n".repeat(count));
            let mut heads = HeadReader::new(1 << 20);
            let found = heads.read(&mut BytesMut::from(&*text), &Method::GET);
            assert_eq!(found.is_ok(), expected != "!", "{count}");
        }
    }

    #[test]
    fn decodes_bodies_of_each_length_kind() {
        use BodyLength::*;
        for (length, input, expected, is_whole) in [
            (Sized(0), "x", "$", true),
            (Sized(2), "abx", "ab$", true),
            (Sized(3), "ab", "ab?", false),
            (UntilClose, "", "?", true),
            (UntilClose, "ab", "ab?", true),
            (Chunked, "2;x=y\r\nab\r\n0\r\n\r\nx", "ab$", true),
            (Chunked, "2\r\nab\r\n0\r\nX: y\r\n\r\n", "ab[x]$", true),
            (Chunked, "2\r\nab\r\n0\r\nX: y\r\n", "ab?", false),
            (Chunked, "FFFFFFFFFFFFFFFF\r\nab", "ab?", false),
            (Chunked, "10000000000000000\r\nab", "!", false),
            (Chunked, "2\r\nabc\r\n", "ab!", false),
        ] {
            let (mut input, mut body) = (BytesMut::from(input), BodyReader::new(length));
            let mut found = String::new();
            loop {
                match body.read(&mut input) {
                    Ok(BodyPiece::Data(data)) => found += std::str::from_utf8(&data).unwrap(),
                    Ok(BodyPiece::Trailers(trailers)) => {
                        let names = trailers.iter().map(|(name, _)| name.to_ascii_lowercase());
                        found += &format!("[{}]", names.collect::<String>());
                    }
                    Ok(BodyPiece::End) => break found.push('$'),
                    Ok(BodyPiece::Wait) => break found.push('?'),
                    Err(_) => break found.push('!'),
                }
            }
            assert_eq!(found, expected, "{length:?}");
            assert_eq!(
                body.may_end_at_eof() && !found.ends_with('!'),
                is_whole,
                "{length:?} {found}"
            );
        }
    }
}
