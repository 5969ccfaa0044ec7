//! Hooks for connections, errors and responses.

use std::any::Any;
use std::time::Duration;

use http::StatusCode;

use crate::error::Error;
use crate::message::request_head::RequestHead;
use crate::peer::Peer;
use crate::trace::{self, default_slow_handler_threshold};

pub use crate::message::record_data::RecordData;
pub use crate::trace::SlowHandler;

/// Callbacks for the events of one worker. The methods do nothing by default, except for two in
/// debug builds of programs without a subscriber of `tracing`: they write errors of the application
/// and of the system, and slow handlers, to standard error. A server without hooks does the same.
///
/// Each worker creates its own instance with the function passed to
/// [`Server::hooks`](crate::Server::hooks), so nothing has to be shared or locked.
#[allow(unused_variables)]
pub trait Hooks {
    /// Called when a connection is accepted. Returning false closes it at once.
    fn on_open(&self, peer: &Peer) -> bool {
        true
    }

    /// Called when a connection is closed.
    fn on_close(&self, peer: &Peer) {}

    /// Called for an error; [`ErrorKind::fault`](crate::ErrorKind::fault) returns the side at
    /// fault.
    fn on_error(&self, peer: &Peer, error: &Error) {
        trace::print_error(error);
    }

    /// Called for a handler that has blocked its worker for
    /// [`slow_handler_threshold`](Hooks::slow_handler_threshold), at most once per second.
    fn on_slow_handler(&self, slow: &SlowHandler<'_>) {
        trace::print_slow_handler(slow);
    }

    /// Returns the time for which a handler may occupy its worker between two `.await`s before
    /// [`on_slow_handler`](Hooks::on_slow_handler) is called. It is called once, at the start of
    /// the worker. With [`Duration::MAX`] the time is not measured.
    ///
    /// Default 100 ms in debug builds, [`Duration::MAX`] in others.
    fn slow_handler_threshold(&self) -> Duration {
        default_slow_handler_threshold()
    }

    /// Called after certificates were loaded again because their files have changed.
    fn on_certificates_reloaded(&self) {}

    /// Returns true if [`on_response`](Hooks::on_response) is called for every request. If not, the
    /// clock is not read for its record.
    fn needs_records(&self) -> bool {
        true
    }

    /// Called once for each request when its exchange has ended: the response has been composed
    /// and, if large, sent, or was cut short; the client disconnected before there was a response;
    /// or the connection was closed at the end of the grace period of a shutdown. Also called for
    /// requests that are rejected because they are malformed or exceed a limit.
    fn on_response(&self, record: &Record<'_>) {}

    /// Called once for each connection or stream that a response has
    /// [upgraded](crate::Response::upgrade), such as a WebSocket, when it has ended. The record has
    /// the values of its request, and [`tunnel_received`](Record::tunnel_received). It follows the
    /// record of the exchange, which has [`is_upgrade`](Record::is_upgrade).
    fn on_tunnel_end(&self, record: &Record<'_>) {}
}

/// Data about a request and its response for logs and counters;
/// [`LogFormat`](crate::log::LogFormat) formats it as a line.
#[derive(Debug)]
#[non_exhaustive]
pub struct Record<'a> {
    /// The peer that sent the request, or the client of a proxy, if middleware has
    /// [set](crate::Request::set_peer) it.
    pub peer: &'a Peer,
    /// The request head; `None` if the request is invalid.
    pub head: Option<&'a RequestHead>,
    /// Start of the request line of an invalid request, as received and without its line end, at
    /// most [`MAX_REQUEST_LINE_BYTES`](Record::MAX_REQUEST_LINE_BYTES). Over HTTP/2, method and
    /// path as far as they are valid. It can contain any bytes, so it must be escaped for output;
    /// [`LogFormat`](crate::log::LogFormat) does so. Empty if there is a head.
    pub request_line: &'a [u8],
    /// The status of the response; 499 if the exchange ended before there was one, as in nginx. If
    /// an invalid request got no response, the status of the missing error response.
    pub status: StatusCode,
    /// Set if a response with this status was sent or buffered. Not set if the client disconnected
    /// before. With [`Disconnect::Detach`](crate::server::Disconnect::Detach), the application may
    /// then return a response later, and this is its status.
    pub has_response: bool,
    /// Bytes of the response body that were sent or are in the write buffer; bytes that were sent
    /// through a tunnel.
    pub body_bytes: u64,
    /// Bytes that were received through a tunnel; `None` for an exchange.
    pub tunnel_received: Option<u64>,
    /// Set if another protocol or a tunnel follows the response on the connection or stream.
    pub is_upgrade: bool,
    /// Time from the end of the request head to the end of the exchange or of the tunnel.
    pub duration: Duration,
    /// The error that the application has returned or [attached](crate::Response::with_error), or
    /// that prevented the response or cut it short:
    /// [`Disconnected`](crate::ErrorKind::Disconnected) if it was the client.
    pub error: Option<&'a Error>,
    /// A response was sent or buffered completely, which may be an error response.
    pub is_complete: bool,
    /// Data that the application has set.
    pub(crate) data: Option<&'a dyn RecordData>,
}

impl<'a> Record<'a> {
    /// Maximum length of the [request line](Record::request_line) of an invalid request: enough to
    /// recognize the client's software or a probe, and small enough for many records.
    pub const MAX_REQUEST_LINE_BYTES: usize = 128;

    /// The data that the application has [set](crate::Request::set_record_data), if it is of this
    /// type.
    pub fn data<T: RecordData>(&self) -> Option<&'a T> {
        let data: &dyn Any = self.data?;
        data.downcast_ref()
    }
}

/// The status of a request without a response, as in nginx. It is never sent.
pub(crate) fn client_closed_request() -> StatusCode {
    StatusCode::from_u16(499).expect("three digits")
}

/// Returns the start of the request line in the input of an invalid request.
pub(crate) fn request_line(input: &[u8]) -> &[u8] {
    let is_line_end = |b: &u8| matches!(b, b'\r' | b'\n');
    // RFC 9112 §2.2: empty lines before the request line are ignored.
    let start = input.iter().position(|b| !is_line_end(b)).unwrap_or(input.len());
    let line = &input[start..];
    let line = &line[..line.len().min(Record::MAX_REQUEST_LINE_BYTES)];
    line.split(is_line_end).next().unwrap_or_default()
}
