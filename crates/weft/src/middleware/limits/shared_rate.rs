//! A rate limit that several processes share by a store, such as a database.
//!
//! Each process decides about its own requests, and reports running totals of a client to the
//! store: the requests that it has admitted so far, and the part that the store has acknowledged. A
//! report that is sent again, because its response was lost, charges nothing twice.

use std::fmt;
use std::sync::Weak;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::clock::deadline::Stopwatch;
use crate::middleware::limits::bucket_rate::{Rate, nanos};
use crate::middleware::limits::buckets::Table;
use crate::middleware::limits::shared_buckets::{Count, SharedTable};

/// Part of a [`RateLimit`](super::RateLimit) that exchanges its buckets with other processes.
/// [`RateLimit::shared`](super::RateLimit::shared) creates it.
pub struct SharedRate {
    table: Weak<Table>,
    rate: Rate,
    clock: Stopwatch,
}

/// Requests of a client that this process has admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TakenRequests {
    /// Hash of the client's address or key, equal in all processes with the same secret.
    pub client: u64,
    /// Number of the client's bucket in this process. It changes if the process has used the bucket
    /// for another client in between, and then the counts start at 0.
    pub bucket: u32,
    /// Requests of this bucket that were acknowledged by [`SharedRate::settle`].
    pub acknowledged: u64,
    /// All requests of this bucket.
    pub total: u64,
}

impl SharedRate {
    pub(super) fn new(table: Weak<Table>, rate: Rate, clock: Stopwatch) -> SharedRate {
        SharedRate { table, rate, clock }
    }

    /// Returns true if the limit is no longer in use.
    pub fn is_unused(&self) -> bool {
        self.table.strong_count() == 0
    }

    /// Returns true if a bucket is half empty, so that its changes should be exchanged soon. Reset
    /// by [`take_changes`](SharedRate::take_changes).
    pub fn is_urgent(&self) -> bool {
        self.shared(|_, shared| shared.is_urgent.load(Relaxed)).unwrap_or(false)
    }

    /// Time to refill a bucket by one request.
    pub fn interval(&self) -> Duration {
        Duration::from_nanos(self.rate.interval)
    }

    /// Time to refill an empty bucket completely.
    pub fn capacity(&self) -> Duration {
        Duration::from_nanos(self.rate.capacity())
    }

    /// Returns the admitted requests of clients whose buckets have changed, the oldest changes first.
    /// Stops at `max` clients, or up to 15 more; the next call returns the others.
    pub fn take_changes(&mut self, max: usize) -> Vec<TakenRequests> {
        let taken = self.shared(|table, shared| {
            shared.is_urgent.store(false, Relaxed);
            let mut taken = Vec::new();
            while taken.len() < max
                && let Some(number) = shared.next_changed()
            {
                taken.extend(changes(table, number));
            }
            taken
        });
        taken.unwrap_or_default()
    }

    /// Acknowledges a report, and sets the bucket to its state for all processes. `debt` is the time
    /// until the bucket is full; at most 16 times the time to refill an empty bucket counts, so that
    /// a wrong value does not lock the client out. Requests that this process has admitted since the
    /// report are added.
    pub fn settle(&mut self, reported: &TakenRequests, debt: Duration) {
        let now = nanos(self.clock.elapsed());
        self.with_bucket(reported, |full_at, count| {
            count.acknowledged = reported.total.clamp(count.acknowledged, count.total);
            *full_at = now + self.rate.debt(debt, count.total - count.acknowledged);
        });
    }

    /// Reports the requests of a client once more, because the exchange has failed.
    pub fn retry(&mut self, reported: &TakenRequests) {
        self.shared(|table, shared| {
            let number = table.set_number(reported.client);
            table.with_shared(number, |_, set| shared.note(set, number, false));
        });
    }

    /// Limits this process to a part of the rate, as one of this number of processes, while they
    /// cannot exchange their buckets. 1 ends this.
    pub fn divide(&self, processes: u32) {
        self.shared(|_, shared| shared.processes.store(processes.max(1), Relaxed));
    }

    fn shared<T>(&self, apply: impl FnOnce(&Table, &SharedTable) -> T) -> Option<T> {
        let table = self.table.upgrade()?;
        Some(apply(&table, table.shared.as_ref()?))
    }

