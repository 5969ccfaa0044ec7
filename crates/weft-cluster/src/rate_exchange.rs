//! The exchange of rate limits with the other processes, by a store that counts.
//!
//! Each process reports its requests after they were admitted. While the store is away, each has
//! its part of every limit. Its reports of that time are recorded by the store without a charge:
//! together the processes have kept the limit, and a debt for all of it would refuse the clients.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use weft::middleware::{SharedRate, TakenRequests};

use crate::cluster_status::StatusCell;
use crate::counters::{Charge, Counters};
use crate::store_error::StoreError;

/// Time between two reports, and time between checks for urgent ones.
const REPORT_INTERVAL: Duration = Duration::from_millis(100);
const URGENT_INTERVAL: Duration = Duration::from_millis(20);

/// Time between two reports that this process is alive.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);

/// Number of clients in one report, about.
const MAX_CHARGES: usize = 512;

/// Time for which the rate is not divided although the store has not answered.
const PATIENCE: Duration = Duration::from_millis(250);

/// Delay before the first attempt to reach a store that is away, which doubles each time.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(100);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(1);

/// Time after which a store that is back is reliable: all processes have reported that they are
/// alive, and a new failure starts with the shortest delay.
const RELIABLE_AFTER: Duration = Duration::from_secs(10);

/// Maximum time for which totals are recorded without a charge after the store is back.
const MAX_RETURN_TIME: Duration = Duration::from_secs(1);

/// A rate limit that this process shares.
pub(crate) struct SharedLimit {
    /// The name of the limit in all processes, as a hash.
    pub(crate) id: u64,
    /// Number of the limit in this process, never used again.
    pub(crate) number: u32,
    pub(crate) rate: SharedRate,
}

/// The exchange of all limits of this process.
pub(crate) struct RateExchange<C> {
    counters: C,
    limits: Vec<SharedLimit>,
    link: Link,
    /// Each limit is divided by the number of processes.
    is_divided: bool,
    processes: u32,
    /// Index of the limit that reports first: one with many clients does not exclude the others.
    first: usize,
    next_report: Instant,
    next_heartbeat: Instant,
    status: Arc<StatusCell>,
}

/// State of the connection to the store.
#[derive(Clone, Copy)]
enum Link {
    Up { since: Instant, is_returning: bool },
    Down { retry_at: Instant, delay: Duration },
}

impl<C: Counters> RateExchange<C> {
    pub(crate) fn new(counters: C, status: Arc<StatusCell>) -> RateExchange<C> {
        let now = Instant::now();
        RateExchange {
            counters,
            limits: Vec::new(),
            link: Link::Down { retry_at: now, delay: Duration::ZERO },
            is_divided: false,
            processes: 1,
            first: 0,
            next_report: now,
            next_heartbeat: now,
            status,
        }
    }

    /// Adds limits that this process shares from now on.
    pub(crate) fn add(&mut self, limits: Vec<SharedLimit>) {
        self.limits.extend(limits);
        if self.is_divided {
            self.divide(self.processes);
        }
    }

    /// Reports what is due, and returns the time until the next call.
    pub(crate) async fn turn(&mut self) -> Duration {
        self.limits.retain(|limit| !limit.rate.is_unused());
        let now = Instant::now();
        if let Link::Down { retry_at, .. } = self.link
            && now < retry_at
        {
            return URGENT_INTERVAL;
        }
        let is_urgent = self.limits.iter().any(|limit| limit.rate.is_urgent());
        let result = match self.beat(now).await {
            Ok(()) if is_urgent || now >= self.next_report => {
                self.next_report = now + REPORT_INTERVAL;
                self.report_all().await
            }
            result => result,
        };
        if let Err(error) = result {
            self.note_failure(&error);
        }
        if self.limits.is_empty() { REPORT_INTERVAL } else { URGENT_INTERVAL }
    }

    /// Reports that this process is alive, if it is time for it, and after each failure.
    async fn beat(&mut self, now: Instant) -> Result<(), StoreError> {
        if matches!(self.link, Link::Up { .. }) && now < self.next_heartbeat {
            return Ok(());
        }
        let call = self.counters.heartbeat();
        let count = patiently(call, &self.limits, self.processes, &mut self.is_divided).await?;
        self.next_heartbeat = Instant::now() + HEARTBEAT_INTERVAL;
        self.note_success(count);
        Ok(())
    }

    /// Reports the changes of all limits.
    async fn report_all(&mut self) -> Result<(), StoreError> {
        loop {
            let taken = self.take_changes();
            self.report(&taken).await?;
            if taken.len() < MAX_CHARGES {
                break;
            }
            // A flood of clients must not keep this process from reporting that it is alive.
            if Instant::now() >= self.next_heartbeat {
                return Ok(());
            }
        }
        if let Link::Up { is_returning, .. } = &mut self.link {
            *is_returning = false;
        }
        Ok(())
    }

