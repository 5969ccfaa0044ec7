//! Calls of the system, which all Unix systems have. No other folder of the crate uses `rustix` or
//! `std::os`.

use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// `f_type` of file systems of Linux that do not survive a restart (statfs(2)): tmpfs, ramfs, and
/// overlayfs, which containers use.
const EPHEMERAL_FILE_SYSTEMS: [u32; 3] = [0x0102_1994, 0x8584_58f6, 0x794c_7630];

/// Returns true if the process runs as root.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns true if the files in a directory do not survive a restart.
pub(crate) fn is_ephemeral(directory: &Path) -> io::Result<bool> {
    let kind = rustix::fs::statfs(directory)?.f_type;
    Ok(u32::try_from(kind).is_ok_and(|kind| EPHEMERAL_FILE_SYSTEMS.contains(&kind)))
}

/// Creates a directory and the directories above it, which only their user may enter.
pub(crate) fn create_private_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Opens a file for a lock, which only its user may open.
pub(crate) fn open_lock_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Inode, size and time of modification of a file.
pub(crate) fn file_version(file: &Metadata) -> (u64, u64, i64, i64) {
    (file.ino(), file.size(), file.mtime(), file.mtime_nsec())
}
