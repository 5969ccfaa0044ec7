//! The content of a request while the application reads it: limits, the minimum rate, trailers.
//! Each HTTP version implements a [`ContentSource`].

use std::task::{Context, Poll, ready};

use bytes::Bytes;

use crate::clock::deadline::{Deadline, Pace};
use crate::error::{Error, ErrorKind, Result};
use crate::message::body::{Inbound, too_large};
use weft_proto::headers::Headers;

/// The content of one request, as received by an HTTP version.
pub(super) trait ContentSource: Send {
    /// Polls for the next piece. Time in which it is pending counts against the client. The
    /// implementation reports each received byte to `clock`.
    fn poll_event(
        &mut self,
        cx: &mut Context<'_>,
        clock: &mut ReceiveClock,
    ) -> Poll<Result<ContentEvent>>;

    /// Number of remaining bytes, if the client declared it.
    fn length(&self) -> Option<u64>;

    /// Returns `true` if the end was reached and no more events follow.
    fn is_complete(&self) -> bool {
        false
    }

    /// Returns borrowed resources to the connection. With `failed`, no request can be parsed from
    /// the rest of the input. Called at the end, or when the body is dropped.
    fn release(&mut self, failed: bool);
}

/// A piece of content, or its end.
pub(super) enum ContentEvent {
    Data(Bytes),
    End(Option<Headers>),
}

/// The minimum rate at which a client has to send content.
pub(super) struct ReceiveClock {
    pace: Pace,
    deadline: Deadline,
}

impl ReceiveClock {
    pub(super) fn new(pace: Pace, deadline: Deadline) -> ReceiveClock {
        ReceiveClock { pace, deadline }
    }

    pub(super) fn received(&mut self, bytes: usize) {
        self.pace.record_progress(bytes, &self.deadline);
    }
}

/// The body of a request that was not received completely.
pub(super) struct InboundBody<S: ContentSource> {
    source: S,
    state: State,
    /// Number of bytes that may still be received.
    allowed: u64,
    clock: ReceiveClock,
    trailers: Option<Headers>,
}

#[derive(Clone, Copy)]
enum State {
    Receiving,
    Ended,
    Failed(ErrorKind),
}

impl<S: ContentSource> InboundBody<S> {
    pub(super) fn new(source: S, max_bytes: u64, clock: ReceiveClock) -> InboundBody<S> {
        InboundBody { source, state: State::Receiving, allowed: max_bytes, clock, trailers: None }
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>>> {
        if self.source.length().is_some_and(|length| length > self.allowed) {
            return Poll::Ready(Err(too_large()));
        }
        match self.source.poll_event(cx, &mut self.clock) {
            Poll::Ready(Ok(ContentEvent::Data(data))) => {
                let Some(allowed) = self.allowed.checked_sub(data.len() as u64) else {
                    return Poll::Ready(Err(too_large()));
                };
                self.allowed = allowed;
                Poll::Ready(Ok(Some(data)))
            }
            Poll::Ready(Ok(ContentEvent::End(trailers))) => {
                self.trailers = trailers;
                Poll::Ready(Ok(None))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => {
                let expired = self.clock.pace.poll_expired(&self.clock.deadline, cx);
                let reason = "the body was received too slowly";
                expired.map(|()| Err(Error::new(ErrorKind::TooSlow, reason)))
            }
        }
    }

    fn end(&mut self, state: State) {
        if let State::Receiving = std::mem::replace(&mut self.state, state) {
            self.clock.deadline.clear();
            self.source.release(matches!(state, State::Failed(_)));
        }
    }
}

impl<S: ContentSource> Inbound for InboundBody<S> {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>>> {
        match self.state {
            State::Receiving => {}
            State::Ended => return Poll::Ready(Ok(None)),
            State::Failed(kind) => {
                return Poll::Ready(Err(Error::new(kind, "an earlier read of the body failed")));
            }
        }
        let chunk = ready!(self.poll_next(cx));
        match &chunk {
            Ok(Some(_)) if !self.source.is_complete() => {}
            Ok(_) => self.end(State::Ended),
            Err(error) => self.end(State::Failed(error.kind())),
        }
        Poll::Ready(chunk)
    }

    fn length(&self) -> Option<u64> {
        match self.state {
            State::Ended => Some(0),
            State::Receiving | State::Failed(_) => self.source.length(),
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
}

impl<S: ContentSource> Drop for InboundBody<S> {
    fn drop(&mut self) {
        self.end(State::Ended);
    }
}