    /// Takes changes, with the index of their limit. No counter is in a report twice.
    fn take_changes(&mut self) -> Vec<(usize, TakenRequests)> {
        let (mut taken, mut known) = (Vec::new(), HashSet::new());
        let count = self.limits.len();
        for offset in 0..count {
            let index = (self.first + offset) % count;
            let Some(room) = MAX_CHARGES.checked_sub(taken.len()).filter(|room| *room > 0) else {
                self.first = index;
                break;
            };
            let changes = self.limits[index].rate.take_changes(room).into_iter();
            let changes = changes.filter(|it| known.insert((index, it.client, it.bucket)));
            taken.extend(changes.map(|change| (index, change)));
        }
        taken
    }

    async fn report(&mut self, taken: &[(usize, TakenRequests)]) -> Result<(), StoreError> {
        if taken.is_empty() {
            return Ok(());
        }
        let is_returning = match self.link {
            Link::Up { since, is_returning } => is_returning && since.elapsed() < MAX_RETURN_TIME,
            Link::Down { .. } => true,
        };
        let charge = |(index, taken): &(usize, TakenRequests)| {
            let limit = &self.limits[*index];
            Charge {
                key: u128::from(limit.id) << 64 | u128::from(taken.client),
                counter: (limit.number, taken.bucket),
                acknowledged: if is_returning { taken.total } else { taken.acknowledged },
                total: taken.total,
                interval: limit.rate.interval(),
                capacity: limit.rate.capacity(),
            }
        };
        let charges: Vec<Charge> = taken.iter().map(charge).collect();
        let call = self.counters.charge(&charges);
        let result = patiently(call, &self.limits, self.processes, &mut self.is_divided).await;
        let result = result.and_then(|debts| match debts.len() == taken.len() {
            true => Ok(debts),
            false => Err(StoreError::Invalid("the number of results is wrong".to_owned())),
        });
        let debts = match result {
            Ok(debts) => debts,
            Err(error) => {
                taken.iter().for_each(|(index, taken)| self.limits[*index].rate.retry(taken));
                return Err(error);
            }
        };
        for ((index, taken), debt) in taken.iter().zip(debts) {
            self.limits[*index].rate.settle(taken, debt);
        }
        if self.is_divided {
            self.divide(1);
        }
        Ok(())
    }

    fn note_success(&mut self, count: u32) {
        let is_reliable = match self.link {
            Link::Up { since, .. } => since.elapsed() >= RELIABLE_AFTER,
            Link::Down { .. } => false,
        };
        // The store may have lost the reports of the others.
        self.processes = if is_reliable { count } else { count.max(self.processes) };
        if let Link::Down { delay, .. } = self.link {
            let (since, is_returning) = (Instant::now(), !delay.is_zero());
            self.link = Link::Up { since, is_returning };
            log::info!("the store of the cluster is connected; {count} processes use it");
        }
        if self.is_divided {
            self.divide(1);
        }
        self.status.set_link(true, self.processes);
    }

    fn note_failure(&mut self, error: &StoreError) {
        let delay = match self.link {
            Link::Up { since, .. } if since.elapsed() >= RELIABLE_AFTER => MIN_RETRY_DELAY,
            Link::Up { .. } => MAX_RETRY_DELAY,
            Link::Down { delay, .. } => (delay * 2).clamp(MIN_RETRY_DELAY, MAX_RETRY_DELAY),
        };
        let is_first = match self.link {
            Link::Up { .. } => true,
            Link::Down { delay, .. } => delay.is_zero(),
        };
        if is_first {
            log::warn!(
                "the store of the cluster is away: {error}; each process has its part of the rate \
                 limits, of {} processes",
                self.processes
            );
        }
        self.link = Link::Down { retry_at: Instant::now() + delay, delay };
        self.divide(self.processes);
        self.status.set_link(false, self.processes);
    }

    fn divide(&mut self, processes: u32) {
        self.limits.iter().for_each(|limit| limit.rate.divide(processes));
        self.is_divided = processes > 1;
    }
}

