//! Head of a script's response (RFC 3875 §6): bytes → status and fields. Pure.

use bytes::Bytes;
use weft::header::Headers;
use weft::{Response, StatusCode};
use weft_proto::http1::parse::{Field, Fields, MAX_HEAD_BYTES, Span};
use weft_proto::http1::scan;
use weft_proto::names::is_same_name;

use crate::head::body_hints;

/// Response head written by a script.
#[derive(Debug)]
#[non_exhaustive]
pub struct ScriptHead {
    /// Status of the response.
    pub status: StatusCode,
    /// `Content-Length` of the body, if the script sets one.
    pub length: Option<u64>,
    /// Fields that are passed to the client.
    pub fields: Headers,
}

impl ScriptHead {
    /// Returns true if the body is an event stream.
    pub fn is_event_stream(&self) -> bool {
        body_hints::is_event_stream(&self.fields)
    }

    /// Returns true if the script asks for its response not to be buffered, as with nginx.
    pub fn refuses_buffering(&self) -> bool {
        body_hints::refuses_buffering(&self.fields)
    }
}

/// Fields that apply to one connection only (RFC 9110 §7.6.1). The engine sets its own.
pub const HOP_BY_HOP_FIELDS: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// First line of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadForm {
    /// A field, as all others.
    Cgi,
    /// A field or a status line of HTTP/1 (RFC 9112 §4), as servers of uwsgi send it.
    CgiOrHttp,
}

/// Parses the head of one response, whose bytes may arrive one by one: each is examined once.
pub struct ScriptHeadParser {
    form: HeadForm,
    max_bytes: usize,
    /// Start of the first line without an end.
    line_start: usize,
    /// Number of bytes that have been searched for the end of that line.
    searched: usize,
}

impl ScriptHeadParser {
    /// Creates a parser for a head of at most `max_bytes` bytes.
    pub fn new(form: HeadForm, max_bytes: usize) -> ScriptHeadParser {
        let max_bytes = max_bytes.min(MAX_HEAD_BYTES);
        ScriptHeadParser { form, max_bytes, line_start: 0, searched: 0 }
    }

    /// Parses the head at the start of `output`, which begins with the output of former calls.
    /// Returns the head and its length in bytes, or `None` if the head is incomplete.
    ///
    /// # Errors
    /// A message if the head is invalid.
    pub fn parse(&mut self, output: &[u8]) -> Result<Option<(ScriptHead, usize)>, String> {
        let end = self.find_end(output);
        if end.unwrap_or(output.len()) > self.max_bytes {
            return Err("its head is larger than allowed".to_owned());
        }
        let Some(end) = end else { return Ok(None) };
        let mut builder = HeadBuilder::default();
        let mut start = 0;
        for (number, line) in output[..end].split(|&b| b == b'\n').enumerate() {
            let next = start + line.len() + 1;
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let may_be_status = number == 0 && self.form == HeadForm::CgiOrHttp;
            match line {
                [] => {}
                [b'H', b'T', b'T', b'P', b'/', ..] if may_be_status => {
                    builder.parse_status_line(line)?;
                }
                _ => builder.parse_line(line, start)?,
            }
            start = next;
        }
        // A copy, so that the client of a slow response does not hold the rest of the output.
        Ok(Some((builder.build(Bytes::copy_from_slice(&output[..end]))?, end)))
    }

    /// Returns the offset after the empty line. Lines end in LF or CRLF (§6.2).
    fn find_end(&mut self, output: &[u8]) -> Option<usize> {
        while let Some(length) = output[self.searched..].iter().position(|&b| b == b'\n') {
            let end = self.searched + length;
            let is_empty = matches!(&output[self.line_start..end], b"" | b"\r");
            (self.line_start, self.searched) = (end + 1, end + 1);
            if is_empty {
                return Some(end + 1);
            }
        }
        self.searched = output.len();
        None
    }
}

/// Collects the fields of a head.
#[derive(Default)]
struct HeadBuilder {
    status: Option<StatusCode>,
    length: Option<u64>,
    has_type: bool,
    has_location: bool,
    fields: Fields,
}

