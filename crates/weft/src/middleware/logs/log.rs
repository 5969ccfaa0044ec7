//! Access log.

use std::cell::Cell;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode};
use http_body::{Body as _, Frame, SizeHint};

use crate::app::{Application, Middleware};
use crate::clock::deadline::Stopwatch;
use crate::clock::wall;
use crate::error::{Error, ErrorKind, Result};
use crate::hooks::client_closed_request;
use crate::message::body::Body;
use crate::message::connection::{Connection, Replacement};
use crate::message::fields::Field;
use crate::message::payload::Payload;
use crate::message::representation::{self, ResponseContext};
use crate::message::request::Request;
use crate::message::request_head::RequestHead;
use crate::message::response::Response;
use crate::middleware::access::User;
use crate::middleware::fields::RequestId;
use crate::middleware::logs::log_format::LogFormat;
use crate::middleware::logs::log_value::{LogEntry, LogValue, LogValues, Outcome};
use crate::random::random_boundary;
use weft_proto::http1::framing::is_bodiless;

/// Writes a line for each request that an application was called with.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use weft::middleware::Log;
/// use weft::{Application, Request, Response, testing};
///
/// async fn hello(_: Request) -> Response { Response::text("Hello\n") }
///
/// let lines = Arc::new(Mutex::new(String::new()));
/// let sink = lines.clone();
/// let log = Log::new(move |line| sink.lock().unwrap().push_str(line)).pattern("%r, %s, %B")?;
/// testing::get(hello.wrap(log), "/a?b");
/// assert_eq!(*lines.lock().unwrap(), "GET /a?b HTTP/1.1, 200, 6");
/// # Ok::<(), weft::Error>(())
/// ```
///
/// Place it first, after [`RequestIds`](crate::middleware::RequestIds) and
/// [`RealAddress`](crate::middleware::RealAddress) at most: it logs the response as it is at this
/// point of the chain. A line has Apache's combined format, is a [JSON object](Log::json) or
/// follows a [pattern](Log::pattern). Data from clients is escaped, so that it can terminate
/// neither a line nor its quotes, and no control characters reach a terminal.
///
/// # When a line is written
/// - For bytes and files, when the application has returned the response, with their length: the
///   engine then sends them, files without passing them through this middleware. So a line does
///   not show whether the client received everything. Preconditions and ranges of a file are
///   evaluated here, so that 304 and 206 are logged.
/// - For a stream, when it has ended, has failed, or was dropped because the client disconnected,
///   with the bytes that the engine read from it. Some of them may not have been sent. The framing
///   of the body does not change. If the engine has sent an error response in its place, because
///   it failed before any of it was sent, with the status and the bytes of the error response.
/// - If the client disconnects before there is a response: with status 499, as in nginx, which is
///   never sent. The same status is logged if middleware in front drops the application's future.
/// - If the application panics, or its response has an invalid field or a wrong length: with the
///   status 500 that the engine sends.
///
/// Requests that the engine rejects do not reach this middleware, nor does the error response in
/// place of a file that cannot be read: [`Hooks`](crate::Hooks) report all responses sent.
#[derive(Clone)]
pub struct Log {
    format: Arc<LogFormat>,
    sink: Arc<dyn Fn(&str) + Send + Sync>,
}

