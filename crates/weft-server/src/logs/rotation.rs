//! What becomes of a log file that is full: `access.log` becomes `access.log.1`, that one
//! `access.log.2`, and so on.

use std::fs::{self, File, Metadata, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

#[derive(Clone, Copy)]
pub(super) struct Rotation {
    /// How large a file may be.
    pub(super) max_bytes: u64,
    /// How many are kept beside it.
    pub(super) max_files: u32,
}

impl Rotation {
    /// Makes the path free for a new file, unless another process has done that already or is
    /// about to. Whether there can be another file now.
    pub(super) fn rotate(&self, path: &Path, file: &File) -> io::Result<bool> {
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(false),
            // A file system without locks has hardly two writers either.
            Err(TryLockError::Error(_)) => {}
        }
        let done = match is_at(path, file)? {
            true => self.shift(path),
            false => Ok(()),
        };
        // It was never locked, or will be closed.
        let _ = file.unlock();
        done.map(|()| true)
    }

    /// Counts the older files up, as far as there is no gap.
    fn shift(&self, path: &Path) -> io::Result<()> {
        let is_free = |number: &u32| fs::symlink_metadata(numbered(path, *number)).is_err();
        let last = (1..self.max_files).find(is_free).unwrap_or(self.max_files);
        for number in (1..last).rev() {
            match fs::rename(numbered(path, number), numbered(path, number + 1)) {
                // Somebody else has taken it away meanwhile, to compress it perhaps.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                renamed => renamed?,
            }
        }
        fs::rename(path, numbered(path, 1))
    }
}

/// Whether the file is still what is found at the path.
fn is_at(path: &Path, file: &File) -> io::Result<bool> {
    match fs::metadata(path) {
        Ok(found) => Ok(is_same(&found, &file.metadata()?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether these are of one file.
pub(super) fn is_same(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

fn numbered(path: &Path, number: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    name.into()
}
