//! A connection to an upstream, with its input and output buffers.

use std::any::Any;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use bytes::{Buf, BufMut, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use weft::net::Io;
use weft_proto::write_buffer::WriteBuffer;

use crate::base::inactivity_timer::InactivityTimer;

/// Buffer space for a read of a response head, in bytes. A head and a body of 16 KiB fit, as many
/// responses have.
pub(crate) const INPUT_BYTES: usize = 20 << 10;

/// Size from which a part of a body is written from its own buffer instead of being copied, in
/// bytes.
const LARGE_BYTES: usize = 32 << 10;

/// Amount of buffered output at which it is sent before more is read from the client, in bytes.
const MAX_BUFFERED_BYTES: usize = 64 << 10;

/// A stream that can be downcast to a socket.
pub(crate) trait Transport: Io + Any {}

impl<T: Io> Transport for T {}

/// A connection to an upstream. It closes when dropped.
pub struct UpstreamConnection {
    stream: Box<dyn Transport>,
    /// Address of the upstream; a Unix socket has none.
    pub(crate) address: Option<SocketAddr>,
    /// Number of changes of the upstream's addresses when the address of the connection was
    /// compared with them.
    pub(crate) compared_at: u64,
    /// Time at which the connection was taken from the idle connections, until the first wait for
    /// the response. A second reading of the clock within a microsecond is not worth its cost.
    pub(crate) leased_at: Option<Instant>,
    /// Idle time after which the upstream closes the connection (`Keep-Alive: timeout`), if it was
    /// sent.
    pub(crate) idle_limit: Option<Duration>,
    /// HTTP/2 was negotiated by ALPN.
    pub(crate) has_negotiated_http2: bool,
    /// Bytes received and not parsed yet.
    pub(crate) input: BytesMut,
    pub(crate) output: WriteBuffer,
    /// All written bytes have left the stream: TLS may hold bytes that it has accepted.
    is_flushed: bool,
    /// Output was written since the last call of `take_progress`.
    has_progressed: bool,
    /// Timeout for the upstream. Creating a timer costs more than polling an existing one, so each
    /// connection has its own.
    pub(crate) timer: InactivityTimer,
}

impl UpstreamConnection {
    pub(crate) fn new(
        stream: Box<dyn Transport>,
        address: Option<SocketAddr>,
    ) -> UpstreamConnection {
        UpstreamConnection {
            stream,
            address,
            compared_at: 0,
            leased_at: None,
            idle_limit: None,
            has_negotiated_http2: false,
            input: BytesMut::new(),
            output: WriteBuffer::new(LARGE_BYTES, MAX_BUFFERED_BYTES),
            is_flushed: true,
            has_progressed: false,
            timer: InactivityTimer::default(),
        }
    }

    /// Returns the stream of a connection on which nothing was sent, and the address of the
    /// upstream.
    pub(crate) fn into_stream(self) -> (Box<dyn Transport>, Option<SocketAddr>) {
        (self.stream, self.address)
    }

    /// Returns the socket of a connection without TLS, unless received bytes have not been read
    /// yet.
    pub fn socket(&mut self) -> Option<&mut TcpStream> {
        let stream: &mut dyn Any = &mut *self.stream;
        stream.downcast_mut().filter(|_| self.input.is_empty())
    }

    /// Returns true if an idle connection can be used again: the upstream has neither closed it nor
    /// sent unsolicited bytes. This costs no system call on plain TCP, because the event loop has
    /// already noticed either; on TLS it processes pending records such as session tickets.
    pub(crate) fn is_reusable(&mut self) -> bool {
        let mut byte = [0];
        let mut cx = Context::from_waker(Waker::noop());
        let read = Pin::new(&mut self.stream).poll_read(&mut cx, &mut ReadBuf::new(&mut byte));
        self.input.is_empty() && read.is_pending()
    }

    /// Returns true if neither unparsed input nor unsent output remains after a request and its
    /// response.
    pub(crate) fn is_drained(&self) -> bool {
        self.input.is_empty() && self.output.is_empty() && self.is_flushed
    }

    /// Sends the buffered output.
    pub(crate) fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.output.is_empty() {
            self.is_flushed = false;
            match self.poll_write_some(cx) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(count)) => {
                    self.has_progressed = true;
                    self.output.advance(count);
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    self.output.compact();
                    return Poll::Pending;
                }
            }
        }
        if !self.is_flushed {
            ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
            self.is_flushed = true;
        }
        Poll::Ready(Ok(()))
    }

    /// Returns true if output was written since the last call.
    pub(crate) fn take_progress(&mut self) -> bool {
        std::mem::take(&mut self.has_progressed)
    }

    fn poll_write_some(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let (chunk, stream) = (self.output.chunk(), &mut self.stream);
        if chunk.len() == self.output.remaining() {
            return retry_interrupted(|| Pin::new(&mut *stream).poll_write(cx, chunk));
        }
        let mut slices = [IoSlice::new(&[]); WriteBuffer::MAX_SLICES];
        let count = self.output.chunks_vectored(&mut slices);
        retry_interrupted(|| Pin::new(&mut *stream).poll_write_vectored(cx, &slices[..count]))
    }

    /// Reads once, up to `max_bytes`, into at least `min_bytes` of free space. Returns 0 at the
    /// end.
    ///
    /// The read goes through `poll_read`, which clears the readiness flag after a short read: the
    /// next wait then suspends, and no read is attempted that would fail with `WouldBlock`.
    pub(crate) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        min_bytes: usize,
        max_bytes: usize,
    ) -> Poll<io::Result<usize>> {
        if self.input.capacity() - self.input.len() < min_bytes {
            self.input.reserve(max_bytes);
        }
        retry_interrupted(|| {
            let mut input = (&mut self.input).limit(max_bytes);
            pin!(self.stream.read_buf(&mut input)).poll(cx)
        })
    }

    /// Frees empty buffers. While a request waits for its upstream, the connection owns none.
    pub(crate) fn free_buffers(&mut self) {
        if self.input.is_empty() {
            self.input = BytesMut::new();
        }
        if self.output.is_empty() {
            drop(self.output.take_storage());
        }
    }
}

/// Repeats a call that a signal has interrupted: tokio's streams return that error.
fn retry_interrupted<T>(mut call: impl FnMut() -> Poll<io::Result<T>>) -> Poll<io::Result<T>> {
    loop {
        match call() {
            Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// A tunnel reads the bytes first that were received after the head of the response.
impl AsyncRead for UpstreamConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.input.is_empty() {
            return retry_interrupted(|| Pin::new(&mut self.stream).poll_read(cx, buf));
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
        retry_interrupted(|| Pin::new(&mut self.stream).poll_write(cx, bytes))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
