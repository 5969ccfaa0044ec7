//! The runtime of a worker, and the calls that its thread makes outside of it.
//!
//! A handler that belongs to another runtime must not run within the runtime of the worker: in a
//! current-thread runtime, `block_in_place` panics, and no other runtime can be entered. So the
//! thread leaves the runtime of the worker for such a call. It leaves once in a turn of the event
//! loop, for all calls of the turn. That costs one `epoll_wait(2)`, which does not block.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Poll, Waker};
use std::time::Duration;

use tokio::runtime::LocalRuntime;

use crate::clock::deadline::Stopwatch;

/// A call to be made outside of the runtime.
pub(crate) trait OutsideCall {
    /// Makes the call on the current thread.
    fn call(&mut self);

    /// Has the call made by another thread.
    fn delegate(&mut self);

    /// Wakes the task that waits for the call, inside of the runtime.
    fn finish(self: Box<Self>);
}

/// Duration of a call that delays the other connections of its worker, because it computes or
/// blocks for so long.
const LONG_CALL: Duration = Duration::from_millis(1);

/// Each long call costs a multiple of its duration, so that long calls take one percent of the time
/// of a thread at most.
const COST_FACTOR: u32 = 100;

/// Cost of long calls after which the thread makes no calls for some time: 20 ms of long calls. An
/// interruption by another process makes a call long that is not, and rarely takes as much.
const MAX_COST: Duration = Duration::from_secs(2);

thread_local! {
    /// The calls of the current thread; `None` outside of [`block_on`].
    static CALLS: RefCell<Option<Calls>> = const { RefCell::new(None) };
}

#[derive(Default)]
struct Calls {
    /// At most one call for each request in progress.
    queued: Vec<Box<dyn OutsideCall>>,
    made: Vec<Box<dyn OutsideCall>>,
    /// Lets the thread leave the runtime.
    leave: Option<Waker>,
    long_calls: LongCalls,
}

/// The cost of the long calls of a thread, which time reduces.
#[derive(Default)]
struct LongCalls {
    /// The cost at the end of the last long call.
    cost: Option<(Duration, Stopwatch)>,
}

