//! Cached addresses of an upstream's host name.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::base::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Age from which a new lookup is started. The system's resolver does not report the TTL.
const REVALIDATE_AFTER: Duration = Duration::from_secs(30);

/// Maximum age of addresses that are used while a new lookup is in progress.
const MAX_AGE: Duration = Duration::from_secs(300);

/// Addresses of one host name, shared by all workers. Read once per new connection, not per
/// request.
///
/// At most one lookup is in progress at a time, and it continues if no caller waits for it any
/// more: the system's resolver occupies a thread until it is done, regardless of the number of
/// callers.
#[derive(Clone, Default)]
pub(super) struct AddressCache(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    cached: Option<CachedAddresses>,
    /// Result of the lookup in progress or of the last one; its sender is dropped when the lookup
    /// ends.
    lookup: Option<watch::Receiver<Option<LookupResult>>>,
}

struct CachedAddresses {
    addresses: Arc<[SocketAddr]>,
    since: Instant,
}

type LookupResult = Result<Arc<[SocketAddr]>, Arc<io::Error>>;

impl AddressCache {
    /// Returns the addresses of a name, and starts a lookup if they are old. If the lookup fails,
    /// the old addresses stay in use.
    pub(super) async fn get<F, L>(
        &self,
        (host, port): (&str, u16),
        now: Instant,
        resolve: impl FnOnce(String) -> L,
    ) -> io::Result<Arc<[SocketAddr]>>
    where
        F: IntoIterator<Item = SocketAddr>,
        L: Future<Output = io::Result<F>> + Send + 'static,
    {
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Ok([SocketAddr::new(ip, port)].into());
        }
        let mut lookup = {
            let mut state = self.state();
            let age =
                state.cached.as_ref().map(|cached| now.saturating_duration_since(cached.since));
            if age.is_none_or(|age| age >= REVALIDATE_AFTER) && !state.is_lookup_running() {
                let (sender, lookup) = watch::channel(None);
                state.lookup = Some(lookup);
                let (addresses, lookup) = (self.clone(), resolve(host.to_owned()));
                tokio::spawn(async move {
                    let found = lookup.await.map(|found| found.into_iter().collect());
                    sender.send_replace(Some(addresses.store(found, now)));
                });
            }
            match (&state.cached, age, &state.lookup) {
                (Some(cached), Some(age), _) if age < MAX_AGE => {
                    return Ok(cached.addresses.clone());
                }
                (_, _, Some(lookup)) => lookup.clone(),
                (..) => unreachable!("a lookup is in progress if no usable address is cached"),
            }
        };
        match lookup.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(Ok(found))) => Ok(found.clone()),
            Ok(Some(Err(error))) => Err(io::Error::new(error.kind(), error.clone())),
            // The lookup is aborted if the worker that started it stops.
            Ok(None) | Err(_) => {
                Err(io::Error::other("the name lookup was aborted because its worker stopped"))
            }
        }
    }

    /// Stores the result of a lookup. If it failed, the old addresses are kept and count as new, to
    /// avoid another lookup at once.
    fn store(&self, found: io::Result<Arc<[SocketAddr]>>, now: Instant) -> LookupResult {
        let mut state = self.state();
        let addresses = match (found, &state.cached) {
            (Ok(found), _) => found,
            (Err(_), Some(cached)) => cached.addresses.clone(),
            (Err(error), None) => return Err(Arc::new(error)),
        };
        state.cached = Some(CachedAddresses { addresses: addresses.clone(), since: now });
        Ok(addresses)
    }

    /// Drops the addresses after none of them accepted a connection: the host may have moved.
    pub(super) fn invalidate(&self) {
        self.state().cached = None;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_lookup_running(&self) -> bool {
        self.lookup.as_ref().is_some_and(|lookup| lookup.has_changed().is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot;
    use tokio::time::timeout;

    type LookupAnswer = io::Result<[SocketAddr; 1]>;

    fn address(last: u8) -> LookupAnswer {
        Ok([SocketAddr::from(([192, 0, 2, last], 80))])
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
        let found = addresses.get((host, 80), now, |_| lookup).await;
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
            // From an age of 300 s on, addresses are not returned: the call waits for the lookup.
            ("a", &[(0, Some(1), "1"), (299, Some(2), "1"), (599, Some(3), "3")]),
            // A failed lookup keeps the old addresses for another 30 s.
            ("a", &[(0, Some(1), "1"), (30, None, "1"), (31, Some(2), "1"), (60, Some(3), "1")]),
            ("a", &[(0, Some(1), "1"), (600, None, "1"), (601, Some(2), "1")]),
            ("a", &[(0, None, "-"), (0, Some(1), "1")]),
            ("192.0.2.9", &[(0, None, "9"), (99, Some(1), "9")]),
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
    async fn looks_up_invalidated_name_at_once() {
        let (addresses, now) = (AddressCache::default(), Instant::now());
        for last in [1, 2] {
            let found = lookup_at(&addresses, ("a", now, 0), async move { address(last) }).await;
            assert_eq!(found, last.to_string());
            addresses.invalidate();
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
