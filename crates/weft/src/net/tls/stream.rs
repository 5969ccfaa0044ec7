//! A connection behind TLS: plaintext on our side, records on the other.
//!
//! Why not tokio-rustls: it reads 4 KiB at a time, so that a large record takes five system
//! calls; it cannot wait for input without a buffer; and it leaves the sizes of records and
//! the number of system calls that they take to chance.
//!
//! Both halves share the state of the connection behind a mutex, for the reader may be lent
//! to a body that is read in another thread. Nobody waits while holding it.

use std::io::{self, BufRead, IoSlice, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use rustls::ServerConnection;
use smallvec::SmallVec;
use tokio::io::ReadBuf;

use crate::clock::deadline::Stopwatch;
use crate::net::socket::Socket;
use crate::net::tls::records::Records;
use crate::net::{conn, writer};

/// The receiving direction.
pub(crate) struct ReadHalf {
    half: conn::ReadHalf,
    state: Shared,
}

/// The sending direction.
pub(crate) struct WriteHalf {
    half: writer::WriteHalf,
    state: Shared,
}

type Shared = Arc<Mutex<State>>;

struct State {
    connection: ServerConnection,
    /// What was received and not yet decrypted. An idle connection has no such buffer.
    ciphertext: BytesMut,
    /// What ended the input.
    broken: Option<rustls::Error>,
    records: Records,
    /// Plaintext was taken whose records have not all been sent.
    unsent: bool,
}

/// The room for one receive: a whole record (RFC 8446 §5.2).
const RECEIVE_BYTES: usize = 5 + (16 << 10) + 256;

/// A body may be received in larger pieces.
const MOST_RECEIVE_BYTES: usize = 64 << 10;

/// How much plaintext is encrypted before it is sent: a head and a piece of a file. In small
/// records that is less than the 64 slices that rustls gives to one system call.
const BATCH_BYTES: usize = 68 << 10;

/// The halves of a connection whose handshake is over, with what was read behind that.
pub(crate) fn split(
    mut connection: ServerConnection,
    ciphertext: BytesMut,
    read: conn::ReadHalf,
    write: writer::WriteHalf,
) -> (ReadHalf, WriteHalf) {
    // We bound what waits ourselves; a batch has more bytes when it is encrypted.
    connection.set_buffer_limit(None);
    let (records, broken, unsent) = (Records::new(), None, false);
    let state = State { connection, ciphertext, broken, records, unsent };
    let state = Arc::new(Mutex::new(state));
    (ReadHalf { half: read, state: state.clone() }, WriteHalf { half: write, state })
}

fn lock(state: &Shared) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ReadHalf {
    /// Ready when there is plaintext, or will be none any more. While it waits there is no
    /// buffer.
    pub(crate) fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        lock(&self.state).poll_plaintext(&mut self.half, RECEIVE_BYTES, cx)
    }

    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut state = lock(&self.state);
        ready!(state.poll_plaintext(&mut self.half, room.remaining(), cx))?;
        state.take(room.remaining(), |plaintext| room.put_slice(plaintext));
        Poll::Ready(Ok(()))
    }

    /// Reads into the space that a buffer has. 0 is the end.
    pub(crate) fn poll_fill(
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
    /// Receives and decrypts until there is plaintext, or will be none any more.
    fn poll_plaintext(
        &mut self,
        half: &mut conn::ReadHalf,
        room: usize,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            match self.connection.reader().fill_buf() {
                Ok(_) => return Poll::Ready(Ok(())),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The connection ended, and nobody has said that it would: RFC 8446 §6.1.
                Err(_) => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
            }
            if let Some(error) = &self.broken {
                return Poll::Ready(Err(broken(error.clone())));
            }
            if self.ciphertext.is_empty() {
                let received = match half.poll_readable(cx) {
                    Poll::Ready(Ok(())) => {
                        self.ciphertext.reserve(room.clamp(RECEIVE_BYTES, MOST_RECEIVE_BYTES));
                        half.poll_fill(cx, &mut self.ciphertext)
                    }
                    Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                    Poll::Pending => Poll::Pending,
                };
                let Poll::Ready(received) = received else {
                    self.reply(half.socket());
                    self.ciphertext = BytesMut::new();
                    return Poll::Pending;
                };
                if received? == 0 {
                    self.connection.read_tls(&mut io::empty())?;
                    continue;
                }
            }
            self.decrypt();
            if self.broken.is_some() {
                self.reply(half.socket());
            }
        }
    }

    /// Decrypts what was received, until there is plaintext.
    fn decrypt(&mut self) {
        while !self.ciphertext.is_empty() {
            let fed = feed(&mut self.connection, &mut self.ciphertext);
            match fed {
                Ok(state) if state.peer_has_closed() => self.ciphertext.clear(),
                Ok(state) if state.plaintext_bytes_to_read() > 0 => return,
                Ok(_) => {}
                Err(error) => {
                    self.broken = Some(error);
                    self.ciphertext.clear();
                }
            }
        }
    }

    /// Hands out plaintext, as much as is at hand and has room.
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

    /// Sends what the protocol itself has to say, if the socket takes it at once. Otherwise it
    /// goes with whatever is sent next.
    fn reply(&mut self, socket: Option<Socket<'_>>) {
        let Some(socket) = socket else { return };
        // Somebody waits to send, and will.
        while !self.unsent && self.connection.wants_write() {
            if !matches!(self.connection.write_tls(&mut AtOnce(socket)), Ok(1..)) {
                return;
            }
        }
    }
}

