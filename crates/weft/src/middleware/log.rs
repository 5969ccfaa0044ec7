//! The access log: when a request is over, and who is given its line.

use std::cell::Cell;
use std::fmt;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Method, StatusCode};
use http_body::{Body as _, Frame, SizeHint};

use crate::app::{Application, Middleware};
use crate::clock::deadline::Stopwatch;
use crate::clock::wall;
use crate::error::{Error, ErrorKind, Result};
use crate::message::body::Body;
use crate::message::fields::Field;
use crate::message::representation::{self, Moment};
use crate::message::request::{Head, Request};
use crate::message::response::{Payload, Response};
use crate::middleware::auth::User;
use crate::middleware::log_format::LogFormat;
use crate::middleware::log_line::{self, End};
use crate::middleware::request_id::RequestId;
use crate::proto::http1::framing::is_bodiless;
use crate::proto::semantics::range::random_boundary;

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
/// testing::get(hello.with(log), "/a?b");
/// assert_eq!(*lines.lock().unwrap(), "GET /a?b HTTP/1.1, 200, 6\n");
/// # Ok::<(), weft::Error>(())
/// ```
///
/// It should be the first middleware, behind [`RequestIds`](super::RequestIds) and
/// [`RealAddress`](super::RealAddress) at most: it writes what the response is when it comes by. A line is Apache's combined format, a
/// [JSON object](Log::json) or follows a [pattern](Log::pattern). Whatever a client sends is
/// escaped, so that it can end neither a line nor its quotes, and a terminal sees no controls.
///
/// # When a line is written
/// - For bytes and files, when the application has answered, with their length: they are
///   the engine's then, which sends files without this seeing it. So a line does not tell
///   whether the client took all. Preconditions and ranges of a file are judged here, so
///   that 304 and 206 are seen.
/// - For a stream, when it has ended, failed, or was dropped because the client left, with
///   the bytes that the engine took of it, some of which may not have been sent. How a body is
///   framed does not change.
/// - When the client left before there was a response: with status 499, as nginx has it,
///   which nobody was sent. The same is written if middleware in front gave the application up.
/// - When the application panicked: with the status 500 that the engine sends.
///
/// Requests that the engine refuses, and responses that it replaces because they cannot be
/// sent, are not seen here: [`Hooks`](crate::Hooks) are told of all that leaves.
#[derive(Clone)]
pub struct Log {
    format: Arc<LogFormat>,
    sink: Arc<dyn Fn(&str) + Send + Sync>,
}

impl Log {
    /// A log in Apache's combined format: `%h - %u %t "%r" %s %b "%{Referer}i"
    /// "%{User-Agent}i"`.
    ///
    /// The sink gets whole lines with their line feed, so that one write takes each. It is
    /// shared by all workers, is called on their event loops, which it should not hold up for
    /// long, and must not panic.
    ///
    /// ```no_run
    /// use std::io::Write;
    /// use weft::middleware::Log;
    ///
    /// let stderr = Log::new(|line| eprint!("{line}"));
    ///
    /// let file = std::fs::File::options().append(true).create(true).open("access.log")?;
    /// let file = Log::new(move |line| drop((&file).write_all(line.as_bytes())));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new(sink: impl Fn(&str) + Send + Sync + 'static) -> Log {
        Log { format: Arc::new(LogFormat::combined()), sink: Arc::new(sink) }
    }

    /// Writes [JSON objects](LogFormat::json), one a line.
    pub fn json(self) -> Log {
        Log { format: Arc::new(LogFormat::json()), ..self }
    }

    /// Writes lines of this [pattern](LogFormat::pattern).
    ///
    /// # Errors
    /// Those of [`LogFormat::pattern`].
    pub fn pattern(self, pattern: &str) -> Result<Log> {
        Ok(Log { format: Arc::new(LogFormat::pattern(pattern)?), ..self })
    }

    fn write(&self, entry: &Entry, fields: &[Field]) {
        // The text is taken out meanwhile, so that a sink that ends up here again gets one too.
        let mut text = LINE.take();
        text.clear();
        self.format.append(&mut text, &entry.with(fields));
        (self.sink)(std::str::from_utf8(&text).expect("a line is UTF-8"));
        LINE.set(text);
    }

    /// Writes the line of a response, or has its body do that at its end.
    fn answered(&self, mut entry: Entry, response: Response) -> Response {
        // The engine does the same later, and leaves what it finds done as it is.
        let moment = Moment { now: entry.time, boundary: random_boundary };
        let mut response = representation::answer(&entry.head, response, &moment);
        entry.status = response.status;
        entry.user = response.extensions().get::<User>().cloned();
        let bodiless = *entry.head.method() == Method::HEAD || is_bodiless(response.status);
        if !bodiless && let Some(source) = take_stream(&mut response.payload) {
            let fields = match self.format.has_response_fields() {
                true => response.headers.to_vec(),
                false => Vec::new(),
            };
            let counted = Counted { source, entry, fields, log: self.clone() };
            response.payload = Payload::Body(Body::own(counted));
            return response;
        }
        entry.end = End::Whole;
        entry.bytes = if bodiless { 0 } else { response.length().unwrap_or(0) };
        let fields = if self.format.has_response_fields() { &*response.headers } else { &[] };
        self.write(&entry, fields);
        response
    }
}

