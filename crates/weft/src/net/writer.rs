//! The sending half of a connection. No other file writes to a client's socket.
//!
//! Output is buffered first: the responses to all requests of one read, or a head with the first
//! bytes of its content. One system call then sends it. A file goes from the page cache to the
//! socket (`sendfile(2)`); `MSG_MORE` holds its head back, so that both share a packet.

use std::future::{pending, poll_fn};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Buf;
use tokio::io::AsyncWrite;

use crate::clock::deadline::{Deadline, Pace};
use crate::disk;
use crate::disk::{File, Source, Unsent};
use crate::error::{Error, ErrorKind, Result};
use crate::net::file_turn::FileTurn;
use crate::net::secure_half::SecureWrite;
use crate::net::socket::Socket;
use crate::stream::Io;
use crate::sys::{self, BorrowedFd, Direction, Errno};
use weft_proto::write_buffer::WriteBuffer;

/// The sending direction of a connection.
pub(crate) struct Writer {
    pub(crate) half: WriteHalf,
    pub(crate) buffer: WriteBuffer,
    /// Set while a stream that is not a plain socket may hold bytes that are not flushed.
    has_unflushed: bool,
}

pub(crate) enum WriteHalf {
    Socket(Arc<Socket>),
    Other(tokio::io::WriteHalf<Box<dyn Io>>),
    /// Any of the other variants, with TLS.
    Secure(Box<dyn SecureWrite>),
    Closed,
}

/// Minimum size of a piece that is sent by reference instead of being copied.
const LARGE_BYTES: usize = 16 << 10;

/// Interval of the probes to a client that has ended its input.
const PROBE_INTERVAL: Duration = Duration::from_secs(15);

impl Writer {
    /// Creates a writer that has to be flushed when `full_bytes` are buffered.
    pub(crate) fn new(half: WriteHalf, full_bytes: usize) -> Writer {
        Writer { half, buffer: WriteBuffer::new(LARGE_BYTES, full_bytes), has_unflushed: false }
    }

    /// Takes the socket and the buffer out, and leaves a closed writer.
    #[inline]
    pub(crate) fn take(&mut self) -> Writer {
        let full_bytes = self.buffer.full_bytes();
        std::mem::replace(self, Writer::new(WriteHalf::Closed, full_bytes))
    }

    /// The end of the buffered output, to append to.
    #[inline]
    pub(crate) fn out(&mut self) -> &mut Vec<u8> {
        self.buffer.tail()
    }

