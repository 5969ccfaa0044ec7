//! File reads that do not block the event loop.
//!
//! Data in the page cache is read at once (`preadv2(2)` with `RWF_NOWAIT`). For other data a
//! thread of the runtime's blocking pool waits for the disk, while the event loop serves other
//! connections.

#[cfg_attr(
    not(all(feature = "cache", any(feature = "brotli", feature = "gzip", feature = "zstd"))),
    allow(dead_code, reason = "copies are made of stored responses that are compressed")
)]
mod coded_copies;
#[cfg_attr(not(feature = "files"), allow(dead_code, reason = "the file cache uses the rest"))]
mod file;
#[cfg(any(test, feature = "files"))]
mod nowait;

use std::fs;
use std::io;
use std::pin::Pin;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{self, Either};
use http_body::{Frame, SizeHint};

#[cfg(feature = "cache")]
pub(crate) use self::coded_copies::CodedCopies;
#[cfg(any(feature = "brotli", feature = "gzip", feature = "zstd"))]
pub(crate) use self::coded_copies::{CodedCopy, NewCopy};
pub use self::file::File;
#[cfg(any(feature = "cache", feature = "files", feature = "_tls"))]
pub(crate) use self::file::FileVersion;
pub(crate) use self::file::Source;
pub(crate) use self::file::Unsent;
#[cfg(any(test, feature = "files"))]
pub(crate) use self::nowait::read_exact_nowait;
use crate::error::{Error, Result};
use crate::exclusive::Exclusive;
use crate::sys::{self, read_nowait};

/// Maximum size of one read from a file.
pub(crate) const PIECE_BYTES: usize = 64 << 10;

/// Maximum number of bytes that [`fetch`] brings into the page cache before they are sent.
const FETCH_BYTES: u64 = 1 << 20;

/// Distance of the bytes that [`resident_len`] probes. The kernel reads ahead in steps of at least
/// this size, in order, so if the last byte of a step is resident, so are the others.
const STRIDE_BYTES: u64 = 128 << 10;

/// Distance of these bytes if the part of the file before them was resident. The kernel evicts a
/// file that was read in order from its beginning on, so that a gap is rare.
const WIDE_STRIDE_BYTES: u64 = 1 << 20;

/// Returns the number of bytes at the start of the rest of a file, at most `max`, that seem to be
/// in the page cache. Only some bytes are probed, fewer `behind_resident` bytes; if a page between
/// two probes is missing, the event loop waits for one disk read.
///
/// Once all of a small cached file is resident, a flag of the file is set, and later calls do not
/// probe.
pub(crate) fn resident_len(
    file: &File,
    rest: Unsent,
    open: &fs::File,
    max: u64,
    behind_resident: bool,
) -> u64 {
    let length = rest.length.min(max);
    let is_resident = file.is_resident.as_deref().filter(|_| length <= STRIDE_BYTES);
    if is_resident.is_some_and(|flag| flag.load(Relaxed)) {
        return length;
    }
    let resident = resident_prefix(open, rest.start, length, behind_resident);
    if let Some(flag) = is_resident
        && resident == length
        && rest == file.unsent()
        && file.is_whole()
    {
        flag.store(true, Relaxed);
    }
    resident
}

/// Returns true if the byte at a position seems to be in the page cache.
pub(crate) fn is_resident(open: &fs::File, at: u64) -> bool {
    !matches!(read_nowait(open, &mut [0], at), Ok(None))
}

fn resident_prefix(open: &fs::File, at: u64, length: u64, behind_resident: bool) -> u64 {
    if !behind_resident && !is_resident(open, at) {
        return 0;
    }
    let stride = if behind_resident { WIDE_STRIDE_BYTES } else { STRIDE_BYTES };
    let mut resident = 0;
    // The last byte of each step is probed: the first may be resident before the rest is read.
    while resident < length {
        let next = (resident + stride - (at + resident) % stride).min(length);
        if !is_resident(open, at + next - 1) {
            break;
        }
        resident = next;
    }
    resident
}

/// Reads a range into the page cache on the blocking pool. Returns the number of bytes read: at
/// most [`FETCH_BYTES`], fewer at the end of the range or of the file.
pub(crate) async fn fetch(file: Arc<fs::File>, at: u64, length: u64) -> io::Result<u64> {
    blocking(move || {
        let (mut position, end) = (at, at + length.min(FETCH_BYTES));
        while position < end {
            match read_into_page_cache(&file, position, end - position, dev_null())? {
                0 => break,
                read => position += read as u64,
            }
        }
        // A hint: the disk may read the following bytes while these are sent.
        let next = std::num::NonZeroU64::new((length - (end - at)).min(FETCH_BYTES));
        if let Some(next) = next {
            sys::will_need(&file, end, next);
        }
        Ok(position - at)
    })
    .await
}

