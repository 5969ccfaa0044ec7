//! The loan of a connection's reader to the body of a request.
//!
//! The connection lends its reader to the body. The body reads and decodes in the task or thread in
//! which it is polled, and returns the reader when it ends or is dropped. There is no task and no
//! channel between the application and the socket, so backpressure reaches the client directly.

use std::io::ErrorKind::{ConnectionReset, UnexpectedEof};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Buf;

use crate::error::{Error, ErrorKind, Result};
use crate::net::reader::Reader;
use crate::server::inbound::{ContentEvent, ContentSource, ReceiveClock};
use weft_proto::headers::Headers;
use weft_proto::http1::chunked::{BodyDecoder, Step};
use weft_proto::http1::parse::Limits;

/// Buffer space requested for one read of a body.
const READ_BYTES: u64 = 64 << 10;
const MIN_READ_BYTES: u64 = 1 << 10;

/// Number of bytes received without a wait after which the task yields. Some readers of bodies
/// collect everything that is received before the next wait.
const BUDGET_BYTES: usize = 256 << 10;

/// The state that a connection and a body share while the body has the reader.
pub(super) struct Loan(Mutex<LoanState>);

#[derive(Default)]
struct LoanState {
    returned: Option<ReturnedReader>,
    wants_continue: bool,
    /// Set when the connection has ended: no more data can be read.
    is_revoked: bool,
    /// The task of the connection.
    connection: Option<Waker>,
    /// The task that reads the body.
    body: Option<Waker>,
}

/// The returned reader, and its position in the body.
pub(super) struct ReturnedReader {
    pub(super) reader: Reader,
    pub(super) decoder: BodyDecoder,
    /// Set if the rest of the input cannot be parsed, so that no request can follow.
    pub(super) failed: bool,
}

/// A notification from the body to its connection.
pub(super) enum BodyEvent {
    WantsContinue,
    Returned(ReturnedReader),
}

impl Loan {
    pub(super) fn new() -> Arc<Loan> {
        Arc::new(Loan(Mutex::default()))
    }

    fn state(&self) -> MutexGuard<'_, LoanState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Polls for the next event; registers the task of the connection.
    pub(super) fn poll_event(&self, cx: &Context<'_>) -> Poll<BodyEvent> {
        let mut state = self.state();
        if std::mem::take(&mut state.wants_continue) {
            return Poll::Ready(BodyEvent::WantsContinue);
        }
        if let Some(returned) = state.returned.take() {
            return Poll::Ready(BodyEvent::Returned(returned));
        }
        state.connection = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Takes the reader, if it was returned.
    pub(super) fn take_returned(&self) -> Option<ReturnedReader> {
        self.state().returned.take()
    }

    /// Ends the loan because the connection has ended. Further reads of the body fail.
    pub(super) fn revoke(&self) {
        let mut state = self.state();
        state.is_revoked = true;
        let body = state.body.take();
        drop(state);
        if let Some(body) = body {
            body.wake();
        }
    }

    /// Ready when the connection has ended; registers the task of the body.
    fn poll_revoked(&self, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.state();
        if state.is_revoked {
            return Poll::Ready(());
        }
        state.body = Some(cx.waker().clone());
        Poll::Pending
    }

    fn notify(&self, change: impl FnOnce(&mut LoanState)) {
        let mut state = self.state();
        change(&mut state);
        let connection = state.connection.take();
        drop(state);
        if let Some(connection) = connection {
            connection.wake();
        }
    }
}

/// The content of a request, decoded from a reader on loan.
pub(super) struct LentReader {
    /// `None` once it was returned.
    reader: Option<Reader>,
    decoder: BodyDecoder,
    trailer_limits: Limits,
    /// Set while the client waits for a 100 before it sends the body.
    expects_continue: bool,
    /// Number of bytes received since the last wait.
    received_since_wait: usize,
    loan: Arc<Loan>,
}

impl LentReader {
    pub(super) fn new(
        reader: Reader,
        loan: Arc<Loan>,
        (decoder, trailer_limits): (BodyDecoder, Limits),
        expects_continue: bool,
    ) -> LentReader {
        let reader = Some(reader);
        LentReader {
            reader,
            decoder,
            trailer_limits,
            expects_continue,
            received_since_wait: 0,
            loan,
        }
    }

    /// Receives more of the body into the reader's buffer.
    fn poll_receive(&mut self, cx: &mut Context<'_>, clock: &mut ReceiveClock) -> Poll<Result<()>> {
        if std::mem::take(&mut self.expects_continue) {
            self.loan.notify(|state| state.wants_continue = true);
        }
        if self.received_since_wait >= BUDGET_BYTES {
            self.received_since_wait = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let room = self.decoder.remaining().unwrap_or(READ_BYTES).clamp(MIN_READ_BYTES, READ_BYTES);
        let Some(reader) = &mut self.reader else { return Poll::Ready(Err(incomplete())) };
        match reader.poll_fill(cx, room as usize) {
            Poll::Ready(Ok(0)) => Poll::Ready(Err(incomplete())),
            // A reset also ends the body; so does, over TLS, an end without close_notify.
            Poll::Ready(Err(error)) if matches!(error.kind(), ConnectionReset | UnexpectedEof) => {
                Poll::Ready(Err(incomplete()))
            }
            Poll::Ready(Ok(bytes)) => {
                self.received_since_wait += bytes;
                clock.received(bytes);
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error.into())),
            Poll::Pending if self.loan.poll_revoked(cx).is_ready() => {
                Poll::Ready(Err(Error::disconnected()))
            }
            Poll::Pending => {
                self.received_since_wait = 0;
                Poll::Pending
            }
        }
    }
}

impl ContentSource for LentReader {
    fn poll_event(
        &mut self,
        cx: &mut Context<'_>,
        clock: &mut ReceiveClock,
    ) -> Poll<Result<ContentEvent>> {
        if self.loan.state().is_revoked {
            return Poll::Ready(Err(Error::disconnected()));
        }
        let mut trailers = None;
        loop {
            let Some(reader) = &mut self.reader else {
                return Poll::Ready(Ok(ContentEvent::End(None)));
            };
            match self.decoder.step(&reader.buffer, &self.trailer_limits)? {
                Step::Skip(bytes) => reader.buffer.advance(bytes),
                Step::Data(bytes) => {
                    let data = reader.buffer.split_to(bytes).freeze();
                    return Poll::Ready(Ok(ContentEvent::Data(data)));
                }
                Step::Trailers(fields, bytes) => {
                    let text = reader.buffer.split_to(bytes).freeze();
                    trailers = Some(Headers::new(text, fields));
                }
                Step::End => return Poll::Ready(Ok(ContentEvent::End(trailers))),
                Step::Wait => match self.poll_receive(cx, clock) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => return Poll::Pending,
                },
            }
        }
    }

    fn length(&self) -> Option<u64> {
        self.decoder.remaining()
    }

    /// The reader is returned with the last piece of a body with a declared length, so that the
    /// next request can be read even if the application does not poll for the end.
    fn is_complete(&self) -> bool {
        self.decoder == BodyDecoder::Done
    }

    fn release(&mut self, failed: bool) {
        if let Some(reader) = self.reader.take() {
            let returned = ReturnedReader { reader, decoder: self.decoder, failed };
            self.loan.notify(|state| state.returned = Some(returned));
        }
    }
}

fn incomplete() -> Error {
    Error::new(ErrorKind::BodyIncomplete, "the connection was closed in the middle of the body")
}
