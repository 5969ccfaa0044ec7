//! Output of a connection until it is written. Pure: the caller writes.
//!
//! Small pieces are copied together, so that a head and a short body, or the responses to several
//! pipelined requests, go out in one system call. A large piece is not copied: its [`Bytes`] are
//! kept by reference and written between the bytes before and after it.
//!
//! ```
//! use bytes::{Buf, Bytes};
//! use weft_proto::write_buffer::WriteBuffer;
//!
//! let mut buffer = WriteBuffer::new(1_000, 8_000);
//! buffer.tail().extend_from_slice(b"head");
//! buffer.push(Bytes::from(vec![b'x'; 4_000]));
//! buffer.tail().extend_from_slice(b"end");
//! assert_eq!((buffer.remaining(), buffer.chunk()), (4_007, &b"head"[..]));
//! ```

use std::io::IoSlice;

use bytes::{Buf, Bytes};

/// Buffered output, in the order in which it was appended. [`Buf`] reads it: `chunk` or
/// `chunks_vectored` for a write, `advance` after it.
pub struct WriteBuffer {
    /// Copied bytes, and the number of them already written.
    copied: Vec<u8>,
    written: usize,
    /// A large piece kept by reference, and its position among the copied bytes.
    large: Bytes,
    large_at: usize,
    large_bytes: usize,
    full_bytes: usize,
}

/// The position after the bytes buffered at one time. Valid until bytes are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    copied: usize,
    is_after_large: bool,
}

impl WriteBuffer {
    /// Maximum number of slices of a vectored write.
    pub const MAX_SLICES: usize = 3;

    /// Creates a buffer that keeps pieces of `large_bytes` or more by reference, and is full with
    /// `full_bytes`. Allocates nothing.
    pub fn new(large_bytes: usize, full_bytes: usize) -> WriteBuffer {
        let (copied, large) = (Vec::new(), Bytes::new());
        // An empty buffer is never full.
        let full_bytes = full_bytes.max(1);
        WriteBuffer { copied, written: 0, large, large_at: 0, large_bytes, full_bytes }
    }

    /// The end of the buffer: bytes appended to the vector follow everything buffered before. Only
    /// bytes appended since the call may be changed or removed.
    #[inline]
    pub fn tail(&mut self) -> &mut Vec<u8> {
        &mut self.copied
    }

    /// Appends a piece. It is kept by reference if it is large and no other such piece is buffered,
    /// which makes the buffer [full](WriteBuffer::is_full); otherwise it is copied.
    #[inline]
    pub fn push(&mut self, piece: Bytes) {
        if !self.push_copy(&piece) {
            (self.large, self.large_at) = (piece, self.copied.len());
        }
    }

    /// Appends a copy of a small piece. Returns false, and appends nothing, if `push` would keep
    /// the piece by reference.
    #[inline]
    pub fn push_copy(&mut self, piece: &[u8]) -> bool {
        let is_copied = piece.len() < self.large_bytes || !self.large.is_empty();
        if is_copied {
            self.copied.extend_from_slice(piece);
        }
        is_copied
    }

