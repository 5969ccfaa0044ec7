//! The root directory. All files are opened beneath it.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use crate::disk::File;
use crate::files::settings::Symlinks;
pub(super) use crate::sys::MayBlock;
use crate::sys::{self, EntryKind, Errno, Links, OwnedFd};

#[derive(Debug)]
pub(super) enum Root {
    /// A directory of the file system.
    Folder { fd: OwnedFd, links: Links },
    /// Files that are compiled into the program, by path.
    Embedded(BTreeMap<Vec<u8>, File>),
}

/// Device and inode of a root directory.
pub(super) type RootId = (u64, u64);

/// An open file or folder beneath the root.
pub(super) struct Opened {
    pub(super) kind: FileKind,
    pub(super) file: File,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileKind {
    File,
    /// A file whose length is not known.
    Generated,
    Folder,
    /// A device, a pipe or a socket.
    Other,
}

/// The root directory in one lookup: all files of the lookup are opened beneath the same directory.
#[derive(Clone, Copy)]
pub(super) struct RootAccess<'a> {
    pub(super) root: &'a Root,
    pub(super) may_block: MayBlock,
}

impl RootAccess<'_> {
    /// Opens the file or folder at this path, if it exists.
    pub(super) fn open_path(&self, path: &[u8]) -> io::Result<Option<Opened>> {
        match self.root.open_path(path, self.may_block) {
            Ok(opened) => Ok(Some(opened)),
            Err(error) if is_not_found(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Opens the regular file at this path, if there is one.
    pub(super) fn open_file(&self, path: &[u8]) -> io::Result<Option<Opened>> {
        Ok(self.open_path(path)?.filter(|opened| opened.kind == FileKind::File))
    }

    /// Opens a file that may be served in place of another one: a translation or a precompressed
    /// file. Returns `None` if there is none or it may not be read.
    pub(super) fn open_alternative(&self, path: &[u8]) -> io::Result<Option<Opened>> {
        match self.open_file(path) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(None),
            opened => opened,
        }
    }
}

impl Root {
    pub(super) fn open(path: &Path, symlinks: Symlinks, may_block: MayBlock) -> io::Result<Root> {
        let fd = sys::open_root(path, may_block)?;
        let links = match symlinks {
            Symlinks::Never => Links::Refused,
            Symlinks::Inside => Links::Beneath,
            Symlinks::Anywhere => Links::Anywhere,
        };
        Ok(Root::Folder { fd, links })
    }

    /// Identifies the directory; `None` for embedded files.
    pub(super) fn id(&self) -> Option<RootId> {
        match self {
            Root::Folder { fd, .. } => sys::fstat(fd).ok().map(|stat| (stat.device, stat.inode)),
            Root::Embedded(_) => None,
        }
    }

    /// Opens a path beneath the root; an empty path is the root itself.
    pub(super) fn open_path(&self, path: &[u8], may_block: MayBlock) -> io::Result<Opened> {
        let (fd, links) = match self {
            Root::Folder { fd, links } => (fd, *links),
            Root::Embedded(files) => return Ok(open_embedded(files, path)?),
        };
        let file = sys::open_beneath(fd, path, links, may_block)?;
        let stat = sys::fstat(&file)?;
        let kind = match stat.kind {
            EntryKind::File if sys::is_generated(&file, &stat) => FileKind::Generated,
            EntryKind::File => FileKind::File,
            EntryKind::Folder => FileKind::Folder,
            EntryKind::Symlink | EntryKind::Other => FileKind::Other,
        };
        Ok(Opened { kind, file: File::with_stat(file, &stat) })
    }
}

fn open_embedded(files: &BTreeMap<Vec<u8>, File>, path: &[u8]) -> Result<Opened, Errno> {
    if let Some(file) = files.get(path) {
        return Ok(Opened { kind: FileKind::File, file: file.clone() });
    }
    let prefix = if path.is_empty() { Vec::new() } else { [path, b"/"].concat() };
    match files.range(prefix.clone()..).next() {
        Some((path, _)) if path.starts_with(&prefix) => {
            Ok(Opened { kind: FileKind::Folder, file: File::from_static(b"") })
        }
        _ => Err(Errno::NOENT),
    }
}

/// Returns true if an error means 404: the file does not exist, may not be reached from the root,
/// or is of a kind that cannot be read.
pub(super) fn is_not_found(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    errno.is_some_and(|errno| {
        [
            Errno::NOENT,
            Errno::NOTDIR,
            Errno::LOOP,
            Errno::XDEV,
            Errno::NAMETOOLONG,
            Errno::NXIO,
            Errno::NODEV,
            Errno::INVAL,
            Errno::ILSEQ,
        ]
        .contains(&errno)
    })
}
