//! The fields of a HEADERS frame → the head of a request. Pure.
//!
//! What the crate h2 refuses never comes here: pseudo-fields that are missing, repeated or out
//! of place, names in capitals, fields that belong to a connection (RFC 9113 §8.2 and §8.3).

use std::cell::RefCell;
use std::sync::LazyLock;

use ::h2::ext::Protocol;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, HOST, SEC_WEBSOCKET_KEY, UPGRADE};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Version};

use crate::error::{Error, ErrorKind, Result};
use crate::h1::framing;
use crate::h1::parse::Limits;
use crate::headers::Lines;
use crate::range::random_bytes;
use crate::request::Head;

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

/// Reads a request, or refuses it.
pub(super) fn read(parts: &Parts, limits: &Limits, last: &LastAuthority) -> Result<Asked> {
    let Parts { headers: map, extensions, .. } = parts;
    let protocol = extensions.get::<Protocol>().map(Protocol::as_str);
    let (method, target) = target(parts, protocol.is_some(), limits)?;
    if map.len() > limits.fields {
        return Err(Error::new(ErrorKind::HeadTooLarge, "the head has too many fields"));
    }
    let known = Known::find(map)?;
    let host = authority(parts, known.host)?;
    last.check(host)?;
    // A little too much if `Host` was there. What is added beyond that is rare.
    let mut lines = Lines::with_capacity(target.len() + "host".len() + host.len() + known.bytes)?;
    let whole = lines.part(target);
    lines.field(HOST.as_str().as_bytes(), host.as_bytes());
    if let Some(protocol) = protocol {
        write_upgrade(&mut lines, protocol);
    }
    write_fields(&mut lines, map)?;
    let names = framing::target(&method, whole, &lines.text)?;
    let is_tunnel = protocol.is_some() || method == Method::CONNECT;
    let head = Head::new(method, Version::HTTP_2, whole, names, lines.into_headers());
    Ok(Asked { head, expects_continue: known.expects_continue, length: known.length, is_tunnel })
}

/// What the fields say that matters here, and how long they are. Looked for in passing, for to
/// look names up in the map costs more.
#[derive(Default)]
struct Known<'a> {
    host: Option<&'a HeaderValue>,
    expects_continue: bool,
    length: Option<u64>,
    /// Of all names and values.
    bytes: usize,
}

impl Known<'_> {
    fn find(map: &HeaderMap) -> Result<Known<'_>> {
        let mut known = Known::default();
        for (name, value) in map {
            known.bytes += name.as_str().len() + value.len();
            if *name == HOST {
                if known.host.replace(value).is_some() {
                    return Err(Error::malformed("more than one Host"));
                }
            } else if *name == CONTENT_LENGTH {
                let length = framing::content_length(value.as_bytes());
                let length = length
                    .ok_or_else(|| Error::malformed("Content-Length is not one decimal number"))?;
                if known.length.replace(length).is_some() {
                    return Err(Error::malformed("more than one Content-Length"));
                }
            } else if *name == EXPECT {
                if !value.as_bytes().eq_ignore_ascii_case(b"100-continue") {
                    let reason = "an unknown expectation";
                    return Err(Error::new(ErrorKind::ExpectationFailed, reason));
                }
                known.expects_continue = true;
            }
        }
        Ok(known)
    }
}

static SLASH: LazyLock<PathAndQuery> = LazyLock::new(|| PathAndQuery::from_static("/"));

