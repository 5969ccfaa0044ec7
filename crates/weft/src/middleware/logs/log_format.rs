//! Formats of access log lines.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::{Error, ErrorKind, Result};
use crate::hooks::Record;
use crate::middleware::logs::log_line::{self, Format, FormatItem, JsonMember};
use crate::middleware::logs::log_privacy::LogPrivacy;
use crate::middleware::logs::log_value::{LogEntry, LogValues, NoValues, Outcome, ValueName};

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
/// use weft::log::LogFormat;
/// use weft::hooks::Record;
/// use weft::Hooks;
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
pub struct LogFormat {
    format: Format,
    /// `None`: nothing is withheld.
    privacy: Option<Arc<LogPrivacy>>,
}

/// Members of the default JSON objects. They have the names of their values.
const JSON_MEMBERS: [&str; 15] = [
    "time",
    "peer",
    "user",
    "method",
    "target",
    "version",
    "host",
    "status",
    "bytes",
    "microseconds",
    "referer",
    "user_agent",
    "request_id",
    "request_line",
    "end",
];

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
        let members = JSON_MEMBERS.map(|name| (name, name));
        LogFormat::json_with(members).expect("valid members")
    }

    /// JSON objects with these members, each a pair of its name and the name of its value. The
    /// directive `%{name}x` of [patterns](LogFormat::pattern) has the same names of values.
    ///
    /// ```
    /// use weft::log::LogFormat;
    ///
    /// let format = LogFormat::json_with([("ts", "time"), ("ua", "header.User-Agent")])?;
    /// # let _ = format;
    /// # Ok::<(), weft::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidSetting`](ErrorKind::InvalidSetting) if the name of a member occurs twice or has a
    /// character other than an ASCII letter, a digit or one of `_-.@`, or if the name of a value is
    /// invalid.
    pub fn json_with<'a>(
        members: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<LogFormat> {
        let mut known = Vec::<JsonMember>::new();
        for (name, value) in members {
            let is_permitted = |b: u8| b.is_ascii_alphanumeric() || b"_-.@".contains(&b);
            if name.is_empty() || !name.bytes().all(is_permitted) {
                return Err(invalid(format!("{name:?} is not a name for a member of a log line")));
            }
            if known.iter().any(|member| *member.name == *name) {
                return Err(invalid(format!("the member {name:?} of a log line is given twice")));
            }
            let value = ValueName::parse(value).ok_or_else(|| unknown_value(value))?;
            known.push(JsonMember { name: name.into(), value });
        }
        Ok(LogFormat { format: Format::Json(known), privacy: None })
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
    /// | `%{name}x` | a value by its name, or `-` |
    /// | `%%` | a percent sign |
    ///
    /// The names of values are the names of the members of [`json`](LogFormat::json), `time_millis`
    /// (RFC 3339 with milliseconds), `seconds` (with six decimals), `peer_port`, `path`, `query`,
    /// `scheme`, `tls.version`, `tls.cipher`,
    /// `tls.server_name`, `event`, `bytes_received`,
    /// `header.NAME` and `response.NAME`. `event` is `tunnel` for the end of an upgraded
    /// connection, whose `bytes_received` are known, and `request` otherwise. Any other name is one
    /// of the application, as [`append_record_with`](LogFormat::append_record_with) documents.
    ///
    /// Quotes in inserted values are escaped, spaces are not: enclose values chosen by clients in
    /// quotes.
    ///
    /// # Errors
    /// [`InvalidSetting`](ErrorKind::InvalidSetting) for an unknown directive, or if the pattern
    /// contains a control character.
    pub fn pattern(pattern: &str) -> Result<LogFormat> {
        if let Some(control) = pattern.chars().find(|c| c.is_control()) {
            return Err(invalid(format!(
                "a log pattern must not contain control characters such as {control:?}"
            )));
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
        Ok(LogFormat { format: Format::Pattern(items), privacy: None })
    }

    /// Withholds parts of the lines.
    pub fn with_privacy(self, privacy: LogPrivacy) -> LogFormat {
        let privacy = (privacy != LogPrivacy::default()).then(|| Arc::new(privacy));
        LogFormat { privacy, ..self }
    }

    /// Returns the parts of lines that are withheld.
    pub fn privacy(&self) -> Option<&LogPrivacy> {
        self.privacy.as_deref()
    }

    /// The names of the values that a [`Record`] does not have: `user`, `request_id` and the names
    /// that the library does not define.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.values().filter_map(|value| match value {
            ValueName::User => Some("user"),
            ValueName::RequestId => Some("request_id"),
            ValueName::Other(name) => Some(&**name),
            _ => None,
        })
    }

    /// The names of the fields of the response in the format, which a [`Record`] does not have
    /// either.
    pub fn response_fields(&self) -> impl Iterator<Item = &str> {
        self.values().filter_map(|value| match value {
            ValueName::ResponseField(name) => Some(&**name),
            _ => None,
        })
    }

    /// Returns true if lines contain fields of the response, provided that these are available.
    pub(crate) fn has_response_fields(&self) -> bool {
        self.values()
            .any(|value| matches!(value, ValueName::ResponseField(_) | ValueName::RequestId))
    }

    fn values(&self) -> impl Iterator<Item = &ValueName> {
        let (members, items) = match &self.format {
            Format::Json(members) => (&**members, &[][..]),
            Format::Pattern(items) => (&[][..], &**items),
        };
        let of_items = items.iter().filter_map(|item| match item {
            FormatItem::Value(value) => Some(value),
            _ => None,
        });
        members.iter().map(|member| &member.value).chain(of_items)
    }

    /// Appends the line, with its line feed, of a response that ended at `now`. Values that a
    /// record does not have are missing.
    pub fn append_record(&self, text: &mut Vec<u8>, record: &Record<'_>, now: SystemTime) {
        self.append_record_with(text, record, &NoValues, now);
    }

    /// Appends the line, with its line feed, of a response that ended at `now`. Values that a
    /// record does not have, such as the user, are taken from `values`.
    pub fn append_record_with(
        &self,
        text: &mut Vec<u8>,
        record: &Record<'_>,
        values: &dyn LogValues,
        now: SystemTime,
    ) {
        let started = now.checked_sub(record.duration).unwrap_or(UNIX_EPOCH);
        let entry = LogEntry {
            peer: record.peer,
            head: record.head,
            request_line: record.request_line,
            time: started.duration_since(UNIX_EPOCH).unwrap_or_default(),
            duration: record.duration,
            status: record.status,
            bytes: record.body_bytes,
            received: record.tunnel_received,
            outcome: match record.error {
                _ if record.is_complete => Outcome::Complete,
                Some(error) if error.kind() == ErrorKind::Disconnected => Outcome::Disconnected,
                _ => Outcome::Failed,
            },
            values,
            privacy: self.privacy(),
        };
        self.append(text, &entry);
    }

    /// Appends the line of an entry, with its line feed.
    pub(crate) fn append(&self, text: &mut Vec<u8>, entry: &LogEntry<'_>) {
        log_line::append(text, &self.format, entry);
    }
}

