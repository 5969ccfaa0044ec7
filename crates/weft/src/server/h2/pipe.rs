//! The state that a connection shares with the body of a request, or with a tunnel. The
//! application may have moved that to another thread.
//!
//! A request without a body has no pipe.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};

use weft_proto::headers::Headers;

/// Either end of a stream's way through the application.
#[derive(Clone)]
pub(super) struct Pipe(Arc<PipeShared>);

struct PipeShared {
    stream: u32,
    ready: Arc<ReadyQueue>,
    state: Mutex<PipeState>,
}

#[derive(Default)]
struct PipeState {
    /// Data received and not read yet.
    received: VecDeque<Bytes>,
    /// Small pieces behind that, which are joined.
    small: BytesMut,
    /// The number of tiny pieces received since the application last read.
    tiny: usize,
    end: End,
    /// The number of bytes read since the connection last asked.
    read: usize,
    /// The application has dropped its end.
    is_left: bool,
    /// The number of bytes discarded since then.
    discarded: usize,
    /// The connection waits until the pipe is over.
    is_awaited: bool,
    reader: Option<Waker>,
    outgoing: Outgoing,
}

/// The result of adding received data.
pub(super) enum Pushed {
    Kept,
    /// Nobody will read it.
    Discarded,
    /// The client sends more and more tiny pieces.
    TooSmall,
}

/// The end of received data.
#[derive(Default)]
pub(super) enum End {
    #[default]
    Open,
    Complete(Option<Headers>),
    /// The stream or the connection was reset.
    Cut,
}

/// Data written by the handler of a tunnel.
#[derive(Default)]
struct Outgoing {
    bytes: BytesMut,
    has_ended: bool,
    is_cut: bool,
    writer: Option<Waker>,
}

/// The next item for the application.
pub(super) enum Next {
    Data(Bytes),
    End(Option<Headers>),
    Cut,
}

/// Smaller pieces are joined.
const SMALL_BYTES: usize = 1 << 10;

/// Smaller pieces are hardly worth their frames.
const TINY_BYTES: usize = 64;

/// The number of tiny pieces that may be unread.
const MAX_TINY: usize = 2_000;

/// The number of bytes read after which the connection is notified, even if there is more.
const NOTIFY_BYTES: usize = 16 << 10;

/// The number of bytes that a tunnel may leave with the connection.
const MAX_OUTGOING_BYTES: usize = 16 << 10;

impl Pipe {
    pub(super) fn new(stream: u32, ready: Arc<ReadyQueue>) -> Pipe {
        Pipe(Arc::new(PipeShared { stream, ready, state: Mutex::default() }))
    }

    fn state(&self) -> MutexGuard<'_, PipeState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // -- the connection's end

    /// Adds received data.
    pub(super) fn push(&self, data: &[u8]) -> Pushed {
        let mut guard = self.state();
        let state = &mut *guard;
        if state.is_left {
            state.discarded += data.len();
            return Pushed::Discarded;
        }
        if data.len() < TINY_BYTES {
            state.tiny += 1;
        }
        if data.len() >= SMALL_BYTES {
            // Copied, so that the input buffer is not retained for it.
            state.flush_small();
            state.received.push_back(Bytes::copy_from_slice(data));
        } else {
            state.small.extend_from_slice(data);
            if state.small.len() >= 4 * SMALL_BYTES {
                state.flush_small();
            }
        }
        let is_fine = state.tiny <= MAX_TINY;
        let reader = state.reader.take();
        drop(guard);
        wake(reader);
        if is_fine { Pushed::Kept } else { Pushed::TooSmall }
    }

    /// Resumes reading after the application dropped its end. Returns the number of bytes that
    /// were discarded meanwhile.
    pub(super) fn take_up(&self) -> usize {
        let mut state = self.state();
        state.is_left = false;
        std::mem::take(&mut state.discarded)
    }

    /// Ends the received data; [`End::Cut`] ends the outgoing data too.
    pub(super) fn end(&self, end: End) {
        let mut state = self.state();
        let mut writer = None;
        if matches!(end, End::Cut) {
            state.outgoing.is_cut = true;
            writer = state.outgoing.writer.take();
        }
        if matches!(state.end, End::Open) {
            state.end = end;
        }
        let reader = state.reader.take();
        drop(state);
        wake(reader);
        wake(writer);
    }

    /// The number of bytes read since the last call.
    pub(super) fn take_read(&self) -> usize {
        std::mem::take(&mut self.state().read)
    }

    /// Discards unread data. Returns its size, with that of data read since
    /// [`take_read`](Pipe::take_read).
    pub(super) fn clear(&self) -> usize {
        let state = &mut *self.state();
        let unread: usize = state.received.drain(..).map(|data| data.len()).sum();
        unread + std::mem::take(&mut state.small).len() + std::mem::take(&mut state.read)
    }

    /// Whether the application has dropped its end.
    pub(super) fn is_left(&self) -> bool {
        self.state().is_left
    }

