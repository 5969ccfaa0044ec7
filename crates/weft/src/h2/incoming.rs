//! The body of a request, read as the application asks for it.
//!
//! What is handed out is given back to the client's windows at once, so that what is under
//! way is bounded, and the application's pace is the client's pace.

use std::task::{Context, Poll, ready};

use ::h2::RecvStream;
use bytes::Bytes;
use tokio::sync::oneshot;

use crate::body::too_large;
use crate::deadline::{Deadline, Pace};
use crate::error::{Error, ErrorKind, Result};
use crate::headers::Headers;

/// A request's body that may not all be here yet.
pub(crate) struct Incoming {
    /// `None` once it was given back.
    stream: Option<RecvStream>,
    state: State,
    /// How many bytes were said to come.
    left: Option<u64>,
    /// How many may still come.
    allowed: u64,
    /// To be told when the client waits for a 100 and the application reads.
    on_read: Option<oneshot::Sender<()>>,
    /// Who gets what the application left unread.
    on_drop: Option<oneshot::Sender<RecvStream>>,
    deadline: Deadline,
    pace: Pace,
    trailers: Option<Headers>,
}

#[derive(Clone, Copy)]
enum State {
    Data,
    Trailers,
    Ended,
    Failed(ErrorKind),
}

/// How a body is to be read.
pub(super) struct Terms {
    pub(super) length: Option<u64>,
    pub(super) max_bytes: u64,
    pub(super) on_read: Option<oneshot::Sender<()>>,
    pub(super) on_drop: Option<oneshot::Sender<RecvStream>>,
    pub(super) deadline: Deadline,
    pub(super) pace: Pace,
}

impl Incoming {
    pub(super) fn new(stream: RecvStream, terms: Terms) -> Incoming {
        Incoming {
            stream: Some(stream),
            state: State::Data,
            left: terms.length,
            allowed: terms.max_bytes,
            on_read: terms.on_read,
            on_drop: terms.on_drop,
            deadline: terms.deadline,
            pace: terms.pace,
            trailers: None,
        }
    }

    pub(crate) fn length(&self) -> Option<u64> {
        match self.state {
            State::Trailers | State::Ended => Some(0),
            State::Data | State::Failed(_) => self.left,
        }
    }

    pub(crate) fn set_limit(&mut self, bytes: u64) {
        self.allowed = bytes;
    }

    pub(crate) fn trailers(&self) -> Option<&Headers> {
        self.trailers.as_ref()
    }

    pub(crate) fn take_trailers(&mut self) -> Option<Headers> {
        self.trailers.take()
    }

    pub(crate) fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>>> {
        let chunk = ready!(self.poll_next(cx));
        match &chunk {
            Ok(Some(_)) => {}
            Ok(None) => self.state = State::Ended,
            Err(error) => self.state = State::Failed(error.kind()),
        }
        Poll::Ready(chunk)
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>>> {
        loop {
            match self.state {
                State::Ended => return Poll::Ready(Ok(None)),
                State::Failed(kind) => {
                    return Poll::Ready(Err(Error::new(kind, "the body has failed before")));
                }
                State::Trailers => return self.poll_trailers(cx).map_ok(|()| None),
                State::Data if self.left.is_some_and(|left| left > self.allowed) => {
                    return Poll::Ready(Err(too_large()));
                }
                State::Data => match self.stream().poll_data(cx) {
                    Poll::Ready(Some(Ok(data))) if data.is_empty() => {}
                    Poll::Ready(Some(Ok(data))) => return Poll::Ready(self.take(data).map(Some)),
                    Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(incomplete(error))),
                    Poll::Ready(None) => self.state = State::Trailers,
                    Poll::Pending => return self.poll_slow(cx).map(Err),
                },
            }
        }
    }

    /// Takes what has come, and lets the client send as much again.
    fn take(&mut self, data: Bytes) -> Result<Bytes> {
        self.pace.moved(data.len(), &self.deadline);
        // It fails only if the stream is gone: then nobody wants to send.
        let _ = self.stream().flow_control().release_capacity(data.len());
        let bytes = data.len() as u64;
        self.left = self.left.map(|left| left.saturating_sub(bytes));
        self.allowed = self.allowed.checked_sub(bytes).ok_or_else(too_large)?;
        Ok(data)
    }

    fn poll_trailers(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        match self.stream().poll_trailers(cx) {
            Poll::Ready(Ok(trailers)) => {
                self.trailers = trailers.as_ref().map(Headers::try_from).transpose()?;
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(incomplete(error))),
            Poll::Pending => self.poll_slow(cx).map(Err),
        }
    }

    fn stream(&mut self) -> &mut RecvStream {
        self.stream.as_mut().expect("it is given back only at the end")
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

impl Drop for Incoming {
    fn drop(&mut self) {
        if let State::Data = self.state
            && let Some(stream) = self.stream.take()
            && let Some(on_drop) = self.on_drop.take()
        {
            // If nobody wants it any more, the crate h2 tells the client to stop.
            let _ = on_drop.send(stream);
        }
    }
}

fn incomplete(error: ::h2::Error) -> Error {
    let reason = "the stream ended in the middle of the body";
    Error::new(ErrorKind::BodyIncomplete, reason).because(error)
}
