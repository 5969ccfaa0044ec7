//! Open files, files in memory, and the version of their contents.

use std::fs;
use std::hash::{Hash, Hasher};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use super::coded_copies::CodedCopies;
use crate::error::{Error, ErrorKind};
use crate::sys::{FileStat, fstat, read_exact_at};

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
    /// Compressed copies of a content in memory.
    pub(crate) copies: Option<Arc<CodedCopies>>,
}

/// The part of a [`File`] that was not sent yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unsent {
    pub(crate) start: u64,
    pub(crate) length: u64,
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
    length: u64,
    origin: Origin,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// A file of the file system. Times are in seconds and nanoseconds since 1970.
    Stored {
        device: u64,
        inode: u64,
        modified: (i64, i64),
        /// Time of the last change of contents or metadata (`ctime`). Unlike the modification time,
        /// it cannot be set: a copy may give different contents the old modification time. It
        /// differs between copies, and a rename or a change of permissions also changes it.
        changed: (i64, i64),
    },
    /// Constant bytes, by their hash.
    Constant { hash: u64 },
}

/// Time that a file must have been unchanged before its contents are cached, and before its
/// validator is strong. It is far longer than the resolution of the kernel's clock for file times.
const SETTLE_TIME: Duration = Duration::from_secs(2);

/// Modification times up to this one, in seconds since 1970, are set by build systems for
/// reproducible results (Nix, OSTree), and are the same for all versions of a file.
const MAX_CONSTANT_MTIME: i64 = 1;

impl FileVersion {
    /// Returns the version of a file with these attributes.
    pub(crate) fn new(stat: &FileStat) -> FileVersion {
        let FileStat { length, device, inode, modified, changed, .. } = *stat;
        FileVersion { length, origin: Origin::Stored { device, inode, modified, changed } }
    }

    /// Returns the version of constant bytes.
    pub(crate) fn from_bytes(bytes: &[u8]) -> FileVersion {
        // The default keys are constant, so all workers and all processes compute the same version.
        let mut hasher = std::hash::DefaultHasher::new();
        bytes.hash(&mut hasher);
        let origin = Origin::Constant { hash: hasher.finish() };
        FileVersion { length: bytes.len() as u64, origin }
    }

    /// Returns true if an open file still has this version. An open descriptor always refers to
    /// the same file, so comparing length and times is sufficient.
    pub(crate) fn matches(&self, file: &fs::File) -> bool {
        let Origin::Stored { modified, changed, .. } = self.origin else { return true };
        fstat(file).is_ok_and(|stat| {
            stat.length == self.length && stat.modified == modified && stat.changed == changed
        })
    }

    /// Returns the entity tag of a file without variants; see [`opaque_tag`](Self::opaque_tag). It
    /// is weak (RFC 9110 §8.8.1) until the file has settled: two changes within the resolution of
    /// file times have the same tag. `now` is in seconds since 1970.
    pub(crate) fn entity_tag(&self, now: u64) -> String {
        let weakness = if self.is_settled(now) { "" } else { "W/" };
        format!("{weakness}\"{}\"", self.opaque_tag())
    }

    /// Returns the text between the quotes of an entity tag (RFC 9110 §8.8.3): length and
    /// modification time, which copies of a file on several machines have in common.
    pub(crate) fn opaque_tag(&self) -> String {
        let length = self.length;
        match self.origin {
            Origin::Constant { hash } => format!("{length:x}-{hash:x}"),
            Origin::Stored { modified: (seconds, _), changed, .. }
                if seconds <= MAX_CONSTANT_MTIME =>
            {
                format!("{length:x}-c{:x}.{:x}", changed.0, changed.1)
            }
            Origin::Stored { modified: (seconds, nanoseconds), .. } => {
                format!("{length:x}-{seconds:x}.{nanoseconds:x}")
            }
        }
    }

    /// Returns true if the file has been unchanged for [`SETTLE_TIME`]. `now` is in seconds since
    /// 1970.
    pub(crate) fn is_settled(&self, now: u64) -> bool {
        match self.origin {
            Origin::Stored { changed: (changed, _), .. } => {
                let age = i64::try_from(now).unwrap_or(i64::MAX).saturating_sub(changed);
                age >= SETTLE_TIME.as_secs() as i64
            }
            Origin::Constant { .. } => true,
        }
    }

