//! A body that arrives while it is sent to several clients, each at its own pace.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::{Frame, SizeHint};

use crate::cache::content_memory::ContentMemory;
use crate::error::{Error, ErrorKind};
use crate::message::body::Body;

/// The most content of a passing body that waits for its readers.
const WINDOW: usize = 256 << 10;

/// The content received so far. It is kept once, whatever the number of its readers, so that the
/// slowest of them delays nobody. A body that turns out to be too large becomes a *passing* one: it
/// gets no further readers, content that all have read is dropped, and the fetch waits for them.
#[derive(Debug)]
pub(super) struct GrowingBody {
    /// The length that the head declares.
    length: Option<u64>,
    memory: ContentMemory,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    pieces: VecDeque<Piece>,
    /// Number of pieces that were dropped before the first one.
    dropped: usize,
    /// Number of bytes of all pieces.
    kept: usize,
    /// Number of bytes received.
    received: usize,
    readers: Vec<Option<Place>>,
    /// The fetch, while it waits for readers.
    fetch: Option<Waker>,
}

#[derive(Debug)]
enum Phase {
    /// All content is kept.
    Growing,
    /// Content is dropped once all have read it.
    Passing,
    /// All content, in one piece.
    Complete(Bytes),
    /// A passing body has ended.
    Passed,
    Failed,
}

#[derive(Debug)]
struct Piece {
    content: Bytes,
    /// Number of readers that have to read it. Counted for passing bodies only.
    unread: usize,
}

/// The place of a reader.
#[derive(Debug)]
struct Place {
    waker: Option<Waker>,
    /// Number of the next piece, from the start of the body.
    piece: usize,
}

impl GrowingBody {
    pub(super) fn new(length: Option<u64>, memory: ContentMemory) -> GrowingBody {
        let state = State {
            phase: Phase::Growing,
            pieces: VecDeque::new(),
            dropped: 0,
            kept: 0,
            received: 0,
            readers: Vec::new(),
            fetch: None,
        };
        GrowingBody { length, memory, state: Mutex::new(state) }
    }

    /// Appends a piece. It is copied, because it may be a small part of a large buffer.
    pub(super) fn push(&self, piece: &[u8]) {
        if piece.is_empty() {
            return;
        }
        let content = self.memory.hold(piece.to_vec());
        self.update(|state| {
            let unread = state.readers.iter().flatten().count();
            state.pieces.push_back(Piece { content, unread });
            state.received += piece.len();
            state.kept += piece.len();
        });
    }

    /// The length that the head declares.
    pub(super) fn declared_length(&self) -> Option<u64> {
        self.length
    }

    /// Makes this a passing body. Returns the content received so far.
    pub(super) fn pass(&self) -> Vec<Bytes> {
        let mut received = Vec::new();
        self.update(|state| {
            state.phase = Phase::Passing;
            received.extend(state.pieces.iter().map(|piece| piece.content.clone()));
            let mut starts = vec![0; state.pieces.len() + 1];
            state.readers.iter().flatten().for_each(|place| starts[place.piece] += 1);
            let mut unread = 0;
            for (piece, starting) in state.pieces.iter_mut().zip(starts) {
                unread += starting;
                piece.unread = unread;
            }
            state.drop_read();
        });
        received
    }

