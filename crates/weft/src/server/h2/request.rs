//! The fields of a HEADERS frame → the head of a request. Pure.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{CONNECTION, COOKIE, HOST, SEC_WEBSOCKET_KEY, UPGRADE};
use http::{Method, Version};

use crate::error::{Error, ErrorKind};
use crate::message::request::Head;
use crate::proto::headers::Headers;
use crate::proto::http1::parse::{Field as Place, Fields, Limits, MOST_BYTES, Span};
use crate::proto::http1::{framing, scan};
use crate::proto::http2::frame::Code;
use crate::proto::http2::hpack::{Field, Name};
use crate::proto::semantics::range::random_bytes;

/// What a client asks for.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) head: Head,
    /// The client waits for a 100 before it sends the body (RFC 9110 §10.1.1).
    pub(super) expects_continue: bool,
    /// The length of the body, if it was said.
    pub(super) length: Option<u64>,
    /// The stream is to become a tunnel, or a connection of another protocol.
    pub(super) is_tunnel: bool,
}

/// What is wrong with a block of fields, the worst last.
#[derive(Debug)]
pub(super) enum Fault {
    /// The client is told in words.
    Refused(Error),
    /// The stream is reset (RFC 9113 §8.1.1).
    Stream(Code),
    /// RFC 9113 §5.4.1 allows an error of a stream to be made one of the connection: who sends
    /// what no HTTP can say is no client of it.
    Connection(Code),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        Fault::Refused(error)
    }
}

const MALFORMED: Fault = Fault::Stream(Code::PROTOCOL_ERROR);

fn refused(reason: &'static str) -> Fault {
    Fault::Refused(Error::malformed(reason))
}

/// The fields of a block as they come, whether of a head or of trailers. Its room is used again.
#[derive(Default)]
pub(super) struct Fieldset {
    text: Vec<u8>,
    fields: Fields,
    /// The size of the list (RFC 9113 §6.5.2).
    size: usize,
    fault: Option<Fault>,
    pseudo: Pseudo,
    host: Option<usize>,
    /// Where there are cookies.
    cookies: usize,
    expects_continue: bool,
    length: Option<u64>,
    is_trailers: bool,
}

/// The pseudo-fields of a request (RFC 9113 §8.3.1, RFC 8441 §4).
#[derive(Default)]
struct Pseudo {
    method: Option<Method>,
    has_scheme: bool,
    authority: Option<Span>,
    path: Option<Span>,
    protocol: Option<Span>,
}

/// So many times larger than allowed a list may be to be refused in words. What is beyond that
/// is not even looked at.
const FAR_TOO_LARGE: usize = 4;

/// Heads that are larger than this are rare; their room is not kept.
const KEPT_BYTES: usize = 2 << 10;

/// What each field counts beside its text (RFC 9113 §6.5.2).
const FIELD_BYTES: usize = 32;

impl Fieldset {
    /// Forgets what was read, for the next block.
    pub(super) fn clear(&mut self, is_trailers: bool) {
        self.text.clear();
        self.text.shrink_to(KEPT_BYTES);
        self.fields.clear();
        (self.size, self.cookies) = (0, 0);
        (self.fault, self.host, self.length) = (None, None, None);
        self.pseudo = Pseudo::default();
        self.expects_continue = false;
        self.is_trailers = is_trailers;
    }

    /// Takes a field; `false` if there are far too many of them.
    pub(super) fn take(&mut self, field: Field<'_>, limits: &Limits) -> bool {
        self.size += field.name.len() + field.value.len() + FIELD_BYTES;
        if self.size > limits.head {
            self.note(Error::new(ErrorKind::HeadTooLarge, "the head is too large").into());
            return self.size <= limits.head * FAR_TOO_LARGE;
        }
        if let Err(fault) = self.read(field, limits) {
            self.note(fault);
        }
        true
    }