impl HeadBuilder {
    fn parse_status_line(&mut self, line: &[u8]) -> Result<(), String> {
        let status = line.split_at_checked("HTTP/1.1 ".len()).and_then(|(version, status)| {
            matches!(version, b"HTTP/1.0 " | b"HTTP/1.1 ").then(|| parse_status(status))?
        });
        let shown = || line[..line.len().min(80)].escape_ascii();
        self.status = Some(status.ok_or_else(|| format!("no valid status line: {}", shown()))?);
        Ok(())
    }

    /// Parses the line of a field, which begins at `start` of the output.
    fn parse_line(&mut self, line: &[u8], start: usize) -> Result<(), String> {
        let fail =
            |reason: &str| Err(format!("{reason}: {}", line[..line.len().min(80)].escape_ascii()));
        if line.starts_with(b"HTTP/") {
            return fail("it begins with a status line (`nph-`), which is not supported");
        }
        let end = scan::token(line);
        if !line.contains(&b':') {
            return fail("a line of its head has no colon");
        }
        let (name, value) = (&line[..end], line.get(end + 1..).unwrap_or_default().trim_ascii());
        let is_value = scan::field_value(value) == value.len();
        if name.is_empty() || line.get(end) != Some(&b':') || !is_value {
            return fail("a line of its head is not a valid field");
        }
        let is = |known: &str| is_same_name(name, known.as_bytes());
        if is("status") {
            match (self.status, parse_status(value)) {
                (None, Some(status)) => self.status = Some(status),
                (None, None) => return fail("no status that a response can have"),
                (Some(_), _) => return fail("duplicate Status"),
            }
            return Ok(());
        }
        if HOP_BY_HOP_FIELDS.iter().any(|known| is(known)) {
            return Ok(());
        }
        if is("content-length") {
            match (self.length, parse_length(value)) {
                (None, Some(length)) => self.length = Some(length),
                _ => return fail("invalid or duplicate Content-Length"),
            }
        }
        for (known, has_field) in
            [("Content-Type", &mut self.has_type), ("Location", &mut self.has_location)]
        {
            if is(known) && std::mem::replace(has_field, true) {
                return fail(&format!("duplicate {known}"));
            }
        }
        let value_start = start + line.len() - line[end + 1..].trim_ascii_start().len();
        let (name, value) =
            (Span::new(start, start + end), Span::new(value_start, value_start + value.len()));
        self.fields.push(Field { name, value });
        Ok(())
    }

    /// Returns the head whose fields are parts of `text`.
    fn build(self, text: Bytes) -> Result<ScriptHead, String> {
        let HeadBuilder { status, length, has_type, has_location, fields } = self;
        // For a path, §6.2.2 requires the server to process it internally instead of the script. A
        // redirect leads to the same page, and relative links on that page resolve as intended.
        let status = match status {
            Some(status) => status,
            None if has_location => StatusCode::FOUND,
            None if has_type => StatusCode::OK,
            None => {
                let message = "its head has neither Content-Type nor Location nor Status";
                return Err(message.to_owned());
            }
        };
        Ok(ScriptHead { status, length, fields: Headers::new(text, fields) })
    }
}