impl Middleware for Log {
    async fn call(&self, request: Request, next: &impl Application) -> Response {
        let mut awaited = Awaited { log: self, entry: Some(Entry::new(&request)) };
        let response = next.call(request).await;
        let entry = awaited.entry.take().expect("it is taken once");
        self.answered(entry, response)
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").field("format", &self.format).finish_non_exhaustive()
    }
}

thread_local! {
    /// Where a line is put together.
    static LINE: Cell<Vec<u8>> = Cell::default();
}

/// What is known of a request and its response when it is over, but for its fields.
struct Entry {
    head: Head,
    peer: Option<IpAddr>,
    /// When the request came, in seconds since 1970.
    time: u64,
    watch: Stopwatch,
    /// If it was given before the request came here.
    id: Option<RequestId>,
    user: Option<User>,
    status: StatusCode,
    bytes: u64,
    end: End,
}

impl Entry {
    /// A request that nobody has answered yet.
    fn new(request: &Request) -> Entry {
        Entry {
            head: request.head().clone(),
            peer: request.peer().address().map(|address| address.ip()),
            time: wall::now(),
            watch: Stopwatch::start(),
            id: request.extensions().get().cloned(),
            user: None,
            status: StatusCode::OK,
            bytes: 0,
            end: End::Left,
        }
    }

    fn with<'a>(&'a self, fields: &'a [Field]) -> log_line::Entry<'a> {
        let Entry { head, user, id, .. } = self;
        log_line::Entry {
            peer: self.peer,
            head: Some(head),
            time: self.time,
            duration: self.watch.elapsed(),
            user: user.as_ref().map(User::as_str),
            id: id.as_ref().map(RequestId::as_str),
            status: self.status,
            bytes: self.bytes,
            end: self.end,
            fields,
        }
    }
}

/// A request that has no response yet. If it never gets one, that is what is written.
struct Awaited<'a> {
    log: &'a Log,
    entry: Option<Entry>,
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        let Some(entry) = &mut self.entry else { return };
        if std::thread::panicking() {
            (entry.status, entry.end) = (StatusCode::INTERNAL_SERVER_ERROR, End::Failed);
        } else {
            entry.status = StatusCode::from_u16(499).expect("three digits");
        }
        self.log.write(entry, &[]);
    }
}

/// The payload, if it is a stream; then nothing is left in its place.
fn take_stream(payload: &mut Payload) -> Option<Body> {
    let Payload::Body(body) = payload else { return None };
    match std::mem::take(body).into_bytes() {
        Ok(bytes) => {
            *body = bytes.into();
            None
        }
        Err(stream) => Some(stream),
    }
}

/// A stream whose bytes are counted, and logged when it is dropped.
struct Counted {
    source: Body,
    entry: Entry,
    /// Those of the response, if its line has any.
    fields: Vec<Field>,
    log: Log,
}

impl Drop for Counted {
    fn drop(&mut self) {
        // Who knows the length need not ask for the end.
        if self.entry.end == End::Left && self.source.size_hint().exact() == Some(0) {
            self.entry.end = End::Whole;
        }
        self.log.write(&self.entry, &self.fields);
    }
}

impl http_body::Body for Counted {
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
            Some(Err(_)) => self.entry.end = End::Failed,
            None if self.entry.end == End::Left => self.entry.end = End::Whole,
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

    /// The lines that a log made by `log` writes of a request to `app`.
    fn lines(log: impl Fn(Log) -> Log, app: impl Application, request: &str) -> String {
        let lines = Arc::new(Mutex::new(String::new()));
        let sink = lines.clone();
        let log = log(Log::new(move |line| sink.lock().unwrap().push_str(line)));
        let app = async |request| log.call(request, &app).await;
        testing::call(app, testing::request(request.to_owned()));
        lines.lock().unwrap().clone()
    }

