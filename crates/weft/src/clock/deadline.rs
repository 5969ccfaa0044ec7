//! All timeouts: one sweeper per worker over a list of small shared cells.
//!
//! To set, move or clear a deadline is one store to memory. No timer exists per
//! connection or per request; whoever waits looks at its cell when it is woken, and the
//! sweeper wakes those whose time has come.
//!
//! The clock is coarse: it moves when the sweeper runs. A deadline is set one tick
//! further, so that it never comes early. While the worker stands still, because an application
//! blocks it or the machine was paused, the clock does, too: nobody could be heard then.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::settings::Settings;

/// A worker's deadlines.
pub(crate) struct Deadlines {
    clock: Arc<Clock>,
    start: Instant,
    /// Milliseconds since the start, as of the last sweep.
    seen: std::cell::Cell<u64>,
    cells: RefCell<Vec<Arc<Cell>>>,
}

struct Clock {
    /// Milliseconds since the start, as of the last sweep, without those of standing still.
    now: AtomicU64,
    tick: Duration,
}

/// One deadline, of a connection or of a body that is being read.
pub(crate) struct Deadline(Arc<Cell>);

struct Cell {
    /// When, on the worker's clock.
    due: AtomicU64,
    /// Who waits. It may be a task of another thread that reads a body.
    waiting: Mutex<Option<Waker>>,
    clock: Arc<Clock>,
}

const NEVER: u64 = u64::MAX;

impl Deadlines {
    pub(crate) fn new(settings: &Settings) -> Deadlines {
        let shortest = [
            settings.head_timeout,
            settings.idle_timeout,
            settings.stall_timeout,
            settings.linger_timeout,
        ];
        let tick = shortest.into_iter().min().expect("four timeouts") / 4;
        let tick = tick.clamp(Duration::from_millis(10), Duration::from_millis(500));
        let clock = Arc::new(Clock { now: AtomicU64::new(0), tick });
        Deadlines {
            clock,
            start: Instant::now(),
            seen: Default::default(),
            cells: RefCell::default(),
        }
    }

    /// How often [`sweep`](Deadlines::sweep) wants to be called.
    pub(crate) fn tick(&self) -> Duration {
        self.clock.tick
    }

    /// A new deadline, not set.
    pub(crate) fn deadline(&self) -> Deadline {
        let cell = Arc::new(Cell {
            due: AtomicU64::new(NEVER),
            waiting: Mutex::new(None),
            clock: self.clock.clone(),
        });
        self.cells.borrow_mut().push(cell.clone());
        Deadline(cell)
    }

    /// Moves the clock on, by two ticks at most.
    pub(crate) fn refresh(&self) {
        let millis = self.start.elapsed().as_millis() as u64;
        let passed = millis - self.seen.replace(millis);
        let most = 2 * self.clock.tick.as_millis() as u64;
        self.clock.now.store(self.clock.now() + passed.min(most), Relaxed);
    }

    /// Moves the clock on, wakes those whose time has come, forgets those who left.
    pub(crate) fn sweep(&self) {
        self.refresh();
        let now = self.clock.now();
        self.cells.borrow_mut().retain(|cell| {
            let in_use = Arc::strong_count(cell) > 1;
            if in_use && cell.due.load(Relaxed) <= now {
                cell.wake();
            }
            in_use
        });
    }

    /// Wakes everybody, to look at something else than the time.
    pub(crate) fn wake_all(&self) {
        self.cells.borrow().iter().for_each(|cell| cell.wake());
    }

    /// Whether nobody has a deadline, as of the last sweep.
    pub(crate) fn is_empty(&self) -> bool {
        self.cells.borrow().is_empty()
    }
}

impl Clock {
    fn now(&self) -> u64 {
        self.now.load(Relaxed)
    }
}

impl Cell {
    fn wake(&self) {
        let waker = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Deadline {
    /// Sets the deadline to so much time from now, in place of any before.
    pub(crate) fn set(&self, after: Duration) {
        let Clock { tick, .. } = *self.0.clock;
        let after = u64::try_from(after.saturating_add(tick).as_millis()).unwrap_or(NEVER);
        self.0.due.store(self.0.clock.now().saturating_add(after), Relaxed);
    }

    /// There is no deadline any more.
    pub(crate) fn clear(&self) {
        self.0.due.store(NEVER, Relaxed);
    }

    fn is_set(&self) -> bool {
        self.0.due.load(Relaxed) != NEVER
    }

    /// Ready once the time has come. To be called last, when all else is pending.
    pub(crate) fn poll_over(&self, cx: &Context<'_>) -> Poll<()> {
        if self.0.due.load(Relaxed) <= self.0.clock.now() {
            return Poll::Ready(());
        }
        let mut waiting = self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if !waiting.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            *waiting = Some(cx.waker().clone());
        }
        Poll::Pending
    }
}

/// The cell stays until the next sweep. A waker in it would keep the memory of the whole task
/// until then.
impl Drop for Deadline {
    fn drop(&mut self) {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// The minimum rate at which bytes must move: Warp's rule against slow clients, as
/// a credit of time that waiting uses up and moved bytes earn back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// In microseconds. It may fall a little below zero, for a wait is measured in ticks.
    credit: i64,
    most: i64,
    bytes_per_second: u32,
    /// Since when we wait, on the worker's clock in milliseconds.
    waiting_since: Option<u64>,
}

impl Pace {
    pub(crate) fn new(settings: &Settings) -> Pace {
        let most = micros(settings.stall_timeout);
        Pace {
            credit: most,
            most,
            bytes_per_second: settings.min_bytes_per_second.max(1),
            waiting_since: None,
        }
    }

