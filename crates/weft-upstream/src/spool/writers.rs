//! Threads that write bodies to their temporary files.
//!
//! With `spawn_blocking` for each write, the runtime starts another thread whenever a write begins
//! before the thread of the last write is idle again. Four writes at a time made it start 37
//! threads, each with a stack and an arena of the allocator. Here, a thread takes the next write
//! itself, or waits for a write for a short time. They are threads of the standard library: if the
//! system starts no further thread, the runtime panics and keeps the work.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;

use super::file_io::{FileWrite, FileWritten};

/// Maximum number of threads that write, as many as the writes of four clients: writes to files of
/// the page cache take microseconds, and a disk does not become faster with more.
const MAX_THREADS: usize = 8;

/// Time for which a thread waits for a further write.
const IDLE_TIME: Duration = Duration::from_millis(20);

/// The writes of all bodies, in their order.
#[derive(Default)]
pub(crate) struct Writers {
    state: Mutex<State>,
    has_job: Condvar,
}

#[derive(Default)]
struct State {
    queued: VecDeque<Job>,
    /// Number of threads. Each of them takes a job before it ends, if there is one.
    threads: usize,
    /// Number of threads that perform a write.
    busy: usize,
    #[cfg(test)]
    most_threads: usize,
}

struct Job {
    write: FileWrite,
    /// Closed if the body was dropped.
    done: oneshot::Sender<FileWritten>,
}

/// A thread that writes; `None` after its end.
struct WriterThread(Option<Arc<Writers>>);

impl Writers {
    /// Performs a write. Returns `None` if it panicked, or if its thread panicked before.
    pub(crate) async fn run(self: &Arc<Writers>, write: FileWrite) -> Option<FileWritten> {
        let (done, written) = oneshot::channel();
        if self.queue(Job { write, done }) {
            let thread = WriterThread(Some(self.clone()));
            let builder = thread::Builder::new().name("spool".to_owned());
            // An error drops `thread`. The event loop that waits for a write to the page cache is
            // better than a body that is cut.
            if builder.spawn(move || thread.run()).is_err() {
                self.write_without_threads();
            }
        }
        written.await.ok()
    }

    /// Queues a job. Returns true if the caller has to start a thread, which is counted already.
    fn queue(&self, job: Job) -> bool {
        let mut state = self.state();
        state.queued.push_back(job);
        let needs_thread = state.threads < MAX_THREADS.min(state.queued.len() + state.busy);
        state.threads += usize::from(needs_thread);
        #[cfg(test)]
        {
            state.most_threads = state.most_threads.max(state.threads);
        }
        if !needs_thread {
            self.has_job.notify_one();
        }
        needs_thread
    }