    /// Modification time, in whole seconds; `None` for constant bytes, and for a time that all
    /// versions of a file have in common. As `Last-Modified`, such a time would confirm outdated
    /// contents in a cache, and would let a client combine parts of two versions.
    pub(crate) fn modified(&self) -> Option<SystemTime> {
        let Origin::Stored { modified: (seconds, _), .. } = self.origin else { return None };
        let seconds = u64::try_from(seconds).ok().filter(|_| seconds > MAX_CONSTANT_MTIME)?;
        Some(UNIX_EPOCH + Duration::from_secs(seconds))
    }

    /// Returns true if this version was modified before `other`.
    pub(crate) fn is_older_than(&self, other: &FileVersion) -> bool {
        match (self.origin, other.origin) {
            (
                Origin::Stored { modified, .. },
                Origin::Stored { modified: modified_of_other, .. },
            ) => modified < modified_of_other,
            _ => false,
        }
    }
}

impl File {
    /// Creates a payload from an open file, with its current length. In a response with status 200,
    /// the engine adds `ETag` and `Last-Modified`, and evaluates preconditions (RFC 9110 §13) and
    /// ranges (§14). There is no `Last-Modified` for a modification time up to one second after the
    /// start of 1970: build systems give it to all versions of a file.
    ///
    /// If the file is truncated before it is sent, the connection is closed, so that the client
    /// detects an incomplete response.
    ///
    /// # Errors
    /// The errors of `fstat(2)`.
    pub fn open(file: impl Into<Arc<fs::File>>) -> io::Result<File> {
        let file = file.into();
        let stat = fstat(&*file)?;
        Ok(File::with_stat(file, &stat))
    }

    /// Creates a payload from an open file with these attributes.
    pub(crate) fn with_stat(file: impl Into<Arc<fs::File>>, stat: &FileStat) -> File {
        let version = FileVersion::new(stat);
        let (source, length) = (Source::Open(file.into()), version.length);
        File { source, start: 0, length, version: Some(version), is_resident: None, copies: None }
    }

    /// Creates a payload from the `length` bytes of an open file that start at `start`. It has only
    /// the validators that the application sets.
    pub fn new(file: impl Into<Arc<fs::File>>, start: u64, length: u64) -> File {
        File {
            source: Source::Open(file.into()),
            start,
            length,
            version: None,
            is_resident: None,
            copies: None,
        }
    }

    /// Creates a file from static bytes.
    pub(crate) fn from_static(bytes: &'static [u8]) -> File {
        let version = Some(FileVersion::from_bytes(bytes));
        let length = bytes.len() as u64;
        let source = Source::Memory(Bytes::from_static(bytes));
        File { source, start: 0, length, version, is_resident: None, copies: None }
    }

    /// Creates a file from bytes in memory, without a version: a response with it has only the
    /// validators that its fields have.
    #[cfg(feature = "cache")]
    pub(crate) fn in_memory_of(bytes: Bytes) -> File {
        let length = bytes.len() as u64;
        let source = Source::Memory(bytes);
        File { source, start: 0, length, version: None, is_resident: None, copies: None }
    }

    /// Returns the file with compressed copies, which are made when they are needed.
    #[cfg(feature = "cache")]
    pub(crate) fn with_copies(self, copies: Arc<CodedCopies>) -> File {
        File { copies: Some(copies), ..self }
    }

    /// Returns a part of the file. `range` must be within it.
    pub(crate) fn slice(self, range: Range<u64>) -> File {
        let start = self.start.saturating_add(range.start);
        File { start, length: range.end - range.start, copies: None, ..self }
    }

    /// Returns true if this is the whole file, not a part of it.
    pub(crate) fn is_whole(&self) -> bool {
        self.start == 0 && self.version.is_some_and(|version| version.length == self.length)
    }

    /// Returns all of the file, as the part that has to be sent.
    pub(crate) fn unsent(&self) -> Unsent {
        Unsent { start: self.start, length: self.length }
    }

    /// Returns the bytes, after reading them into memory if necessary.
    pub(crate) fn read(&self) -> io::Result<Bytes> {
        match &self.source {
            Source::Memory(_) => Ok(self.in_memory().unwrap_or_default()),
            Source::Open(file) => {
                let mut bytes = vec![0; self.length as usize];
                read_exact_at(file, &mut bytes, self.start)?;
                Ok(bytes.into())
            }
        }
    }

    /// Returns the bytes in steps of `bytes` or, at the end, fewer, each read when it is its turn.
    #[cfg(feature = "files")]
    pub(crate) fn steps(&self, bytes: usize) -> impl Iterator<Item = io::Result<Bytes>> {
        let step = move |at: u64| {
            let end = self.length.min(at + bytes as u64);
            self.clone().slice(at..end).read()
        };
        (0..self.length).step_by(bytes).map(step)
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

impl Unsent {
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
}