    /// Returns true if everything was sent.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.buffer.is_empty() && !self.has_unflushed
    }

    /// Returns true if the buffered bytes have to be sent before more are appended.
    #[inline]
    pub(crate) fn must_flush(&self) -> bool {
        self.buffer.is_full()
    }

    /// The number of buffered bytes that are not sent.
    #[inline]
    pub(crate) fn waiting(&self) -> usize {
        self.buffer.remaining()
    }

    async fn flush(&mut self, deadline: &Deadline, pace: &mut Pace) -> Result<()> {
        poll_fn(|cx| self.poll_flush(cx, deadline, pace)).await
    }

    /// Sends the buffered bytes. After an error, nothing can be sent any more.
    #[inline]
    pub(crate) fn poll_flush(
        &mut self,
        cx: &mut Context<'_>,
        deadline: &Deadline,
        pace: &mut Pace,
    ) -> Poll<Result<()>> {
        while !self.is_empty() {
            let error = match self.poll_write(cx) {
                Poll::Ready(Ok(sent)) => {
                    pace.record_progress(sent, deadline);
                    continue;
                }
                Poll::Ready(Err(error)) => Error::of_connection(error),
                Poll::Pending => {
                    self.buffer.compact();
                    ready!(pace.poll_expired(deadline, cx));
                    match self.write_ignoring_readiness() {
                        Some(sent) => {
                            pace.record_progress(sent, deadline);
                            continue;
                        }
                        None => too_slow(),
                    }
                }
            };
            self.abandon();
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(()))
    }

    #[inline]
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let chunk = self.buffer.chunk();
        let sent = if chunk.is_empty() || (self.has_unflushed && self.half.has_unsent_records()) {
            let sent = ready!(self.half.poll_send(cx))?;
            self.has_unflushed = sent > 0 && self.half.has_unsent_records();
            return Poll::Ready(Ok(sent));
        } else if chunk.len() == self.buffer.remaining() {
            ready!(self.half.poll_write(cx, chunk))?
        } else {
            let mut slices = [IoSlice::new(&[]); WriteBuffer::MAX_SLICES];
            let count = self.buffer.chunks_vectored(&mut slices);
            ready!(self.half.poll_write_vectored(cx, &slices[..count]))?
        };
        if sent == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        self.buffer.advance(sent);
        self.has_unflushed = match self.half {
            WriteHalf::Other(_) => true,
            _ => self.half.has_unsent_records(),
        };
        Poll::Ready(Ok(sent))
    }

    /// Sends without waiting for readiness; `None` if the socket accepts nothing. The kernel
    /// reports a socket as writable only when a large part of its send buffer is free, and a slow
    /// peer may have received less than that.
    #[inline]
    fn write_ignoring_readiness(&mut self) -> Option<usize> {
        if let WriteHalf::Secure(half) = &mut self.half {
            return half.write_ignoring_readiness();
        }
        let mut slices = [IoSlice::new(&[]); WriteBuffer::MAX_SLICES];
        let count = self.buffer.chunks_vectored(&mut slices);
        let sent = self
            .half
            .socket()?
            .write_slices_ignoring_readiness(&slices[..count])
            .ok()
            .filter(|&sent| sent > 0)?;
        self.buffer.advance(sent);
        Some(sent)
    }

    /// Sends the buffered bytes and the rest of a file, in the same packet as far as possible.
    /// `rest` is left with the part that was not sent.
    ///
    /// # Errors
    /// [`LengthMismatch`](ErrorKind::LengthMismatch) if the file has become shorter.
    pub(crate) async fn send_file(
        &mut self,
        file: &File,
        rest: &mut Unsent,
        deadline: &Deadline,
        pace: &mut Pace,
    ) -> Result<()> {
        let Source::Open(open) = &file.source else { unreachable!("a file in memory is buffered") };
        let Some(socket) = self.half.socket() else {
            return self.copy_file(open, rest, deadline, pace).await;
        };
        while !self.buffer.is_empty() && rest.length > 0 {
            let chunk = self.buffer.chunk();
            let sent = progress(socket, deadline, pace, |fd| sys::send(fd, chunk, true));
            let sent = sent.await?;
            self.buffer.advance(sent);
        }
        let mut resident = ResidentPart::default();
        let mut turn = FileTurn::new();
        while rest.length > 0 {
            let call_bytes = turn.max_call_bytes();
            if resident.extend(file, *rest, open, call_bytes, deadline) == 0 {
                // At the end of the file, a request for one byte reports it.
                let fetched = disk::fetch(open.clone(), rest.start, rest.length).await?;
                resident.set(rest.start + fetched.max(1), deadline);
            }
            let mut at = rest.start;
            let sent =
                progress(socket, deadline, pace, |fd| match resident.renew(at, open, deadline) {
                    0 => Ok(0),
                    length => {
                        let length = length.min(call_bytes) as usize;
                        sys::send_file(fd, open, &mut at, length)
                    }
                })
                .await?;
            if sent == 0 && resident.end == rest.start {
                // It was evicted while the peer did not receive.
                continue;
            }
            rest.advance(sent)?;
            if rest.length > 0 {
                turn.spend(sent).await;
            }
        }
        self.flush(deadline, pace).await
    }

    /// Sends a file over a transport without `sendfile(2)`.
    async fn copy_file(
        &mut self,
        open: &Arc<std::fs::File>,
        rest: &mut Unsent,
        deadline: &Deadline,
        pace: &mut Pace,
    ) -> Result<()> {
        let mut turn = FileTurn::new();
        while rest.length > 0 {
            let piece = disk::read(open, rest.start, rest.length).await?;
            let length = piece.len();
            rest.advance(length)?;
            self.buffer.push(piece);
            self.flush(deadline, pace).await?;
            turn.spend(length).await;
        }
        self.flush(deadline, pace).await
    }

    /// Resets a connection whose response cannot be completed: if only the end of the connection
    /// ends the response, an incomplete one must not look complete.
    pub(crate) fn abandon(&mut self) {
        // Sends the reset at once, although a body may still hold the socket. It fails if the
        // connection is closed already, and for Unix sockets.
        let is_reset = self.half.kernel_socket().is_some_and(|socket| socket.reset().is_ok());
        if !is_reset {
            self.shut_down_socket();
        }
        self.half.close();
    }

    /// Shuts both directions down, for a socket that stays open because a body has the reader.
    pub(crate) fn shut_down_socket(&mut self) {
        // It fails if the peer has closed the connection already.
        let _ = self.half.kernel_socket().map(|socket| socket.shutdown(Direction::Both));
    }

    /// Completes when the connection is broken although its input has ended. That of a stream that
    /// is no kernel socket is found by the next write only.
    pub(crate) fn broken(&self) -> impl Future<Output = ()> + 'static {
        let socket = self.half.kernel_socket().cloned();
        async move {
            match socket {
                Some(socket) => socket.broken(PROBE_INTERVAL).await,
                None => pending().await,
            }
        }
    }

    /// Returns true if nothing can be sent any more.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.half, WriteHalf::Closed)
    }

    /// Lets the last output share a segment with the FIN. The connection must be shut down or
    /// closed as soon as the output is flushed.
    pub(crate) fn hold_end(&mut self) {
        if let WriteHalf::Secure(half) = &mut self.half {
            half.end_after(self.buffer.remaining());
        }
        if let Some(socket) = self.half.kernel_socket() {
            socket.hold_end();
        }
    }

    /// Shuts the sending direction down.
    pub(crate) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.half.poll_shutdown(cx)
    }

    /// Sends a close_notify alert if that is possible without waiting, so that the peer can tell
    /// the end of the connection from truncation. A plain socket needs none.
    pub(crate) fn send_close_notify(&mut self) {
        if let WriteHalf::Secure(half) = &mut self.half {
            half.send_close_notify();
        }
    }
}