/// Parses the directive after a percent sign; returns it and the rest of the pattern.
fn parse_directive(text: &str) -> Option<(FormatItem, &str)> {
    if let Some(braced) = text.strip_prefix('{') {
        let (name, rest) = braced.split_once('}')?;
        let value = match rest.as_bytes().first()? {
            b'i' => ValueName::RequestField(name.into()),
            b'o' => ValueName::ResponseField(name.into()),
            b'x' => ValueName::parse(name)?,
            _ => return None,
        };
        return Some((FormatItem::Value(value), &rest[1..]));
    }
    let text = text.strip_prefix('>').filter(|text| text.starts_with('s')).unwrap_or(text);
    let item = match text.as_bytes().first()? {
        b'h' => FormatItem::Value(ValueName::Peer),
        b'l' => FormatItem::Literal("-".into()),
        b'u' => FormatItem::Value(ValueName::User),
        b't' => FormatItem::ApacheTime,
        b'r' => FormatItem::RequestLine,
        b's' => FormatItem::Value(ValueName::Status),
        b'b' => FormatItem::BytesOrDash,
        b'B' => FormatItem::Value(ValueName::Bytes),
        b'D' => FormatItem::Value(ValueName::Microseconds),
        b'L' => FormatItem::Value(ValueName::RequestId),
        b'X' => FormatItem::Outcome,
        b'%' => FormatItem::Literal("%".into()),
        _ => return None,
    };
    Some((item, &text[1..]))
}

fn unknown_directive(directive: &str) -> Error {
    let expected = "h, l, u, t, r, s, >s, b, B, D, L, X, {name}i, {name}o, {name}x or %";
    let found = match directive.chars().next() {
        Some('{') => format!("{:?}", directive.split_inclusive(' ').next().unwrap_or_default()),
        Some(other) => format!("{other:?}"),
        None => "the end".to_owned(),
    };
    invalid(format!("expected {expected} behind the % of a log pattern, found {found}"))
}