    /// The peer is waited for; ready when it has used up its credit.
    pub(crate) fn poll_over(&mut self, deadline: &Deadline, cx: &Context<'_>) -> Poll<()> {
        if self.waiting_since.is_none() || !deadline.is_set() {
            // It is not set any more if a head has come meanwhile, whose end cleared it.
            self.waiting_since.get_or_insert(deadline.0.clock.now());
            deadline.set(Duration::from_micros(self.credit.max(0) as u64));
        }
        // A deadline that is set anew with each byte would never come: not in debt.
        if self.credit < -micros(deadline.0.clock.tick) {
            return Poll::Ready(());
        }
        deadline.poll_over(cx)
    }

    /// So many bytes have moved.
    pub(crate) fn moved(&mut self, bytes: usize, deadline: &Deadline) {
        let Some(since) = self.waiting_since.take() else { return };
        deadline.clear();
        let waited = Duration::from_millis(deadline.0.clock.now().saturating_sub(since));
        self.credit = self.credit_after(waited, bytes);
    }

    fn credit_after(&self, waited: Duration, bytes: usize) -> i64 {
        let earned = bytes as u64 * 1_000_000 / u64::from(self.bytes_per_second);
        let earned = i64::try_from(earned).unwrap_or(i64::MAX);
        self.credit.saturating_sub(micros(waited)).saturating_add(earned).min(self.most)
    }
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

/// Measures how long an exchange takes, or how old something is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    pub(crate) fn start() -> Stopwatch {
        Stopwatch(Instant::now())
    }

    pub(crate) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }

    /// How long before this one another was started.
    pub(crate) fn since(self, earlier: Stopwatch) -> Duration {
        self.0.saturating_duration_since(earlier.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_minimum_rate_is_a_credit_of_time() {
        let settings = Settings {
            stall_timeout: Duration::from_secs(20),
            min_bytes_per_second: 500,
            ..Settings::default()
        };
        let pace = Pace::new(&settings);
        for (waited, bytes, left) in [
            (0, 0, 20_000),
            (5_000, 0, 15_000),
            (5_000, 500, 16_000),
            (5_000, 1 << 30, 20_000),
            (30_000, 1, -9_998),
        ] {
            let credit = pace.credit_after(Duration::from_millis(waited), bytes);
            assert_eq!(credit, left * 1_000, "{waited} ms, {bytes} bytes");
        }
    }

    #[test]
    fn while_the_worker_stands_still_no_time_passes() {
        let short = Duration::from_millis(40);
        let settings = Settings { linger_timeout: short, ..Settings::default() };
        let deadlines = Deadlines::new(&settings);
        let deadline = deadlines.deadline();
        let cx = Context::from_waker(Waker::noop());
        std::thread::sleep(5 * short);
        deadline.set(short);
        deadlines.sweep();
        assert!(deadline.poll_over(&cx).is_pending());
        let set = Instant::now();
        while deadline.poll_over(&cx).is_pending() {
            std::thread::sleep(deadlines.tick() / 4);
            deadlines.sweep();
            assert!(set.elapsed() < Duration::from_secs(30), "it never comes");
        }
    }

    #[test]
    fn a_deadline_that_is_gone_keeps_nobody_in_memory() {
        struct Task;
        impl std::task::Wake for Task {
            fn wake(self: Arc<Task>) {}
        }
        let deadlines = Deadlines::new(&Settings::default());
        let (deadline, task) = (deadlines.deadline(), Arc::new(Task));
        deadline.set(Duration::from_secs(60));
        let waker = task.clone().into();
        assert!(deadline.poll_over(&Context::from_waker(&waker)).is_pending());
        drop(waker);
        assert_eq!(Arc::strong_count(&task), 2);
        drop(deadline);
        assert_eq!(Arc::strong_count(&task), 1);
    }
}