    fn of_pattern(pattern: &str, app: impl Application, request: &str) -> String {
        lines(|log| log.pattern(pattern).unwrap(), app, request)
    }

    async fn app(request: Request) -> Response {
        match request.path() {
            "/stream" => Response::text(Body::own(Body::from("a stream"))),
            "/nothing" => Response::new(StatusCode::NO_CONTENT),
            _ => Response::text("bytes").with_header(http::header::ETAG, "\"e\""),
        }
    }

    const ALICE: &str = "Authorization: Basic YWxpY2U6cw==\r\n";

    #[test]
    fn patterns() {
        let fields = "Host: a\r\nReferer: http://r/\r\nUser-Agent: a\"b\\c\td\u{1b}é\r\n\r\n";
        for (pattern, line, expected) in [
            ("%h %l %u", "GET /", "unix: - -"),
            ("%r|%s|%>s", "GET /a?b HTTP/1.1", "GET /a?b HTTP/1.1|200|200"),
            ("%r %b %B", "POST /\" HTTP/1.0", r#"POST /\" HTTP/1.0 5 5"#),
            ("%s %b %B", "GET /nothing HTTP/1.1", "204 - 0"),
            ("%s %b %X", "GET /stream HTTP/1.1", "200 8 +"),
            ("%s %b %X", "HEAD / HTTP/1.1", "200 - +"),
            ("%{user-agent}i", "GET / HTTP/1.1", r#"a\"b\\c\x09d\x1b\xc3\xa9"#),
            ("%{X}i %{ETag}o%{x}o", "GET / HTTP/1.1", r#"- \"e\"-"#),
            ("%{content-type}o", "GET /stream HTTP/1.1", "text/plain; charset=utf-8"),
            ("100%% é", "GET / HTTP/1.1", "100% é"),
            ("", "GET / HTTP/1.1", ""),
        ] {
            let line = if line.contains("HTTP") { line } else { "GET / HTTP/1.1" };
            // The parser refuses an escape character, as it does line ends.
            let request = format!("{line}\r\n{fields}").replace('\u{1b}', "\u{80}");
            let expected = expected.replace(r"\x1b", r"\xc2\x80");
            assert_eq!(of_pattern(pattern, app, &request), expected + "\n", "{pattern}");
        }
    }

    #[test]
    fn the_combined_format_has_user_and_time() {
        let app = app.with(BasicAuth::new("r", fixed_users(&[("alice", "s")])));
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
    fn json_reads_back_as_what_it_was() {
        let app = app.with(RequestIds::new());
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
    fn the_id_is_that_of_the_response_wherever_it_was_given() {
        let lines = Arc::new(Mutex::new(String::new()));
        let sink = lines.clone();
        let log = Log::new(move |line| sink.lock().unwrap().push_str(line)).pattern("%L").unwrap();
        for (path, ids_first) in [("/", true), ("/", false), ("/stream", true), ("/stream", false)]
        {
            let reply = match ids_first {
                true => testing::get(app.with(RequestIds::new()).with(log.clone()), path),
                false => testing::get(app.with(log.clone()).with(RequestIds::new()), path),
            };
            let line = std::mem::take(&mut *lines.lock().unwrap());
            assert_eq!(line.trim_end(), reply.header("x-request-id").unwrap(), "{path}");
        }
        testing::get(app.with(log), "/");
        assert_eq!(*lines.lock().unwrap(), "-\n");
    }

    #[test]
    fn several_ranges_are_seen() {
        let app = async |_: Request| Response::file(File::of_bytes(b"0123456789"));
        let request = "GET / HTTP/1.1\r\nHost: a\r\nRange: bytes=0-0,5-6\r\n\r\n";
        let lines = Arc::new(Mutex::new(String::new()));
        let sink = lines.clone();
        let log = Log::new(move |line| sink.lock().unwrap().push_str(line)).pattern("%s %B");
        let reply = testing::call(app.with(log.unwrap()), testing::request(request));
        assert_eq!(*lines.lock().unwrap(), format!("206 {}\n", reply.body.len()));
    }

    #[test]
    fn a_sink_may_log_itself() {
        let inner = Log::new(|_| ()).pattern("%r").unwrap();
        let of_sink = move |_: &str| {
            let entry = Entry::new(&testing::request("GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
            inner.write(&entry, &[]);
        };
        let log = Log::new(of_sink);
        testing::get(app.with(log), "/");
    }
}
