//! All timeouts: one sweeper per worker checks a list of small shared cells.
//!
//! Setting, moving or clearing a deadline is one store to memory. There is no timer per connection
//! or per request: a task checks its own cell when it is polled, and the sweeper wakes the tasks of
//! expired cells.
//!
//! The clock is coarse: it advances when the sweeper runs. A deadline is set one tick later,
//! so that it never expires early. While the worker is blocked, because an application blocks it or
//! the machine is suspended, the clock stops, too: no input can be read in that time.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::settings::Settings;

/// A worker's deadlines.
pub(crate) struct Deadlines {
    clock: Arc<Clock>,
    start: Instant,
    /// Milliseconds since `start`, as of the last sweep.
    last_elapsed: std::cell::Cell<u64>,
    cells: RefCell<Vec<Arc<Cell>>>,
    /// Cells of the connections that had waited longest at the last scan, the longest last.
    longest_waiting: RefCell<Vec<(Waiting, Weak<Cell>)>>,
}

struct Clock {
    /// Milliseconds since the start as of the last sweep, without the time in which the worker was
    /// blocked.
    now: AtomicU64,
    tick: Duration,
    /// The tick, rounded up.
    tick_millis: u64,
}

/// One deadline, of a connection or of a request body.
pub(crate) struct Deadline(Arc<Cell>);

struct Cell {
    /// Expiry time on the worker's clock.
    due: AtomicU64,
    /// The [`Waiting`] of a connection that can be closed to make room for another.
    waiting: AtomicU64,
    /// Task that waits; it may run on another thread, if it reads a body.
    waker: Mutex<Option<Waker>>,
    clock: Arc<Clock>,
}

const NEVER: u64 = u64::MAX;

/// The input that a connection without a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// The end of a request head. A part of the head may have been received.
    Head,
    /// The first byte of another request.
    NextRequest,
}

/// Start of a wait in milliseconds on the worker's clock, and in the lowest bit the [`Awaited`].
type Waiting = u64;

/// Time for which a connection may wait for the end of a head before it can be closed to make room
/// for another connection: several round trips, with a TLS handshake. Otherwise new clients would
/// displace each other before their requests arrive.
const MIN_HEAD_WAIT: Duration = Duration::from_secs(2);

/// Divisor of the number of connections for a batch of [`Deadlines::expire_longest_waiting`]: one
/// scan of all connections serves this part of them.
const BATCH_DIVISOR: usize = 16;

impl Deadlines {
    #[inline]
    pub(crate) fn new(settings: &Settings) -> Deadlines {
        let timeouts = [
            settings.head_timeout,
            settings.idle_timeout,
            settings.stall_timeout,
            settings.linger_timeout,
        ];
        let tick = timeouts.into_iter().min().expect("four timeouts") / 4;
        let tick = tick.clamp(Duration::from_millis(10), Duration::from_millis(500));
        let tick_millis = tick.as_micros().div_ceil(1_000) as u64;
        let clock = Arc::new(Clock { now: AtomicU64::new(0), tick, tick_millis });
        Deadlines {
            clock,
            start: Instant::now(),
            last_elapsed: Default::default(),
            cells: RefCell::default(),
            longest_waiting: RefCell::default(),
        }
    }

    /// Interval at which [`sweep`](Deadlines::sweep) must be called.
    pub(crate) fn tick(&self) -> Duration {
        self.clock.tick
    }

    /// Creates a deadline that is not set.
    pub(crate) fn deadline(&self) -> Deadline {
        let cell = Arc::new(Cell {
            due: AtomicU64::new(NEVER),
            waiting: AtomicU64::new(NEVER),
            waker: Mutex::new(None),
            clock: self.clock.clone(),
        });
        self.cells.borrow_mut().push(cell.clone());
        Deadline(cell)
    }

    /// Advances the clock, by two ticks at most.
    pub(crate) fn refresh(&self) {
        let millis = self.start.elapsed().as_millis() as u64;
        let passed = millis - self.last_elapsed.replace(millis);
        let max = 2 * self.clock.tick.as_millis() as u64;
        self.clock.now.store(self.clock.now() + passed.min(max), Relaxed);
    }

    /// Advances the clock, wakes the tasks of expired deadlines, and removes dropped deadlines.
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