/// Runs a future on the runtime of the current thread, and makes the calls that its tasks
/// [queue](queue_call).
pub(crate) fn block_on<F: Future>(runtime: &LocalRuntime, future: F) -> F::Output {
    let _calls = CallsGuard::new();
    let mut future = pin!(future);
    loop {
        let output = runtime.block_on(poll_fn(|cx| {
            finish_calls();
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

/// Queues a call for the current thread. Returns the call if another thread has to make it: the
/// current thread is not in [`block_on`], or has made long calls.
pub(crate) fn queue_call<C: OutsideCall + 'static>(call: C) -> Result<(), C> {
    CALLS.with_borrow_mut(|calls| match calls {
        Some(calls) if !calls.long_calls.are_too_many() => {
            calls.queued.push(Box::new(call));
            if let Some(leave) = calls.leave.take() {
                leave.wake();
            }
            Ok(())
        }
        _ => Err(call),
    })
}

fn with_calls<T>(use_calls: impl FnOnce(&mut Calls) -> T) -> Option<T> {
    CALLS.with_borrow_mut(|calls| calls.as_mut().map(use_calls))
}

/// Makes the calls of a turn.
fn make_calls() {
    let mut queued = with_calls(|calls| std::mem::take(&mut calls.queued)).unwrap_or_default();
    let mut start = Stopwatch::start();
    let mut is_paused = false;
    for call in &mut queued {
        if is_paused {
            call.delegate();
            continue;
        }
        call.call();
        let end = Stopwatch::start();
        let duration = end.since(start);
        if duration >= LONG_CALL {
            is_paused = with_calls(|calls| calls.long_calls.add(duration)) == Some(true);
        }
        start = end;
    }
    with_calls(|calls| calls.made = queued);
}

/// Wakes the tasks whose calls were made. A wake outside of the runtime would write to an eventfd.
fn finish_calls() {
    let mut made = with_calls(|calls| std::mem::take(&mut calls.made)).unwrap_or_default();
    made.drain(..).for_each(|call| call.finish());
    // The allocation is used for the calls of the next turn.
    with_calls(|calls| {
        if calls.queued.capacity() == 0 {
            calls.queued = made;
        }
    });
}

/// Returns true if calls are queued. Otherwise, the first one wakes `leave`.
fn has_queued_calls(leave: &Waker) -> bool {
    with_calls(|calls| {
        let has_calls = !calls.queued.is_empty();
        calls.leave = (!has_calls).then(|| leave.clone());
        has_calls
    })
    .unwrap_or(false)
}

impl LongCalls {
    /// Adds a call with this duration. Returns true if the calls are too many.
    fn add(&mut self, duration: Duration) -> bool {
        self.cost = Some((self.cost() + duration * COST_FACTOR, Stopwatch::start()));
        self.are_too_many()
    }

    fn are_too_many(&self) -> bool {
        self.cost() > MAX_COST
    }

    fn cost(&self) -> Duration {
        self.cost.map_or(Duration::ZERO, |(cost, at)| cost.saturating_sub(at.elapsed()))
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
    use std::sync::{Arc, Mutex};

    use tokio::runtime::{Builder, Handle, LocalOptions};
    use tokio::sync::oneshot;

    use super::*;

    /// Writes down its events. The call takes `duration`.
    struct Call {
        name: &'static str,
        duration: Duration,
        events: Arc<Mutex<Vec<String>>>,
        finished: oneshot::Sender<()>,
    }

    impl Call {
        fn record(&self, event: &str) {
            let place = if Handle::try_current().is_ok() { "inside" } else { "outside" };
            self.events.lock().unwrap().push(format!("{} {event} {place}", self.name));
        }
    }

    impl OutsideCall for Call {
        fn call(&mut self) {
            self.record("called");
            std::thread::sleep(self.duration);
        }

        fn delegate(&mut self) {
            self.record("delegated");
        }

        fn finish(self: Box<Self>) {
            self.record("finished");
            self.finished.send(()).unwrap();
        }
    }

    /// Runs calls of one turn, and returns their events and whether another call could be queued.
    fn run(durations: &[(&'static str, u64)]) -> (Vec<String>, bool) {
        let mut builder = Builder::new_current_thread();
        let runtime = builder.build_local(LocalOptions::default()).unwrap();
        let events = Arc::default();
        let call = |name, millis| {
            let (finished, is_finished) = oneshot::channel();
            let duration = Duration::from_millis(millis);
            (Call { name, duration, events: Arc::clone(&events), finished }, is_finished)
        };
        let accepts = block_on(&runtime, async {
            let mut calls = Vec::new();
            for &(name, millis) in durations {
                let (call, is_finished) = call(name, millis);
                assert!(queue_call(call).is_ok());
                calls.push(is_finished);
            }
            for is_finished in calls {
                is_finished.await.unwrap();
            }
            queue_call(call("", 0).0).is_ok()
        });
        (std::mem::take(&mut events.lock().unwrap()), accepts)
    }

    #[test]
    fn calls_of_a_turn_are_made_outside_of_the_runtime() {
        let expected =
            ["a called outside", "b called outside", "a finished inside", "b finished inside"];
        // A busy machine may interrupt a call for so long that it counts as a long one.
        let mut runs = (0..100).map(|_| run(&[("a", 0), ("b", 0)]));
        assert!(runs.any(|(events, accepts)| accepts && events == expected));
    }

    #[test]
    fn long_calls_are_followed_by_a_pause() {
        let (events, accepts) = run(&[("a", 30), ("b", 0)]);
        assert_eq!(events[..2], ["a called outside", "b delegated outside"]);
        assert!(!accepts);
    }

    #[test]
    fn one_interruption_causes_no_pause() {
        // On a busy machine, the calls may take longer.
        let mut runs = (0..100).map(|_| run(&[("a", 2), ("b", 0)]));
        assert!(runs.any(|(events, accepts)| accepts && events[1] == "b called outside"));
    }

    #[test]
    fn threads_without_a_worker_accept_no_calls() {
        let (finished, _) = oneshot::channel();
        let (name, events) = ("a", Arc::default());
        let call = Call { name, duration: Duration::ZERO, events, finished };
        assert!(queue_call(call).is_err());
    }
}
