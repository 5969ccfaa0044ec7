//! The streams of a connection that are not over, by their number.

use std::task::{Context, Waker};

use bytes::Bytes;
use http::HeaderMap;

use crate::server::h2::pipe::{End, Pipe};

/// A request and its response (RFC 9113 §5.1).
pub(super) struct Stream {
    pub(super) id: u32,
    /// The exchange is not over, and wants to find the stream.
    pub(super) is_held: bool,
    /// The client may still send.
    pub(super) is_incoming: bool,
    /// The response has not ended.
    pub(super) is_outgoing: bool,
    /// Either side has reset it.
    pub(super) reset: Option<By>,
    pub(super) is_tunnel: bool,
    /// The length of the body that is still to come, if it was said.
    pub(super) left: Option<u64>,
    pub(super) came: Window,
    /// What the application reads of it, if that is anything.
    pub(super) pipe: Option<Pipe>,
    /// How much the client takes (RFC 9113 §6.9.1); below zero if it has changed its mind.
    pub(super) window: i64,
    pub(super) outbox: Outbox,
    /// It is among those that are to send.
    pub(super) is_queued: bool,
    /// How much of the response's body was sent.
    pub(super) sent: u64,
    /// The exchange, which waits.
    pub(super) waker: Option<Waker>,
}

/// Whoever still waits for something of it, in whatever thread, hears of its end.
impl Drop for Stream {
    fn drop(&mut self) {
        if let Some(pipe) = &self.pipe {
            pipe.end(End::Cut);
        }
    }
}

/// Who has reset a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    Us,
    Client,
}

/// What waits to be sent on a stream.
#[derive(Default)]
pub(super) struct Outbox {
    pub(super) bytes: Bytes,
    pub(super) trailers: Option<Box<HeaderMap>>,
    pub(super) ends: bool,
}

impl Outbox {
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty() && !self.ends && self.trailers.is_none()
    }
}

impl Stream {
    pub(super) fn wait(&mut self, cx: &Context<'_>) {
        if !self.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            self.waker = Some(cx.waker().clone());
        }
    }
}

/// A window for what comes (RFC 9113 §5.2).
#[derive(Clone, Copy)]
pub(super) struct Window {
    /// How much the client may send.
    open: i64,
    /// How much has been taken in, and was not given back to the client yet.
    owed: i64,
}

impl Window {
    pub(super) fn new(open: i64) -> Window {
        Window { open, owed: 0 }
    }

    /// So much has come; `false` if that is more than was allowed.
    pub(super) fn take(&mut self, bytes: usize) -> bool {
        self.open -= bytes as i64;
        self.open >= 0
    }

    /// So much was taken in.
    pub(super) fn give(&mut self, bytes: usize) {
        self.owed += bytes as i64;
    }

    /// By how much the window is to be opened, if that is worth a frame: half of what the client
    /// still has.
    pub(super) fn due(&mut self) -> Option<u32> {
        if self.owed == 0 || self.owed < self.open / 2 {
            return None;
        }
        let owed = std::mem::take(&mut self.owed);
        self.open += owed;
        Some(owed as u32)
    }
}

/// The streams, in the order of their numbers, which is the one in which they come.
#[derive(Default)]
pub(super) struct Streams(Vec<Stream>);

impl Streams {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn push(&mut self, stream: Stream) {
        self.0.push(stream);
    }

    pub(super) fn place(&self, id: u32) -> Option<usize> {
        match self.0.last() {
            // Mostly it is the one that has just come.
            Some(last) if last.id == id => Some(self.0.len() - 1),
            _ => self.0.binary_search_by_key(&id, |stream| stream.id).ok(),
        }
    }

    pub(super) fn get(&mut self, id: u32) -> Option<&mut Stream> {
        let place = self.place(id)?;
        Some(&mut self.0[place])
    }

    pub(super) fn at(&mut self, place: usize) -> &mut Stream {
        &mut self.0[place]
    }

    pub(super) fn remove(&mut self, place: usize) -> Stream {
        self.0.remove(place)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.0.iter_mut()
    }

    /// Lets go of the room that many at a time have needed.
    pub(super) fn rest(&mut self) {
        const KEPT: usize = 4;
        if self.0.capacity() > KEPT {
            self.0.shrink_to(KEPT);
        }
    }
}
