//! Unix systems other than Linux.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Returns `None`: no call reads only bytes that are in the page cache.
pub(crate) fn read_nowait(_file: &File, _buffer: &mut [u8], _at: u64) -> io::Result<Option<usize>> {
    Ok(None)
}

/// Fails, so that bytes are copied: no call moves bytes within the kernel.
pub(crate) fn open_pipe(_size: usize) -> io::Result<(OwnedFd, OwnedFd)> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Fails: there are no pipes.
pub(crate) fn splice(_from: impl AsFd, _to: impl AsFd, _length: usize) -> io::Result<usize> {
    Err(io::ErrorKind::Unsupported.into())
}