    /// Of several faults the worst counts, and of those the first.
    #[cold]
    fn note(&mut self, fault: Fault) {
        let rank = |fault: &Fault| match fault {
            Fault::Refused(_) => 0,
            Fault::Stream(_) => 1,
            Fault::Connection(_) => 2,
        };
        if self.fault.as_ref().is_none_or(|known| rank(known) < rank(&fault)) {
            self.fault = Some(fault);
        }
    }

    fn read(&mut self, field: Field<'_>, limits: &Limits) -> Result<(), Fault> {
        let Field { name, value, meaning } = field;
        match meaning.name {
            Name::Unsound => return Err(Fault::Connection(Code::PROTOCOL_ERROR)),
            Name::Method | Name::Scheme | Name::Authority | Name::Path | Name::Protocol => {
                return self.read_pseudo(meaning.name, value, limits);
            }
            Name::Status | Name::OfConnection => return Err(MALFORMED),
            _ if !meaning.is_sound => return Err(Fault::Connection(Code::PROTOCOL_ERROR)),
            Name::Te if value != b"trailers" => return Err(MALFORMED),
            _ if self.fields.len() == limits.fields + usize::from(self.has_added_host()) => {
                let reason = "the head has too many fields";
                return Err(Error::new(ErrorKind::HeadTooLarge, reason).into());
            }
            Name::Host if !self.is_trailers => return self.read_host(value),
            Name::ContentLength if !self.is_trailers => self.read_length(value)?,
            Name::Expect if !self.is_trailers => self.read_expectation(value)?,
            Name::Cookie => self.cookies += 1,
            _ => {}
        }
        if let [b' ' | b'\t', ..] | [.., b' ' | b'\t'] = value {
            // RFC 9113 §8.2.1
            return Err(refused("a field's value has white space around it"));
        }
        self.push(name, value);
        Ok(())
    }

    fn has_added_host(&self) -> bool {
        self.pseudo.authority.is_some()
    }

    fn part(&mut self, part: &[u8]) -> Span {
        let start = self.text.len();
        self.text.extend_from_slice(part);
        Span::new(start, self.text.len())
    }

    fn push(&mut self, name: &[u8], value: &[u8]) {
        let (name, value) = (self.part(name), self.part(value));
        self.fields.push(Place { name, value });
    }

    /// RFC 9113 §8.3: in front of all others, each once, and not in trailers.
    fn read_pseudo(&mut self, name: Name, value: &[u8], limits: &Limits) -> Result<(), Fault> {
        let others = self.fields.len() - usize::from(self.has_added_host());
        let is_again = match name {
            Name::Method => self.pseudo.method.is_some(),
            Name::Scheme => self.pseudo.has_scheme,
            Name::Authority => self.pseudo.authority.is_some(),
            Name::Path => self.pseudo.path.is_some(),
            _ => self.pseudo.protocol.is_some(),
        };
        if others > 0 || self.host.is_some() || is_again || self.is_trailers {
            return Err(MALFORMED);
        }
        match name {
            Name::Method => {
                let method = match value {
                    b"GET" => Method::GET,
                    _ => Method::from_bytes(value)
                        .map_err(|_| Fault::Connection(Code::PROTOCOL_ERROR))?,
                };
                self.pseudo.method = Some(method);
            }
            Name::Scheme if is_scheme(value) => self.pseudo.has_scheme = true,
            Name::Authority if may_be_authority(value) => {
                // Applications know it as Host, and as the first of the fields.
                self.push(HOST.as_str().as_bytes(), value);
                self.pseudo.authority = self.fields.last().map(|field| field.value);
            }
            Name::Path if !value.is_empty() && scan::target(value) == value.len() => {
                if value.len() > limits.request_line {
                    let reason = "the request target is too long";
                    return Err(Error::new(ErrorKind::TargetTooLong, reason).into());
                }
                self.pseudo.path = Some(self.part(value));
            }
            Name::Protocol if scan::token(value) == value.len() && !value.is_empty() => {
                self.pseudo.protocol = Some(self.part(value));
            }
            _ => return Err(MALFORMED),
        }
        Ok(())
    }

