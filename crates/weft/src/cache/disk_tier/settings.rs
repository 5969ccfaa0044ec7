//! Settings and counts of the files of a store.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// The folder in which a [`Store`](super::super::Store) keeps responses that have left its memory.
///
/// ```
/// use weft::cache::{DiskSettings, Store};
///
/// # let folder = tempfile::tempdir()?;
/// # let folder = folder.path().join("cache");
/// let disk = DiskSettings::new(folder).max_bytes(10 << 30);
/// let store = Store::new().max_bytes(256 << 20).disk(&disk)?;
/// assert_eq!(store.disk_totals().unwrap().files, 0);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct DiskSettings {
    pub(super) folder: PathBuf,
    pub(super) max_bytes: u64,
    pub(super) max_index_bytes: usize,
    reporter: Option<Arc<Reporter>>,
}

type Reporter = dyn Fn(&str) + Send + Sync;

impl DiskSettings {
    /// Uses a folder, which is created if it does not exist, for its owner only. It belongs to one
    /// process at a time: another one waits for it, and meanwhile has responses in memory only.
    pub fn new(folder: impl Into<PathBuf>) -> DiskSettings {
        DiskSettings {
            folder: folder.into(),
            max_bytes: 1 << 30,
            max_index_bytes: 32 << 20,
            reporter: None,
        }
    }

    /// Sets the maximum size of all files in bytes. The files that were not used for the longest
    /// time leave first. Default: 1 GiB.
    pub fn max_bytes(self, bytes: u64) -> DiskSettings {
        DiskSettings { max_bytes: bytes, ..self }
    }

    /// Sets the maximum memory of the index of the files in bytes: 256 for each file, with its URL
    /// and its tags. Default: 32 MiB, for about 100,000 files.
    pub fn max_index_bytes(self, bytes: usize) -> DiskSettings {
        DiskSettings { max_index_bytes: bytes, ..self }
    }

    /// Sets a function that gets a message when files cannot be written, for example because the
    /// disk is full. It is called again only after a file was written.
    pub fn on_failure(self, reporter: impl Fn(&str) + Send + Sync + 'static) -> DiskSettings {
        DiskSettings { reporter: Some(Arc::new(reporter)), ..self }
    }

    pub(super) fn report(&self, message: &str) {
        if let Some(reporter) = &self.reporter {
            reporter(message);
        }
    }
}

impl fmt::Debug for DiskSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskSettings")
            .field("folder", &self.folder)
            .field("max_bytes", &self.max_bytes)
            .field("max_index_bytes", &self.max_index_bytes)
            .finish_non_exhaustive()
    }
}

/// Counts of the files of a [`Store`](super::super::Store).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DiskTotals {
    /// Size of all files in bytes, also of those that are being written.
    pub bytes: u64,
    /// Number of files.
    pub files: usize,
    /// Memory of their index in bytes.
    pub index_bytes: usize,
    /// Number of files that were removed because of a limit.
    pub evicted: u64,
    /// Number of responses that were not written: too many were waiting, or a write had failed.
    pub skipped: u64,
    /// Number of damaged files, which were removed.
    pub damaged: u64,
    /// Number of responses that were read.
    pub loaded: u64,
    /// False until the folder is free, and the files of the former process were found.
    pub is_scanned: bool,
}
