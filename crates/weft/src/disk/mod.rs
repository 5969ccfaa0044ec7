//! Reads of files that do not hold up the event loop.
//!
//! What the kernel has in its page cache is taken at once (`preadv2(2)` with `RWF_NOWAIT`).
//! For the rest a thread of the runtime's pool waits, and the other connections go on.

mod file;

use std::fs;
use std::io::{self, IoSliceMut};
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use rustix::fs::Advice;
use rustix::io::{Errno, ReadWriteFlags, preadv2};

pub use self::file::File;
pub(crate) use self::file::{FileVersion, Source};
use crate::error::{Error, Result};

/// How much of a file is read at a time.
pub(crate) const PIECE_BYTES: usize = 64 << 10;

/// How much is brought from the disk at a time before it is sent.
const WINDOW_BYTES: u64 = 512 << 10;

/// The kernel reads ahead in such steps or larger ones, in order, so the last byte of each
/// tells of the others.
const STRIDE_BYTES: u64 = 128 << 10;

/// Reads what is in memory; `None` if that would wait for the disk. File systems that
/// cannot tell are taken to wait.
pub(crate) fn read_now(file: &fs::File, buffer: &mut [u8], at: u64) -> io::Result<Option<usize>> {
    loop {
        return match preadv2(file, &mut [IoSliceMut::new(buffer)], at, ReadWriteFlags::NOWAIT) {
            Ok(read) => Ok(Some(read)),
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(None),
            Err(error) => Err(error.into()),
        };
    }
}

