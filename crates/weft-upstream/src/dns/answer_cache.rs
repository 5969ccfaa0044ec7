//! Cached answers of the DNS about upstreams: the addresses of a host, or the servers of a service.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::timeout;

use crate::base::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Time for which addresses are used if the resolver reports none.
const UNKNOWN_TTL: Duration = Duration::from_secs(30);

/// Time from a lookup that has failed to the next one.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Time for which a failure is the answer about a name that was never resolved, so that not each
/// request asks the servers again.
const FAILED_FOR: Duration = Duration::from_secs(1);

/// Time after its expiry for which an address is used without a wait for the next lookup.
const MAX_STALE: Duration = Duration::from_secs(30);

/// Maximum time for which an answer is valid if the bounds are `never`: points in time have a
/// limit.
const MAX_TTL: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// Maximum wait for a lookup if there are addresses of an earlier one.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// Bounds of the time for which addresses are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TtlBounds {
    /// Minimum time, also for addresses with a shorter TTL.
    pub min: Duration,
    /// Maximum time, also for addresses with a longer TTL.
    pub max: Duration,
}

impl TtlBounds {
    /// Returns the time for which an answer with this TTL is used. `None`: the resolver does not
    /// report it.
    pub(crate) fn apply(&self, ttl: Option<Duration>) -> Duration {
        // Not `clamp`, which panics if the bounds are in the wrong order.
        ttl.unwrap_or(UNKNOWN_TTL).min(self.max).max(self.min).min(MAX_TTL)
    }
}

impl Default for TtlBounds {
    fn default() -> TtlBounds {
        TtlBounds { min: Duration::from_secs(1), max: Duration::from_secs(3600) }
    }
}

/// Answers about one name, shared by all workers. Answers about a host are read once per new
/// connection. A request that uses an idle connection compares a time.
///
/// At most one lookup is in progress at a time, and it continues if no caller waits for it any
/// more: the system's resolver occupies a thread until it is done, regardless of the number of
/// callers.
pub(crate) struct AnswerCache<T>(Arc<Shared<T>>);

pub(crate) type AddressCache = AnswerCache<SocketAddr>;

struct Shared<T> {
    bounds: TtlBounds,
    created_at: Instant,
    /// Milliseconds since the creation at which a lookup is due; the maximum: none was made.
    due_at: AtomicU64,
    /// Number of lookups whose answer differed from the answer before, apart from the order.
    changes: AtomicU64,
    state: Mutex<State<T>>,
}

struct State<T> {
    cached: Option<CachedAnswer<T>>,
    /// None of the addresses accepted a connection: the next caller waits for a lookup.
    is_invalid: bool,
    /// The last lookup has failed, which was logged.
    has_failed: bool,
    /// End of the time for which the failure of the first lookup is the answer.
    failed_until: Option<Instant>,
    /// Result of the lookup in progress or of the last one; its sender is dropped when the lookup
    /// ends.
    lookup: Option<watch::Receiver<Option<LookupResult<T>>>>,
}

struct CachedAnswer<T> {
    items: Arc<[T]>,
    /// Start of the lookup.
    since: Instant,
    expires_at: Instant,
}

type LookupResult<T> = Result<Arc<[T]>, Arc<io::Error>>;

/// The wait for a lookup in progress, and the earlier answer that may be used in its place.
enum LookupWait<T> {
    None(Arc<[T]>),
    /// Brief wait for the lookup: this answer is old, or none of its addresses accepted a
    /// connection. The lookup may be faster than a connection to an address that is gone.
    Limited(Arc<[T]>),
    /// Wait for the lookup, as there is no earlier answer.
    UntilResult,
}

impl<T> Clone for AnswerCache<T> {
    fn clone(&self) -> AnswerCache<T> {
        AnswerCache(self.0.clone())
    }
}

impl<T: Clone + PartialEq + Send + Sync + 'static> Default for AnswerCache<T> {
    fn default() -> AnswerCache<T> {
        AnswerCache::new(TtlBounds::default())
    }
}

