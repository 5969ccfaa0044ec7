//! Line buffers of logs and their writer threads.
//!
//! Each source appends lines to its own buffer. A writer thread swaps the buffers out every half
//! second, or earlier when one is full or a line is urgent, and at the end. It never splits lines.
//! An output that may block for long has a thread of its own, and others share one.

use std::io;
use std::time::{Duration, Instant};

use super::output::Output;
use crate::base::sync::atomic::{AtomicBool, Ordering::Relaxed};
use crate::base::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, thread};

/// Maximum time that a line waits for further lines before it is written, and the interval at which
/// failed writes are retried.
const MAX_DELAY: Duration = Duration::from_millis(500);

/// Size at which a buffer is written without delay.
const FLUSH_BYTES: usize = 32 << 10;

/// Maximum size of a buffer. A source with a full buffer waits or drops lines.
const MAX_BUFFER_BYTES: usize = 1 << 20;

/// The output of one or more logs. When neither it nor any of its sources is left, all lines are
/// written, and the output is closed.
pub(super) struct Sink(Arc<Writer>);

impl Drop for Sink {
    fn drop(&mut self) {
        self.0.shared.wake_writer(Urgency::Close);
    }
}

/// Handle of the output of a sink. It does not keep the output open.
pub(super) struct Writer {
    name: &'static str,
    shared: Arc<Shared>,
}

/// A writer thread for any number of sinks. It ends when its handle is dropped and all sinks are
/// closed.
pub(super) struct SharedWriter(Arc<WriterThread>);

impl Drop for SharedWriter {
    fn drop(&mut self) {
        lock(&self.0.state).may_get_sinks = false;
        self.0.wake(Urgency::Now);
    }
}

#[derive(Default)]
struct WriterThread {
    state: Mutex<ThreadState>,
    /// Notified when there is work for the thread.
    work: Condvar,
}

#[derive(Default)]
struct ThreadState {
    /// The greatest urgency of its sinks.
    urgency: Urgency,
    /// Sinks that the thread has not taken yet.
    added: Vec<(Arc<Shared>, Output)>,
    may_get_sinks: bool,
}

struct Shared {
    state: Mutex<State>,
    thread: Arc<WriterThread>,
    /// Set when sources must no longer wait for the output.
    is_nonblocking: AtomicBool,
    /// Set if sources with a full buffer drop lines instead of waiting.
    is_lossy: bool,
}

#[derive(Default)]
struct State {
    buffers: Vec<Arc<Buffer>>,
    urgency: Urgency,
    /// Set if the output has to be reopened.
    reopen: bool,
    /// True after all lines were written.
    is_finished: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Urgency {
    #[default]
    Idle,
    /// Lines are waiting and may wait for more, up to `MAX_DELAY`.
    Soon,
    Now,
    /// No further lines follow.
    Close,
}

/// Buffer of one source, shared with the writer.
#[derive(Default)]
struct Buffer {
    pending: Mutex<PendingLines>,
    /// Notified when the writer has taken the pending lines.
    drained: Condvar,
}

/// Lines that are not written yet.
#[derive(Default)]
struct PendingLines {
    lines: Vec<u8>,
    /// Number of lines dropped because the buffer was full.
    lost: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sink {
    /// Creates a sink with a thread of its own.
    pub(super) fn start(name: &'static str, output: Output) -> io::Result<Arc<Sink>> {
        Ok(SharedWriter::start(name)?.add(name, output))
    }

    pub(super) fn writer(&self) -> &Arc<Writer> {
        &self.0
    }

    /// Creates a new source of lines.
    pub(super) fn line_sender(self: &Arc<Sink>) -> LineSender {
        let buffer = Arc::<Buffer>::default();
        lock(&self.0.shared.state).buffers.push(buffer.clone());
        LineSender { sink: self.clone(), buffer }
    }
}

impl SharedWriter {
    pub(super) fn start(name: &str) -> io::Result<SharedWriter> {
        let thread = Arc::new(WriterThread::default());
        lock(&thread.state).may_get_sinks = true;
        let running = thread.clone();
        thread::Builder::new().name(format!("weft {name}")).spawn(move || running.run())?;
        Ok(SharedWriter(thread))
    }

