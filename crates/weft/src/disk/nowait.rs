//! Reads of bytes that are in the page cache.

use std::fs;
use std::io::{self, IoSliceMut};

use rustix::io::{Errno, ReadWriteFlags, preadv2};

/// Reads bytes that are in the page cache. Returns `None` if the read would wait for the disk, or
/// if the file system does not support `RWF_NOWAIT`.
pub(super) fn read_nowait(
    file: &fs::File,
    buffer: &mut [u8],
    at: u64,
) -> io::Result<Option<usize>> {
    loop {
        return match preadv2(file, &mut [IoSliceMut::new(buffer)], at, ReadWriteFlags::NOWAIT) {
            Ok(read) => Ok(Some(read)),
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(None),
            Err(error) => Err(error.into()),
        };
    }
}

/// Reads a range if all of it is in the page cache.
#[cfg(any(test, feature = "files"))]
pub(crate) fn read_exact_nowait(
    file: &fs::File,
    at: u64,
    length: usize,
) -> io::Result<Option<bytes::Bytes>> {
    let mut bytes = vec![0; length];
    let mut filled = 0;
    while filled < length {
        match read_nowait(file, &mut bytes[filled..], at + filled as u64)? {
            Some(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Some(read) => filled += read,
            None => return Ok(None),
        }
    }
    Ok(Some(bytes.into()))
}
