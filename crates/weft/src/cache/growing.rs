//! A body that arrives while it is sent to several clients, each at its own pace.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use http_body::{Frame, SizeHint};

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
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    pieces: Vec<Bytes>,
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
    /// Content is dropped once all have read it; this many bytes are kept.
    Passing {
        kept: usize,
    },
    /// All content, in one piece.
    Complete(Bytes),
    /// A passing body has ended.
    Passed,
    Failed,
}

/// The place of a reader.
#[derive(Debug)]
struct Place {
    waker: Option<Waker>,
    /// The next piece.
    piece: usize,
}

impl GrowingBody {
    pub(super) fn new(length: Option<u64>) -> GrowingBody {
        let state = State {
            phase: Phase::Growing,
            pieces: Vec::new(),
            received: 0,
            readers: Vec::new(),
            fetch: None,
        };
        GrowingBody { length, state: Mutex::new(state) }
    }

    /// Appends a piece. It is copied, because it may be a small part of a large buffer.
    pub(super) fn push(&self, piece: &[u8]) {
        if piece.is_empty() {
            return;
        }
        self.update(|state| {
            state.pieces.push(Bytes::copy_from_slice(piece));
            state.received += piece.len();
            if let Phase::Passing { kept } = &mut state.phase {
                *kept += piece.len();
            }
        });
    }

    /// Makes this a passing body.
    pub(super) fn pass(&self) {
        self.update(|state| {
            state.phase = Phase::Passing { kept: state.received };
            state.drop_read();
        });
    }

    /// Waits until the readers of a passing body have read enough. Returns false if none is left.
    pub(super) async fn readers_follow(&self) -> bool {
        poll_fn(|cx| {
            let mut state = self.lock();
            let Phase::Passing { kept } = state.phase else { return Poll::Ready(true) };
            if state.readers.iter().all(Option::is_none) {
                return Poll::Ready(false);
            }
            if kept <= WINDOW {
                return Poll::Ready(true);
            }
            state.fetch = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Ends the body. Returns the content; `None` if it is not as long as declared, or was passed.
    pub(super) fn finish(&self) -> Option<Bytes> {
        let mut whole = None;
        self.update(|state| {
            let is_short = self.length.is_some_and(|length| length != state.received as u64);
            state.phase = match state.phase {
                _ if is_short => Phase::Failed,
                Phase::Growing => {
                    let bytes = joined(&state.pieces, state.received);
                    state.pieces = Vec::new();
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
            if let Phase::Growing | Phase::Passing { .. } = state.phase {
                state.phase = Phase::Failed;
            }
        });
    }

    /// Returns a body that reads from the start, and drops `guard` at its end; `None` for a passing
    /// body, and for one that has failed.
    pub(super) fn reader<G: Send + Unpin + 'static>(self: &Arc<Self>, guard: G) -> Option<Body> {
        let place = {
            let mut state = self.lock();
            if let Phase::Passing { .. } | Phase::Passed | Phase::Failed = state.phase {
                return None;
            }
            state.readers.push(Some(Place { waker: None, piece: 0 }));
            state.readers.len() - 1
        };
        let body = self.clone();
        Some(Body::boxed(Reader { body, place, sent: 0, _guard: guard }))
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
        if let Some(piece) = self.pieces.get(place.piece) {
            let piece = piece.clone();
            place.piece += 1;
            self.drop_read();
            return Some(Ok(piece));
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

    /// Drops the pieces of a passing body that all readers have read. Their places stay, empty.
    fn drop_read(&mut self) {
        let Phase::Passing { kept } = &mut self.phase else { return };
        let slowest = self.readers.iter().flatten().map(|place| place.piece).min();
        let read = slowest.unwrap_or(self.pieces.len());
        for piece in self.pieces[..read].iter_mut().rev().take_while(|piece| !piece.is_empty()) {
            *kept -= piece.len();
            *piece = Bytes::new();
        }
        if let Some(fetch) = self.fetch.take() {
            fetch.wake();
        }
    }
}

fn joined(pieces: &[Bytes], length: usize) -> Bytes {
    match pieces {
        [] => Bytes::new(),
        [only] => only.clone(),
        several => {
            let mut whole = BytesMut::with_capacity(length);
            several.iter().for_each(|piece| whole.extend_from_slice(piece));
            whole.freeze()
        }
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
        let mut state = self.body.lock();
        state.readers[self.place] = None;
        state.drop_read();
    }
}
