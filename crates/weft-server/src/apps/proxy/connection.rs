//! A connection to an upstream, with its input and output buffers.

use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use weft::Stream;

use super::timer::InactivityTimer;

/// Buffer space for a read of a response head, in bytes. Many responses fit with their bodies.
pub(super) const INPUT_BYTES: usize = 8 << 10;

/// Size from which a part of a body is written from its own buffer instead of being copied, in
/// bytes.
const LARGE_BYTES: usize = 32 << 10;

/// Amount of buffered output at which it is sent before more is read from the client, in bytes.
const MAX_BUFFERED_BYTES: usize = 64 << 10;

/// A connection to an upstream. It closes when dropped.
pub(super) struct UpstreamConnection {
    stream: Box<dyn Stream>,
    /// Bytes received and not parsed yet.
    pub(super) input: BytesMut,
    /// Buffered output, and the number of its bytes already written.
    output: Vec<u8>,
    written: usize,
    /// A large part of a body, written after `output`, and the output that follows it.
    large: Bytes,
    after_large: Vec<u8>,
    /// Timeout for the upstream. Creating a timer costs more than polling an existing one, so each
    /// connection has its own.
    pub(super) timer: InactivityTimer,
}

impl UpstreamConnection {
    pub(super) fn new(stream: Box<dyn Stream>) -> UpstreamConnection {
        UpstreamConnection {
            stream,
            input: BytesMut::new(),
            output: Vec::new(),
            written: 0,
            large: Bytes::new(),
            after_large: Vec::new(),
            timer: InactivityTimer::default(),
        }
    }

    /// Returns true if an idle connection can be used again: the upstream has neither closed it nor
    /// sent unsolicited bytes. This costs no system call on plain TCP, because the event loop has
    /// already noticed either; on TLS it processes pending records such as session tickets.
    pub(super) fn is_reusable(&mut self) -> bool {
        let mut byte = [0];
        let mut cx = Context::from_waker(Waker::noop());
        let read = Pin::new(&mut self.stream).poll_read(&mut cx, &mut ReadBuf::new(&mut byte));
        self.input.is_empty() && read.is_pending()
    }

    /// Returns true if neither unparsed input nor unsent output remains after a request and its
    /// response.
    pub(super) fn is_drained(&self) -> bool {
        self.input.is_empty() && self.output.is_empty() && self.large.is_empty()
    }

    /// The buffer to append output to.
    pub(super) fn output_mut(&mut self) -> &mut Vec<u8> {
        if self.large.is_empty() { &mut self.output } else { &mut self.after_large }
    }

    /// Buffers a part of a body.
    pub(super) fn push_body(&mut self, piece: Bytes) {
        if piece.len() < LARGE_BYTES || !self.large.is_empty() {
            self.output_mut().extend_from_slice(&piece);
        } else {
            self.large = piece;
        }
    }

    /// Returns true if the buffered output should be sent before more is appended.
    pub(super) fn is_full(&self) -> bool {
        !self.large.is_empty() || self.output.len() >= MAX_BUFFERED_BYTES
    }

    /// Sends the buffered output.
    pub(super) fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.output.is_empty() || !self.large.is_empty() {
            while self.written < self.output.len() || !self.large.is_empty() {
                let count = ready!(self.poll_write_some(cx))?;
                if count == 0 {
                    return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                }
                let from_output = count.min(self.output.len() - self.written);
                self.written += from_output;
                self.large.advance(count - from_output);
            }
            // TLS may still hold bytes that it has accepted.
            ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
            self.output.clear();
            self.written = 0;
            // An empty slice would keep the allocation of the whole body alive.
            self.large = Bytes::new();
            std::mem::swap(&mut self.output, &mut self.after_large);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_write_some(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let (remaining, stream) = (&self.output[self.written..], Pin::new(&mut self.stream));
        match (remaining.is_empty(), self.large.is_empty()) {
            (_, true) => stream.poll_write(cx, remaining),
            (true, _) => stream.poll_write(cx, &self.large),
            _ => {
                let both = [IoSlice::new(remaining), IoSlice::new(&self.large)];
                stream.poll_write_vectored(cx, &both)
            }
        }
    }

    /// Reads once, into at least `min_capacity` free bytes of `input`. Returns 0 at the end.
    ///
    /// The read goes through `poll_read`, which clears the readiness flag after a short read: the
    /// next wait then suspends, and no read is attempted that would fail with `WouldBlock`.
    pub(super) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        min_capacity: usize,
    ) -> Poll<io::Result<usize>> {
        if self.input.capacity() - self.input.len() < min_capacity {
            self.input.reserve(min_capacity.max(INPUT_BYTES));
        }
        pin!(self.stream.read_buf(&mut self.input)).poll(cx)
    }
}

/// For tunnels: bytes received after the head of the response are read first.
impl AsyncRead for UpstreamConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.input.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buf);
        }
        let length = self.input.len().min(buf.remaining());
        buf.put_slice(&self.input.split_to(length));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for UpstreamConnection {
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