    /// Whether everything was read, or nobody will read it. If not, the ready queue is notified
    /// when it is.
    pub(super) fn is_over(&self) -> bool {
        let state = &mut *self.state();
        let is_over = state.is_over();
        state.is_awaited = !is_over;
        is_over
    }

    /// Takes the data that a tunnel has written, and whether it is the last.
    pub(super) fn take_outgoing(&self) -> (Bytes, bool) {
        let mut state = self.state();
        let outgoing = &mut state.outgoing;
        let (bytes, writer) = (outgoing.bytes.split().freeze(), outgoing.writer.take());
        let has_ended = outgoing.has_ended;
        drop(state);
        wake(writer);
        (bytes, has_ended)
    }

    // -- the application's end

    /// Polls for received data.
    pub(super) fn poll_next(&self, cx: &Context<'_>) -> Poll<Next> {
        let mut guard = self.state();
        let state = &mut *guard;
        state.tiny = 0;
        let first = match state.received.pop_front() {
            None if !state.small.is_empty() => Some(state.small.split().freeze()),
            first => first,
        };
        if let Some(data) = first {
            state.read += data.len();
            let is_due = state.is_drained() || state.read >= NOTIFY_BYTES;
            let is_over = state.take_awaited_over();
            drop(guard);
            if is_due || is_over {
                self.notify();
            }
            return Poll::Ready(Next::Data(data));
        }
        match &mut state.end {
            End::Complete(trailers) => Poll::Ready(Next::End(trailers.take())),
            End::Cut => Poll::Ready(Next::Cut),
            End::Open => {
                register(&mut state.reader, cx);
                Poll::Pending
            }
        }
    }

    /// Whether everything was read.
    pub(super) fn is_read(&self) -> bool {
        self.state().is_read()
    }

    /// Drops the application's end.
    pub(super) fn leave(&self) {
        let mut state = self.state();
        state.is_left = true;
        let is_over = state.take_awaited_over();
        drop(state);
        if is_over {
            self.notify();
        }
    }

    /// Takes bytes that a tunnel writes, as far as there is room; `None` after the end.
    pub(super) fn poll_send(&self, cx: &Context<'_>, bytes: &[u8]) -> Poll<Option<usize>> {
        let mut state = self.state();
        let outgoing = &mut state.outgoing;
        if outgoing.is_cut || outgoing.has_ended {
            return Poll::Ready(None);
        }
        let room = MAX_OUTGOING_BYTES.saturating_sub(outgoing.bytes.len());
        if room == 0 {
            register(&mut outgoing.writer, cx);
            return Poll::Pending;
        }
        let length = room.min(bytes.len());
        outgoing.bytes.extend_from_slice(&bytes[..length]);
        drop(state);
        self.notify();
        Poll::Ready(Some(length))
    }

    /// Ends the outgoing data of a tunnel; `false` if the stream was reset before.
    pub(super) fn finish(&self) -> bool {
        let mut state = self.state();
        state.outgoing.has_ended = true;
        let is_cut = state.outgoing.is_cut;
        drop(state);
        self.notify();
        !is_cut
    }

    fn notify(&self) {
        self.0.ready.notify(self.0.stream);
    }
}

impl PipeState {
    fn is_drained(&self) -> bool {
        self.received.is_empty() && self.small.is_empty()
    }

    fn is_read(&self) -> bool {
        self.is_drained() && !matches!(self.end, End::Open)
    }

    fn is_over(&self) -> bool {
        self.is_left || self.is_read()
    }

    /// Whether the pipe is over and the connection waits for that; `true` once.
    fn take_awaited_over(&mut self) -> bool {
        self.is_over() && std::mem::take(&mut self.is_awaited)
    }

    fn flush_small(&mut self) {
        if !self.small.is_empty() {
            self.received.push_back(self.small.split().freeze());
        }
    }
}

/// The streams of a connection that need its attention.
#[derive(Default)]
pub(super) struct ReadyQueue(Mutex<ReadyState>);

#[derive(Default)]
struct ReadyState {
    streams: Vec<u32>,
    waker: Option<Waker>,
}

impl ReadyQueue {
    fn state(&self) -> MutexGuard<'_, ReadyState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify(&self, stream: u32) {
        let mut state = self.state();
        if !state.streams.contains(&stream) {
            state.streams.push(stream);
        }
        let waker = state.waker.take();
        drop(state);
        wake(waker);
    }

    /// Takes all streams, and registers the connection's task for the next one.
    pub(super) fn take(&self, cx: &Context<'_>) -> Vec<u32> {
        let state = &mut *self.state();
        register(&mut state.waker, cx);
        std::mem::take(&mut state.streams)
    }
}

fn register(waker: &mut Option<Waker>, cx: &Context<'_>) {
    if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
        *waker = Some(cx.waker().clone());
    }
}

/// Wakes a task. No lock is held meanwhile, since the task may come back here at once.
fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}
