//! The root directory. All files are opened beneath it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

use crate::disk::File;
use crate::files::generated::is_generated;
use crate::files::settings::Symlinks;

#[derive(Debug)]
pub(super) enum Root {
    /// A directory of the file system.
    Folder { fd: OwnedFd, resolve: ResolveFlags },
    /// Files that are compiled into the program, by path.
    Embedded(BTreeMap<Vec<u8>, File>),
}

/// Device and inode of a root directory.
pub(super) type RootId = (u64, u64);

/// Permission to wait for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MayBlock {
    /// On the event loop: an operation that would wait fails with `WouldBlock`.
    No,
    /// On a thread of the blocking pool.
    Yes,
}

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
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // The path of the root itself is the operator's, and may contain links of all kinds.
        let opened = open_without_waiting(may_block, |resolve| {
            openat2(CWD, path, flags, Mode::empty(), resolve)
        });
        let fd = opened.map_err(explain)?;
        let resolve = match symlinks {
            Symlinks::Never => ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
            Symlinks::Inside => ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS,
            // The paths of requests contain no `..`.
            Symlinks::Anywhere => ResolveFlags::NO_MAGICLINKS,
        };
        Ok(Root::Folder { fd, resolve })
    }

    /// Identifies the directory; `None` for embedded files.
    pub(super) fn id(&self) -> Option<RootId> {
        match self {
            Root::Folder { fd, .. } => {
                rustix::fs::fstat(fd).ok().map(|stat| (stat.st_dev, stat.st_ino))
            }
            Root::Embedded(_) => None,
        }
    }

    /// Opens a path beneath the root; an empty path is the root itself.
    pub(super) fn open_path(&self, path: &[u8], may_block: MayBlock) -> io::Result<Opened> {
        let (fd, resolve) = match self {
            Root::Folder { fd, resolve } => (fd, *resolve),
            Root::Embedded(files) => return Ok(open_embedded(files, path)?),
        };
        let file = open_beneath(fd, path, resolve, may_block)?;
        let stat = rustix::fs::fstat(&file)?;
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile if is_generated(&file, &stat) => FileKind::Generated,
            FileType::RegularFile => FileKind::File,
            FileType::Directory => FileKind::Folder,
            _ => FileKind::Other,
        };
        Ok(Opened { kind, file: File::with_stat(file, &stat) })
    }
}

/// Explains the error of a system without `openat2(2)`. Some filters of containers respond `EPERM`
/// to system calls that they do not list.
fn explain(error: Errno) -> io::Error {
    match error {
        Errno::NOSYS | Errno::PERM => io::Error::new(
            io::ErrorKind::Unsupported,
            format!(
                "openat2(2) is not available ({error}): it needs Linux 5.6 or later, and in a \
                 container a seccomp profile that permits it"
            ),
        ),
        error => error.into(),
    }
}

fn open_beneath(
    root: &OwnedFd,
    path: &[u8],
    resolve: ResolveFlags,
    may_block: MayBlock,
) -> rustix::io::Result<fs::File> {
    let path = OsStr::from_bytes(if path.is_empty() { b"." } else { path });
    // Without NONBLOCK, opening a pipe would wait for its writer.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let opened = open_without_waiting(may_block, |cached| {
        openat2(root, path, flags, Mode::empty(), resolve | cached)
    });
    opened.map(fs::File::from)
}

/// Calls `open` with the flags for an open that waits for the disk only if it may.
fn open_without_waiting(
    may_block: MayBlock,
    open: impl Fn(ResolveFlags) -> rustix::io::Result<OwnedFd>,
) -> rustix::io::Result<OwnedFd> {
    let cached = match may_block {
        MayBlock::No => ResolveFlags::CACHED,
        MayBlock::Yes => ResolveFlags::empty(),
    };
    let mut tries = 0;
    loop {
        match open(cached) {
            Err(Errno::INTR) => {}
            // Kernels before 5.12 do not support CACHED.
            Err(Errno::INVAL) if may_block == MayBlock::No => return Err(Errno::AGAIN),
            // A rename during the resolution: the kernel could not verify that the path stays
            // beneath the root.
            Err(Errno::AGAIN) if may_block == MayBlock::Yes && tries < 8 => tries += 1,
            opened => return opened,
        }
    }
}

fn open_embedded(files: &BTreeMap<Vec<u8>, File>, path: &[u8]) -> rustix::io::Result<Opened> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_system_call_is_explained() {
        for (error, is_explained) in [
            (Errno::NOSYS, true),
            (Errno::PERM, true),
            (Errno::ACCESS, false),
            (Errno::NOENT, false),
        ] {
            let explained = explain(error);
            assert_eq!(explained.to_string().contains("needs Linux 5.6"), is_explained, "{error}");
            assert_eq!(explained.raw_os_error().is_none(), is_explained, "{error}");
        }
    }
}
