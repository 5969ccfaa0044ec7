//! A connection to an upstream: what came of it, and what is to be sent.

use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use weft::Stream;

use super::clock::Clock;

/// The room for one read of a head. Many responses fit with their bodies.
pub(super) const INPUT_BYTES: usize = 8 << 10;

/// From this size on, a piece of a body is sent from where it is and not copied first.
const LARGE_BYTES: usize = 32 << 10;

/// When so much is gathered, it is sent before more is taken from the client.
const FULL_BYTES: usize = 64 << 10;

/// It closes with the value.
pub(super) struct Wire {
    stream: Box<dyn Stream>,
    /// What came and is not used yet.
    pub(super) input: BytesMut,
    /// What is gathered, and how much of it is gone.
    out: Vec<u8>,
    gone: usize,
    /// A piece of a body, to go out behind that, and what is to follow it.
    large: Bytes,
    behind: Vec<u8>,
    /// Waits for the upstream. A timer costs more than to look at one that is there, so that
    /// each connection has its own.
    pub(super) clock: Clock,
}

impl Wire {
    pub(super) fn new(stream: Box<dyn Stream>) -> Wire {
        Wire {
            stream,
            input: BytesMut::new(),
            out: Vec::new(),
            gone: 0,
            large: Bytes::new(),
            behind: Vec::new(),
            clock: Clock::default(),
        }
    }

    /// Whether nothing has happened since the last response: the upstream has not closed it, and
    /// has sent nothing that nobody has asked for. It costs no system call, for the event loop
    /// has noticed already; of TLS, it takes what that has to say for itself.
    pub(super) fn is_quiet(&mut self) -> bool {
        let mut byte = [0];
        let mut cx = Context::from_waker(Waker::noop());
        let read = Pin::new(&mut self.stream).poll_read(&mut cx, &mut ReadBuf::new(&mut byte));
        self.input.is_empty() && read.is_pending()
    }

    /// Whether nothing is left over of a request and its response.
    pub(super) fn is_through(&self) -> bool {
        self.input.is_empty() && self.out.is_empty() && self.large.is_empty()
    }

    /// What is gathered; to be added to.
    pub(super) fn gathered(&mut self) -> &mut Vec<u8> {
        if self.large.is_empty() { &mut self.out } else { &mut self.behind }
    }

    /// Gathers a piece of a body.
    pub(super) fn push(&mut self, piece: Bytes) {
        if piece.len() < LARGE_BYTES || !self.large.is_empty() {
            self.gathered().extend_from_slice(&piece);
        } else {
            self.large = piece;
        }
    }

    /// Whether what is gathered should be sent before more is.
    pub(super) fn is_full(&self) -> bool {
        !self.large.is_empty() || self.out.len() >= FULL_BYTES
    }

    /// Sends what is gathered.
    pub(super) fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.out.is_empty() || !self.large.is_empty() {
            while self.gone < self.out.len() || !self.large.is_empty() {
                let sent = ready!(self.poll_write_some(cx))?;
                if sent == 0 {
                    return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                }
                let of_out = sent.min(self.out.len() - self.gone);
                self.gone += of_out;
                self.large.advance(sent - of_out);
            }
            // What TLS has taken may not be out yet.
            ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
            self.out.clear();
            self.gone = 0;
            // An empty slice would keep the whole body that it was cut from.
            self.large = Bytes::new();
            std::mem::swap(&mut self.out, &mut self.behind);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_write_some(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let (rest, stream) = (&self.out[self.gone..], Pin::new(&mut self.stream));
        match (rest.is_empty(), self.large.is_empty()) {
            (_, true) => stream.poll_write(cx, rest),
            (true, _) => stream.poll_write(cx, &self.large),
            _ => {
                let both = [IoSlice::new(rest), IoSlice::new(&self.large)];
                stream.poll_write_vectored(cx, &both)
            }
        }
    }

    /// Reads once, into at least so much room behind what is there. 0 is the end.
    ///
    /// It goes through `poll_read`, which notes that a short read has emptied the socket: the
    /// next wait then waits, and no read is tried that must fail.
    pub(super) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        room: usize,
    ) -> Poll<io::Result<usize>> {
        if self.input.capacity() - self.input.len() < room {
            self.input.reserve(room.max(INPUT_BYTES));
        }
        pin!(self.stream.read_buf(&mut self.input)).poll(cx)
    }
}

/// For tunnels: those bytes first that came behind the response.
impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.input.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, room);
        }
        let length = self.input.len().min(room.remaining());
        room.put_slice(&self.input.split_to(length));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