impl<T: Clone + PartialEq + Send + Sync + 'static> AnswerCache<T> {
    pub(crate) fn new(bounds: TtlBounds) -> AnswerCache<T> {
        let (cached, lookup, is_invalid, has_failed, failed_until) = Default::default();
        AnswerCache(Arc::new(Shared {
            bounds,
            created_at: Instant::now(),
            due_at: AtomicU64::new(u64::MAX),
            changes: AtomicU64::new(0),
            state: Mutex::new(State { cached, lookup, is_invalid, has_failed, failed_until }),
        }))
    }

    /// Returns the answer about a name, and starts a lookup if it has expired. `resolve` returns an
    /// answer with its TTL. If the lookup fails, the old answer stays in use.
    pub(crate) async fn get<F, L>(
        &self,
        name: &str,
        now: Instant,
        resolve: impl FnOnce(String) -> L,
    ) -> io::Result<Arc<[T]>>
    where
        F: IntoIterator<Item = T>,
        L: Future<Output = io::Result<(F, Option<Duration>)>> + Send + 'static,
    {
        let (wait, mut lookup) = {
            let mut state = self.state();
            self.start_lookup_if_due(&mut state, name, now, resolve);
            let wait = match &state.cached {
                Some(CachedAnswer { items, expires_at, .. }) => {
                    match !state.is_invalid && now < *expires_at + MAX_STALE {
                        true => LookupWait::None(items.clone()),
                        false => LookupWait::Limited(items.clone()),
                    }
                }
                None => LookupWait::UntilResult,
            };
            (wait, state.lookup.clone())
        };
        let lookup = async {
            // A lookup is in progress, or has failed a short time ago, unless the answer is usable.
            let Some(lookup) = &mut lookup else { return Err(io::ErrorKind::NotFound.into()) };
            match lookup.wait_for(Option::is_some).await.as_deref() {
                Ok(Some(Ok(found))) => Ok(found.clone()),
                Ok(Some(Err(error))) => Err(io::Error::new(error.kind(), error.clone())),
                // The lookup is aborted if the worker that started it stops.
                Ok(None) | Err(_) => {
                    Err(io::Error::other("the name lookup was aborted because its worker stopped"))
                }
            }
        };
        match wait {
            LookupWait::None(items) => Ok(items),
            LookupWait::Limited(items) => {
                Ok(timeout(MAX_WAIT, lookup).await.ok().and_then(Result::ok).unwrap_or(items))
            }
            LookupWait::UntilResult => lookup.await,
        }
    }

    /// Returns true if the answer has expired.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        let due_at = self.0.due_at.load(Relaxed);
        due_at != u64::MAX && self.0.millis(now) >= due_at
    }

    /// Starts a lookup if the answer has expired. A later call has its result.
    pub(crate) fn refresh<F, L>(&self, name: &str, now: Instant, resolve: impl FnOnce(String) -> L)
    where
        F: IntoIterator<Item = T>,
        L: Future<Output = io::Result<(F, Option<Duration>)>> + Send + 'static,
    {
        self.start_lookup_if_due(&mut self.state(), name, now, resolve);
    }

    fn start_lookup_if_due<F, L>(
        &self,
        state: &mut State<T>,
        name: &str,
        now: Instant,
        resolve: impl FnOnce(String) -> L,
    ) where
        F: IntoIterator<Item = T>,
        L: Future<Output = io::Result<(F, Option<Duration>)>> + Send + 'static,
    {
        let cached = state.cached.as_ref().filter(|_| !state.is_invalid);
        let is_fresh = cached.is_some_and(|cached| now < cached.expires_at);
        let is_failure_fresh = state.failed_until.is_some_and(|end| now < end);
        if is_fresh || is_failure_fresh || state.is_lookup_running() {
            return;
        }
        let (sender, lookup) = watch::channel(None);
        state.lookup = Some(lookup);
        let (cache, name) = (self.clone(), name.to_owned());
        let lookup = resolve(name.clone());
        tokio::spawn(async move {
            let found = lookup.await.and_then(|(found, ttl)| {
                let items: Arc<[T]> = found.into_iter().collect();
                match items.is_empty() {
                    true => Err(io::Error::new(io::ErrorKind::NotFound, "the answer is empty")),
                    false => Ok((items, ttl)),
                }
            });
            sender.send_replace(Some(cache.store(&name, found, now)));
        });
    }

    /// Stores the result of a lookup that was started at `now`. After a failure, the old answer
    /// stays in use for a while, to avoid another lookup at once.
    fn store(
        &self,
        name: &str,
        found: io::Result<(Arc<[T]>, Option<Duration>)>,
        now: Instant,
    ) -> LookupResult<T> {
        let mut state = self.state();
        state.is_invalid = false;
        let (items, expires_at) = match (found, &state.cached) {
            (Ok((found, ttl)), former) => {
                let former = former.as_ref().map(|former| former.items.clone());
                if former.is_some_and(|former| !has_same_items(&former, &found)) {
                    log::info!("the DNS has another answer about {name} than before");
                    self.0.changes.fetch_add(1, Relaxed);
                }
                if std::mem::take(&mut state.has_failed) {
                    log::info!("the name {name} is resolved again");
                }
                (found, now + self.0.bounds.apply(ttl))
            }
            (Err(error), Some(cached)) => {
                let items = cached.items.clone();
                if !std::mem::replace(&mut state.has_failed, true) {
                    log::warn!("cannot resolve {name}, its last addresses stay in use: {error}");
                }
                // A lookup may take longer than this time.
                (items, Instant::now().max(now) + RETRY_AFTER)
            }
            (Err(error), None) => {
                state.failed_until = Some(Instant::now().max(now) + FAILED_FOR);
                return Err(Arc::new(error));
            }
        };
        self.0.due_at.store(self.0.millis(expires_at), Relaxed);
        state.cached = Some(CachedAnswer { items: items.clone(), since: now, expires_at });
        Ok(items)
    }

    /// Returns the last answer.
    pub(crate) fn cached(&self) -> Option<Arc<[T]>> {
        self.state().cached.as_ref().map(|cached| cached.items.clone())
    }

    /// Returns the number of lookups whose answer differed from the answer before. Connections that
    /// were established before a change have to be compared with the
    /// [answer](AnswerCache::contains).
    pub(crate) fn changes(&self) -> u64 {
        self.0.changes.load(Relaxed)
    }

    /// Returns true for an item of the last answer.
    pub(crate) fn contains(&self, item: &T) -> bool {
        let state = self.state();
        state.cached.as_ref().is_none_or(|cached| cached.items.contains(item))
    }

    /// Lets the next caller wait for a lookup. Called if none of the addresses accepted a
    /// connection: the host may have moved. An answer is used for the minimum time nevertheless: a
    /// host that is down must not cause a lookup for each request.
    pub(crate) fn invalidate(&self, now: Instant) {
        let mut state = self.state();
        let age = state.cached.as_ref().map(|it| now.saturating_duration_since(it.since));
        state.is_invalid = age.is_some_and(|age| age >= self.0.bounds.min);
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn has_same_items<T: PartialEq>(a: &[T], b: &[T]) -> bool {
    a.len() == b.len() && a.iter().all(|item| b.contains(item))
}

impl<T> Shared<T> {
    fn millis(&self, time: Instant) -> u64 {
        let age = time.saturating_duration_since(self.created_at).as_millis();
        u64::try_from(age).unwrap_or(u64::MAX - 1)
    }
}

impl<T> State<T> {
    fn is_lookup_running(&self) -> bool {
        self.lookup.as_ref().is_some_and(|lookup| lookup.has_changed().is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot;
    use tokio::time::timeout;

    type LookupAnswer = io::Result<([SocketAddr; 1], Option<Duration>)>;

    fn address(last: u8) -> LookupAnswer {
        valid_for(last, 30)
    }

    fn valid_for(last: u8, seconds: u64) -> LookupAnswer {
        Ok(([SocketAddr::from(([192, 0, 2, last], 80))], Some(Duration::from_secs(seconds))))
    }

    fn lookup_error() -> LookupAnswer {
        Err(io::Error::other("unknown host"))
    }

    /// Requests the addresses `second` seconds after `start`; returns the last octet of the first
    /// one.
    async fn lookup_at(
        addresses: &AddressCache,
        (host, start, second): (&str, Instant, u64),
        lookup: impl Future<Output = LookupAnswer> + Send + 'static,
    ) -> String {
        let now = start + Duration::from_secs(second);
        let found = addresses.get(host, now, |_| lookup).await;
        let found = found.map_or("-".to_owned(), |found| found[0].to_string());
        found.trim_start_matches("192.0.2.").trim_end_matches(":80").to_owned()
    }

    /// Waits for the end of a lookup in progress.
    async fn wait_for_lookup(addresses: &AddressCache) {
        while addresses.state().is_lookup_running() {
            tokio::task::yield_now().await;
        }
    }

    /// Each row: time in seconds, result of the resolver (192.0.2.N or an error), returned address.
    #[tokio::test]
    async fn revalidates_old_addresses() {
        let start = Instant::now();
        for (host, lookups) in [
            // No lookup before 30 s. Its result is returned by the next call, and its age counts
            // from the start of the lookup.
            (
                "a",
                &[
                    (0, Some(1), "1"),
                    (29, Some(2), "1"),
                    (30, Some(3), "1"),
                    (31, Some(4), "3"),
                    (59, Some(5), "3"),
                    (60, Some(6), "3"),
                    (61, Some(7), "6"),
                ][..],
            ),
            // From 30 s beyond their validity on, the call waits for the lookup.
            ("a", &[(0, Some(1), "1"), (59, Some(2), "1"), (119, Some(3), "3")]),
            // A failed lookup keeps the old addresses for another 5 s.
            ("a", &[(0, Some(1), "1"), (30, None, "1"), (34, Some(2), "1"), (35, Some(3), "1")]),
            ("a", &[(0, Some(1), "1"), (600, None, "1"), (605, Some(2), "1"), (606, None, "2")]),
            // A failure is the answer for 1 s.
            ("a", &[(0, None, "-"), (0, Some(1), "-"), (2, None, "-"), (2, Some(2), "-")]),
            ("a", &[(0, None, "-"), (2, Some(1), "1"), (3, None, "1")]),
        ] {
            let addresses = AddressCache::default();
            for &(second, answer, expected) in lookups {
                let answer = async move { answer.map_or_else(lookup_error, address) };
                let found = lookup_at(&addresses, (host, start, second), answer).await;
                assert_eq!(found, expected, "{host} at {second}");
                wait_for_lookup(&addresses).await;
            }
        }
    }

    #[tokio::test]
    async fn looks_up_invalidated_name_after_the_minimum_time() {
        let (addresses, start) = (AddressCache::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        addresses.invalidate(start);
        for (last, second, expected) in [(1, 0, "1"), (2, 1, "2"), (3, 1, "2"), (4, 2, "4")] {
            let lookup = async move { address(last) };
            let found = lookup_at(&addresses, ("a", start, second), lookup).await;
            assert_eq!(found, expected, "{last}");
            // The former lookup is younger than a second in one case.
            addresses.invalidate(at(if last == 2 { 1 } else { second + 1 }));
        }
    }

    #[tokio::test]
    async fn a_failed_lookup_keeps_addresses_that_were_invalidated() {
        let (addresses, now) = (AddressCache::default(), Instant::now());
        lookup_at(&addresses, ("a", now, 0), async { address(1) }).await;
        addresses.invalidate(now + Duration::from_secs(1));
        assert_eq!(lookup_at(&addresses, ("a", now, 1), async { lookup_error() }).await, "1");
    }

    #[tokio::test]
    async fn a_slow_lookup_does_not_withhold_addresses_that_were_invalidated() {
        let (addresses, now) = (AddressCache::default(), Instant::now());
        lookup_at(&addresses, ("a", now, 0), async { address(1) }).await;
        addresses.invalidate(now + Duration::from_secs(1));
        let found = lookup_at(&addresses, ("a", now, 1), std::future::pending());
        let found = timeout(Duration::from_secs(30), found).await;
        assert_eq!(found.expect("the wait is limited"), "1");
    }

    #[tokio::test]
    async fn the_next_attempt_follows_the_end_of_a_lookup_that_failed() {
        let (addresses, now) = (AddressCache::default(), Instant::now());
        let start = now.checked_sub(Duration::from_secs(100)).expect("the system runs for longer");
        lookup_at(&addresses, ("a", start, 0), async { address(1) }).await;
        // It takes 60 seconds.
        assert_eq!(lookup_at(&addresses, ("a", start, 40), async { lookup_error() }).await, "1");
        wait_for_lookup(&addresses).await;
        assert!(!addresses.is_due(now), "the attempt follows at once");
        assert!(addresses.is_due(Instant::now() + RETRY_AFTER));
    }

    #[tokio::test]
    async fn the_time_of_an_answer_is_bounded() {
        let second = Duration::from_secs;
        let bounds = TtlBounds { min: second(5), max: second(60) };
        for (ttl, expected) in
            [(Some(0), 5), (Some(5), 5), (Some(59), 59), (Some(86_400), 60), (None, 30)]
        {
            assert_eq!(bounds.apply(ttl.map(second)), second(expected), "{ttl:?}");
        }
        let (addresses, now) = (AddressCache::new(bounds), Instant::now());
        let found = lookup_at(&addresses, ("a", now, 0), async { valid_for(1, 0) }).await;
        assert_eq!(found, "1");
        wait_for_lookup(&addresses).await;
        let at = |seconds| now + Duration::from_secs(seconds);
        assert!(!addresses.is_due(at(4)) && addresses.is_due(at(6)));
        assert!(!AddressCache::default().is_due(at(9)), "no lookup was made");
        let never = TtlBounds { min: Duration::MAX, max: Duration::MAX };
        let addresses = AddressCache::new(never);
        assert_eq!(lookup_at(&addresses, ("a", now, 0), async { valid_for(1, 0) }).await, "1");
        wait_for_lookup(&addresses).await;
        assert!(!addresses.is_due(at(1 << 30)));
    }

    #[tokio::test]
    async fn counts_changes() {
        let (addresses, now) = (AddressCache::default(), Instant::now());
        let address_of = |last: u8| SocketAddr::from(([192, 0, 2, last], 80));
        assert!(addresses.contains(&address_of(1)), "there was no lookup");
        for (second, found, expected) in [
            (0, &[1][..], (0, [true, false])),
            (60, &[1, 2], (1, [true, true])),
            (120, &[2, 1], (1, [true, true])),
            (180, &[2], (2, [false, true])),
        ] {
            let found: Vec<_> = found.iter().map(|last| address_of(*last)).collect();
            let resolve = async move { Ok((found, Some(Duration::ZERO))) };
            let now = now + Duration::from_secs(second);
            addresses.refresh("a", now, |_| resolve);
            wait_for_lookup(&addresses).await;
            let contains = [1, 2].map(|last| addresses.contains(&address_of(last)));
            assert_eq!((addresses.changes(), contains), expected, "{second}");
        }
    }

    /// The lookup outlives its cancelled caller, and later callers wait for the same one.
    #[tokio::test]
    async fn concurrent_callers_share_one_lookup() {
        let (addresses, now) = (AddressCache::default(), Instant::now());
        let (answer_sender, answer_receiver) = oneshot::channel();
        let slow = async move { answer_receiver.await.unwrap() };
        let first = lookup_at(&addresses, ("a", now, 0), slow);
        assert!(timeout(Duration::from_millis(10), first).await.is_err());
        let others: Vec<_> = (0..3)
            .map(|_| {
                let addresses = addresses.clone();
                let second_lookup = async { unreachable!("a lookup is in progress") };
                tokio::spawn(
                    async move { lookup_at(&addresses, ("a", now, 9), second_lookup).await },
                )
            })
            .collect();
        tokio::task::yield_now().await;
        answer_sender.send(address(1)).unwrap();
        for other in others {
            assert_eq!(other.await.unwrap(), "1");
        }
    }

    #[tokio::test]
    async fn returns_old_addresses_during_lookup() {
        let (addresses, start) = (AddressCache::default(), Instant::now());
        assert_eq!(lookup_at(&addresses, ("a", start, 0), async { address(1) }).await, "1");
        let (answer_sender, answer_receiver) = oneshot::channel();
        let slow = async move { answer_receiver.await.unwrap() };
        assert_eq!(lookup_at(&addresses, ("a", start, 30), slow).await, "1");
        assert_eq!(lookup_at(&addresses, ("a", start, 31), async { lookup_error() }).await, "1");
        answer_sender.send(address(2)).unwrap();
        wait_for_lookup(&addresses).await;
        assert_eq!(lookup_at(&addresses, ("a", start, 32), async { lookup_error() }).await, "2");
    }
}
