//! Types of the calls, the same for all systems.

use std::net::SocketAddr;

pub use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
pub(crate) use rustix::io::Errno;
#[cfg(unix)]
pub use std::os::unix::net::UnixListener;

/// A new connection, and the address of its client if the listener has one.
pub(crate) type NewConnection = (OwnedFd, Option<SocketAddr>);

/// Attributes of a file.
#[derive(Clone, Copy, Debug)]
pub struct FileStat {
    /// Kind of the entry.
    pub kind: EntryKind,
    /// True if a user, a group or others may execute it.
    pub is_executable: bool,
    /// False for files without contents on a disk.
    pub has_blocks: bool,
    /// Number of bytes.
    pub length: u64,
    /// Number of the device.
    pub device: u64,
    /// Number of the file on the device.
    pub inode: u64,
    /// Time of the last change of the contents, in seconds and nanoseconds since 1970.
    pub modified: (i64, i64),
    /// Time of the last change of contents or metadata.
    pub changed: (i64, i64),
}

/// Kind of an entry of a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Folder,
    /// A symbolic link.
    Symlink,
    /// A device, a pipe or a socket.
    Other,
}

/// The symbolic links that are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// No links.
    Refused,
    /// Relative links to targets beneath the directory.
    Beneath,
    /// All links, except for links of `/proc` that the kernel does not resolve by their text.
    Anywhere,
}

/// Permission to wait for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MayBlock {
    /// On the event loop: an operation that would wait fails with `WouldBlock`.
    No,
    /// On a thread of the blocking pool.
    Yes,
}

/// Repeats a call that a signal interrupts.
#[inline]
pub(crate) fn retry_on_interrupt<T>(
    mut call: impl FnMut() -> rustix::io::Result<T>,
) -> rustix::io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
}

/// Error of a call that the system does not have.
#[cfg(not(all(target_os = "linux", not(weft_portable))))]
pub(super) fn unsupported() -> std::io::Error {
    std::io::ErrorKind::Unsupported.into()
}
