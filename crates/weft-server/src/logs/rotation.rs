//! Rotation of a full log file: `access.log` is renamed to `access.log.1`, `access.log.1` to
//! `access.log.2`, and so on.

use std::fs::{self, File, Metadata, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Limits on the size and number of log files.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Rotation {
    /// Maximum size of a file.
    pub(super) max_bytes: u64,
    /// Maximum number of rotated files.
    pub(super) max_files: u32,
}

impl Rotation {
    /// Renames the file at `path`, unless another process has done so already. Returns false if
    /// another process is rotating it at the moment, and true if a new file can be opened.
    pub(super) fn rotate(&self, path: &Path, file: &File) -> io::Result<bool> {
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(false),
            // The file system does not support locks; several writers are unlikely there.
            Err(TryLockError::Error(_)) => {}
        }
        let result = match is_at(path, file)? {
            true => self.shift(path),
            false => Ok(()),
        };
        // Fails only if the file was not locked; closing the file unlocks it too.
        let _ = file.unlock();
        result.map(|()| true)
    }

    /// Increments the numbers of the rotated files up to the first gap, then renames the file.
    fn shift(&self, path: &Path) -> io::Result<()> {
        let is_free = |number: &u32| fs::symlink_metadata(numbered(path, *number)).is_err();
        let last = (1..self.max_files).find(is_free).unwrap_or(self.max_files);
        for number in (1..last).rev() {
            match fs::rename(numbered(path, number), numbered(path, number + 1)) {
                // Another program has moved the file meanwhile, for example to compress it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                renamed => renamed?,
            }
        }
        fs::rename(path, numbered(path, 1))
    }
}

/// Returns true if `path` still names the open file.
fn is_at(path: &Path, file: &File) -> io::Result<bool> {
    match fs::metadata(path) {
        Ok(found) => Ok(is_same_file(&found, &file.metadata()?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns true if both belong to the same file.
pub(super) fn is_same_file(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

fn numbered(path: &Path, number: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    name.into()
}
