//! Work that waits for the thread that changes the folder.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::cache::stored_response::StoredResponse;

/// Maximum number of responses that wait.
const MAX_WRITES: usize = 1_024;

/// A change of the folder.
#[derive(Debug)]
pub(super) enum Work {
    Remove(u64),
    /// Marks a file as expired.
    Expire(u64),
    Write(Write),
}

/// A response to be written.
#[derive(Debug)]
pub(super) struct Write {
    pub(super) id: u64,
    /// The file has its content already: only its head is replaced.
    pub(super) has_content: bool,
    pub(super) response: Arc<StoredResponse>,
}

/// The queue. Responses beyond its limits are refused: nothing waits for the disk. Removals are
/// never refused: each belongs to a file that was in the index.
#[derive(Debug)]
pub(super) struct WriteQueue {
    max_bytes: usize,
    state: Mutex<QueueState>,
    /// There is work, or the queue is closed.
    changed: Condvar,
    /// Work was done.
    progressed: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    removals: Vec<u64>,
    expirations: Vec<u64>,
    writes: VecDeque<Write>,
    bytes: usize,
    /// The thread has the folder for itself.
    is_open: bool,
    is_busy: bool,
    is_closed: bool,
}

impl QueueState {
    fn is_idle(&self) -> bool {
        !self.is_busy
            && self.removals.is_empty()
            && self.expirations.is_empty()
            && self.writes.is_empty()
    }

    fn take(&mut self) -> Option<Work> {
        if let Some(id) = self.removals.pop() {
            return Some(Work::Remove(id));
        }
        if let Some(id) = self.expirations.pop() {
            return Some(Work::Expire(id));
        }
        let write = self.writes.pop_front()?;
        self.bytes -= write.response.bytes();
        Some(Work::Write(write))
    }
}

impl WriteQueue {
    pub(super) fn new(max_bytes: usize) -> WriteQueue {
        WriteQueue {
            max_bytes,
            state: Mutex::default(),
            changed: Condvar::new(),
            progressed: Condvar::new(),
        }
    }

    /// Accepts responses from now on.
    pub(super) fn open(&self) {
        self.lock().is_open = true;
    }

    /// Ends the thread after the remaining work.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
        self.progressed.notify_all();
    }

    /// Returns true if a response of this size is accepted.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.lock().has_room(bytes, self.max_bytes)
    }

    /// Adds a response. Returns false if there is no room.
    pub(super) fn push(&self, write: Write) -> bool {
        let mut state = self.lock();
        let bytes = write.response.bytes();
        if !state.has_room(bytes, self.max_bytes) {
            return false;
        }
        state.bytes += bytes;
        state.writes.push_back(write);
        self.changed.notify_all();
        true
    }

    pub(super) fn remove(&self, ids: Vec<u64>) {
        if !ids.is_empty() {
            self.lock().removals.extend(ids);
            self.changed.notify_all();
        }
    }

    pub(super) fn expire(&self, ids: Vec<u64>) {
        if !ids.is_empty() {
            self.lock().expirations.extend(ids);
            self.changed.notify_all();
        }
    }

    /// Waits until there is room for a response of this size. Returns false if there is none in
    /// time.
    pub(super) fn wait_for_room(&self, bytes: usize, deadline: Instant) -> bool {
        self.wait(deadline, |state| state.has_room(bytes, self.max_bytes) || !state.is_open)
            && self.has_room(bytes)
    }

    /// Waits until all work is done. Returns false if that takes too long.
    pub(super) fn wait_until_idle(&self, deadline: Instant) -> bool {
        self.wait(deadline, QueueState::is_idle)
    }

    fn wait(&self, deadline: Instant, is_done: impl Fn(&QueueState) -> bool) -> bool {
        let mut state = self.lock();
        while !is_done(&state) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || state.is_closed {
                return false;
            }
            state = wait(&self.progressed, state, left);
        }
        true
    }

    /// Waits for the next work; `None` once the queue is closed and empty.
    pub(super) fn next(&self) -> Option<Work> {
        let mut state = self.lock();
        state.is_busy = false;
        self.progressed.notify_all();
        loop {
            if let Some(work) = state.take() {
                state.is_busy = true;
                return Some(work);
            }
            if state.is_closed {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Returns work without waiting.
    pub(super) fn try_next(&self) -> Option<Work> {
        let mut state = self.lock();
        let work = state.take();
        state.is_busy = work.is_some();
        self.progressed.notify_all();
        work
    }

    /// Waits for a time, or until the queue is closed. Returns true then.
    pub(super) fn is_closed_within(&self, time: Duration) -> bool {
        let deadline = Instant::now() + time;
        let mut state = self.lock();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if state.is_closed || left.is_zero() {
                return state.is_closed;
            }
            state = wait(&self.changed, state, left);
        }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QueueState {
    fn has_room(&self, bytes: usize, max_bytes: usize) -> bool {
        // One response is always accepted, whatever its size.
        let is_small = self.writes.is_empty() || self.bytes.saturating_add(bytes) <= max_bytes;
        self.is_open && !self.is_closed && is_small && self.writes.len() < MAX_WRITES
    }
}

fn wait<'a>(
    condition: &Condvar,
    state: MutexGuard<'a, QueueState>,
    time: Duration,
) -> MutexGuard<'a, QueueState> {
    condition.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner).0
}
