//! What the crate h2 reads and writes through: a connection's two halves, with its clocks and
//! its account of frames.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Buf;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::flood::Flood;
use crate::conn::{Connection, Reader};
use crate::deadline::{Deadline, Pace, Stopwatch};
use crate::error::{Error, ErrorKind};
use crate::send::Writer;
use crate::worker::Worker;

/// After so many bytes that came without a wait, others get their turn.
const TURN_BYTES: usize = 256 << 10;

/// Both halves of a connection. Its clones are the same wire.
#[derive(Clone)]
pub(super) struct Wire(Rc<RefCell<Halves>>);

struct Halves {
    reader: Reader,
    writer: Writer,
    /// The rate at which the peer takes what is sent.
    pace: Pace,
    deadline: Deadline,
    flood: Flood,
    /// When the account of frames last grew with time.
    refilled: Stopwatch,
    is_flooded: bool,
    /// Nothing more is to be read now, and who polls us is woken when there is: the crate h2
    /// tries again for each request that it hands out.
    is_drained: bool,
    /// All was sent, and nothing was written since: the crate h2 flushes each time, too.
    is_flushed: bool,
    /// How many bytes came since the last wait.
    at_once: usize,
    requests: u64,
}

impl Wire {
    /// Takes the halves of a connection; `None` if a body still has one.
    pub(super) fn new<A>(conn: &mut Connection, worker: &Worker<A>) -> Option<Wire> {
        Some(Wire(Rc::new(RefCell::new(Halves {
            reader: conn.reader.take()?,
            writer: conn.writer.take(),
            pace: Pace::new(&worker.settings),
            deadline: worker.deadlines.deadline(),
            flood: Flood::new(),
            refilled: Stopwatch::start(),
            is_flooded: false,
            is_drained: false,
            is_flushed: false,
            at_once: 0,
            requests: 0,
        }))))
    }

    /// Counts another request; its number.
    pub(super) fn count_request(&self) -> u64 {
        let mut halves = self.0.borrow_mut();
        halves.requests += 1;
        halves.requests
    }

    /// We were woken: there may be something to be read, and to be sent.
    pub(super) fn look_again(&self) {
        let mut halves = self.0.borrow_mut();
        (halves.is_drained, halves.is_flushed) = (false, false);
    }

    /// Whether the peer has sent so many frames of no use that nothing more is read.
    pub(super) fn is_flooded(&self) -> bool {
        self.0.borrow().is_flooded
    }

    /// Why the connection has failed: our own reason, if it was ours.
    pub(super) fn failure(&self, error: ::h2::Error) -> Error {
        if error.is_io() {
            let error = error.into_io().expect("that it is one was just said");
            return error.downcast::<Error>().unwrap_or_else(Error::from);
        }
        if error.is_remote() {
            return Error::disconnected().because(error);
        }
        Error::new(ErrorKind::Malformed, "the client breaks the rules of HTTP/2").because(error)
    }

    /// Reads on for a while after the last frame, and throws it away: the peer may still be
    /// sending, and would lose what we sent last to a reset.
    pub(super) async fn linger(&self, deadline: &Deadline, time: Duration) {
        deadline.set(time);
        let told = poll_fn(|cx| match self.0.borrow_mut().writer.poll_shutdown(cx) {
            Poll::Ready(told) => Poll::Ready(told.is_ok()),
            Poll::Pending => deadline.poll_over(cx).map(|()| false),
        });
        if !told.await {
            return;
        }
        let mut room = [0; 4096];
        poll_fn(|cx| {
            for _ in 0..64 {
                let mut room = ReadBuf::new(&mut room);
                match self.0.borrow_mut().reader.poll_read(cx, &mut room) {
                    Poll::Ready(Ok(())) if !room.filled().is_empty() => {}
                    Poll::Ready(_) => return Poll::Ready(()),
                    Poll::Pending => return deadline.poll_over(cx),
                }
            }
            cx.waker().wake_by_ref();
            deadline.poll_over(cx)
        })
        .await;
    }
}

impl Halves {
    /// Accounts for the frames in what was read.
    fn account(&mut self, read: &[u8]) {
        let waited = std::mem::replace(&mut self.refilled, Stopwatch::start());
        self.flood.waited(self.refilled.since(waited));
        self.is_flooded = !self.flood.read(read);
    }

    fn poll_sent(
        &mut self,
        cx: &mut Context<'_>,
        sent: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        match sent {
            Poll::Ready(Ok(bytes)) => {
                self.pace.moved(bytes, &self.deadline);
                self.flood.sent(bytes);
                Poll::Ready(Ok(bytes))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => {
                ready!(self.pace.poll_over(&self.deadline, cx));
                let reason = "the peer took the responses too slowly";
                Poll::Ready(Err(io::Error::other(Error::new(ErrorKind::TooSlow, reason))))
            }
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let halves = &mut *self.0.borrow_mut();
        // Of a flood the session hears, too, and ends.
        if halves.is_drained || halves.is_flooded {
            return Poll::Pending;
        }
        if halves.at_once >= TURN_BYTES {
            halves.at_once = 0;
            halves.is_drained = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = room.filled().len();
        let buffer = &mut halves.reader.buffer;
        if buffer.is_empty() {
            if halves.reader.poll_read(cx, room)?.is_pending() {
                halves.at_once = 0;
                halves.is_drained = true;
                return Poll::Pending;
            }
        } else {
            // It came before the connection was known to speak HTTP/2.
            let length = buffer.len().min(room.remaining());
            room.put_slice(&buffer[..length]);
            buffer.advance(length);
            if buffer.is_empty() {
                *buffer = Default::default();
            }
        }
        let read = &room.filled()[before..];
        halves.at_once += read.len();
        halves.account(read);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let halves = &mut *self.0.borrow_mut();
        halves.is_flushed = false;
        let sent = halves.writer.half.poll_write(cx, bytes);
        halves.poll_sent(cx, sent)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let halves = &mut *self.0.borrow_mut();
        halves.is_flushed = false;
        let sent = halves.writer.half.poll_write_vectored(cx, slices);
        halves.poll_sent(cx, sent)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.borrow().writer.half.takes_slices()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let halves = &mut *self.0.borrow_mut();
        if halves.is_flushed {
            return Poll::Ready(Ok(()));
        }
        let flushed = halves.writer.half.poll_flush(cx).map_ok(|()| 0);
        ready!(halves.poll_sent(cx, flushed))?;
        halves.is_flushed = true;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let halves = &mut *self.0.borrow_mut();
        let shut = halves.writer.poll_shutdown(cx).map_ok(|()| 0);
        halves.poll_sent(cx, shut).map_ok(|_| ())
    }
}
