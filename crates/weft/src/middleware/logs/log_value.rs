//! Values of a request that a log format names.

use std::borrow::Cow;
use std::net::IpAddr;
use std::time::Duration;

use http::{StatusCode, Version};

use crate::message::request_head::RequestHead;
use crate::middleware::logs::log_privacy::LogPrivacy;
use crate::peer::Peer;

/// Values for the names in a [`LogFormat`](crate::log::LogFormat) that a
/// [`Record`](crate::hooks::Record) does not have. A name without a value is logged as `-` or
/// `null`.
pub trait LogValues {
    /// Returns the value with this name: `user`, `request_id`, or another of
    /// [`LogFormat::names`](crate::log::LogFormat::names).
    fn value(&self, name: &str) -> Option<LogValue<'_>>;

    /// Returns the first field of the response with this name, in any letter case.
    fn response_field(&self, name: &str) -> Option<&[u8]> {
        let _ = name;
        None
    }
}

/// A value in a log line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogValue<'a> {
    /// Text from any source; it is escaped. In JSON a string.
    Text(Cow<'a, [u8]>),
    /// A value that is a number in JSON.
    Number(u64),
    /// A time in seconds with six decimals, such as `0.001234`. In JSON a number.
    Seconds(Duration),
    /// An address. In JSON a string.
    Address(IpAddr),
}

/// Only the values of the record.
pub(crate) struct NoValues;

impl LogValues for NoValues {
    fn value(&self, _: &str) -> Option<LogValue<'_>> {
        None
    }
}

/// A value, by its name in a format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ValueName {
    Time,
    TimeMillis,
    Seconds,
    Microseconds,
    Peer,
    PeerPort,
    User,
    Method,
    Target,
    Path,
    Query,
    Version,
    Scheme,
    Host,
    Status,
    Bytes,
    BytesReceived,
    Event,
    Referer,
    UserAgent,
    RequestId,
    RequestLine,
    End,
    TlsVersion,
    TlsCipher,
    TlsServerName,
    RequestField(Box<str>),
    ResponseField(Box<str>),
    /// A value of the application.
    Other(Box<str>),
}

impl ValueName {
    /// Parses a name. Returns `None` if it has a character that names do not have.
    pub(crate) fn parse(name: &str) -> Option<ValueName> {
        let is_permitted = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
        if name.is_empty() || !name.bytes().all(is_permitted) {
            return None;
        }
        Some(match name {
            "time" => ValueName::Time,
            "time_millis" => ValueName::TimeMillis,
            "seconds" => ValueName::Seconds,
            "microseconds" => ValueName::Microseconds,
            "peer" => ValueName::Peer,
            "peer_port" => ValueName::PeerPort,
            "user" => ValueName::User,
            "method" => ValueName::Method,
            "target" => ValueName::Target,
            "path" => ValueName::Path,
            "query" => ValueName::Query,
            "version" => ValueName::Version,
            "scheme" => ValueName::Scheme,
            "host" => ValueName::Host,
            "status" => ValueName::Status,
            "bytes" => ValueName::Bytes,
            "bytes_received" => ValueName::BytesReceived,
            "event" => ValueName::Event,
            "referer" => ValueName::Referer,
            "user_agent" => ValueName::UserAgent,
            "request_id" => ValueName::RequestId,
            "request_line" => ValueName::RequestLine,
            "end" => ValueName::End,
            "tls.version" => ValueName::TlsVersion,
            "tls.cipher" => ValueName::TlsCipher,
            "tls.server_name" => ValueName::TlsServerName,
            _ => match name.split_once('.') {
                Some(("header", field)) => ValueName::RequestField(field.into()),
                Some(("response", field)) => ValueName::ResponseField(field.into()),
                _ => ValueName::Other(name.into()),
            },
        })
    }
}

/// Data about a request and its response, for one log line.
pub(crate) struct LogEntry<'a> {
    pub(crate) peer: &'a Peer,
    pub(crate) head: Option<&'a RequestHead>,
    /// Start of the request line of an invalid request, which has no head.
    pub(crate) request_line: &'a [u8],
    /// Arrival of the request, since 1970.
    pub(crate) time: Duration,
    pub(crate) duration: Duration,
    pub(crate) status: StatusCode,
    pub(crate) bytes: u64,
    /// Bytes that were received through a tunnel, for the line of its end.
    pub(crate) received: Option<u64>,
    pub(crate) outcome: Outcome,
    /// Values of the application.
    pub(crate) values: &'a dyn LogValues,
    /// Parts that are withheld.
    pub(crate) privacy: Option<&'a LogPrivacy>,
}

/// Outcome of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Complete,
    /// The end was not reached: the client disconnected.
    Disconnected,
    Failed,
}