    /// RFC 9113 §8.3.1: it says the same as `:authority`, if that is there.
    fn read_host(&mut self, value: &[u8]) -> Result<(), Fault> {
        if self.host.is_some() {
            return Err(refused("more than one Host"));
        }
        self.host = Some(self.fields.len());
        let Some(authority) = self.pseudo.authority else {
            self.push(HOST.as_str().as_bytes(), value);
            return Ok(());
        };
        if !authority.of(&self.text).eq_ignore_ascii_case(value) {
            return Err(refused("Host is not the :authority"));
        }
        let value = self.part(value);
        self.fields[0].value = value;
        Ok(())
    }

    fn read_length(&mut self, value: &[u8]) -> Result<(), Fault> {
        if value.is_empty() {
            return Err(refused("Content-Length is not one decimal number"));
        }
        let length = framing::content_length(value).ok_or(MALFORMED)?;
        match self.length.replace(length) {
            None => Ok(()),
            Some(other) if other == length => Err(refused("more than one Content-Length")),
            Some(_) => Err(MALFORMED),
        }
    }

    fn read_expectation(&mut self, value: &[u8]) -> Result<(), Fault> {
        if !value.eq_ignore_ascii_case(b"100-continue") {
            let reason = "an unknown expectation";
            return Err(Error::new(ErrorKind::ExpectationFailed, reason).into());
        }
        self.expects_continue = true;
        Ok(())
    }

