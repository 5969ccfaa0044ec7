//! Formats of access log lines.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::{Error, ErrorKind, Result};
use crate::hooks::Record;
use crate::middleware::log_line::{self, LogEntry, Outcome};

/// Format of access log lines: Apache's combined format, a JSON object, or a custom pattern. Used
/// by the middleware [`Log`](crate::middleware::Log) and by implementations of [`Hooks`].
///
/// Data from clients is escaped, so that it can terminate neither a line nor its quotes, and no
/// control characters reach a terminal: a line is printable ASCII, except for the literal text of
/// a pattern, and always UTF-8. A line allocates nothing except space in the buffer that it is
/// appended to.
///
/// ```
/// use std::cell::RefCell;
/// use std::time::SystemTime;
/// use weft::{Hooks, LogFormat, Record};
///
/// struct AccessLog {
///     format: LogFormat,
///     lines: RefCell<Vec<u8>>,
/// }
///
/// impl Hooks for AccessLog {
///     fn on_response(&self, record: &Record<'_>) {
///         self.format.append_record(&mut self.lines.borrow_mut(), record, SystemTime::now());
///     }
/// }
///
/// let log = AccessLog { format: LogFormat::pattern("%h %s %B")?, lines: RefCell::default() };
/// # let _ = log;
/// # Ok::<(), weft::Error>(())
/// ```
///
/// [`Hooks`]: crate::Hooks
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFormat(Format);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Json,
    Pattern(Vec<FormatItem>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FormatItem {
    Literal(Box<str>),
    Peer,
    User,
    Time,
    RequestLine,
    Status,
    Bytes,
    BytesOrDash,
    Microseconds,
    Id,
    Outcome,
    RequestField(Box<str>),
    ResponseField(Box<str>),
}

impl LogFormat {
    /// Apache's combined format: `%h - %u %t "%r" %s %b "%{Referer}i" "%{User-Agent}i"`.
    pub fn combined() -> LogFormat {
        let pattern = r#"%h - %u %t "%r" %s %b "%{Referer}i" "%{User-Agent}i""#;
        LogFormat::pattern(pattern).expect("a valid pattern")
    }

    /// JSON objects, one per line, all with the members `time` (RFC 3339), `peer`, `user`,
    /// `method`, `target`, `version`, `host`, `status`, `bytes`, `microseconds`, `referer`,
    /// `user_agent`, `request_id`, `request_line` and `end`. Missing values are `null`.
    /// `request_line` is the start of the request line if the request is invalid; the other
    /// members about the request are `null` then. `end` is `"whole"`, `"failed"` or, if the client
    /// disconnected, `"left"`.
    pub fn json() -> LogFormat {
        LogFormat(Format::Json)
    }

    /// Lines of this pattern, with the following directives, as in Apache's `LogFormat`:
    ///
    /// | | |
    /// | --- | --- |
    /// | `%h` | the peer's address; `unix:` for a Unix socket |
    /// | `%l` | always `-` |
    /// | `%u` | the [`User`](crate::middleware::User), or `-` |
    /// | `%t` | time of arrival, `[06/Nov/1994:08:49:37 +0000]` |
    /// | `%r` | method, target and version; of an invalid request the start of the request line, or `-` |
    /// | `%s`, `%>s` | the status; 499 if the client disconnected before there was one |
    /// | `%b`, `%B` | the size of the body in bytes; `%b` is `-` if it is 0 |
    /// | `%D` | the duration in microseconds |
    /// | `%L` | the [`RequestId`](crate::middleware::RequestId), or `-` |
    /// | `%X` | `+` if the response is complete, `X` if it failed or the client disconnected |
    /// | `%{name}i`, `%{name}o` | the first field of that name in the request, the response; or `-` |
    /// | `%%` | a percent sign |
    ///
    /// Quotes in inserted values are escaped, spaces are not: enclose values chosen by clients in
    /// quotes.
    ///
    /// # Errors
    /// [`InvalidSetting`](ErrorKind::InvalidSetting) for an unknown directive, or if the pattern
    /// contains a control character.
    pub fn pattern(pattern: &str) -> Result<LogFormat> {
        if let Some(control) = pattern.chars().find(|c| c.is_control()) {
            let reason =
                format!("a log pattern must not contain control characters such as {control:?}");
            return Err(Error::new(ErrorKind::InvalidSetting, reason));
        }
        let mut items = Vec::new();
        let mut rest = pattern;
        while let Some((text, directive)) = rest.split_once('%') {
            items.push(FormatItem::Literal(text.into()));
            let (item, after) =
                parse_directive(directive).ok_or_else(|| unknown_directive(directive))?;
            items.push(item);
            rest = after;
        }
        items.push(FormatItem::Literal(rest.into()));
        items.retain(|item| !matches!(item, FormatItem::Literal(text) if text.is_empty()));
        Ok(LogFormat(Format::Pattern(items)))
    }

    /// Returns whether the pattern has directives that only the middleware
    /// [`Log`](crate::middleware::Log) can fill: `%L` and `%{name}o`. A [`Record`] contains neither
    /// them nor the user of `%u`; they are logged as `-` or `null`.
    pub fn needs_response(&self) -> bool {
        matches!(self.0, Format::Pattern(_)) && self.has_response_fields()
    }

    /// Returns whether lines contain fields of the response, if those are available.
    pub(crate) fn has_response_fields(&self) -> bool {
        match &self.0 {
            Format::Json => true,
            Format::Pattern(items) => items
                .iter()
                .any(|item| matches!(item, FormatItem::ResponseField(_) | FormatItem::Id)),
        }
    }

    /// Appends the line, with its line feed, of a response that ended at `now`.
    pub fn append_record(&self, text: &mut Vec<u8>, record: &Record<'_>, now: SystemTime) {
        let started = now.checked_sub(record.duration).unwrap_or(UNIX_EPOCH);
        let entry = LogEntry {
            peer: record.peer.address().map(|address| address.ip()),
            head: record.head,
            request_line: record.request_line,
            time: started.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            duration: record.duration,
            user: None,
            id: None,
            status: record.status,
            bytes: record.body_bytes,
            outcome: match record.error {
                None => Outcome::Complete,
                Some(error) if error.kind() == ErrorKind::Disconnected => Outcome::Disconnected,
                Some(_) => Outcome::Failed,
            },
            fields: &[],
        };
        self.append(text, &entry);
    }

    /// Appends the line of an entry, with its line feed.
    pub(crate) fn append(&self, text: &mut Vec<u8>, entry: &LogEntry<'_>) {
        log_line::append(text, &self.0, entry);
    }
}

/// Parses the directive after a percent sign; returns it and the rest of the pattern.
fn parse_directive(text: &str) -> Option<(FormatItem, &str)> {
    if let Some(field) = text.strip_prefix('{') {
        let (name, rest) = field.split_once('}')?;
        return match rest.as_bytes().first()? {
            b'i' => Some((FormatItem::RequestField(name.into()), &rest[1..])),
            b'o' => Some((FormatItem::ResponseField(name.into()), &rest[1..])),
            _ => None,
        };
    }
    let text = text.strip_prefix('>').filter(|text| text.starts_with('s')).unwrap_or(text);
    let item = match text.as_bytes().first()? {
        b'h' => FormatItem::Peer,
        b'l' => FormatItem::Literal("-".into()),
        b'u' => FormatItem::User,
        b't' => FormatItem::Time,
        b'r' => FormatItem::RequestLine,
        b's' => FormatItem::Status,
        b'b' => FormatItem::BytesOrDash,
        b'B' => FormatItem::Bytes,
        b'D' => FormatItem::Microseconds,
        b'L' => FormatItem::Id,
        b'X' => FormatItem::Outcome,
        b'%' => FormatItem::Literal("%".into()),
        _ => return None,
    };
    Some((item, &text[1..]))
}

fn unknown_directive(directive: &str) -> Error {
    let expected = "h, l, u, t, r, s, >s, b, B, D, L, X, {name}i, {name}o or %";
    let found = match directive.chars().next() {
        Some('{') => format!("{:?}", directive.split_inclusive(' ').next().unwrap_or_default()),
        Some(other) => format!("{other:?}"),
        None => "the end".to_owned(),
    };
    let reason = format!("expected {expected} behind the % of a log pattern, found {found}");
    Error::new(ErrorKind::InvalidSetting, reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::Peer;
    use crate::testing;
    use http::StatusCode;
    use std::time::Duration;

    const AGENT: &str = "GET /\" HTTP/1.0\r\nUser-Agent: a\"b\\c\td\u{85}é\r\n\r\n";

    /// The line of a request that took 1.5 seconds.
    fn line(format: &LogFormat, request: Option<&str>, error: Option<&Error>) -> String {
        let request = request.map(|request| testing::request(request.to_owned()));
        let record = Record {
            peer: &Peer::default(),
            head: request.as_ref().map(|request| request.head()),
            request_line: &[],
            status: StatusCode::NOT_FOUND,
            has_response: true,
            body_bytes: 0,
            duration: Duration::from_millis(1_500),
            error,
        };
        let now = UNIX_EPOCH + Duration::from_millis(784_111_778_500);
        let mut text = Vec::new();
        format.append_record(&mut text, &record, now);
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn formats_records() {
        let (disconnected, failed) = (Error::disconnected(), Error::malformed("x"));
        for (pattern, request, error, expected) in [
            ("%h %l %u", Some(AGENT), None, "unix: - -"),
            ("%t", Some(AGENT), None, "[06/Nov/1994:08:49:37 +0000]"),
            ("%r|%s|%>s|%b|%B", Some(AGENT), None, r#"GET /\" HTTP/1.0|404|404|-|0"#),
            ("%{user-agent}i %{x}i", Some(AGENT), None, r#"a\"b\\c\x09d\xc2\x85\xc3\xa9 -"#),
            ("%D %L %{ETag}o %X%%", Some(AGENT), None, "1500000 - - +%"),
            ("%r %{user-agent}i %X", None, Some(&disconnected), "- - X"),
            ("%X", None, Some(&failed), "X"),
        ] {
            let format = LogFormat::pattern(pattern).unwrap();
            assert_eq!(line(&format, request, error), format!("{expected}\n"), "{pattern}");
        }
        let expected = r#"unix: - - [06/Nov/1994:08:49:37 +0000] "-" 404 - "-" "-""#;
        assert_eq!(line(&LogFormat::combined(), None, None), format!("{expected}\n"));
        for (error, end) in
            [(None, "whole"), (Some(&disconnected), "left"), (Some(&failed), "failed")]
        {
            let expected = format!(
                "{{\"time\":\"1994-11-06T08:49:37Z\",\"peer\":null,\"user\":null,\"method\":null,\
                 \"target\":null,\"version\":null,\"host\":null,\"status\":404,\"bytes\":0,\
                 \"microseconds\":1500000,\"referer\":null,\"user_agent\":null,\
                 \"request_id\":null,\"request_line\":null,\"end\":\"{end}\"}}\n"
            );
            assert_eq!(line(&LogFormat::json(), None, error), expected);
        }
    }

    #[test]
    fn detects_directives_for_the_middleware() {
        for (pattern, needs) in
            [("%h %u %{a}i", false), ("%{a}o", true), ("%L", true), ("%%L", false)]
        {
            assert_eq!(LogFormat::pattern(pattern).unwrap().needs_response(), needs, "{pattern}");
        }
    }

    #[test]
    fn rejects_invalid_patterns() {
        for (pattern, found) in [
            ("%", "found the end"),
            ("%h %", "found the end"),
            ("%y", "found 'y'"),
            ("%>h", "found '>'"),
            ("%{a}", "found \"{a}\""),
            ("%{a}x b", "found \"{a}x \""),
            ("%{a", "found \"{a\""),
            ("%h\n%s", "control characters such as '\\n'"),
        ] {
            let error = LogFormat::pattern(pattern).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidSetting);
            assert!(error.reason().ends_with(found), "{pattern}: {error}");
        }
    }
}