    /// Creates a sink that this thread writes.
    pub(super) fn add(&self, name: &'static str, output: Output) -> Arc<Sink> {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            thread: self.0.clone(),
            is_nonblocking: AtomicBool::new(false),
            is_lossy: output.is_lossy(),
        });
        lock(&self.0.state).added.push((shared.clone(), output));
        Arc::new(Sink(Arc::new(Writer { name, shared })))
    }
}

impl WriterThread {
    fn wake(&self, urgency: Urgency) {
        let mut state = lock(&self.state);
        if state.urgency < urgency {
            state.urgency = urgency;
            self.work.notify_one();
        }
    }

    /// Body of the thread.
    fn run(&self) {
        let mut sinks: Vec<(Arc<Shared>, Output)> = Vec::new();
        let mut taken = PendingLines::default();
        loop {
            let has_backlog = sinks.iter().any(|(_, output)| output.has_backlog());
            let may_get_sinks = self.wait_for_work(has_backlog, &mut sinks);
            sinks.retain_mut(|(shared, output)| !shared.write(output, &mut taken));
            if sinks.is_empty() && !may_get_sinks {
                return;
            }
        }
    }

    /// Waits until there is work, and takes the added sinks. Returns false if no further ones
    /// follow.
    fn wait_for_work(&self, has_backlog: bool, sinks: &mut Vec<(Arc<Shared>, Output)>) -> bool {
        let is_idle = |state: &mut ThreadState| state.urgency == Urgency::Idle && !has_backlog;
        let can_wait = |state: &mut ThreadState| state.urgency <= Urgency::Soon;
        let state = self.work.wait_while(lock(&self.state), is_idle);
        let state = state.unwrap_or_else(PoisonError::into_inner);
        let state = self.work.wait_timeout_while(state, MAX_DELAY, can_wait);
        let (mut state, _) = state.unwrap_or_else(PoisonError::into_inner);
        state.urgency = Urgency::Idle;
        sinks.append(&mut state.added);
        state.may_get_sinks
    }
}

impl Writer {
    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    /// Returns true after the output was closed, with all lines written.
    pub(super) fn is_finished(&self) -> bool {
        lock(&self.shared.state).is_finished
    }

    pub(super) fn reopen(&self) {
        lock(&self.shared.state).reopen = true;
        self.shared.wake_writer(Urgency::Now);
    }

    /// Stops sources from waiting for the output.
    pub(super) fn stop_blocking(&self) {
        self.shared.is_nonblocking.store(true, Relaxed);
        for buffer in &lock(&self.shared.state).buffers {
            // Holding the lock excludes a source between its check of the flag and its wait.
            let _guard = lock(&buffer.pending);
            buffer.drained.notify_all();
        }
    }

    /// Has the writer write all remaining lines and stop. Returns false if that takes longer than
    /// `limit`.
    pub(super) fn close(&self, limit: Duration) -> bool {
        self.shared.wake_writer(Urgency::Close);
        let start = Instant::now();
        while !self.is_finished() {
            if start.elapsed() > limit {
                return false;
            }
            thread::sleep(Duration::from_millis(5));
        }
        true
    }
}

/// Work of a writer thread for one sink.
struct WriterPass {
    urgency: Urgency,
    reopen: bool,
    buffers: Vec<Arc<Buffer>>,
}

impl Shared {
    fn wake_writer(&self, urgency: Urgency) {
        let mut state = lock(&self.state);
        if state.urgency < urgency {
            state.urgency = urgency;
            drop(state);
            self.thread.wake(urgency);
        }
    }

