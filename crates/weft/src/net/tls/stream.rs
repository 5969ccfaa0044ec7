//! A TLS stream: plaintext towards the application, records towards the socket.
//!
//! tokio-rustls is not used because it reads 4 KiB at a time, so that a large record takes five
//! system calls; it cannot wait for input without a buffer; and it does not control record sizes
//! and the number of system calls per write.
//!
//! Both halves share the state of the connection behind a mutex, because the reader may be lent to
//! a body that is read on another thread. The mutex is never held across a wait.

use std::io::{self, BufRead, IoSlice, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use rustls::ServerConnection;
use smallvec::SmallVec;
use tokio::io::ReadBuf;

use crate::clock::deadline::Stopwatch;
use crate::net::secure_half::{SecureRead, SecureWrite};
use crate::net::socket::Socket;
use crate::net::tls::records::RecordSizes;
use crate::net::{reader, writer};

/// Receiving half.
pub(crate) struct TlsReadHalf {
    half: reader::ReadHalf,
    state: SharedState,
}

/// Sending half.
pub(crate) struct TlsWriteHalf {
    half: writer::WriteHalf,
    state: SharedState,
}

type SharedState = Arc<Mutex<State>>;

struct State {
    connection: ServerConnection,
    /// Received bytes that are not decrypted yet. An idle connection has no such buffer.
    ciphertext: BytesMut,
    /// Error that ended the input.
    read_error: Option<rustls::Error>,
    record_sizes: RecordSizes,
    /// `true` while records of accepted plaintext have not all been sent.
    unsent: bool,
    /// Number of bytes of plaintext that are followed by close_notify; 0 if the end is not known.
    until_end: usize,
}

/// Buffer capacity for one receive: a whole record (RFC 8446 §5.2).
const RECEIVE_BYTES: usize = 5 + (16 << 10) + 256;

/// Maximum buffer capacity for one receive of a body.
const MAX_RECEIVE_BYTES: usize = 64 << 10;

/// Plaintext encrypted before a write: a response head and a part of a file. Even in small records
/// it stays below the 64 slices that rustls passes to one system call.
const BATCH_BYTES: usize = 68 << 10;

/// Splits a connection after its handshake. `ciphertext` holds the bytes received after the
/// handshake.
pub(super) fn split(
    mut connection: ServerConnection,
    ciphertext: BytesMut,
    read: reader::ReadHalf,
    write: writer::WriteHalf,
) -> (TlsReadHalf, TlsWriteHalf) {
    // Buffered data is bounded here; an encrypted batch is larger than its plaintext.
    connection.set_buffer_limit(None);
    let state = Arc::new(Mutex::new(State {
        connection,
        ciphertext,
        read_error: None,
        record_sizes: RecordSizes::new(),
        unsent: false,
        until_end: 0,
    }));
    (TlsReadHalf { half: read, state: state.clone() }, TlsWriteHalf { half: write, state })
}

fn lock(state: &SharedState) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SecureRead for TlsReadHalf {
    fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        lock(&self.state).poll_plaintext(&mut self.half, RECEIVE_BYTES, cx)
    }

    fn poll_read(&mut self, cx: &mut Context<'_>, room: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut state = lock(&self.state);
        ready!(state.poll_plaintext(&mut self.half, room.remaining(), cx))?;
        state.take(room.remaining(), |plaintext| room.put_slice(plaintext));
        Poll::Ready(Ok(()))
    }

    fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut BytesMut,
    ) -> Poll<io::Result<usize>> {
        let mut state = lock(&self.state);
        let room = buffer.capacity() - buffer.len();
        ready!(state.poll_plaintext(&mut self.half, room, cx))?;
        Poll::Ready(Ok(state.take(room, |plaintext| buffer.extend_from_slice(plaintext))))
    }
}

