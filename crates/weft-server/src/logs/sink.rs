//! Lines on their way to an output.
//!
//! Whoever has some appends to a buffer of its own; a writer thread takes the buffers over at
//! least once in half a second, and at the end. No line is torn.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::output::Output;

/// How long a line may wait for others before it is written, and a line that the output did not
/// take for another attempt.
const DELAY: Duration = Duration::from_millis(500);

/// A buffer with so much is written at once.
const FULL_BYTES: usize = 32 << 10;

/// The most that a buffer has of what the output did not take yet.
const MOST_BYTES: usize = 1 << 20;

/// The way of lines to an output.
pub(super) struct Sink {
    name: &'static str,
    shared: Arc<Shared>,
    writer: JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// There is something to do for the writer.
    news: Condvar,
    /// Nobody is to wait for the output any more.
    released: AtomicBool,
}

#[derive(Default)]
struct State {
    buffers: Vec<Arc<Buffer>>,
    urgency: Urgency,
    /// The output is to be opened anew.
    reopen: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Urgency {
    #[default]
    Nothing,
    /// Something waits, and may wait a little for more.
    Soon,
    Now,
    /// No line comes any more.
    Close,
}

/// Lines of one source that are not written yet.
#[derive(Default)]
struct Buffer {
    waiting: Mutex<Waiting>,
    taken: Condvar,
}

#[derive(Default)]
struct Waiting {
    lines: Vec<u8>,
    /// How many found no room.
    lost: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sink {
    pub(super) fn start(name: &'static str, output: Output) -> io::Result<Sink> {
        let shared = Arc::new(Shared::default());
        let of_writer = shared.clone();
        let writer = std::thread::Builder::new().name(format!("weft {name}"));
        let writer = writer.spawn(move || of_writer.write_all(output))?;
        Ok(Sink { name, shared, writer })
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    /// A new source of lines.
    pub(super) fn buffer(&self) -> Lines {
        let buffer = Arc::<Buffer>::default();
        lock(&self.shared.state).buffers.push(buffer.clone());
        Lines { shared: self.shared.clone(), buffer }
    }

    pub(super) fn reopen(&self) {
        lock(&self.shared.state).reopen = true;
        self.shared.urge(Urgency::Now);
    }

    /// From now on nobody waits for the output.
    pub(super) fn release(&self) {
        self.shared.released.store(true, Relaxed);
        for buffer in &lock(&self.shared.state).buffers {
            let _waiting_or_not_yet = lock(&buffer.waiting);
            buffer.taken.notify_all();
        }
    }

    /// Has all that is left written; whether that was done in time.
    pub(super) fn close(&self, patience: Duration) -> bool {
        self.shared.urge(Urgency::Close);
        let start = Instant::now();
        while !self.writer.is_finished() {
            if start.elapsed() > patience {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        true
    }
}

/// What the writer has to do next.
struct Round {
    reopen: bool,
    buffers: Vec<Arc<Buffer>>,
    is_last: bool,
}

impl Shared {
    fn urge(&self, urgency: Urgency) {
        let mut state = lock(&self.state);
        if state.urgency < urgency {
            state.urgency = urgency;
            self.news.notify_one();
        }
    }

    /// The writer's thread.
    fn write_all(&self, mut output: Output) {
        let mut taken = Waiting::default();
        loop {
            let round = self.wait(output.is_behind());
            if round.reopen {
                output.reopen();
            }
            output.catch_up();
            for buffer in round.buffers {
                std::mem::swap(&mut *lock(&buffer.waiting), &mut taken);
                buffer.taken.notify_all();
                output.write(&taken.lines);
                output.count_lost(std::mem::take(&mut taken.lost));
                taken.lines.clear();
            }
            if round.is_last {
                return output.end();
            }
        }
    }

    /// Waits until there is something to do.
    fn wait(&self, is_behind: bool) -> Round {
        let nothing = |state: &mut State| state.urgency == Urgency::Nothing && !is_behind;
        let hurry = |state: &mut State| state.urgency <= Urgency::Soon;
        let state = self.news.wait_while(lock(&self.state), nothing);
        let state = state.unwrap_or_else(PoisonError::into_inner);
        let state = self.news.wait_timeout_while(state, DELAY, hurry);
        let (mut state, _) = state.unwrap_or_else(PoisonError::into_inner);
        let is_last = std::mem::take(&mut state.urgency) == Urgency::Close;
        let reopen = std::mem::take(&mut state.reopen);
        let buffers = state.buffers.clone();
        // Sources that are gone have one round more: nobody else has their buffers then.
        state.buffers.retain(|buffer| Arc::strong_count(buffer) > 2);
        Round { reopen, buffers, is_last }
    }
}

/// A source of lines.
pub(super) struct Lines {
    shared: Arc<Shared>,
    buffer: Arc<Buffer>,
}

impl Lines {
    /// Appends lines. Waits while the output does not keep up: none is lost.
    pub(super) fn append(&self, compose: impl FnOnce(&mut Vec<u8>)) {
        let released = &self.shared.released;
        let full =
            |waiting: &mut Waiting| waiting.lines.len() >= MOST_BYTES && !released.load(Relaxed);
        let waiting = self.buffer.taken.wait_while(lock(&self.buffer.waiting), full);
        let mut waiting = waiting.unwrap_or_else(PoisonError::into_inner);
        let before = waiting.lines.len();
        compose(&mut waiting.lines);
        let after = waiting.lines.len();
        drop(waiting);
        if before < FULL_BYTES && after >= FULL_BYTES {
            self.shared.urge(Urgency::Now);
        } else if before == 0 {
            self.shared.urge(Urgency::Soon);
        }
    }

    /// Appends lines that are to be written at once. Where there is no room they are counted
    /// as one that is lost: nobody waits.
    pub(super) fn offer(&self, lines: &str) {
        let mut waiting = lock(&self.buffer.waiting);
        match waiting.lines.len() + lines.len() <= MOST_BYTES {
            true => waiting.lines.extend_from_slice(lines.as_bytes()),
            false => waiting.lost += 1,
        }
        drop(waiting);
        self.shared.urge(Urgency::Now);
    }
}

#[cfg(test)]
mod tests {
    use super::super::file::LogFile;
    use super::super::rotation::Rotation;
    use super::*;
    use std::fs;

    #[test]
    fn sources_that_are_gone_leave_their_lines_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let rotation = Rotation { max_bytes: u64::MAX, max_files: 1 };
        let file = LogFile::open(&path, rotation).unwrap();
        let sink = Sink::start("test", Output::new("test", file, |_| ())).unwrap();
        let stays = sink.buffer();
        for _ in 0..100 {
            sink.buffer().append(|lines| lines.extend(b"a\n"));
        }
        stays.offer("b\n");
        let deadline = Instant::now() + Duration::from_secs(30);
        while lock(&sink.shared.state).buffers.len() > 1 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(lock(&sink.shared.state).buffers.len(), 1);
        assert!(sink.close(Duration::from_secs(30)));
        let log = fs::read_to_string(&path).unwrap();
        assert_eq!((log.matches("a\n").count(), log.len()), (100, 202));
    }
}
