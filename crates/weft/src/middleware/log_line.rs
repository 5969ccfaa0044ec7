//! What stands in a line of the access log, and how it is escaped.

use std::cell::Cell;
use std::fmt::Write;
use std::net::IpAddr;
use std::time::{Duration, UNIX_EPOCH};

use http::StatusCode;

use super::auth::User;
use super::request_id::RequestId;
use crate::date::{self, civil, http_date};
use crate::deadline::Stopwatch;
use crate::error::{Error, ErrorKind, Result};
use crate::fields::Field;
use crate::request::{Head, Request};

/// What is known of a request and its response when it is over.
pub(super) struct Entry {
    pub(super) head: Head,
    peer: Option<IpAddr>,
    /// When the request came, in seconds since 1970.
    pub(super) time: u64,
    watch: Stopwatch,
    /// If it was given before the request came here.
    id: Option<RequestId>,
    pub(super) user: Option<User>,
    pub(super) status: StatusCode,
    pub(super) bytes: u64,
    pub(super) end: End,
}

/// How a response ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Whole,
    /// Not, as far as anybody knows: the client left.
    Left,
    Failed,
}

impl Entry {
    /// A request that nobody has answered yet.
    pub(super) fn new(request: &Request) -> Entry {
        Entry {
            head: request.head().clone(),
            peer: request.peer().address().map(|address| address.ip()),
            time: date::now(),
            watch: Stopwatch::start(),
            id: request.extensions().get().cloned(),
            user: None,
            status: StatusCode::OK,
            bytes: 0,
            end: End::Left,
        }
    }

    /// The id that the request was given, on this side of the log or on the other.
    fn id<'a>(&'a self, fields: &'a [Field]) -> Option<&'a [u8]> {
        let given = self.id.as_ref().map(|id| id.as_str().as_bytes());
        given.or_else(|| value(fields, "x-request-id"))
    }
}

/// What a line looks like.
#[derive(Debug)]
pub(super) enum Format {
    Json,
    Pattern(Vec<Piece>),
}

#[derive(Debug)]
pub(super) enum Piece {
    Text(Box<str>),
    Peer,
    User,
    Time,
    RequestLine,
    Status,
    Bytes,
    BytesOrDash,
    Microseconds,
    Id,
    End,
    RequestField(Box<str>),
    ResponseField(Box<str>),
}

impl Format {
    pub(super) fn combined() -> Format {
        let pattern = r#"%h - %u %t "%r" %s %b "%{Referer}i" "%{User-Agent}i""#;
        Format::parse(pattern).expect("a valid pattern")
    }

    pub(super) fn parse(pattern: &str) -> Result<Format> {
        let mut pieces = Vec::new();
        let mut rest = pattern;
        while let Some((text, directive)) = rest.split_once('%') {
            pieces.push(Piece::Text(text.into()));
            let (piece, behind) = directive_of(directive).ok_or_else(|| unknown(directive))?;
            pieces.push(piece);
            rest = behind;
        }
        pieces.push(Piece::Text(rest.into()));
        pieces.retain(|piece| !matches!(piece, Piece::Text(text) if text.is_empty()));
        Ok(Format::Pattern(pieces))
    }

    /// Whether a line has fields of the response.
    pub(super) fn has_fields(&self) -> bool {
        match self {
            Format::Json => true,
            Format::Pattern(pieces) => {
                pieces.iter().any(|piece| matches!(piece, Piece::ResponseField(_) | Piece::Id))
            }
        }
    }
}

/// What begins behind a percent sign, and the rest.
fn directive_of(text: &str) -> Option<(Piece, &str)> {
    if let Some(named) = text.strip_prefix('{') {
        let (name, rest) = named.split_once('}')?;
        return match rest.as_bytes().first()? {
            b'i' => Some((Piece::RequestField(name.into()), &rest[1..])),
            b'o' => Some((Piece::ResponseField(name.into()), &rest[1..])),
            _ => None,
        };
    }
    let text = text.strip_prefix('>').filter(|text| text.starts_with('s')).unwrap_or(text);
    let piece = match text.as_bytes().first()? {
        b'h' => Piece::Peer,
        b'l' => Piece::Text("-".into()),
        b'u' => Piece::User,
        b't' => Piece::Time,
        b'r' => Piece::RequestLine,
        b's' => Piece::Status,
        b'b' => Piece::BytesOrDash,
        b'B' => Piece::Bytes,
        b'D' => Piece::Microseconds,
        b'L' => Piece::Id,
        b'X' => Piece::End,
        b'%' => Piece::Text("%".into()),
        _ => return None,
    };
    Some((piece, &text[1..]))
}

