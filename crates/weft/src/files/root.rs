//! The directory, beneath which everything is opened.

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
use crate::files::settings::Links;

#[derive(Debug)]
pub(super) enum Root {
    /// In a file system.
    Folder { fd: OwnedFd, resolve: ResolveFlags },
    /// In the program itself: contents by path.
    Embedded(BTreeMap<Vec<u8>, File>),
}

/// Whether to wait for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// On the event loop: what would have to wait fails.
    Never,
    /// On a thread of the pool.
    Gladly,
}

/// What was opened.
pub(super) struct Opened {
    pub(super) kind: Kind,
    pub(super) file: File,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Folder,
    /// A device, a pipe, a socket.
    Other,
}

impl Root {
    pub(super) fn open(path: &Path, links: Links) -> io::Result<Root> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty())?;
        let resolve = match links {
            Links::Never => ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
            Links::Inside => ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS,
            // There is no `..` in the paths that come here.
            Links::Anywhere => ResolveFlags::NO_MAGICLINKS,
        };
        Ok(Root::Folder { fd, resolve })
    }

    /// Opens a path beneath the root, the root itself if it is empty.
    pub(super) fn look(&self, path: &[u8], wait: Wait) -> io::Result<Opened> {
        let (fd, resolve) = match self {
            Root::Folder { fd, resolve } => (fd, *resolve),
            Root::Embedded(files) => return Ok(look_among(files, path)?),
        };
        let file = open_beneath(fd, path, resolve, wait)?;
        let metadata = file.metadata()?;
        let kind = match metadata.file_type() {
            kind if kind.is_file() => Kind::File,
            kind if kind.is_dir() => Kind::Folder,
            _ => Kind::Other,
        };
        Ok(Opened { kind, file: File::with_metadata(file, &metadata) })
    }
}

fn open_beneath(
    root: &OwnedFd,
    path: &[u8],
    resolve: ResolveFlags,
    wait: Wait,
) -> rustix::io::Result<fs::File> {
    let path = OsStr::from_bytes(if path.is_empty() { b"." } else { path });
    // Without NONBLOCK, to open a pipe would wait for its writer.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let resolve = match wait {
        Wait::Never => resolve | ResolveFlags::CACHED,
        Wait::Gladly => resolve,
    };
    let mut tries = 0;
    loop {
        match openat2(root, path, flags, Mode::empty(), resolve) {
            Err(Errno::INTR) => {}
            // A kernel before 5.12 does not know CACHED.
            Err(Errno::INVAL) if wait == Wait::Never => return Err(Errno::AGAIN),
            // Something was renamed on the way: whether it lies beneath must be seen anew.
            Err(Errno::AGAIN) if wait == Wait::Gladly && tries < 8 => tries += 1,
            opened => return opened.map(fs::File::from),
        }
    }
}

fn look_among(files: &BTreeMap<Vec<u8>, File>, path: &[u8]) -> rustix::io::Result<Opened> {
    if let Some(file) = files.get(path) {
        return Ok(Opened { kind: Kind::File, file: file.clone() });
    }
    let within = if path.is_empty() { Vec::new() } else { [path, b"/"].concat() };
    match files.range(within.clone()..).next() {
        Some((path, _)) if path.starts_with(&within) => {
            Ok(Opened { kind: Kind::Folder, file: File::of_bytes(b"") })
        }
        _ => Err(Errno::NOENT),
    }
}
