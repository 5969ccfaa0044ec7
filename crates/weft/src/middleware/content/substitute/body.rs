//! A body in which texts are replaced while it is polled.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::Frame;

use super::needles::{Found, Needles, Search};
use crate::error::{Error, Result};
use crate::message::body::{Body, wrong_length};

/// Bytes that are searched before the task yields to others: about 0.1 ms.
const BUDGET: usize = 64 << 10;

/// Maximum number of bytes that are searched in one step.
const STEP_BYTES: usize = 8 << 10;

/// A body whose texts are replaced. It holds back as many bytes as may be the beginning of a text.
pub(super) struct SubstitutedBody {
    source: Body,
    needles: Arc<Needles>,
    replacements: Arc<[Bytes]>,
    search: Search,
    /// Bytes held back by the search.
    held: Bytes,
    /// Data from the source that is not searched yet.
    chunk: Bytes,
    /// Remaining bytes of the source, if its length is known. Checked here because the engine
    /// gets the changed bytes and cannot detect a wrong length.
    remaining: Option<u64>,
    /// The last frame, behind the held bytes.
    end: End,
    /// Lookups since the task last yielded.
    spent: usize,
}

enum End {
    NotReached,
    /// The source has ended, with trailers or without them.
    Reached(Option<Frame<Bytes>>),
    Yielded,
}

impl SubstitutedBody {
    /// Replaces the texts in `source`. If `length` is known and the source has another length, the
    /// body fails.
    pub(super) fn new(
        source: Body,
        length: Option<u64>,
        needles: Arc<Needles>,
        replacements: Arc<[Bytes]>,
        is_once: bool,
    ) -> SubstitutedBody {
        SubstitutedBody {
            source,
            needles,
            replacements,
            search: Search::new(is_once),
            held: Bytes::new(),
            chunk: Bytes::new(),
            remaining: length,
            end: End::NotReached,
            spent: 0,
        }
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Frame<Bytes>>>> {
        loop {
            if self.spent >= BUDGET {
                self.spent = 0;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let next = if !self.chunk.is_empty() {
                let length = self.chunk.len().min(STEP_BYTES);
                let step = self.chunk.split_to(length);
                self.substitute(step, false)
            } else {
                match &mut self.end {
                    End::NotReached => {
                        let frame =
                            ready!(http_body::Body::poll_frame(Pin::new(&mut self.source), cx)?);
                        self.on_frame(frame)?;
                        continue;
                    }
                    End::Reached(_) if !self.held.is_empty() => self.substitute(Bytes::new(), true),
                    End::Reached(trailers) => {
                        let trailers = trailers.take();
                        self.end = End::Yielded;
                        return Poll::Ready(Ok(trailers));
                    }
                    End::Yielded => return Poll::Ready(Ok(None)),
                }
            };
            if !next.is_empty() {
                return Poll::Ready(Ok(Some(Frame::data(next))));
            }
        }
    }

    fn on_frame(&mut self, frame: Option<Frame<Bytes>>) -> Result<()> {
        // So that very small chunks use up the budget, too.
        self.spent += 64;
        match frame.map(Frame::into_data) {
            Some(Ok(chunk)) => {
                if let Some(remaining) = &mut self.remaining {
                    let rest = remaining.checked_sub(chunk.len() as u64);
                    *remaining = rest.ok_or_else(wrong_length)?;
                }
                self.chunk = chunk;
            }
            end => {
                if self.remaining.is_some_and(|remaining| remaining > 0) {
                    return Err(wrong_length());
                }
                self.end = End::Reached(end.and_then(Result::err));
            }
        }
        Ok(())
    }

    /// Searches more bytes. Returns all bytes that cannot be the beginning of a text any more, with
    /// replacements.
    fn substitute(&mut self, step: Bytes, is_last: bool) -> Bytes {
        if self.search.is_over(&self.needles) && self.held.is_empty() {
            return step;
        }
        let from = self.held.len();
        let bytes = match from {
            0 => step,
            _ => [&self.held[..], &step].concat().into(),
        };
        let mut found = Vec::new();
        let (needles, spent) = (&self.needles, &mut self.spent);
        let end = self.search.advance(needles, &bytes, from, is_last, &mut found, spent);
        // A copy, because a slice would keep the whole chunk in memory.
        self.held = Bytes::copy_from_slice(&bytes[end..]);
        match found.is_empty() {
            true => bytes.slice(..end),
            false => self.replace(&bytes[..end], &found),
        }
    }

    fn replace(&self, bytes: &[u8], found: &[Found]) -> Bytes {
        let mut out = BytesMut::with_capacity(bytes.len());
        let mut at = 0;
        for Found { needle, start, end } in found {
            out.extend_from_slice(&bytes[at..*start]);
            out.extend_from_slice(&self.replacements[*needle]);
            at = *end;
        }
        out.extend_from_slice(&bytes[at..]);
        out.freeze()
    }
}

impl http_body::Body for SubstitutedBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>>>> {
        let next = self.poll_next(cx);
        if let Poll::Ready(Err(_)) = next {
            (self.end, self.held, self.chunk) = (End::Yielded, Bytes::new(), Bytes::new());
        }
        next.map(Result::transpose)
    }
}
