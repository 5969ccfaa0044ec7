//! What a line of the access log looks like.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::{Error, ErrorKind, Result};
use crate::hooks::Record;
use crate::middleware::log_line::{self, End, Entry};

/// What a line of the access log looks like: Apache's combined format, a JSON object, or a
/// pattern of one's own. The middleware [`Log`](crate::middleware::Log) and [`Hooks`] both
/// write with it.
///
/// Whatever a client sends is escaped, so that it can end neither a line nor its quotes, and a
/// terminal sees no controls: a line is printable ASCII, but for what a pattern itself has, and
/// always UTF-8.
/// Nothing is allocated for a line but room in the text that it is appended to.
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
///     fn answered(&self, record: &Record<'_>) {
///         self.format.compose(&mut self.lines.borrow_mut(), record, SystemTime::now());
///     }
/// }
///
/// let log = AccessLog { format: LogFormat::pattern("%h %s %B")?, lines: RefCell::default() };
/// # let _ = log;
/// # Ok::<(), weft::Error>(())
/// ```
///
/// [`Hooks`]: crate::Hooks
#[derive(Clone, Debug)]
pub struct LogFormat(Form);

#[derive(Clone, Debug)]
pub(crate) enum Form {
    Json,
    Pattern(Vec<Piece>),
}

#[derive(Clone, Debug)]
pub(crate) enum Piece {
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

impl LogFormat {
    /// Apache's combined format: `%h - %u %t "%r" %s %b "%{Referer}i" "%{User-Agent}i"`.
    pub fn combined() -> LogFormat {
        let pattern = r#"%h - %u %t "%r" %s %b "%{Referer}i" "%{User-Agent}i""#;
        LogFormat::pattern(pattern).expect("a valid pattern")
    }

    /// JSON objects, one a line, all with the members `time` (RFC 3339), `peer`, `user`,
    /// `method`, `target`, `version`, `host`, `status`, `bytes`, `microseconds`, `referer`,
    /// `user_agent`, `request_id` and `end`. What is not
    /// there is `null`; `end` is `"whole"`, `"failed"` or, if the client left, `"left"`.
    pub fn json() -> LogFormat {
        LogFormat(Form::Json)
    }

    /// Lines of this pattern, in which stand, as in Apache's `LogFormat`:
    ///
    /// | | |
    /// | --- | --- |
    /// | `%h` | the peer's address; `unix:` for a Unix socket |
    /// | `%l` | always `-` |
    /// | `%u` | the [`User`](crate::middleware::User), or `-` |
    /// | `%t` | when the request came, `[06/Nov/1994:08:49:37 +0000]` |
    /// | `%r` | method, target and version; `-` if the request could not be parsed |
    /// | `%s`, `%>s` | the status |
    /// | `%b`, `%B` | the bytes of the body; `%b` has `-` for none |
    /// | `%D` | how long it took, in microseconds |
    /// | `%L` | the [`RequestId`](crate::middleware::RequestId), or `-` |
    /// | `%X` | `+` if the response came to its end, `X` if it failed or the client left |
    /// | `%{name}i`, `%{name}o` | the first field of that name of the request, the response; or `-` |
    /// | `%%` | a percent sign |
    ///
    /// Quotes in what is inserted are escaped, spaces are not: put what a client chooses
    /// between quotes.
    ///
    /// # Errors
    /// [`InvalidSetting`](ErrorKind::InvalidSetting) if something else follows a `%`, or if the
    /// pattern has a control character.
    pub fn pattern(pattern: &str) -> Result<LogFormat> {
        if let Some(control) = pattern.chars().find(|c| c.is_control()) {
            let reason = format!("a log pattern has no control characters such as {control:?}");
            return Err(Error::new(ErrorKind::InvalidSetting, reason));
        }
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
        Ok(LogFormat(Form::Pattern(pieces)))
    }

    /// Whether the pattern asks for what only the middleware [`Log`](crate::middleware::Log)
    /// knows: `%L` and `%{name}o`. A [`Record`] does not have them, nor the user of `%u`; in
    /// their place stands `-`, or `null`.
    pub fn needs_response(&self) -> bool {
        matches!(self.0, Form::Pattern(_)) && self.has_response_fields()
    }

