//! A socket of the kernel's: system calls that do not wait, tried before anybody asks whether
//! it is ready.
//!
//! The system calls are made directly: those of the C library are points where a thread can
//! be cancelled, which takes a hundredth of what a small request costs.

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
    /// Receives once; 0 is the end.
    pub(crate) fn poll_receive(
        self,
        cx: &mut Context<'_>,
        room: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_io(cx, Interest::READABLE, |socket| socket.try_receive(room))
    }

    /// The same for a socket that is likely to have nothing yet: that is asked first.
    pub(crate) fn poll_wait_and_receive(
        self,
        cx: &mut Context<'_>,
        room: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.poll_ready(cx, Interest::READABLE))?;
            match self.try_receive(room) {
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                received => return Poll::Ready(received),
            }
        }
    }

    /// Sends what the socket takes.
    pub(crate) fn poll_send(self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_io(cx, Interest::WRITABLE, |socket| {
            let send = |fd: BorrowedFd<'_>| rustix::net::send(fd, bytes, SendFlags::NOSIGNAL);
            socket.try_move(Interest::WRITABLE, bytes.len(), send)
        })
    }

    /// The same for several slices that leave as one.
    pub(crate) fn poll_send_slices(
        self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_io(cx, Interest::WRITABLE, |socket| socket.try_send_slices(slices))
    }

    /// Sends what the socket takes at once. Nobody is woken when it takes more.
    pub(crate) fn try_send_slices(self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let length = slices.iter().map(|slice| slice.len()).sum();
        self.try_move(Interest::WRITABLE, length, |fd| send_slices(fd, slices))
    }

    /// Makes a system call that sends.
    pub(crate) fn poll_call(
        self,
        cx: &mut Context<'_>,
        mut call: impl FnMut(BorrowedFd<'_>) -> rustix::io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        self.poll_io(cx, Interest::WRITABLE, |socket| {
            socket.try_io(Interest::WRITABLE, || Ok(call(socket.fd())?))
        })
    }

    /// Makes a system call that sends, whether or not the socket seems to be ready.
    pub(crate) fn write_ignoring_readiness(
        self,
        mut call: impl FnMut(BorrowedFd<'_>) -> rustix::io::Result<usize>,
    ) -> io::Result<usize> {
        Ok(rustix::io::retry_on_intr(|| call(self.fd()))?)
    }

    /// Sends so, of several slices.
    pub(crate) fn write_slices_ignoring_readiness(
        self,
        slices: &[IoSlice<'_>],
    ) -> io::Result<usize> {
        self.write_ignoring_readiness(|fd| send_slices(fd, slices))
    }

    /// Tries until it is done, or the socket is not ready; then its readiness wakes the task.
    /// Takes of the task's budget, as all of tokio's do, so that no task goes on for ever.
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

    fn try_receive(self, room: &mut [u8]) -> io::Result<usize> {
        self.try_move(Interest::READABLE, room.len(), |fd| {
            Ok(rustix::net::recv(fd, &mut *room, RecvFlags::empty())?.0)
        })
    }

    /// Makes a system call that receives or sends up to so many bytes. When it was fewer, the
    /// socket is empty or full: that is noted, so that no call is tried that must fail.
    fn try_move(
        self,
        interest: Interest,
        length: usize,
        call: impl FnOnce(BorrowedFd<'_>) -> rustix::io::Result<usize>,
    ) -> io::Result<usize> {
        let mut short = None;
        let moved = self.try_io(interest, || {
            let moved = call(self.fd())?;
            if moved == 0 || moved == length {
                return Ok(moved);
            }
            short = Some(moved);
            Err(ErrorKind::WouldBlock.into())
        });
        short.map_or(moved, Ok)
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
