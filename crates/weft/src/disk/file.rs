//! An open file, or contents in memory, and the version of those contents.

use std::fs;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use crate::error::{Error, ErrorKind};

/// An open file, or a part of it, as a payload. It leaves the process without
/// passing through it (`sendfile(2)`).
#[derive(Clone, Debug)]
pub struct File {
    pub(crate) source: Source,
    pub(crate) start: u64,
    pub(crate) length: u64,
    pub(crate) version: Option<FileVersion>,
    /// Whether all of it was in memory when somebody looked lately; for files that are kept.
    pub(crate) is_resident: Option<Arc<AtomicBool>>,
}

/// Where a file's bytes are.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    Open(Arc<fs::File>),
    Memory(Bytes),
}

/// What tells one version of a file's contents from all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileVersion {
    device: u64,
    inode: u64,
    length: u64,
    /// Seconds and nanoseconds since 1970; none for bytes that were never a file's.
    modified: Option<(i64, i64)>,
    /// When contents or metadata last changed, which nobody can set: a copy may have given
    /// other contents the old time of modification. Not told to clients, for a new name or
    /// new permissions change it too.
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

    /// Whether an open file is still of this version. It cannot have become another file, so
    /// that its length and its times tell.
    pub(crate) fn is_of(&self, file: &fs::File) -> bool {
        // Cheaper than `statx(2)`, which the standard library has.
        rustix::fs::fstat(file).is_ok_and(|stat| {
            let modified = (stat.st_mtime, stat.st_mtime_nsec as i64);
            let changed = (stat.st_ctime, stat.st_ctime_nsec as i64);
            stat.st_size as u64 == self.length
                && Some(modified) == self.modified
                && changed == self.changed
        })
    }

    /// A strong validator (RFC 9110 §8.8.3), as far as a clock with nanoseconds is fine
    /// enough.
    pub(crate) fn etag(&self) -> String {
        let FileVersion { device, inode, length, .. } = self;
        let (seconds, nanoseconds) = self.modified.unwrap_or_default();
        format!("\"{device:x}-{inode:x}-{length:x}-{seconds:x}.{nanoseconds:x}\"")
    }

    /// The version of bytes that do not change.
    pub(crate) fn of_bytes(bytes: &[u8]) -> FileVersion {
        // With keys that are always the same, so that all workers and all runs agree.
        let mut hasher = std::hash::DefaultHasher::new();
        bytes.hash(&mut hasher);
        let length = bytes.len() as u64;
        let changed = (0, 0);
        FileVersion { device: 0, inode: hasher.finish(), length, modified: None, changed }
    }

    /// When contents or metadata last changed, to the second.
    pub(crate) fn changed(&self) -> SystemTime {
        after_1970(self.changed.0)
    }

    /// When the file was modified, to the second.
    pub(crate) fn modified(&self) -> Option<SystemTime> {
        self.modified.map(|(seconds, _)| after_1970(seconds))
    }

    /// Whether it was modified before another one.
    pub(crate) fn is_older_than(&self, other: &FileVersion) -> bool {
        self.modified < other.modified
    }
}

impl File {
    /// The whole of an open file, as long as it is now. The engine answers requests for
    /// it with `ETag` and `Last-Modified`, and heeds preconditions (RFC 9110 §13) and
    /// ranges (§14), in a response of status 200.
    ///
    /// If the file is shorter when it is sent, the connection closes: the client sees the
    /// response as cut.
    ///
    /// # Errors
    /// Those of `fstat(2)`.
    pub fn open(file: impl Into<Arc<fs::File>>) -> std::io::Result<File> {
        let file = file.into();
        let metadata = file.metadata()?;
        Ok(File::with_metadata(file, &metadata))
    }

    pub(crate) fn with_metadata(file: impl Into<Arc<fs::File>>, metadata: &fs::Metadata) -> File {
        let (source, version) = (Source::Open(file.into()), Some(FileVersion::new(metadata)));
        File { source, start: 0, length: metadata.len(), version, is_resident: None }
    }

    /// The `length` bytes of an open file that begin at `start`, as a body of its own: it
    /// has no validators but those that the application sets.
    pub fn new(file: impl Into<Arc<fs::File>>, start: u64, length: u64) -> File {
        File { source: Source::Open(file.into()), start, length, version: None, is_resident: None }
    }

    /// Bytes that are always in memory, as a file.
    pub(crate) fn of_bytes(bytes: &'static [u8]) -> File {
        let version = Some(FileVersion::of_bytes(bytes));
        let length = bytes.len() as u64;
        let source = Source::Memory(Bytes::from_static(bytes));
        File { source, start: 0, length, version, is_resident: None }
    }

    /// A part of this, which must be within it.
    pub(crate) fn part(self, range: Range<u64>) -> File {
        let start = self.start.saturating_add(range.start);
        File { start, length: range.end - range.start, ..self }
    }

    /// Whether it is all of what it was opened as.
    pub(crate) fn is_whole(&self) -> bool {
        self.start == 0 && self.version.is_some_and(|version| version.length == self.length)
    }

    /// Takes off what was sent.
    ///
    /// # Errors
    /// If there was nothing to be sent: then the file is shorter than it was said to be.
    pub(crate) fn advance(&mut self, sent: usize) -> Result<(), Error> {
        if sent == 0 {
            let reason = "the file became shorter while it was sent";
            return Err(Error::new(ErrorKind::LengthMismatch, reason));
        }
        self.start = self.start.saturating_add(sent as u64);
        self.length -= sent as u64;
        Ok(())
    }

    /// The bytes, read into memory if they are not there.
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

    /// The bytes, if they are in memory.
    pub(crate) fn in_memory(&self) -> Option<Bytes> {
        match &self.source {
            Source::Memory(bytes) => Some(bytes.slice(self.place())),
            Source::Open(_) => None,
        }
    }

    /// The same, to be copied.
    pub(crate) fn contents(&self) -> Option<&[u8]> {
        match &self.source {
            Source::Memory(bytes) => Some(&bytes[self.place()]),
            Source::Open(_) => None,
        }
    }

    fn place(&self) -> Range<usize> {
        self.start as usize..(self.start + self.length) as usize
    }

    /// The same file, whose bytes are these.
    pub(crate) fn with_bytes(self, bytes: Bytes) -> File {
        File { source: Source::Memory(bytes), ..self }
    }
}