    /// Whether a line has fields of the response, if they are known.
    pub(crate) fn has_response_fields(&self) -> bool {
        match &self.0 {
            Form::Json => true,
            Form::Pattern(pieces) => {
                pieces.iter().any(|piece| matches!(piece, Piece::ResponseField(_) | Piece::Id))
            }
        }
    }

    /// Appends the line of a response that was answered just `now`, with its line feed.
    pub fn compose(&self, text: &mut Vec<u8>, record: &Record<'_>, now: SystemTime) {
        let came = now.checked_sub(record.duration).unwrap_or(UNIX_EPOCH);
        let entry = Entry {
            peer: record.peer.address().map(|address| address.ip()),
            head: record.head,
            time: came.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            duration: record.duration,
            user: None,
            id: None,
            status: record.status,
            bytes: record.body_bytes,
            end: match record.error {
                None => End::Whole,
                Some(error) if error.kind() == ErrorKind::Disconnected => End::Left,
                Some(_) => End::Failed,
            },
            fields: &[],
        };
        self.append(text, &entry);
    }

    /// Appends the line of an entry, with its line feed.
    pub(crate) fn append(&self, text: &mut Vec<u8>, entry: &Entry<'_>) {
        log_line::append(text, &self.0, entry);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::Peer;
    use crate::testing;
    use http::StatusCode;
    use std::time::Duration;

    const AGENT: &str = "GET /\" HTTP/1.0\r\nUser-Agent: a\"b\\c\td\u{85}é\r\n\r\n";

    /// The line of a request that was answered after 1.5 seconds.
    fn line(format: &LogFormat, request: Option<&str>, error: Option<&Error>) -> String {
        let request = request.map(|request| testing::request(request.to_owned()));
        let record = Record {
            peer: &Peer::default(),
            head: request.as_ref().map(|request| request.head()),
            status: StatusCode::NOT_FOUND,
            body_bytes: 0,
            duration: Duration::from_millis(1_500),
            error,
        };
        let now = UNIX_EPOCH + Duration::from_millis(784_111_778_500);
        let mut text = Vec::new();
        format.compose(&mut text, &record, now);
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn lines_of_records() {
        let (left, failed) = (Error::disconnected(), Error::malformed("x"));
        for (pattern, request, error, expected) in [
            ("%h %l %u", Some(AGENT), None, "unix: - -"),
            ("%t", Some(AGENT), None, "[06/Nov/1994:08:49:37 +0000]"),
            ("%r|%s|%>s|%b|%B", Some(AGENT), None, r#"GET /\" HTTP/1.0|404|404|-|0"#),
            ("%{user-agent}i %{x}i", Some(AGENT), None, r#"a\"b\\c\x09d\xc2\x85\xc3\xa9 -"#),
            ("%D %L %{ETag}o %X%%", Some(AGENT), None, "1500000 - - +%"),
            ("%r %{user-agent}i %X", None, Some(&left), "- - X"),
            ("%X", None, Some(&failed), "X"),
        ] {
            let format = LogFormat::pattern(pattern).unwrap();
            assert_eq!(line(&format, request, error), format!("{expected}\n"), "{pattern}");
        }
        let expected = r#"unix: - - [06/Nov/1994:08:49:37 +0000] "-" 404 - "-" "-""#;
        assert_eq!(line(&LogFormat::combined(), None, None), format!("{expected}\n"));
        for (error, end) in [(None, "whole"), (Some(&left), "left"), (Some(&failed), "failed")] {
            let expected = format!(
                "{{\"time\":\"1994-11-06T08:49:37Z\",\"peer\":null,\"user\":null,\"method\":null,\
                 \"target\":null,\"version\":null,\"host\":null,\"status\":404,\"bytes\":0,\
                 \"microseconds\":1500000,\"referer\":null,\"user_agent\":null,\
                 \"request_id\":null,\"end\":\"{end}\"}}\n"
            );
            assert_eq!(line(&LogFormat::json(), None, error), expected);
        }
    }

    #[test]
    fn what_only_the_middleware_knows() {
        for (pattern, needs) in
            [("%h %u %{a}i", false), ("%{a}o", true), ("%L", true), ("%%L", false)]
        {
            assert_eq!(LogFormat::pattern(pattern).unwrap().needs_response(), needs, "{pattern}");
        }
    }

    #[test]
    fn patterns_that_are_none() {
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
