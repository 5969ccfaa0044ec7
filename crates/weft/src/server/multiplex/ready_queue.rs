//! The streams whose pipes have changed, which the task of the connection must process.

use std::task::{Context, Waker};

use crate::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use crate::sync::{Mutex, MutexGuard, PoisonError};

/// Budget of a connection for written bytes of its tunnels that are not framed, besides the minimum
/// of each tunnel. 64 KiB: two tunnels at full speed.
const MAX_TUNNELS_BYTES: usize = 64 << 10;

/// Streams that the connection's task must process, and the budget for bytes written by tunnels.
#[derive(Default)]
pub(crate) struct ReadyQueue {
    state: Mutex<ReadyState>,
    /// Number of bytes that tunnels have written and the connection has not framed.
    held: AtomicUsize,
}

#[derive(Default)]
struct ReadyState {
    streams: Vec<u64>,
    waker: Option<Waker>,
}

impl ReadyQueue {
    fn state(&self) -> MutexGuard<'_, ReadyState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves up to `wanted` bytes of the budget, and at least `minimum` of them.
    pub(crate) fn reserve(&self, wanted: usize, minimum: usize) -> usize {
        let grant = |held| MAX_TUNNELS_BYTES.saturating_sub(held).max(minimum).min(wanted);
        let add = |held| Some(held + grant(held));
        self.held.fetch_update(Relaxed, Relaxed, add).map_or(0, grant)
    }

    /// Returns bytes to the budget.
    pub(crate) fn release(&self, bytes: usize) {
        // Most pipes are not tunnels, and write nothing.
        if bytes > 0 {
            self.held.fetch_sub(bytes, Relaxed);
        }
    }

    /// Adds a stream, and wakes the connection's task.
    pub(crate) fn notify(&self, stream: u64) {
        let mut state = self.state();
        if !state.streams.contains(&stream) {
            state.streams.push(stream);
        }
        let waker = state.waker.take();
        drop(state);
        wake(waker);
    }

    /// Takes all streams, and registers the connection's task for the next one.
    pub(crate) fn take(&self, cx: &Context<'_>) -> Vec<u64> {
        let state = &mut *self.state();
        register(&mut state.waker, cx);
        std::mem::take(&mut state.streams)
    }
}

/// Stores the waker of a task, unless it is the stored one.
pub(crate) fn register(waker: &mut Option<Waker>, cx: &Context<'_>) {
    if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
        *waker = Some(cx.waker().clone());
    }
}

/// Wakes a task. Must be called without a lock, because the task may call this module immediately.
pub(crate) fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}
