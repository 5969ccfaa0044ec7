//! Conversion of the fields of a request into its head (RFC 9113 §8, RFC 9114 §4). Pure.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{CONNECTION, COOKIE, HOST, SEC_WEBSOCKET_KEY, UPGRADE};
use http::{Method, StatusCode, Version};

use crate::error::{Error, ErrorKind};
use crate::hooks::request_line;
use crate::message::request_head::RequestHead;
use crate::random::random_bytes;
use weft_proto::headers::Headers;
use weft_proto::http1::parse::{Field as FieldSpans, Fields, Limits, MAX_HEAD_BYTES, Span};
use weft_proto::http1::{framing, scan};
use weft_proto::http2::hpack::{Field, Name};

/// A parsed request.
#[derive(Debug)]
pub(in crate::server) struct ParsedRequest {
    pub(in crate::server) head: RequestHead,
    /// The client waits for a 100 before it sends the body (RFC 9110 §10.1.1).
    pub(in crate::server) expects_continue: bool,
    /// The value of Content-Length, if present.
    pub(in crate::server) length: Option<u64>,
    /// The request is a CONNECT: the stream becomes a tunnel (RFC 9113 §8.5, RFC 8441).
    pub(in crate::server) is_tunnel: bool,
}

/// An invalid request.
#[derive(Debug)]
pub(in crate::server) struct InvalidRequest {
    /// `None` once its response has begun.
    pub(in crate::server) error: Option<Error>,
    /// Start of its request line in HTTP/1 form, for the record.
    pub(in crate::server) line: Box<[u8]>,
    /// Set if the stream was reset, so that there is no response.
    pub(in crate::server) is_reset: bool,
}

/// An error in a field block, in order of increasing severity.
#[derive(Debug)]
pub(in crate::server) enum FieldBlockError {
    /// The client receives a response that describes the error.
    Respond(Error),
    /// The request is malformed: its stream is reset (RFC 9113 §8.1.1).
    Malformed,
}

impl From<weft_proto::Error> for FieldBlockError {
    fn from(error: weft_proto::Error) -> FieldBlockError {
        FieldBlockError::Respond(error.into())
    }
}

impl From<Error> for FieldBlockError {
    fn from(error: Error) -> FieldBlockError {
        FieldBlockError::Respond(error)
    }
}

const MALFORMED: FieldBlockError = FieldBlockError::Malformed;

fn invalid(reason: &'static str) -> FieldBlockError {
    FieldBlockError::Respond(Error::malformed(reason))
}

/// The fields of a field block, of a head or of trailers. The buffers are reused.
pub(in crate::server) struct FieldBlock {
    version: Version,
    text: Vec<u8>,
    fields: Fields,
    /// The size of the field section (RFC 9113 §6.5.2).
    size: usize,
    error: Option<FieldBlockError>,
    pseudo: Pseudo,
    /// The index of the Host field.
    host: Option<usize>,
    /// The number of `cookie` fields.
    cookies: usize,
    expects_continue: bool,
    length: Option<u64>,
    is_trailers: bool,
    /// The request is early data: another party may repeat it (RFC 8470 §3).
    is_early: bool,
}

/// The pseudo-header fields of a request (RFC 9113 §8.3.1, RFC 8441 §4).
#[derive(Default)]
struct Pseudo {
    method: Option<Method>,
    has_scheme: bool,
    authority: Option<Span>,
    path: Option<Span>,
    protocol: Option<Span>,
}

impl Pseudo {
    /// Returns the method in HTTP/1 form. An extended CONNECT corresponds to the upgrade of a GET
    /// (RFC 8441 §5). It is passed to the application in that form, so that applications handle
    /// one form only.
    fn http1_method(&self) -> Result<&Method, FieldBlockError> {
        match self.protocol {
            Some(_) => Ok(&Method::GET),
            None => self.method.as_ref().ok_or(MALFORMED),
        }
    }