/// Reads a range if all of it is in memory.
pub(crate) fn read_whole_now(file: &fs::File, at: u64, length: usize) -> io::Result<Option<Bytes>> {
    let mut bytes = vec![0; length];
    let mut filled = 0;
    while filled < length {
        match read_now(file, &mut bytes[filled..], at + filled as u64)? {
            Some(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Some(read) => filled += read,
            None => return Ok(None),
        }
    }
    Ok(Some(bytes.into()))
}

/// How many of a file's bytes, of `most` at its start, seem to be in memory. Between two probes
/// something may be missing: then the loop waits for one read of the disk.
///
/// Of a small file that is kept, it is noted that all of it is there.
pub(crate) fn at_hand(file: &File, open: &fs::File, most: u64) -> u64 {
    let length = file.length.min(most);
    let note = file.at_hand.as_deref().filter(|_| length <= STRIDE_BYTES);
    if note.is_some_and(|note| note.load(Relaxed)) {
        return length;
    }
    let hand = probe(open, file.start, length);
    if let Some(note) = note
        && hand == length
        && file.is_whole()
    {
        note.store(true, Relaxed);
    }
    hand
}

fn probe(open: &fs::File, at: u64, length: u64) -> u64 {
    let is_there = |at| !matches!(read_now(open, &mut [0], at), Ok(None));
    if !is_there(at) {
        return 0;
    }
    let mut hand = 0;
    // The first byte of a step may have arrived when the rest is still on its way.
    while hand < length {
        let next = (hand + STRIDE_BYTES - (at + hand) % STRIDE_BYTES).min(length);
        if !is_there(at + next - 1) {
            break;
        }
        hand = next;
    }
    hand
}

/// Brings what stands at this place into memory, and says how many bytes that are: a good
/// piece, or less at the end of the file.
pub(crate) async fn fetch(file: Arc<fs::File>, at: u64, length: u64) -> io::Result<u64> {
    blocking(move || {
        let mut buffer = vec![0; PIECE_BYTES];
        let (mut here, end) = (at, at + length.min(WINDOW_BYTES));
        while here < end {
            let ask = PIECE_BYTES.min((end - here) as usize);
            match file.read_at(&mut buffer[..ask], here)? {
                0 => break,
                read => here += read as u64,
            }
        }
        // While this is sent, the disk may already bring what follows. Only a hint.
        let next = std::num::NonZeroU64::new((length - (end - at)).min(WINDOW_BYTES));
        if next.is_some() {
            let _ = rustix::fs::fadvise(&*file, end, next, Advice::WillNeed);
        }
        Ok(here - at)
    })
    .await
}

/// Reads a piece of this range; nothing at the end of the file.
pub(crate) async fn read(file: &Arc<fs::File>, at: u64, length: u64) -> io::Result<Bytes> {
    let mut piece = vec![0; length.min(PIECE_BYTES as u64) as usize];
    if let Some(read) = read_now(file, &mut piece, at)? {
        piece.truncate(read);
        return Ok(piece.into());
    }
    let file = file.clone();
    blocking(move || read_piece(&file, piece, at)).await
}

fn read_piece(file: &fs::File, mut piece: Vec<u8>, at: u64) -> io::Result<Bytes> {
    let read = file.read_at(&mut piece, at)?;
    piece.truncate(read);
    Ok(piece.into())
}

/// Runs in the pool what may wait for the disk.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// A file as a body: it is read as it is asked for, in pieces of 64 KiB.
pub(crate) struct Reader {
    file: File,
    reading: Option<Reading>,
}

type Reading = Pin<Box<dyn Future<Output = io::Result<Bytes>> + Send>>;

impl Reader {
    pub(crate) fn new(file: File) -> Reader {
        Reader { file, reading: None }
    }

    /// What is left of the file, unless a piece of it is being read.
    pub(crate) fn into_file(self: Box<Self>) -> Result<File, Box<Self>> {
        if self.reading.is_none() { Ok(self.file) } else { Err(self) }
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        let Source::Open(open) = &self.file.source else {
            return Poll::Ready(Ok(self.file.in_memory().unwrap_or_default()));
        };
        let (at, length) = (self.file.start, self.file.length);
        let open = open.clone();
        let reading = self
            .reading
            .get_or_insert_with(|| Box::pin(async move { read(&open, at, length).await }));
        let piece = ready!(reading.as_mut().poll(cx));
        self.reading = None;
        Poll::Ready(piece)
    }
}

impl http_body::Body for Reader {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>>>> {
        if self.file.length == 0 {
            return Poll::Ready(None);
        }
        let piece = ready!(self.poll_piece(cx))?;
        self.file.advance(piece.len())?;
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.file.length == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.file.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const LENGTH: u64 = 1 << 20;

    /// A file of which nothing is in memory, if the file system lets go of it.
    fn cold() -> fs::File {
        let mut file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        file.write_all(&[b'x'; LENGTH as usize]).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        file
    }

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    #[test]
    fn what_was_fetched_is_at_hand() {
        let file = Arc::new(cold());
        if probe(&file, 0, LENGTH) == LENGTH {
            return println!("SKIPPED: this file system keeps everything in memory");
        }
        assert!(read_whole_now(&file, 0, LENGTH as usize).unwrap().is_none());
        run(fetch(file.clone(), 0, LENGTH)).unwrap();
        assert!(probe(&file, 0, LENGTH) >= WINDOW_BYTES);
        run(fetch(file.clone(), WINDOW_BYTES, LENGTH - WINDOW_BYTES)).unwrap();
        assert_eq!(probe(&file, 7, LENGTH - 7), LENGTH - 7);
        assert_eq!(
            read_whole_now(&file, 0, LENGTH as usize).unwrap().unwrap().len() as u64,
            LENGTH
        );
    }

    #[test]
    fn what_is_in_memory_in_part_is_at_hand_up_to_there() {
        if probe(&cold(), 0, LENGTH) == LENGTH {
            return println!("SKIPPED: this file system keeps everything in memory");
        }
        const FIRST_END: u64 = STRIDE_BYTES - 1;
        const SECOND_END: u64 = 2 * STRIDE_BYTES - 1;
        for (brought, start, at_hand) in [
            (&[][..], 0, 0),
            // The beginning of a step says nothing of its end.
            (&[0], 0, 0),
            (&[0, FIRST_END], 0, STRIDE_BYTES),
            (&[0, FIRST_END, STRIDE_BYTES], 0, STRIDE_BYTES),
            (&[0, FIRST_END, SECOND_END], 0, 2 * STRIDE_BYTES),
            (&[0, FIRST_END, SECOND_END], 7, 2 * STRIDE_BYTES - 7),
            // Nor does its end of what is asked for.
            (&[FIRST_END], 0, 0),
        ] {
            let found = || {
                // Another file each time: looking for what is missing begins to bring it.
                let file = cold();
                // What is read comes, and nothing ahead of it.
                rustix::fs::fadvise(&file, 0, None, Advice::Random).unwrap();
                for &at in brought {
                    file.read_exact_at(&mut [0], at).unwrap();
                }
                probe(&file, start, LENGTH - start)
            };
            // The kernel does not always let go of all of a file: then more is there.
            let mut founds = (0..50).map(|_| found());
            let found = founds.find(|&found| found == at_hand).unwrap_or_else(found);
            assert_eq!(found, at_hand, "from {start} on, when {brought:?} were brought");
        }
    }

    #[test]
    fn a_file_is_a_body_of_its_length() {
        for (start, length) in [(0, LENGTH), (100, 0), (LENGTH - 1, 1), (5, 3 * 65_536 + 1)] {
            let body = crate::Body::from(File::new(cold(), start, length));
            assert_eq!(body.length(), Some(length));
            let bytes = run(body.collect(LENGTH as usize)).unwrap();
            assert_eq!(bytes.len() as u64, length);
        }
    }

    #[test]
    fn a_file_that_has_become_shorter_is_no_whole_body() {
        let body = crate::Body::from(File::new(cold(), 1, LENGTH));
        assert!(run(body.collect(usize::MAX)).is_err());
    }
}
