//! Values of a request, by which placeholders are replaced.

use std::borrow::Cow;
use std::num::{NonZeroU64, NonZeroU128};
use std::time::SystemTime;

use weft::Request;
use weft::message::RequestHead;
use weft::middleware::{RequestId, User};
use weft::tls::certificate;
use weft_proto::semantics::path::decode;

use super::maps::{MapValue, RequestMaps};
use super::names::Placeholder;
use crate::template::captures::{Captures, HostCaptures};

/// Length of the route's prefix in the path of a request, in bytes.
#[derive(Clone, Copy)]
pub(crate) struct PrefixLength(pub(crate) usize);

impl PrefixLength {
    /// Returns the length that the router has noted in a request, or 0.
    pub(crate) fn of(request: &Request) -> usize {
        request.extensions().get().map_or(0, |PrefixLength(bytes)| *bytes)
    }
}

/// Identity of a request in a distributed trace.
#[derive(Clone, Copy)]
pub(crate) struct TraceIds {
    pub(crate) trace_id: NonZeroU128,
    pub(crate) span_id: NonZeroU64,
}

/// Value of a placeholder. The variants differ in their encoding in URLs.
pub(super) enum Value<'a> {
    /// Not percent-encoded.
    Plain(Cow<'a, str>),
    /// Value of a map, which may be any part of a URL as far as it is in the configuration.
    Mapped(MapValue),
    /// A host or a port.
    Authority(Cow<'a, str>),
    /// A part of a path, percent-encoded.
    Path(&'a str),
    /// A group in a path, percent-encoded. It may begin with a slash.
    Capture(&'a str),
    /// A query, percent-encoded.
    Query(&'a str),
    /// Path and query, percent-encoded.
    Target(&'a str),
}

impl Value<'_> {
    /// Returns the value as text. Paths are decoded.
    pub(super) fn to_text(&self) -> Cow<'_, str> {
        match self {
            Value::Plain(text) | Value::Authority(text) => Cow::Borrowed(text),
            Value::Mapped(value) => Cow::Borrowed(&value.text),
            Value::Path(path) | Value::Capture(path) => match decode(path.as_bytes()) {
                Cow::Borrowed(_) => Cow::Borrowed(path),
                Cow::Owned(decoded) => Cow::Owned(String::from_utf8_lossy(&decoded).into_owned()),
            },
            Value::Query(text) | Value::Target(text) => Cow::Borrowed(text),
        }
    }
}

impl<'a> Value<'a> {
    /// Returns the value of a placeholder. One that the request does not have is empty.
    pub(super) fn of(request: &'a Request, placeholder: &Placeholder) -> Value<'a> {
        let (head, peer) = (request.head(), request.peer());
        let plain = |text: &'a str| Value::Plain(Cow::Borrowed(text));
        match placeholder {
            Placeholder::Path => Value::Path(head.full_path()),
            Placeholder::Rest => Value::Path(rest(request)),
            Placeholder::Query => Value::Query(head.query().unwrap_or_default()),
            Placeholder::QueryParameter(name) => {
                Value::Plain(query_parameter(head.query().unwrap_or_default(), name))
            }
            Placeholder::Uri => Value::Target(path_and_query(head.target())),
            Placeholder::Host => {
                Value::Authority(head.host().unwrap_or_default().to_ascii_lowercase().into())
            }
            Placeholder::Port => Value::Authority(port(head, request.is_secure()).into()),
            Placeholder::Scheme => Value::Authority(request.scheme().into()),
            Placeholder::ClientIp => Value::Plain(match peer.address() {
                Some(address) => address.ip().to_canonical().to_string().into(),
                None => "unix:".into(),
            }),
            Placeholder::ClientPort => {
                // Most proxies do not send the port of their client; then it is 0.
                let port = peer.address().map(|address| address.port()).filter(|port| *port != 0);
                Value::Plain(port.map(|port| port.to_string()).unwrap_or_default().into())
            }
            Placeholder::Method => plain(head.method().as_str()),
            Placeholder::Header(name) => {
                let value = head.headers().get_bytes(name.as_str()).unwrap_or_default();
                Value::Plain(String::from_utf8_lossy(value))
            }
            Placeholder::Cookie(name) => Value::Plain(cookie(head, name)),
            Placeholder::Time => Value::Plain(weft::date::rfc3339(SystemTime::now()).into()),
            Placeholder::Capture(group) => {
                let captures = request.extensions().get::<Captures>();
                Value::Capture(captures.and_then(|it| it.get(group)).unwrap_or_default())
            }
            Placeholder::HostCapture(group) => {
                let captures = request.extensions().get::<HostCaptures>();
                let text = captures.and_then(|it| it.get(group)).unwrap_or_default();
                Value::Authority(text.into())
            }
            Placeholder::RequestId => {
                plain(request.extensions().get().map_or("", RequestId::as_str))
            }
            Placeholder::TraceId => {
                let trace = request.extensions().get::<TraceIds>();
                Value::Plain(trace.map_or("".into(), |it| format!("{:032x}", it.trace_id).into()))
            }
            Placeholder::SpanId => {
                let trace = request.extensions().get::<TraceIds>();
                Value::Plain(trace.map_or("".into(), |it| format!("{:016x}", it.span_id).into()))
            }
            Placeholder::User => plain(request.extensions().get().map_or("", User::as_str)),
            Placeholder::Map(name) => {
                let maps = request.extensions().get::<RequestMaps>();
                let value = maps.and_then(|maps| maps.value(name, request));
                value.map_or(plain(""), Value::Mapped)
            }
            // Expanded with the response.
            Placeholder::Upstream => plain(""),
            Placeholder::TlsVersion => plain(peer.tls().map_or("", |tls| tls.version())),
            Placeholder::TlsCipher => plain(peer.tls().map_or("", |tls| tls.cipher_suite())),
            Placeholder::TlsServerName => {
                plain(peer.tls().and_then(|tls| tls.server_name()).unwrap_or_default())
            }
            Placeholder::ClientSubject => of_certificate(request, certificate::subject),
            Placeholder::ClientIssuer => of_certificate(request, certificate::issuer),
            Placeholder::ClientSerial => of_certificate(request, certificate::serial_number),
        }
    }
}

/// Returns a part of the verified certificate of the client.
fn of_certificate<'a>(request: &Request, read: fn(&[u8]) -> Option<String>) -> Value<'a> {
    let certificate = request.client_certificates().first();
    Value::Plain(certificate.and_then(|it| read(it)).unwrap_or_default().into())
}

/// Returns the path behind the prefix of the route, which middleware finds still in the path.
fn rest(request: &Request) -> &str {
    &request.path()[PrefixLength::of(request)..]
}

/// Returns the port of a request: the port of its authority, or the default of the scheme.
pub(crate) fn port(head: &RequestHead, is_secure: bool) -> &str {
    let authority = head.authority().unwrap_or_default();
    let behind_host = authority.rsplit_once(']').map_or(authority, |(_, behind)| behind);
    match behind_host.rsplit_once(':') {
        Some((_, port)) if !port.is_empty() => port,
        _ if is_secure => "443",
        _ => "80",
    }
}

/// Returns path and query of a request target, which may have the absolute form.
fn path_and_query(target: &str) -> &str {
    match target.split_once("://") {
        Some((scheme, rest)) if !scheme.contains(['/', '?']) => {
            rest.find(['/', '?']).map_or("/", |start| &rest[start..])
        }
        _ => target,
    }
}

/// Returns the first value of a parameter, decoded as `application/x-www-form-urlencoded`.
pub(crate) fn query_parameter<'a>(query: &'a str, name: &str) -> Cow<'a, str> {
    let found = query_pairs(query).find(|(known, _)| *form_decoded(known) == *name.as_bytes());
    match found.map(|(_, value)| form_decoded(value)) {
        None => Cow::Borrowed(""),
        Some(Cow::Borrowed(value)) => String::from_utf8_lossy(value),
        Some(Cow::Owned(value)) => Cow::Owned(String::from_utf8_lossy(&value).into_owned()),
    }
}

/// Returns the names and values of all parameters, decoded.
pub(crate) fn query_parameters(
    query: &str,
) -> impl Iterator<Item = (Cow<'_, [u8]>, Cow<'_, [u8]>)> {
    let pairs = query_pairs(query).filter(|(name, _)| !name.is_empty());
    pairs.map(|(name, value)| (form_decoded(name), form_decoded(value)))
}

fn query_pairs(query: &str) -> impl Iterator<Item = (&str, &str)> {
    query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

/// Decodes a text as `application/x-www-form-urlencoded`.
fn form_decoded(text: &str) -> Cow<'_, [u8]> {
    match text.contains('+') {
        true => Cow::Owned(decode(text.replace('+', " ").as_bytes()).into_owned()),
        false => decode(text.as_bytes()),
    }
}

/// Returns the value of the first cookie with this name (RFC 6265 §4.2.1).
pub(crate) fn cookie<'a>(head: &'a RequestHead, name: &str) -> Cow<'a, str> {
    let named = |pair: &'a [u8]| {
        let value = pair.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
        Some(String::from_utf8_lossy(value))
    };
    cookie_pairs(head).find_map(named).unwrap_or_default()
}

/// Returns the names and values of all cookies.
pub(crate) fn cookies(head: &RequestHead) -> impl Iterator<Item = (Cow<'_, [u8]>, Cow<'_, [u8]>)> {
    cookie_pairs(head).filter_map(|pair| {
        let end = pair.iter().position(|&b| b == b'=')?;
        Some((Cow::Borrowed(&pair[..end]), Cow::Borrowed(&pair[end + 1..])))
    })
}

fn cookie_pairs(head: &RequestHead) -> impl Iterator<Item = &[u8]> {
    let lines = head.headers().get_all("cookie");
    lines.flat_map(|line| line.split(|&b| b == b';')).map(|pair| pair.trim_ascii())
}