    /// Writes the lines of all sources. Returns true if no further ones follow.
    fn write(&self, output: &mut Output, taken: &mut PendingLines) -> bool {
        let pass = self.take_work();
        if pass.urgency == Urgency::Idle && !output.has_backlog() {
            return false;
        }
        if pass.reopen {
            output.reopen();
        }
        output.write_backlog();
        for buffer in pass.buffers {
            std::mem::swap(&mut *lock(&buffer.pending), taken);
            buffer.drained.notify_all();
            output.write(&taken.lines);
            output.add_lost(std::mem::take(&mut taken.lost));
            taken.lines.clear();
        }
        if pass.urgency == Urgency::Close {
            output.finish();
            lock(&self.state).is_finished = true;
        }
        pass.urgency == Urgency::Close
    }

    fn take_work(&self) -> WriterPass {
        let mut state = lock(&self.state);
        let urgency = std::mem::take(&mut state.urgency);
        let reopen = std::mem::take(&mut state.reopen);
        let buffers = state.buffers.clone();
        // The buffer of a dropped source has two references left, `state` and this pass. It is
        // written once more and then removed.
        state.buffers.retain(|buffer| Arc::strong_count(buffer) > 2);
        WriterPass { urgency, reopen, buffers }
    }
}

/// Source of lines, with a buffer of its own.
pub(super) struct LineSender {
    // Dropped before `sink`, so that the writer finds the buffer of a dropped source.
    buffer: Arc<Buffer>,
    sink: Arc<Sink>,
}

impl LineSender {
    /// Appends lines. While the buffer is full, blocks so that none is lost, or, if the output is
    /// lossy, counts them as one lost line.
    pub(super) fn append(&self, compose: impl FnOnce(&mut Vec<u8>)) {
        let shared = &self.sink.0.shared;
        let has_no_room = |pending: &PendingLines| pending.lines.len() >= MAX_BUFFER_BYTES;
        let must_wait = |pending: &mut PendingLines| {
            has_no_room(pending) && !shared.is_lossy && !shared.is_nonblocking.load(Relaxed)
        };
        let pending = self.buffer.drained.wait_while(lock(&self.buffer.pending), must_wait);
        let mut pending = pending.unwrap_or_else(PoisonError::into_inner);
        if shared.is_lossy && has_no_room(&pending) {
            pending.lost += 1;
            return;
        }
        let before = pending.lines.len();
        compose(&mut pending.lines);
        let after = pending.lines.len();
        drop(pending);
        if before < FLUSH_BYTES && after >= FLUSH_BYTES {
            shared.wake_writer(Urgency::Now);
        } else if before == 0 {
            shared.wake_writer(Urgency::Soon);
        }
    }

    /// Appends lines that are written without delay. Never blocks: without room for them, they are
    /// counted as one lost line.
    pub(super) fn try_append(&self, lines: &str) {
        let mut pending = lock(&self.buffer.pending);
        match pending.lines.len() + lines.len() <= MAX_BUFFER_BYTES {
            true => pending.lines.extend_from_slice(lines.as_bytes()),
            false => pending.lost += 1,
        }
        drop(pending);
        self.sink.0.shared.wake_writer(Urgency::Now);
    }
}

#[cfg(test)]
mod tests {
    use super::super::file::LogFile;
    use super::super::target::Target;
    use super::*;
    use std::fs;

    #[test]
    fn dropped_sources_keep_lines_and_release_buffers() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let file = LogFile::open(&path, super::super::rotation::UNROTATED).unwrap();
        let sink = Sink::start("test", Output::new("test", Target::File(file), |_| ())).unwrap();
        let remaining = sink.line_sender();
        for _ in 0..100 {
            sink.line_sender().append(|lines| lines.extend(b"a\n"));
        }
        remaining.try_append("b\n");
        let deadline = Instant::now() + Duration::from_secs(30);
        while lock(&sink.0.shared.state).buffers.len() > 1 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(lock(&sink.0.shared.state).buffers.len(), 1);
        assert!(sink.writer().close(Duration::from_secs(30)));
        let log = fs::read_to_string(&path).unwrap();
        assert_eq!((log.matches("a\n").count(), log.len()), (100, 202));
    }
}
