//! The content of a request while the application reads it: limits, the minimum rate, trailers.
//! Each HTTP version implements a [`ContentSource`].

use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;

use crate::clock::deadline::{Deadline, Pace};
use crate::error::{Error, ErrorKind, Result};
use crate::message::body::{Inbound, LiftedLimits, SET_LIMIT, too_large};
use crate::message::connection::RequestContext;
use crate::server::worker_context::WorkerContext;
use crate::settings::DEFAULT_MAX_BODY_BYTES;
use weft_proto::headers::Headers;

/// The content of one request, as received by an HTTP version.
pub(super) trait ContentSource: Send + Sync {
    /// Polls for the next piece. Time in which it is pending counts against the client. The
    /// implementation reports each received byte to `clock`.
    fn poll_event(
        &mut self,
        cx: &mut Context<'_>,
        clock: &mut ReceiveClock,
    ) -> Poll<Result<ContentEvent>>;

    /// Number of remaining bytes, if the client declared it.
    fn length(&self) -> Option<u64>;

    /// Returns true if the end was reached and no more events follow.
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
    /// The end, with the trailers; boxed, because few requests have any.
    End(Option<Box<Headers>>),
}

/// The minimum rate at which a client has to send content.
///
/// It does not apply to a stream: content of unknown length that is received while the response is
/// sent. Its client may wait for messages before it sends the next one.
pub(super) struct ReceiveClock {
    pace: Pace,
    deadline: Deadline,
    exchange: Arc<RequestContext>,
    /// Set if the application has set the rate. Then it applies to a stream, too.
    is_explicit: bool,
    /// Set if the rate of the settings does not apply to content of unknown length.
    is_lifted: bool,
}

impl ReceiveClock {
    pub(super) fn new<A>(
        worker: &WorkerContext<A>,
        exchange: &Arc<RequestContext>,
    ) -> ReceiveClock {
        let (pace, deadline) = (Pace::new(&worker.settings), worker.deadlines.deadline());
        let (exchange, is_explicit, is_lifted) = (exchange.clone(), false, false);
        ReceiveClock { pace, deadline, exchange, is_explicit, is_lifted }
    }

    #[inline]
    pub(super) fn received(&mut self, bytes: usize) {
        self.pace.record_progress(bytes, &self.deadline);
    }

    /// Returns true if content of this remaining length is a stream.
    fn is_stream(&self, length: Option<u64>) -> bool {
        length.is_none() && self.exchange.is_responding()
    }

    fn set_rate(&mut self, bytes_per_second: u32, stall_timeout: Duration) {
        self.deadline.clear();
        self.pace = Pace::with_rate(bytes_per_second, stall_timeout);
        self.is_explicit = true;
    }

    /// Ready when the client is too slow. Call it while no content of this remaining length is
    /// available.
    fn poll_expired(&mut self, length: Option<u64>, cx: &Context<'_>) -> Poll<()> {
        ready!(self.pace.poll_expired(&self.deadline, cx));
        let is_unpaced = self.is_stream(length) || self.is_lifted && length.is_none();
        if self.is_explicit || !is_unpaced {
            return Poll::Ready(());
        }
        // The full credit is restored, because the response may end before the content.
        self.pace.restart();
        self.pace.poll_expired(&self.deadline, cx)
    }
}

/// The number of bytes that may still be received.
enum Allowance {
    /// Limit of the settings. A stream is not counted: the application processes it piece by piece.
    Default(u64),
    /// Limit of the application.
    Explicit(u64),
}

/// The body of a request that was not received completely.
pub(super) struct InboundBody<S: ContentSource> {
    source: S,
    state: State,
    allowed: Allowance,
    received: u64,
    clock: ReceiveClock,
    trailers: Option<Box<Headers>>,
}

#[derive(Clone, Copy)]
enum State {
    Receiving,
    Ended,
    Failed(ErrorKind),
}

impl<S: ContentSource> InboundBody<S> {
    pub(super) fn new(source: S, max_bytes: u64, clock: ReceiveClock) -> InboundBody<S> {
        let allowed = Allowance::Default(max_bytes);
        InboundBody { source, state: State::Receiving, allowed, received: 0, clock, trailers: None }
    }

    /// Counts received bytes. Returns false if they exceed the limit.
    fn count(&mut self, bytes: usize) -> bool {
        let received = self.received;
        self.received = received.saturating_add(bytes as u64);
        let is_stream = self.clock.is_stream(self.source.length());
        let allowed = match &mut self.allowed {
            Allowance::Default(_) if is_stream => return true,
            Allowance::Default(allowed) | Allowance::Explicit(allowed) => allowed,
        };
        let rest = allowed.checked_sub(bytes as u64);
        match rest {
            Some(rest) => *allowed = rest,
            None => self.received = received,
        }
        rest.is_some()
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>>> {
        let polled = self.poll_within_limits(cx);
        if let Poll::Ready(Err(error)) = &polled {
            self.clock.exchange.set_body_failure(error);
        }
        polled
    }

    fn poll_within_limits(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>>> {
        let (allowed, setting) = match self.allowed {
            Allowance::Default(allowed) => (allowed, "max_body_bytes"),
            Allowance::Explicit(allowed) => (allowed, SET_LIMIT),
        };
        if self.source.length().is_some_and(|length| length > allowed) {
            return Poll::Ready(Err(too_large(self.received.saturating_add(allowed), setting)));
        }
        match self.source.poll_event(cx, &mut self.clock) {
            Poll::Ready(Ok(ContentEvent::Data(data))) => {
                Poll::Ready(match self.count(data.len()) {
                    true => Ok(Some(data)),
                    false => Err(too_large(self.received.saturating_add(allowed), setting)),
                })
            }
            Poll::Ready(Ok(ContentEvent::End(trailers))) => {
                self.trailers = trailers;
                Poll::Ready(Ok(None))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => {
                let reason = "the body was received too slowly";
                let length = self.source.length();
                let slow = |()| {
                    Err(Error::new(ErrorKind::TooSlow, reason).with_limit("min_bytes_per_second"))
                };
                self.clock.poll_expired(length, cx).map(slow)
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
        self.allowed = Allowance::Explicit(bytes);
    }

    fn lift_limits(&mut self, lifted: LiftedLimits) {
        if lifted == LiftedLimits::SizeAndRateOfStream {
            if self.source.length().is_some() {
                return;
            }
            self.clock.is_lifted = true;
        }
        if let Allowance::Default(allowed @ DEFAULT_MAX_BODY_BYTES) = &mut self.allowed {
            *allowed = u64::MAX;
        }
    }

    fn set_min_rate(&mut self, bytes_per_second: u32, stall_timeout: Duration) {
        self.clock.set_rate(bytes_per_second, stall_timeout);
    }

    fn trailers(&self) -> Option<&Headers> {
        self.trailers.as_deref()
    }

    fn take_trailers(&mut self) -> Option<Headers> {
        self.trailers.take().map(|trailers| *trailers)
    }
}

impl<S: ContentSource> Drop for InboundBody<S> {
    fn drop(&mut self) {
        self.end(State::Ended);
    }
}
