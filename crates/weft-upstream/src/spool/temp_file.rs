//! A temporary file for a body, without a name.

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::SpoolLimits;
use super::body_kind::BodyKind;
use super::buffer_space::ClientShare;
use super::file_io::{FileRead, FileWrite, FileWritten};

/// Maximum size of one read from a file, in bytes. A slow client keeps that much in memory.
pub(crate) const READ_BYTES: usize = 32 << 10;

/// A temporary file that is written at its end and read from its start. It has no name, so that it
/// ends with the process; after all of it was read, it is written from the start again.
pub(crate) struct TempFile {
    /// `None` before the first write.
    file: Option<Arc<File>>,
    unread: Range<u64>,
    limits: Arc<SpoolLimits>,
    share: Arc<ClientShare>,
    kind: BodyKind,
    /// Size of the last read. Its bytes may still wait for the client.
    last_read: u64,
    /// Part of the disk space: the largest offset ever written.
    reserved: u64,
    /// A write has failed, for example because the disk is full. No more is written.
    has_failed: bool,
}

impl TempFile {
    pub(crate) fn new(
        limits: Arc<SpoolLimits>,
        share: Arc<ClientShare>,
        kind: BodyKind,
    ) -> TempFile {
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
    ) -> Option<FileWrite> {
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
        Some(FileWrite::new(self.file.clone(), at, take()))
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
    pub(crate) fn finish_write(&mut self, bytes: usize, written: FileWritten) -> Vec<Bytes> {
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
    pub(crate) fn next_read(&self) -> Option<FileRead> {
        let file = self.file.clone().filter(|_| !self.unread.is_empty())?;
        let length = (self.unread.end - self.unread.start).min(READ_BYTES as u64) as usize;
        Some(FileRead::new(file, self.unread.start, length))
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