/// Reads a part of a range into the page cache; waits for the disk. `null` takes the pages without
/// a copy. Not every file system supports that, and not every container has the device.
fn read_into_page_cache(
    file: &fs::File,
    at: u64,
    length: u64,
    null: Option<&fs::File>,
) -> io::Result<usize> {
    let taken = null.and_then(|null| sys::cache_pages(file, at, length as usize, null));
    taken
        .unwrap_or_else(|| read_at(file, &mut vec![0; length.min(PIECE_BYTES as u64) as usize], at))
}

/// Returns `/dev/null`, opened for writing once.
fn dev_null() -> Option<&'static fs::File> {
    static NULL: OnceLock<Option<fs::File>> = OnceLock::new();
    NULL.get_or_init(|| fs::File::options().write(true).open("/dev/null").ok()).as_ref()
}

/// A read that waits for the disk.
pub(crate) struct BlockingRead {
    file: Arc<fs::File>,
    at: u64,
    /// The buffer, of the length to read.
    piece: Vec<u8>,
}

impl BlockingRead {
    /// Reads on the runtime's blocking pool.
    pub(crate) fn run(self) -> impl Future<Output = io::Result<Bytes>> {
        blocking(move || {
            let BlockingRead { file, at, mut piece } = self;
            let read = read_at(&file, &mut piece, at)?;
            piece.truncate(read);
            Ok(piece.into())
        })
    }
}

/// Reads at most [`PIECE_BYTES`] of a range; empty at the end of the file.
///
/// The returned future is small: it contains the piece, or the handle of the blocking pool.
pub(crate) fn read(
    file: &Arc<fs::File>,
    at: u64,
    length: u64,
) -> impl Future<Output = io::Result<Bytes>> + use<> {
    match try_read(file, at, length) {
        Ok(Ok(piece)) => Either::Left(future::ready(Ok(piece))),
        Ok(Err(read)) => Either::Right(read.run()),
        Err(error) => Either::Left(future::ready(Err(error))),
    }
}

/// Reads like [`read`] if the bytes are in the page cache. Otherwise returns the read as it remains
/// to be performed.
pub(crate) fn try_read(
    file: &Arc<fs::File>,
    at: u64,
    length: u64,
) -> io::Result<Result<Bytes, BlockingRead>> {
    let mut piece = vec![0; length.min(PIECE_BYTES as u64) as usize];
    Ok(match read_nowait(file, &mut piece, at)? {
        Some(read) => {
            piece.truncate(read);
            Ok(piece.into())
        }
        None => Err(BlockingRead { file: file.clone(), at, piece }),
    })
}

