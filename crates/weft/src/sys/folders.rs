//! Folders, and paths beneath a directory.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, Mode, statat};
use rustix::io::Result;

use super::beneath;
use super::system::{self, DIRECTORY_FLAGS, READ_FLAGS};
use super::types::{AsFd, FileStat, Links, MayBlock, OwnedFd};

/// Returns a path with these bytes.
pub(crate) fn path_of_bytes(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// Opens the root directory at a path, which may contain links of all kinds.
pub(crate) fn open_root(path: &Path, may_block: MayBlock) -> io::Result<OwnedFd> {
    match system::open_root(path, may_block)? {
        Some(root) => Ok(root),
        None => Ok(open_directory(path)?),
    }
}

/// Opens the directory at a path, which may contain links of all kinds. Waits for the disk.
pub fn open_directory(path: &Path) -> Result<OwnedFd> {
    rustix::fs::open(path, DIRECTORY_FLAGS, Mode::empty())
}

/// Opens a path for reading, which may contain links of all kinds. Waits for the disk, but not for
/// the writer of a pipe.
pub(crate) fn open_for_reading(path: &Path) -> io::Result<fs::File> {
    Ok(rustix::fs::open(path, READ_FLAGS, Mode::empty())?.into())
}

/// Opens a path beneath a directory for reading; an empty path is the directory itself.
pub(crate) fn open_beneath(
    root: &OwnedFd,
    path: &[u8],
    links: Links,
    may_block: MayBlock,
) -> Result<fs::File> {
    let path = if path.is_empty() { b"." } else { path };
    let opened = match system::open_beneath(root.as_fd(), path, links, may_block)? {
        Some(opened) => opened,
        None => beneath::open(root.as_fd(), path, links)?,
    };
    Ok(opened.into())
}

/// Returns the attributes of the entry at a path beneath a directory, without opening the entry.
/// Waits for the disk.
pub fn stat_beneath(root: impl AsFd, path: &[u8], links: Links) -> Result<FileStat> {
    let path = if path.is_empty() { b"." } else { path };
    let stat = match system::stat_beneath(root.as_fd(), path, links)? {
        Some(stat) => stat,
        None => beneath::stat(root.as_fd(), path, links)?,
    };
    Ok(FileStat::new(&stat))
}

/// The names in a folder, and the attributes of the entries.
pub(crate) struct FolderEntries(Dir);

impl FolderEntries {
    /// Reads from the start of an open folder.
    pub(crate) fn read(folder: impl AsFd) -> Result<FolderEntries> {
        Dir::read_from(folder).map(FolderEntries)
    }

    /// Returns the name of the next entry, except for `.` and `..`.
    pub(crate) fn next_name(&mut self) -> Option<Result<Vec<u8>>> {
        loop {
            match self.0.read()? {
                Ok(entry) => match entry.file_name().to_bytes() {
                    b"." | b".." => {}
                    name => return Some(Ok(name.to_vec())),
                },
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// Returns the attributes of an entry. Does not follow links.
    pub(crate) fn stat(&self, name: &[u8]) -> Result<FileStat> {
        let stat = statat(self.0.fd()?, name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(FileStat::new(&stat))
    }
}
