//! Kernel sockets: nonblocking system calls, which are tried before the readiness of the socket is
//! checked.
//!
//! The system calls are made directly, not by the C library: its wrappers are cancellation points,
//! which cost about 1% of a small request.

use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::task::{Context, Poll, ready};

use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};
use tokio::io::Interest;
use tokio::net::{TcpStream, UnixStream};
use tokio::task::coop;

#[derive(Clone, Copy)]
pub(crate) enum Socket<'a> {
    Tcp(&'a TcpStream),
    Unix(&'a UnixStream),
}

impl Socket<'_> {
    /// Receives once. Ready with 0 at the end of the stream.
    pub(crate) fn poll_receive(
        self,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_io(cx, Interest::READABLE, |socket| socket.try_receive(buf))
    }

    /// Like [`poll_receive`](Socket::poll_receive), for a socket that is probably empty: its
    /// readiness is checked first.
    pub(crate) fn poll_receive_when_ready(
        self,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.poll_ready(cx, Interest::READABLE))?;
            match self.try_receive(buf) {
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                received => return Poll::Ready(received),
            }
        }
    }

    /// Sends as many bytes as the socket accepts.
    pub(crate) fn poll_send(self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_io(cx, Interest::WRITABLE, |socket| {
            let send = |fd: BorrowedFd<'_>| rustix::net::send(fd, bytes, SendFlags::NOSIGNAL);
            socket.try_transfer(Interest::WRITABLE, bytes.len(), send)
        })
    }

    /// Sends several slices with one system call.
    pub(crate) fn poll_send_slices(
        self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_io(cx, Interest::WRITABLE, |socket| socket.try_send_slices(slices))
    }

    /// Sends as many bytes as the socket accepts now. Registers no waker.
    pub(crate) fn try_send_slices(self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let length = slices.iter().map(|slice| slice.len()).sum();
        self.try_transfer(Interest::WRITABLE, length, |fd| send_slices(fd, slices))
    }

    /// Makes a system call that sends, when the socket is ready.
    pub(crate) fn poll_call(
        self,
        cx: &mut Context<'_>,
        mut call: impl FnMut(BorrowedFd<'_>) -> rustix::io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        self.poll_io(cx, Interest::WRITABLE, |socket| {
            socket.try_io(Interest::WRITABLE, || Ok(call(socket.fd())?))
        })
    }

    /// Makes a system call that sends, without checking the readiness of the socket.
    pub(crate) fn write_ignoring_readiness(
        self,
        mut call: impl FnMut(BorrowedFd<'_>) -> rustix::io::Result<usize>,
    ) -> io::Result<usize> {
        Ok(rustix::io::retry_on_intr(|| call(self.fd()))?)
    }

    /// Sends several slices without checking the readiness of the socket.
    pub(crate) fn write_slices_ignoring_readiness(
        self,
        slices: &[IoSlice<'_>],
    ) -> io::Result<usize> {
        self.write_ignoring_readiness(|fd| send_slices(fd, slices))
    }

    /// Retries `attempt` until it succeeds or fails. While the socket is not ready, registers the
    /// task for its readiness. Consumes tokio's cooperative budget, so that no task runs
    /// indefinitely.
    fn poll_io(
        self,
        cx: &mut Context<'_>,
        interest: Interest,
        mut attempt: impl FnMut(Self) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        let budget = ready!(coop::poll_proceed(cx));
        loop {
            match attempt(self) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    ready!(self.poll_ready(cx, interest))?;
                }
                done => {
                    budget.made_progress();
                    return Poll::Ready(done);
                }
            }
        }
    }

    fn try_receive(self, buf: &mut [u8]) -> io::Result<usize> {
        self.try_transfer(Interest::READABLE, buf.len(), |fd| {
            Ok(rustix::net::recv(fd, &mut *buf, RecvFlags::empty())?.0)
        })
    }

    /// Makes a system call that receives or sends up to `length` bytes. After a short transfer the
    /// socket is empty or full: its readiness is cleared, so that no call is made that would fail.
    fn try_transfer(
        self,
        interest: Interest,
        length: usize,
        call: impl FnOnce(BorrowedFd<'_>) -> rustix::io::Result<usize>,
    ) -> io::Result<usize> {
        let mut short = None;
        let transferred = self.try_io(interest, || {
            let transferred = call(self.fd())?;
            if transferred == 0 || transferred == length {
                return Ok(transferred);
            }
            short = Some(transferred);
            Err(ErrorKind::WouldBlock.into())
        });
        short.map_or(transferred, Ok)
    }

    fn poll_ready(self, cx: &mut Context<'_>, interest: Interest) -> Poll<io::Result<()>> {
        match (self, interest) {
            (Socket::Tcp(socket), Interest::READABLE) => socket.poll_read_ready(cx),
            (Socket::Tcp(socket), _) => socket.poll_write_ready(cx),
            (Socket::Unix(socket), Interest::READABLE) => socket.poll_read_ready(cx),
            (Socket::Unix(socket), _) => socket.poll_write_ready(cx),
        }
    }

    fn try_io(
        self,
        interest: Interest,
        call: impl FnOnce() -> io::Result<usize>,
    ) -> io::Result<usize> {
        match self {
            Socket::Tcp(socket) => socket.try_io(interest, call),
            Socket::Unix(socket) => socket.try_io(interest, call),
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Tcp(socket) => socket.as_fd(),
            Socket::Unix(socket) => socket.as_fd(),
        }
    }
}

fn send_slices(fd: BorrowedFd<'_>, slices: &[IoSlice<'_>]) -> rustix::io::Result<usize> {
    let mut control = SendAncillaryBuffer::default();
    rustix::net::sendmsg(fd, slices, &mut control, SendFlags::NOSIGNAL)
}
