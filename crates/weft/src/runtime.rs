//! The runtime of a worker, and the calls that its thread makes outside of it.
//!
//! A handler that belongs to another runtime must not notice that of the worker: in a current-thread
//! runtime, `block_in_place` panics, and no other runtime can be entered. So the thread leaves the
//! runtime of the worker for such a call. It leaves once in a turn of the event loop, for all calls
//! of the turn, which costs one `epoll_wait(2)` that does not block.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use tokio::runtime::LocalRuntime;

use crate::clock::deadline::Stopwatch;
use crate::clock::run_delay::RunDelay;

/// A call to be made outside of the runtime.
pub(crate) trait OutsideCall {
    /// Makes the call on the current thread.
    fn call(&self);

    /// Has the call made by another thread.
    fn delegate(&self);

    /// Wakes the task that waits for the call, inside of the runtime.
    fn wake(&self);
}

/// Duration of a call that delays the other connections of its worker, because it computes or blocks
/// for so long.
const LONG_CALL: Duration = Duration::from_millis(1);

/// After a long call, the thread makes no calls for this multiple of its duration. So long calls
/// take one percent of its time at most.
const PAUSE_FACTOR: u32 = 100;

/// A call is not long for its own sake if the thread may have waited for a CPU for this part of it.
const MAX_RUN_DELAY_DIVISOR: u32 = 2;

thread_local! {
    /// The calls of the current thread; `None` outside of [`block_on`].
    static CALLS: RefCell<Option<Calls>> = const { RefCell::new(None) };
}

#[derive(Default)]
struct Calls {
    /// At most one call for each request in progress.
    queued: Vec<Arc<dyn OutsideCall>>,
    made: Vec<Arc<dyn OutsideCall>>,
    /// Lets the thread leave the runtime.
    leave: Option<Waker>,
    /// The pause after a long call.
    pause: Option<Pause>,
    /// The waits for a CPU since the last call that took long.
    run_delay: Option<RunDelay>,
}

#[derive(Clone, Copy)]
struct Pause {
    start: Stopwatch,
    duration: Duration,
}

/// Runs a future on the runtime of the current thread, and makes the calls that its tasks
/// [queue](queue_call).
pub(crate) fn block_on<F: Future>(runtime: &LocalRuntime, future: F) -> F::Output {
    let _calls = CallsGuard::new();
    let mut future = pin!(future);
    loop {
        let output = runtime.block_on(poll_fn(|cx| {
            wake_callers();
            if let Poll::Ready(output) = future.as_mut().poll(cx) {
                return Poll::Ready(Some(output));
            }
            match has_queued_calls(cx.waker()) {
                true => Poll::Ready(None),
                false => Poll::Pending,
            }
        }));
        match output {
            Some(output) => return output,
            None => make_calls(),
        }
    }
}

/// Queues a call for the current thread. Returns `false` if another thread has to make it: the
/// current one is not in [`block_on`], or has made a long call.
pub(crate) fn queue_call(call: &Arc<impl OutsideCall + 'static>) -> bool {
    with_calls(|calls| {
        if calls.is_paused() {
            return false;
        }
        calls.run_delay.get_or_insert_with(RunDelay::start);
        calls.queued.push(call.clone());
        if let Some(leave) = calls.leave.take() {
            leave.wake();
        }
        true
    })
    .unwrap_or(false)
}

fn with_calls<T>(use_calls: impl FnOnce(&mut Calls) -> T) -> Option<T> {
    CALLS.with_borrow_mut(|calls| calls.as_mut().map(use_calls))
}

/// Makes the calls of a turn.
fn make_calls() {
    let queued = with_calls(|calls| std::mem::take(&mut calls.queued)).unwrap_or_default();
    let mut start = Stopwatch::start();
    let mut is_paused = false;
    for call in &queued {
        if is_paused {
            call.delegate();
            continue;
        }
        call.call();
        let end = Stopwatch::start();
        let duration = end.since(start);
        if duration >= LONG_CALL {
            is_paused = with_calls(|calls| calls.pause_after(start, duration)) == Some(true);
        }
        start = end;
    }
    with_calls(|calls| calls.made = queued);
}

/// Wakes the tasks whose calls were made. A wake outside of the runtime would write to an eventfd.
fn wake_callers() {
    let mut made = with_calls(|calls| std::mem::take(&mut calls.made)).unwrap_or_default();
    made.drain(..).for_each(|call| call.wake());
    // The allocation is used for the calls of the next turn.
    with_calls(|calls| {
        if calls.queued.capacity() == 0 {
            calls.queued = made;
        }
    });
}