    /// Takes the [method](Pseudo::http1_method) of a valid request.
    fn take_http1_method(&mut self) -> Method {
        let method = self.method.take();
        method.filter(|_| self.protocol.is_none()).unwrap_or_default()
    }
}

/// A field section up to this many times the limit is rejected with a response. Decoding stops
/// beyond that.
const MAX_OVERSIZE_FACTOR: usize = 4;

/// Capacity kept for the next block; larger heads are rare.
const MAX_RETAINED_BYTES: usize = 2 << 10;

/// Size of each field in addition to its name and value (RFC 9113 §6.5.2).
const FIELD_OVERHEAD: usize = 32;

impl FieldBlock {
    pub(in crate::server) fn new(version: Version) -> FieldBlock {
        FieldBlock {
            version,
            text: Vec::new(),
            fields: Fields::default(),
            size: 0,
            error: None,
            pseudo: Pseudo::default(),
            host: None,
            cookies: 0,
            expects_continue: false,
            length: None,
            is_trailers: false,
            is_early: false,
        }
    }

    /// Marks the request as early data, until the next [`clear`](FieldBlock::clear).
    #[cfg(feature = "http3")]
    pub(in crate::server) fn mark_early(&mut self) {
        self.is_early = true;
    }

    /// Resets the state for the next block.
    pub(in crate::server) fn clear(&mut self, is_trailers: bool) {
        self.text.clear();
        self.text.shrink_to(MAX_RETAINED_BYTES);
        self.fields.clear();
        (self.size, self.cookies) = (0, 0);
        (self.error, self.host, self.length) = (None, None, None);
        self.pseudo = Pseudo::default();
        self.expects_continue = false;
        self.is_trailers = is_trailers;
        self.is_early = false;
    }

    /// Size of the names and values.
    pub(in crate::server) fn text_bytes(&self) -> usize {
        self.text.len()
    }

    /// Adds a field. Returns false if the section is so large that decoding must stop.
    pub(in crate::server) fn on_field(&mut self, field: Field<'_>, limits: &Limits) -> bool {
        self.size += field.name.len() + field.value.len() + FIELD_OVERHEAD;
        if self.size > limits.head {
            let error = Error::new(ErrorKind::HeadTooLarge, "the head is too large");
            self.record(error.with_limit("max_head_bytes").into());
            return self.size <= limits.head * MAX_OVERSIZE_FACTOR;
        }
        if let Err(error) = self.read(field, limits) {
            self.record(error);
        }
        true
    }

    /// Records an error. Of several, the most severe is kept, and of equally severe ones the first.
    #[cold]
    fn record(&mut self, error: FieldBlockError) {
        let rank = |error: &FieldBlockError| match error {
            FieldBlockError::Respond(_) => 0,
            FieldBlockError::Malformed => 1,
        };
        if self.error.as_ref().is_none_or(|recorded| rank(recorded) < rank(&error)) {
            self.error = Some(error);
        }
    }

    fn read(&mut self, field: Field<'_>, limits: &Limits) -> Result<(), FieldBlockError> {
        let Field { name, value, class } = field;
        match class.name {
            Name::Method | Name::Scheme | Name::Authority | Name::Path | Name::Protocol => {
                return self.read_pseudo(class.name, value, limits);
            }
            Name::Invalid | Name::Status | Name::ConnectionSpecific => return Err(MALFORMED),
            _ if !class.is_valid_value => return Err(MALFORMED),
            Name::Te if value != b"trailers" => return Err(MALFORMED),
            _ if self.fields.len() == limits.fields + usize::from(self.has_added_host()) => {
                let reason = "the head has too many fields";
                return Err(Error::new(ErrorKind::HeadTooLarge, reason)
                    .with_limit("max_fields")
                    .into());
            }
            Name::Host if !self.is_trailers => return self.read_host(value),
            Name::ContentLength if !self.is_trailers => self.read_length(value)?,
            Name::Expect if !self.is_trailers => self.read_expectation(value)?,
            Name::Cookie => self.cookies += 1,
            _ => {}
        }
        if let [b' ' | b'\t', ..] | [.., b' ' | b'\t'] = value {
            // RFC 9113 §8.2.1
            return Err(invalid("a field value has leading or trailing white space"));
        }
        self.push(name, value);
        Ok(())
    }