impl Log {
    /// Creates a log in Apache's combined format: `%h - %u %t "%r" %s %b "%{Referer}i"
    /// "%{User-Agent}i"`.
    ///
    /// `sink` receives lines without a line feed. It is shared by all workers, runs on their event
    /// loops, which it should not block for long, and must not panic. A sink that writes to a file
    /// writes a line and its line feed at once, because workers write at the same time.
    ///
    /// ```no_run
    /// use std::io::Write;
    /// use weft::middleware::Log;
    ///
    /// let stderr = Log::new(|line| eprintln!("{line}"));
    ///
    /// let file = std::fs::File::options().append(true).create(true).open("access.log")?;
    /// let file = Log::new(move |line| drop((&file).write_all(format!("{line}\n").as_bytes())));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new(sink: impl Fn(&str) + Send + Sync + 'static) -> Log {
        Log { format: Arc::new(LogFormat::combined()), sink: Arc::new(sink) }
    }

    /// Writes lines of this format.
    ///
    /// ```
    /// use weft::log::LogFormat;
    /// use weft::middleware::Log;
    ///
    /// let format = LogFormat::json_with([("ts", "time_millis"), ("status", "status")])?;
    /// let log = Log::new(|line| eprintln!("{line}")).format(format);
    /// # let _ = log;
    /// # Ok::<(), weft::Error>(())
    /// ```
    pub fn format(self, format: LogFormat) -> Log {
        Log { format: Arc::new(format), ..self }
    }

    /// Writes [JSON objects](LogFormat::json), one per line.
    pub fn json(self) -> Log {
        self.format(LogFormat::json())
    }

    /// Writes lines of this [pattern](LogFormat::pattern).
    ///
    /// # Errors
    /// Same as [`LogFormat::pattern`].
    pub fn pattern(self, pattern: &str) -> Result<Log> {
        Ok(self.format(LogFormat::pattern(pattern)?))
    }

    fn write(&self, entry: &OwnedEntry, fields: &[Field]) {
        // The buffer is taken out of the thread local, so that a sink can log recursively.
        let mut line = LINE_BUFFER.take();
        line.clear();
        self.format
            .append(&mut line, &entry.to_log_entry(&EntryValues { entry, fields }, &self.format));
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        (self.sink)(std::str::from_utf8(text).expect("a line is UTF-8"));
        LINE_BUFFER.set(line);
    }

    /// Writes the line of a response; a streamed body writes it when dropped.
    fn log_response(&self, mut entry: OwnedEntry, response: Response) -> Response {
        // The engine does this later too, and does not change a response already processed.
        let moment = ResponseContext { now: entry.time.as_secs(), boundary: random_boundary };
        let mut response = representation::complete_file_response(&entry.head, response, &moment);
        entry.status = response.status;
        entry.user = response.extensions().get::<User>().cloned();
        let is_head = *entry.head.received_method() == Method::HEAD;
        let has_no_body = is_head || is_bodiless(response.status);
        let is_sent = is_sent(&response, is_head);
        let source = match is_head || (has_no_body && is_sent) {
            true => None,
            false => take_unlogged(&mut response.payload, is_sent),
        };
        if let Some(source) = source {
            let fields = match self.format.has_response_fields() {
                true => response.headers.to_vec(),
                false => Vec::new(),
            };
            let logged = LoggedBody { source, entry, fields, log: self.clone() };
            response.payload = Payload::Body(Body::boxed(logged));
            return response;
        }
        if !is_sent {
            entry.fail();
            self.write(&entry, &[]);
            return response;
        }
        entry.outcome = Outcome::Complete;
        entry.bytes = if has_no_body { 0 } else { response.length().unwrap_or(0) };
        let fields = if self.format.has_response_fields() { &*response.headers } else { &[] };
        self.write(&entry, fields);
        response
    }
}

impl Middleware for Log {
    async fn call(&self, request: Request, next: &impl Application) -> Response {
        let mut pending = PendingRequest { log: self, entry: Some(OwnedEntry::new(&request)) };
        let response = next.call(request).await;
        let entry = pending.entry.take().expect("the entry is taken once");
        self.log_response(entry, response)
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").field("format", &self.format).finish_non_exhaustive()
    }
}

thread_local! {
    /// Buffer for composing lines.
    static LINE_BUFFER: Cell<Vec<u8>> = Cell::default();
}

/// Owned data of a [`LogEntry`], without the response fields.
struct OwnedEntry {
    head: RequestHead,
    connection: Connection,
    /// Arrival of the request, since 1970.
    time: Duration,
    stopwatch: Stopwatch,
    /// Set if `RequestIds` precedes the log.
    id: Option<RequestId>,
    user: Option<User>,
    status: StatusCode,
    bytes: u64,
    outcome: Outcome,
}

impl OwnedEntry {
    /// Creates the entry of a request without a response.
    fn new(request: &Request) -> OwnedEntry {
        OwnedEntry {
            head: request.head().clone(),
            connection: request.connection().clone(),
            time: wall::since_1970(),
            stopwatch: Stopwatch::start(),
            id: request.extensions().get().cloned(),
            user: None,
            status: StatusCode::OK,
            bytes: 0,
            outcome: Outcome::Disconnected,
        }
    }

