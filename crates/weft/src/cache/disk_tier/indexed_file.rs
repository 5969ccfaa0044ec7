//! A file in the index.

use crate::disk::FileVersion;

/// Memory of a file in the index besides its URL and its tags.
const OVERHEAD: usize = 256;

/// A file, or a response that waits to be written to it.
#[derive(Clone, Debug)]
pub(super) struct IndexedFile {
    pub(super) id: u64,
    /// The hash of the values that select the response among others of its URL.
    pub(super) variant: u64,
    /// The hashes of its tags.
    pub(super) tags: Box<[u64]>,
    pub(super) bytes: u64,
    pub(super) is_expired: bool,
    pub(super) last_use: u64,
    pub(super) state: FileState,
}

/// State of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileState {
    /// Being written.
    Writing,
    /// Complete. The version is that with which the content was verified.
    Complete { verified: Option<FileVersion> },
}

impl IndexedFile {
    /// Its memory in the index.
    pub(super) fn memory(&self, url: &str) -> usize {
        OVERHEAD + url.len() + self.tags.len() * 8
    }
}
