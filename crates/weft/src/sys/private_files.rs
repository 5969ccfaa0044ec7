//! Files and folders that only the user of the process may read.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

/// Creates a folder, and those above it, unless they exist.
pub(crate) fn create_private_folder(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Returns true if users other than its owner may create files in a folder.
pub(crate) fn is_writable_by_others(path: &Path) -> io::Result<bool> {
    Ok(fs::metadata(path)?.mode() & 0o022 != 0)
}

/// Creates a file for writing and reading. It must not exist.
pub(crate) fn create_private_file(path: &Path) -> io::Result<fs::File> {
    fs::File::options().read(true).write(true).create_new(true).mode(0o600).open(path)
}

/// Opens a file. Does not follow a symbolic link.
pub(crate) fn open_private_file(path: &Path, is_writable: bool) -> io::Result<fs::File> {
    let flags = OFlags::NOFOLLOW.bits() as i32;
    fs::File::options().read(true).write(is_writable).custom_flags(flags).open(path)
}

/// Opens a file whose lock shows that a process uses its folder.
pub(crate) fn open_lock_file(path: &Path) -> io::Result<fs::File> {
    let flags = OFlags::NOFOLLOW.bits() as i32;
    let mut options = fs::File::options();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(flags);
    options.open(path)
}
