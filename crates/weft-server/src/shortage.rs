//! What there is no room for just now.

use std::io;

use rustix::io::Errno;

/// Whether this process, or the system, has no descriptors or no memory left: that passes, and is
/// nobody else's fault.
pub(crate) fn is_shortage(error: &io::Error) -> bool {
    let number = Errno::from_io_error(error);
    matches!(number, Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS))
}