/// Returns `true` if calls are queued. Otherwise, the first one wakes `leave`.
fn has_queued_calls(leave: &Waker) -> bool {
    with_calls(|calls| {
        let has_calls = !calls.queued.is_empty();
        calls.leave = (!has_calls).then(|| leave.clone());
        has_calls
    })
    .unwrap_or(false)
}

impl Calls {
    /// Starts the pause after a call that took long, unless the thread may have waited for a CPU.
    /// Returns `true` if there is a pause.
    fn pause_after(&mut self, start: Stopwatch, duration: Duration) -> bool {
        let run_delay = self.run_delay.as_mut().map_or(Duration::ZERO, RunDelay::restart);
        if run_delay < duration / MAX_RUN_DELAY_DIVISOR {
            self.pause = Some(Pause { start, duration: duration * PAUSE_FACTOR });
        }
        self.is_paused()
    }

    fn is_paused(&mut self) -> bool {
        self.pause = self.pause.filter(|pause| pause.start.elapsed() < pause.duration);
        self.pause.is_some()
    }
}

/// Accepts calls until it is dropped.
struct CallsGuard;

impl CallsGuard {
    fn new() -> CallsGuard {
        CALLS.set(Some(Calls::default()));
        CallsGuard
    }
}

impl Drop for CallsGuard {
    fn drop(&mut self) {
        // Dropped outside of the borrow, because a call may own values with destructors of the
        // application.
        drop(CALLS.take());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::runtime::{Builder, LocalOptions};

    use super::*;

    /// Writes down its events. The call takes `duration`.
    struct Call {
        name: &'static str,
        duration: Duration,
        events: Arc<Mutex<Vec<String>>>,
        waker: Mutex<Option<Waker>>,
    }

    impl Call {
        fn record(&self, event: &str) {
            let in_runtime = tokio::runtime::Handle::try_current().is_ok();
            let place = if in_runtime { "inside" } else { "outside" };
            self.events.lock().unwrap().push(format!("{} {event} {place}", self.name));
        }

        async fn wait(self: Arc<Call>) {
            let mut is_queued = false;
            poll_fn(|cx| {
                if is_queued {
                    return Poll::Ready(());
                }
                *self.waker.lock().unwrap() = Some(cx.waker().clone());
                is_queued = queue_call(&self);
                assert!(is_queued);
                Poll::Pending
            })
            .await;
            self.record("done");
        }
    }

    impl OutsideCall for Call {
        fn call(&self) {
            self.record("called");
            std::thread::sleep(self.duration);
        }

        fn delegate(&self) {
            self.record("delegated");
        }

        fn wake(&self) {
            self.record("woken");
            self.waker.lock().unwrap().take().unwrap().wake();
        }
    }

    /// Runs calls of one turn, and returns their events and whether another call could be queued.
    fn run(durations: &[(&'static str, u64)]) -> (Vec<String>, bool) {
        let mut builder = Builder::new_current_thread();
        let runtime = builder.build_local(LocalOptions::default()).unwrap();
        let events = Arc::default();
        let calls = durations.iter().map(|&(name, millis)| {
            let duration = Duration::from_millis(millis);
            Arc::new(Call { name, duration, events: Arc::clone(&events), waker: Mutex::default() })
        });
        let calls: Vec<_> = calls.collect();
        let another = calls[0].clone();
        let accepts = block_on(&runtime, async move {
            let tasks: Vec<_> =
                calls.into_iter().map(|call| tokio::task::spawn_local(call.wait())).collect();
            for task in tasks {
                task.await.unwrap();
            }
            queue_call(&another)
        });
        (std::mem::take(&mut events.lock().unwrap()), accepts)
    }

    #[test]
    fn calls_of_a_turn_are_made_outside_of_the_runtime() {
        let expected = [
            "a called outside",
            "b called outside",
            "a woken inside",
            "b woken inside",
            "a done inside",
            "b done inside",
        ];
        // A busy machine may interrupt a call for a millisecond.
        let mut runs = (0..100).map(|_| run(&[("a", 0), ("b", 0)]));
        assert!(runs.any(|(events, accepts)| accepts && events == expected));
    }

    #[test]
    fn long_call_is_followed_by_a_pause() {
        // On a busy machine, the thread may wait for a CPU for longer than the call takes.
        let mut runs = (0..100).map(|_| run(&[("a", 20), ("b", 0)]));
        assert!(runs.any(|(events, accepts)| {
            !accepts && events[..2] == ["a called outside", "b delegated outside"]
        }));
    }

    #[test]
    fn threads_without_a_worker_accept_no_calls() {
        let (name, events) = ("a", Arc::default());
        let duration = Duration::ZERO;
        let call = Arc::new(Call { name, duration, events, waker: Mutex::default() });
        assert!(!queue_call(&call));
    }
}
