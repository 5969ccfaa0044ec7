//! The loan of a connection's reader to the body of a request.
//!
//! The connection lends its reader to the body. The body reads and decodes on its own, in
//! whichever task or thread it is polled, and returns the reader when it ends or is dropped. No
//! task and no channel stands between the application and the socket: the application's pace is
//! the client's pace.

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

/// The room requested for one read of a body.
const READ_BYTES: u64 = 64 << 10;
const MIN_READ_BYTES: u64 = 1 << 10;

/// The number of bytes received without a wait after which other tasks get their turn. Some
/// readers of bodies take, and keep, everything that is received before the next wait.
const BUDGET_BYTES: usize = 256 << 10;

/// The state that a connection and a body share while the body has the reader.
pub(super) struct Loan(Mutex<LoanState>);

#[derive(Default)]
struct LoanState {
    returned: Option<ReturnedReader>,
    wants_continue: bool,
    /// The connection has ended: there is nothing left to read from.
    is_revoked: bool,
    /// The task of the connection.
    connection: Option<Waker>,
    /// The task that reads the body.
    body: Option<Waker>,
}

/// The reader, and the position in the body at which it was returned.
pub(super) struct ReturnedReader {
    pub(super) reader: Reader,
    pub(super) decoder: BodyDecoder,
    /// The rest of the input cannot be parsed: no request can follow.
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

    /// The next event; the connection is woken when there is one.
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

    /// Ends the loan because the connection has ended; the next read of the body fails.
    pub(super) fn revoke(&self) {
        let mut state = self.state();
        state.is_revoked = true;
        let body = state.body.take();
        drop(state);
        if let Some(body) = body {
            body.wake();
        }
    }

    /// Ready once the connection has ended, which wakes the body.
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
    /// The client waits for a 100 before it sends.
    expects_continue: bool,
    /// The number of bytes received since the last wait.
    without_wait: usize,
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
        LentReader { reader, decoder, trailer_limits, expects_continue, without_wait: 0, loan }
    }

    /// Receives more of the body into the reader's buffer.
    fn poll_receive(&mut self, cx: &mut Context<'_>, clock: &mut ReceiveClock) -> Poll<Result<()>> {
        if std::mem::take(&mut self.expects_continue) {
            self.loan.notify(|state| state.wants_continue = true);
        }
        if self.without_wait >= BUDGET_BYTES {
            self.without_wait = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let room = self.decoder.remaining().unwrap_or(READ_BYTES).clamp(MIN_READ_BYTES, READ_BYTES);
        let Some(reader) = &mut self.reader else { return Poll::Ready(Err(incomplete())) };
        match reader.poll_fill(cx, room as usize) {
            Poll::Ready(Ok(0)) => Poll::Ready(Err(incomplete())),
            // A reset ends the body too; over TLS, an end without close_notify does.
            Poll::Ready(Err(error)) if matches!(error.kind(), ConnectionReset | UnexpectedEof) => {
                Poll::Ready(Err(incomplete()))
            }
            Poll::Ready(Ok(bytes)) => {
                self.without_wait += bytes;
                clock.received(bytes);
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error.into())),
            Poll::Pending if self.loan.poll_revoked(cx).is_ready() => {
                Poll::Ready(Err(Error::disconnected()))
            }
            Poll::Pending => {
                self.without_wait = 0;
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

    /// The reader goes back with the last piece of a sized body, so that the next request can be
    /// read even if the application does not ask for the end.
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
    Error::new(ErrorKind::BodyIncomplete, "the connection ended in the middle of the body")
}