impl State {
    /// Receives and decrypts until plaintext is available or the input has ended.
    fn poll_plaintext(
        &mut self,
        half: &mut reader::ReadHalf,
        room: usize,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            match self.connection.reader().fill_buf() {
                Ok(_) => return Poll::Ready(Ok(())),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The connection ended without close_notify (RFC 8446 §6.1).
                Err(_) => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
            }
            if let Some(error) = &self.read_error {
                return Poll::Ready(Err(aborted(error.clone())));
            }
            if self.ciphertext.is_empty() {
                let received = match half.poll_readable(cx) {
                    Poll::Ready(Ok(())) => {
                        self.ciphertext.reserve(room.clamp(RECEIVE_BYTES, MAX_RECEIVE_BYTES));
                        half.poll_fill(cx, &mut self.ciphertext)
                    }
                    Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                    Poll::Pending => Poll::Pending,
                };
                let Poll::Ready(received) = received else {
                    self.try_send_protocol_records(half.socket());
                    self.ciphertext = BytesMut::new();
                    return Poll::Pending;
                };
                if received? == 0 {
                    self.connection.read_tls(&mut io::empty())?;
                    continue;
                }
            }
            self.decrypt();
            if self.read_error.is_some() {
                self.try_send_protocol_records(half.socket());
            }
        }
    }

    /// Decrypts received bytes until plaintext is available.
    fn decrypt(&mut self) {
        while !self.ciphertext.is_empty() {
            match process_records(&mut self.connection, &mut self.ciphertext) {
                Ok(state) if state.peer_has_closed() => self.ciphertext.clear(),
                Ok(state) if state.plaintext_bytes_to_read() > 0 => return,
                Ok(_) => {}
                Err(error) => {
                    self.read_error = Some(error);
                    self.ciphertext.clear();
                }
            }
        }
    }

    /// Passes available plaintext to `put`, at most `room` bytes, and returns its length.
    fn take(&mut self, mut room: usize, mut put: impl FnMut(&[u8])) -> usize {
        let mut taken = 0;
        while room > 0 {
            let mut reader = self.connection.reader();
            match reader.fill_buf() {
                Ok(plaintext) if !plaintext.is_empty() => {
                    let length = plaintext.len().min(room);
                    put(&plaintext[..length]);
                    reader.consume(length);
                    (taken, room) = (taken + length, room - length);
                }
                _ if self.ciphertext.is_empty() => break,
                _ => self.decrypt(),
            }
        }
        if self.ciphertext.is_empty() {
            self.ciphertext = BytesMut::new();
        }
        taken
    }

    /// Sends records of the protocol itself, such as alerts and key updates, if the socket accepts
    /// them at once. Otherwise they are sent with the next write.
    fn try_send_protocol_records(&mut self, socket: Option<&Socket>) {
        let Some(socket) = socket else { return };
        // While application data is unsent, its writer sends these records, too.
        while !self.unsent && self.connection.wants_write() {
            if !matches!(self.connection.write_tls(&mut TryWriter(socket)), Ok(1..)) {
                return;
            }
        }
    }
}

/// Passes received bytes to rustls, which decrypts the complete records.
pub(super) fn process_records(
    connection: &mut ServerConnection,
    ciphertext: &mut BytesMut,
) -> Result<rustls::IoState, rustls::Error> {
    let length = connection.read_tls(&mut &ciphertext[..]);
    let length = length.map_err(|error| rustls::Error::General(error.to_string()))?;
    ciphertext.advance(length);
    connection.process_new_packets()
}

/// Invalid records are the fault of the peer.
fn aborted(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, error)
}

