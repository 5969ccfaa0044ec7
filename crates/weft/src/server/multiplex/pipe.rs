//! The channel between a connection and the body of a request, or a tunnel. The application may
//! move its end to another thread.
//!
//! A request without a body has no pipe.

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};

use super::ready_queue::{ReadyQueue, register, wake};
use crate::sync::{Arc, Mutex, MutexGuard, PoisonError};
use weft_proto::headers::Headers;

/// One end of the channel between a stream and the application.
#[derive(Clone)]
pub(crate) struct Pipe(Arc<PipeShared>);

struct PipeShared {
    stream: u64,
    ready: Arc<ReadyQueue>,
    state: Mutex<PipeState>,
}

#[derive(Default)]
struct PipeState {
    /// Received data that was not read yet.
    received: VecDeque<Bytes>,
    /// Small pieces received after `received`, joined.
    small: BytesMut,
    /// Number of tiny pieces received since the application last read.
    tiny_pieces: usize,
    end: RecvEnd,
    /// Number of bytes read since the last call of `take_read`.
    read: usize,
    /// Set when the application has dropped its end.
    is_reader_closed: bool,
    /// Number of bytes discarded since the reader was closed.
    discarded: usize,
    /// Set if the connection must be notified when the pipe is finished.
    notify_when_finished: bool,
    reader: Option<Waker>,
    /// Woken by a reset, whether or not the received data has ended.
    watcher: Option<Waker>,
    /// Boxed, because only tunnels have any.
    outgoing: Option<Box<Outgoing>>,
    /// Set when the stream was reset.
    is_reset: bool,
}

/// The result of adding received data.
pub(crate) enum Pushed {
    Kept,
    /// The reader is closed.
    Discarded,
    /// Too many tiny pieces are unread.
    TooSmall,
}

/// The state of the end of the received data.
#[derive(Default)]
pub(crate) enum RecvEnd {
    #[default]
    Open,
    /// The end with the trailers; boxed, because few requests have any.
    Complete(Option<Box<Headers>>),
    /// The stream was reset, or the connection has ended.
    Reset,
}

/// Data written by the handler of a tunnel.
#[derive(Default)]
struct Outgoing {
    bytes: BytesMut,
    /// Number of bytes that the connection has taken since, and not framed completely.
    taken: usize,
    has_ended: bool,
    writer: Option<Waker>,
}

/// The next event for the application.
pub(crate) enum PipeEvent {
    Data(Bytes),
    End(Option<Box<Headers>>),
    Reset,
}

/// Pieces smaller than this are joined.
const MIN_SEPARATE_BYTES: usize = 1 << 10;

/// Pieces smaller than this are counted: the overhead of their frames exceeds their content.
const TINY_BYTES: usize = 64;

/// Maximum number of unread tiny pieces.
const MAX_TINY: usize = 2_000;

/// Number of bytes read after which the connection is notified, even if more data is unread.
const NOTIFY_BYTES: usize = 16 << 10;

/// Maximum number of bytes that a tunnel has written and the connection has not framed.
const MAX_OUTGOING_BYTES: usize = 32 << 10;

/// Number of these bytes that each tunnel may have, so that it makes progress while tunnels with
/// closed windows use up the budget of the connection.
const MIN_OUTGOING_BYTES: usize = 1 << 10;

impl Pipe {
    pub(crate) fn new(stream: u64, ready: Arc<ReadyQueue>) -> Pipe {
        Pipe(Arc::new(PipeShared { stream, ready, state: Mutex::default() }))
    }

    fn state(&self) -> MutexGuard<'_, PipeState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // -- connection side

    /// Adds received data.
    pub(crate) fn push(&self, data: &[u8]) -> Pushed {
        let mut guard = self.state();
        let state = &mut *guard;
        if state.is_reader_closed {
            state.discarded += data.len();
            return Pushed::Discarded;
        }
        if data.len() < TINY_BYTES {
            state.tiny_pieces += 1;
        }
        if data.len() >= MIN_SEPARATE_BYTES {
            // Copied, so that the input buffer is not retained.
            state.flush_small();
            state.received.push_back(Bytes::copy_from_slice(data));
        } else {
            state.small.extend_from_slice(data);
            if state.small.len() >= 4 * MIN_SEPARATE_BYTES {
                state.flush_small();
            }
        }
        let is_allowed = state.tiny_pieces <= MAX_TINY;
        let reader = state.reader.take();
        drop(guard);
        wake(reader);
        if is_allowed { Pushed::Kept } else { Pushed::TooSmall }
    }

    /// Reopens the reader after the application dropped its end. Returns the number of bytes
    /// discarded in between.
    pub(crate) fn reopen_reader(&self) -> usize {
        let mut state = self.state();
        state.is_reader_closed = false;
        std::mem::take(&mut state.discarded)
    }

    /// Ends the received data; [`RecvEnd::Reset`] also ends the outgoing data.
    pub(crate) fn end(&self, end: RecvEnd) {
        let mut state = self.state();
        let mut writer = None;
        if matches!(end, RecvEnd::Reset) {
            state.is_reset = true;
            if let Some(outgoing) = &mut state.outgoing {
                self.0.ready.release(outgoing.discard());
                writer = outgoing.writer.take();
            }
        }
        if matches!(state.end, RecvEnd::Open) {
            state.end = end;
        }
        let watcher = if state.is_reset { state.watcher.take() } else { None };
        let reader = state.reader.take();
        drop(state);
        wake(reader);
        wake(writer);
        wake(watcher);
    }

    /// Returns the number of bytes read since the last call.
    pub(crate) fn take_read(&self) -> usize {
        std::mem::take(&mut self.state().read)
    }

