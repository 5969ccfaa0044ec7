//! Files that are read again when they change.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// Time for which a file is not examined again.
pub(crate) const REVALIDATE_AFTER: Duration = Duration::from_secs(1);

/// A changed file has another version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileVersion {
    modified: Option<SystemTime>,
    pub(crate) bytes: u64,
    inode: u64,
}

impl FileVersion {
    pub(crate) fn of(path: &Path) -> io::Result<FileVersion> {
        let metadata = std::fs::metadata(path)?;
        let (modified, bytes) = (metadata.modified().ok(), metadata.len());
        Ok(FileVersion { modified, bytes, inode: metadata.ino() })
    }
}

/// The value of a file, which is read again when the file changes. A file with an error leaves the
/// former value in effect.
pub(crate) struct WatchedFile<T> {
    path: PathBuf,
    max_bytes: u64,
    parse: fn(&[u8]) -> Result<T, String>,
    state: Mutex<State<T>>,
}

struct State<T> {
    value: Arc<T>,
    version: FileVersion,
    checked: Instant,
}

impl<T> WatchedFile<T> {
    /// Reads a file of at most `max_bytes`.
    ///
    /// # Errors
    /// If the file cannot be read, or `parse` fails.
    pub(crate) fn open(
        path: &Path,
        max_bytes: u64,
        parse: fn(&[u8]) -> Result<T, String>,
    ) -> Result<WatchedFile<T>, String> {
        let (value, version) = read(path, max_bytes, parse)?;
        let state = State { value: Arc::new(value), version, checked: Instant::now() };
        Ok(WatchedFile { path: path.to_owned(), max_bytes, parse, state: Mutex::new(state) })
    }

    /// Returns the value of the file, at most [`REVALIDATE_AFTER`] old.
    pub(crate) fn current(&self) -> Arc<T> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.checked.elapsed() >= REVALIDATE_AFTER {
            state.checked = Instant::now();
            self.refresh(&mut state);
        }
        state.value.clone()
    }

    fn refresh(&self, state: &mut State<T>) {
        let version = FileVersion::of(&self.path).ok();
        if version == Some(state.version) {
            return;
        }
        match read(&self.path, self.max_bytes, self.parse) {
            Ok((value, version)) => {
                log::info!("loaded {}", self.path.display());
                (state.value, state.version) = (Arc::new(value), version);
            }
            Err(error) => {
                log::error!("the former content stays in effect: {error}");
                // The same file is not reported again.
                state.version = version.unwrap_or(state.version);
            }
        }
    }
}

/// A value made of a file that may be absent. It is made anew when the file changes, appears or is
/// removed.
pub(crate) struct OptionalFile<T> {
    path: PathBuf,
    state: Mutex<OptionalState<T>>,
}

struct OptionalState<T> {
    value: T,
    /// `None` while there is no file.
    version: Option<FileVersion>,
    checked: Instant,
}

impl<T: Clone> OptionalFile<T> {
    /// Makes the first value. `make` gets the path, and true if the file exists.
    pub(crate) fn new(path: &Path, make: impl FnOnce(&Path, bool) -> T) -> OptionalFile<T> {
        let version = FileVersion::of(path).ok();
        let value = make(path, version.is_some());
        let state = OptionalState { value, version, checked: Instant::now() };
        OptionalFile { path: path.to_owned(), state: Mutex::new(state) }
    }

    /// Returns the value, at most [`REVALIDATE_AFTER`] old. `make` is called if the file is another
    /// one than before.
    pub(crate) fn current(&self, make: impl FnOnce(&Path, bool) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.checked.elapsed() >= REVALIDATE_AFTER {
            state.checked = Instant::now();
            let version = FileVersion::of(&self.path).ok();
            if version != state.version {
                state.value = make(&self.path, version.is_some());
                state.version = version;
            }
        }
        state.value.clone()
    }
}

fn read<T>(
    path: &Path,
    max_bytes: u64,
    parse: fn(&[u8]) -> Result<T, String>,
) -> Result<(T, FileVersion), String> {
    let cannot_read = |error: io::Error| format!("cannot read {}: {error}", path.display());
    let version = FileVersion::of(path).map_err(cannot_read)?;
    if version.bytes > max_bytes {
        return Err(format!("{} is larger than {max_bytes} bytes", path.display()));
    }
    let content = std::fs::read(path).map_err(cannot_read)?;
    let value = parse(&content).map_err(|reason| format!("{}: {reason}", path.display()))?;
    Ok((value, version))
}
