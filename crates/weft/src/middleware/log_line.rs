//! Content and escaping of access log lines.

use std::cell::RefCell;
use std::io::Write;
use std::net::IpAddr;
use std::time::Duration;

use http::{StatusCode, Version};

use crate::message::fields::Field;
use crate::message::request::RequestHead;
use crate::middleware::log_format::{Format, FormatItem};
use weft_proto::http1::scan::plain;
use weft_proto::semantics::date::{imf_fixdate, rfc3339_utc};

/// Data about a request and its response, for one log line.
pub(crate) struct LogEntry<'a> {
    pub(crate) peer: Option<IpAddr>,
    pub(crate) head: Option<&'a RequestHead>,
    /// Start of the request line of an invalid request, which has no head.
    pub(crate) request_line: &'a [u8],
    /// Arrival of the request, in seconds since 1970.
    pub(crate) time: u64,
    pub(crate) duration: Duration,
    pub(crate) user: Option<&'a str>,
    pub(crate) id: Option<&'a str>,
    pub(crate) status: StatusCode,
    pub(crate) bytes: u64,
    pub(crate) outcome: Outcome,
    /// Fields of the response.
    pub(crate) fields: &'a [Field],
}

/// Outcome of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Complete,
    /// The end was not reached: the client disconnected.
    Disconnected,
    Failed,
}

impl<'a> LogEntry<'a> {
    /// The request ID, from the extensions of the request or from the response fields.
    fn id(&self) -> Option<&'a [u8]> {
        self.id.map(str::as_bytes).or_else(|| self.response_field("x-request-id"))
    }

    fn invalid_request_line(&self) -> Option<&'a [u8]> {
        Some(self.request_line).filter(|line| !line.is_empty())
    }

    fn request_field(&self, name: &str) -> Option<&'a [u8]> {
        self.head.and_then(|head| head.headers().get_bytes(name))
    }

    fn response_field(&self, name: &str) -> Option<&'a [u8]> {
        let found = self.fields.iter().find(|(n, _)| n.as_str().eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_bytes())
    }
}

/// A timestamp in both formats.
#[derive(Default)]
struct Timestamp {
    second: Option<u64>,
    /// `06/Nov/1994:08:49:37 +0000`
    apache: Vec<u8>,
    /// `1994-11-06T08:49:37Z`
    rfc3339: Vec<u8>,
}

impl Timestamp {
    fn set(&mut self, second: u64) {
        if self.second.replace(second) == Some(second) {
            return;
        }
        let Timestamp { apache, rfc3339, .. } = self;
        let date = imf_fixdate(second);
        apache.clear();
        for (part, separator) in [(5..7, "/"), (8..11, "/"), (12..16, ":"), (17..25, " +0000")] {
            apache.extend_from_slice(&date[part]);
            apache.extend_from_slice(separator.as_bytes());
        }
        rfc3339.clear();
        rfc3339.extend_from_slice(&rfc3339_utc(second));
    }
}

thread_local! {
    /// Timestamp of the last line; most lines have the same second as the one before.
    static TIMESTAMP: RefCell<Timestamp> = RefCell::default();
}

/// Appends the line of an entry, with its line feed.
pub(crate) fn append(text: &mut Vec<u8>, format: &Format, entry: &LogEntry<'_>) {
    TIMESTAMP.with_borrow_mut(|time| {
        time.set(entry.time);
        match format {
            Format::Json => push_json(text, entry, time),
            Format::Pattern(items) => {
                items.iter().for_each(|item| push_item(text, item, entry, time));
            }
        }
    });
    text.push(b'\n');
}

fn push_item(text: &mut Vec<u8>, item: &FormatItem, entry: &LogEntry<'_>, time: &Timestamp) {
    match item {
        FormatItem::Literal(literal) => push(text, literal),
        FormatItem::Peer => match entry.peer {
            Some(peer) => push_address(text, peer),
            None => push(text, "unix:"),
        },
        FormatItem::User => push_escaped(text, entry.user.map(str::as_bytes)),
        FormatItem::Time => {
            text.push(b'[');
            text.extend_from_slice(&time.apache);
            text.push(b']');
        }
        FormatItem::RequestLine => match entry.head {
            Some(head) => {
                push(text, head.received_method().as_str());
                text.push(b' ');
                push_escaped(text, Some(head.target().as_bytes()));
                text.push(b' ');
                push(text, version(head.version()));
            }
            None => push_escaped(text, entry.invalid_request_line()),
        },
        FormatItem::Status => push(text, entry.status.as_str()),
        FormatItem::BytesOrDash if entry.bytes == 0 => text.push(b'-'),
        FormatItem::Bytes | FormatItem::BytesOrDash => push_number(text, entry.bytes),
        FormatItem::Microseconds => push_number(text, microseconds(entry)),
        FormatItem::Id => push_escaped(text, entry.id()),
        FormatItem::Outcome => {
            text.push(if entry.outcome == Outcome::Complete { b'+' } else { b'X' });
        }
        FormatItem::RequestField(name) => push_escaped(text, entry.request_field(name)),
        FormatItem::ResponseField(name) => push_escaped(text, entry.response_field(name)),
    }
}