/// Method and target, in the form that they would have over HTTP/1.
fn target<'a>(parts: &'a Parts, extended: bool, limits: &Limits) -> Result<(Method, &'a [u8])> {
    if parts.method == Method::CONNECT && !extended {
        let authority = parts.uri.authority();
        let authority = authority.ok_or_else(|| Error::malformed("CONNECT wants an authority"))?;
        return Ok((Method::CONNECT, authority.as_str().as_bytes()));
    }
    let path = parts.uri.path_and_query();
    // A path that was not sent looks like a slash, but is not equal to one.
    let path = path.filter(|path| **path != "/" || **path == *SLASH);
    let path = path.map_or("", |path| path.as_str());
    if path.len() > limits.request_line {
        return Err(Error::new(ErrorKind::TargetTooLong, "the request target is too long"));
    }
    let is_asterisk = path == "*" && parts.method == Method::OPTIONS;
    if !path.starts_with('/') && !is_asterisk {
        return Err(Error::malformed("the path does not begin with a slash"));
    }
    // RFC 8441 §5: what is an upgrade of a GET over HTTP/1 is an extended CONNECT here. It is
    // handed on as that upgrade, so that applications need to know one form only.
    let method = if extended { Method::GET } else { parts.method.clone() };
    Ok((method, path.as_bytes()))
}

/// The host that the request is for (RFC 9113 §8.3.1).
fn authority<'a>(parts: &'a Parts, host: Option<&'a HeaderValue>) -> Result<&'a str> {
    let host = host.map(HeaderValue::to_str).transpose();
    let host = host.map_err(|_| Error::malformed("not a valid host and port"))?;
    let authority = match (parts.uri.authority(), host) {
        (None, None) => return Err(Error::malformed("neither :authority nor Host")),
        (None, Some(host)) => host,
        (Some(authority), None) => authority.as_str(),
        (Some(authority), Some(host)) if authority.as_str().eq_ignore_ascii_case(host) => host,
        (Some(_), Some(_)) => return Err(Error::malformed("Host is not the :authority")),
    };
    Ok(authority)
}

/// A longer authority is not kept: the names of hosts are not that long, and a connection at
/// rest is to be small.
const MOST_KEPT_BYTES: usize = 255;

/// The authority that was found to be a proper one last: most connections have only one.
#[derive(Default)]
pub(super) struct LastAuthority(RefCell<String>);

impl LastAuthority {
    fn check(&self, authority: &str) -> Result<()> {
        let mut last = self.0.borrow_mut();
        if *last != authority {
            framing::check_authority(authority.as_bytes())?;
            if authority.len() <= MOST_KEPT_BYTES {
                authority.clone_into(&mut last);
            }
        }
        Ok(())
    }
}

fn write_upgrade(lines: &mut Lines, protocol: &str) {
    lines.field(CONNECTION.as_str().as_bytes(), b"upgrade");
    lines.field(UPGRADE.as_str().as_bytes(), protocol.as_bytes());
    if protocol.eq_ignore_ascii_case("websocket") {
        // Over HTTP/2 there is none (RFC 8441 §5); who reads the request as one of HTTP/1
        // looks for it.
        let key = STANDARD.encode(random_bytes());
        lines.field(SEC_WEBSOCKET_KEY.as_str().as_bytes(), key.as_bytes());
    }
}

