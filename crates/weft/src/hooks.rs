//! Hooks for connections, errors and responses.

use std::time::Duration;

use http::StatusCode;

use crate::error::Error;
use crate::message::request::RequestHead;
use crate::peer::Peer;

/// Callbacks for the events of one worker. All methods do nothing by default.
///
/// Each worker creates its own instance with the function passed to
/// [`Server::hooks`](crate::Server::hooks), so nothing has to be shared or locked.
#[allow(unused_variables)]
pub trait Hooks {
    /// Called when a connection is accepted. Returning `false` closes it at once.
    fn on_open(&self, peer: &Peer) -> bool {
        true
    }

    /// Called when a connection is closed.
    fn on_close(&self, peer: &Peer) {}

    /// Called for an error; [`ErrorKind::fault`](crate::ErrorKind::fault) returns the side at
    /// fault.
    fn on_error(&self, peer: &Peer, error: &Error) {}

    /// Returns whether [`answered`](Hooks::on_response) is called for every response. If not, the
    /// clock is not read for its record.
    fn needs_records(&self) -> bool {
        true
    }

    /// Called when a response has been composed and, if large, sent, or has been cut short.
    fn on_response(&self, record: &Record<'_>) {}
}

/// Data about a request and its response for logs and counters;
/// [`LogFormat`](crate::LogFormat) formats it as a line.
#[derive(Debug)]
pub struct Record<'a> {
    /// The peer that sent the request.
    pub peer: &'a Peer,
    /// The request head; `None` if the request could not be parsed.
    pub head: Option<&'a RequestHead>,
    /// The status of the response.
    pub status: StatusCode,
    /// Bytes of the response body that were sent or are in the write buffer.
    pub body_bytes: u64,
    /// Time from the end of the request head to the end of the response.
    pub duration: Duration,
    /// The error that cut the response short, if any.
    pub error: Option<&'a Error>,
}
