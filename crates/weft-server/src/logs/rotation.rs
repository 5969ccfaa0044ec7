//! Rotation of a log file: `access.log` is renamed to `access.log.1`, `access.log.1` to
//! `access.log.2`, and so on, and `access.log.1.gz` to `access.log.2.gz`.

use std::fs::{self, File, Metadata, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::base::sys::file_id;

/// Limits on the size and number of log files.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Rotation {
    /// Maximum size of a file.
    pub(super) max_bytes: u64,
    /// Maximum number of rotated files.
    pub(super) max_files: u32,
    /// Length of the periods with a file of their own.
    pub(super) every: Option<Duration>,
    /// Age at which rotated files are removed.
    pub(super) max_age: Option<Duration>,
    /// Rotated files are compressed.
    pub(super) compress: bool,
}

/// Maximum of `max_files`, and so of the numbers that a rotation makes.
const MAX_NUMBER: u32 = 1_000;

#[cfg(test)]
pub(super) const UNROTATED: Rotation =
    Rotation { max_bytes: u64::MAX, max_files: 1, every: None, max_age: None, compress: false };

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
        result.map(|()| {
            self.remove_excess(path);
            true
        })
    }

    /// Increments the numbers of the rotated files up to the first gap, then renames the file.
    fn shift(&self, path: &Path) -> io::Result<()> {
        let exists = |path: PathBuf| fs::symlink_metadata(path).is_ok();
        let is_free =
            |number: &u32| !exists(numbered(path, *number)) && !exists(compressed(path, *number));
        let last = (1..self.max_files).find(is_free).unwrap_or(self.max_files);
        // The number of the last one may be taken by a file of the other form.
        if exists(compressed(path, last)) {
            fs::remove_file(compressed(path, last))?;
        }
        if last > 1 && !exists(numbered(path, last - 1)) && exists(numbered(path, last)) {
            fs::remove_file(numbered(path, last))?;
        }
        for number in (1..last).rev() {
            for name in [numbered, compressed] {
                match fs::rename(name(path, number), name(path, number + 1)) {
                    // Another program has moved the file meanwhile, for example to compress it.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    renamed => renamed?,
                }
            }
        }
        fs::rename(path, numbered(path, 1))
    }

    /// Removes rotated files that a larger `max_files` has left, but only after a rotation: before
    /// it, the numbers may be another program's. Errors are ignored: the next rotation tries again.
    fn remove_excess(&self, path: &Path) {
        for number in self.max_files.saturating_add(1)..=MAX_NUMBER {
            for file in [numbered(path, number), compressed(path, number)] {
                let _ = fs::remove_file(file);
            }
        }
    }

    /// Removes rotated files that are too old. Errors are ignored: the next rotation tries again.
    pub(super) fn remove_old(&self, path: &Path) {
        let Some(max_age) = self.max_age else { return };
        let is_old = |path: &PathBuf| {
            let modified = fs::metadata(path).and_then(|found| found.modified());
            modified.is_ok_and(|time| time.elapsed().is_ok_and(|age| age > max_age))
        };
        let files = (1..=self.max_files).flat_map(|it| [numbered(path, it), compressed(path, it)]);
        files.filter(is_old).for_each(|file| drop(fs::remove_file(file)));
    }

    /// Returns the number of the current period; 0 if there are none.
    pub(super) fn current_period(&self) -> u64 {
        self.period(SystemTime::now())
    }

    /// Returns the number of the period in which the last line of a file was written.
    pub(super) fn period_of(&self, file: &File) -> u64 {
        match file.metadata() {
            Ok(metadata) if metadata.len() > 0 => {
                metadata.modified().map_or(0, |time| self.period(time))
            }
            _ => self.current_period(),
        }
    }

    fn period(&self, time: SystemTime) -> u64 {
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.every.map_or(0, |every| since.as_secs() / every.as_secs().max(1))
    }
}

/// Returns true if `path` still names the open file.
pub(super) fn is_at(path: &Path, file: &File) -> io::Result<bool> {
    match fs::metadata(path) {
        Ok(found) => Ok(is_same_file(&found, &file.metadata()?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns true if both belong to the same file.
pub(super) fn is_same_file(one: &Metadata, other: &Metadata) -> bool {
    file_id(one) == file_id(other)
}

pub(super) fn numbered(path: &Path, number: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    name.into()
}

pub(super) fn compressed(path: &Path, number: u32) -> PathBuf {
    let mut name = numbered(path, number).into_os_string();
    name.push(".gz");
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Each row: the maximum number of files, and the names before and after a rotation.
    #[test]
    fn shifts_compressed_files_with_the_others() {
        for (max_files, before, after) in [
            (9, "log", "log.1"),
            (9, "log log.1.gz log.2", "log.1 log.2.gz log.3"),
            (9, "log log.1 log.3.gz", "log.1 log.2 log.3.gz"),
            (2, "log log.1 log.2.gz", "log.1 log.2"),
            (2, "log log.1.gz log.2", "log.1 log.2.gz"),
            (2, "log log.1.gz log.2.gz", "log.1 log.2.gz"),
            (1, "log log.1.gz", "log.1"),
            (1, "log log.1", "log.1"),
        ] {
            let folder = tempfile::tempdir().unwrap();
            for name in before.split(' ') {
                fs::write(folder.path().join(name), name).unwrap();
            }
            let path = folder.path().join("log");
            let rotation = Rotation { max_files, ..UNROTATED };
            assert!(rotation.rotate(&path, &File::open(&path).unwrap()).unwrap());
            let names = fs::read_dir(folder.path()).unwrap();
            let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            let names: BTreeSet<String> = names.collect();
            assert_eq!(names.into_iter().collect::<Vec<_>>().join(" "), after, "{before}");
            assert_eq!(fs::read_to_string(folder.path().join("log.1")).unwrap(), "log");
        }
    }

    #[test]
    fn periods_begin_at_midnight() {
        let day = Duration::from_secs(24 * 3_600);
        let rotation = Rotation { every: Some(day), ..UNROTATED };
        for (seconds, expected) in [(0, 0), (86_399, 0), (86_400, 1), (172_799, 1)] {
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            assert_eq!(rotation.period(time), expected, "{seconds}");
            assert_eq!(UNROTATED.period(time), 0);
        }
    }
}