    /// Returns true if nothing is left to be written.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.copied.len() == self.written && self.large.is_empty()
    }

    /// Returns true if the output should be written before more is appended: a large piece is
    /// buffered, or many bytes.
    #[inline]
    pub fn is_full(&self) -> bool {
        !self.large.is_empty() || self.copied.len() - self.written >= self.full_bytes
    }

    /// The number of buffered bytes from which the buffer is full.
    pub fn full_bytes(&self) -> usize {
        self.full_bytes
    }

    /// Frees the memory of written bytes if they are many, while a write waits for the peer.
    pub fn compact(&mut self) {
        if self.written >= self.full_bytes {
            self.copied.drain(..self.written);
            self.large_at = self.large_at.saturating_sub(self.written);
            self.written = 0;
        }
    }

    /// Marks the current end of the output.
    #[inline]
    pub fn mark(&self) -> Mark {
        Mark { copied: self.copied.len(), is_after_large: !self.large.is_empty() }
    }

    /// Removes everything after a mark.
    pub fn truncate(&mut self, mark: Mark) {
        self.copied.truncate(mark.copied);
        if !mark.is_after_large {
            self.large = Bytes::new();
        }
    }

    /// Inserts bytes at a mark, which moves to their end.
    pub fn insert(&mut self, mark: &mut Mark, bytes: &[u8]) {
        self.copied.splice(mark.copied..mark.copied, bytes.iter().copied());
        if !mark.is_after_large {
            self.large_at += bytes.len();
        }
        mark.copied += bytes.len();
    }

    /// Sets the storage of an empty buffer, for instance to an allocation from a pool.
    #[inline]
    pub fn set_storage(&mut self, storage: Vec<u8>) {
        debug_assert!(self.is_empty() && storage.is_empty());
        self.copied = storage;
    }

    /// Discards the output and returns the storage, which is empty.
    #[inline]
    pub fn take_storage(&mut self) -> Vec<u8> {
        if !self.large.is_empty() {
            self.large = Bytes::new();
        }
        self.written = 0;
        self.copied.clear();
        std::mem::take(&mut self.copied)
    }

    /// Advances the large piece, of `count` bytes that were written. Returns its share of them.
    fn advance_large(&mut self, count: usize) -> usize {
        let (before, _) = self.around_large();
        let share = count.saturating_sub(before.len()).min(self.large.len());
        self.large.advance(share);
        if self.large.is_empty() {
            // An empty slice would keep the allocation of the whole body alive.
            self.large = Bytes::new();
        }
        share
    }

    /// The copied bytes before the large piece, and the copied bytes after it.
    fn around_large(&self) -> (&[u8], &[u8]) {
        let before_end = self.large_at.clamp(self.written, self.copied.len());
        (&self.copied[self.written..before_end], &self.copied[before_end..])
    }
}

impl Buf for WriteBuffer {
    #[inline]
    fn remaining(&self) -> usize {
        self.copied.len() - self.written + self.large.len()
    }

    #[inline]
    fn chunk(&self) -> &[u8] {
        if self.large.is_empty() {
            return &self.copied[self.written..];
        }
        match self.around_large() {
            ([], _) => &self.large,
            (before, _) => before,
        }
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let (before, after) = match self.large.is_empty() {
            true => (&self.copied[self.written..], &[][..]),
            false => self.around_large(),
        };
        let parts = [before, &self.large, after].into_iter().filter(|part| !part.is_empty());
        let mut count = 0;
        for (slice, part) in slices.iter_mut().zip(parts) {
            *slice = IoSlice::new(part);
            count += 1;
        }
        count
    }

