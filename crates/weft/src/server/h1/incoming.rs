//! The body of a request, which holds the connection's reader while it is read.
//!
//! The connection lends its reader to the body. The body reads and decodes on its own,
//! in whichever task or thread it is polled, and gives the reader back when it ends or is
//! dropped. No task and no channel stands between the application and the socket: the
//! application's pace is the client's pace.

use std::io::ErrorKind::{ConnectionReset, UnexpectedEof};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes};

use crate::clock::deadline::{Deadline, Pace};
use crate::error::{Error, ErrorKind, Result};
use crate::message::body::{Inbound, too_large};
use crate::net::conn::Reader;
use crate::proto::headers::Headers;
use crate::proto::http1::chunked::{Decoder, Step};
use crate::proto::http1::parse::Limits;

/// How much is asked for at once when a body is read.
const READ_BYTES: u64 = 64 << 10;
const LEAST_READ_BYTES: u64 = 1 << 10;

/// After so many bytes that came without a wait, others get their turn. Some readers of
/// bodies take, and keep, whatever comes before the next wait.
const TURN_BYTES: usize = 256 << 10;

/// A request's body that is not all here yet.
pub(crate) struct Incoming {
    state: State,
    decoder: Decoder,
    trailer_limits: Limits,
    /// How many bytes may still come.
    allowed: u64,
    /// The client waits for a 100 before it sends.
    expects_continue: bool,
    deadline: Deadline,
    pace: Pace,
    /// How many bytes came since the last wait.
    at_once: usize,
    loan: Arc<Loan>,
    trailers: Option<Headers>,
}

enum State {
    Reading(Reader),
    Ended,
    Failed(ErrorKind),
}

/// What the connection and a body on loan know of each other.
pub(crate) struct Loan(Mutex<Ledger>);

#[derive(Default)]
struct Ledger {
    returned: Option<Returned>,
    wants_continue: bool,
    /// The connection is gone: the body has nothing to read from.
    revoked: bool,
    connection: Option<Waker>,
    /// Who waits for more of the body.
    body: Option<Waker>,
}

/// The reader, and how far the body was read.
pub(crate) struct Returned {
    pub(crate) reader: Reader,
    pub(crate) decoder: Decoder,
    /// The input makes no sense any more: no request can follow.
    pub(crate) failed: bool,
}

/// What the connection hears of a body on loan.
pub(crate) enum News {
    WantsContinue,
    Returned(Returned),
}