    fn has_added_host(&self) -> bool {
        self.pseudo.authority.is_some()
    }

    fn append(&mut self, part: &[u8]) -> Span {
        let start = self.text.len();
        self.text.extend_from_slice(part);
        Span::new(start, self.text.len())
    }

    fn push(&mut self, name: &[u8], value: &[u8]) {
        let (name, value) = (self.append(name), self.append(value));
        self.fields.push(FieldSpans { name, value });
    }

    /// Reads a pseudo-header field. RFC 9113 §8.3: they precede all other fields, occur once each,
    /// and are not allowed in trailers.
    fn read_pseudo(
        &mut self,
        name: Name,
        value: &[u8],
        limits: &Limits,
    ) -> Result<(), FieldBlockError> {
        let others = self.fields.len() - usize::from(self.has_added_host());
        let is_repeated = match name {
            Name::Method => self.pseudo.method.is_some(),
            Name::Scheme => self.pseudo.has_scheme,
            Name::Authority => self.pseudo.authority.is_some(),
            Name::Path => self.pseudo.path.is_some(),
            _ => self.pseudo.protocol.is_some(),
        };
        if others > 0 || self.host.is_some() || is_repeated || self.is_trailers {
            return Err(MALFORMED);
        }
        match name {
            Name::Method => {
                let method = match value {
                    b"GET" => Method::GET,
                    _ => Method::from_bytes(value).map_err(|_| MALFORMED)?,
                };
                self.pseudo.method = Some(method);
            }
            Name::Scheme if is_scheme(value) => self.pseudo.has_scheme = true,
            Name::Authority if has_authority_bytes(value) => {
                // Applications get it as the first field, Host.
                self.push(HOST.as_str().as_bytes(), value);
                self.pseudo.authority = self.fields.last().map(|field| field.value);
            }
            Name::Path if !value.is_empty() && scan::target(value) == value.len() => {
                if value.len() > limits.request_line {
                    let reason = "the request target is too long";
                    return Err(Error::new(ErrorKind::TargetTooLong, reason).into());
                }
                self.pseudo.path = Some(self.append(value));
            }
            Name::Protocol if scan::token(value) == value.len() && !value.is_empty() => {
                self.pseudo.protocol = Some(self.append(value));
            }
            _ => return Err(MALFORMED),
        }
        Ok(())
    }

    /// Reads Host, which must match `:authority` if that is present (RFC 9113 §8.3.1).
    fn read_host(&mut self, value: &[u8]) -> Result<(), FieldBlockError> {
        if self.host.is_some() {
            return Err(invalid("more than one Host"));
        }
        self.host = Some(self.fields.len());
        let Some(authority) = self.pseudo.authority else {
            self.push(HOST.as_str().as_bytes(), value);
            return Ok(());
        };
        if !authority.of(&self.text).eq_ignore_ascii_case(value) {
            return Err(invalid("Host does not match :authority"));
        }
        let value = self.append(value);
        self.fields[0].value = value;
        Ok(())
    }

    fn read_length(&mut self, value: &[u8]) -> Result<(), FieldBlockError> {
        if value.is_empty() {
            return Err(invalid("Content-Length is not one decimal number"));
        }
        let length = framing::content_length(value).ok_or(MALFORMED)?;
        match self.length.replace(length) {
            None => Ok(()),
            Some(other) if other == length => Err(invalid("more than one Content-Length")),
            Some(_) => Err(MALFORMED),
        }
    }

