//! The span of a request: values of its record and of its notes.

use std::time::{Duration, SystemTime};

use weft::Method;
use weft::hooks::Record;
use weft::log::{LogPrivacy, LogValue, client_network};
use weft::message::Version;

use crate::base::request_notes::RequestNotes;
use crate::base::trace_context::TraceContext;

/// Maximum length of a text in a span, in bytes. Longer ones are cut.
const MAX_TEXT_BYTES: usize = 1024;

/// The span of a request whose exchange has ended.
#[derive(Debug)]
pub(crate) struct Span {
    pub(super) context: TraceContext,
    pub(super) start: SystemTime,
    pub(super) duration: Duration,
    pub(super) method: Method,
    pub(super) version: &'static str,
    pub(super) scheme: &'static str,
    pub(super) path: String,
    pub(super) query: Option<String>,
    pub(super) host: Option<String>,
    /// Key of the route.
    pub(super) route: Option<String>,
    /// Address of the client.
    pub(super) client: Option<String>,
    pub(super) user_agent: Option<String>,
    /// 499 if the client has left before there was a response.
    pub(super) status: u16,
    pub(super) body_bytes: u64,
    /// Address of the upstream.
    pub(super) upstream: Option<String>,
    pub(super) upstream_status: Option<u64>,
    pub(super) upstream_attempts: Option<u64>,
}

impl Span {
    /// Creates the span of a request, without the parts that access logs withhold; `None` if it
    /// has no valid head.
    pub(crate) fn new(
        context: TraceContext,
        record: &Record<'_>,
        notes: &RequestNotes,
        privacy: &LogPrivacy,
    ) -> Option<Span> {
        let head = record.head?;
        let value = |name: &str| notes.with_values(|values| values.value(name).map(to_value));
        let [route, upstream] =
            ["route", "upstream.address"].map(|name| value(name).and_then(Result::ok));
        let [upstream_status, upstream_attempts] =
            ["upstream.status", "upstream.attempts"].map(|name| value(name).and_then(Result::err));
        let target = privacy.redact_text(head.target());
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let client = record.peer.address().map(|it| match privacy.mask_addresses {
            true => client_network(it.ip()),
            false => it.ip().to_canonical(),
        });
        let agent = head.headers().get_bytes("user-agent");
        Some(Span {
            context,
            start: SystemTime::now() - record.duration,
            duration: record.duration,
            method: head.method().clone(),
            version: match head.version() {
                Version::HTTP_10 => "1.0",
                Version::HTTP_2 => "2",
                Version::HTTP_3 => "3",
                _ => "1.1",
            },
            scheme: if record.peer.tls().is_some() { "https" } else { "http" },
            path: text(path.as_bytes()),
            query: (!query.is_empty()).then(|| text(query.as_bytes())),
            host: head.host().map(|host| text(host.as_bytes())),
            route,
            client: client.map(|address| address.to_string()),
            user_agent: agent.map(text),
            status: record.status.as_u16(),
            body_bytes: record.body_bytes,
            upstream,
            upstream_status,
            upstream_attempts,
        })
    }
}

/// Returns a text, or a number as `Err`.
fn to_value(value: LogValue<'_>) -> Result<String, u64> {
    match value {
        LogValue::Text(bytes) => Ok(text(&bytes)),
        LogValue::Number(number) => Err(number),
        LogValue::Address(address) => Ok(address.to_canonical().to_string()),
        LogValue::Seconds(time) => Ok(time.as_secs_f64().to_string()),
    }
}

/// Returns the beginning of a text. Invalid UTF-8 is replaced.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_TEXT_BYTES)]).into_owned()
}