/// The part of a file after the current position that was found in the page cache.
#[derive(Default)]
struct ResidentPart {
    /// Position of its end in the file.
    end: u64,
    /// Set if all bytes of the last lookup were resident.
    is_complete: bool,
    /// Time at which it was looked for, in milliseconds on the worker's clock.
    probed_at: u64,
}

/// Time after which a part of a file may have been evicted from the page cache.
const RESIDENT_MILLIS: u64 = 1_000;

impl ResidentPart {
    /// Returns the length of the part. Looks for more if less than half of `turn_bytes` is left,
    /// and for that many bytes in all: a call that sends should not be shorter than the socket
    /// permits.
    fn extend(
        &mut self,
        file: &File,
        rest: Unsent,
        open: &std::fs::File,
        turn_bytes: u64,
        deadline: &Deadline,
    ) -> u64 {
        self.end = self.end.max(rest.start);
        let known = self.end - rest.start;
        if known >= rest.length.min(turn_bytes / 2) {
            return known;
        }
        let ahead = Unsent { start: self.end, length: rest.length - known };
        let wanted = ahead.length.min(turn_bytes - known);
        let found = disk::resident_len(file, ahead, open, wanted, self.is_complete);
        self.is_complete = found == wanted;
        self.set(self.end + found, deadline);
        known + found
    }

    fn set(&mut self, end: u64, deadline: &Deadline) {
        (self.end, self.probed_at) = (end, deadline.now_millis());
    }

    /// Returns the length of the part in front of a position, 0 if it was evicted. Its start is
    /// probed again if the peer has not received for long: its pages are the oldest ones.
    fn renew(&mut self, start: u64, open: &std::fs::File, deadline: &Deadline) -> u64 {
        if deadline.now_millis().saturating_sub(self.probed_at) >= RESIDENT_MILLIS {
            let is_resident = disk::is_resident(open, start);
            self.is_complete &= is_resident;
            self.set(if is_resident { self.end } else { start }, deadline);
        }
        self.end - start
    }
}

fn too_slow() -> Error {
    Error::new(ErrorKind::TooSlow, "the peer took the response too slowly")
}

