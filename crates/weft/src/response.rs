//! A response as an application makes it.

use std::fs;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, LOCATION, UPGRADE, VARY};
use http::{Extensions, HeaderName, HeaderValue, StatusCode};

use crate::body::{Body, wrong_length};
use crate::error::{Error, ErrorKind, Fault};
use crate::fields::{Fields, HTML, TEXT};
use crate::h1::framing::{content_length, is_bodiless};
use crate::headers::{Headers, members};
use crate::upgrade::{Upgrade, Upgraded};

/// A response: a status, a short header list and a payload.
///
/// The engine adds `Date` and `Server`, unless the application has set them. What frames
/// the message is the engine's alone: `Content-Length`, if set, must be the body's length;
/// `Transfer-Encoding` is not looked at; `Connection: close` closes the connection.
///
/// ```
/// use weft::{Response, StatusCode, header};
///
/// let response = Response::text("Teapots only.\n")
///     .with_status(StatusCode::IM_A_TEAPOT)
///     .with_header(header::CACHE_CONTROL, "max-age=60");
/// assert_eq!(response.header("cache-control").unwrap(), "max-age=60");
/// ```
#[derive(Debug)]
pub struct Response {
    pub(crate) status: StatusCode,
    pub(crate) headers: Fields,
    pub(crate) payload: Payload,
    pub(crate) extensions: Extensions,
}

/// What follows the head.
#[derive(Debug)]
pub(crate) enum Payload {
    Body(Body),
    /// Not in place, as all that is large, for every response is handed on many times; and a
    /// file that is kept is the same for many.
    File(Arc<File>),
    Parts(Box<Parts>),
    /// The connection itself.
    Upgrade(Upgrade),
}

impl Payload {
    pub(crate) fn empty() -> Payload {
        Payload::Body(Body::empty())
    }
}

/// Several parts of a file.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) parts: Vec<Part>,
    /// What stands behind the last.
    pub(crate) end: Vec<u8>,
    /// Of all that.
    pub(crate) length: u64,
}

/// A part, and what stands before it.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) head: Vec<u8>,
    pub(crate) file: File,
}

/// An open file, or a part of it, as a payload. It leaves the process without
/// passing through it (`sendfile(2)`).
#[derive(Clone, Debug)]
pub struct File {
    pub(crate) source: Source,
    pub(crate) start: u64,
    pub(crate) length: u64,
    pub(crate) version: Option<FileVersion>,
    /// Whether all of it was in memory when somebody looked lately; for files that are kept.
    pub(crate) at_hand: Option<Arc<AtomicBool>>,
}

/// Where a file's bytes are.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    Open(Arc<fs::File>),
    Memory(Bytes),
}

/// What tells one version of a file's contents from all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileVersion {
    device: u64,
    inode: u64,
    length: u64,
    /// Seconds and nanoseconds since 1970; none for bytes that were never a file's.
    modified: Option<(i64, i64)>,
    /// When contents or metadata last changed, which nobody can set: a copy may have given
    /// other contents the old time of modification. Not told to clients, for a new name or
    /// new permissions change it too.
    changed: (i64, i64),
}

