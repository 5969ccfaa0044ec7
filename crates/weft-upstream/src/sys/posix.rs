//! Calls that Linux and the other Unix systems have in common.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
pub(crate) use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;

use rustix::io::Errno;

/// Returns the bytes of a path or of another text of the system.
pub(crate) fn bytes_of(text: &OsStr) -> &[u8] {
    text.as_bytes()
}

/// Fills the buffer from a position.
pub(crate) fn read_exact_at(file: &File, buffer: &mut [u8], at: u64) -> io::Result<()> {
    file.read_exact_at(buffer, at)
}

/// Writes bytes to a position.
pub(crate) fn write_all_at(file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    file.write_all_at(bytes, at)
}

/// Returns true if the process or the system has run out of file descriptors or memory. Such an
/// error is temporary, and the peer has not caused it.
pub(crate) fn is_exhaustion(error: &io::Error) -> bool {
    let number = Errno::from_io_error(error);
    matches!(number, Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS))
}

/// Returns true if bytes cannot be moved by `splice`, although the socket has no error: the socket
/// does not support it, or no memory is left.
pub(crate) fn is_splice_refusal(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::INVAL | Errno::NOMEM))
}