/// Waits for a call. If it takes long, the limits are divided until it succeeds.
async fn patiently<T>(
    call: impl Future<Output = T>,
    limits: &[SharedLimit],
    processes: u32,
    is_divided: &mut bool,
) -> T {
    let mut call = pin!(call);
    tokio::select! {
        biased;
        result = &mut call => return result,
        () = sleep(PATIENCE) => {}
    }
    limits.iter().for_each(|limit| limit.rate.divide(processes));
    *is_divided = processes > 1;
    call.await
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::future::pending;
    use std::sync::Mutex;

    use tokio::time::advance;
    use weft::middleware::RateLimit;

    use super::*;

    /// Requests of a limit, and of its burst.
    const REQUESTS: u32 = 30;

    /// A store that records its calls, and whose responses are prepared.
    #[derive(Clone, Default)]
    struct FakeStore(Arc<Mutex<FakeState>>);

    #[derive(Default)]
    struct FakeState {
        charged: Vec<Vec<Charge>>,
        /// The next responses to reports. Without any, all buckets are full.
        responses: VecDeque<Response>,
        is_away: bool,
    }

    #[derive(Clone, Copy)]
    enum Response {
        Failure,
        Nothing,
        Never,
    }

    impl FakeStore {
        fn respond(&self, response: Response) {
            self.0.lock().unwrap().responses.push_back(response);
        }

        /// The acknowledged and all requests of the charges since the last call.
        fn charged(&self) -> Vec<(u64, u64)> {
            let reports = std::mem::take(&mut self.0.lock().unwrap().charged);
            reports.iter().flatten().map(|it| (it.acknowledged, it.total)).collect()
        }
    }

    impl Counters for FakeStore {
        async fn charge(&mut self, charges: &[Charge]) -> Result<Vec<Duration>, StoreError> {
            let response = {
                let mut state = self.0.lock().unwrap();
                state.charged.push(charges.to_vec());
                state.responses.pop_front()
            };
            match response {
                None => Ok(vec![Duration::ZERO; charges.len()]),
                Some(Response::Nothing) => Ok(Vec::new()),
                Some(Response::Failure) => Err(StoreError::Away("broken".to_owned())),
                Some(Response::Never) => pending().await,
            }
        }

        async fn heartbeat(&mut self) -> Result<u32, StoreError> {
            match self.0.lock().unwrap().is_away {
                true => Err(StoreError::Away("away".to_owned())),
                false => Ok(3),
            }
        }
    }

    /// A limit whose exchange is connected.
    async fn connected(store: &FakeStore) -> (RateLimit, RateExchange<FakeStore>) {
        let limit = RateLimit::new(REQUESTS, Duration::from_secs(100_000));
        let (limit, rate) = limit.shared([1; 16]);
        let mut exchange = RateExchange::new(store.clone(), Arc::default());
        exchange.add(vec![SharedLimit { id: 7, number: 1, rate }]);
        exchange.turn().await;
        (limit, exchange)
    }

    /// Requests of a client that are admitted at once.
    fn admitted(limit: &RateLimit, client: &str, requests: u32) -> usize {
        (0..requests).filter(|_| limit.take(client).is_ok()).count()
    }

    async fn next_turn(exchange: &mut RateExchange<FakeStore>) {
        advance(REPORT_INTERVAL).await;
        exchange.turn().await;
    }

    #[tokio::test(start_paused = true)]
    async fn failures_divide_limits_and_are_not_charged_later() {
        let store = FakeStore::default();
        let (limit, mut exchange) = connected(&store).await;
        assert_eq!(admitted(&limit, "a", 3), 3);
        next_turn(&mut exchange).await;
        assert_eq!(store.charged(), [(0, 3)]);
        for (number, response) in [Response::Failure, Response::Nothing].into_iter().enumerate() {
            store.respond(response);
            let client = format!("b{number}");
            assert_eq!(admitted(&limit, &client, 1), 1);
            next_turn(&mut exchange).await;
            assert_eq!(store.charged(), [(0, 1)]);
            // A third of the limit, and one request before.
            assert_eq!(admitted(&limit, &client, 100), 9);
            assert!(!exchange.status.status().is_connected);
            // The delay of the next attempt.
            advance(MAX_RETRY_DELAY).await;
            exchange.turn().await;
            assert_eq!(store.charged(), [(10, 10)], "without a charge");
            assert!(exchange.status.status().is_connected);
            assert_eq!(admitted(&limit, &client, 1), 1);
            next_turn(&mut exchange).await;
            assert_eq!(store.charged(), [(10, 11)], "with a charge");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_store_divides_limits_before_its_time_is_over() {
        let store = FakeStore::default();
        let (limit, mut exchange) = connected(&store).await;
        store.respond(Response::Never);
        assert_eq!(admitted(&limit, "a", 1), 1);
        advance(REPORT_INTERVAL).await;
        for (waited, expected) in [(PATIENCE / 2, REQUESTS), (PATIENCE * 2, REQUESTS / 3)] {
            store.respond(Response::Never);
            let mut call = pin!(exchange.turn());
            assert!(tokio::time::timeout(waited, &mut call).await.is_err());
            let client = format!("{waited:?}");
            assert_eq!(admitted(&limit, &client, 100), expected as usize, "{waited:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_is_away_at_the_start_leaves_whole_limits() {
        let store = FakeStore::default();
        store.0.lock().unwrap().is_away = true;
        let (limit, _exchange) = connected(&store).await;
        assert_eq!(admitted(&limit, "a", 100), REQUESTS as usize);
        assert_eq!(store.charged(), []);
    }

    #[tokio::test(start_paused = true)]
    async fn many_clients_are_reported_in_bounded_parts() {
        let store = FakeStore::default();
        let (limit, mut exchange) = connected(&store).await;
        for client in 0..2_000 {
            assert_eq!(admitted(&limit, &client.to_string(), 1), 1);
        }
        next_turn(&mut exchange).await;
        let reports = store.0.lock().unwrap().charged.iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(reports.iter().sum::<usize>(), 2_000);
        assert!(reports.iter().all(|charges| *charges < MAX_CHARGES + 16), "{reports:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn limits_that_are_not_used_any_more_are_removed() {
        let store = FakeStore::default();
        let (limit, mut exchange) = connected(&store).await;
        assert_eq!(exchange.limits.len(), 1);
        drop(limit);
        exchange.turn().await;
        assert!(exchange.limits.is_empty());
    }
}
