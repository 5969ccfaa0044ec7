//! Serialization of response heads (RFC 9112 §4 to §6). Pure.
//!
//! The required capacity is reserved first; then every part is copied once. `std::fmt` is not used.
//!
//! ```
//! use http::{StatusCode, Version};
//! use weft_proto::http1::compose::{self, FieldSources, HeadPrefix, ResponseHead};
//! use weft_proto::http1::framing::ResponseFraming;
//! use weft_proto::semantics::date::imf_fixdate;
//!
//! let mut head_prefix = HeadPrefix::new(None);
//! head_prefix.set_date(&imf_fixdate(784_111_777));
//! let head = ResponseHead {
//!     version: Version::HTTP_11,
//!     status: StatusCode::OK,
//!     fields: FieldSources { forwarded: None, list: &[], lines: b"content-type: text/plain\r\n" },
//!     framing: ResponseFraming::Sized(5),
//!     keep_alive: true,
//!     head_prefix: &head_prefix,
//! };
//! let mut out = Vec::new();
//! compose::head(&mut out, &head);
//! assert_eq!(
//!     out,
//!     b"HTTP/1.1 200 OK\r\ndate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
//!       content-length: 5\r\ncontent-type: text/plain\r\n\r\n"
//! );
//! ```

use http::header::{CONNECTION, CONTENT_LENGTH, DATE, SERVER, TRANSFER_ENCODING};
use http::{HeaderName, HeaderValue, StatusCode, Version};

use crate::headers::Headers;
use crate::http1::framing::ResponseFraming;
use crate::names::is_same_name;

/// A field of a response.
pub type Field = (HeaderName, HeaderValue);

/// The fields of a response in three forms, written in this order.
#[derive(Clone, Copy, Debug)]
pub struct FieldSources<'a> {
    /// The fields of a forwarded message.
    pub forwarded: Option<&'a Headers>,
    /// A list of fields.
    pub list: &'a [Field],
    /// Serialized field lines, each with its CRLF. They must contain neither fields that frame the
    /// message nor `date` and `server`.
    pub lines: &'a [u8],
}

/// The parts of a response head.
#[derive(Debug)]
pub struct ResponseHead<'a> {
    /// The version of the request, which determines the default of connection persistence.
    pub version: Version,
    /// The status.
    pub status: StatusCode,
    /// The fields except those that frame the message.
    pub fields: FieldSources<'a>,
    /// The framing of the body.
    pub framing: ResponseFraming,
    /// Set if the connection persists after the response.
    pub keep_alive: bool,
    /// The lines at the start of the head.
    pub head_prefix: &'a HeadPrefix,
}

/// The lines at the start of most heads: the status line of 200, `date` and `server`. Updated once
/// per second, so that composing a head copies them at once.
#[derive(Debug)]
pub struct HeadPrefix(Vec<u8>);

impl HeadPrefix {
    /// Creates the lines with an arbitrary date. Without `server` there is no `server` line.
    pub fn new(server: Option<&HeaderValue>) -> HeadPrefix {
        let mut lines = [STATUS_LINE, b"date: Sun, 06 Nov 1994 08:49:37 GMT\r\n"].concat();
        if let Some(name) = server {
            field(&mut lines, &SERVER, name);
        }
        HeadPrefix(lines)
    }

    /// Replaces the date, which has the form of
    /// [`imf_fixdate`](crate::semantics::date::imf_fixdate).
    pub fn set_date(&mut self, date: &[u8; 29]) {
        let start = STATUS_LINE.len() + "date: ".len();
        self.0[start..start + date.len()].copy_from_slice(date);
    }

    /// Returns the date without the field name.
    #[inline]
    pub fn date(&self) -> &[u8] {
        &self.date_line()["date: ".len()..][..29]
    }

    fn date_line(&self) -> &[u8] {
        &self.0[STATUS_LINE.len()..DATE_END]
    }

    fn server(&self) -> &[u8] {
        &self.0[DATE_END..]
    }
}

