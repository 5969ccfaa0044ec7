//! The data that the reader of a spool has not taken yet. Decides between memory and file; performs
//! no I/O.

use std::collections::VecDeque;
use std::iter;

use bytes::{Bytes, BytesMut};

use super::file_io::{FileRead, FileWrite, FileWritten};
use super::temp_file::TempFile;

/// Pieces smaller than this are copied together if they are many: a small piece may keep a large
/// allocation alive.
const SMALL_BYTES: usize = 2 << 10;

/// Number of pieces from which small ones are copied. Fewer are passed on as they are.
const MANY_PIECES: usize = 16;

/// Pieces smaller than this are copied together from the second on: their overhead exceeds their
/// content.
const TINY_BYTES: usize = 128;

/// Size from which copied pieces form a piece of their own.
const JOINED_BYTES: usize = 16 << 10;

/// A queue of bytes in three parts: the oldest bytes in memory, then the bytes in the file, then
/// the newest bytes in memory. If the newest bytes become too many, they are written to the file.
pub(crate) struct Queue {
    oldest: Pieces,
    file: TempFile,
    /// Boxed, because few bodies are that large.
    newest: Option<Box<Pieces>>,
    /// Number of bytes that are being written to the file.
    in_flight: Option<usize>,
    /// Maximum of each of the two parts in memory.
    part_bytes: usize,
    /// No memory is available: bytes that are pushed are to be written to the file.
    is_short: bool,
}

/// The next step of the reader.
pub(crate) enum Next {
    Data(Bytes),
    /// A read from the file, which ends with [`Queue::finish_read`].
    Read(FileRead),
    /// The next bytes are still being written to the file.
    BeingWritten,
    Empty,
}

impl Queue {
    /// Creates a queue that keeps up to `memory_bytes` in memory.
    pub(crate) fn new(memory_bytes: usize, file: TempFile) -> Queue {
        let (oldest, newest) = (Pieces::default(), None);
        Queue {
            oldest,
            file,
            newest,
            in_flight: None,
            part_bytes: memory_bytes / 2,
            is_short: false,
        }
    }

    pub(crate) fn push(&mut self, mut piece: Bytes) {
        if !self.has_newer() {
            let room = self.max_part_bytes().saturating_sub(self.oldest.bytes).min(piece.len());
            if room > 0 {
                self.oldest.push(piece.split_to(room));
            }
        }
        if !piece.is_empty() {
            self.newest.get_or_insert_default().push(piece);
        }
    }

    /// Returns true if bytes have to be written or taken before more are pushed.
    pub(crate) fn is_full(&self) -> bool {
        let bytes = self.newest_bytes();
        bytes > 0 && bytes >= self.max_part_bytes()
    }

    /// Sets if bytes that are pushed may stay in memory.
    pub(crate) fn set_short(&mut self, is_short: bool) {
        self.is_short = is_short;
    }

    fn max_part_bytes(&self) -> usize {
        if self.is_short { 0 } else { self.part_bytes }
    }

    /// Returns true if there seems to be space in the file for the newest bytes and `more`.
    pub(crate) fn may_write(&self, more: usize) -> bool {
        self.file.may_write(self.newest_bytes() + more)
    }

    fn newest_bytes(&self) -> usize {
        self.newest.as_ref().map_or(0, |pieces| pieces.bytes)
    }

    /// Returns the number of bytes in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.oldest.bytes + self.newest_bytes() + self.in_flight.unwrap_or_default()
    }

    /// Starts to write the newest bytes to the file; `None` if there is no space for them.
    pub(crate) fn start_write(&mut self) -> Option<FileWrite> {
        let (bytes, newest) = (self.newest_bytes(), self.newest.get_or_insert_default());
        let is_first = !self.file.has_unread();
        let write = self.file.start_write(bytes, || newest.take_all())?;
        if is_first {
            self.oldest.compact();
        }
        self.in_flight = Some(bytes);
        Some(write)
    }

    pub(crate) fn finish_write(&mut self, written: FileWritten) {
        let bytes = self.in_flight.take().unwrap_or_default();
        let unwritten = self.file.finish_write(bytes, written);
        unwritten.into_iter().for_each(|piece| self.newest.get_or_insert_default().push(piece));
    }

    pub(crate) fn next(&mut self) -> Next {
        if let Some(piece) = self.oldest.pop() {
            return Next::Data(piece);
        }
        if let Some(read) = self.file.next_read() {
            return Next::Read(read);
        }
        if self.in_flight.is_some() {
            return Next::BeingWritten;
        }
        let newest = self.newest.as_mut().and_then(|pieces| pieces.pop());
        newest.map_or(Next::Empty, Next::Data)
    }

    /// Copies all bytes, if they are in memory.
    pub(crate) fn copy(&self) -> Option<Bytes> {
        let is_in_memory = !self.file.has_unread() && self.in_flight.is_none();
        let copy = || iter::once(&self.oldest).chain(self.newest.as_deref()).flat_map(Pieces::iter);
        is_in_memory.then(|| copy().collect::<Vec<_>>().concat().into())
    }

    pub(crate) fn finish_read(&mut self, bytes: usize) {
        self.file.finish_read(bytes);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.oldest.bytes == 0 && !self.has_newer()
    }

    /// Returns true if there are bytes after the oldest ones in memory.
    fn has_newer(&self) -> bool {
        self.file.has_unread() || self.in_flight.is_some() || self.newest_bytes() > 0
    }
}

/// Bytes in memory.
#[derive(Default)]
struct Pieces {
    whole: VecDeque<Bytes>,
    /// Small pieces after `whole`, copied together.
    joined: BytesMut,
    bytes: usize,
}

impl Pieces {
    fn push(&mut self, piece: Bytes) {
        self.bytes += piece.len();
        let is_joined = !self.joined.is_empty() || self.whole.len() >= MANY_PIECES;
        let is_tiny = piece.len() < TINY_BYTES && !self.whole.is_empty();
        if is_tiny || (piece.len() < SMALL_BYTES && is_joined) {
            self.joined.extend_from_slice(&piece);
            if self.joined.len() < JOINED_BYTES {
                return;
            }
            return self.end_joined();
        }
        self.end_joined();
        if self.whole.capacity() == 0 {
            // Clients may keep many bodies waiting that have one piece.
            self.whole.reserve_exact(1);
        }
        self.whole.push_back(piece);
    }

    fn end_joined(&mut self) {
        if !self.joined.is_empty() {
            self.whole.push_back(self.joined.split().freeze());
        }
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.whole.iter().map(|piece| &**piece).chain([&*self.joined])
    }

    fn pop(&mut self) -> Option<Bytes> {
        if self.whole.is_empty() {
            self.end_joined();
        }
        let piece = self.whole.pop_front()?;
        self.bytes -= piece.len();
        Some(piece)
    }

    /// Copies the pieces, which may be parts of larger allocations. They stay for a while.
    fn compact(&mut self) {
        let pieces = self.take_all();
        self.push(pieces.concat().into());
    }

    fn take_all(&mut self) -> Vec<Bytes> {
        self.end_joined();
        self.bytes = 0;
        self.whole.drain(..).collect()
    }
}
