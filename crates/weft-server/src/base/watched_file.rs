//! Files that are read again when they change.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::base::sys::FileVersion;

/// Time for which a file is not examined again.
const REVALIDATE_AFTER: Duration = Duration::from_secs(1);

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

    /// Lets the next call examine the file.
    #[cfg(test)]
    pub(crate) fn expire(&self) {
        self.state.lock().unwrap().checked -= 2 * REVALIDATE_AFTER;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_file_again_whose_length_and_time_are_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "first").unwrap();
        let file = WatchedFile::open(&path, 100, |content| Ok(content.to_vec())).unwrap();
        let before = FileVersion::of(&path).unwrap();
        let time = std::fs::metadata(&path).unwrap().modified().unwrap();
        // The kernel's clock may have the same time for several writes.
        let deadline = Instant::now() + Duration::from_secs(10);
        while FileVersion::of(&path).unwrap() == before {
            assert!(Instant::now() < deadline, "the version stays the same");
            std::fs::write(&path, "other").unwrap();
            std::fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
        }
        file.expire();
        assert_eq!(*file.current(), b"other");
    }

    #[test]
    fn keeps_the_value_of_a_file_that_becomes_invalid() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "ab").unwrap();
        let parse: fn(&[u8]) -> Result<usize, String> = |content| match content.len() {
            3 => Err("three bytes".to_owned()),
            length => Ok(length),
        };
        let file = WatchedFile::open(&path, 4, parse).unwrap();
        for (content, expected) in [("abc", 2), ("abcde", 2), ("abcd", 4)] {
            std::fs::write(&path, content).unwrap();
            file.expire();
            assert_eq!(*file.current(), expected, "{content}");
        }
        std::fs::remove_file(&path).unwrap();
        file.expire();
        assert_eq!(*file.current(), 4);
    }
}