fn unknown_value(name: &str) -> Error {
    invalid(format!("{name:?} is not the name of a value of a log line"))
}

fn invalid(reason: String) -> Error {
    Error::new(ErrorKind::InvalidSetting, reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::middleware::logs::log_value::LogValue;
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
            tunnel_received: None,
            is_upgrade: false,
            duration: Duration::from_millis(1_500),
            error,
            is_complete: error.is_none(),
            data: None,
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
    fn returns_names_of_values_that_records_do_not_have() {
        for (pattern, names, fields) in [
            ("%h %{a}i %{seconds}x %{header.b}x", "", ""),
            ("%u %L %{upstream.address}x %{X-A}o %%L", "user request_id upstream.address", "X-A"),
            ("%{response.a}x", "", "a"),
        ] {
            let format = LogFormat::pattern(pattern).unwrap();
            assert_eq!(format.names().collect::<Vec<_>>().join(" "), names, "{pattern}");
            assert_eq!(format.response_fields().collect::<Vec<_>>().join(" "), fields, "{pattern}");
        }
    }

    #[test]
    fn json_has_the_chosen_members() {
        let members = [
            ("@timestamp", "time"),
            ("path", "path"),
            ("query", "query"),
            ("took", "seconds"),
            ("agent", "header.User-Agent"),
            ("tls", "tls.version"),
            ("upstream", "upstream.address"),
        ];
        let format = LogFormat::json_with(members).unwrap();
        let request = "GET /a?b HTTP/1.0\r\nUser-Agent: a\"\r\n\r\n";
        let expected = r#"{"@timestamp":"1994-11-06T08:49:37Z","path":"/a","query":"b","took":1.500000,"agent":"a\"","tls":null,"upstream":null}"#;
        assert_eq!(line(&format, Some(request), None), format!("{expected}\n"));
        for members in [
            [("a", "time"), ("a", "status")],
            [("a", "time"), ("b\"", "status")],
            [("a", "time"), ("", "status")],
            [("a", "time"), ("b", "st atus")],
        ] {
            assert!(LogFormat::json_with(members).is_err(), "{members:?}");
        }
    }

    #[test]
    fn values_of_the_application_are_escaped() {
        struct Values;

        impl LogValues for Values {
            fn value(&self, name: &str) -> Option<LogValue<'_>> {
                match name {
                    "user" => Some(LogValue::Text(b"a\"\n".into())),
                    "upstream.status" => Some(LogValue::Number(200)),
                    "upstream.time" => Some(LogValue::Seconds(Duration::from_millis(20))),
                    _ => None,
                }
            }

            fn response_field(&self, name: &str) -> Option<&[u8]> {
                (name == "X-A").then_some(b"\xff\"")
            }
        }
        let record = Record {
            peer: &Peer::default(),
            head: None,
            request_line: b"",
            status: StatusCode::OK,
            has_response: true,
            body_bytes: 0,
            tunnel_received: None,
            is_upgrade: false,
            duration: Duration::ZERO,
            error: None,
            is_complete: true,
            data: None,
        };
        for (format, expected) in [
            (
                LogFormat::pattern("%u %{upstream.status}x %{upstream.time}x %{X-A}o %{x}x"),
                r#"a\"\x0a 200 0.020000 \xff\" -"#,
            ),
            (
                LogFormat::json_with([
                    ("u", "user"),
                    ("s", "upstream.status"),
                    ("t", "upstream.time"),
                    ("a", "response.X-A"),
                    ("x", "x"),
                ]),
                r#"{"u":"a\"\u000a","s":200,"t":0.020000,"a":"\ufffd\"","x":null}"#,
            ),
        ] {
            let mut text = Vec::new();
            format.unwrap().append_record_with(&mut text, &record, &Values, UNIX_EPOCH);
            assert_eq!(String::from_utf8(text).unwrap(), format!("{expected}\n"));
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
            ("%{a}z b", "found \"{a}z \""),
            ("%{a b}x", "found \"{a \""),
            ("%{a", "found \"{a\""),
            ("%h\n%s", "control characters such as '\\n'"),
        ] {
            let error = LogFormat::pattern(pattern).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidSetting);
            assert!(error.reason().ends_with(found), "{pattern}: {error}");
        }
    }
}
