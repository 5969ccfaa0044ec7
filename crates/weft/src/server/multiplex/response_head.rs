//! Encoding of a response head as fields (RFC 9113 §8.3.2, RFC 9114 §4.3.2).

use http::header::{
    CONNECTION, CONTENT_LENGTH, DATE, SEC_WEBSOCKET_ACCEPT, SERVER, SET_COOKIE, TE,
    TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName, StatusCode};

use crate::message::fields::Fields;
use crate::message::payload::Payload;
use crate::message::response::Response;
use crate::server::worker_context::WorkerContext;
use weft_proto::http1::compose::FieldSources;
use weft_proto::http2::hpack::{self, Indexing};
#[cfg(feature = "http3")]
use weft_proto::http3::qpack;

/// The encoder of an HTTP version.
pub(in crate::server) trait FieldEncoder {
    fn status(&mut self, out: &mut Vec<u8>, status: StatusCode);
    fn content_length(&mut self, out: &mut Vec<u8>, length: u64);
    fn field(&mut self, out: &mut Vec<u8>, field: (&[u8], &[u8]), keep: Keep);
}

/// Whether the table of the client keeps a field.
#[derive(Clone, Copy)]
pub(in crate::server) enum Keep {
    Always,
    IfRepeated,
    Never,
}

impl FieldEncoder for hpack::Encoder {
    fn status(&mut self, out: &mut Vec<u8>, status: StatusCode) {
        self.status(out, status);
    }

    fn content_length(&mut self, out: &mut Vec<u8>, length: u64) {
        self.content_length(out, length);
    }

    fn field(&mut self, out: &mut Vec<u8>, field: (&[u8], &[u8]), keep: Keep) {
        let indexing = match keep {
            Keep::Always => Indexing::Immediate,
            Keep::IfRepeated => Indexing::OnRepeat,
            Keep::Never => Indexing::Never,
        };
        self.field(out, field, indexing);
    }
}

#[cfg(feature = "http3")]
impl FieldEncoder for qpack::Encoder {
    fn status(&mut self, out: &mut Vec<u8>, status: StatusCode) {
        qpack::Encoder::status(*self, out, status);
    }

    fn content_length(&mut self, out: &mut Vec<u8>, length: u64) {
        qpack::Encoder::content_length(*self, out, length);
    }

    fn field(&mut self, out: &mut Vec<u8>, field: (&[u8], &[u8]), keep: Keep) {
        qpack::Encoder::field(*self, out, field, matches!(keep, Keep::Never));
    }
}

/// Connection-specific fields, and fields that the engine controls (RFC 9113 §8.2.2).
static NOT_SENT: [HeaderName; 7] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
    CONTENT_LENGTH,
];

/// Encodes the head of a response. `length` is the length of its content, if there is content and
/// its length is known.
pub(in crate::server) fn write_head<A>(
    worker: &WorkerContext<A>,
    encoder: &mut impl FieldEncoder,
    out: &mut Vec<u8>,
    response: &Response,
    length: Option<u64>,
) {
    let is_upgrade = matches!(response.payload, Payload::Upgrade(_));
    // 101 over HTTP/1 is 200 over HTTP/2 (RFC 8441 §5).
    match response.status {
        StatusCode::SWITCHING_PROTOCOLS if is_upgrade => encoder.status(out, StatusCode::OK),
        status => encoder.status(out, status),
    }
    let (mut has_date, mut has_server) = (false, worker.server_name.is_none());
    write_fields(encoder, out, &response.headers, |name| {
        has_date |= name == DATE.as_str().as_bytes();
        has_server |= name == SERVER.as_str().as_bytes();
        !(is_upgrade && name == SEC_WEBSOCKET_ACCEPT.as_str().as_bytes())
    });
    if !has_date {
        // On a connection with one request per second or less, each date differs.
        encoder.field(out, (b"date", worker.date.head_prefix().date()), Keep::IfRepeated);
    }
    if !has_server && let Some(name) = &worker.server_name {
        encoder.field(out, (b"server", name.as_bytes()), Keep::Always);
    }
    if let Some(length) = length {
        encoder.content_length(out, length);
    }
}

/// Encodes the fields that may be sent and for which `predicate(name)` returns true.
pub(in crate::server) fn write_fields(
    encoder: &mut impl FieldEncoder,
    out: &mut Vec<u8>,
    fields: &Fields,
    mut predicate: impl FnMut(&[u8]) -> bool,
) {
    let FieldSources { forwarded, mut list, lines } = fields.sources();
    if !lines.is_empty() {
        list = fields;
    }
    for (name, value) in forwarded.into_iter().flat_map(|forwarded| forwarded.iter_bytes()) {
        let name = name.to_ascii_lowercase();
        if may_be_sent(&name) && predicate(&name) {
            encoder.field(out, (&name, value.trim_ascii()), keep(&name));
        }
    }
    for (name, value) in list {
        let name = name.as_str().as_bytes();
        if may_be_sent(name) && predicate(name) {
            // RFC 9113 §8.2.1: there is no white space around a value.
            encoder.field(out, (name, value.as_bytes().trim_ascii()), keep(name));
        }
    }
}

fn may_be_sent(name: &[u8]) -> bool {
    !NOT_SENT.iter().any(|not_sent| not_sent.as_str().as_bytes() == name)
}

/// Returns whether a field is kept in the table of the client. Secrets are not compressed:
/// otherwise an attacker who controls
/// a part of a response could infer the secret from its compressed size (RFC 7541 §7.1).
fn keep(name: &[u8]) -> Keep {
    if name == SET_COOKIE.as_str().as_bytes() { Keep::Never } else { Keep::IfRepeated }
}

/// Encodes trailers.
pub(in crate::server) fn write_trailers(
    encoder: &mut impl FieldEncoder,
    out: &mut Vec<u8>,
    trailers: &HeaderMap,
) {
    for (name, value) in trailers {
        let field = (name.as_str().as_bytes(), value.as_bytes().trim_ascii());
        encoder.field(out, field, Keep::IfRepeated);
    }
}

/// Removes the fields that must not be sent from trailers.
pub(in crate::server) fn remove_connection_fields(trailers: &mut HeaderMap) {
    for name in &NOT_SENT {
        trailers.remove(name);
    }
}
