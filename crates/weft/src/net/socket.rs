//! Kernel sockets: nonblocking system calls, which are tried before the readiness of the socket is
//! checked.
//!
//! The system calls are made directly, not by the C library: its wrappers are cancellation points,
//! which cost about 1% of a small request.

use std::future::pending;
use std::io::{self, ErrorKind, IoSlice};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BufMut;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::task::coop;

use crate::net::buffers::INPUT_BYTES;
use crate::sys::{self, AsFd, BorrowedFd, Direction, Errno, OwnedFd};

/// A connected stream socket, which both directions of a connection share.
///
/// It is registered with the event loop when it has to wait for the first time. Until then, each
/// system call is tried at once. A connection that serves one request often never waits, and
/// registration is two system calls, one of them when the socket closes.
pub(crate) struct Socket {
    /// The socket after its registration. The type also serves for Unix sockets: only calls are
    /// made that all stream sockets support.
    registered: OnceLock<TcpStream>,
    /// The socket before its registration; `None` afterwards, also if that failed.
    unregistered: Mutex<Option<OwnedFd>>,
    /// Set after the first read. A second one would probably fail, so it waits.
    was_read: AtomicBool,
    /// Set if the last read has emptied the socket.
    is_drained: AtomicBool,
    /// Set before the last bytes are sent.
    is_ending: AtomicBool,
    /// Set if the connection is reset, at the latest when the socket closes. A shutdown would end
    /// it in order before.
    is_reset: AtomicBool,
}

impl Socket {
    pub(crate) fn new(fd: OwnedFd) -> Socket {
        Socket {
            registered: OnceLock::new(),
            unregistered: Mutex::new(Some(fd)),
            was_read: AtomicBool::new(false),
            is_drained: AtomicBool::new(false),
            is_ending: AtomicBool::new(false),
            is_reset: AtomicBool::new(false),
        }
    }

    /// Registers the socket with the event loop of the current thread, if it is not registered.
    /// Necessary before another thread may wait for the socket.
    #[inline]
    pub(crate) fn register(&self) -> io::Result<()> {
        self.stream().map(|_| ())
    }

    /// Returns the registered socket.
    #[inline]
    fn stream(&self) -> io::Result<&TcpStream> {
        match self.registered.get() {
            Some(stream) => Ok(stream),
            None => self.register_now(),
        }
    }

    #[cold]
    fn register_now(&self) -> io::Result<&TcpStream> {
        let mut unregistered = self.unregistered();
        match unregistered.take() {
            Some(fd) => {
                let stream = TcpStream::from_std(fd.into())?;
                Ok(self.registered.get_or_init(|| stream))
            }
            None => self.registered.get().ok_or_else(|| ErrorKind::NotConnected.into()),
        }
    }