fn unknown(directive: &str) -> Error {
    let known = "h, l, u, t, r, s, >s, b, B, D, L, X, {name}i, {name}o or %";
    let found = match directive.chars().next() {
        Some('{') => format!("{:?}", directive.split_inclusive(' ').next().unwrap_or_default()),
        Some(other) => format!("{other:?}"),
        None => "the end".to_owned(),
    };
    let reason = format!("expected {known} behind the % of a log pattern, found {found}");
    Error::new(ErrorKind::InvalidSetting, reason)
}

/// Where a line is put together, and the time as it was last written.
#[derive(Default)]
pub(super) struct Line {
    text: String,
    second: Option<u64>,
    /// `06/Nov/1994:08:49:37 +0000`
    apache_time: String,
    /// `1994-11-06T08:49:37Z`
    rfc3339_time: String,
}

thread_local! {
    static LINE: Cell<Line> = Cell::default();
}

impl Line {
    /// Lends the thread's line. It is taken out meanwhile, so that a sink that ends up here
    /// again gets one too.
    pub(super) fn with(write: impl FnOnce(&mut Line)) {
        let mut line = LINE.take();
        write(&mut line);
        LINE.set(line);
    }

    /// The line of an entry, with its line feed.
    pub(super) fn compose(&mut self, format: &Format, entry: &Entry, fields: &[Field]) -> &str {
        self.set_time(entry.time);
        self.text.clear();
        match format {
            Format::Json => self.json(entry, fields),
            Format::Pattern(pieces) => {
                pieces.iter().for_each(|piece| self.piece(piece, entry, fields));
            }
        }
        self.text.push('\n');
        &self.text
    }

    /// Writes both forms of the time, once a second.
    fn set_time(&mut self, second: u64) {
        if self.second.replace(second) == Some(second) {
            return;
        }
        let date = http_date(UNIX_EPOCH + Duration::from_secs(second));
        let (day, month_name, year, time) =
            (&date[5..7], &date[8..11], &date[12..16], &date[17..25]);
        let (_, month, _) = civil(second / 86_400);
        self.apache_time = format!("{day}/{month_name}/{year}:{time} +0000");
        self.rfc3339_time = format!("{year}-{month:02}-{day}T{time}Z");
    }

    fn piece(&mut self, piece: &Piece, entry: &Entry, fields: &[Field]) {
        let Line { text, apache_time, .. } = self;
        match piece {
            Piece::Text(literal) => text.push_str(literal),
            Piece::Peer => match entry.peer {
                Some(peer) => append(text, format_args!("{peer}")),
                None => text.push_str("unix:"),
            },
            Piece::User => escape(text, entry.user.as_ref().map(|user| user.as_str().as_bytes())),
            Piece::Time => append(text, format_args!("[{apache_time}]")),
            Piece::RequestLine => {
                escape(text, Some(entry.head.method().as_str().as_bytes()));
                text.push(' ');
                escape(text, Some(entry.head.target().as_bytes()));
                append(text, format_args!(" {:?}", entry.head.version()));
            }
            Piece::Status => text.push_str(entry.status.as_str()),
            Piece::BytesOrDash if entry.bytes == 0 => text.push('-'),
            Piece::Bytes | Piece::BytesOrDash => append(text, format_args!("{}", entry.bytes)),
            Piece::Microseconds => append(text, format_args!("{}", microseconds(entry))),
            Piece::Id => escape(text, entry.id(fields)),
            Piece::End => text.push(if entry.end == End::Whole { '+' } else { 'X' }),
            Piece::RequestField(name) => escape(text, entry.head.headers().get_bytes(name)),
            Piece::ResponseField(name) => escape(text, value(fields, name)),
        }
    }