    /// Waits until the readers of a passing body have read enough. Returns false if none is left.
    pub(super) async fn readers_follow(&self) -> bool {
        poll_fn(|cx| {
            let mut state = self.lock();
            if state.readers.iter().all(Option::is_none) {
                return Poll::Ready(false);
            }
            if state.kept <= WINDOW {
                return Poll::Ready(true);
            }
            state.fetch = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Ends the body. Returns the content; `None` if it is not as long as declared, or has passed.
    pub(super) fn finish(&self) -> Option<Bytes> {
        let mut whole = None;
        self.update(|state| {
            let is_short = self.length.is_some_and(|length| length != state.received as u64);
            state.phase = match state.phase {
                _ if is_short => Phase::Failed,
                Phase::Growing => {
                    let bytes = self.joined(&state.pieces);
                    state.pieces = VecDeque::new();
                    whole = Some(bytes.clone());
                    Phase::Complete(bytes)
                }
                _ => Phase::Passed,
            };
        });
        whole
    }

    /// Ends the body with an error for all readers, unless it has ended.
    pub(super) fn fail(&self) {
        self.update(|state| {
            if let Phase::Growing | Phase::Passing = state.phase {
                state.phase = Phase::Failed;
            }
        });
    }

    /// Returns a body that reads from the start, and drops `guard` at its end; `None` for a passing
    /// body and a failed one.
    pub(super) fn reader<G: Send + Unpin + 'static>(self: &Arc<Self>, guard: G) -> Option<Body> {
        let place = {
            let mut state = self.lock();
            if let Phase::Passing | Phase::Passed | Phase::Failed = state.phase {
                return None;
            }
            state.readers.push(Some(Place { waker: None, piece: 0 }));
            state.readers.len() - 1
        };
        let body = self.clone();
        Some(Body::boxed(Reader { body, place, sent: 0, _guard: guard }))
    }

    fn joined(&self, pieces: &VecDeque<Piece>) -> Bytes {
        match pieces.len() {
            1 => pieces[0].content.clone(),
            _ => {
                let contents: Vec<&[u8]> = pieces.iter().map(|piece| &piece.content[..]).collect();
                self.memory.hold(contents.concat())
            }
        }
    }

    /// Changes the state, and wakes all readers.
    fn update(&self, change: impl FnOnce(&mut State)) {
        let wakers: Vec<Waker> = {
            let mut state = self.lock();
            change(&mut state);
            let places = state.readers.iter_mut().flatten();
            places.filter_map(|place| place.waker.take()).collect()
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns the next content for a reader that has received `sent` bytes; `None` if it has to
    /// wait, and an empty piece at the end.
    fn next(&mut self, reader: usize, sent: usize) -> Option<Result<Bytes, Error>> {
        let place = self.readers[reader].as_mut()?;
        if let Phase::Complete(whole) = &self.phase {
            return Some(Ok(whole.slice(sent..)));
        }
        if let Some(piece) = self.pieces.get_mut(place.piece - self.dropped) {
            place.piece += 1;
            piece.unread = piece.unread.saturating_sub(1);
            let content = piece.content.clone();
            self.drop_read();
            return Some(Ok(content));
        }
        match self.phase {
            Phase::Passed => Some(Ok(Bytes::new())),
            Phase::Failed => {
                let reason = "the response that several requests share was cut short";
                Some(Err(Error::new(ErrorKind::BodyIncomplete, reason)))
            }
            _ => None,
        }
    }

    /// Drops the pieces of a passing body that all readers have read.
    fn drop_read(&mut self) {
        if !matches!(self.phase, Phase::Passing | Phase::Passed) {
            return;
        }
        while self.pieces.front().is_some_and(|piece| piece.unread == 0) {
            let piece = self.pieces.pop_front();
            self.dropped += 1;
            self.kept -= piece.map_or(0, |piece| piece.content.len());
        }
        if let Some(fetch) = self.fetch.take() {
            fetch.wake();
        }
    }

    /// Removes a reader, which reads no further pieces.
    fn leave(&mut self, reader: usize) {
        let Some(place) = self.readers[reader].take() else { return };
        let unread = self.pieces.iter_mut().skip(place.piece - self.dropped);
        unread.for_each(|piece| piece.unread = piece.unread.saturating_sub(1));
        self.drop_read();
    }
}

/// The body of one response.
struct Reader<G> {
    body: Arc<GrowingBody>,
    /// Number of its place.
    place: usize,
    /// Bytes already returned.
    sent: usize,
    _guard: G,
}

impl<G: Unpin> http_body::Body for Reader<G> {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let reader = self.get_mut();
        let mut state = reader.body.lock();
        match state.next(reader.place, reader.sent) {
            None => {
                if let Some(place) = &mut state.readers[reader.place] {
                    place.waker = Some(cx.waker().clone());
                }
                Poll::Pending
            }
            Some(Ok(next)) => {
                reader.sent += next.len();
                Poll::Ready((!next.is_empty()).then(|| Ok(Frame::data(next))))
            }
            Some(Err(error)) => Poll::Ready(Some(Err(error))),
        }
    }

    fn size_hint(&self) -> SizeHint {
        let length = self.body.length.map(|length| length.saturating_sub(self.sent as u64));
        length.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

impl<G> Drop for Reader<G> {
    fn drop(&mut self) {
        self.body.lock().leave(self.place);
    }
}