    /// The request that has these fields, and ends with them or goes on with a body.
    pub(super) fn request(&mut self, ends: bool) -> Result<Asked, Fault> {
        if let Some(fault) = self.fault.take() {
            return Err(fault);
        }
        let (method, target, is_tunnel) = self.check_pseudo()?;
        if ends && self.length.is_some_and(|length| length > 0) {
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
        let names = framing::target(&method, target, &self.text)?;
        let headers = self.headers();
        let head = Head::new(method, Version::HTTP_2, target, names, headers);
        let (expects_continue, length) = (self.expects_continue, self.length);
        Ok(Asked { head, expects_continue, length, is_tunnel })
    }

    /// The trailers that these fields are.
    pub(super) fn trailers(&mut self) -> Result<Headers, Fault> {
        match self.fault.take() {
            // There is nobody any more who could be told in words.
            Some(Fault::Refused(_)) => Err(MALFORMED),
            Some(fault) => Err(fault),
            None => Ok(self.headers()),
        }
    }

    fn headers(&mut self) -> Headers {
        Headers::new(Bytes::copy_from_slice(&self.text), std::mem::take(&mut self.fields))
    }

    /// Method and target, in the form that they would have over HTTP/1, and whether they want a
    /// tunnel.
    fn check_pseudo(&mut self) -> Result<(Method, Span, bool), Fault> {
        let Pseudo { method, has_scheme, authority, path, protocol } = &mut self.pseudo;
        let method = method.take().ok_or(MALFORMED)?;
        let is_extended = protocol.is_some();
        if method == Method::CONNECT && !is_extended {
            // RFC 9113 §8.5
            if *has_scheme || path.is_some() {
                return Err(MALFORMED);
            }
            let target = authority.ok_or_else(|| refused("CONNECT wants an authority"))?;
            return Ok((method, target, true));
        }
        if !*has_scheme || (is_extended && method != Method::CONNECT) {
            return Err(MALFORMED);
        }
        let path = match path {
            Some(path) => *path,
            None if authority.is_some() => return Err(MALFORMED),
            // Whoever asks so, without an authority, has HTTP/1 in mind, and is told in words.
            None => return Err(refused("there is no path")),
        };
        match path.of(&self.text) {
            [b'/', ..] => {}
            b"*" if method == Method::OPTIONS => {}
            [b'*' | b'?', ..] => return Err(refused("the path does not begin with a slash")),
            _ => return Err(MALFORMED),
        }
        // RFC 8441 §5: what is an upgrade of a GET over HTTP/1 is an extended CONNECT here. It is
        // handed on as that upgrade, so that applications need to know one form only.
        Ok((if is_extended { Method::GET } else { method }, path, is_extended))
    }

    fn put_host_first(&mut self) -> Result<(), Fault> {
        if self.pseudo.authority.is_none() {
            let place = self.host.ok_or_else(|| refused("neither :authority nor Host"))?;
            self.fields[..=place].rotate_right(1);
        }
        framing::check_authority(self.fields[0].value.of(&self.text))?;
        Ok(())
    }

    /// This is less than what the pseudo-fields count beside their text, so that all positions
    /// in the head stay within their two bytes.
    fn add_upgrade(&mut self, protocol: Span) {
        self.push(CONNECTION.as_str().as_bytes(), b"upgrade");
        let name = self.part(UPGRADE.as_str().as_bytes());
        self.fields.push(Place { name, value: protocol });
        let mut added = 2;
        if protocol.of(&self.text).eq_ignore_ascii_case(b"websocket") {
            // Over HTTP/2 there is none (RFC 8441 §5); who reads the request as one of HTTP/1
            // looks for it.
            let key = STANDARD.encode(random_bytes());
            self.push(SEC_WEBSOCKET_KEY.as_str().as_bytes(), key.as_bytes());
            added += 1;
        }
        self.fields[1..].rotate_right(added);
    }

    /// RFC 9113 §8.2.3: cookies may come one by one; elsewhere they are one field.
    fn join_cookies(&mut self) -> Result<(), Fault> {
        let (text, mut joined) = (&self.text, Vec::new());
        let is_cookie = |field: &Place| field.name.of(text) == COOKIE.as_str().as_bytes();
        for field in self.fields.iter().filter(|field| is_cookie(field)) {
            if !joined.is_empty() {
                joined.extend_from_slice(b"; ");
            }
            joined.extend_from_slice(field.value.of(text));
        }
        if text.len() + joined.len() > MOST_BYTES {
            return Err(Error::new(ErrorKind::HeadTooLarge, "the cookies are too large").into());
        }
        let first = self.fields.iter().position(&is_cookie);
        let mut place = 0;
        self.fields.retain(|field| {
            place += 1;
            !is_cookie(field) || Some(place - 1) == first
        });
        let value = self.part(&joined);
        if let Some(first) = first {
            self.fields[first].value = value;
        }
        Ok(())
    }
}

/// RFC 3986 §3.1
fn is_scheme(value: &[u8]) -> bool {
    value.first().is_some_and(u8::is_ascii_alphabetic)
        && value.iter().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(b))
}