    /// Takes the next job, which counts as busy. If there is none, the calling thread is no longer
    /// counted.
    fn next(&self) -> Option<Job> {
        let mut state = self.state();
        if state.queued.is_empty() {
            let is_idle = |state: &mut State| state.queued.is_empty();
            let waited = self.has_job.wait_timeout_while(state, IDLE_TIME, is_idle);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let job = state.queued.pop_front();
        match job {
            Some(_) => state.busy += 1,
            None => state.threads -= 1,
        }
        job
    }

    /// Performs the queued writes, unless there is a thread for them.
    fn write_without_threads(&self) {
        let next = || {
            let mut state = self.state();
            (state.threads == 0).then(|| state.queued.pop_front()).flatten()
        };
        while let Some(job) = next() {
            job.run(|| ());
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Job {
    /// Performs the write, calls `on_written`, and notifies the body, which may queue a further
    /// write at once.
    fn run(self, on_written: impl FnOnce()) {
        let Job { write, done } = self;
        let written = (!done.is_closed()).then(|| write.run());
        on_written();
        if let Some(written) = written {
            drop(done.send(written));
        }
    }
}

impl WriterThread {
    fn run(mut self) {
        let Some(writers) = &self.0 else { return };
        while let Some(job) = writers.next() {
            job.run(|| writers.state().busy -= 1);
        }
        self.0 = None;
    }
}

impl Drop for WriterThread {
    /// Drops the queued jobs if a write panicked and no other thread is left: their bodies end with
    /// an error instead of waiting.
    fn drop(&mut self) {
        let Some(writers) = self.0.take() else { return };
        let mut state = writers.state();
        state.threads -= 1;
        if thread::panicking() {
            state.busy -= 1;
            if state.threads == 0 {
                state.queued.clear();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;
    use tokio::runtime::Builder;

    fn write(at: u64) -> FileWrite {
        FileWrite::new(None, at, vec![vec![b'x'; 4_096].into()])
    }

    #[test]
    fn many_writes_use_few_threads() {
        let runtime = Builder::new_current_thread().build().unwrap();
        let writers = Arc::<Writers>::default();
        runtime.block_on(async {
            let one_after_another = |writers: Arc<Writers>| async move {
                for at in 0..20 {
                    writers.run(write(at)).await.expect("the write is performed").unwrap();
                }
            };
            let bodies: Vec<_> =
                (0..64).map(|_| tokio::spawn(one_after_another(writers.clone()))).collect();
            for body in bodies {
                body.await.unwrap();
            }
        });
        let most = writers.state().most_threads;
        assert!((1..=MAX_THREADS).contains(&most), "{most} threads");
        let deadline = Instant::now() + Duration::from_secs(30);
        while writers.state().threads > 0 {
            assert!(Instant::now() < deadline, "idle threads do not end");
            thread::sleep(IDLE_TIME);
        }
    }

    #[test]
    fn bodies_do_not_wait_for_a_thread_that_was_not_started() {
        let writers = Arc::<Writers>::default();
        let queue = |at| {
            let (done, written) = oneshot::channel();
            (writers.queue(Job { write: write(at), done }), written)
        };
        let [(true, mut first), (true, mut second)] = [queue(0), queue(1)] else {
            panic!("two threads")
        };
        let [one, other] = [(); 2].map(|()| WriterThread(Some(writers.clone())));
        drop(one);
        // The other thread is there for both.
        writers.write_without_threads();
        assert_eq!(first.try_recv().err(), Some(oneshot::error::TryRecvError::Empty));
        other.run();
        assert!(first.try_recv().is_ok() && second.try_recv().is_ok());
        let (true, mut third) = queue(2) else { panic!("a thread") };
        drop(WriterThread(Some(writers.clone())));
        writers.write_without_threads();
        assert!(third.try_recv().is_ok());
    }

    #[test]
    fn bodies_do_not_wait_for_a_thread_that_panicked() {
        let writers = Arc::<Writers>::default();
        let job = |at| {
            let (done, written) = oneshot::channel();
            (Job { write: write(at), done }, written)
        };
        let ((first, mut of_first), (second, mut of_second)) = (job(0), job(1));
        assert!(writers.queue(first));
        let thread = WriterThread(Some(writers.clone()));
        let own = writers.clone();
        let panicked = thread::spawn(move || {
            let _thread = thread;
            let _first = own.next();
            own.state().queued.push_back(second);
            panic!("a write");
        });
        assert!(panicked.join().is_err());
        for written in [&mut of_first, &mut of_second] {
            assert_eq!(written.try_recv().err(), Some(oneshot::error::TryRecvError::Closed));
        }
        let state = writers.state();
        assert_eq!((state.threads, state.busy), (0, 0));
    }

    #[test]
    fn a_body_that_writes_again_at_once_uses_one_thread() {
        let runtime = Builder::new_current_thread().build().unwrap();
        let writers = Arc::<Writers>::default();
        runtime.block_on(async {
            for at in 0..200 {
                writers.run(write(at)).await.expect("the write is performed").unwrap();
            }
        });
        assert_eq!(writers.state().most_threads, 1);
    }
}
