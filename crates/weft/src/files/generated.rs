//! Files whose contents the kernel generates when they are read, as in `/proc` and `/sys`. Their
//! length is not known: `stat(2)` returns 0 or the size of a page.

use std::fs;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;

use crate::disk;
use crate::message::body::Body;
use crate::sys::read_at;

/// Maximum number of bytes of one read.
const PIECE_BYTES: usize = 64 << 10;

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
    let length = read_at(file, &mut piece, at)?;
    piece.truncate(length);
    Ok(piece.into())
}