/// Whether it has only what the authority of a URI may have; that it is a host and a port is
/// found out later.
fn may_be_authority(value: &[u8]) -> bool {
    static MAY_STAND: [bool; 256] = scan::letters_digits_and(b"-._~!$&'()*+,;=%:@[]");
    !value.is_empty() && value.iter().all(|&b| MAY_STAND[b as usize])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::http2::hpack::Decoder;

    const LIMITS: Limits = Limits { request_line: 30, head: 4_096, fields: 4 };

    fn fieldset(fields: &[(&str, &str)], is_trailers: bool) -> Fieldset {
        let mut block = Vec::new();
        for (name, value) in fields {
            block.extend([0, name.len() as u8]);
            block.extend(name.as_bytes());
            block.push(value.len() as u8);
            block.extend(value.as_bytes());
        }
        let mut set = Fieldset::default();
        set.clear(is_trailers);
        Decoder::new().decode(&block, |field| set.take(field, &LIMITS)).unwrap();
        set
    }

    /// A head in short: pseudo-fields are those that begin with a colon.
    fn read(method: &str, uri: &[&str], fields: &[(&str, &str)]) -> Result<Asked, Fault> {
        let mut head = vec![(":method", method)];
        head.extend(
            [":scheme", ":authority", ":path", ":protocol"].into_iter().zip(uri.iter().copied()),
        );
        head.retain(|(_, value)| *value != "-");
        head.extend(fields);
        fieldset(&head, false).request(true)
    }

    /// Method, target and fields of a request.
    fn show(asked: &Asked) -> String {
        let head = &asked.head;
        let fields: Vec<_> = head
            .headers()
            .iter()
            .map(|(name, value)| format!("{name}: {}", String::from_utf8_lossy(value)))
            .collect();
        format!("{} {} {}", head.method(), head.target(), fields.join(" | "))
    }

    #[test]
    fn heads_as_applications_see_them() {
        for (method, uri, fields, shown) in [
            ("GET", &["http", "a", "/x?y"][..], &[][..], "GET /x?y host: a"),
            ("GET", &["http", "a:80", "/"], &[("host", "A:80")], "GET / host: A:80"),
            ("GET", &["http", "-", "/"], &[("x", "1"), ("host", "a")], "GET / host: a | x: 1"),
            (
                "GET",
                &["http", "a", "/"],
                &[("x", "1"), ("y", ""), ("x", "2")],
                "GET / host: a | x: 1 | y:  | x: 2",
            ),
            (
                "GET",
                &["http", "a", "/"],
                &[("cookie", "a=1"), ("x", "1"), ("cookie", "b=2"), ("cookie", "c=3")],
                "GET / host: a | cookie: a=1; b=2; c=3 | x: 1",
            ),
            (
                "GET",
                &["http", "-", "/"],
                &[("x", "1"), ("cookie", "a=1"), ("host", "a"), ("cookie", "b=2")],
                "GET / host: a | x: 1 | cookie: a=1; b=2",
            ),
            ("CONNECT", &["-", "a:1"], &[], "CONNECT a:1 host: a:1"),
            ("OPTIONS", &["http", "-", "*"], &[("host", "a")], "OPTIONS * host: a"),
        ] {
            let asked = read(method, uri, fields).unwrap();
            assert_eq!(show(&asked), shown);
            assert_eq!(asked.is_tunnel, method == "CONNECT");
        }
    }

    #[test]
    fn an_extended_connect_is_an_upgrade() {
        for (uri, host) in [
            (["http", "a", "/chat", "websocket"], &[][..]),
            (["http", "-", "/chat", "websocket"], &[("host", "a")]),
        ] {
            let fields = [&[("sec-websocket-version", "13")], host].concat();
            let asked = read("CONNECT", &uri, &fields).unwrap();
            let key = asked.head.headers().get("sec-websocket-key").unwrap().to_owned();
            assert_eq!(key.len(), 24);
            assert_eq!(
                show(&asked).replace(&key, "KEY"),
                "GET /chat host: a | connection: upgrade | upgrade: websocket | \
                 sec-websocket-key: KEY | sec-websocket-version: 13"
            );
            assert!(asked.is_tunnel);
        }
    }

    #[test]
    fn what_is_refused() {
        let plain = &["http", "a", "/"][..];
        let large = &"x".repeat(126)[..];
        for (method, uri, fields, kind) in [
            ("GET", &["http", "-", "/"][..], &[][..], ErrorKind::Malformed),
            ("GET", &["http", "-", "/"], &[("host", "a"), ("host", "a")], ErrorKind::Malformed),
            ("GET", &["http", "-", "/"], &[("host", "a b")], ErrorKind::Malformed),
            ("GET", plain, &[("host", "b")], ErrorKind::Malformed),
            ("GET", &["http", "u@a", "/"], &[], ErrorKind::Malformed),
            ("GET", &["http", "-", "*"], &[("host", "a")], ErrorKind::Malformed),
            ("GET", plain, &[("x", " 1")], ErrorKind::Malformed),
            ("GET", plain, &[("x", "1\t")], ErrorKind::Malformed),
            ("CONNECT", &["-", "a"], &[], ErrorKind::Malformed),
            ("GET", plain, &[("expect", "miracles")], ErrorKind::ExpectationFailed),
            (
                "GET",
                plain,
                &[("expect", "100-continue"), ("expect", "miracles")],
                ErrorKind::ExpectationFailed,
            ),
            ("PUT", plain, &[("content-length", "")], ErrorKind::Malformed),
            (
                "PUT",
                plain,
                &[("content-length", "5"), ("content-length", "5")],
                ErrorKind::Malformed,
            ),
            (
                "GET",
                &["http", "a", "/234567890123456789012345678901"],
                &[],
                ErrorKind::TargetTooLong,
            ),
            (
                "GET",
                plain,
                &[("a", ""), ("b", ""), ("c", ""), ("d", ""), ("e", "")],
                ErrorKind::HeadTooLarge,
            ),
            ("GET", plain, &[("a", large); 26], ErrorKind::HeadTooLarge),
        ] {
            match read(method, uri, fields) {
                Err(Fault::Refused(error)) => {
                    assert_eq!(error.kind(), kind, "{method} {uri:?} {fields:?}");
                }
                other => panic!("{method} {uri:?} {fields:?}: {other:?}"),
            }
        }
    }

    #[test]
    fn what_costs_the_stream_or_the_connection() {
        let plain = &["http", "a", "/"][..];
        for (method, uri, fields, of_connection) in [
            ("-", plain, &[][..], false),
            ("GET", &["-", "a", "/"], &[], false),
            ("GET", &["http", "a"], &[], false),
            ("GET", &["h/p", "a", "/"], &[], false),
            ("GET", &["http", "a/b", "/"], &[], false),
            ("GET", &["http", "a", ""], &[], false),
            ("GET", &["http", "a", "x"], &[], false),
            ("GET", &["http", "a", "/a b"], &[], false),
            ("GET", &["http", "a", "/", "x"], &[], false),
            ("CONNECT", &["http", "a:1"], &[], false),
            ("CONNECT", &["-", "a:1", "/"], &[], false),
            ("CONNECT", &["-", "a:1", "-", "x"], &[], false),
            ("GET", plain, &[("x", ""), (":path", "/")], false),
            ("GET", plain, &[(":path", "/")], false),
            ("GET", plain, &[(":status", "200")], false),
            ("GET", plain, &[("connection", "close")], false),
            ("GET", plain, &[("te", "gzip")], false),
            ("GET", plain, &[("content-length", "x")], false),
            ("GET", plain, &[("content-length", "5")], false),
            ("GET", plain, &[("content-length", "5"), ("content-length", "6")], false),
            // The worst counts, wherever it stands.
            ("GET", plain, &[("x", " 1"), ("connection", "close")], false),
            ("GET", plain, &[("connection", "close"), ("x", "\0")], true),
            ("G T", plain, &[], true),
            ("GET", plain, &[("X", "")], true),
            ("GET", plain, &[("", "")], true),
            ("GET", plain, &[(":x", "")], true),
            ("GET", plain, &[("x", "a\nb")], true),
        ] {
            let fault = read(method, uri, fields).unwrap_err();
            let is_it = match fault {
                Fault::Stream(code) => !of_connection && code == Code::PROTOCOL_ERROR,
                Fault::Connection(code) => of_connection && code == Code::PROTOCOL_ERROR,
                Fault::Refused(_) => false,
            };
            assert!(is_it, "{method} {uri:?} {fields:?}: {fault:?}");
        }
    }

    #[test]
    fn trailers() {
        for (fields, is_sound) in [
            (&[("x", "1"), ("content-length", "1"), ("expect", "y")][..], true),
            (&[], true),
            (&[(":path", "/")], false),
            (&[("connection", "close")], false),
            (&[("x", " 1")], false),
            (&[("a", ""), ("b", ""), ("c", ""), ("d", ""), ("e", "")], false),
        ] {
            assert_eq!(fieldset(fields, true).trailers().is_ok(), is_sound, "{fields:?}");
        }
    }
}
