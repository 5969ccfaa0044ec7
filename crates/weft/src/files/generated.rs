//! Files whose contents the kernel generates when they are read, as in `/proc` and `/sys`. Their
//! length is not known: `stat(2)` returns 0 or the size of a page.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use rustix::fs::{FsWord, Stat, fstatfs};

use crate::disk;
use crate::message::body::Body;

/// Types of file systems with generated files, from `statfs(2)`.
const FILE_SYSTEMS: [FsWord; 8] = [
    0x0000_9fa0, // proc
    0x6265_6572, // sysfs
    0x0027_e0eb, // cgroup
    0x6367_7270, // cgroup2
    0x6462_6720, // debugfs
    0x7472_6163, // tracefs
    0x7363_6673, // securityfs
    0x6265_6570, // configfs
];

/// Maximum number of bytes of one read.
const PIECE_BYTES: usize = 64 << 10;

/// Returns true if the length of a regular file is not known. Other files with contents occupy
/// blocks of a disk, so that most lookups make no further system call.
pub(super) fn is_generated(file: &fs::File, stat: &Stat) -> bool {
    stat.st_blocks == 0 && fstatfs(file).is_ok_and(|system| FILE_SYSTEMS.contains(&system.f_type))
}

/// Returns the contents as a body, which is read piece by piece until the end of the file.
pub(super) fn contents(file: Arc<fs::File>) -> Body {
    Body::stream(stream::try_unfold(0, move |at: u64| {
        let file = file.clone();
        let read = disk::blocking(move || read_piece(&file, at));
        async move {
            let piece = read.await?;
            let next = at + piece.len() as u64;
            Ok::<_, io::Error>((!piece.is_empty()).then_some((piece, next)))
        }
    }))
}

fn read_piece(file: &fs::File, at: u64) -> io::Result<Bytes> {
    let mut piece = vec![0; PIECE_BYTES];
    let length = file.read_at(&mut piece, at)?;
    piece.truncate(length);
    Ok(piece.into())
}
