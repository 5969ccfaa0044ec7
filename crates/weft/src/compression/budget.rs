//! CPU time and memory that the process spends on the compression of files.
//!
//! Compression is the most expensive work that a small request can cause, so all workers and all
//! directories share one budget:
//!
//! - Files that clients wait for are compressed by at most half of the cores, and by at most
//!   [`MAX_THREADS`] threads. At most [`MAX_PENDING_BYTES`] wait for one of them; a request beyond
//!   that is answered without a content coding.
//! - One thread compresses files again with more effort, without a queue: a file that finds it busy
//!   is proposed again later. It pauses for [`BACKGROUND_PAUSE`] after each step, and so uses about
//!   half of a core.

use std::sync::LazyLock;
use std::thread;
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};

use super::STEP_BYTES;

/// Maximum number of threads that compress files for waiting clients. Each needs up to 2 MiB and
/// twice the size of its file.
const MAX_THREADS: usize = 4;

/// Maximum size of the files that are compressed or queued for waiting clients, in bytes. Two of
/// the largest files by default; with brotli, less than 0.1 s of work for a thread.
const MAX_PENDING_BYTES: usize = 8 << 20;

/// The cost of a file that is larger than the bound: it is compressed if nothing else is pending.
const MAX_PENDING_STEPS: u64 = (MAX_PENDING_BYTES / STEP_BYTES) as u64;

/// Pause after each step in the background: about as long as a step of brotli takes.
pub(crate) const BACKGROUND_PAUSE: Duration = Duration::from_millis(3);

static PROCESS: LazyLock<Budget> = LazyLock::new(|| {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    Budget::new((cores / 2).clamp(1, MAX_THREADS))
});

/// The budget of a process.
#[derive(Debug)]
pub(crate) struct Budget {
    /// Threads for files that clients wait for.
    threads: Semaphore,
    /// Steps of the files that clients wait for.
    pending_steps: Semaphore,
    background: Semaphore,
}

/// A place among the files that clients wait for.
#[derive(Debug)]
pub(crate) struct Pending {
    budget: &'static Budget,
    _steps: SemaphorePermit<'static>,
}

/// The right to use a thread, until dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    _thread: SemaphorePermit<'static>,
    _pending: Option<Pending>,
}

impl Budget {
    /// Returns the budget of this process.
    pub(crate) fn process() -> &'static Budget {
        &PROCESS
    }

    fn new(threads: usize) -> Budget {
        Budget {
            threads: Semaphore::new(threads),
            pending_steps: Semaphore::new(MAX_PENDING_STEPS as usize),
            background: Semaphore::new(1),
        }
    }

    /// Admits a file of `bytes` bytes that a client waits for; `None` if too many are pending.
    pub(crate) fn admit(&'static self, bytes: u64) -> Option<Pending> {
        let steps = bytes.div_ceil(STEP_BYTES as u64).clamp(1, MAX_PENDING_STEPS);
        let steps = self.pending_steps.try_acquire_many(steps as u32).ok()?;
        Some(Pending { budget: self, _steps: steps })
    }

    /// Returns the right to use the thread in the background; `None` while it is in use.
    pub(crate) fn background(&'static self) -> Option<Permit> {
        let thread = self.background.try_acquire().ok()?;
        Some(Permit { _thread: thread, _pending: None })
    }
}

impl Pending {
    /// Waits for a thread.
    pub(crate) async fn thread(self) -> Permit {
        let thread = self.budget.threads.acquire().await.expect("the semaphore is never closed");
        Permit { _thread: thread, _pending: Some(self) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    const LARGEST: u64 = MAX_PENDING_BYTES as u64 / 2;

    fn budget() -> &'static Budget {
        Box::leak(Box::new(Budget::new(1)))
    }

    #[test]
    fn bounds_the_files_that_clients_wait_for() {
        let budget = budget();
        let pending = [LARGEST, LARGEST].map(|bytes| budget.admit(bytes).expect("room"));
        assert!(budget.admit(1).is_none());
        drop(pending);
        // A file beyond the bound is admitted alone.
        let large = budget.admit(u64::MAX);
        assert!(large.is_some() && budget.admit(1).is_none());
        drop(large);
        // Small files count too.
        let small: Vec<_> = (0..).map_while(|_| budget.admit(1)).collect();
        assert_eq!(small.len() as u64, MAX_PENDING_STEPS);
    }

    #[test]
    fn waits_for_a_thread_and_never_in_the_background() {
        let budget = budget();
        let mut cx = Context::from_waker(Waker::noop());
        let mut first = pin!(budget.admit(1).expect("room").thread());
        let mut second = pin!(budget.admit(1).expect("room").thread());
        let Poll::Ready(permit) = first.as_mut().poll(&mut cx) else { panic!("a thread is free") };
        assert!(second.as_mut().poll(&mut cx).is_pending());
        let background = budget.background().expect("another thread is free");
        assert!(budget.background().is_none());
        drop((permit, background));
        assert!(second.as_mut().poll(&mut cx).is_ready());
        assert!(budget.background().is_some());
    }
}