impl<'a> LogEntry<'a> {
    /// Returns the value with this name. `time` is the arrival in the format of RFC 3339.
    pub(crate) fn value(&self, name: &ValueName, time: &'a [u8]) -> Option<LogValue<'a>> {
        let text = |text: &'a [u8]| LogValue::Text(Cow::Borrowed(text));
        let head = self.head;
        let found = match name {
            ValueName::Time => Some(time),
            ValueName::TimeMillis => {
                let mut text = time.strip_suffix(b"Z").unwrap_or(time).to_vec();
                text.extend(format!(".{:03}Z", self.time.subsec_millis()).into_bytes());
                return Some(LogValue::Text(text.into()));
            }
            ValueName::Seconds => return Some(LogValue::Seconds(self.duration)),
            ValueName::Microseconds => return Some(LogValue::Number(self.microseconds())),
            ValueName::Peer => {
                let address = self.peer.address().map(|address| address.ip());
                return address.map(|ip| LogValue::Address(self.shown_address(ip)));
            }
            ValueName::PeerPort => {
                return self.peer.address().map(|address| LogValue::Number(address.port().into()));
            }
            ValueName::User => return self.values.value("user"),
            ValueName::Method => head.map(|head| head.received_method().as_str().as_bytes()),
            ValueName::Target => return self.target().map(LogValue::Text),
            ValueName::Path => head.map(|head| head.full_path().as_bytes()),
            ValueName::Query => {
                let query = head.and_then(|head| head.query()).map(str::as_bytes);
                return query.map(|query| {
                    LogValue::Text(self.privacy.map_or(query.into(), |it| it.query(query)))
                });
            }
            ValueName::Version => head.map(|head| version(head.version()).as_bytes()),
            ValueName::Scheme => Some(match self.peer.tls() {
                Some(_) => &b"https"[..],
                None => b"http",
            }),
            ValueName::Host => head.and_then(|head| head.authority()).map(str::as_bytes),
            ValueName::Status => return Some(LogValue::Number(self.status.as_u16().into())),
            ValueName::Bytes => return Some(LogValue::Number(self.bytes)),
            ValueName::BytesReceived => return self.received.map(LogValue::Number),
            ValueName::Event => Some(match self.received {
                Some(_) => &b"tunnel"[..],
                None => b"request",
            }),
            ValueName::Referer => return self.shown_field("referer").map(LogValue::Text),
            ValueName::UserAgent => self.request_field("user-agent"),
            ValueName::RequestId => {
                return self
                    .values
                    .value("request_id")
                    .or_else(|| self.values.response_field("x-request-id").map(text));
            }
            ValueName::RequestLine => return self.invalid_request_line().map(LogValue::Text),
            ValueName::End => Some(match self.outcome {
                Outcome::Complete => &b"whole"[..],
                Outcome::Disconnected => b"left",
                Outcome::Failed => b"failed",
            }),
            ValueName::TlsVersion => self.peer.tls().map(|tls| tls.version().as_bytes()),
            ValueName::TlsCipher => self.peer.tls().map(|tls| tls.cipher_suite().as_bytes()),
            ValueName::TlsServerName => {
                self.peer.tls().and_then(|tls| tls.server_name()).map(str::as_bytes)
            }
            ValueName::RequestField(name) => return self.shown_field(name).map(LogValue::Text),
            ValueName::ResponseField(name) => self.values.response_field(name),
            ValueName::Other(name) => return self.values.value(name),
        };
        found.map(text)
    }

    pub(crate) fn invalid_request_line(&self) -> Option<Cow<'a, [u8]>> {
        let line = Some(self.request_line).filter(|line| !line.is_empty())?;
        Some(self.shown_target(line))
    }

    /// Returns the target of the request, without what is withheld.
    pub(crate) fn target(&self) -> Option<Cow<'a, [u8]>> {
        self.head.map(|head| self.shown_target(head.target().as_bytes()))
    }

    fn shown_target(&self, target: &'a [u8]) -> Cow<'a, [u8]> {
        self.privacy.map_or(target.into(), |privacy| privacy.target(target))
    }

    fn shown_address(&self, address: IpAddr) -> IpAddr {
        self.privacy.map_or(address, |privacy| privacy.address(address))
    }

    /// Returns a field of the request, without what is withheld.
    fn shown_field(&self, name: &str) -> Option<Cow<'a, [u8]>> {
        let value = self.request_field(name)?;
        match self.privacy {
            Some(privacy) if privacy.withholds_field(name) => None,
            Some(privacy) if name.eq_ignore_ascii_case("referer") => Some(privacy.target(value)),
            _ => Some(value.into()),
        }
    }

    fn request_field(&self, name: &str) -> Option<&'a [u8]> {
        self.head.and_then(|head| head.headers().get_bytes(name))
    }

    fn microseconds(&self) -> u64 {
        u64::try_from(self.duration.as_micros()).unwrap_or(u64::MAX)
    }
}

pub(crate) fn version(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2.0",
        Version::HTTP_3 => "HTTP/3.0",
        _ => "HTTP/1.1",
    }
}