fn write_fields(lines: &mut Lines, map: &HeaderMap) -> Result<()> {
    let mut in_cookies = false;
    for (name, value) in map {
        let value = value.as_bytes();
        if value.trim_ascii().len() != value.len() {
            // RFC 9113 §8.2.1
            return Err(Error::malformed("a field's value has white space around it"));
        }
        if *name == HOST {
            continue; // It stands in front already.
        }
        // RFC 9113 §8.2.3: cookies may come one by one; elsewhere they are one field.
        if *name == COOKIE && std::mem::replace(&mut in_cookies, *name == COOKIE) {
            lines.extend_last(&[b"; ", value]);
        } else {
            lines.field(name.as_str().as_bytes(), value);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { request_line: 30, head: 16_384, fields: 4 };

    fn parts(method: &str, uri: &str, fields: &[(&str, &str)]) -> Parts {
        let mut request = http::Request::builder().method(method).uri(uri);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    /// Method, target, path and fields of a request.
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
            ("GET", "http://a/x?y", &[][..], "GET /x?y host: a"),
            ("GET", "http://a:80/", &[("host", "A:80")], "GET / host: A:80"),
            ("GET", "/", &[("host", "a"), ("x", "1")], "GET / host: a | x: 1"),
            (
                "GET",
                "http://a/",
                &[("x", "1"), ("y", ""), ("x", "2")],
                "GET / host: a | x: 1 | x: 2 | y: ",
            ),
            (
                "GET",
                "http://a/",
                &[("cookie", "a=1"), ("x", "1"), ("cookie", "b=2"), ("cookie", "c=3")],
                "GET / host: a | cookie: a=1; b=2; c=3 | x: 1",
            ),
            ("CONNECT", "a:1", &[], "CONNECT a:1 host: a:1"),
            ("OPTIONS", "*", &[("host", "a")], "OPTIONS * host: a"),
        ] {
            let asked =
                read(&parts(method, uri, fields), &LIMITS, &LastAuthority::default()).unwrap();
            assert_eq!(show(&asked), shown);
            assert_eq!(asked.is_tunnel, method == "CONNECT");
        }
    }

    #[test]
    fn an_extended_connect_is_an_upgrade() {
        let mut parts = parts("CONNECT", "http://a/chat", &[("sec-websocket-version", "13")]);
        parts.extensions.insert(Protocol::from_static("websocket"));
        let asked = read(&parts, &LIMITS, &LastAuthority::default()).unwrap();
        let key = asked.head.headers().get("sec-websocket-key").unwrap().to_owned();
        assert_eq!(key.len(), 24);
        assert_eq!(
            show(&asked).replace(&key, "KEY"),
            "GET /chat host: a | connection: upgrade | upgrade: websocket | \
             sec-websocket-key: KEY | sec-websocket-version: 13"
        );
        assert!(asked.is_tunnel);
    }

    #[test]
    fn another_authority_is_checked_again() {
        let last = LastAuthority::default();
        let long = "a".repeat(MOST_KEPT_BYTES + 1);
        for (authority, is_sound) in
            [("a", true), ("a", true), ("a b", false), ("a b", false), (&long, true), ("b", true)]
        {
            assert_eq!(last.check(authority).is_ok(), is_sound, "{authority}");
            assert!(last.0.borrow().len() <= MOST_KEPT_BYTES);
        }
    }

    #[test]
    fn what_is_refused() {
        for (method, uri, fields, kind) in [
            ("GET", "/", &[][..], ErrorKind::Malformed),
            ("GET", "/", &[("host", "a"), ("host", "a")], ErrorKind::Malformed),
            ("GET", "/", &[("host", "a b")], ErrorKind::Malformed),
            ("GET", "http://a/", &[("host", "b")], ErrorKind::Malformed),
            ("GET", "http://u@a/", &[], ErrorKind::Malformed),
            ("GET", "*", &[("host", "a")], ErrorKind::Malformed),
            ("GET", "http://a/", &[("x", " 1")], ErrorKind::Malformed),
            ("GET", "http://a/", &[("x", "1\t")], ErrorKind::Malformed),
            ("CONNECT", "a", &[], ErrorKind::Malformed),
            ("GET", "http://a/", &[("expect", "miracles")], ErrorKind::ExpectationFailed),
            (
                "GET",
                "http://a/",
                &[("expect", "100-continue"), ("expect", "miracles")],
                ErrorKind::ExpectationFailed,
            ),
            ("PUT", "http://a/", &[("content-length", "")], ErrorKind::Malformed),
            (
                "PUT",
                "http://a/",
                &[("content-length", "5"), ("content-length", "5")],
                ErrorKind::Malformed,
            ),
            ("GET", "http://a/234567890123456789012345678901", &[], ErrorKind::TargetTooLong),
            (
                "GET",
                "http://a/",
                &[("a", ""), ("b", ""), ("c", ""), ("d", ""), ("e", "")],
                ErrorKind::HeadTooLarge,
            ),
        ] {
            let refused = read(&parts(method, uri, fields), &LIMITS, &LastAuthority::default());
            assert_eq!(refused.unwrap_err().kind(), kind, "{method} {uri} {fields:?}");
        }
    }
}
