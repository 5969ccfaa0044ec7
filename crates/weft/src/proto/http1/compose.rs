//! Response head → bytes. Pure.
//!
//! The exact length is made room for first; then every part is copied once. There
//! is no formatting machinery.

use http::header::{CONNECTION, CONTENT_LENGTH, DATE, SERVER, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Version};

use crate::proto::headers::Headers;
use crate::proto::http1::framing::Outgoing;

/// A field of a response.
pub(crate) type Field = (HeaderName, HeaderValue);

/// The fields that are still to be written, in three forms.
pub(crate) struct ToWrite<'a> {
    pub(crate) passed: Option<&'a Headers>,
    pub(crate) list: &'a [Field],
    /// Those that are laid out.
    pub(crate) lines: &'a [u8],
}

/// What there is to say in the head of a response.
pub(crate) struct Head<'a> {
    pub(crate) version: Version,
    pub(crate) status: StatusCode,
    pub(crate) fields: ToWrite<'a>,
    pub(crate) framing: Outgoing,
    pub(crate) keep_alive: bool,
    pub(crate) opening: &'a Opening,
}

/// The lines that most heads begin with: the status line of a success, `date` and `server`.
/// Made once a second, so that they are one copy.
pub(crate) struct Opening(Vec<u8>);

impl Opening {
    /// Without a name there is no line for it.
    pub(crate) fn new(server: Option<&HeaderValue>) -> Opening {
        let mut lines = [STATUS_LINE, b"date: Sun, 06 Nov 1994 08:49:37 GMT\r\n"].concat();
        if let Some(name) = server {
            field(&mut lines, &SERVER, name);
        }
        Opening(lines)
    }

    pub(crate) fn set_date(&mut self, date: &[u8; 29]) {
        let start = STATUS_LINE.len() + "date: ".len();
        self.0[start..start + date.len()].copy_from_slice(date);
    }