/// Parses a length, which has digits only (RFC 9110 §8.6).
fn parse_length(value: &[u8]) -> Option<u64> {
    let digits = Some(value).filter(|value| value.iter().all(u8::is_ascii_digit))?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Parses a status such as `404 Not Found`: three digits, and a reason phrase that is not sent to
/// the client (§6.3.3).
fn parse_status(value: &[u8]) -> Option<StatusCode> {
    let (digits, reason) = value.split_at_checked(3)?;
    let is_number = digits.iter().all(u8::is_ascii_digit);
    let number = std::str::from_utf8(digits).ok()?.parse().ok()?;
    let is_final = matches!(number, 200..=599);
    let is_valid = is_number && is_final && matches!(reason, [] | [b' ', ..]);
    is_valid.then(|| StatusCode::from_u16(number).ok()).flatten()
}

impl ScriptHead {
    /// Returns true if the status allows a body, regardless of the request's method (RFC 9110
    /// §6.4.1).
    pub fn has_body(&self) -> bool {
        !matches!(self.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
    }

    /// Sets status and fields of a response that has the body already.
    pub fn apply_to(mut self, response: Response) -> Response {
        // A 204 has no `Content-Length` (RFC 9110 §8.6).
        if self.status == StatusCode::NO_CONTENT {
            self.fields.remove("content-length");
        }
        response.with_status(self.status).with_headers(self.fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Status, length, fields and remaining bytes of `output` as text, or the error.
    fn parsed(output: &[u8]) -> String {
        parsed_as(HeadForm::Cgi, output)
    }

    fn parsed_as(form: HeadForm, output: &[u8]) -> String {
        match ScriptHeadParser::new(form, 100).parse(output) {
            Ok(None) => "more".to_owned(),
            Err(reason) => reason,
            Ok(Some((ScriptHead { status, length, fields }, end))) => {
                let length = length.map_or(String::new(), |length| format!(" {length}"));
                let field = |(name, value): (&str, &[u8])| {
                    format!(" {name}={}", str::from_utf8(value).unwrap()).to_ascii_lowercase()
                };
                let fields = fields.iter().map(field).collect::<String>();
                format!("{}{length}{fields} | {}", status.as_u16(), output[end..].escape_ascii())
            }
        }
    }

    #[test]
    fn parses_heads() {
        for (output, expected) in [
            ("Content-Type: text/plain\n\nbody\n\n", "200 content-type=text/plain | body\\n\\n"),
            ("content-type:text/plain\r\n\r\n\r\n", "200 content-type=text/plain | \\r\\n"),
            ("Content-Type: a/b\n\r\nx", "200 content-type=a/b | x"),
            ("Status: 404 Not Found\nContent-Type: a/b\n\n", "404 content-type=a/b | "),
            ("Status: 204\n\n", "204 | "),
            ("Status:599 Odd \n\n", "599 | "),
            ("Location: https://a/\n\n", "302 location=https://a/ | "),
            ("Location: /a?b\n\n", "302 location=/a?b | "),
            ("Status: 301 Moved\nLocation: /a\n\n", "301 location=/a | "),
            (
                "Status: 201\nLocation: /a\nContent-Type: a/b\n\nx",
                "201 location=/a content-type=a/b | x",
            ),
            (
                "Content-Length: 5\nContent-Type: a/b\n\nhello",
                "200 5 content-length=5 content-type=a/b | hello",
            ),
            (
                "Content-Type: a/b\nSet-Cookie: a=1\nSet-Cookie: b=2\n\n",
                "200 content-type=a/b set-cookie=a=1 set-cookie=b=2 | ",
            ),
            (
                "Content-Type: a/b\nConnection: close\nTransfer-Encoding: chunked\nUpgrade: x\n\n",
                "200 content-type=a/b | ",
            ),
            ("", "more"),
            ("Content-Type: a/b\n", "more"),
            ("Content-Type: a/b\r\n\r", "more"),
            ("\n", "its head has neither Content-Type nor Location nor Status"),
            ("X: y\n\n", "its head has neither Content-Type nor Location nor Status"),
            (
                "HTTP/1.1 200 OK\nX: y\n\n",
                "it begins with a status line (`nph-`), which is not supported: HTTP/1.1 200 OK",
            ),
            ("hello\n\n", "a line of its head has no colon: hello"),
            ("Content-Type: a/b\n folded\n\n", "a line of its head has no colon:  folded"),
            ("Content-Type: a/b\n x: y\n\n", "a line of its head is not a valid field:  x: y"),
            ("Content Type: a/b\n\n", "a line of its head is not a valid field: Content Type: a/b"),
            (
                "Content-Type : a/b\n\n",
                "a line of its head is not a valid field: Content-Type : a/b",
            ),
            (": a\n\n", "a line of its head is not a valid field: : a"),
            ("X: a\0b\n\n", "a line of its head is not a valid field: X: a\\x00b"),
            ("X: a\rb\n\n", "a line of its head is not a valid field: X: a\\rb"),
            ("Status: 100\n\n", "no status that a response can have: Status: 100"),
            ("Status: 600\n\n", "no status that a response can have: Status: 600"),
            ("Status: 20\n\n", "no status that a response can have: Status: 20"),
            ("Status: +20\n\n", "no status that a response can have: Status: +20"),
            ("Status: 2000\n\n", "no status that a response can have: Status: 2000"),
            ("Status: OK\n\n", "no status that a response can have: Status: OK"),
            ("Status: 200\nStatus: 200\n\n", "duplicate Status: Status: 200"),
            (
                "Content-Type: a/b\nContent-Type: a/b\n\n",
                "duplicate Content-Type: Content-Type: a/b",
            ),
            ("Location: /\nLocation: /\n\n", "duplicate Location: Location: /"),
            ("Content-Length: +1\n\n", "invalid or duplicate Content-Length: Content-Length: +1"),
            ("Content-Length: x\n\n", "invalid or duplicate Content-Length: Content-Length: x"),
            (
                "Content-Length: 1\nContent-Length: 1\n\n",
                "invalid or duplicate Content-Length: Content-Length: 1",
            ),
        ] {
            assert_eq!(parsed(output.as_bytes()), expected, "{output:?}");
        }
    }

    #[test]
    fn parses_status_lines() {
        const LINE: &str = "it begins with a status line (`nph-`), which is not supported: ";
        const INVALID: &str = "no valid status line: ";
        for (output, expected) in [
            ("HTTP/1.1 404 Not Found\r\nX: y\r\n\r\nz", "404 x=y | z"),
            ("HTTP/1.0 204\r\n\r\n", "204 | "),
            ("HTTP/1.1 200 OK\nContent-Length: 2\n\n", "200 2 content-length=2 | "),
            ("Status: 404\n\n", "404 | "),
            ("HTTP/1.1 200", "more"),
            ("HTTP/1.1 200\nStatus: 404\n\n", "duplicate Status: Status: 404"),
            ("HTTP/2 200\n\n", &format!("{INVALID}HTTP/2 200")),
            ("HTTP/1.1 101 Switching\n\n", &format!("{INVALID}HTTP/1.1 101 Switching")),
            ("HTTP/1.1 2000\n\n", &format!("{INVALID}HTTP/1.1 2000")),
            ("HTTP/1.1\n\n", &format!("{INVALID}HTTP/1.1")),
            ("X: y\nHTTP/1.1 200 OK\n\n", &format!("{LINE}HTTP/1.1 200 OK")),
        ] {
            assert_eq!(parsed_as(HeadForm::CgiOrHttp, output.as_bytes()), expected, "{output:?}");
        }
    }

    #[test]
    fn rejects_heads_above_the_limit() {
        for (spaces, body, expected) in [
            (82, "", "200 content-type=a/b | "),
            (82, "body", "200 content-type=a/b | body"),
            (83, "", "its head is larger than allowed"),
        ] {
            // 18 bytes plus the spaces.
            let output = format!("Content-Type:{}a/b\n\n{body}", " ".repeat(spaces));
            assert_eq!(parsed(output.as_bytes()), expected);
        }
        assert_eq!(parsed(&[b'x'; 100]), "more");
        assert_eq!(parsed(&[b'x'; 101]), "its head is larger than allowed");
    }

    #[test]
    fn waits_for_a_complete_head() {
        let output = b"Content-Type: a/b\r\nStatus: 404\n\r\n";
        let mut in_pieces = ScriptHeadParser::new(HeadForm::Cgi, 100);
        for end in 0..output.len() {
            assert_eq!(parsed(&output[..end]), "more", "{end}");
            assert!(matches!(in_pieces.parse(&output[..end]), Ok(None)), "{end}");
            assert_eq!(in_pieces.searched, end, "no byte is searched again");
        }
        assert_eq!(parsed(output), "404 content-type=a/b | ");
        assert!(matches!(in_pieces.parse(output), Ok(Some((_, end))) if end == output.len()));
    }
}