    fn json(&mut self, entry: &Entry, fields: &[Field]) {
        let Line { text, rfc3339_time, .. } = self;
        let Entry { head, status, bytes, .. } = entry;
        append(text, format_args!("{{\"time\":\"{rfc3339_time}\",\"peer\":"));
        match entry.peer {
            Some(peer) => append(text, format_args!("\"{peer}\"")),
            None => text.push_str("null"),
        }
        member(text, "user", entry.user.as_ref().map(|user| user.as_str().as_bytes()));
        member(text, "method", Some(head.method().as_str().as_bytes()));
        member(text, "target", Some(head.target().as_bytes()));
        append(text, format_args!(",\"version\":\"{:?}\"", head.version()));
        member(text, "host", head.authority().map(str::as_bytes));
        let status = status.as_u16();
        append(text, format_args!(",\"status\":{status},\"bytes\":{bytes}"));
        append(text, format_args!(",\"microseconds\":{}", microseconds(entry)));
        member(text, "referer", head.headers().get_bytes("referer"));
        member(text, "user_agent", head.headers().get_bytes("user-agent"));
        member(text, "request_id", entry.id(fields));
        let end = match entry.end {
            End::Whole => "whole",
            End::Left => "left",
            End::Failed => "failed",
        };
        append(text, format_args!(",\"end\":\"{end}\"}}"));
    }
}

fn microseconds(entry: &Entry) -> u128 {
    entry.watch.elapsed().as_micros()
}

fn value<'a>(fields: &'a [Field], name: &str) -> Option<&'a [u8]> {
    let found = fields.iter().find(|(n, _)| n.as_str().eq_ignore_ascii_case(name));
    found.map(|(_, value)| value.as_bytes())
}

fn append(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    text.write_fmt(arguments).expect("a string takes everything");
}

/// Appends somebody else's bytes, or `-`, so that they can end neither the quotes around
/// them nor the line, and mean nothing to a terminal.
fn escape(text: &mut String, bytes: Option<&[u8]>) {
    for &b in bytes.unwrap_or(b"-") {
        match b {
            b'"' | b'\\' => text.extend(['\\', char::from(b)]),
            b' '..=b'~' => text.push(char::from(b)),
            _ => append(text, format_args!("\\x{b:02x}")),
        }
    }
}

/// Appends a member of a JSON object (RFC 8259 §7). All that is not printable ASCII is
/// escaped: it comes back when the JSON is read, and does nothing to who looks at the file.
fn member(text: &mut String, name: &str, bytes: Option<&[u8]>) {
    append(text, format_args!(",\"{name}\":"));
    let Some(bytes) = bytes else { return text.push_str("null") };
    text.push('"');
    for c in String::from_utf8_lossy(bytes).chars() {
        match c {
            '"' | '\\' => text.extend(['\\', c]),
            ' '..='~' => text.push(c),
            _ => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    append(text, format_args!("\\u{unit:04x}"));
                }
            }
        }
    }
    text.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        let mut line = Line::default();
        for (second, apache, rfc3339) in [
            (784_111_777, "06/Nov/1994:08:49:37 +0000", "1994-11-06T08:49:37Z"),
            (951_782_400, "29/Feb/2000:00:00:00 +0000", "2000-02-29T00:00:00Z"),
            (784_111_777, "06/Nov/1994:08:49:37 +0000", "1994-11-06T08:49:37Z"),
        ] {
            line.set_time(second);
            assert_eq!((&*line.apache_time, &*line.rfc3339_time), (apache, rfc3339));
        }
    }

    #[test]
    fn nothing_ends_a_line() {
        let every_byte: Vec<u8> = (0..=255).collect();
        let mut text = String::new();
        escape(&mut text, Some(&every_byte));
        member(&mut text, "name", Some(&every_byte));
        assert!(text.bytes().all(|b| (b' '..=b'~').contains(&b)), "{text}");
    }
}
