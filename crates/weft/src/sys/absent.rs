//! Calls that only Linux has, in their absence.

use std::fs;
use std::io;
use std::num::NonZeroU64;
use std::time::Duration;

use super::types::unsupported;

/// Returns `None`: no call reads only bytes that are in the page cache.
pub(crate) fn read_nowait(
    _file: &fs::File,
    _buffer: &mut [u8],
    _at: u64,
) -> io::Result<Option<usize>> {
    Ok(None)
}

/// Returns `None`: no call reads into the page cache only.
pub(crate) fn cache_pages(
    _file: &fs::File,
    _at: u64,
    _length: usize,
    _null: &fs::File,
) -> Option<io::Result<usize>> {
    None
}

/// Does nothing: the system reads ahead by itself.
pub(crate) fn will_need(_file: &fs::File, _at: u64, _length: NonZeroU64) {}

/// A periodic timer of the kernel: none, so that timers of tokio serve.
pub(crate) enum Timer {}

impl Timer {
    pub(crate) fn start(_period: Duration) -> io::Result<Timer> {
        Err(unsupported())
    }

    pub(crate) async fn expired(&mut self) -> io::Result<()> {
        match *self {}
    }
}
