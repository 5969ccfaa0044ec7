//! Bytes that are moved from one socket to another within the kernel (`splice(2)`), through a pipe.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::Interest;
use tokio::net::TcpStream;

use crate::sys::{self, OwnedFd};

/// Size of a pipe, in bytes. A larger one takes fewer calls, and holds more bytes of a sender whose
/// receiver is slow.
const PIPE_BYTES: usize = 256 << 10;

/// Maximum number of pipes. Receivers that do not read may hold all of them. Without a pipe, bytes
/// are copied, so that other connections continue.
pub const MAX_PIPES: usize = 64;

/// Maximum number of pipes that stay open while no direction uses them.
const MAX_IDLE_PIPES: usize = 8;

/// Time for which bytes are copied after a pipe could not be opened.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Number of bytes that must arrive without a pause: for fewer, a pipe is not worth its calls.
const MIN_BYTES: usize = 16 << 10;

/// Pipes that connections share. A direction holds a pipe only while it moves bytes.
pub struct SplicePipes {
    /// Size of each pipe, in bytes.
    size: usize,
    counts: Mutex<PipeCounts>,
}

#[derive(Default)]
struct PipeCounts {
    idle: Vec<Pipe>,
    /// Number of all pipes, in use and idle.
    open: usize,
    /// Time before which no other pipe is opened.
    retry_at: Option<Instant>,
}

struct Pipe {
    input: OwnedFd,
    output: OwnedFd,
}

/// A pipe in use. It can be used again if it is empty when it is dropped.
struct PipeLease<'p> {
    pipes: &'p SplicePipes,
    /// Always there until it is dropped.
    pipe: Option<Pipe>,
    /// Number of bytes in the pipe.
    held: usize,
}

/// Two sockets. Bytes are moved from one to the other.
pub struct Splice<'s> {
    pub from: &'s TcpStream,
    pub to: &'s TcpStream,
    pub pipes: &'s SplicePipes,
}

/// Error of one of the sockets. A socket reports its error only once: the next call on it would
/// report the end of the direction.
#[non_exhaustive]
pub enum SpliceError {
    Receive(io::Error),
    Send(io::Error),
}

/// The end of a move within the kernel.
pub enum Spliced {
    /// Few bytes arrive at a time, or the socket does not permit that they are moved. The direction
    /// may have ended, which a read shows.
    UntilPause,
    /// All pipes are in use.
    NoPipe,
}

impl Splice<'_> {
    /// Moves bytes while many of them arrive at a time. `moved` gets the number of each part.
    ///
    /// # Errors
    /// The errors of both sockets.
    pub async fn run(self, moved: impl Fn(u64)) -> Result<Spliced, SpliceError> {
        loop {
            let Some(mut pipe) = self.pipes.take() else { return Ok(Spliced::NoPipe) };
            let mut total = 0;
            loop {
                match pipe.fill(self.from) {
                    // The end, or urgent data in front of the end, which only a read skips.
                    Ok(0) => return Ok(Spliced::UntilPause),
                    Ok(received) => total += received,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if sys::is_splice_refusal(&error) => return Ok(Spliced::UntilPause),
                    Err(error) => return Err(SpliceError::Receive(error)),
                }
                pipe.drain(self.to, &moved).await.map_err(SpliceError::Send)?;
            }
            drop(pipe);
            if total < MIN_BYTES {
                return Ok(Spliced::UntilPause);
            }
            self.from.readable().await.map_err(SpliceError::Receive)?;
        }
    }
}

impl SplicePipes {
    /// Returns an empty pipe. `None` if all are in use, or if no descriptors or no pages of the
    /// user are left.
    fn take(&self) -> Option<PipeLease<'_>> {
        let mut counts = self.counts();
        let pipe = match counts.idle.pop() {
            None if counts.open == MAX_PIPES => return None,
            None if counts.retry_at.is_some_and(|at| Instant::now() < at) => return None,
            None => {
                let opened = Pipe::open(self.size);
                counts.retry_at = opened.is_err().then(|| Instant::now() + RETRY_AFTER);
                counts.open += usize::from(opened.is_ok());
                opened.ok()?
            }
            Some(pipe) => pipe,
        };
        Some(PipeLease { pipes: self, pipe: Some(pipe), held: 0 })
    }

    fn counts(&self) -> MutexGuard<'_, PipeCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for SplicePipes {
    fn default() -> SplicePipes {
        SplicePipes { size: PIPE_BYTES, counts: Mutex::default() }
    }
}

impl Pipe {
    /// # Errors
    /// If no descriptors are left, or beyond the limit of pages of a user without privileges: a
    /// small pipe is not worth its calls, and other programs of the user need the pages that are
    /// left.
    fn open(size: usize) -> io::Result<Pipe> {
        let (output, input) = sys::open_pipe(size)?;
        Ok(Pipe { input, output })
    }
}

impl PipeLease<'_> {
    fn pipe(&self) -> io::Result<&Pipe> {
        self.pipe.as_ref().ok_or_else(|| io::ErrorKind::BrokenPipe.into())
    }

    /// Moves received bytes into the empty pipe. Returns their number, 0 at the end.
    fn fill(&mut self, from: &TcpStream) -> io::Result<usize> {
        let Pipe { input, .. } = self.pipe()?;
        let splice = || sys::splice(from, input, PIPE_BYTES);
        self.held = from.try_io(Interest::READABLE, splice)?;
        Ok(self.held)
    }

    /// Sends all bytes of the pipe.
    async fn drain(&mut self, to: &TcpStream, moved: &impl Fn(u64)) -> io::Result<()> {
        while self.held > 0 {
            let Pipe { output, .. } = self.pipe()?;
            let splice = || sys::splice(output, to, self.held);
            match to.async_io(Interest::WRITABLE, splice).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                sent => {
                    self.held -= sent;
                    moved(sent as u64);
                }
            }
        }
        Ok(())
    }
}

impl Drop for PipeLease<'_> {
    fn drop(&mut self) {
        let mut counts = self.pipes.counts();
        match self.pipe.take() {
            Some(pipe) if self.held == 0 && counts.idle.len() < MAX_IDLE_PIPES => {
                counts.idle.push(pipe);
            }
            _ => counts.open -= 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_pipes_are_limited_and_failures_are_not_repeated_at_once() {
        let pipes = SplicePipes::default();
        let leases: Vec<_> = std::iter::from_fn(|| pipes.take()).collect();
        assert_eq!((leases.len(), pipes.counts().open), (MAX_PIPES, MAX_PIPES));
        drop(leases);
        let counts = pipes.counts();
        assert_eq!((counts.idle.len(), counts.open), (MAX_IDLE_PIPES, MAX_IDLE_PIPES));
        drop(counts);
        // Larger than any user may make one.
        let too_large = SplicePipes { size: 1 << 40, ..SplicePipes::default() };
        assert!(too_large.take().is_none());
        let retry_at = too_large.counts().retry_at;
        assert!(retry_at.is_some() && too_large.take().is_none());
        let counts = too_large.counts();
        assert_eq!((counts.retry_at, counts.open), (retry_at, 0));
    }
}
