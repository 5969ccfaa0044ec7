//! What a connection and the body of a request share, or a tunnel: the application may have
//! taken that to another thread.
//!
//! A request without a body has none of this.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};

use crate::proto::headers::Headers;

/// Both ends of a stream's way through the application.
#[derive(Clone)]
pub(super) struct Pipe(Arc<Shared>);

struct Shared {
    stream: u32,
    bell: Arc<Bell>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// What has come and is not read yet.
    came: VecDeque<Bytes>,
    /// Behind that, small pieces, which are put together.
    small: BytesMut,
    /// How many tiny pieces came since the application last read.
    tiny: usize,
    end: End,
    /// How many bytes were read since the connection last asked.
    read: usize,
    /// The application has let go of it.
    is_left: bool,
    /// How much has come since then.
    passed_over: usize,
    /// The connection waits until it is over.
    is_awaited: bool,
    /// Who waits for what is to come.
    reader: Option<Waker>,
    outgoing: Outgoing,
}

/// What became of data that has come.
pub(super) enum Pushed {
    Kept,
    /// Nobody will read it.
    PassedOver,
    /// It is more and more of next to nothing.
    TooTiny,
}

/// How what comes ends.
#[derive(Default)]
pub(super) enum End {
    #[default]
    Open,
    Whole(Option<Headers>),
    /// The stream or the connection was cut.
    Cut,
}

/// What a tunnel wants to send.
#[derive(Default)]
struct Outgoing {
    bytes: BytesMut,
    has_ended: bool,
    is_cut: bool,
    writer: Option<Waker>,
}

/// What the application gets next.
pub(super) enum Next {
    Data(Bytes),
    End(Option<Headers>),
    Cut,
}

/// Smaller pieces are put together.
const SMALL_BYTES: usize = 1 << 10;

/// Pieces of less are hardly worth their frames.
const TINY_BYTES: usize = 64;

/// So many of those may come unread.
const MOST_TINY: usize = 2_000;

/// When so much was read, the connection is told, though there is more to read.
const RING_BYTES: usize = 16 << 10;

/// The most that a tunnel leaves with the connection.
const MOST_OUTGOING_BYTES: usize = 16 << 10;

