//! The trait of a store that counts requests.

use std::time::Duration;

use crate::store_error::StoreError;

/// Requests of a client that a process reports to the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Charge {
    /// The limit and its client, as hashes that all processes of the cluster have in common.
    pub key: u128,
    /// The counter of this process: the numbers of the limit and of the bucket. It is never used
    /// for another client again.
    pub counter: (u32, u32),
    /// Requests of the counter that the store has acknowledged, and is not to charge again.
    pub acknowledged: u64,
    /// All requests of the counter.
    pub total: u64,
    /// Time to refill a bucket by one request.
    pub interval: Duration,
    /// Time to refill an empty bucket completely.
    pub capacity: Duration,
}

/// A store that adds up the requests of all processes. A total that is reported twice is charged
/// once: the store keeps the last total of each counter.
pub trait Counters {
    /// Charges the requests of a report. Returns for each charge the time until the bucket is full.
    ///
    /// # Errors
    /// If the store is away, refuses the call, or answers nonsense. Some of the charges may have
    /// been made.
    fn charge(
        &mut self,
        charges: &[Charge],
    ) -> impl Future<Output = Result<Vec<Duration>, StoreError>>;

    /// Reports that this process is alive, and returns the number of processes that have reported
    /// it in the last few seconds.
    ///
    /// # Errors
    /// As for [`charge`](Counters::charge).
    fn heartbeat(&mut self) -> impl Future<Output = Result<u32, StoreError>>;
}