    /// Wakes all waiting tasks, so that they check another condition, such as a shutdown.
    pub(crate) fn wake_all(&self) {
        self.cells.borrow().iter().for_each(|cell| cell.wake());
    }

    /// Expires the deadline of the connection that has waited longest for a request, in the order
    /// of acceptance within a tick. Returns false if no connection waits.
    ///
    /// A scan of all connections selects a batch. The batch stays in order without another scan,
    /// because a wait that starts later is shorter.
    pub(crate) fn expire_longest_waiting(&self) -> bool {
        let mut batch = self.longest_waiting.borrow_mut();
        loop {
            if batch.is_empty() {
                *batch = self.scan_waiting();
            }
            let Some((waiting, cell)) = batch.pop() else { return false };
            // Otherwise the connection has received a request or was closed since the scan.
            if let Some(cell) = cell.upgrade()
                && cell.waiting() == Some(waiting)
            {
                cell.expire();
                return true;
            }
        }
    }

    /// Returns the connections that have waited longest, the longest last.
    fn scan_waiting(&self) -> Vec<(Waiting, Weak<Cell>)> {
        let cells = self.cells.borrow();
        let can_close = |cell: &Arc<Cell>| cell.waiting().filter(|wait| self.can_close(*wait));
        let waiting = cells.iter().enumerate();
        let mut waiting: Vec<(Waiting, usize)> =
            waiting.filter_map(|(index, cell)| Some((can_close(cell)?, index))).collect();
        let count = waiting.len().div_ceil(BATCH_DIVISOR);
        if count < waiting.len() {
            waiting.select_nth_unstable(count);
        }
        waiting.truncate(count);
        waiting.sort_unstable_by(|a, b| b.cmp(a));
        let weak = |(waiting, index): (Waiting, usize)| (waiting, Arc::downgrade(&cells[index]));
        waiting.into_iter().map(weak).collect()
    }

    /// Returns true if a connection with this wait can be closed to make room for another.
    fn can_close(&self, waiting: Waiting) -> bool {
        let waited = Duration::from_millis(self.clock.now().saturating_sub(waiting >> 1));
        waiting & 1 == Awaited::NextRequest as u64 || waited >= MIN_HEAD_WAIT
    }

    /// Returns true if there was no deadline as of the last sweep.
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
    fn waiting(&self) -> Option<Waiting> {
        Some(self.waiting.load(Relaxed)).filter(|waiting| *waiting != NEVER)
    }

    /// Lets the deadline expire now.
    fn expire(&self) {
        self.waiting.store(NEVER, Relaxed);
        self.due.store(0, Relaxed);
        self.wake();
    }