/// Appends the head.
///
/// The fields that frame the message are written from `framing` and `keep_alive` only. Those of
/// `forwarded` and `list` are omitted, so that a field cannot contradict the body.
pub fn head(out: &mut Vec<u8>, head: &ResponseHead<'_>) {
    let (mut has_date, mut has_server) = (false, false);
    let mut length =
        head.head_prefix.0.len() + MAX_REASON_BYTES + MAX_FRAMING_BYTES + CLOSE_LINE.len();
    let FieldSources { forwarded, list, lines } = &head.fields;
    for (name, value) in *list {
        has_date |= *name == DATE;
        has_server |= *name == SERVER;
        length += name.as_str().len() + value.len() + 4;
    }
    if let Some(forwarded) = forwarded {
        for (name, value) in forwarded.iter_bytes() {
            match name.len() {
                4 => has_date |= is_same_name(name, b"date"),
                6 => has_server |= is_same_name(name, b"server"),
                _ => {}
            }
            length += name.len() + value.len() + 4;
        }
    }
    out.reserve(length + lines.len());

    if head.status == StatusCode::OK && !has_date && !has_server {
        out.extend_from_slice(&head.head_prefix.0);
    } else {
        status_line(out, head.status);
        if !has_date {
            out.extend_from_slice(head.head_prefix.date_line());
        }
        if !has_server {
            out.extend_from_slice(head.head_prefix.server());
        }
    }
    framing(out, head.framing);
    match (head.version, head.keep_alive) {
        (_, false) => out.extend_from_slice(CLOSE_LINE),
        (Version::HTTP_10, true) => out.extend_from_slice(b"connection: keep-alive\r\n"),
        (_, true) => {}
    }
    fields(out, &head.fields);
    out.extend_from_slice(b"\r\n");
}

/// Appends the head of an interim response.
pub fn interim_head(out: &mut Vec<u8>, status: StatusCode, list: &FieldSources<'_>) {
    status_line(out, status);
    fields(out, list);
    out.extend_from_slice(b"\r\n");
}

/// Appends the field lines except [`FRAMING_FIELDS`].
fn fields(out: &mut Vec<u8>, FieldSources { forwarded, list, lines }: &FieldSources<'_>) {
    if let Some(forwarded) = forwarded {
        passed_fields(out, forwarded);
    }
    for (name, value) in *list {
        if !FRAMING_FIELDS.contains(name) {
            field(out, name, value);
        }
    }
    out.extend_from_slice(lines);
}

fn passed_fields(out: &mut Vec<u8>, headers: &Headers) {
    for (name, value) in headers.iter_bytes() {
        let is_framing = match name.len() {
            10 => is_same_name(name, b"connection"),
            14 => is_same_name(name, b"content-length"),
            17 => is_same_name(name, b"transfer-encoding"),
            _ => false,
        };
        if !is_framing {
            line(out, name, value);
        }
    }
}

/// Fields that frame a message. The engine alone writes them.
pub(super) static FRAMING_FIELDS: [HeaderName; 3] = [CONTENT_LENGTH, TRANSFER_ENCODING, CONNECTION];

const STATUS_LINE: &[u8] = b"HTTP/1.1 200 OK\r\n";
/// End of the date line in a [`HeadPrefix`].
const DATE_END: usize = STATUS_LINE.len() + "date: Sun, 06 Nov 1994 08:49:37 GMT\r\n".len();
const CLOSE_LINE: &[u8] = b"connection: close\r\n";
/// The longest registered reason phrase has 31 bytes.
const MAX_REASON_BYTES: usize = 32;
const MAX_FRAMING_BYTES: usize = b"content-length: 18446744073709551615\r\n".len();