fn push_json(text: &mut Vec<u8>, entry: &LogEntry<'_>, time: &Timestamp) {
    push(text, "{\"time\":\"");
    text.extend_from_slice(&time.rfc3339);
    push(text, "\",\"peer\":");
    match entry.peer {
        Some(peer) => {
            text.push(b'"');
            push_address(text, peer);
            text.push(b'"');
        }
        None => push(text, "null"),
    }
    let head = entry.head;
    push_json_member(text, "user", entry.user.map(str::as_bytes));
    push_json_member(text, "method", head.map(|head| head.received_method().as_str().as_bytes()));
    push_json_member(text, "target", head.map(|head| head.target().as_bytes()));
    push_json_member(text, "version", head.map(|head| version(head.version()).as_bytes()));
    push_json_member(text, "host", head.and_then(|head| head.authority()).map(str::as_bytes));
    push(text, ",\"status\":");
    push(text, entry.status.as_str());
    push(text, ",\"bytes\":");
    push_number(text, entry.bytes);
    push(text, ",\"microseconds\":");
    push_number(text, microseconds(entry));
    push_json_member(text, "referer", entry.request_field("referer"));
    push_json_member(text, "user_agent", entry.request_field("user-agent"));
    push_json_member(text, "request_id", entry.id());
    push_json_member(text, "request_line", entry.invalid_request_line());
    let end = match entry.outcome {
        Outcome::Complete => "whole",
        Outcome::Disconnected => "left",
        Outcome::Failed => "failed",
    };
    push_json_member(text, "end", Some(end.as_bytes()));
    text.push(b'}');
}

fn microseconds(entry: &LogEntry<'_>) -> u64 {
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

fn push_fmt(text: &mut Vec<u8>, arguments: std::fmt::Arguments<'_>) {
    text.write_fmt(arguments).expect("writing to a vector cannot fail");
}

fn push_address(text: &mut Vec<u8>, address: IpAddr) {
    match address {
        // The common case, faster than `fmt`.
        IpAddr::V4(address) => {
            for (i, octet) in address.octets().into_iter().enumerate() {
                push(text, if i > 0 { "." } else { "" });
                push_number(text, octet.into());
            }
        }
        IpAddr::V6(address) => push_fmt(text, format_args!("{address}")),
    }
}

fn push_number(text: &mut Vec<u8>, mut number: u64) {
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

/// Appends untrusted bytes, or `-`, escaped so that they can terminate neither the quotes around
/// them nor the line, and contain no control characters for a terminal.
fn push_escaped(text: &mut Vec<u8>, bytes: Option<&[u8]>) {
    let mut rest = bytes.unwrap_or(b"-");
    loop {
        let (plain, after) = rest.split_at(plain(rest));
        text.extend_from_slice(plain);
        let Some((&special, after)) = after.split_first() else { return };
        match special {
            b'"' | b'\\' => text.extend_from_slice(&[b'\\', special]),
            _ => push_fmt(text, format_args!("\\x{special:02x}")),
        }
        rest = after;
    }
}

/// Appends a member of a JSON object (RFC 8259 §7). All characters except printable ASCII are
/// escaped: a JSON parser restores them, and they have no effect on a terminal that shows the file.
fn push_json_member(text: &mut Vec<u8>, name: &str, bytes: Option<&[u8]>) {
    push(text, ",\"");
    push(text, name);
    push(text, "\":");
    let Some(bytes) = bytes else { return push(text, "null") };
    text.push(b'"');
    for chunk in bytes.utf8_chunks() {
        let mut rest = chunk.valid();
        loop {
            let (plain, after) = rest.split_at(plain(rest.as_bytes()));
            push(text, plain);
            let mut after = after.chars();
            let Some(special) = after.next() else { break };
            push_json_escaped(text, special);
            rest = after.as_str();
        }
        if !chunk.invalid().is_empty() {
            push_json_escaped(text, char::REPLACEMENT_CHARACTER);
        }
    }
    text.push(b'"');
}

fn push_json_escaped(text: &mut Vec<u8>, c: char) {
    match c {
        '"' | '\\' => text.extend_from_slice(&[b'\\', c as u8]),
        _ => {
            for unit in c.encode_utf16(&mut [0; 2]) {
                push_fmt(text, format_args!("\\u{unit:04x}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_timestamps() {
        let mut time = Timestamp::default();
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
    fn formats_numbers_and_addresses() {
        for n in [0, 9, 10, 65_535, u64::MAX] {
            let mut text = Vec::new();
            push_number(&mut text, n);
            assert_eq!(text, n.to_string().as_bytes());
        }
        for shown in ["0.0.0.0", "192.0.2.255", "::1", "2001:db8::a"] {
            let mut text = Vec::new();
            push_address(&mut text, shown.parse().unwrap());
            assert_eq!(text, shown.as_bytes());
        }
    }

    #[test]
    fn escapes_everything_but_printable_ascii() {
        let every_byte: Vec<u8> = (0..=255).collect();
        let mut text = Vec::new();
        push_escaped(&mut text, Some(&every_byte));
        push_json_member(&mut text, "name", Some(&every_byte));
        assert!(text.iter().all(|b| (b' '..=b'~').contains(b)), "{}", text.escape_ascii());
    }
}