    /// Sets the status that the engine sends for a failure of the application.
    fn fail(&mut self) {
        (self.status, self.outcome) = (StatusCode::INTERNAL_SERVER_ERROR, Outcome::Failed);
    }

    fn to_log_entry<'a>(
        &'a self,
        values: &'a EntryValues<'a>,
        format: &'a LogFormat,
    ) -> LogEntry<'a> {
        LogEntry {
            peer: self.connection.peer(),
            head: Some(&self.head),
            request_line: &[],
            time: self.time,
            duration: self.stopwatch.elapsed(),
            status: self.status,
            bytes: self.bytes,
            received: None,
            outcome: self.outcome,
            values,
            privacy: format.privacy(),
        }
    }
}

/// Values of an entry that the request does not have.
struct EntryValues<'a> {
    entry: &'a OwnedEntry,
    /// Fields of the response.
    fields: &'a [Field],
}

impl LogValues for EntryValues<'_> {
    fn value(&self, name: &str) -> Option<LogValue<'_>> {
        let found = match name {
            "user" => self.entry.user.as_ref().map(User::as_str),
            "request_id" => self.entry.id.as_ref().map(RequestId::as_str),
            _ => None,
        };
        found.map(|text| LogValue::Text(text.as_bytes().into()))
    }

    fn response_field(&self, name: &str) -> Option<&[u8]> {
        let found = self.fields.iter().find(|(n, _)| n.as_str().eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_bytes())
    }
}

/// A request without a response. On drop, logs that it got none.
struct PendingRequest<'a> {
    log: &'a Log,
    entry: Option<OwnedEntry>,
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        let Some(entry) = &mut self.entry else { return };
        if std::thread::panicking() {
            entry.fail();
        } else {
            entry.status = client_closed_request();
        }
        self.log.write(entry, &[]);
    }
}

/// Returns false if the engine replaces a response with bytes or a file by an error response.
fn is_sent(response: &Response, is_head: bool) -> bool {
    match &response.payload {
        Payload::Upgrade(_) => true,
        Payload::Body(body) if !body.is_in_memory() => true,
        _ => response.validated_length(is_head).is_ok(),
    }
}

/// Takes a body whose outcome the engine determines, leaving an empty one: a stream, or the bytes
/// of a response that is not sent.
fn take_unlogged(payload: &mut Payload, is_sent: bool) -> Option<Body> {
    let Payload::Body(body) = payload else { return None };
    match std::mem::take(body).into_bytes() {
        Ok(bytes) if !is_sent => Some(bytes.into()),
        Ok(bytes) => {
            *body = bytes.into();
            None
        }
        Err(stream) => Some(stream),
    }
}

/// A stream that counts its bytes and writes the line when dropped.
struct LoggedBody {
    source: Body,
    entry: OwnedEntry,
    /// Fields of the response, if the format uses any.
    fields: Vec<Field>,
    log: Log,
}

impl Drop for LoggedBody {
    fn drop(&mut self) {
        // A consumer that knows the length need not poll for the end.
        if self.entry.outcome == Outcome::Disconnected && self.source.size_hint().exact() == Some(0)
        {
            self.entry.outcome = Outcome::Complete;
        }
        // The engine drops the body after it has sent an error response in its place.
        if let Some(Replacement { status, body_bytes }) = self.entry.connection.replacement() {
            let entry = &mut self.entry;
            (entry.status, entry.bytes, entry.outcome) = (status, body_bytes, Outcome::Failed);
            self.fields.clear();
        }
        self.log.write(&self.entry, &self.fields);
    }
}

