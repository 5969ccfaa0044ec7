//! Linux.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::{Errno, ReadWriteFlags, preadv2};
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with};

/// Reads bytes that are in the page cache. Returns `None` if the read would wait for the disk, or
/// if the file system does not support `RWF_NOWAIT`.
pub(crate) fn read_nowait(file: &File, buffer: &mut [u8], at: u64) -> io::Result<Option<usize>> {
    match preadv2(file, &mut [IoSliceMut::new(buffer)], at, ReadWriteFlags::NOWAIT) {
        Ok(read) => Ok(Some(read)),
        Err(Errno::INTR | Errno::AGAIN | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// Opens a pipe of this size. Returns its output and its input.
///
/// # Errors
/// If no descriptors are left, or beyond the limit of pages of a user without privileges.
pub(crate) fn open_pipe(size: usize) -> io::Result<(OwnedFd, OwnedFd)> {
    let (output, input) = pipe_with(PipeFlags::CLOEXEC)?;
    fcntl_setpipe_size(&input, size)?;
    Ok((output, input))
}

/// Moves bytes within the kernel from or to a pipe, without waiting.
pub(crate) fn splice(from: impl AsFd, to: impl AsFd, length: usize) -> io::Result<usize> {
    let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
    Ok(rustix::pipe::splice(from, None, to, None, length, flags)?)
}
