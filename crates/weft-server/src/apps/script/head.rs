//! Head of a script's response (RFC 3875 §6): bytes → status and fields. Pure.

use weft::header::CONTENT_TYPE;
use weft::{HeaderName, HeaderValue, Response, StatusCode};

/// Response head written by a script.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ScriptHead {
    pub(crate) status: StatusCode,
    /// `Content-Length` of the body, if the script sets one.
    pub(crate) length: Option<u64>,
    /// Fields that are passed to the client, except `Content-Length`.
    pub(crate) fields: Vec<(HeaderName, HeaderValue)>,
}

impl ScriptHead {
    /// Returns true if the body is an event stream.
    pub(crate) fn is_event_stream(&self) -> bool {
        const EVENTS: &[u8] = b"text/event-stream";
        self.fields.iter().any(|(name, value)| {
            let kind = value.as_bytes().get(..EVENTS.len());
            name == CONTENT_TYPE && kind.is_some_and(|kind| kind.eq_ignore_ascii_case(EVENTS))
        })
    }

    /// Returns true if the script asks for its response not to be buffered, as with nginx.
    pub(crate) fn refuses_buffering(&self) -> bool {
        let mut fields = self.fields.iter();
        fields.any(|(name, value)| {
            name == "x-accel-buffering" && value.as_bytes().eq_ignore_ascii_case(b"no")
        })
    }
}

/// Fields that apply to one connection only (RFC 9110 §7.6.1). The engine sets its own.
pub(crate) const HOP_BY_HOP_FIELDS: [&str; 9] = [
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
pub(crate) enum HeadForm {
    /// A field, as all others.
    Cgi,
    /// A field or a status line of HTTP/1 (RFC 9112 §4), as servers of uwsgi send it.
    CgiOrHttp,
}

/// Parses the head at the start of `output`, which may have up to `max_bytes` bytes. Returns the
/// head and its length in bytes, `None` if it is incomplete, or a message if it is invalid.
pub(crate) fn parse(
    output: &[u8],
    form: HeadForm,
    max_bytes: usize,
) -> Result<Option<(ScriptHead, usize)>, String> {
    let end = head_len(output);
    if end.unwrap_or(output.len()) > max_bytes {
        return Err("its head is larger than allowed".to_owned());
    }
    let Some(end) = end else { return Ok(None) };
    let mut builder = HeadBuilder::default();
    for (number, line) in output[..end].split(|&b| b == b'\n').enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match line {
            [] => {}
            [b'H', b'T', b'T', b'P', b'/', ..] if number == 0 && form == HeadForm::CgiOrHttp => {
                builder.parse_status_line(line)?;
            }
            _ => builder.parse_line(line)?,
        }
    }
    Ok(Some((builder.build()?, end)))
}

/// Returns the offset after the empty line. Lines end in LF or CRLF (§6.2).
fn head_len(output: &[u8]) -> Option<usize> {
    let mut start = 0;
    loop {
        let line = output[start..].iter().position(|&b| b == b'\n')?;
        let is_empty = matches!(&output[start..start + line], b"" | b"\r");
        start += line + 1;
        if is_empty {
            return Some(start);
        }
    }
}

/// Collects the fields of a head.
#[derive(Default)]
struct HeadBuilder {
    status: Option<StatusCode>,
    length: Option<u64>,
    has_type: bool,
    has_location: bool,
    fields: Vec<(HeaderName, HeaderValue)>,
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

    fn parse_line(&mut self, line: &[u8]) -> Result<(), String> {
        let fail =
            |reason: &str| Err(format!("{reason}: {}", line[..line.len().min(80)].escape_ascii()));
        if line.starts_with(b"HTTP/") {
            return fail("it speaks HTTP itself (`nph-`), which is not supported");
        }
        let Some(colon) = line.iter().position(|&b| b == b':') else {
            return fail("a line of its head has no colon");
        };
        let (Ok(name), Ok(value)) = (
            HeaderName::from_bytes(&line[..colon]),
            HeaderValue::from_bytes(line[colon + 1..].trim_ascii()),
        ) else {
            return fail("a line of its head is not a valid field");
        };
        match name.as_str() {
            "status" => match (self.status, parse_status(value.as_bytes())) {
                (None, Some(status)) => self.status = Some(status),
                (None, None) => return fail("no status that a response can have"),
                (Some(_), _) => return fail("duplicate Status"),
            },
            "content-length" => match (self.length, value.to_str().unwrap_or_default().parse()) {
                (None, Ok(length)) => self.length = Some(length),
                _ => return fail("invalid or duplicate Content-Length"),
            },
            "content-type" if self.has_type => return fail("duplicate Content-Type"),
            "location" if self.has_location => return fail("duplicate Location"),
            name if HOP_BY_HOP_FIELDS.contains(&name) => {}
            _ => {
                self.has_type |= name.as_str() == "content-type";
                self.has_location |= name.as_str() == "location";
                self.fields.push((name, value));
            }
        }
        Ok(())
    }

    fn build(self) -> Result<ScriptHead, String> {
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
        Ok(ScriptHead { status, length, fields })
    }
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
    /// Returns whether the status allows a body, regardless of the request's method (RFC 9110
    /// §6.4.1).
    pub(crate) fn has_body(&self) -> bool {
        !matches!(self.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
    }

    /// Sets status and fields of a response that has the body already.
    pub(crate) fn apply_to(self, response: Response) -> Response {
        let mut response = response.with_status(self.status);
        // A 204 has no `Content-Length` (RFC 9110 §8.6).
        if let Some(length) = self.length.filter(|_| self.status != StatusCode::NO_CONTENT) {
            response.set_header(weft::header::CONTENT_LENGTH, length.to_string());
        }
        for (name, value) in self.fields {
            response = response.with_header(name, value);
        }
        response
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
        match parse(output, form, 100) {
            Ok(None) => "more".to_owned(),
            Err(reason) => reason,
            Ok(Some((ScriptHead { status, length, fields }, end))) => {
                let length = length.map_or(String::new(), |length| format!(" {length}"));
                let fields = fields.iter().map(|(n, v)| format!(" {n}={}", v.to_str().unwrap()));
                let fields = fields.collect::<String>();
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
            ("Content-Length: 5\nContent-Type: a/b\n\nhello", "200 5 content-type=a/b | hello"),
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
                "it speaks HTTP itself (`nph-`), which is not supported: HTTP/1.1 200 OK",
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
        const LINE: &str = "it speaks HTTP itself (`nph-`), which is not supported: ";
        const INVALID: &str = "no valid status line: ";
        for (output, expected) in [
            ("HTTP/1.1 404 Not Found\r\nX: y\r\n\r\nz", "404 x=y | z"),
            ("HTTP/1.0 204\r\n\r\n", "204 | "),
            ("HTTP/1.1 200 OK\nContent-Length: 2\n\n", "200 2 | "),
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
        for end in 0..output.len() {
            assert_eq!(parsed(&output[..end]), "more", "{end}");
        }
        assert_eq!(parsed(output), "404 content-type=a/b | ");
    }
}