/// Gives a part of what was received to rustls, and has it decrypted.
pub(crate) fn feed(
    connection: &mut ServerConnection,
    ciphertext: &mut BytesMut,
) -> Result<rustls::IoState, rustls::Error> {
    let length = connection.read_tls(&mut &ciphertext[..]);
    let length = length.map_err(|error| rustls::Error::General(error.to_string()))?;
    ciphertext.advance(length);
    connection.process_new_packets()
}

/// What the peer has made of the connection is its own doing.
fn broken(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, error)
}

impl WriteHalf {
    /// Takes plaintext, and sends its records as far as the socket takes them. Nothing more is
    /// taken before they are all sent.
    pub(crate) fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut state = lock(&self.state);
        while state.holds_back() {
            ready!(state.poll_send(&mut self.half, cx))?;
        }
        let taken = state.encrypt(slices)?;
        state.unsent = true;
        while state.holds_back() && state.poll_send(&mut self.half, cx)?.is_ready() {}
        Poll::Ready(Ok(taken))
    }

    /// Whether plaintext was taken whose records wait to be sent.
    pub(crate) fn holds_back(&self) -> bool {
        lock(&self.state).holds_back()
    }

    /// Sends of the records that wait; 0 when there are none.
    pub(crate) fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        lock(&self.state).poll_send(&mut self.half, cx)
    }

    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while ready!(self.poll_send(cx))? > 0 {}
        self.half.poll_flush(cx)
    }

    /// Sends of the records that wait to a socket that does not seem to be ready; `None` if it
    /// takes nothing.
    pub(crate) fn press(&mut self) -> Option<usize> {
        let mut state = lock(&self.state);
        let sent = state.connection.write_tls(&mut Pressing(self.half.socket()?));
        state.unsent &= state.connection.wants_write();
        sent.ok().filter(|&sent| sent > 0)
    }

    /// Says that nothing more comes, and ends the direction below.
    pub(crate) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        lock(&self.state).connection.send_close_notify();
        ready!(self.poll_flush(cx))?;
        self.half.poll_shutdown(cx)
    }

    /// Says that nothing more comes, if the socket takes that at once.
    pub(crate) fn say_goodbye(&mut self) {
        let mut state = lock(&self.state);
        state.connection.send_close_notify();
        state.reply(self.half.socket());
    }

    /// What is below.
    pub(crate) fn plain(&self) -> &writer::WriteHalf {
        &self.half
    }

    pub(crate) fn into_plain(self) -> writer::WriteHalf {
        self.half
    }
}

impl State {
    fn holds_back(&self) -> bool {
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

    /// Makes records of plaintext; how much of it is the result.
    fn encrypt(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let length = slices.iter().map(|slice| slice.len()).sum::<usize>().min(BATCH_BYTES);
        self.records.begin(Stopwatch::start());
        let mut taken = 0;
        while taken < length {
            let next = self.records.next(length - taken);
            let part = part(slices, taken, next);
            let written = self.connection.writer().write_vectored(&part);
            taken +=
                written.map_err(|error| io::Error::new(io::ErrorKind::ConnectionAborted, error))?;
        }
        Ok(taken)
    }
}

/// So many bytes of the slices, from some place on.
fn part<'a>(
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

/// Sends of the records that wait; 0 when there are none.
pub(crate) fn poll_send(
    connection: &mut ServerConnection,
    half: &mut writer::WriteHalf,
    cx: &mut Context<'_>,
) -> Poll<io::Result<usize>> {
    if !connection.wants_write() {
        return Poll::Ready(Ok(0));
    }
    match connection.write_tls(&mut Patient { half, cx }) {
        Ok(0) => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
        Ok(sent) => Poll::Ready(Ok(sent)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
        Err(error) => Poll::Ready(Err(error)),
    }
}

/// Sends to a transport, whose task is woken when it takes more.
struct Patient<'a, 'cx> {
    half: &'a mut writer::WriteHalf,
    cx: &'a mut Context<'cx>,
}

impl Write for Patient<'_, '_> {
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

/// Sends to a socket what it takes at once.
struct AtOnce<'a>(Socket<'a>);

impl Write for AtOnce<'_> {
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

/// Sends to a socket that does not seem to be ready.
struct Pressing<'a>(Socket<'a>);

impl Write for Pressing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.press_slices(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