/// Makes one sending system call as soon as the socket is writable.
async fn progress(
    socket: &Socket,
    deadline: &Deadline,
    pace: &mut Pace,
    mut call: impl FnMut(BorrowedFd<'_>) -> Result<usize, Errno>,
) -> Result<usize> {
    poll_fn(|cx| match socket.poll_call(cx, &mut call) {
        // It may accept bytes all the same, as in `Writer::write_ignoring_readiness`.
        Poll::Pending => pace
            .poll_expired(deadline, cx)
            .map(|()| socket.write_ignoring_readiness(&mut call).map_err(|_| too_slow())),
        Poll::Ready(sent) => Poll::Ready(sent.map_err(Error::of_connection)),
    })
    .await
    .inspect(|&sent| pace.record_progress(sent, deadline))
}

impl WriteHalf {
    /// Releases the socket, which closes if no body has the reader. It is not shut down before:
    /// closing alone has the same effect and saves a system call.
    fn close(&mut self) {
        *self = WriteHalf::Closed;
    }

    /// The kernel socket, also if TLS is above it.
    #[inline]
    fn kernel_socket(&self) -> Option<&Arc<Socket>> {
        match self {
            WriteHalf::Secure(half) => half.socket(),
            half => half.socket(),
        }
    }

    /// Returns true if accepted bytes are unsent. Until they are sent, no more are accepted.
    fn has_unsent_records(&self) -> bool {
        matches!(self, WriteHalf::Secure(half) if half.has_unsent_records())
    }

    /// Sends accepted bytes; 0 when none are left.
    #[inline]
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        match self {
            WriteHalf::Secure(half) => half.poll_send(cx),
            half => half.poll_flush(cx).map_ok(|()| 0),
        }
    }

    /// Returns true if several slices are sent by one write.
    #[inline]
    pub(crate) fn is_write_vectored(&self) -> bool {
        matches!(self, WriteHalf::Secure(_)) || self.socket().is_some()
    }

    #[inline]
    pub(crate) fn socket(&self) -> Option<&Arc<Socket>> {
        match self {
            WriteHalf::Socket(socket) => Some(socket),
            WriteHalf::Other(_) | WriteHalf::Secure(_) | WriteHalf::Closed => None,
        }
    }

    #[inline]
    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self {
            WriteHalf::Socket(socket) => socket.poll_send(cx, bytes),
            WriteHalf::Other(half) => Pin::new(half).poll_write(cx, bytes),
            WriteHalf::Secure(half) => half.poll_write_vectored(cx, &[IoSlice::new(bytes)]),
            WriteHalf::Closed => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    #[inline]
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            WriteHalf::Other(half) => Pin::new(half).poll_flush(cx),
            WriteHalf::Secure(half) => half.poll_flush(cx),
            _ => Poll::Ready(Ok(())),
        }
    }

    pub(crate) fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self {
            WriteHalf::Socket(socket) => socket.poll_send_slices(cx, slices),
            WriteHalf::Secure(half) => half.poll_write_vectored(cx, slices),
            WriteHalf::Other(_) | WriteHalf::Closed => {
                self.poll_write(cx, slices.first().map_or(&[], |slice| slice))
            }
        }
    }

    pub(crate) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            WriteHalf::Socket(socket) => Poll::Ready(Ok(socket.shutdown(Direction::Write)?)),
            WriteHalf::Other(half) => Pin::new(half).poll_shutdown(cx),
            WriteHalf::Secure(half) => half.poll_shutdown(cx),
            WriteHalf::Closed => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.half.close();
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::task::Waker;

    use super::*;
    use crate::clock::deadline::Deadlines;
    use crate::net::file_turn::MAX_TURN_BYTES;
    use crate::settings::Settings;

    #[test]
    fn files_that_are_sent_at_the_same_time_share_a_round() {
        const CONNECTIONS: usize = 32;
        const FILE_BYTES: u64 = 2 * MAX_TURN_BYTES;
        let open = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut &open, &vec![1; FILE_BYTES as usize]).unwrap();
        let file = File::open(open).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (_peers, mut writers): (Vec<_>, Vec<_>) = (0..CONNECTIONS)
            .map(|_| {
                let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                let socket = listener.accept().unwrap().0;
                socket.set_nonblocking(true).unwrap();
                let half = WriteHalf::Socket(Arc::new(Socket::new(socket.into())));
                (peer, (Writer::new(half, 1 << 10), file.unsent()))
            })
            .unzip();
        let settings = Settings::default();
        let deadline = Deadlines::new(&settings).deadline();
        let runtime = tokio::runtime::LocalRuntime::new().unwrap();
        runtime.block_on(async {
            let mut sends: Vec<_> = writers
                .iter_mut()
                .map(|(writer, rest)| {
                    let (file, deadline) = (&file, &deadline);
                    let mut pace = Pace::new(&settings);
                    Box::pin(async move { writer.send_file(file, rest, deadline, &mut pace).await })
                })
                .collect();
            let cx = &mut Context::from_waker(Waker::noop());
            assert!(sends.iter_mut().all(|send| send.as_mut().poll(cx).is_pending()));
        });
        let sent = writers.iter().map(|(_, rest)| FILE_BYTES - rest.length);
        assert!(sent.clone().all(|sent| sent > 0));
        let sent: u64 = sent.sum();
        // Four turns of full length, and 8 MiB / n for each of the others.
        assert!(sent <= 24 << 20, "{sent} bytes in the first turns of {CONNECTIONS} connections");
    }
}