fn after_1970(seconds: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

impl FileVersion {
    pub(crate) fn new(metadata: &fs::Metadata) -> FileVersion {
        FileVersion {
            device: metadata.dev(),
            inode: metadata.ino(),
            length: metadata.len(),
            modified: Some((metadata.mtime(), metadata.mtime_nsec())),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Whether an open file is still of this version. It cannot have become another file, so
    /// that its length and its times tell.
    pub(crate) fn is_of(&self, file: &fs::File) -> bool {
        // Cheaper than `statx(2)`, which the standard library has.
        rustix::fs::fstat(file).is_ok_and(|stat| {
            let modified = (stat.st_mtime, stat.st_mtime_nsec as i64);
            let changed = (stat.st_ctime, stat.st_ctime_nsec as i64);
            stat.st_size as u64 == self.length
                && Some(modified) == self.modified
                && changed == self.changed
        })
    }

    /// A strong validator (RFC 9110 §8.8.3), as far as a clock with nanoseconds is fine
    /// enough.
    pub(crate) fn etag(&self) -> String {
        let FileVersion { device, inode, length, .. } = self;
        let (seconds, nanoseconds) = self.modified.unwrap_or_default();
        format!("\"{device:x}-{inode:x}-{length:x}-{seconds:x}.{nanoseconds:x}\"")
    }

    /// The version of bytes that do not change.
    pub(crate) fn of_bytes(bytes: &[u8]) -> FileVersion {
        // With keys that are always the same, so that all workers and all runs agree.
        let mut hasher = std::hash::DefaultHasher::new();
        bytes.hash(&mut hasher);
        let length = bytes.len() as u64;
        let changed = (0, 0);
        FileVersion { device: 0, inode: hasher.finish(), length, modified: None, changed }
    }

    /// When contents or metadata last changed, to the second.
    pub(crate) fn changed(&self) -> SystemTime {
        after_1970(self.changed.0)
    }

    /// When the file was modified, to the second.
    pub(crate) fn modified(&self) -> Option<SystemTime> {
        self.modified.map(|(seconds, _)| after_1970(seconds))
    }

    /// Whether it was modified before another one.
    pub(crate) fn is_older_than(&self, other: &FileVersion) -> bool {
        self.modified < other.modified
    }
}

impl File {
    /// The whole of an open file, as long as it is now. The engine answers requests for
    /// it with `ETag` and `Last-Modified`, and heeds preconditions (RFC 9110 §13) and
    /// ranges (§14), in a response of status 200.
    ///
    /// If the file is shorter when it is sent, the connection closes: the client sees the
    /// response as cut.
    ///
    /// # Errors
    /// Those of `fstat(2)`.
    pub fn open(file: impl Into<Arc<fs::File>>) -> std::io::Result<File> {
        let file = file.into();
        let metadata = file.metadata()?;
        Ok(File::with_metadata(file, &metadata))
    }

    pub(crate) fn with_metadata(file: impl Into<Arc<fs::File>>, metadata: &fs::Metadata) -> File {
        let (source, version) = (Source::Open(file.into()), Some(FileVersion::new(metadata)));
        File { source, start: 0, length: metadata.len(), version, at_hand: None }
    }

    /// The `length` bytes of an open file that begin at `start`, as a body of its own: it
    /// has no validators but those that the application sets.
    pub fn new(file: impl Into<Arc<fs::File>>, start: u64, length: u64) -> File {
        File { source: Source::Open(file.into()), start, length, version: None, at_hand: None }
    }

    /// Bytes that are always in memory, as a file.
    pub(crate) fn of_bytes(bytes: &'static [u8]) -> File {
        let version = Some(FileVersion::of_bytes(bytes));
        let length = bytes.len() as u64;
        let source = Source::Memory(Bytes::from_static(bytes));
        File { source, start: 0, length, version, at_hand: None }
    }

    /// A part of this, which must be within it.
    pub(crate) fn part(self, range: Range<u64>) -> File {
        let start = self.start.saturating_add(range.start);
        File { start, length: range.end - range.start, ..self }
    }

    /// Whether it is all of what it was opened as.
    pub(crate) fn is_whole(&self) -> bool {
        self.start == 0 && self.version.is_some_and(|version| version.length == self.length)
    }

    /// Takes off what was sent.
    ///
    /// # Errors
    /// If there was nothing to be sent: then the file is shorter than it was said to be.
    pub(crate) fn advance(&mut self, sent: usize) -> Result<(), Error> {
        if sent == 0 {
            let reason = "the file became shorter while it was sent";
            return Err(Error::new(ErrorKind::LengthMismatch, reason));
        }
        self.start = self.start.saturating_add(sent as u64);
        self.length -= sent as u64;
        Ok(())
    }

    /// The bytes, read into memory if they are not there.
    pub(crate) fn read(&self) -> std::io::Result<Bytes> {
        match &self.source {
            Source::Memory(_) => Ok(self.in_memory().unwrap_or_default()),
            Source::Open(file) => {
                let mut bytes = vec![0; self.length as usize];
                file.read_exact_at(&mut bytes, self.start)?;
                Ok(bytes.into())
            }
        }
    }

    /// The bytes, if they are in memory.
    pub(crate) fn in_memory(&self) -> Option<Bytes> {
        match &self.source {
            Source::Memory(bytes) => Some(bytes.slice(self.place())),
            Source::Open(_) => None,
        }
    }

    /// The same, to be copied.
    pub(crate) fn contents(&self) -> Option<&[u8]> {
        match &self.source {
            Source::Memory(bytes) => Some(&bytes[self.place()]),
            Source::Open(_) => None,
        }
    }

    fn place(&self) -> Range<usize> {
        self.start as usize..(self.start + self.length) as usize
    }

    /// The same file, whose bytes are these.
    pub(crate) fn with_bytes(self, bytes: Bytes) -> File {
        File { source: Source::Memory(bytes), ..self }
    }
}

const SWITCHING: StatusCode = StatusCode::SWITCHING_PROTOCOLS;

impl Response {
    /// A response with no body.
    pub fn new(status: StatusCode) -> Response {
        Response {
            status,
            headers: Fields::default(),
            payload: Payload::empty(),
            extensions: Extensions::new(),
        }
    }

    /// 200 with a plain text.
    pub fn text(text: impl Into<Body>) -> Response {
        Response::success(Fields::Common(&TEXT), Payload::Body(text.into()))
    }

    /// 200 with an HTML page.
    pub fn html(page: impl Into<Body>) -> Response {
        Response::success(Fields::Common(&HTML), Payload::Body(page.into()))
    }

    /// 200 with bytes or a stream, and no `Content-Type`.
    pub fn body(body: impl Into<Body>) -> Response {
        Response::success(Fields::default(), Payload::Body(body.into()))
    }

    /// 200 with a file.
    pub fn file(file: File) -> Response {
        Response::success(Fields::default(), Payload::File(Arc::new(file)))
    }

    /// 200 with these fields and this payload.
    pub(crate) fn success(headers: Fields, payload: Payload) -> Response {
        Response { status: StatusCode::OK, headers, payload, extensions: Extensions::new() }
    }

    /// 404 with a line of text.
    pub fn not_found() -> Response {
        StatusCode::NOT_FOUND.into()
    }

    /// A redirect (3xx) to a URI reference.
    pub fn redirect(status: StatusCode, location: &str) -> Response {
        Response::new(status).with_header(LOCATION, location)
    }

    /// 101: the connection goes over to another protocol (RFC 9110 §7.8), and to a handler. The
    /// client must have named the protocol in its `Upgrade`, over HTTP/1.1 and with no body on
    /// the way; otherwise it gets 500 and the hooks are told.
    ///
    /// The handler runs where the connection did, and the connection counts until it ends. See
    /// [`Upgraded`] for what it has to look after itself. WebSockets have a module of their
    /// own, `weft::websocket`.
    ///
    /// ```
    /// use tokio::io::{AsyncReadExt, AsyncWriteExt};
    /// use weft::{Request, Response};
    ///
    /// async fn shout(request: Request) -> Response {
    ///     if !request.headers().list("upgrade").any(|name| name == b"shout") {
    ///         return Response::text("Upgrade to `shout`.\n");
    ///     }
    ///     Response::upgrade("shout", async |mut connection| {
    ///         let mut byte = [0];
    ///         while let Ok(1) = connection.read(&mut byte).await {
    ///             if connection.write_all(&byte.map(|b| b.to_ascii_uppercase())).await.is_err() {
    ///                 break;
    ///             }
    ///         }
    ///     })
    /// }
    /// # weft::testing::get(shout, "/").assert_text("Upgrade to `shout`.\n");
    /// ```
    pub fn upgrade<F: Future<Output = ()> + 'static>(
        protocol: &str,
        handler: impl FnOnce(Upgraded) -> F + Send + 'static,
    ) -> Response {
        Response { payload: Payload::Upgrade(Upgrade::new(handler)), ..Response::new(SWITCHING) }
            .with_header(UPGRADE, protocol)
    }

    /// 200 to `CONNECT` (RFC 9110 §9.3.6): from here on the connection is the handler's. No
    /// other success can answer that method: the client would take it for a tunnel.
    pub fn tunnel<F: Future<Output = ()> + 'static>(
        handler: impl FnOnce(Upgraded) -> F + Send + 'static,
    ) -> Response {
        let payload = Payload::Upgrade(Upgrade::new(handler));
        Response { payload, ..Response::new(StatusCode::OK) }
    }

    /// The same response with this status.
    pub fn with_status(mut self, status: StatusCode) -> Response {
        self.status = status;
        self
    }

    /// The same response with this field added.
    ///
    /// A byte that no field value may have (CR, LF, NUL and the other controls) becomes
    /// a space: text from elsewhere cannot end the field and start another.
    pub fn with_header(mut self, name: HeaderName, value: impl AsRef<[u8]>) -> Response {
        self.headers.push((name, field_value(value.as_ref())));
        self
    }

    /// The same response with this field added, whose value is known to be one: it is shared
    /// and not copied.
    pub fn with_value(mut self, name: HeaderName, value: HeaderValue) -> Response {
        self.headers.push((name, value));
        self
    }

    /// The same response with all of these fields added, for who passes on what somebody else
    /// has said: they are not copied before they are sent, and are sent as they are. What the
    /// engine has a say in, it has here, too.
    ///
    /// ```
    /// use weft::{Request, Response, header};
    ///
    /// async fn mirror(request: Request) -> Response {
    ///     let theirs = request.headers().filter(|name, _| name.starts_with(b"X-"));
    ///     Response::text("").with_headers(theirs).with_header(header::VIA, "1.1 mirror")
    /// }
    /// # let head = "GET / HTTP/1.1\r\nHost: a\r\nX-A: b\r\n\r\n";
    /// # let reply = weft::testing::call(mirror, weft::testing::request(head));
    /// # assert_eq!((reply.header("x-a"), reply.header("host")), (Some("b"), None));
    /// ```
    pub fn with_headers(mut self, headers: Headers) -> Response {
        self.headers.pass(headers);
        self
    }

    /// The same response, and an error that it does not tell the client of, or not all of:
    /// [`Hooks::error`](crate::Hooks::error) is told.
    pub fn with_error(mut self, error: Error) -> Response {
        self.extensions.insert(Arc::new(error));
        self
    }

    /// The error that [came with it](Response::with_error).
    pub fn error(&self) -> Option<&Error> {
        self.extensions.get::<Arc<Error>>().map(|error| &**error)
    }

    /// Sets a field in place of any of that name.
    pub fn set_header(&mut self, name: HeaderName, value: impl AsRef<[u8]>) {
        self.remove_header(name.clone());
        self.headers.push((name, field_value(value.as_ref())));
    }

    /// Takes all fields of that name away.
    pub fn remove_header(&mut self, name: HeaderName) {
        if self.headers.find(&name, |_| true).is_some() {
            self.headers.to_mut().retain(|(n, _)| *n != name);
        }
    }

    /// Says that the answer hangs on this field of the request (RFC 9110 §12.5.5), beside
    /// what `Vary` names already.
    pub(crate) fn vary_by(&mut self, field: &'static str) {
        let lines = self.headers.iter().filter(|(name, _)| *name == VARY);
        let mut named: Vec<&[u8]> =
            lines.flat_map(|(_, value)| members(value.as_bytes())).collect();
        let says_so = |name: &&[u8]| *name == b"*" || name.eq_ignore_ascii_case(field.as_bytes());
        if !named.iter().any(says_so) {
            named.push(field.as_bytes());
            let all = named.join(&b", "[..]);
            self.set_header(VARY, all);
        }
    }

    /// The value of the first field of that name.
    pub fn header(&self, name: &str) -> Option<&HeaderValue> {
        let found = self.headers.iter().find(|(n, _)| n.as_str().eq_ignore_ascii_case(name));
        found.map(|(_, value)| value)
    }

    /// What middleware has to say about the response to other middleware, by type. The
    /// client sees nothing of it.
    pub fn extensions(&self) -> &Extensions {
        &self.extensions
    }

    /// The same, to be added to.
    pub fn extensions_mut(&mut self) -> &mut Extensions {
        &mut self.extensions
    }

    /// The status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The length of the payload, if it is known before it is sent.
    pub fn length(&self) -> Option<u64> {
        match &self.payload {
            Payload::Body(body) => body.length(),
            Payload::File(file) => Some(file.length),
            Payload::Parts(parts) => Some(parts.length),
            Payload::Upgrade(_) => Some(0),
        }
    }

    /// The length of the body, if it is known: what the application declared must be true.
    pub(crate) fn sound_length(&self, head_only: bool) -> Result<Option<u64>, Error> {
        if self.status.is_informational() {
            let reason = "an interim status ends no exchange";
            return Err(Error::new(ErrorKind::InvalidResponse, reason));
        }
        let length = self.length();
        match (self.declared_length(), length) {
            (None, length) => Ok(length),
            (Some(Err(())), _) => Err(wrong_length()),
            (Some(Ok(declared)), None) => Ok(Some(declared)),
            (Some(Ok(declared)), Some(0)) if head_only => Ok(Some(declared)),
            (Some(Ok(declared)), Some(length)) if declared == length => Ok(Some(length)),
            // RFC 9110 §8.6: 304 and 204 have no body, whatever length they speak of.
            (Some(_), Some(0)) if is_bodiless(self.status) => Ok(Some(0)),
            (Some(Ok(_)), Some(_)) => Err(wrong_length()),
        }
    }

    /// Whether the application wants this response to be the connection's last.
    pub(crate) fn wants_close(&self) -> bool {
        let says_so = |value: &[u8]| members(value).any(|it| it.eq_ignore_ascii_case(b"close"));
        self.headers.find_framing(&CONNECTION, says_so).is_some()
    }

    /// The `Content-Length` that the application set itself; `Err` if it is none.
    pub(crate) fn declared_length(&self) -> Option<Result<u64, ()>> {
        let value = self.headers.find_framing(&CONTENT_LENGTH, |_| true)?;
        Some(content_length(value).ok_or(()))
    }
}

/// The status, and a line of text that says it. So a function can return
/// `Result<Response, StatusCode>`.
///
/// ```
/// use weft::{Response, StatusCode};
///
/// let response = Response::from(StatusCode::GONE);
/// assert_eq!((response.status().as_u16(), response.length()), (410, Some(9)));
/// ```
impl From<StatusCode> for Response {
    fn from(status: StatusCode) -> Response {
        match status {
            StatusCode::RESET_CONTENT => Response::new(status),
            _ if is_bodiless(status) => Response::new(status),
            _ => Response::text(format!("{status}\n")).with_status(status),
        }
    }
}

/// What the peer is told of an error: the reason, if it is the peer's own fault.
impl From<&Error> for Response {
    fn from(error: &Error) -> Response {
        let status = error.kind().status().unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let text = match error.kind().fault() {
            Fault::Peer => format!("{status}: {}\n", error.reason()),
            Fault::Application | Fault::System => format!("{status}\n"),
        };
        Response::text(text).with_status(status)
    }
}

impl From<Error> for Response {
    fn from(error: Error) -> Response {
        Response::from(&error)
    }
}

impl<E: Into<Response>> From<Result<Response, E>> for Response {
    fn from(result: Result<Response, E>) -> Response {
        result.unwrap_or_else(E::into)
    }
}

/// A value of which nothing can end the field.
pub(crate) fn field_value(bytes: &[u8]) -> HeaderValue {
    HeaderValue::from_bytes(bytes).unwrap_or_else(|_| {
        let clean = |&b: &u8| if b.is_ascii_control() && b != b'\t' { b' ' } else { b };
        let bytes: Vec<u8> = bytes.iter().map(clean).collect();
        HeaderValue::from_bytes(&bytes).expect("no control byte is left")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_as_a_response() {
        for (status, length, is_typed) in [
            (200, 7, true),
            (404, 14, true),
            (599, 26, true),
            (204, 0, false),
            (205, 0, false),
            (304, 0, false),
        ] {
            let response = Response::from(StatusCode::from_u16(status).unwrap());
            assert_eq!(response.status().as_u16(), status);
            assert_eq!(response.length(), Some(length), "{status}");
            assert_eq!(response.header("content-type").is_some(), is_typed, "{status}");
        }
    }
}