/// Appends the status line. It has the version of the server, regardless of the request's (RFC 9110
/// §6.2).
fn status_line(out: &mut Vec<u8>, status: StatusCode) {
    if status == StatusCode::OK {
        return out.extend_from_slice(STATUS_LINE);
    }
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(status.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(status.canonical_reason().unwrap_or("").as_bytes());
    out.extend_from_slice(b"\r\n");
}

fn framing(out: &mut Vec<u8>, framing: ResponseFraming) {
    match framing {
        ResponseFraming::Bodiless | ResponseFraming::UntilClose => {}
        ResponseFraming::Chunked => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        ResponseFraming::Sized(length) => {
            length_line(out, length);
        }
    }
}

/// Appends the `content-length` line: formatted backward from its end, then copied once.
fn length_line(out: &mut Vec<u8>, length: u64) {
    const NAME: usize = "content-length: ".len();
    let mut line = *b"content-length: 18446744073709551615\r\n";
    let digits = line.len() - 2;
    let start = decimal(&mut line[..digits], length);
    line.copy_within(..NAME, start - NAME);
    out.extend_from_slice(&line[start - NAME..]);
}

/// Writes a decimal number at the end of `buffer`. Returns the position of its first digit.
pub(crate) fn decimal(buffer: &mut [u8], mut number: u64) -> usize {
    let mut start = buffer.len();
    loop {
        start -= 1;
        buffer[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return start;
        }
    }
}

/// Appends a field line.
pub fn field(out: &mut Vec<u8>, name: &HeaderName, value: &HeaderValue) {
    line(out, name.as_str().as_bytes(), value.as_bytes());
}

#[inline(always)]
fn line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::header::{CONTENT_TYPE, LOCATION};

    #[test]
    fn composes_heads() {
        let field = |name, value| (name, HeaderValue::from_static(value));
        let cases = [
            (
                (Version::HTTP_11, 200, ResponseFraming::Sized(5), true),
                vec![field(CONTENT_TYPE, "text/plain")],
                "HTTP/1.1 200 OK\r\ndate: DATE\r\nserver: S\r\ncontent-length: 5\r\n\
                 content-type: text/plain\r\n\r\n",
            ),
            (
                (Version::HTTP_11, 404, ResponseFraming::Chunked, false),
                vec![],
                "HTTP/1.1 404 Not Found\r\ndate: DATE\r\nserver: S\r\n\
                 transfer-encoding: chunked\r\nconnection: close\r\n\r\n",
            ),
            (
                (Version::HTTP_10, 301, ResponseFraming::Sized(0), true),
                vec![field(LOCATION, "/a")],
                "HTTP/1.1 301 Moved Permanently\r\ndate: DATE\r\nserver: S\r\n\
                 content-length: 0\r\nconnection: keep-alive\r\nlocation: /a\r\n\r\n",
            ),
            (
                (Version::HTTP_10, 200, ResponseFraming::UntilClose, false),
                vec![field(SERVER, "mine"), field(DATE, "then")],
                "HTTP/1.1 200 OK\r\nconnection: close\r\nserver: mine\r\ndate: then\r\n\r\n",
            ),
            (
                (Version::HTTP_11, 204, ResponseFraming::Bodiless, true),
                vec![field(CONTENT_LENGTH, "9"), field(TRANSFER_ENCODING, "chunked")],
                "HTTP/1.1 204 No Content\r\ndate: DATE\r\nserver: S\r\n\r\n",
            ),
            (
                (Version::HTTP_11, 799, ResponseFraming::Sized(u64::MAX), true),
                vec![],
                "HTTP/1.1 799 \r\ndate: DATE\r\nserver: S\r\n\
                 content-length: 18446744073709551615\r\n\r\n",
            ),
        ];
        let head_prefix = HeadPrefix::new(Some(&HeaderValue::from_static("S")));
        for ((version, status, framing, keep_alive), fields, expected) in cases {
            let expected = expected.replace("DATE", "Sun, 06 Nov 1994 08:49:37 GMT");
            let mut out = Vec::new();
            head(
                &mut out,
                &ResponseHead {
                    version,
                    status: StatusCode::from_u16(status).unwrap(),
                    fields: FieldSources { forwarded: None, list: &fields, lines: b"" },
                    framing,
                    keep_alive,
                    head_prefix: &head_prefix,
                },
            );
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }
}