/// Reads once; waits for the disk. On some file systems, such as FUSE, a signal may interrupt it.
fn read_at(file: &fs::File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    loop {
        match sys::read_at(file, buffer, at) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

/// Runs a function that may wait for the disk on the runtime's blocking pool.
pub(crate) fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> impl Future<Output = io::Result<T>> {
    // Started here, so that the future contains the handle instead of `work`.
    let running = tokio::task::spawn_blocking(work);
    running.map(|done| done.unwrap_or_else(|error| Err(io::Error::other(error))))
}

/// A file as a body. It is read on demand, in pieces.
pub(crate) struct FileBody {
    pub(crate) file: File,
    /// The part of the file that was not read yet.
    pub(crate) rest: Unsent,
    max_piece: usize,
    pub(crate) reading: Option<Exclusive<Reading>>,
}

pub(crate) type Reading = Pin<Box<dyn Future<Output = io::Result<Bytes>> + Send>>;

impl FileBody {
    /// Creates a body that is read in pieces of at most `max_piece` bytes, and of [`PIECE_BYTES`].
    pub(crate) fn new(file: File, max_piece: usize) -> FileBody {
        FileBody { rest: file.unsent(), file, max_piece, reading: None }
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        let Source::Open(open) = &self.file.source else {
            return Poll::Ready(Ok(self.file.in_memory().unwrap_or_default()));
        };
        let (at, length) = (self.rest.start, self.rest.length.min(self.max_piece as u64));
        let open = open.clone();
        let reading = self.reading.get_or_insert_with(|| {
            Exclusive::new(Box::pin(async move { read(&open, at, length).await }))
        });
        let piece = ready!(reading.get_mut().as_mut().poll(cx));
        self.reading = None;
        Poll::Ready(piece)
    }
}

impl http_body::Body for FileBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>>>> {
        if self.rest.length == 0 {
            return Poll::Ready(None);
        }
        let piece = ready!(self.poll_piece(cx))?;
        self.rest.advance(piece.len())?;
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.length == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    #[cfg(target_os = "linux")]
    use std::os::unix::fs::FileExt;

    #[cfg(target_os = "linux")]
    use rustix::fs::Advice;

    const LENGTH: u64 = 2 << 20;

    /// Makes a file that is not in the page cache, if the system and the file system support the
    /// eviction.
    fn cold_file() -> fs::File {
        let mut file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        file.write_all(&[b'x'; LENGTH as usize]).unwrap();
        file.sync_all().unwrap();
        #[cfg(target_os = "linux")]
        rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        file
    }

    #[cfg(target_os = "linux")]
    fn resident(file: &fs::File, at: u64, length: u64) -> u64 {
        resident_prefix(file, at, length, false)
    }

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn fetched_bytes_are_resident() {
        let file = Arc::new(cold_file());
        if resident(&file, 0, LENGTH) == LENGTH {
            return println!("SKIPPED: this file system keeps everything in memory");
        }
        assert!(read_exact_nowait(&file, 0, LENGTH as usize).unwrap().is_none());
        run(fetch(file.clone(), 0, LENGTH)).unwrap();
        assert!(resident(&file, 0, LENGTH) >= FETCH_BYTES);
        run(fetch(file.clone(), FETCH_BYTES, LENGTH - FETCH_BYTES)).unwrap();
        assert_eq!(resident(&file, 7, LENGTH - 7), LENGTH - 7);
        assert_eq!(
            read_exact_nowait(&file, 0, LENGTH as usize).unwrap().unwrap().len() as u64,
            LENGTH
        );
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn files_are_read_without_dev_null() {
        let file = cold_file();
        if resident(&file, 0, LENGTH) == LENGTH {
            return println!("SKIPPED: this file system keeps everything in memory");
        }
        // A file that is opened to append is no target of `sendfile(2)`.
        let folder = tempfile::tempdir().unwrap();
        let unfit = fs::File::options().append(true).create(true).open(folder.path().join("a"));
        let unfit = unfit.unwrap();
        for null in [dev_null(), Some(&unfit), None] {
            let file = cold_file();
            let read = read_into_page_cache(&file, 0, 1_000, null).unwrap();
            assert_eq!((read, resident(&file, 0, 1_000)), (1_000, 1_000), "{null:?}");
            assert_eq!(read_into_page_cache(&file, LENGTH, 1, null).unwrap(), 0, "{null:?}");
        }
        assert_eq!(unfit.metadata().unwrap().len(), 0);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn resident_prefix_ends_at_the_first_missing_byte() {
        if resident(&cold_file(), 0, LENGTH) == LENGTH {
            return println!("SKIPPED: this file system keeps everything in memory");
        }
        const FIRST_END: u64 = STRIDE_BYTES - 1;
        const SECOND_END: u64 = 2 * STRIDE_BYTES - 1;
        const WIDE_END: u64 = WIDE_STRIDE_BYTES - 1;
        for (resident, start, behind_resident, expected) in [
            (&[][..], 0, false, 0),
            // The first byte of a step does not prove that its last byte is resident.
            (&[0], 0, false, 0),
            (&[0, FIRST_END], 0, false, STRIDE_BYTES),
            (&[0, FIRST_END, STRIDE_BYTES], 0, false, STRIDE_BYTES),
            (&[0, FIRST_END, SECOND_END], 0, false, 2 * STRIDE_BYTES),
            (&[0, FIRST_END, SECOND_END], 7, false, 2 * STRIDE_BYTES - 7),
            // Nor does the last byte of the step prove that the first requested byte is.
            (&[FIRST_END], 0, false, 0),
            (&[WIDE_END], 0, true, WIDE_STRIDE_BYTES),
            (&[0, FIRST_END, SECOND_END], 0, true, 0),
        ] {
            let probe = || {
                // A new file each time: a probe of a missing byte starts a read from the disk.
                let file = cold_file();
                // Disables readahead.
                rustix::fs::fadvise(&file, 0, None, Advice::Random).unwrap();
                for &at in resident {
                    file.read_exact_at(&mut [0], at).unwrap();
                }
                resident_prefix(&file, start, LENGTH - start, behind_resident)
            };
            // The kernel does not always evict all of a file, so more may be resident.
            let mut results = (0..50).map(|_| probe());
            let found = results.find(|&found| found == expected).unwrap_or_else(probe);
            assert_eq!(found, expected, "from {start} on, with {resident:?} resident");
        }
    }

    #[test]
    fn file_body_has_the_length_of_its_range() {
        for (start, length) in [(0, LENGTH), (100, 0), (LENGTH - 1, 1), (5, 3 * 65_536 + 1)] {
            let body = crate::Body::from(File::new(cold_file(), start, length));
            assert_eq!(body.length(), Some(length));
            let bytes = run(body.collect(LENGTH as usize)).unwrap();
            assert_eq!(bytes.len() as u64, length);
        }
    }

    #[test]
    fn body_of_a_truncated_file_fails_after_the_rest() {
        let mut body = crate::Body::from(File::new(cold_file(), 1, LENGTH));
        let mut received = 0;
        let error = loop {
            match run(body.chunk()) {
                Ok(piece) => received += piece.expect("an error before the end").len() as u64,
                Err(error) => break error,
            }
        };
        assert_eq!((received, error.kind()), (LENGTH - 1, crate::ErrorKind::LengthMismatch));
    }
}