    #[inline]
    fn advance(&mut self, count: usize) {
        let of_large = match self.large.is_empty() {
            true => 0,
            false => self.advance_large(count),
        };
        self.written += count - of_large;
        assert!(self.written <= self.copied.len(), "more bytes written than buffered");
        if self.is_empty() {
            self.copied.clear();
            self.written = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A buffer with a part before a large piece, the piece, and a part after it.
    fn filled() -> (WriteBuffer, Vec<u8>) {
        let mut buffer = WriteBuffer::new(8, 64);
        buffer.push(Bytes::from_static(b"before "));
        buffer.push(Bytes::from_static(b"large piece"));
        buffer.tail().extend_from_slice(b" after");
        buffer.push(Bytes::from_static(b", second large piece"));
        (buffer, b"before large piece after, second large piece".to_vec())
    }

    fn contents(buffer: &WriteBuffer) -> Vec<u8> {
        let mut slices = [IoSlice::new(&[]); WriteBuffer::MAX_SLICES];
        let count = buffer.chunks_vectored(&mut slices);
        assert!(slices[..count].iter().all(|slice| !slice.is_empty()));
        let contents: Vec<u8> = slices[..count].iter().flat_map(|slice| slice.to_vec()).collect();
        assert_eq!(contents.len(), buffer.remaining());
        assert!(contents.starts_with(buffer.chunk()));
        assert_eq!(contents.is_empty(), buffer.is_empty());
        contents
    }

    #[test]
    fn keeps_the_order_and_copies_only_small_pieces() {
        let large = Bytes::from_static(b"large piece");
        let mut buffer = WriteBuffer::new(8, 64);
        assert!(buffer.is_empty() && !buffer.is_full() && contents(&buffer).is_empty());
        assert!(buffer.push_copy(b"before ") && !buffer.push_copy(&large));
        assert!(!buffer.is_full());
        buffer.push(large.clone());
        assert!(buffer.is_full());
        assert!(buffer.push_copy(b" and no second one by reference"));
        assert_eq!(contents(&buffer), b"before large piece and no second one by reference");
        buffer.advance(7);
        assert_eq!(buffer.chunk().as_ptr(), large.as_ptr());
    }

    #[test]
    fn advances_over_every_split() {
        let (_, expected) = filled();
        for first in 0..=expected.len() {
            for second in 0..=expected.len() - first {
                let (mut buffer, _) = filled();
                buffer.advance(first);
                assert_eq!(contents(&buffer), expected[first..]);
                buffer.advance(second);
                assert_eq!(contents(&buffer), expected[first + second..]);
                buffer.tail().extend_from_slice(b"more");
                assert_eq!(contents(&buffer), [&expected[first + second..], b"more"].concat());
            }
        }
    }

    #[test]
    #[should_panic(expected = "more bytes written than buffered")]
    fn advance_beyond_the_end_panics() {
        WriteBuffer::new(8, 64).advance(1);
    }

    #[test]
    fn is_full_at_the_limit_until_bytes_are_written() {
        let mut buffer = WriteBuffer::new(100, 4);
        for (piece, is_full) in [("abc", false), ("d", true), ("e", true)] {
            buffer.tail().extend_from_slice(piece.as_bytes());
            assert_eq!(buffer.is_full(), is_full, "{piece}");
        }
        buffer.advance(2);
        assert!(!buffer.is_full());
        assert!(!WriteBuffer::new(100, 0).is_full());
    }

    #[test]
    fn releases_a_written_large_piece() {
        let large = Bytes::from(vec![b'x'; 100]);
        let mut buffer = WriteBuffer::new(8, 64);
        buffer.push(large.clone());
        buffer.tail().extend_from_slice(b"rest");
        assert!(!large.is_unique());
        buffer.advance(100);
        assert!(large.is_unique() && !buffer.is_full());
    }

    #[test]
    fn compacts_written_bytes() {
        for written in [0, 5, 6, 7, 10, 18, 20] {
            let (mut buffer, expected) = filled();
            buffer.full_bytes = 6;
            buffer.advance(written);
            buffer.compact();
            assert!(buffer.written < 6);
            assert_eq!(contents(&buffer), expected[written..]);
        }
    }

    #[test]
    fn truncates_and_inserts_at_a_mark() {
        let large = || Bytes::from_static(b"large piece");
        let mut buffer = WriteBuffer::new(8, 64);
        buffer.tail().extend_from_slice(b"first, ");
        let mut mark = buffer.mark();
        buffer.tail().extend_from_slice(b"second ");
        buffer.push(large());
        buffer.insert(&mut mark, b"interim, ");
        assert_eq!(contents(&buffer), b"first, interim, second large piece");
        buffer.truncate(mark);
        assert_eq!(contents(&buffer), b"first, interim, ");
        // A mark behind a large piece, where no bytes were copied since.
        buffer.push(large());
        let mut mark = buffer.mark();
        buffer.insert(&mut mark, b", inserted");
        buffer.tail().extend_from_slice(b", removed");
        buffer.truncate(mark);
        assert_eq!(contents(&buffer), b"first, interim, large piece, inserted");
    }

    #[test]
    fn storage_is_reused() {
        let (mut buffer, _) = filled();
        buffer.advance(3);
        let storage = buffer.take_storage();
        assert!(storage.is_empty() && storage.capacity() > 0 && buffer.is_empty());
        let address = storage.as_ptr();
        buffer.set_storage(storage);
        assert_eq!(buffer.tail().as_ptr(), address);
        buffer.tail().extend_from_slice(b"x");
        assert_eq!(contents(&buffer), b"x");
    }
}