    fn wake(&self) {
        let waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Deadline {
    /// Sets the deadline to `after` from now, replacing the previous one.
    #[inline]
    pub(crate) fn set(&self, after: Duration) {
        self.set_due(after);
        self.0.waiting.store(NEVER, Relaxed);
    }

    /// Sets the deadline of a connection that waits for a request. It
    /// [expires earlier](Deadlines::expire_longest_waiting) if another connection needs the room.
    #[inline]
    pub(crate) fn set_awaiting(&self, awaited: Awaited, after: Duration) {
        let now = self.set_due(after);
        self.0.waiting.store(now << 1 | awaited as u64, Relaxed);
    }

    /// Returns the time on the worker's clock.
    fn set_due(&self, after: Duration) -> u64 {
        let Clock { now, tick_millis, .. } = &*self.0.clock;
        let now = now.load(Relaxed);
        // For each request, so without the 128 bits of `as_millis`.
        let whole = after.as_secs().saturating_mul(1_000);
        let after = whole.saturating_add(u64::from(after.subsec_millis()));
        self.0.due.store(now.saturating_add(after).saturating_add(*tick_millis), Relaxed);
        now
    }

    /// Postpones the deadline of a connection that waits for a request. Its place in the order of
    /// [`expire_longest_waiting`](Deadlines::expire_longest_waiting) stays.
    #[inline]
    pub(crate) fn postpone(&self, after: Duration) {
        self.set_due(after);
    }

    /// Returns the milliseconds on the worker's clock.
    #[inline]
    pub(crate) fn now_millis(&self) -> u64 {
        self.0.clock.now()
    }

    /// Clears the deadline.
    #[inline]
    pub(crate) fn clear(&self) {
        self.0.due.store(NEVER, Relaxed);
        self.0.waiting.store(NEVER, Relaxed);
    }

    fn is_set(&self) -> bool {
        self.0.due.load(Relaxed) != NEVER
    }

    /// Ready once the deadline has expired. Call it last, when everything else is pending.
    #[inline]
    pub(crate) fn poll_expired(&self, cx: &Context<'_>) -> Poll<()> {
        if self.0.due.load(Relaxed) <= self.0.clock.now() {
            return Poll::Ready(());
        }
        let mut waker = self.0.waker.lock().unwrap_or_else(PoisonError::into_inner);
        if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }
}

/// The cell stays until the next sweep. A waker in it would keep the whole task in memory until
/// then.
impl Drop for Deadline {
    fn drop(&mut self) {
        self.0.waiting.store(NEVER, Relaxed);
        self.0.waker.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// Enforces the minimum rate at which bytes must be transferred: Warp's rule against slow clients,
/// as a time credit that waiting consumes and transferred bytes restore.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Remaining credit in microseconds. It may fall slightly below zero, because a wait is
    /// measured in ticks.
    credit: i64,
    max_credit: i64,
    /// 0: any progress restores the whole credit.
    bytes_per_second: u32,
    /// Start of the current wait, in milliseconds on the worker's clock, or [`NEVER`].
    waiting_since: u64,
}

impl Pace {
    #[inline]
    pub(crate) fn new(settings: &Settings) -> Pace {
        Pace::with_rate(settings.min_bytes_per_second, settings.stall_timeout)
    }

    #[inline]
    pub(crate) fn with_rate(bytes_per_second: u32, stall_timeout: Duration) -> Pace {
        let max_credit = micros(stall_timeout);
        Pace { credit: max_credit, max_credit, bytes_per_second, waiting_since: NEVER }
    }

    /// Restores the full credit.
    #[inline]
    pub(crate) fn restart(&mut self) {
        (self.credit, self.waiting_since) = (self.max_credit, NEVER);
    }

    /// Starts or continues a wait for the peer. Ready when the credit is used up.
    #[inline]
    pub(crate) fn poll_expired(&mut self, deadline: &Deadline, cx: &Context<'_>) -> Poll<()> {
        if self.waiting_since == NEVER || !deadline.is_set() {
            // The deadline may have been cleared by the end of a request head since.
            self.waiting_since = self.waiting_since.min(deadline.0.clock.now());
            deadline.set(Duration::from_micros(self.credit.max(0) as u64));
        }
        // Without this check, a deadline that is set again after each byte would never expire: no
        // wait starts with negative credit.
        if self.credit < -micros(deadline.0.clock.tick) {
            return Poll::Ready(());
        }
        deadline.poll_expired(cx)
    }

    /// Records that `bytes` were transferred; this ends the wait.
    #[inline]
    pub(crate) fn record_progress(&mut self, bytes: usize, deadline: &Deadline) {
        let since = std::mem::replace(&mut self.waiting_since, NEVER);
        if since == NEVER {
            return;
        }
        deadline.clear();
        let waited = Duration::from_millis(deadline.0.clock.now().saturating_sub(since));
        self.credit = self.credit_after(waited, bytes);
    }

    fn credit_after(&self, waited: Duration, bytes: usize) -> i64 {
        let earned = match (bytes, self.bytes_per_second) {
            (0, _) => 0,
            (_, 0) => i64::MAX,
            (bytes, rate) => {
                i64::try_from(bytes as u64 * 1_000_000 / u64::from(rate)).unwrap_or(i64::MAX)
            }
        };
        self.credit.saturating_sub(micros(waited)).saturating_add(earned).min(self.max_credit)
    }
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

/// Measures the duration of an exchange, or an age.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    pub(crate) fn start() -> Stopwatch {
        Stopwatch(Instant::now())
    }

    pub(crate) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }

    /// Time from the start of `earlier` to the start of this one.
    pub(crate) fn since(self, earlier: Stopwatch) -> Duration {
        self.0.saturating_duration_since(earlier.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minimum_rate_uses_a_time_credit() {
        let settings = Settings {
            stall_timeout: Duration::from_secs(20),
            min_bytes_per_second: 500,
            ..Settings::default()
        };
        let pace = Pace::new(&settings);
        for (waited, bytes, remaining) in [
            (0, 0, 20_000),
            (5_000, 0, 15_000),
            (5_000, 500, 16_000),
            (5_000, 1 << 30, 20_000),
            (30_000, 1, -9_998),
        ] {
            let credit = pace.credit_after(Duration::from_millis(waited), bytes);
            assert_eq!(credit, remaining * 1_000, "{waited} ms, {bytes} bytes");
        }
    }

    /// Without a rate, a byte restores the credit that the wait for it has used up. With the lowest
    /// rate it restores a second.
    #[test]
    fn without_a_minimum_rate_any_progress_suffices() {
        let stall_timeout = Duration::from_secs(20);
        for (rate, bytes, remaining) in [(0, 1, 20_000), (1, 1, 2_000), (0, 0, 1_000)] {
            let pace = Pace::with_rate(rate, stall_timeout);
            let credit = pace.credit_after(Duration::from_secs(19), bytes);
            assert_eq!(credit, remaining * 1_000, "{bytes} bytes, {rate} B/s");
        }
    }

    #[test]
    fn clock_stops_while_the_worker_is_blocked() {
        let short = Duration::from_millis(40);
        let settings = Settings { linger_timeout: short, ..Settings::default() };
        let deadlines = Deadlines::new(&settings);
        let deadline = deadlines.deadline();
        let cx = Context::from_waker(Waker::noop());
        std::thread::sleep(5 * short);
        deadline.set(short);
        deadlines.sweep();
        assert!(deadline.poll_expired(&cx).is_pending());
        let start = Instant::now();
        while deadline.poll_expired(&cx).is_pending() {
            std::thread::sleep(deadlines.tick() / 4);
            deadlines.sweep();
            assert!(start.elapsed() < Duration::from_secs(30), "the deadline never expires");
        }
    }

    #[test]
    fn longest_waiting_connection_expires_first() {
        let deadlines = Deadlines::new(&Settings::default());
        let advance = |millis: u64| deadlines.clock.now.fetch_add(millis, Relaxed);
        let hour = Duration::from_secs(3_600);
        let all: Vec<Deadline> = (0..100).map(|_| deadlines.deadline()).collect();
        assert!(!deadlines.expire_longest_waiting(), "no connection waits");
        let cx = Context::from_waker(Waker::noop());
        let expired = |all: &[Deadline]| -> Vec<usize> {
            (0..all.len()).filter(|index| all[*index].poll_expired(&cx).is_ready()).collect()
        };
        // Too young, and in the middle of a request.
        all[0].set_awaiting(Awaited::Head, hour);
        all[1].set(hour);
        assert!(!deadlines.expire_longest_waiting());
        // The longest wait is first; of equal waits, the first connection.
        for index in (2..100).rev() {
            all[index].set_awaiting(Awaited::NextRequest, hour);
            if index % 2 == 0 {
                advance(1);
            }
        }
        let oldest: Vec<usize> = (1..50).rev().flat_map(|half| [2 * half, 2 * half + 1]).collect();
        for (number, index) in oldest.iter().enumerate() {
            // A connection that waits anew is last.
            if number == 10 {
                all[*index].set_awaiting(Awaited::NextRequest, hour);
                continue;
            }
            assert!(deadlines.expire_longest_waiting());
            assert!(expired(&all).contains(index), "{number}: {index}");
            assert_eq!(expired(&all).len(), number + usize::from(number < 10), "{number}");
        }
        assert!(deadlines.expire_longest_waiting());
        assert!(expired(&all).contains(&oldest[10]));
        assert!(!deadlines.expire_longest_waiting(), "the others are young or busy");
        advance(MIN_HEAD_WAIT.as_millis() as u64);
        assert!(deadlines.expire_longest_waiting());
        assert!(expired(&all).contains(&0));
        assert!(!deadlines.expire_longest_waiting(), "the last one is busy");
    }

    #[test]
    fn dropped_deadline_releases_its_waker() {
        struct Task;
        impl std::task::Wake for Task {
            fn wake(self: Arc<Task>) {}
        }
        let deadlines = Deadlines::new(&Settings::default());
        let (deadline, task) = (deadlines.deadline(), Arc::new(Task));
        deadline.set(Duration::from_secs(60));
        let waker = task.clone().into();
        assert!(deadline.poll_expired(&Context::from_waker(&waker)).is_pending());
        drop(waker);
        assert_eq!(Arc::strong_count(&task), 2);
        drop(deadline);
        assert_eq!(Arc::strong_count(&task), 1);
    }
}
