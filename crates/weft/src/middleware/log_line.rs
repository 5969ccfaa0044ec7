//! What stands in a line of the access log, and how it is escaped.

use std::cell::RefCell;
use std::io::Write;
use std::net::IpAddr;
use std::time::Duration;

use http::{StatusCode, Version};

use crate::message::fields::Field;
use crate::message::request::Head;
use crate::middleware::log_format::{Form, Piece};
use crate::proto::http1::scan::plain;
use crate::proto::semantics::date::{imf_fixdate, rfc3339_utc};

/// What is known of a request and its response when it is over.
pub(crate) struct Entry<'a> {
    pub(crate) peer: Option<IpAddr>,
    pub(crate) head: Option<&'a Head>,
    /// When the request came, in seconds since 1970.
    pub(crate) time: u64,
    pub(crate) duration: Duration,
    pub(crate) user: Option<&'a str>,
    pub(crate) id: Option<&'a str>,
    pub(crate) status: StatusCode,
    pub(crate) bytes: u64,
    pub(crate) end: End,
    /// Those of the response.
    pub(crate) fields: &'a [Field],
}

/// How a response ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Whole,
    /// Not, as far as anybody knows: the client left.
    Left,
    Failed,
}

impl<'a> Entry<'a> {
    /// The id that the request was given, on this side of the log or on the other.
    fn id(&self) -> Option<&'a [u8]> {
        self.id.map(str::as_bytes).or_else(|| self.response_field("x-request-id"))
    }

    fn request_field(&self, name: &str) -> Option<&'a [u8]> {
        self.head.and_then(|head| head.headers().get_bytes(name))
    }

    fn response_field(&self, name: &str) -> Option<&'a [u8]> {
        let found = self.fields.iter().find(|(n, _)| n.as_str().eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_bytes())
    }
}

/// A second in both forms.
#[derive(Default)]
struct Time {
    second: Option<u64>,
    /// `06/Nov/1994:08:49:37 +0000`
    apache: Vec<u8>,
    /// `1994-11-06T08:49:37Z`
    rfc3339: Vec<u8>,
}

impl Time {
    fn set(&mut self, second: u64) {
        if self.second.replace(second) == Some(second) {
            return;
        }
        let Time { apache, rfc3339, .. } = self;
        let date = imf_fixdate(second);
        apache.clear();
        for (part, behind) in [(5..7, "/"), (8..11, "/"), (12..16, ":"), (17..25, " +0000")] {
            apache.extend_from_slice(&date[part]);
            apache.extend_from_slice(behind.as_bytes());
        }
        rfc3339.clear();
        rfc3339.extend_from_slice(&rfc3339_utc(second));
    }
}

thread_local! {
    /// The second that was last written: most lines are of the same.
    static TIME: RefCell<Time> = RefCell::default();
}

/// Appends the line of an entry, with its line feed.
pub(crate) fn append(text: &mut Vec<u8>, form: &Form, entry: &Entry<'_>) {
    TIME.with_borrow_mut(|time| {
        time.set(entry.time);
        match form {
            Form::Json => json(text, entry, time),
            Form::Pattern(pieces) => {
                pieces.iter().for_each(|part| piece(text, part, entry, time));
            }
        }
    });
    text.push(b'\n');
}

fn piece(text: &mut Vec<u8>, piece: &Piece, entry: &Entry<'_>, time: &Time) {
    match piece {
        Piece::Text(literal) => push(text, literal),
        Piece::Peer => match entry.peer {
            Some(peer) => address(text, peer),
            None => push(text, "unix:"),
        },
        Piece::User => escape(text, entry.user.map(str::as_bytes)),
        Piece::Time => {
            text.push(b'[');
            text.extend_from_slice(&time.apache);
            text.push(b']');
        }
        Piece::RequestLine => match entry.head {
            Some(head) => {
                push(text, head.method().as_str());
                text.push(b' ');
                escape(text, Some(head.target().as_bytes()));
                text.push(b' ');
                push(text, version(head.version()));
            }
            None => text.push(b'-'),
        },
        Piece::Status => push(text, entry.status.as_str()),
        Piece::BytesOrDash if entry.bytes == 0 => text.push(b'-'),
        Piece::Bytes | Piece::BytesOrDash => number(text, entry.bytes),
        Piece::Microseconds => number(text, microseconds(entry)),
        Piece::Id => escape(text, entry.id()),
        Piece::End => text.push(if entry.end == End::Whole { b'+' } else { b'X' }),
        Piece::RequestField(name) => escape(text, entry.request_field(name)),
        Piece::ResponseField(name) => escape(text, entry.response_field(name)),
    }
}

