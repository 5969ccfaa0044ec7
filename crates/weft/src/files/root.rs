//! The root directory. All files are opened beneath it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

use crate::disk::File;
use crate::files::settings::Symlinks;

#[derive(Debug)]
pub(super) enum Root {
    /// A directory of the file system.
    Folder { fd: OwnedFd, resolve: ResolveFlags },
    /// Files that are compiled into the program, by path.
    Embedded(BTreeMap<Vec<u8>, File>),
}

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
    Folder,
    /// A device, a pipe or a socket.
    Other,
}

impl Root {
    pub(super) fn open(path: &Path, symlinks: Symlinks) -> io::Result<Root> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty())?;
        let resolve = match symlinks {
            Symlinks::Never => ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
            Symlinks::Inside => ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS,
            // The paths of requests contain no `..`.
            Symlinks::Anywhere => ResolveFlags::NO_MAGICLINKS,
        };
        Ok(Root::Folder { fd, resolve })
    }

    /// Opens a path beneath the root; an empty path is the root itself.
    pub(super) fn open_path(&self, path: &[u8], may_block: MayBlock) -> io::Result<Opened> {
        let (fd, resolve) = match self {
            Root::Folder { fd, resolve } => (fd, *resolve),
            Root::Embedded(files) => return Ok(open_embedded(files, path)?),
        };
        let file = open_beneath(fd, path, resolve, may_block)?;
        let metadata = file.metadata()?;
        let kind = match metadata.file_type() {
            kind if kind.is_file() => FileKind::File,
            kind if kind.is_dir() => FileKind::Folder,
            _ => FileKind::Other,
        };
        Ok(Opened { kind, file: File::with_metadata(file, &metadata) })
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
    let resolve = match may_block {
        MayBlock::No => resolve | ResolveFlags::CACHED,
        MayBlock::Yes => resolve,
    };
    let mut tries = 0;
    loop {
        match openat2(root, path, flags, Mode::empty(), resolve) {
            Err(Errno::INTR) => {}
            // Kernels before 5.12 do not support CACHED.
            Err(Errno::INVAL) if may_block == MayBlock::No => return Err(Errno::AGAIN),
            // A rename during the resolution: the kernel could not verify that the path stays
            // beneath the root.
            Err(Errno::AGAIN) if may_block == MayBlock::Yes && tries < 8 => tries += 1,
            opened => return opened.map(fs::File::from),
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