    fn read_expectation(&mut self, value: &[u8]) -> Result<(), FieldBlockError> {
        if !value.eq_ignore_ascii_case(b"100-continue") {
            let reason = "an unknown expectation";
            return Err(Error::new(ErrorKind::ExpectationFailed, reason).into());
        }
        self.expects_continue = true;
        Ok(())
    }

    /// Builds the request. `end_stream` is true if it has no body.
    pub(in crate::server) fn request(
        &mut self,
        end_stream: bool,
    ) -> Result<ParsedRequest, FieldBlockError> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        let (target, is_tunnel) = self.check_pseudo()?;
        if end_stream && self.length.is_some_and(|length| length > 0) {
            // RFC 9113 §8.1.1
            return Err(MALFORMED);
        }
        self.put_host_first()?;
        if let Some(protocol) = self.pseudo.protocol {
            self.add_upgrade(protocol);
        }
        if self.cookies > 1 {
            self.join_cookies()?;
        }
        if self.is_early {
            self.add_early_data(is_tunnel)?;
        }
        let parts = framing::target(self.pseudo.http1_method()?, target, &self.text)?;
        let method = self.pseudo.take_http1_method();
        let headers = self.headers();
        let head = RequestHead::new(method, self.version, target, parts, headers);
        let (expects_continue, length) = (self.expects_continue, self.length);
        Ok(ParsedRequest { head, expects_continue, length, is_tunnel })
    }

    /// Builds the trailer section.
    pub(in crate::server) fn trailers(&mut self) -> Result<Headers, FieldBlockError> {
        match self.error.take() {
            // An error response is no longer possible: the response may have started.
            Some(FieldBlockError::Respond(_)) => Err(MALFORMED),
            Some(error) => Err(error),
            None => Ok(self.headers()),
        }
    }

    fn headers(&mut self) -> Headers {
        Headers::new(Bytes::copy_from_slice(&self.text), std::mem::take(&mut self.fields))
    }

    /// Returns the invalid request in this block.
    #[cold]
    pub(in crate::server) fn invalid_request(
        &self,
        error: Error,
        is_reset: bool,
    ) -> Box<InvalidRequest> {
        let method = self.pseudo.method.as_ref().map_or("-", Method::as_str);
        let path = self.pseudo.path.map_or(&b"-"[..], |path| path.of(&self.text));
        let version: &[u8] = match self.version {
            Version::HTTP_3 => b" HTTP/3.0",
            _ => b" HTTP/2.0",
        };
        let line = [method.as_bytes(), b" ", path, version].concat();
        Box::new(InvalidRequest { error: Some(error), line: request_line(&line).into(), is_reset })
    }

    /// Checks the pseudo-header fields. Returns the target in its HTTP/1 form, and true if the
    /// stream becomes a tunnel.
    fn check_pseudo(&self) -> Result<(Span, bool), FieldBlockError> {
        let Pseudo { method, has_scheme, authority, path, protocol } = &self.pseudo;
        let method = method.as_ref().ok_or(MALFORMED)?;
        let is_extended = protocol.is_some();
        if *method == Method::CONNECT && !is_extended {
            // RFC 9113 §8.5
            if *has_scheme || path.is_some() {
                return Err(MALFORMED);
            }
            let target = authority.ok_or_else(|| invalid("CONNECT without :authority"))?;
            return Ok((target, true));
        }
        if !*has_scheme || (is_extended && *method != Method::CONNECT) {
            return Err(MALFORMED);
        }
        let path = match path {
            Some(path) => *path,
            None if authority.is_some() => return Err(MALFORMED),
            // Without :authority, the client has probably converted an HTTP/1 request: it gets a
            // response that describes the error.
            None => return Err(invalid("no :path")),
        };
        match path.of(&self.text) {
            [b'/', ..] => {}
            b"*" if *method == Method::OPTIONS => {}
            [b'*' | b'?', ..] => return Err(invalid("the path does not start with a slash")),
            _ => return Err(MALFORMED),
        }
        Ok((path, is_extended))
    }

    fn put_host_first(&mut self) -> Result<(), FieldBlockError> {
        if self.pseudo.authority.is_none() {
            let index = self.host.ok_or_else(|| invalid("neither :authority nor Host"))?;
            self.fields[..=index].rotate_right(1);
        }
        framing::check_authority(self.fields[0].value.of(&self.text))?;
        Ok(())
    }

    /// Adds `Early-Data: 1`, so that applications and upstreams can respond with 425. Rejects
    /// methods that are not safe: they may be repeated (RFC 8470 §5). As in an upgrade, the field
    /// is smaller than the overhead of the pseudo-header fields.
    fn add_early_data(&mut self, is_tunnel: bool) -> Result<(), FieldBlockError> {
        let is_safe = self.pseudo.method.as_ref().is_some_and(Method::is_safe);
        if is_tunnel || !is_safe {
            let too_early = ErrorKind::Status(StatusCode::TOO_EARLY);
            return Err(Error::new(too_early, "early data with a method that is not safe").into());
        }
        self.push(b"early-data", b"1");
        Ok(())
    }

    /// Adds the fields of an HTTP/1 upgrade. They are smaller than the overhead counted for the
    /// pseudo-header fields, so all positions in the head still fit into two bytes.
    fn add_upgrade(&mut self, protocol: Span) {
        self.push(CONNECTION.as_str().as_bytes(), b"upgrade");
        let name = self.append(UPGRADE.as_str().as_bytes());
        self.fields.push(FieldSpans { name, value: protocol });
        let mut added = 2;
        if protocol.of(&self.text).eq_ignore_ascii_case(b"websocket") {
            // HTTP/2 has no such field (RFC 8441 §5), but code that handles HTTP/1 upgrades
            // requires it.
            let key = STANDARD.encode(random_bytes());
            self.push(SEC_WEBSOCKET_KEY.as_str().as_bytes(), key.as_bytes());
            added += 1;
        }
        self.fields[1..].rotate_right(added);
    }

    /// Joins the `cookie` fields, which HTTP/2 allows to be split (RFC 9113 §8.2.3), into one
    /// field.
    fn join_cookies(&mut self) -> Result<(), FieldBlockError> {
        let (text, mut joined) = (&self.text, Vec::new());
        let is_cookie = |field: &FieldSpans| field.name.of(text) == COOKIE.as_str().as_bytes();
        for field in self.fields.iter().filter(|field| is_cookie(field)) {
            if !joined.is_empty() {
                joined.extend_from_slice(b"; ");
            }
            joined.extend_from_slice(field.value.of(text));
        }
        if text.len() + joined.len() > MAX_HEAD_BYTES {
            return Err(Error::new(ErrorKind::HeadTooLarge, "the cookies are too large").into());
        }
        let first = self.fields.iter().position(&is_cookie);
        let mut index = 0;
        self.fields.retain(|field| {
            index += 1;
            !is_cookie(field) || Some(index - 1) == first
        });
        let value = self.append(&joined);
        if let Some(first) = first {
            self.fields[first].value = value;
        }
        Ok(())
    }
}

/// Returns true if the scheme is valid (RFC 3986 §3.1).
fn is_scheme(value: &[u8]) -> bool {
    value.first().is_some_and(u8::is_ascii_alphabetic)
        && value.iter().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(b))
}

/// Returns true if all bytes are allowed in the authority of a URI. `framing::check_authority`
/// checks the host and the port later.
fn has_authority_bytes(value: &[u8]) -> bool {
    static ALLOWED: [bool; 256] = scan::letters_digits_and(b"-._~!$&'()*+,;=%:@[]");
    !value.is_empty() && value.iter().all(|&b| ALLOWED[b as usize])
}

#[cfg(test)]
mod tests;
