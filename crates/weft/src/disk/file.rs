//! Open files, files in memory, and the version of their contents.

use std::fs;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use crate::error::{Error, ErrorKind};

/// An open file, or a part of it, as a payload. It is sent without being copied through the process
/// (`sendfile(2)`).
#[derive(Clone, Debug)]
pub struct File {
    pub(crate) source: Source,
    pub(crate) start: u64,
    pub(crate) length: u64,
    pub(crate) version: Option<FileVersion>,
    /// Set for a cached file once all of it was found in the page cache.
    pub(crate) is_resident: Option<Arc<AtomicBool>>,
}

/// The location of a file's bytes.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    Open(Arc<fs::File>),
    Memory(Bytes),
}

/// The attributes that identify a version of a file's contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileVersion {
    device: u64,
    inode: u64,
    length: u64,
    /// Seconds and nanoseconds since 1970; `None` for bytes that are not from a file.
    modified: Option<(i64, i64)>,
    /// Time of the last change of contents or metadata (`ctime`). Unlike the modification time, it
    /// cannot be set: a copy may give different contents the old modification time. It is not sent
    /// to clients, because a rename or a change of permissions also changes it.
    changed: (i64, i64),
}

fn after_1970(seconds: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

impl FileVersion {
    pub(crate) fn new(metadata: &fs::Metadata) -> FileVersion {
        FileVersion {
            device: metadata.dev(),
            inode: metadata.ino(),
            length: metadata.len(),
            modified: Some((metadata.mtime(), metadata.mtime_nsec())),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Returns `true` if an open file still has this version. An open descriptor always refers to
    /// the same file, so comparing length and times is sufficient.
    pub(crate) fn matches(&self, file: &fs::File) -> bool {
        // Cheaper than `statx(2)`, which the standard library uses.
        rustix::fs::fstat(file).is_ok_and(|stat| {
            let modified = (stat.st_mtime, stat.st_mtime_nsec as i64);
            let changed = (stat.st_ctime, stat.st_ctime_nsec as i64);
            stat.st_size as u64 == self.length
                && Some(modified) == self.modified
                && changed == self.changed
        })
    }

    /// Returns a strong validator (RFC 9110 §8.8.3), as far as the resolution of file times, in
    /// nanoseconds, permits.
    pub(crate) fn etag(&self) -> String {
        let FileVersion { device, inode, length, .. } = self;
        let (seconds, nanoseconds) = self.modified.unwrap_or_default();
        format!("\"{device:x}-{inode:x}-{length:x}-{seconds:x}.{nanoseconds:x}\"")
    }

    /// Returns the version of constant bytes.
    pub(crate) fn from_bytes(bytes: &[u8]) -> FileVersion {
        // The default keys are constant, so all workers and all processes compute the same version.
        let mut hasher = std::hash::DefaultHasher::new();
        bytes.hash(&mut hasher);
        let length = bytes.len() as u64;
        let changed = (0, 0);
        FileVersion { device: 0, inode: hasher.finish(), length, modified: None, changed }
    }

    /// Time of the last change of contents or metadata, in whole seconds.
    pub(crate) fn changed(&self) -> SystemTime {
        after_1970(self.changed.0)
    }

    /// Modification time, in whole seconds.
    pub(crate) fn modified(&self) -> Option<SystemTime> {
        self.modified.map(|(seconds, _)| after_1970(seconds))
    }

    /// Returns `true` if this version was modified before `other`.
    pub(crate) fn is_older_than(&self, other: &FileVersion) -> bool {
        self.modified < other.modified
    }
}

impl File {
    /// Creates a payload from an open file, with its current length. In a response with status 200,
    /// the engine adds `ETag` and `Last-Modified`, and evaluates preconditions (RFC 9110 §13) and
    /// ranges (§14).
    ///
    /// If the file is truncated before it is sent, the connection is closed, so that the client
    /// detects an incomplete response.
    ///
    /// # Errors
    /// The errors of `fstat(2)`.
    pub fn open(file: impl Into<Arc<fs::File>>) -> std::io::Result<File> {
        let file = file.into();
        let metadata = file.metadata()?;
        Ok(File::with_metadata(file, &metadata))
    }

    pub(crate) fn with_metadata(file: impl Into<Arc<fs::File>>, metadata: &fs::Metadata) -> File {
        let (source, version) = (Source::Open(file.into()), Some(FileVersion::new(metadata)));
        File { source, start: 0, length: metadata.len(), version, is_resident: None }
    }

    /// Creates a payload from the `length` bytes of an open file that start at `start`. It has no
    /// validators, except those that the application sets.
    pub fn new(file: impl Into<Arc<fs::File>>, start: u64, length: u64) -> File {
        File { source: Source::Open(file.into()), start, length, version: None, is_resident: None }
    }

    /// Creates a file from static bytes.
    pub(crate) fn from_static(bytes: &'static [u8]) -> File {
        let version = Some(FileVersion::from_bytes(bytes));
        let length = bytes.len() as u64;
        let source = Source::Memory(Bytes::from_static(bytes));
        File { source, start: 0, length, version, is_resident: None }
    }

    /// Returns a part of the file. `range` must be within it.
    pub(crate) fn slice(self, range: Range<u64>) -> File {
        let start = self.start.saturating_add(range.start);
        File { start, length: range.end - range.start, ..self }
    }

    /// Returns `true` if this is the whole file, not a part of it.
    pub(crate) fn is_whole(&self) -> bool {
        self.start == 0 && self.version.is_some_and(|version| version.length == self.length)
    }

    /// Removes the first `sent` bytes.
    ///
    /// # Errors
    /// If `sent` is 0: the file is shorter than its length at opening.
    pub(crate) fn advance(&mut self, sent: usize) -> Result<(), Error> {
        if sent == 0 {
            let reason = "the file was truncated while it was sent";
            return Err(Error::new(ErrorKind::LengthMismatch, reason));
        }
        self.start = self.start.saturating_add(sent as u64);
        self.length -= sent as u64;
        Ok(())
    }

    /// Returns the bytes, after reading them into memory if necessary.
    pub(crate) fn read(&self) -> std::io::Result<Bytes> {
        match &self.source {
            Source::Memory(_) => Ok(self.in_memory().unwrap_or_default()),
            Source::Open(file) => {
                let mut bytes = vec![0; self.length as usize];
                file.read_exact_at(&mut bytes, self.start)?;
                Ok(bytes.into())
            }
        }
    }

    /// Returns the bytes, if they are in memory.
    pub(crate) fn in_memory(&self) -> Option<Bytes> {
        match &self.source {
            Source::Memory(bytes) => Some(bytes.slice(self.range())),
            Source::Open(_) => None,
        }
    }

    /// Returns the bytes as a slice, if they are in memory.
    pub(crate) fn as_slice(&self) -> Option<&[u8]> {
        match &self.source {
            Source::Memory(bytes) => Some(&bytes[self.range()]),
            Source::Open(_) => None,
        }
    }

    fn range(&self) -> Range<usize> {
        self.start as usize..(self.start + self.length) as usize
    }

    /// Replaces the source of the file with these bytes in memory.
    pub(crate) fn with_bytes(self, bytes: Bytes) -> File {
        File { source: Source::Memory(bytes), ..self }
    }
}
