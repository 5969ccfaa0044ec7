//! Detection of resource exhaustion (file descriptors, memory).

use std::io;

use rustix::io::Errno;

/// Returns true if the process or the system has run out of file descriptors or memory. Such an
/// error is temporary, and the peer has not caused it.
pub(crate) fn is_exhaustion(error: &io::Error) -> bool {
    let number = Errno::from_io_error(error);
    matches!(number, Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS))
}