    /// Applies a change to the bucket of reported requests, unless the slot has another client now.
    fn with_bucket(&self, reported: &TakenRequests, apply: impl FnOnce(&mut u64, &mut Count)) {
        let Some(table) = self.table.upgrade() else { return };
        table.with_shared(table.set_number(reported.client), |slots, set| {
            let buckets = slots.into_iter().zip(&mut set.counts);
            let mut own = buckets.filter(|((client, _), count)| {
                *client == reported.client && count.bucket == reported.bucket
            });
            if let Some(((_, full_at), count)) = own.next() {
                apply(full_at, count);
            }
        });
    }
}

/// Returns the requests of a set that were not acknowledged.
fn changes(table: &Table, number: usize) -> Vec<TakenRequests> {
    let taken = table.with_shared(number, |slots, set| {
        set.is_listed = false;
        let counts = slots.into_iter().zip(&set.counts);
        let open = counts.filter(|(_, count)| count.total > count.acknowledged);
        open.map(|((client, _), count)| TakenRequests {
            client,
            bucket: count.bucket,
            acknowledged: count.acknowledged,
            total: count.total,
        })
        .collect()
    });
    taken.unwrap_or_default()
}

impl fmt::Debug for SharedRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedRate").field("rate", &self.rate).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::Application;
    use crate::message::request::Request;
    use crate::message::response::Response;
    use crate::middleware::RateLimit;
    use crate::middleware::limits::shared_buckets::SLOTS;
    use crate::testing;

    /// Requests that a limit admits at once.
    fn admitted(limit: &RateLimit, key: &str, requests: u32) -> usize {
        (0..requests).filter(|_| limit.take(key).is_ok()).count()
    }

    fn limit(requests: u32) -> (RateLimit, SharedRate) {
        RateLimit::new(requests, Duration::from_secs(100_000)).shared([1; 16])
    }

    fn totals(changes: &[TakenRequests]) -> Vec<(u64, u64)> {
        changes.iter().map(|taken| (taken.acknowledged, taken.total)).collect()
    }

    #[test]
    fn reports_running_totals_until_they_are_acknowledged() {
        let (limit, mut shared) = limit(10);
        assert_eq!(shared.take_changes(10), []);
        assert_eq!(admitted(&limit, "a", 3), 3);
        let first = shared.take_changes(10);
        assert_eq!(totals(&first), [(0, 3)]);
        assert_eq!(shared.take_changes(10), []);
        // The exchange has failed, and a request was admitted meanwhile.
        assert_eq!(admitted(&limit, "a", 1), 1);
        shared.retry(&first[0]);
        let second = shared.take_changes(10);
        assert_eq!(totals(&second), [(0, 4)]);
        shared.settle(&second[0], Duration::from_secs(40_000));
        assert_eq!(admitted(&limit, "a", 1), 1);
        assert_eq!(totals(&shared.take_changes(10)), [(4, 5)]);
    }

    #[test]
    fn requests_of_other_processes_count() {
        let (limit, mut shared) = limit(10);
        assert_eq!(admitted(&limit, "a", 1), 1);
        let taken = shared.take_changes(10);
        // Two more were admitted since; 7 of 10 are taken in all.
        assert_eq!(admitted(&limit, "a", 2), 2);
        shared.settle(&taken[0], Duration::from_secs(70_000));
        assert_eq!(admitted(&limit, "a", 10), 1);
        assert_eq!(admitted(&limit, "b", 10), 10);
    }

    #[test]
    fn a_late_result_of_a_former_bucket_is_ignored() {
        let (limit, mut shared) = limit(10);
        assert_eq!(admitted(&limit, "a", 1), 1);
        let mut taken = shared.take_changes(10).remove(0);
        taken.bucket += 1;
        shared.settle(&taken, Duration::from_secs(100_000));
        assert_eq!(admitted(&limit, "a", 10), 9);
    }

    #[test]
    fn wrong_debts_do_not_lock_a_client_out() {
        for (debt, wait) in [(100_001, 10_001), (1_600_000, 1_510_000), (u64::MAX, 1_510_000)] {
            let (limit, mut shared) = limit(10);
            assert_eq!(admitted(&limit, "a", 1), 1);
            let taken = shared.take_changes(10);
            shared.settle(&taken[0], Duration::from_secs(debt));
            let refusal = limit.take("a").unwrap_err();
            let after: u64 =
                refusal.header("retry-after").unwrap().to_str().unwrap().parse().unwrap();
            // The test may take some seconds on a busy machine.
            assert!((wait - 60..=wait).contains(&after), "{debt}: {after}");
        }
    }

    #[test]
    fn totals_that_were_never_reported_are_not_acknowledged() {
        let (limit, mut shared) = limit(10);
        assert_eq!(admitted(&limit, "a", 2), 2);
        let mut taken = shared.take_changes(10).remove(0);
        taken.total = u64::MAX;
        shared.settle(&taken, Duration::ZERO);
        assert_eq!(admitted(&limit, "a", 1), 1);
        assert_eq!(totals(&shared.take_changes(10)), [(2, 3)]);
    }

    #[test]
    fn the_oldest_changes_are_reported_first() {
        let client_of = |key| {
            let (limit, mut shared) = limit(10);
            admitted(&limit, key, 1);
            shared.take_changes(1)[0].client
        };
        let (limit, mut shared) = limit(10);
        for key in ["a", "b", "c"] {
            admitted(&limit, key, 1);
        }
        for key in ["a", "b", "c"] {
            let taken = shared.take_changes(1);
            assert_eq!((taken.len(), taken[0].client), (1, client_of(key)), "{key}");
        }
    }

    #[test]
    fn an_extreme_rate_can_be_divided() {
        let (limit, mut shared) = RateLimit::new(1, Duration::MAX).shared([1; 16]);
        shared.divide(u32::MAX);
        assert_eq!(admitted(&limit, "a", 3), 1);
        let taken = shared.take_changes(10);
        shared.settle(&taken[0], Duration::MAX);
        assert_eq!(admitted(&limit, "a", 3), 0);
    }

    #[test]
    fn addresses_are_reported_as_hashes() {
        let client = |secret| {
            let (limit, mut shared) =
                RateLimit::new(1, Duration::from_secs(9)).shared([secret; 16]);
            let mut request = testing::request("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            request.set_peer("192.0.2.1:80".parse().unwrap());
            testing::call((async |_: Request| Response::text("ok")).wrap(limit.clone()), request);
            shared.take_changes(1)[0].client
        };
        assert_ne!(client(1), 0xc000_0201);
        assert_eq!(client(1), client(1));
        assert_ne!(client(1), client(2));
    }

    #[test]
    fn a_divided_limit_admits_its_part() {
        for (processes, expected) in [(0, 12), (1, 12), (3, 4), (100, 1)] {
            let (limit, shared) = limit(12);
            shared.divide(processes);
            assert_eq!(admitted(&limit, "a", 20), expected, "{processes}");
            shared.divide(1);
            assert!(admitted(&limit, "b", 20) == 12);
        }
    }

    #[test]
    fn half_empty_buckets_are_urgent() {
        let (limit, mut shared) = limit(10);
        admitted(&limit, "a", 5);
        assert!(!shared.is_urgent());
        admitted(&limit, "a", 1);
        assert!(shared.is_urgent());
        shared.take_changes(10);
        assert!(!shared.is_urgent());
    }

    #[test]
    fn changes_of_many_clients_are_returned_in_parts() {
        let (limit, mut shared) = limit(10);
        for client in 0..1_000 {
            admitted(&limit, &client.to_string(), 1);
        }
        let mut clients = Vec::new();
        for part in
            std::iter::from_fn(|| Some(shared.take_changes(100)).filter(|it| !it.is_empty()))
        {
            assert!(part.len() < 100 + SLOTS, "{}", part.len());
            clients.extend(part.iter().map(|taken| taken.client));
        }
        clients.sort_unstable();
        clients.dedup();
        assert_eq!(clients.len(), 1_000);
    }

    #[test]
    fn equal_secrets_give_equal_hashes() {
        let client = |secret| {
            let (limit, mut shared) =
                RateLimit::new(1, Duration::from_secs(9)).shared([secret; 16]);
            admitted(&limit, "a", 1);
            shared.take_changes(1)[0].client
        };
        assert_eq!(client(1), client(1));
        assert_ne!(client(1), client(2));
    }

    #[test]
    fn a_dropped_limit_is_unused() {
        let (limit, mut shared) = limit(10);
        assert!(!shared.is_unused());
        drop(limit);
        assert!(shared.is_unused());
        assert_eq!(shared.take_changes(10), []);
    }
}
