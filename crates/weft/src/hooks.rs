//! What a server tells of its life: connections, errors, responses.

use std::time::Duration;

use http::StatusCode;

use crate::error::Error;
use crate::message::request::Head;
use crate::peer::Peer;

/// Is told what happens in one worker. All methods do nothing unless they are written.
///
/// Each worker makes its own with the function given to
/// [`Server::hooks`](crate::Server::hooks), so nothing has to be shared or locked.
#[allow(unused_variables)]
pub trait Hooks {
    /// A connection was accepted. `false` closes it at once.
    fn opened(&self, peer: &Peer) -> bool {
        true
    }

    /// A connection was closed.
    fn closed(&self, peer: &Peer) {}

    /// Something went wrong; [`ErrorKind::fault`](crate::ErrorKind::fault) says on
    /// whose side.
    fn error(&self, peer: &Peer, error: &Error) {}

    /// Whether [`answered`](Hooks::answered) is to be told of every response. Otherwise nobody
    /// looks at the clock for that.
    fn wants_records(&self) -> bool {
        true
    }

    /// A response was composed, and sent as far as it is large, or was cut short.
    fn answered(&self, record: &Record<'_>) {}
}

/// One request and its response, as a log wants them; [`LogFormat`](crate::LogFormat) makes a
/// line of it.
#[derive(Debug)]
pub struct Record<'a> {
    /// Who asked.
    pub peer: &'a Peer,
    /// What was asked; `None` if the request could not be parsed.
    pub head: Option<&'a Head>,
    /// The status of the response.
    pub status: StatusCode,
    /// The bytes of the response's body that were sent, or gathered to be sent soon.
    pub body_bytes: u64,
    /// From the end of the request's head to the end of the response.
    pub duration: Duration,
    /// What cut the response short, if something did.
    pub error: Option<&'a Error>,
}
