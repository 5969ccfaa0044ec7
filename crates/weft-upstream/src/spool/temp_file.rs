//! Unnamed temporary files for bodies.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use super::SpoolLimits;
use super::buffer_space::Share;

/// Maximum size of one read from a file, in bytes. A slow client keeps that much in memory.
pub(crate) const READ_BYTES: usize = 32 << 10;

/// The kind of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Written as its client sends it.
    Request,
    /// Written without a cost for its client, which has a limit on unread bytes therefore.
    Response,
}

/// A temporary file that is written at its end and read from its start. It has no name, so that it
/// ends with the process; after all of it was read, it is written from the start again.
pub(crate) struct TempFile {
    /// `None` before the first write.
    file: Option<Arc<File>>,
    unread: Range<u64>,
    limits: Arc<SpoolLimits>,
    share: Arc<Share>,
    kind: Kind,
    /// Size of the last read. Its bytes may still wait for the client.
    last_read: u64,
    /// Part of the disk space: the largest offset ever written.
    reserved: u64,
    /// A write has failed, for example because the disk is full. No more is written.
    has_failed: bool,
}

/// A write to a temporary file. It may block.
pub(crate) struct Write {
    file: Option<Arc<File>>,
    at: u64,
    pieces: Vec<Bytes>,
}

/// The file after a successful write, or the pieces that were not written.
pub(crate) type Written = Result<Arc<File>, (io::Error, Vec<Bytes>)>;

/// A read from a temporary file. It may block.
pub(crate) struct Read {
    file: Arc<File>,
    at: u64,
    length: usize,
}

impl TempFile {
    pub(crate) fn new(limits: Arc<SpoolLimits>, share: Arc<Share>, kind: Kind) -> TempFile {
        TempFile {
            file: None,
            unread: 0..0,
            limits,
            share,
            kind,
            last_read: 0,
            reserved: 0,
            has_failed: false,
        }
    }

    /// Starts to append pieces with this number of bytes; `None` if there is no space for them.
    pub(crate) fn start_write(
        &mut self,
        bytes: usize,
        take: impl FnOnce() -> Vec<Bytes>,
    ) -> Option<Write> {
        if self.unread.is_empty() {
            self.unread = 0..0;
        }
        let (at, bytes) = (self.unread.end, bytes as u64);
        let end = at + bytes;
        let missing = end.saturating_sub(self.reserved);
        let is_permitted = !self.has_failed && end <= self.limits.max_file_bytes;
        if !is_permitted || !self.share.reserve_disk(missing, bytes, self.kind) {
            return None;
        }
        self.reserved += missing;
        Some(Write { file: self.file.clone(), at, pieces: take() })
    }

    /// Returns true if there seems to be space for this number of bytes.
    pub(crate) fn may_write(&self, bytes: usize) -> bool {
        let (at, bytes) = (if self.unread.is_empty() { 0 } else { self.unread.end }, bytes as u64);
        let missing = (at + bytes).saturating_sub(self.reserved);
        !self.has_failed
            && at + bytes <= self.limits.max_file_bytes
            && self.share.may_reserve_disk(missing, bytes, self.kind)
    }

    /// Ends a write of this number of bytes. Returns the pieces that were not written.
    pub(crate) fn finish_write(&mut self, bytes: usize, written: Written) -> Vec<Bytes> {
        match written {
            Ok(file) => {
                self.file = Some(file);
                self.unread.end += bytes as u64;
                Vec::new()
            }
            Err((error, pieces)) => {
                self.has_failed = true;
                self.share.space.warning.warn(&format!(
                    "cannot write a temporary file in {}: {error}; bodies are buffered in memory \
                     only",
                    std::env::temp_dir().display()
                ));
                pieces
            }
        }
    }

    /// Returns the next read; `None` if everything was read.
    pub(crate) fn next_read(&self) -> Option<Read> {
        let file = self.file.clone().filter(|_| !self.unread.is_empty())?;
        let length = (self.unread.end - self.unread.start).min(READ_BYTES as u64) as usize;
        Some(Read { file, at: self.unread.start, length })
    }

    pub(crate) fn finish_read(&mut self, bytes: usize) {
        self.unread.start += bytes as u64;
        // The reader reads again when the client has taken the bytes of the last read.
        let taken = std::mem::replace(&mut self.last_read, bytes as u64);
        self.share.record_read(taken, self.kind);
    }

    pub(crate) fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        // Most bodies use no file, and the counter is shared by all workers.
        if self.reserved > 0 {
            self.share.release_disk(self.reserved);
            self.share.record_unread(self.unread.end - self.unread.start, self.kind);
        }
    }
}

impl Write {
    #[cfg(test)]
    pub(crate) fn new(file: Option<Arc<File>>, at: u64, pieces: Vec<Bytes>) -> Write {
        Write { file, at, pieces }
    }

    /// Writes the pieces. Creates the file before its first write.
    pub(crate) fn run(self) -> Written {
        let Write { file, at, pieces } = self;
        match write_pieces(file, at, &pieces) {
            Ok(file) => Ok(file),
            Err(error) => Err((error, pieces)),
        }
    }
}

fn write_pieces(file: Option<Arc<File>>, mut at: u64, pieces: &[Bytes]) -> io::Result<Arc<File>> {
    let file = match file {
        Some(file) => file,
        None => Arc::new(tempfile::tempfile()?),
    };
    for piece in pieces {
        file.write_all_at(piece, at)?;
        at += piece.len() as u64;
    }
    Ok(file)
}

impl Read {
    /// Reads bytes that are in the page cache; `None` if the read would wait for the disk, or if the file
    /// system does not support `RWF_NOWAIT`.
    pub(crate) fn try_now(&self) -> io::Result<Option<Bytes>> {
        let mut buffer = vec![0; self.length];
        let flags = ReadWriteFlags::NOWAIT;
        match preadv2(&*self.file, &mut [IoSliceMut::new(&mut buffer)], self.at, flags) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                buffer.truncate(read);
                Ok(Some(buffer.into()))
            }
            Err(Errno::INTR | Errno::AGAIN | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Returns a read of at most `max` bytes at the same place.
    pub(crate) fn limit(self, max: usize) -> Read {
        Read { length: self.length.min(max), ..self }
    }

    pub(crate) fn run(self) -> io::Result<Bytes> {
        let mut buffer = vec![0; self.length];
        self.file.read_exact_at(&mut buffer, self.at)?;
        Ok(buffer.into())
    }
}
