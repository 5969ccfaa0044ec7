//! Content and escaping of access log lines.

use std::cell::RefCell;
use std::io::Write;
use std::net::IpAddr;
use std::time::Duration;

use crate::middleware::logs::log_value::{LogEntry, LogValue, Outcome, ValueName, version};
use weft_proto::http1::scan::plain;
use weft_proto::semantics::date::{imf_fixdate, rfc3339_utc};

/// The parts of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Json(Vec<JsonMember>),
    Pattern(Vec<FormatItem>),
}

/// A member of the JSON object of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JsonMember {
    pub(crate) name: Box<str>,
    pub(crate) value: ValueName,
}

/// An item of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FormatItem {
    Literal(Box<str>),
    ApacheTime,
    RequestLine,
    BytesOrDash,
    Outcome,
    Value(ValueName),
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
        time.set(entry.time.as_secs());
        match format {
            Format::Json(members) => push_json(text, members, entry, time),
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
        FormatItem::ApacheTime => {
            text.push(b'[');
            text.extend_from_slice(&time.apache);
            text.push(b']');
        }
        FormatItem::RequestLine => match entry.head {
            Some(head) => {
                push(text, head.received_method().as_str());
                text.push(b' ');
                push_escaped(text, &entry.target().unwrap_or_default());
                text.push(b' ');
                push(text, version(head.version()));
            }
            None => push_escaped(text, &entry.invalid_request_line().unwrap_or(b"-".into())),
        },
        FormatItem::BytesOrDash if entry.bytes == 0 => text.push(b'-'),
        FormatItem::BytesOrDash => push_number(text, entry.bytes),
        FormatItem::Outcome => {
            text.push(if entry.outcome == Outcome::Complete { b'+' } else { b'X' });
        }
        FormatItem::Value(name) => match entry.value(name, &time.rfc3339) {
            Some(LogValue::Text(value)) => push_escaped(text, &value),
            Some(LogValue::Number(number)) => push_number(text, number),
            Some(LogValue::Seconds(duration)) => push_seconds(text, duration),
            Some(LogValue::Address(address)) => push_address(text, address),
            None if *name == ValueName::Peer => push(text, "unix:"),
            None => text.push(b'-'),
        },
    }
}

fn push_json(text: &mut Vec<u8>, members: &[JsonMember], entry: &LogEntry<'_>, time: &Timestamp) {
    text.push(b'{');
    for (number, JsonMember { name, value }) in members.iter().enumerate() {
        push(text, if number > 0 { ",\"" } else { "\"" });
        push(text, name);
        push(text, "\":");
        match entry.value(value, &time.rfc3339) {
            Some(LogValue::Text(value)) => push_json_text(text, &value),
            Some(LogValue::Number(number)) => push_number(text, number),
            Some(LogValue::Seconds(duration)) => push_seconds(text, duration),
            Some(LogValue::Address(address)) => {
                text.push(b'"');
                push_address(text, address);
                text.push(b'"');
            }
            None => push(text, "null"),
        }
    }
    text.push(b'}');
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

fn push_seconds(text: &mut Vec<u8>, duration: Duration) {
    push_number(text, duration.as_secs());
    let mut decimals = [b'0'; 7];
    decimals[0] = b'.';
    let mut micros = duration.subsec_micros();
    for digit in decimals[1..].iter_mut().rev() {
        *digit += (micros % 10) as u8;
        micros /= 10;
    }
    text.extend_from_slice(&decimals);
}

/// Appends untrusted bytes, escaped so that they can terminate neither the quotes around them nor
/// the line, and contain no control characters for a terminal.
fn push_escaped(text: &mut Vec<u8>, bytes: &[u8]) {
    let mut rest = bytes;
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

/// Appends a JSON string (RFC 8259 §7). All characters except printable ASCII are escaped: a JSON
/// parser restores them, and they have no effect on a terminal that shows the file.
fn push_json_text(text: &mut Vec<u8>, bytes: &[u8]) {
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
    fn formats_seconds() {
        for (micros, expected) in
            [(0, "0.000000"), (1_234, "0.001234"), (61_500_000, "61.500000"), (999_999, "0.999999")]
        {
            let mut text = Vec::new();
            push_seconds(&mut text, Duration::from_micros(micros));
            assert_eq!(text, expected.as_bytes());
        }
    }

    #[test]
    fn escapes_everything_but_printable_ascii() {
        let every_byte: Vec<u8> = (0..=255).collect();
        let mut text = Vec::new();
        push_escaped(&mut text, &every_byte);
        push_json_text(&mut text, &every_byte);
        assert!(text.iter().all(|b| (b' '..=b'~').contains(b)), "{}", text.escape_ascii());
    }
}