fn json(text: &mut Vec<u8>, entry: &Entry<'_>, time: &Time) {
    push(text, "{\"time\":\"");
    text.extend_from_slice(&time.rfc3339);
    push(text, "\",\"peer\":");
    match entry.peer {
        Some(peer) => {
            text.push(b'"');
            address(text, peer);
            text.push(b'"');
        }
        None => push(text, "null"),
    }
    let head = entry.head;
    member(text, "user", entry.user.map(str::as_bytes));
    member(text, "method", head.map(|head| head.method().as_str().as_bytes()));
    member(text, "target", head.map(|head| head.target().as_bytes()));
    member(text, "version", head.map(|head| version(head.version()).as_bytes()));
    member(text, "host", head.and_then(|head| head.authority()).map(str::as_bytes));
    push(text, ",\"status\":");
    push(text, entry.status.as_str());
    push(text, ",\"bytes\":");
    number(text, entry.bytes);
    push(text, ",\"microseconds\":");
    number(text, microseconds(entry));
    member(text, "referer", entry.request_field("referer"));
    member(text, "user_agent", entry.request_field("user-agent"));
    member(text, "request_id", entry.id());
    let end = match entry.end {
        End::Whole => "whole",
        End::Left => "left",
        End::Failed => "failed",
    };
    member(text, "end", Some(end.as_bytes()));
    text.push(b'}');
}

fn microseconds(entry: &Entry<'_>) -> u64 {
    u64::try_from(entry.duration.as_micros()).unwrap_or(u64::MAX)
}

fn version(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2.0",
        Version::HTTP_3 => "HTTP/3.0",
        _ => "HTTP/1.1",
    }
}

fn push(text: &mut Vec<u8>, part: &str) {
    text.extend_from_slice(part.as_bytes());
}

fn format(text: &mut Vec<u8>, arguments: std::fmt::Arguments<'_>) {
    text.write_fmt(arguments).expect("a vector takes everything");
}

fn address(text: &mut Vec<u8>, address: IpAddr) {
    match address {
        // What most clients have, without the detour of formatting.
        IpAddr::V4(address) => {
            for (i, octet) in address.octets().into_iter().enumerate() {
                push(text, if i > 0 { "." } else { "" });
                number(text, octet.into());
            }
        }
        IpAddr::V6(address) => format(text, format_args!("{address}")),
    }
}

fn number(text: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return text.extend_from_slice(&digits[start..]);
        }
    }
}

/// Appends somebody else's bytes, or `-`, so that they can end neither the quotes around
/// them nor the line, and mean nothing to a terminal.
fn escape(text: &mut Vec<u8>, bytes: Option<&[u8]>) {
    let mut rest = bytes.unwrap_or(b"-");
    loop {
        let (plain, behind) = rest.split_at(plain(rest));
        text.extend_from_slice(plain);
        let Some((&stop, behind)) = behind.split_first() else { return };
        match stop {
            b'"' | b'\\' => text.extend_from_slice(&[b'\\', stop]),
            _ => format(text, format_args!("\\x{stop:02x}")),
        }
        rest = behind;
    }
}

/// Appends a member of a JSON object (RFC 8259 §7). All that is not printable ASCII is
/// escaped: it comes back when the JSON is read, and does nothing to who looks at the file.
fn member(text: &mut Vec<u8>, name: &str, bytes: Option<&[u8]>) {
    push(text, ",\"");
    push(text, name);
    push(text, "\":");
    let Some(bytes) = bytes else { return push(text, "null") };
    text.push(b'"');
    for chunk in bytes.utf8_chunks() {
        let mut rest = chunk.valid();
        loop {
            let (plain, behind) = rest.split_at(plain(rest.as_bytes()));
            push(text, plain);
            let mut behind = behind.chars();
            let Some(stop) = behind.next() else { break };
            escape_in_json(text, stop);
            rest = behind.as_str();
        }
        if !chunk.invalid().is_empty() {
            escape_in_json(text, char::REPLACEMENT_CHARACTER);
        }
    }
    text.push(b'"');
}

fn escape_in_json(text: &mut Vec<u8>, c: char) {
    match c {
        '"' | '\\' => text.extend_from_slice(&[b'\\', c as u8]),
        _ => {
            for unit in c.encode_utf16(&mut [0; 2]) {
                format(text, format_args!("\\u{unit:04x}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        let mut time = Time::default();
        for (second, apache, rfc3339) in [
            (784_111_777, "06/Nov/1994:08:49:37 +0000", "1994-11-06T08:49:37Z"),
            (951_782_400, "29/Feb/2000:00:00:00 +0000", "2000-02-29T00:00:00Z"),
            (784_111_777, "06/Nov/1994:08:49:37 +0000", "1994-11-06T08:49:37Z"),
        ] {
            time.set(second);
            assert_eq!((&*time.apache, &*time.rfc3339), (apache.as_bytes(), rfc3339.as_bytes()));
        }
    }

    #[test]
    fn numbers_and_addresses() {
        for n in [0, 9, 10, 65_535, u64::MAX] {
            let mut text = Vec::new();
            number(&mut text, n);
            assert_eq!(text, n.to_string().as_bytes());
        }
        for shown in ["0.0.0.0", "192.0.2.255", "::1", "2001:db8::a"] {
            let mut text = Vec::new();
            address(&mut text, shown.parse().unwrap());
            assert_eq!(text, shown.as_bytes());
        }
    }

    #[test]
    fn nothing_ends_a_line() {
        let every_byte: Vec<u8> = (0..=255).collect();
        let mut text = Vec::new();
        escape(&mut text, Some(&every_byte));
        member(&mut text, "name", Some(&every_byte));
        assert!(text.iter().all(|b| (b' '..=b'~').contains(b)), "{}", text.escape_ascii());
    }
}