    fn unregistered(&self) -> MutexGuard<'_, Option<OwnedFd>> {
        self.unregistered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ready when there is input.
    #[inline]
    pub(crate) fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream()?.poll_read_ready(cx)
    }

    /// Receives once. Ready with 0 at the end of the stream.
    #[inline]
    pub(crate) fn poll_receive(
        &self,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_io(cx, Interest::READABLE, || self.try_receive(buf))
    }

    /// Receives once into the spare capacity of `buf`. Ready with 0 at the end of the stream.
    #[inline]
    pub(crate) fn poll_receive_into(
        &self,
        cx: &mut Context<'_>,
        buf: &mut impl BufMut,
    ) -> Poll<io::Result<usize>> {
        self.poll_io(cx, Interest::READABLE, || self.try_receive_into(buf))
    }

    /// Like [`poll_receive`](Socket::poll_receive), for a socket that is probably empty, unless
    /// nothing was received yet. Consumes none of tokio's cooperative budget.
    #[inline]
    pub(crate) fn poll_receive_when_ready(
        &self,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        if self.is_drained.swap(false, Relaxed) {
            ready!(self.stream()?.poll_read_ready(cx))?;
        }
        loop {
            match self.try_receive(buf) {
                Ok(received) => {
                    self.is_drained.store(received < buf.len(), Relaxed);
                    return Poll::Ready(Ok(received));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    ready!(self.stream()?.poll_read_ready(cx))?;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                failed => return Poll::Ready(failed),
            }
        }
    }

    /// Completes when the connection is broken although its input has ended. If the peer has closed
    /// its sending direction only, it acknowledges a probe; the system of a peer that has left
    /// resets the connection.
    pub(crate) async fn broken(&self, probe_interval: Duration) {
        let _ = self.with_fd(|fd| sys::set_keepalive(fd, probe_interval, MAX_LOST_PROBES));
        let Ok(stream) = self.stream() else { return pending().await };
        // A Unix socket has no probes, but reports a peer that has closed both directions.
        let ready = stream.ready(Interest::WRITABLE | Interest::ERROR).await;
        if !ready.is_ok_and(|ready| ready.is_write_closed() || ready.is_error()) {
            let _ = stream.ready(Interest::ERROR).await;
        }
    }

    /// Lets the last bytes share a segment with the FIN: bytes sent from now on are held back until
    /// a segment is full, or the socket is shut down or closed. That must follow without a wait.
    pub(crate) fn hold_end(&self) {
        self.is_ending.store(true, Relaxed);
    }

    /// Sends as many bytes as the socket accepts.
    #[inline]
    pub(crate) fn poll_send(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let is_ending = self.is_ending.load(Relaxed);
        self.poll_io(cx, Interest::WRITABLE, || {
            let send = |fd: BorrowedFd<'_>| sys::send(fd, bytes, is_ending);
            self.try_transfer(Interest::WRITABLE, bytes.len(), send)
        })
    }

    /// Sends several slices with one system call.
    pub(crate) fn poll_send_slices(
        &self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_io(cx, Interest::WRITABLE, || self.try_send_slices(slices))
    }

    /// Sends as many bytes as the socket accepts now. Registers no waker.
    pub(crate) fn try_send_slices(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let length = slices.iter().map(|slice| slice.len()).sum();
        self.try_transfer(Interest::WRITABLE, length, |fd| {
            sys::send_slices(fd, slices, self.is_ending.load(Relaxed))
        })
    }

    /// Makes a system call that sends, when the socket is ready.
    #[inline]
    pub(crate) fn poll_call(
        &self,
        cx: &mut Context<'_>,
        mut call: impl FnMut(BorrowedFd<'_>) -> Result<usize, Errno>,
    ) -> Poll<io::Result<usize>> {
        self.poll_io(cx, Interest::WRITABLE, || match self.registered.get() {
            Some(stream) => stream.try_io(Interest::WRITABLE, || Ok(call(stream.as_fd())?)),
            None => self.try_unregistered(Interest::WRITABLE, &mut call),
        })
    }

    /// Makes a system call that sends, without checking the readiness of the socket.
    #[inline]
    pub(crate) fn write_ignoring_readiness(
        &self,
        mut call: impl FnMut(BorrowedFd<'_>) -> Result<usize, Errno>,
    ) -> io::Result<usize> {
        Ok(sys::retry_on_interrupt(|| self.with_fd(&mut call))?)
    }

    /// Sends several slices without checking the readiness of the socket.
    pub(crate) fn write_slices_ignoring_readiness(
        &self,
        slices: &[IoSlice<'_>],
    ) -> io::Result<usize> {
        self.write_ignoring_readiness(|fd| {
            sys::send_slices(fd, slices, self.is_ending.load(Relaxed))
        })
    }

    /// Shuts down one direction or both.
    pub(crate) fn shutdown(&self, direction: Direction) -> Result<(), Errno> {
        match self.is_reset.load(Relaxed) {
            true => Err(Errno::NOTCONN),
            false => self.with_fd(|fd| sys::shutdown(fd, direction)),
        }
    }

    /// Resets a TCP connection. Fails for Unix sockets.
    pub(crate) fn reset(&self) -> Result<(), Errno> {
        self.with_fd(sys::reset)?;
        self.is_reset.store(true, Relaxed);
        Ok(())
    }

    /// Retries `attempt` until it succeeds or fails. While the socket is not ready, registers the
    /// task for its readiness. Consumes tokio's cooperative budget, so that no task runs
    /// indefinitely.
    #[inline]
    fn poll_io(
        &self,
        cx: &mut Context<'_>,
        interest: Interest,
        mut attempt: impl FnMut() -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        let budget = ready!(coop::poll_proceed(cx));
        loop {
            match attempt() {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let stream = self.stream()?;
                    ready!(match interest {
                        Interest::READABLE => stream.poll_read_ready(cx),
                        _ => stream.poll_write_ready(cx),
                    })?;
                }
                done => {
                    budget.made_progress();
                    return Poll::Ready(done);
                }
            }
        }
    }

    #[inline]
    fn try_receive(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.try_transfer(Interest::READABLE, buf.len(), |fd| sys::receive(fd, buf))
    }

    #[inline]
    fn try_receive_into(&self, buf: &mut impl BufMut) -> io::Result<usize> {
        let room = buf.chunk_mut().len();
        match self.registered.get() {
            Some(stream) => transfer(stream, Interest::READABLE, room, || stream.try_read_buf(buf)),
            // Once for each connection, so that the copy does not matter.
            None => self.try_unregistered(Interest::READABLE, |fd| {
                let mut uninit = [MaybeUninit::<u8>::uninit(); INPUT_BYTES];
                let uninit = &mut uninit[..room.min(INPUT_BYTES)];
                let received = sys::receive_uninit(fd, uninit)?;
                buf.put_slice(received);
                Ok(received.len())
            }),
        }
    }

    /// Makes a system call that receives or sends up to `length` bytes.
    #[inline]
    fn try_transfer(
        &self,
        interest: Interest,
        length: usize,
        call: impl FnOnce(BorrowedFd<'_>) -> Result<usize, Errno>,
    ) -> io::Result<usize> {
        match self.registered.get() {
            Some(stream) => transfer(stream, interest, length, || Ok(call(stream.as_fd())?)),
            None => self.try_unregistered(interest, call),
        }
    }

    /// Makes a system call before the socket is registered: any number of calls that send, and one
    /// call that receives.
    fn try_unregistered(
        &self,
        interest: Interest,
        call: impl FnOnce(BorrowedFd<'_>) -> Result<usize, Errno>,
    ) -> io::Result<usize> {
        let is_read = interest == Interest::READABLE;
        if is_read && self.was_read.load(Relaxed) {
            return Err(ErrorKind::WouldBlock.into());
        }
        let unregistered = self.unregistered();
        let fd = unregistered.as_ref().ok_or(ErrorKind::NotConnected)?;
        let transferred = call(fd.as_fd());
        if is_read && transferred != Err(Errno::INTR) {
            self.was_read.store(true, Relaxed);
        }
        Ok(transferred?)
    }

    #[inline]
    fn with_fd<T>(
        &self,
        call: impl FnOnce(BorrowedFd<'_>) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        match self.registered.get() {
            Some(stream) => call(stream.as_fd()),
            None => call(self.unregistered().as_ref().ok_or(Errno::NOTCONN)?.as_fd()),
        }
    }
}

/// Makes a call that transfers up to `length` bytes, if the socket is ready. After a short transfer
/// the socket is empty or full: its readiness is cleared, so that no call is made that would fail.
fn transfer(
    stream: &TcpStream,
    interest: Interest,
    length: usize,
    call: impl FnOnce() -> io::Result<usize>,
) -> io::Result<usize> {
    let mut short = None;
    let transferred = stream.try_io(interest, || {
        let transferred = call()?;
        if transferred == 0 || transferred == length {
            return Ok(transferred);
        }
        short = Some(transferred);
        Err(ErrorKind::WouldBlock.into())
    });
    short.map_or(transferred, Ok)
}

/// Number of probes without a response after which the connection is broken.
const MAX_LOST_PROBES: u32 = 4;

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;
    use rustix::net::Shutdown;

    const PROBE_INTERVAL: Duration = Duration::from_secs(1);

    /// Returns both ends of a connection over TCP. The first is not blocking.
    fn tcp_pair() -> (Socket, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, _) = listener.accept().unwrap();
        socket.set_nonblocking(true).unwrap();
        (Socket::new(socket.into()), peer)
    }

    /// Closes only the sending direction of the peer, then does the rest, and returns true if the
    /// connection is broken two probes later.
    async fn is_broken(
        socket: Socket,
        peer: impl Into<OwnedFd>,
        end: impl FnOnce(OwnedFd),
    ) -> bool {
        let peer = peer.into();
        rustix::net::shutdown(&peer, Shutdown::Write).unwrap();
        let mut received = [0; 8];
        let end_of_input = std::future::poll_fn(|cx| socket.poll_receive(cx, &mut received));
        assert_eq!(end_of_input.await.unwrap(), 0);
        end(peer);
        timeout(PROBE_INTERVAL * 2 + PROBE_INTERVAL / 2, socket.broken(PROBE_INTERVAL))
            .await
            .is_ok()
    }

    #[tokio::test]
    async fn only_a_peer_that_has_left_breaks_the_connection() {
        let (socket, peer) = tcp_pair();
        let mut kept = None;
        assert!(!is_broken(socket, peer, |peer| kept = Some(peer)).await, "half-closed");
        let (socket, peer) = tcp_pair();
        let reset = |peer: OwnedFd| {
            rustix::net::sockopt::set_socket_linger(&peer, Some(Duration::ZERO)).unwrap();
        };
        assert!(is_broken(socket, peer, reset).await, "reset");
        let pair = || {
            let (socket, peer) = UnixStream::pair().unwrap();
            socket.set_nonblocking(true).unwrap();
            (Socket::new(socket.into()), peer)
        };
        let (socket, peer) = pair();
        assert!(!is_broken(socket, peer, |peer| kept = Some(peer)).await, "half-closed, Unix");
        let (socket, peer) = pair();
        assert!(is_broken(socket, peer, drop).await, "closed, Unix");
        drop(kept);
    }
}