impl Loan {
    pub(crate) fn new() -> Arc<Loan> {
        Arc::new(Loan(Mutex::default()))
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is new; the connection is woken when there is more.
    pub(crate) fn poll_news(&self, cx: &Context<'_>) -> Poll<News> {
        let mut ledger = self.ledger();
        if std::mem::take(&mut ledger.wants_continue) {
            return Poll::Ready(News::WantsContinue);
        }
        if let Some(returned) = ledger.returned.take() {
            return Poll::Ready(News::Returned(returned));
        }
        ledger.connection = Some(cx.waker().clone());
        Poll::Pending
    }

    /// The reader, if it is back.
    pub(crate) fn returned(&self) -> Option<Returned> {
        self.ledger().returned.take()
    }

    /// The connection is gone.
    pub(crate) fn revoke(&self) {
        let mut ledger = self.ledger();
        ledger.revoked = true;
        let body = ledger.body.take();
        drop(ledger);
        if let Some(body) = body {
            body.wake();
        }
    }

    /// Whether the connection is gone; if it is not yet, its end wakes the body.
    fn poll_revoked(&self, cx: &Context<'_>) -> Poll<()> {
        let mut ledger = self.ledger();
        if ledger.revoked {
            return Poll::Ready(());
        }
        ledger.body = Some(cx.waker().clone());
        Poll::Pending
    }
}

/// How a body is to be read.
pub(crate) struct Terms {
    pub(crate) decoder: Decoder,
    pub(crate) trailer_limits: Limits,
    pub(crate) max_bytes: u64,
    pub(crate) expects_continue: bool,
    pub(crate) deadline: Deadline,
    pub(crate) pace: Pace,
}

impl Incoming {
    pub(crate) fn new(reader: Reader, loan: Arc<Loan>, terms: Terms) -> Incoming {
        Incoming {
            state: State::Reading(reader),
            decoder: terms.decoder,
            trailer_limits: terms.trailer_limits,
            allowed: terms.max_bytes,
            expects_continue: terms.expects_continue,
            deadline: terms.deadline,
            pace: terms.pace,
            at_once: 0,
            loan,
            trailers: None,
        }
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>>> {
        let reader = match &mut self.state {
            State::Reading(reader) => reader,
            State::Ended => return Poll::Ready(Ok(None)),
            State::Failed(kind) => {
                return Poll::Ready(Err(Error::new(*kind, "the body has failed before")));
            }
        };
        if self.loan.ledger().revoked {
            return Poll::Ready(Err(Error::disconnected()));
        }
        if self.decoder.length().is_some_and(|length| length > self.allowed) {
            return Poll::Ready(Err(too_large()));
        }
        loop {
            match self.decoder.step(&reader.buffer, &self.trailer_limits)? {
                Step::Skip(bytes) => reader.buffer.advance(bytes),
                Step::Data(bytes) => {
                    let chunk = reader.buffer.split_to(bytes).freeze();
                    let Some(allowed) = self.allowed.checked_sub(bytes as u64) else {
                        return Poll::Ready(Err(too_large()));
                    };
                    self.allowed = allowed;
                    return Poll::Ready(Ok(Some(chunk)));
                }
                Step::Trailers(fields, bytes) => {
                    let text = reader.buffer.split_to(bytes).freeze();
                    self.trailers = Some(Headers::new(text, fields));
                }
                Step::End => return Poll::Ready(Ok(None)),
                Step::Wait => {
                    if std::mem::take(&mut self.expects_continue) {
                        self.loan.tell(|ledger| ledger.wants_continue = true);
                    }
                    if self.at_once >= TURN_BYTES {
                        self.at_once = 0;
                        cx.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                    let left = self.decoder.length().unwrap_or(READ_BYTES);
                    let room = left.clamp(LEAST_READ_BYTES, READ_BYTES) as usize;
                    match reader.poll_fill(cx, room) {
                        Poll::Ready(Ok(0)) => return Poll::Ready(Err(incomplete())),
                        // A reset is such an end, too; behind TLS one that nobody has announced.
                        Poll::Ready(Err(error))
                            if matches!(error.kind(), ConnectionReset | UnexpectedEof) =>
                        {
                            return Poll::Ready(Err(incomplete()));
                        }
                        Poll::Ready(Ok(bytes)) => {
                            self.at_once += bytes;
                            self.pace.moved(bytes, &self.deadline);
                        }
                        Poll::Ready(Err(error)) => return Poll::Ready(Err(error.into())),
                        Poll::Pending if self.loan.poll_revoked(cx).is_ready() => {
                            return Poll::Ready(Err(Error::disconnected()));
                        }
                        Poll::Pending => {
                            self.at_once = 0;
                            return self
                                .pace
                                .poll_over(&self.deadline, cx)
                                .map(|()| Err(too_slow()));
                        }
                    }
                }
            }
        }
    }

    /// Gives the reader back, once.
    fn end(&mut self, state: State) {
        let failed = matches!(state, State::Failed(_));
        if let State::Reading(reader) = std::mem::replace(&mut self.state, state) {
            self.deadline.clear();
            let returned = Returned { reader, decoder: self.decoder, failed };
            self.loan.tell(|ledger| ledger.returned = Some(returned));
        }
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        self.end(State::Ended);
    }
}

impl Loan {
    fn tell(&self, change: impl FnOnce(&mut Ledger)) {
        let mut ledger = self.ledger();
        change(&mut ledger);
        let connection = ledger.connection.take();
        drop(ledger);
        if let Some(connection) = connection {
            connection.wake();
        }
    }
}

impl Inbound for Incoming {
    fn length(&self) -> Option<u64> {
        self.decoder.length()
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
        let chunk = match self.poll_next(cx) {
            Poll::Ready(chunk) => chunk,
            Poll::Pending => return Poll::Pending,
        };
        match &chunk {
            Err(error) => self.end(State::Failed(error.kind())),
            Ok(_) if self.decoder == Decoder::Done => self.end(State::Ended),
            Ok(_) => {}
        }
        Poll::Ready(chunk)
    }
}

fn incomplete() -> Error {
    Error::new(ErrorKind::BodyIncomplete, "the connection ended in the middle of the body")
}

fn too_slow() -> Error {
    Error::new(ErrorKind::TooSlow, "the body came too slowly")
}