impl http_body::Body for LoggedBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>>>> {
        let next = ready!(Pin::new(&mut self.source).poll_frame(cx));
        match &next {
            Some(Ok(frame)) => self.entry.bytes += frame.data_ref().map_or(0, Bytes::len) as u64,
            Some(Err(error)) if error.kind() == ErrorKind::Disconnected => {}
            Some(Err(_)) => self.entry.outcome = Outcome::Failed,
            None if self.entry.outcome == Outcome::Disconnected => {
                self.entry.outcome = Outcome::Complete
            }
            None => {}
        }
        Poll::Ready(next)
    }

    fn is_end_stream(&self) -> bool {
        self.source.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.source.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::File;
    use crate::middleware::{BasicAuth, RequestIds, fixed_users};
    use crate::testing;
    use std::sync::Mutex;
    use weft_proto::semantics::date::rfc3339_millis;

    /// The lines that a log configured by `configure` writes for a request to `app`.
    fn lines(configure: impl Fn(Log) -> Log, app: impl Application, request: &str) -> String {
        let lines = Arc::new(Mutex::new(String::new()));
        let sink = lines.clone();
        let log =
            configure(Log::new(move |line| sink.lock().unwrap().push_str(&format!("{line}\n"))));
        let app = async |request| log.call(request, &app).await;
        testing::call(app, testing::request(request.to_owned()));
        lines.lock().unwrap().clone()
    }

    fn pattern_lines(pattern: &str, app: impl Application, request: &str) -> String {
        lines(|log| log.pattern(pattern).unwrap(), app, request)
    }

    async fn app(request: Request) -> Response {
        match request.path() {
            "/stream" => Response::text(Body::boxed(Body::from("a stream"))),
            "/no-content" => Response::new(StatusCode::NO_CONTENT),
            _ => Response::text("bytes").with_header(http::header::ETAG, "\"e\""),
        }
    }

    const ALICE: &str = "Authorization: Basic YWxpY2U6cw==\r\n";

    #[test]
    fn writes_lines_of_patterns() {
        let fields = "Host: a\r\nReferer: http://r/\r\nUser-Agent: a\"b\\c\td\u{1b}é\r\n\r\n";
        for (pattern, line, expected) in [
            ("%h %l %u", "GET /", "unix: - -"),
            ("%r|%s|%>s", "GET /a?b HTTP/1.1", "GET /a?b HTTP/1.1|200|200"),
            ("%r %b %B", "POST /\" HTTP/1.0", r#"POST /\" HTTP/1.0 5 5"#),
            ("%s %b %B", "GET /no-content HTTP/1.1", "204 - 0"),
            ("%s %b %X", "GET /stream HTTP/1.1", "200 8 +"),
            ("%s %b %X", "HEAD / HTTP/1.1", "200 - +"),
            ("%{user-agent}i", "GET / HTTP/1.1", r#"a\"b\\c\x09d\x1b\xc3\xa9"#),
            ("%{X}i %{ETag}o%{x}o", "GET / HTTP/1.1", r#"- \"e\"-"#),
            ("%{content-type}o", "GET /stream HTTP/1.1", "text/plain; charset=utf-8"),
            ("100%% é", "GET / HTTP/1.1", "100% é"),
            ("", "GET / HTTP/1.1", ""),
        ] {
            let line = if line.contains("HTTP") { line } else { "GET / HTTP/1.1" };
            // The parser rejects an escape character, like line breaks.
            let request = format!("{line}\r\n{fields}").replace('\u{1b}', "\u{80}");
            let expected = expected.replace(r"\x1b", r"\xc2\x80");
            assert_eq!(pattern_lines(pattern, app, &request), expected + "\n", "{pattern}");
        }
    }

    #[test]
    fn combined_format_has_user_and_time() {
        let app = app.wrap(BasicAuth::new("r", fixed_users(&[("alice", "s")])));
        let request = format!("GET / HTTP/1.1\r\nHost: a\r\nReferer: r\r\n{ALICE}\r\n");
        let line = lines(|log| log, app, &request);
        let (start, rest) = line.split_once('[').unwrap();
        let (time, end) = rest.split_once(']').unwrap();
        assert_eq!(start, "unix: - alice ");
        assert_eq!(end, " \"GET / HTTP/1.1\" 200 5 \"r\" \"-\"\n");
        let shape = time.replace(|c: char| c.is_ascii_digit(), "0");
        assert_eq!(shape.len(), "06/Nov/1994:08:49:37 +0000".len());
        assert!(shape.starts_with("00/") && shape.ends_with("/0000:00:00:00 +0000"), "{time}");
    }

    #[test]
    fn json_round_trips() {
        let app = app.wrap(RequestIds::new());
        let agent = "a\"b\\c\t\u{9b}é\u{2028}😀";
        let request =
            format!("GET /stream?\"x HTTP/1.1\r\nHost: a:80\r\nUser-Agent: {agent}\r\n\r\n");
        let line = lines(Log::json, app, &request);
        assert!(line.is_ascii() && !line.trim_end().contains(char::is_control), "{line}");
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        for (name, expected) in [
            ("peer", serde_json::Value::Null),
            ("user", serde_json::Value::Null),
            ("method", "GET".into()),
            ("target", "/stream?\"x".into()),
            ("version", "HTTP/1.1".into()),
            ("host", "a:80".into()),
            ("status", 200.into()),
            ("bytes", 8.into()),
            ("referer", serde_json::Value::Null),
            ("user_agent", agent.into()),
            ("end", "whole".into()),
        ] {
            assert_eq!(value[name], expected, "{name}");
        }
        assert!(value["microseconds"].is_u64());
        assert_eq!(value["request_id"].as_str().unwrap().len(), 32);
        let time = value["time"].as_str().unwrap();
        let parsed = time.replace(|c: char| c.is_ascii_digit(), "0");
        assert_eq!(parsed, "0000-00-00T00:00:00Z");
    }

    #[test]
    fn time_of_arrival_has_milliseconds() {
        let request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        let now = || rfc3339_millis(std::time::SystemTime::now());
        let before = now();
        let line = pattern_lines("%{time_millis}x", app, request);
        let time = line.trim_end();
        assert!(*before <= *time && *time <= *now(), "{before} {time}");
        let format = LogFormat::json_with([("ts", "time_millis")]).unwrap();
        let line = lines(|log| log.format(format.clone()), app, request);
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert!(*time <= *value["ts"].as_str().unwrap(), "{time} {line}");
    }

    #[test]
    fn logs_the_request_id_of_the_response_in_either_order() {
        let lines = Arc::new(Mutex::new(String::new()));
        let sink = lines.clone();
        let log = Log::new(move |line| sink.lock().unwrap().push_str(&format!("{line}\n")))
            .pattern("%L")
            .unwrap();
        for (path, ids_first) in [("/", true), ("/", false), ("/stream", true), ("/stream", false)]
        {
            let reply = match ids_first {
                true => {
                    testing::get(crate::stack(app).with(RequestIds::new()).with(log.clone()), path)
                }
                false => {
                    testing::get(crate::stack(app).with(log.clone()).with(RequestIds::new()), path)
                }
            };
            let line = std::mem::take(&mut *lines.lock().unwrap());
            assert_eq!(line.trim_end(), reply.header("x-request-id").unwrap(), "{path}");
        }
        testing::get(app.wrap(log), "/");
        assert_eq!(*lines.lock().unwrap(), "-\n");
    }

    #[test]
    fn logs_multipart_ranges_as_206() {
        let app = async |_: Request| Response::from_file(File::from_static(b"0123456789"));
        let request = "GET / HTTP/1.1\r\nHost: a\r\nRange: bytes=0-0,5-6\r\n\r\n";
        let lines = Arc::new(Mutex::new(String::new()));
        let sink = lines.clone();
        let log = Log::new(move |line| sink.lock().unwrap().push_str(&format!("{line}\n")))
            .pattern("%s %B");
        let reply = testing::call(app.wrap(log.unwrap()), testing::request(request));
        assert_eq!(*lines.lock().unwrap(), format!("206 {}\n", reply.body.len()));
    }

    #[test]
    fn sink_can_log_recursively() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let sink = |name: &'static str| {
            let lines = lines.clone();
            move |line: &str| lines.lock().unwrap().push(format!("{name} {line}"))
        };
        let inner = Log::new(sink("inner")).pattern("%r").unwrap();
        let outer = sink("outer");
        let log = Log::new(move |line| {
            let entry =
                OwnedEntry::new(&testing::request("GET /inner HTTP/1.1\r\nHost: a\r\n\r\n"));
            inner.write(&entry, &[]);
            outer(line);
        });
        for path in ["/1", "/2"] {
            testing::get(app.wrap(log.clone().pattern("%r").unwrap()), path);
        }
        let inner = "inner GET /inner HTTP/1.1";
        let outer = ["1", "2"].map(|path| format!("outer GET /{path} HTTP/1.1"));
        assert_eq!(*lines.lock().unwrap(), [inner, &outer[0], inner, &outer[1]]);
    }
}
