//! The receiving direction of a connection.
//!
//! The two directions are separate values, because the reader is lent to the body of a request
//! while the writer stays with the connection. Only this module reads from transports.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};

use crate::net::buffers::{Buffers, INPUT_BYTES};
use crate::net::secure_half::SecureRead;
use crate::net::socket::Socket;
use crate::stream::Io;

/// Number of bytes received without a wait after which the task yields. Some users of a reader
/// process everything that is received before the next wait.
const BUDGET_BYTES: usize = 256 << 10;

/// The receiving direction.
pub(crate) struct Reader {
    pub(crate) half: ReadHalf,
    /// Bytes received and not processed yet.
    pub(crate) buffer: BytesMut,
}

pub(crate) enum ReadHalf {
    Socket(Arc<Socket>),
    Other(tokio::io::ReadHalf<Box<dyn Io>>),
    /// Any of the other variants, with TLS.
    Secure(Box<dyn SecureRead>),
    /// Placeholder while the variant is replaced.
    Detached,
}

impl Reader {
    /// Releases the socket and the buffer.
    pub(crate) fn close(&mut self) {
        *self = Reader { half: ReadHalf::Detached, buffer: BytesMut::new() };
    }

    /// Ready when there is input. For streams that do not report readiness, it is always ready.
    #[inline]
    pub(crate) fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.half.poll_readable(cx)
    }

    /// Waits for input on an idle connection, which owns no buffer. Input that is not encrypted is
    /// read at once, into a buffer taken from the pool. Ready with `false` at the end of the
    /// stream.
    #[inline]
    pub(crate) fn poll_first_read(
        &mut self,
        cx: &mut Context<'_>,
        buffers: &Buffers,
    ) -> Poll<io::Result<bool>> {
        if let ReadHalf::Secure(half) = &mut self.half {
            return half.poll_readable(cx).map_ok(|()| true);
        }
        let scratch = &mut buffers.scratch.borrow_mut();
        let received = match self.half.socket() {
            Some(socket) => ready!(socket.poll_receive_when_ready(cx, scratch))?,
            None => {
                let mut buf = ReadBuf::new(scratch);
                ready!(self.half.poll_read(cx, &mut buf))?;
                buf.filled().len()
            }
        };
        if received > 0 {
            self.buffer = buffers.take_input();
            self.buffer.extend_from_slice(&scratch[..received]);
        }
        Poll::Ready(Ok(received > 0))
    }

    /// Reads directly into `buf`, bypassing the buffer.
    #[inline]
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.half.poll_read(cx, buf)
    }

    /// Reads once into the buffer, after reserving space for at least `room` bytes. Ready with 0 at
    /// the end of the stream.
    ///
    /// A short read clears the readiness, because the socket is empty then. The next call waits,
    /// instead of trying a read that would fail.
    #[inline]
    pub(crate) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        room: usize,
    ) -> Poll<io::Result<usize>> {
        if self.buffer.capacity() - self.buffer.len() < room {
            self.buffer.reserve(room.max(INPUT_BYTES));
        }
        self.half.poll_fill(cx, &mut self.buffer)
    }

    /// Like [`poll_fill`](Reader::poll_fill), for input that is probably short: input from a kernel
    /// socket is read into `scratch` and then copied, up to the length of `scratch`.
    #[inline]
    pub(crate) fn poll_fill_from_scratch(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &RefCell<Box<[u8]>>,
        room: usize,
    ) -> Poll<io::Result<usize>> {
        let Some(socket) = self.half.socket() else { return self.poll_fill(cx, room) };
        // Not borrowed for other streams, whose code may re-enter this worker.
        let scratch = &mut scratch.borrow_mut();
        let received = ready!(socket.poll_receive(cx, scratch))?;
        self.buffer.extend_from_slice(&scratch[..received]);
        Poll::Ready(Ok(received))
    }
}

/// Budget of a reader whose input arrives without a wait.
#[derive(Default)]
pub(crate) struct ReadBudget {
    /// Number of bytes received since the last wait.
    received: usize,
}

impl ReadBudget {
    /// Like [`Reader::poll_fill`], but yields after [`BUDGET_BYTES`] received without a wait.
    #[inline]
    pub(crate) fn poll_fill(
        &mut self,
        reader: &mut Reader,
        cx: &mut Context<'_>,
        room: usize,
    ) -> Poll<io::Result<usize>> {
        if self.received >= BUDGET_BYTES {
            self.received = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let filled = reader.poll_fill(cx, room);
        match filled {
            Poll::Ready(Ok(bytes)) => self.received += bytes,
            Poll::Ready(Err(_)) => {}
            Poll::Pending => self.received = 0,
        }
        filled
    }
}

impl ReadHalf {
    /// Ready when there is input. For streams that do not report readiness, it is always ready.
    #[inline]
    pub(crate) fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            ReadHalf::Socket(socket) => socket.poll_readable(cx),
            ReadHalf::Secure(half) => half.poll_readable(cx),
            ReadHalf::Other(_) | ReadHalf::Detached => Poll::Ready(Ok(())),
        }
    }

    #[inline]
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self {
            ReadHalf::Socket(socket) => socket.poll_receive_into(cx, buf).map_ok(|_| ()),
            ReadHalf::Other(half) => Pin::new(half).poll_read(cx, buf),
            ReadHalf::Secure(half) => half.poll_read(cx, buf),
            ReadHalf::Detached => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    /// Reads once, into the spare capacity of `buffer`. Ready with 0 at the end of the stream.
    #[inline]
    pub(crate) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut BytesMut,
    ) -> Poll<io::Result<usize>> {
        match self {
            ReadHalf::Socket(socket) => socket.poll_receive_into(cx, buffer),
            ReadHalf::Other(half) => pin!(half.read_buf(buffer)).poll(cx),
            ReadHalf::Secure(half) => half.poll_fill(cx, buffer),
            ReadHalf::Detached => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    /// Registers a kernel socket with the event loop, before another thread may read from it. If
    /// that fails, the next read fails.
    #[inline]
    pub(crate) fn register(&self) {
        let _ = self.socket().map(Socket::register);
    }

    /// The kernel socket, if the bytes are read from one directly.
    #[inline]
    pub(crate) fn socket(&self) -> Option<&Socket> {
        match self {
            ReadHalf::Socket(socket) => Some(socket),
            ReadHalf::Other(_) | ReadHalf::Secure(_) | ReadHalf::Detached => None,
        }
    }
}