    /// The date alone.
    pub(crate) fn date(&self) -> &[u8] {
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
/// Fields that say where the message ends are ours alone: what the application set
/// was compared with its body before, and is written anew from there.
pub(crate) fn head(out: &mut Vec<u8>, head: &Head<'_>) {
    let (mut has_date, mut has_server) = (false, false);
    let mut length = head.opening.0.len() + REASON_ROOM + FRAMING_ROOM + CLOSE.len();
    let ToWrite { passed, list, lines } = &head.fields;
    for (name, value) in *list {
        has_date |= *name == DATE;
        has_server |= *name == SERVER;
        length += name.as_str().len() + value.len() + 4;
    }
    if let Some(passed) = passed {
        for (name, value) in passed.iter_bytes() {
            match name.len() {
                4 => has_date |= name.eq_ignore_ascii_case(b"date"),
                6 => has_server |= name.eq_ignore_ascii_case(b"server"),
                _ => {}
            }
            length += name.len() + value.len() + 4;
        }
    }
    out.reserve(length + lines.len());

    if head.status == StatusCode::OK && !has_date && !has_server {
        out.extend_from_slice(&head.opening.0);
    } else {
        status_line(out, head.status);
        if !has_date {
            out.extend_from_slice(head.opening.date_line());
        }
        if !has_server {
            out.extend_from_slice(head.opening.server());
        }
    }
    framing(out, head.framing);
    match (head.version, head.keep_alive) {
        (_, false) => out.extend_from_slice(CLOSE),
        (Version::HTTP_10, true) => out.extend_from_slice(b"connection: keep-alive\r\n"),
        (_, true) => {}
    }
    fields(out, &head.fields);
    out.extend_from_slice(b"\r\n");
}

/// Appends the head of an interim response.
pub(crate) fn interim_head(out: &mut Vec<u8>, status: StatusCode, of: &ToWrite<'_>) {
    status_line(out, status);
    fields(out, of);
    out.extend_from_slice(b"\r\n");
}

/// Appends the lines of fields, but of those that are ours alone.
fn fields(out: &mut Vec<u8>, ToWrite { passed, list, lines }: &ToWrite<'_>) {
    if let Some(passed) = passed {
        passed_on(out, passed);
    }
    for (name, value) in *list {
        if !OURS.contains(name) {
            field(out, name, value);
        }
    }
    out.extend_from_slice(lines);
}

fn passed_on(out: &mut Vec<u8>, headers: &Headers) {
    for (name, value) in headers.iter_bytes() {
        let is_ours = match name.len() {
            10 => name.eq_ignore_ascii_case(b"connection"),
            14 => name.eq_ignore_ascii_case(b"content-length"),
            17 => name.eq_ignore_ascii_case(b"transfer-encoding"),
            _ => false,
        };
        if !is_ours {
            line(out, name, value);
        }
    }
}

/// Fields that frame a message.
static OURS: [HeaderName; 3] = [CONTENT_LENGTH, TRANSFER_ENCODING, CONNECTION];

const STATUS_LINE: &[u8] = b"HTTP/1.1 200 OK\r\n";
/// Where the date's line ends in an opening.
const DATE_END: usize = STATUS_LINE.len() + "date: Sun, 06 Nov 1994 08:49:37 GMT\r\n".len();
const CLOSE: &[u8] = b"connection: close\r\n";
/// The longest registered reason phrase has 31 bytes.
const REASON_ROOM: usize = 32;
const FRAMING_ROOM: usize = b"content-length: 18446744073709551615\r\n".len();

/// The version is our own, whatever the request's (RFC 9110 §6.2).
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

fn framing(out: &mut Vec<u8>, framing: Outgoing) {
    match framing {
        Outgoing::Bodiless | Outgoing::UntilClose => {}
        Outgoing::Chunked => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        Outgoing::Sized(length) => {
            length_line(out, length);
        }
    }
}

/// Appends the line `content-length`: laid out from its end, and copied once.
fn length_line(out: &mut Vec<u8>, length: u64) {
    const NAME: usize = "content-length: ".len();
    let mut line = *b"content-length: 18446744073709551615\r\n";
    let digits = line.len() - 2;
    let start = decimal(&mut line[..digits], length);
    line.copy_within(..NAME, start - NAME);
    out.extend_from_slice(&line[start - NAME..]);
}

/// Writes a number in decimal at the end of this room; where it begins.
pub(crate) fn decimal(room: &mut [u8], mut number: u64) -> usize {
    let mut start = room.len();
    loop {
        start -= 1;
        room[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return start;
        }
    }
}

/// Appends a chunk's size line (RFC 9112 §7.1).
pub(crate) fn chunk_size(out: &mut Vec<u8>, size: usize) {
    let digits = (usize::BITS - size.leading_zeros()).div_ceil(4).max(1);
    for place in (0..digits).rev() {
        out.push(b"0123456789abcdef"[size >> (4 * place) & 15]);
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends the last chunk and the trailer section (RFC 9112 §7.1.2). What frames a message is
/// ours alone here, too, and nothing that may stand behind it (RFC 9110 §6.5.1).
pub(crate) fn last_chunk(out: &mut Vec<u8>, trailers: &HeaderMap) {
    out.extend_from_slice(b"0\r\n");
    for (name, value) in trailers {
        if !OURS.contains(name) {
            field(out, name, value);
        }
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends a field's line.
pub(crate) fn field(out: &mut Vec<u8>, name: &HeaderName, value: &HeaderValue) {
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
    fn heads() {
        let field = |name, value| (name, HeaderValue::from_static(value));
        let cases = [
            (
                (Version::HTTP_11, 200, Outgoing::Sized(5), true),
                vec![field(CONTENT_TYPE, "text/plain")],
                "HTTP/1.1 200 OK\r\ndate: DATE\r\nserver: S\r\ncontent-length: 5\r\n\
                 content-type: text/plain\r\n\r\n",
            ),
            (
                (Version::HTTP_11, 404, Outgoing::Chunked, false),
                vec![],
                "HTTP/1.1 404 Not Found\r\ndate: DATE\r\nserver: S\r\n\
                 transfer-encoding: chunked\r\nconnection: close\r\n\r\n",
            ),
            (
                (Version::HTTP_10, 301, Outgoing::Sized(0), true),
                vec![field(LOCATION, "/a")],
                "HTTP/1.1 301 Moved Permanently\r\ndate: DATE\r\nserver: S\r\n\
                 content-length: 0\r\nconnection: keep-alive\r\nlocation: /a\r\n\r\n",
            ),
            (
                (Version::HTTP_10, 200, Outgoing::UntilClose, false),
                vec![field(SERVER, "mine"), field(DATE, "then")],
                "HTTP/1.1 200 OK\r\nconnection: close\r\nserver: mine\r\ndate: then\r\n\r\n",
            ),
            (
                (Version::HTTP_11, 204, Outgoing::Bodiless, true),
                vec![field(CONTENT_LENGTH, "9"), field(TRANSFER_ENCODING, "chunked")],
                "HTTP/1.1 204 No Content\r\ndate: DATE\r\nserver: S\r\n\r\n",
            ),
            (
                (Version::HTTP_11, 799, Outgoing::Sized(u64::MAX), true),
                vec![],
                "HTTP/1.1 799 \r\ndate: DATE\r\nserver: S\r\n\
                 content-length: 18446744073709551615\r\n\r\n",
            ),
        ];
        let opening = Opening::new(Some(&HeaderValue::from_static("S")));
        for ((version, status, framing, keep_alive), fields, expected) in cases {
            let expected = expected.replace("DATE", "Sun, 06 Nov 1994 08:49:37 GMT");
            let mut out = Vec::new();
            head(
                &mut out,
                &Head {
                    version,
                    status: StatusCode::from_u16(status).unwrap(),
                    fields: ToWrite { passed: None, list: &fields, lines: b"" },
                    framing,
                    keep_alive,
                    opening: &opening,
                },
            );
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }

    #[test]
    fn chunk_sizes() {
        for size in [0, 1, 9, 10, 15, 16, 255, 256, 0xfff, 0x1000, 65_536, usize::MAX] {
            let mut out = Vec::new();
            chunk_size(&mut out, size);
            assert_eq!(String::from_utf8(out).unwrap(), format!("{size:x}\r\n"));
        }
    }
}