    /// Discards unread data. Returns its size plus the number of bytes read since the last call of
    /// [`take_read`](Pipe::take_read).
    pub(crate) fn clear(&self) -> usize {
        let state = &mut *self.state();
        let unread: usize = state.received.drain(..).map(|data| data.len()).sum();
        unread + std::mem::take(&mut state.small).len() + std::mem::take(&mut state.read)
    }

    /// Returns true if the application has dropped its end.
    pub(crate) fn is_reader_closed(&self) -> bool {
        self.state().is_reader_closed
    }

    /// Returns true if all data was read, or the reader is closed. Otherwise the ready queue is
    /// notified when that happens.
    pub(crate) fn check_finished(&self) -> bool {
        let state = &mut *self.state();
        let is_finished = state.is_finished();
        state.notify_when_finished = !is_finished;
        is_finished
    }

    /// Takes the data that a tunnel has written, and `true` if no more follows. All data taken
    /// before is framed.
    pub(crate) fn take_outgoing(&self) -> (Bytes, bool) {
        let mut state = self.state();
        let Some(outgoing) = &mut state.outgoing else { return (Bytes::new(), false) };
        // Its buffer is not kept: most tunnels write seldom.
        let bytes = std::mem::take(&mut outgoing.bytes).freeze();
        let framed = std::mem::replace(&mut outgoing.taken, bytes.len());
        let (writer, has_ended) = (outgoing.writer.take(), outgoing.has_ended);
        drop(state);
        self.0.ready.release(framed);
        wake(writer);
        (bytes, has_ended)
    }

    // -- application side

    /// Polls for received data.
    pub(crate) fn poll_next(&self, cx: &Context<'_>) -> Poll<PipeEvent> {
        let mut guard = self.state();
        let state = &mut *guard;
        state.tiny_pieces = 0;
        let first = match state.received.pop_front() {
            None if !state.small.is_empty() => Some(state.small.split().freeze()),
            first => first,
        };
        if let Some(data) = first {
            state.read += data.len();
            let is_due = state.has_no_data() || state.read >= NOTIFY_BYTES;
            let is_finished = state.take_finished_notification();
            drop(guard);
            if is_due || is_finished {
                self.notify();
            }
            return Poll::Ready(PipeEvent::Data(data));
        }
        match &mut state.end {
            RecvEnd::Complete(trailers) => Poll::Ready(PipeEvent::End(trailers.take())),
            RecvEnd::Reset => Poll::Ready(PipeEvent::Reset),
            RecvEnd::Open => {
                register(&mut state.reader, cx);
                Poll::Pending
            }
        }
    }

    /// Ready when the stream was reset, also behind the end of its data.
    pub(crate) fn poll_reset(&self, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.state();
        if state.is_reset {
            return Poll::Ready(());
        }
        register(&mut state.watcher, cx);
        Poll::Pending
    }

    /// Returns true if all data up to its end was read.
    pub(crate) fn is_fully_read(&self) -> bool {
        self.state().is_fully_read()
    }

    /// Closes the application's end.
    pub(crate) fn close_reader(&self) {
        let mut state = self.state();
        state.is_reader_closed = true;
        let is_finished = state.take_finished_notification();
        drop(state);
        if is_finished {
            self.notify();
        }
    }

    /// Accepts as many bytes from a tunnel as there is space for; `None` after the end.
    pub(crate) fn poll_send(&self, cx: &Context<'_>, bytes: &[u8]) -> Poll<Option<usize>> {
        let mut state = self.state();
        if state.is_reset {
            return Poll::Ready(None);
        }
        let outgoing = state.outgoing.get_or_insert_default();
        if outgoing.has_ended {
            return Poll::Ready(None);
        }
        let held = outgoing.held();
        let wanted = bytes.len().min(MAX_OUTGOING_BYTES.saturating_sub(held));
        let length = self.0.ready.reserve(wanted, MIN_OUTGOING_BYTES.saturating_sub(held));
        if length == 0 {
            // Own data remains, and the next call of `take_outgoing` wakes the writer.
            register(&mut outgoing.writer, cx);
            return Poll::Pending;
        }
        outgoing.bytes.extend_from_slice(&bytes[..length]);
        drop(state);
        self.notify();
        Poll::Ready(Some(length))
    }

    /// Ends the outgoing data of a tunnel. Returns false if the stream was reset before.
    pub(crate) fn finish(&self) -> bool {
        let mut state = self.state();
        state.outgoing.get_or_insert_default().has_ended = true;
        let is_reset = state.is_reset;
        drop(state);
        self.notify();
        !is_reset
    }

    fn notify(&self) {
        self.0.ready.notify(self.0.stream);
    }
}

impl Drop for PipeShared {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(outgoing) = &mut state.outgoing {
            self.ready.release(outgoing.discard());
        }
    }
}

impl Outgoing {
    fn held(&self) -> usize {
        self.bytes.len() + self.taken
    }

    /// Discards the data. Returns the number of bytes.
    fn discard(&mut self) -> usize {
        let held = self.held();
        (self.bytes, self.taken) = (BytesMut::new(), 0);
        held
    }
}

impl PipeState {
    fn has_no_data(&self) -> bool {
        self.received.is_empty() && self.small.is_empty()
    }

    fn is_fully_read(&self) -> bool {
        self.has_no_data() && !matches!(self.end, RecvEnd::Open)
    }

    fn is_finished(&self) -> bool {
        self.is_reader_closed || self.is_fully_read()
    }

    /// Returns true, once, if the pipe is finished and the connection must be notified.
    fn take_finished_notification(&mut self) -> bool {
        self.is_finished() && std::mem::take(&mut self.notify_when_finished)
    }

    fn flush_small(&mut self) {
        if !self.small.is_empty() {
            self.received.push_back(self.small.split().freeze());
        }
    }
}
