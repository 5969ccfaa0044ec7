//! Attributes of files, permissions, and paths.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags, accessat};
use rustix::io::Errno;

use super::users::{Gid, Uid};

/// Returns the bytes of a path or of another text of the system.
pub(crate) fn bytes_of(text: &(impl AsRef<OsStr> + ?Sized)) -> &[u8] {
    text.as_ref().as_bytes()
}

/// Returns bytes as a text of the system.
pub(crate) fn text_of_bytes(bytes: &[u8]) -> &OsStr {
    OsStr::from_bytes(bytes)
}

/// Identity of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileId {
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

/// Returns the identity of a file.
pub(crate) fn file_id(file: &Metadata) -> FileId {
    FileId { device: file.dev(), inode: file.ino() }
}

/// Returns true if no name refers to an open file any more.
pub(crate) fn has_no_name(file: &Metadata) -> bool {
    file.nlink() == 0
}

/// Returns the identity of the file behind an open stream, in the form `DEVICE:INODE`.
pub(crate) fn stream_id(stream: impl std::os::fd::AsFd) -> Option<String> {
    let stat = rustix::fs::fstat(stream).ok()?;
    Some(format!("{}:{}", stat.st_dev, stat.st_ino))
}

/// A changed file has another version. The time of the last change of the inode is a part of it,
/// because tools such as `cp -p` and `rsync -t` set the time of the contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileVersion {
    id: FileId,
    pub(crate) bytes: u64,
    /// Seconds and nanoseconds since 1970.
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileVersion {
    pub(crate) fn of(path: &Path) -> io::Result<FileVersion> {
        let metadata = fs::metadata(path)?;
        Ok(FileVersion {
            id: file_id(&metadata),
            bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}

/// Returns true if the file is a socket.
pub(crate) fn is_socket(file: &Metadata) -> bool {
    file.file_type().is_socket()
}

/// Returns the owner of a file, its group, and the bits of its mode that are permissions.
pub(crate) fn owner_and_mode(file: &Metadata) -> (Uid, Gid, u32) {
    (Uid::from_raw(file.uid()), Gid::from_raw(file.gid()), file.mode() & 0o7777)
}

pub(crate) fn set_owner(path: &Path, user: Uid, group: Gid) -> io::Result<()> {
    chown(path, Some(user.as_raw()), Some(group.as_raw()))
}

pub(crate) fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    fs::set_permissions(path, Permissions::from_mode(mode))
}

/// An access that the process wants.
#[derive(Clone, Copy)]
pub(crate) enum FileAccess {
    Write,
    /// Create files in a directory.
    CreateFiles,
}

/// Checks the permissions of the effective user.
pub(crate) fn can_access(path: &Path, access: FileAccess) -> io::Result<()> {
    let access = match access {
        FileAccess::Write => Access::WRITE_OK,
        FileAccess::CreateFiles => Access::WRITE_OK | Access::EXEC_OK,
    };
    Ok(accessat(CWD, path, access, AtFlags::EACCESS)?)
}

/// Returns true for `EACCES`, but not for `EPERM`.
pub(crate) fn is_denied(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::ACCESS)
}

/// Creates a file with a mode, and opens it for writing. It must not exist.
pub(crate) fn create_file_with_mode(path: &Path, mode: u32) -> io::Result<File> {
    File::options().write(true).create_new(true).mode(mode).open(path)
}

/// Opens or creates a file that others may read. A symbolic link must not redirect the write to
/// another file.
pub(crate) fn open_for_pid(path: &Path) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::open(path, flags, Mode::from_raw_mode(0o644))?))
}

/// Fills the buffer from a position.
pub(crate) fn read_exact_at(file: &File, buffer: &mut [u8], at: u64) -> io::Result<()> {
    file.read_exact_at(buffer, at)
}
