//! One connection: the transport, what was read of it, its deadline.
//!
//! The two directions are separate values, because they part ways: the reader is lent
//! to the body of a request while the writer stays. Only this file reads.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};
use tokio::net::{TcpStream, UnixStream, tcp, unix};

use crate::net::buffers::{Buffers, INPUT_BYTES};
use crate::net::secure::SecureRead;
use crate::net::socket::Socket;
use crate::net::writer::WriteHalf;
use crate::stream::Stream;

/// What bytes come from and go to.
pub(crate) enum Transport {
    Tcp(TcpStream),
    Unix(UnixStream),
    /// Anything else, such as a pipe in memory.
    Other(Box<dyn Stream>),
}

impl Transport {
    /// The two directions, which part ways.
    pub(crate) fn split(self) -> (Reader, WriteHalf) {
        let (read, write) = match self {
            Transport::Tcp(stream) => {
                let (read, write) = stream.into_split();
                (ReadHalf::Tcp(read), WriteHalf::Tcp(write))
            }
            Transport::Unix(stream) => {
                let (read, write) = stream.into_split();
                (ReadHalf::Unix(read), WriteHalf::Unix(write))
            }
            Transport::Other(stream) => {
                let (read, write) = tokio::io::split(stream);
                (ReadHalf::Other(read), WriteHalf::Other(write))
            }
        };
        (Reader { half: read, buffer: BytesMut::new() }, write)
    }
}

/// The receiving direction.
pub(crate) struct Reader {
    pub(crate) half: ReadHalf,
    /// What was read and not yet used.
    pub(crate) buffer: BytesMut,
}

pub(crate) enum ReadHalf {
    Tcp(tcp::OwnedReadHalf),
    Unix(unix::OwnedReadHalf),
    Other(tokio::io::ReadHalf<Box<dyn Stream>>),
    /// One of the others, behind TLS.
    Secure(Box<dyn SecureRead>),
    /// On its way from one form to another.
    Nothing,
}

impl Reader {
    /// Ready when there is something to read, as far as that can be known.
    pub(crate) fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.half.poll_readable(cx)
    }

    /// This is how an idle connection waits: without a buffer. Whether there is something to
    /// read; what comes from a socket of the kernel's is read at once, and has a buffer then.
    pub(crate) fn poll_first(
        &mut self,
        cx: &mut Context<'_>,
        buffers: &Buffers,
    ) -> Poll<io::Result<bool>> {
        let Some(socket) = self.half.socket() else {
            return self.half.poll_readable(cx).map_ok(|()| true);
        };
        let scratch = &mut buffers.scratch.borrow_mut();
        let received = ready!(socket.poll_wait_and_receive(cx, scratch))?;
        if received > 0 {
            self.buffer = buffers.take_input();
            self.buffer.extend_from_slice(&scratch[..received]);
        }
        Poll::Ready(Ok(received > 0))
    }

    /// Reads past the buffer.
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.half.poll_read(cx, room)
    }

    /// Reads once, into at least `room` bytes of space behind what is there. 0 is the end.
    ///
    /// It goes through `poll_read`, which notes that a short read has emptied the
    /// socket: the next wait then waits, and no read is tried that must fail.
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

    /// The same for what is likely to be little: from a socket of the kernel's it is read into
    /// `scratch`, as far as that goes, and copied.
    pub(crate) fn poll_fill_by(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &RefCell<Box<[u8]>>,
        room: usize,
    ) -> Poll<io::Result<usize>> {
        let Some(socket) = self.half.socket() else { return self.poll_fill(cx, room) };
        // Not borrowed for other streams, whose code may come back to this worker.
        let scratch = &mut scratch.borrow_mut();
        let received = ready!(socket.poll_receive(cx, scratch))?;
        self.buffer.extend_from_slice(&scratch[..received]);
        Poll::Ready(Ok(received))
    }
}

impl ReadHalf {
    /// Ready when there is something to read, as far as that can be known.
    pub(crate) fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            ReadHalf::Tcp(half) => half.as_ref().poll_read_ready(cx),
            ReadHalf::Unix(half) => half.as_ref().poll_read_ready(cx),
            ReadHalf::Secure(half) => half.poll_readable(cx),
            ReadHalf::Other(_) | ReadHalf::Nothing => Poll::Ready(Ok(())),
        }
    }

    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self {
            ReadHalf::Tcp(half) => Pin::new(half).poll_read(cx, room),
            ReadHalf::Unix(half) => Pin::new(half).poll_read(cx, room),
            ReadHalf::Other(half) => Pin::new(half).poll_read(cx, room),
            ReadHalf::Secure(half) => half.poll_read(cx, room),
            ReadHalf::Nothing => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    /// Reads once, into the space that a buffer has. 0 is the end.
    pub(crate) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut BytesMut,
    ) -> Poll<io::Result<usize>> {
        match self {
            ReadHalf::Tcp(half) => pin!(half.read_buf(buffer)).poll(cx),
            ReadHalf::Unix(half) => pin!(half.read_buf(buffer)).poll(cx),
            ReadHalf::Other(half) => pin!(half.read_buf(buffer)).poll(cx),
            ReadHalf::Secure(half) => half.poll_fill(cx, buffer),
            ReadHalf::Nothing => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    /// The socket of the kernel's below, if there is one.
    pub(crate) fn socket(&self) -> Option<Socket<'_>> {
        match self {
            ReadHalf::Tcp(half) => Some(Socket::Tcp(half.as_ref())),
            ReadHalf::Unix(half) => Some(Socket::Unix(half.as_ref())),
            ReadHalf::Other(_) | ReadHalf::Secure(_) | ReadHalf::Nothing => None,
        }
    }
}