impl Pipe {
    pub(super) fn new(stream: u32, bell: Arc<Bell>) -> Pipe {
        Pipe(Arc::new(Shared { stream, bell, state: Mutex::default() }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // -- the connection's end

    /// Adds what has come.
    pub(super) fn push(&self, data: &[u8]) -> Pushed {
        let mut guard = self.state();
        let state = &mut *guard;
        if state.is_left {
            state.passed_over += data.len();
            return Pushed::PassedOver;
        }
        if data.len() < TINY_BYTES {
            state.tiny += 1;
        }
        if data.len() >= SMALL_BYTES {
            // Copied, so that the buffer that it was read into need not be kept for it.
            state.settle_small();
            state.came.push_back(Bytes::copy_from_slice(data));
        } else {
            state.small.extend_from_slice(data);
            if state.small.len() >= 4 * SMALL_BYTES {
                state.settle_small();
            }
        }
        let is_fine = state.tiny <= MOST_TINY;
        let reader = state.reader.take();
        drop(guard);
        wake(reader);
        if is_fine { Pushed::Kept } else { Pushed::TooTiny }
    }

    /// What comes is to be read after all; how much was passed over meanwhile.
    pub(super) fn take_up(&self) -> usize {
        let mut state = self.state();
        state.is_left = false;
        std::mem::take(&mut state.passed_over)
    }

    /// Nothing comes any more, and nothing is taken if it was cut.
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

    /// How many bytes were read since this was last asked.
    pub(super) fn take_read(&self) -> usize {
        std::mem::take(&mut self.state().read)
    }

    /// Throws away what was not read; how much that and what was read before is.
    pub(super) fn clear(&self) -> usize {
        let state = &mut *self.state();
        let unread: usize = state.came.drain(..).map(|data| data.len()).sum();
        unread + std::mem::take(&mut state.small).len() + std::mem::take(&mut state.read)
    }

    pub(super) fn is_left(&self) -> bool {
        self.state().is_left
    }

    /// Whether all was read, or nobody is there to read it. If not, the bell tells when it is.
    pub(super) fn is_over(&self) -> bool {
        let state = &mut *self.state();
        let is_over = state.is_over();
        state.is_awaited = !is_over;
        is_over
    }

    /// What a tunnel wants to send, and whether that is the last of it.
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

    /// What comes next.
    pub(super) fn poll_next(&self, cx: &Context<'_>) -> Poll<Next> {
        let mut guard = self.state();
        let state = &mut *guard;
        state.tiny = 0;
        let first = match state.came.pop_front() {
            None if !state.small.is_empty() => Some(state.small.split().freeze()),
            first => first,
        };
        if let Some(data) = first {
            state.read += data.len();
            let is_due = state.has_nothing() || state.read >= RING_BYTES;
            let is_over = state.is_over_at_last();
            drop(guard);
            if is_due || is_over {
                self.ring();
            }
            return Poll::Ready(Next::Data(data));
        }
        match &mut state.end {
            End::Whole(trailers) => Poll::Ready(Next::End(trailers.take())),
            End::Cut => Poll::Ready(Next::Cut),
            End::Open => {
                wait(&mut state.reader, cx);
                Poll::Pending
            }
        }
    }

    /// Whether all of it was read.
    pub(super) fn is_read(&self) -> bool {
        self.state().is_read()
    }

    /// Nobody wants it any more.
    pub(super) fn leave(&self) {
        let mut state = self.state();
        state.is_left = true;
        let is_over = state.is_over_at_last();
        drop(state);
        if is_over {
            self.ring();
        }
    }

    /// Takes bytes that a tunnel sends, as far as there is room.
    pub(super) fn poll_send(&self, cx: &Context<'_>, bytes: &[u8]) -> Poll<Option<usize>> {
        let mut state = self.state();
        let outgoing = &mut state.outgoing;
        if outgoing.is_cut || outgoing.has_ended {
            return Poll::Ready(None);
        }
        let room = MOST_OUTGOING_BYTES.saturating_sub(outgoing.bytes.len());
        if room == 0 {
            wait(&mut outgoing.writer, cx);
            return Poll::Pending;
        }
        let length = room.min(bytes.len());
        outgoing.bytes.extend_from_slice(&bytes[..length]);
        drop(state);
        self.ring();
        Poll::Ready(Some(length))
    }

    /// A tunnel sends nothing more; `false` if it cannot say so.
    pub(super) fn finish(&self) -> bool {
        let mut state = self.state();
        state.outgoing.has_ended = true;
        let is_cut = state.outgoing.is_cut;
        drop(state);
        self.ring();
        !is_cut
    }

    fn ring(&self) {
        self.0.bell.ring(self.0.stream);
    }
}

impl State {
    fn has_nothing(&self) -> bool {
        self.came.is_empty() && self.small.is_empty()
    }

    fn is_read(&self) -> bool {
        self.has_nothing() && !matches!(self.end, End::Open)
    }

    fn is_over(&self) -> bool {
        self.is_left || self.is_read()
    }

    /// Whether it is over and the connection waits for that.
    fn is_over_at_last(&mut self) -> bool {
        self.is_over() && std::mem::take(&mut self.is_awaited)
    }

    fn settle_small(&mut self) {
        if !self.small.is_empty() {
            self.came.push_back(self.small.split().freeze());
        }
    }
}

/// By which the streams of a connection call it.
#[derive(Default)]
pub(super) struct Bell(Mutex<Calls>);

#[derive(Default)]
struct Calls {
    streams: Vec<u32>,
    waker: Option<Waker>,
}

impl Bell {
    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self, stream: u32) {
        let mut calls = self.calls();
        if !calls.streams.contains(&stream) {
            calls.streams.push(stream);
        }
        let waker = calls.waker.take();
        drop(calls);
        wake(waker);
    }

    /// Which streams have called; the next one wakes the connection.
    pub(super) fn answer(&self, cx: &Context<'_>) -> Vec<u32> {
        let calls = &mut *self.calls();
        wait(&mut calls.waker, cx);
        std::mem::take(&mut calls.streams)
    }
}

fn wait(waker: &mut Option<Waker>, cx: &Context<'_>) {
    if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
        *waker = Some(cx.waker().clone());
    }
}

/// Wakes who waits. Nothing is locked meanwhile: whatever that sets off may come back here.
fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}