impl SecureWrite for TlsWriteHalf {
    fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut state = lock(&self.state);
        while state.has_unsent_records() {
            ready!(state.poll_send(&mut self.half, cx))?;
        }
        let accepted = state.encrypt(slices)?;
        state.unsent = true;
        while state.has_unsent_records() && state.poll_send(&mut self.half, cx)?.is_ready() {}
        Poll::Ready(Ok(accepted))
    }

    fn has_unsent_records(&self) -> bool {
        lock(&self.state).has_unsent_records()
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        lock(&self.state).poll_send(&mut self.half, cx)
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while ready!(self.poll_send(cx))? > 0 {}
        self.half.poll_flush(cx)
    }

    fn write_ignoring_readiness(&mut self) -> Option<usize> {
        let mut state = lock(&self.state);
        let sent = state.connection.write_tls(&mut WriterIgnoringReadiness(self.half.socket()?));
        state.unsent &= state.connection.wants_write();
        sent.ok().filter(|&sent| sent > 0)
    }

    fn end_after(&mut self, bytes: usize) {
        lock(&self.state).until_end = bytes;
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        lock(&self.state).connection.send_close_notify();
        ready!(self.poll_flush(cx))?;
        self.half.poll_shutdown(cx)
    }

    fn send_close_notify(&mut self) {
        let mut state = lock(&self.state);
        state.connection.send_close_notify();
        state.try_send_protocol_records(self.half.socket().map(Arc::as_ref));
    }

    fn socket(&self) -> Option<&Arc<Socket>> {
        self.half.socket()
    }
}

impl State {
    fn has_unsent_records(&self) -> bool {
        self.unsent && self.connection.wants_write()
    }

    fn poll_send(
        &mut self,
        half: &mut writer::WriteHalf,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let sent = ready!(poll_send(&mut self.connection, half, cx))?;
        self.unsent &= self.connection.wants_write();
        Poll::Ready(Ok(sent))
    }

    /// Encrypts plaintext into records, and returns how many bytes were accepted.
    fn encrypt(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let length = slices.iter().map(|slice| slice.len()).sum::<usize>().min(BATCH_BYTES);
        self.record_sizes.start_write(Stopwatch::start());
        let mut accepted = 0;
        while accepted < length {
            let next = self.record_sizes.next_record_len(length - accepted);
            let part = sub_slices(slices, accepted, next);
            let written = self.connection.writer().write_vectored(&part);
            accepted +=
                written.map_err(|error| io::Error::new(io::ErrorKind::ConnectionAborted, error))?;
        }
        if self.until_end > 0 {
            self.until_end = self.until_end.saturating_sub(accepted);
            if self.until_end == 0 {
                self.connection.send_close_notify();
            }
        }
        Ok(accepted)
    }
}

/// Returns `length` bytes of the slices, starting at offset `from`.
fn sub_slices<'a>(
    slices: &'a [IoSlice<'_>],
    mut from: usize,
    mut length: usize,
) -> SmallVec<[IoSlice<'a>; 4]> {
    let mut part = SmallVec::new();
    for slice in slices {
        let begin = from.min(slice.len());
        let end = (begin + length).min(slice.len());
        from -= begin;
        length -= end - begin;
        if begin < end {
            part.push(IoSlice::new(&slice[begin..end]));
        }
    }
    part
}

/// Sends pending records; 0 when there are none.
pub(super) fn poll_send(
    connection: &mut ServerConnection,
    half: &mut writer::WriteHalf,
    cx: &mut Context<'_>,
) -> Poll<io::Result<usize>> {
    if !connection.wants_write() {
        return Poll::Ready(Ok(0));
    }
    match connection.write_tls(&mut PollWriter { half, cx }) {
        Ok(0) => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
        Ok(sent) => Poll::Ready(Ok(sent)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
        Err(error) => Poll::Ready(Err(error)),
    }
}

/// Writes to a transport, and registers the task for a wake-up when it blocks.
struct PollWriter<'a, 'cx> {
    half: &'a mut writer::WriteHalf,
    cx: &'a mut Context<'cx>,
}

impl Write for PollWriter<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self.half.poll_write_vectored(self.cx, slices) {
            Poll::Ready(written) => written,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes to a socket as much as it accepts at once.
struct TryWriter<'a>(&'a Socket);

impl Write for TryWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_send_slices(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes to a socket that is not reported as writable.
struct WriterIgnoringReadiness<'a>(&'a Socket);

impl Write for WriterIgnoringReadiness<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.write_slices_ignoring_readiness(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
