//! Whether an upstream is worth asking: from what became of requests, and from checks.
//!
//! All workers share what is known. To ask for it is to load two atomics; the mutex is for those
//! who have bad news, or good news after bad.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How failures are judged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) max_failures: u32,
    pub(super) window: Duration,
    pub(super) down_time: Duration,
}

#[derive(Debug)]
pub(super) struct Health {
    terms: Terms,
    born: Instant,
    /// Until when it gets no requests, in milliseconds since it was born.
    out_until: AtomicU64,
    /// A check has found that it is not well.
    is_sick: AtomicBool,
    /// Whether the record is anything but fine.
    is_suspect: AtomicBool,
    record: Mutex<Record>,
}

/// What became of the last requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Record {
    Fine,
    /// So many have failed, the first at that time.
    Suspect {
        since: Duration,
        failures: u32,
    },
    /// It is out, or was and is being tried again: one more failure is enough.
    Probation,
}

/// What is new about failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// It is the first for a while.
    Begins,
    /// There were so many that it is left alone from now on.
    PutOut,
}

impl Health {
    pub(super) fn new(terms: Terms, now: Instant) -> Health {
        Health {
            terms,
            born: now,
            out_until: AtomicU64::new(0),
            is_sick: AtomicBool::new(false),
            is_suspect: AtomicBool::new(false),
            record: Mutex::new(Record::Fine),
        }
    }

    /// Whether requests have failed so often that it is left alone for now.
    pub(super) fn is_out(&self, now: Instant) -> bool {
        let until = self.out_until.load(Relaxed);
        until > 0 && self.age(now).as_millis() < u128::from(until)
    }

    /// Whether the last checks have failed.
    pub(super) fn is_sick(&self) -> bool {
        self.is_sick.load(Relaxed)
    }

    /// What checks have found; true if that is new.
    pub(super) fn set_sick(&self, is_sick: bool) -> bool {
        self.is_sick.swap(is_sick, Relaxed) != is_sick
    }

    /// A request has failed through its fault.
    pub(super) fn failed(&self, now: Instant) -> Option<Trouble> {
        let age = self.age(now);
        let mut record = self.record();
        self.is_suspect.store(true, Relaxed);
        let failures = match *record {
            // Those that were under way when it was put out have nothing new to say.
            Record::Probation if self.is_out(now) => return None,
            Record::Probation => self.terms.max_failures,
            // Two workers may come in another order than that in which they looked at the clock.
            Record::Suspect { since, failures }
                if age.saturating_sub(since) <= self.terms.window =>
            {
                *record = Record::Suspect { since, failures: failures + 1 };
                failures + 1
            }
            Record::Suspect { .. } | Record::Fine => {
                *record = Record::Suspect { since: age, failures: 1 };
                1
            }
        };
        if failures < self.terms.max_failures {
            return (failures == 1).then_some(Trouble::Begins);
        }
        *record = Record::Probation;
        let until = age.saturating_add(self.terms.down_time).as_millis();
        self.out_until.store(until.try_into().unwrap_or(u64::MAX), Relaxed);
        Some(Trouble::PutOut)
    }

    /// A request was answered; true if it was out before, or is being tried again.
    pub(super) fn succeeded(&self) -> bool {
        if !self.is_suspect.load(Relaxed) {
            return false;
        }
        let mut record = self.record();
        self.is_suspect.store(false, Relaxed);
        self.out_until.store(0, Relaxed);
        std::mem::replace(&mut *record, Record::Fine) == Record::Probation
    }

    fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.born)
    }

    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    enum Event {
        Failed(u64),
        Succeeded,
    }

    #[test]
    fn who_is_out_and_until_when() {
        use Event::*;
        // Three failures within ten seconds, then out for twenty.
        for (events, (out_at, expected)) in [
            (&[][..], (0, false)),
            (&[Failed(1), Failed(2)], (2, false)),
            (&[Failed(1), Failed(2), Failed(3)], (3, true)),
            (&[Failed(1), Failed(2), Failed(11)], (11, true)),
            (&[Failed(1), Failed(2), Failed(12)], (12, false)),
            (&[Failed(1), Failed(2), Succeeded, Failed(3)], (3, false)),
            (&[Failed(1), Failed(2), Failed(3)], (22, true)),
            (&[Failed(1), Failed(2), Failed(3)], (23, false)),
            // Who was under way does not make it longer.
            (&[Failed(1), Failed(2), Failed(3), Failed(9)], (23, false)),
            // Whoever looked at the clock first may be the second to tell.
            (&[Failed(2), Failed(1), Failed(3)], (3, true)),
            // It is tried again, and one failure is enough.
            (&[Failed(1), Failed(2), Failed(3), Failed(30)], (49, true)),
            (&[Failed(1), Failed(2), Failed(3), Failed(30)], (50, false)),
            (&[Failed(1), Failed(2), Failed(3), Succeeded, Failed(30)], (30, false)),
            (&[Failed(1), Failed(2), Failed(3), Succeeded], (4, false)),
        ] {
            let born = Instant::now();
            let at = |seconds| born + Duration::from_secs(seconds);
            let terms = Terms {
                max_failures: 3,
                window: Duration::from_secs(10),
                down_time: Duration::from_secs(20),
            };
            let health = Health::new(terms, born);
            for event in events {
                match event {
                    Failed(seconds) => _ = health.failed(at(*seconds)),
                    Succeeded => _ = health.succeeded(),
                }
            }
            assert_eq!(health.is_out(at(out_at)), expected, "{events:?} at {out_at}");
        }
    }
}
