//! The body of a request, read as the application asks for it.
//!
//! What is handed out is given back to the client's windows, so that what is under way is
//! bounded, and the application's pace is the client's pace.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::sync::oneshot;

use crate::clock::deadline::{Deadline, Pace};
use crate::error::{Error, ErrorKind, Result};
use crate::message::body::{Inbound, too_large};
use crate::proto::headers::Headers;
use crate::server::h2::pipe::{Next, Pipe};

/// A request's body that may not all be here yet.
pub(crate) struct Incoming {
    pipe: Pipe,
    state: State,
    /// How many bytes were said to come.
    left: Option<u64>,
    /// How many may still come.
    allowed: u64,
    /// To be told when the client waits for a 100 and the application reads.
    on_read: Option<oneshot::Sender<()>>,
    deadline: Deadline,
    pace: Pace,
    trailers: Option<Headers>,
}

#[derive(Clone, Copy)]
enum State {
    Data,
    Ended,
    Failed(ErrorKind),
}

/// How a body is to be read.
pub(super) struct Terms {
    pub(super) length: Option<u64>,
    pub(super) max_bytes: u64,
    pub(super) on_read: Option<oneshot::Sender<()>>,
    pub(super) deadline: Deadline,
    pub(super) pace: Pace,
}

impl Incoming {
    pub(super) fn new(pipe: Pipe, terms: Terms) -> Incoming {
        Incoming {
            pipe,
            state: State::Data,
            left: terms.length,
            allowed: terms.max_bytes,
            on_read: terms.on_read,
            deadline: terms.deadline,
            pace: terms.pace,
            trailers: None,
        }
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>>> {
        match self.state {
            State::Ended => return Poll::Ready(Ok(None)),
            State::Failed(kind) => {
                return Poll::Ready(Err(Error::new(kind, "the body has failed before")));
            }
            State::Data if self.left.is_some_and(|left| left > self.allowed) => {
                return Poll::Ready(Err(too_large()));
            }
            State::Data => {}
        }
        match self.pipe.poll_next(cx) {
            Poll::Ready(Next::Data(data)) => Poll::Ready(self.take(data).map(Some)),
            Poll::Ready(Next::End(trailers)) => {
                self.trailers = trailers;
                Poll::Ready(Ok(None))
            }
            Poll::Ready(Next::Cut) => Poll::Ready(Err(incomplete())),
            Poll::Pending => self.poll_slow(cx).map(Err),
        }
    }

    fn take(&mut self, data: Bytes) -> Result<Bytes> {
        self.pace.moved(data.len(), &self.deadline);
        let bytes = data.len() as u64;
        self.left = self.left.map(|left| left.saturating_sub(bytes));
        self.allowed = self.allowed.checked_sub(bytes).ok_or_else(too_large)?;
        Ok(data)
    }

    /// The client is waited for; ready when it has been too slow.
    fn poll_slow(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        if let Some(on_read) = self.on_read.take() {
            // Nobody listens any more if the response has begun.
            let _ = on_read.send(());
        }
        let over = self.pace.poll_over(&self.deadline, cx);
        over.map(|()| Error::new(ErrorKind::TooSlow, "the body came too slowly"))
    }
}

/// What was left unread is read away by the connection, or the client is told to stop.
impl Drop for Incoming {
    fn drop(&mut self) {
        self.pipe.leave();
    }
}

impl Inbound for Incoming {
    fn length(&self) -> Option<u64> {
        match self.state {
            State::Ended => Some(0),
            State::Data | State::Failed(_) => self.left,
        }
    }

    fn set_limit(&mut self, bytes: u64) {
        self.allowed = bytes;
    }

    fn trailers(&self) -> Option<&Headers> {
        self.trailers.as_ref()
    }

    fn take_trailers(&mut self) -> Option<Headers> {
        self.trailers.take()
    }

    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>>> {
        let chunk = ready!(self.poll_next(cx));
        match &chunk {
            Ok(Some(_)) => {}
            Ok(None) => self.state = State::Ended,
            Err(error) => self.state = State::Failed(error.kind()),
        }
        Poll::Ready(chunk)
    }
}

fn incomplete() -> Error {
    Error::new(ErrorKind::BodyIncomplete, "the stream ended in the middle of the body")
}
