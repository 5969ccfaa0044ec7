//! Reads of bytes that are in the page cache.

use std::fs;
use std::io;

use crate::sys::read_nowait;

/// Reads a range if all of it is in the page cache.
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
