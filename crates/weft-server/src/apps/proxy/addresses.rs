//! Where a name leads, and for how long that is believed.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

/// How long the addresses of a name are believed. Nobody tells us how long they may be.
const BELIEVED: Duration = Duration::from_secs(30);

/// For how long they are good enough while one looks whether there are others.
const GOOD_ENOUGH: Duration = Duration::from_secs(300);

/// What all workers know of a name. It is asked for when a connection is made, not for each
/// request.
///
/// One look-up is under way at a time, and goes on when nobody waits for it any more: the system's
/// resolver keeps a thread busy for as long as it takes, however many would ask.
#[derive(Clone, Default)]
pub(super) struct Addresses(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    known: Option<Known>,
    /// The look-up that is under way, or was the last: its other end goes with it.
    look_up: Option<watch::Receiver<Option<Found>>>,
}

struct Known {
    addresses: Arc<[SocketAddr]>,
    since: Instant,
}

type Found = Result<Arc<[SocketAddr]>, Arc<io::Error>>;

impl Addresses {
    /// The addresses of a name, which are looked up if that was long ago. If that fails, the old
    /// ones are believed on.
    pub(super) async fn get<F, L>(
        &self,
        (host, port): (&str, u16),
        now: Instant,
        look_up_of: impl FnOnce(String) -> L,
    ) -> io::Result<Arc<[SocketAddr]>>
    where
        F: IntoIterator<Item = SocketAddr>,
        L: Future<Output = io::Result<F>> + Send + 'static,
    {
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Ok([SocketAddr::new(ip, port)].into());
        }
        let mut look_up = {
            let mut state = self.state();
            let age = state.known.as_ref().map(|known| now.saturating_duration_since(known.since));
            if age.is_none_or(|age| age >= BELIEVED) && !state.is_looking() {
                let (tell, look_up) = watch::channel(None);
                state.look_up = Some(look_up);
                let (addresses, look_up) = (self.clone(), look_up_of(host.to_owned()));
                tokio::spawn(async move {
                    let found = look_up.await.map(|found| found.into_iter().collect());
                    tell.send_replace(Some(addresses.note(found, now)));
                });
            }
            match (&state.known, age, &state.look_up) {
                (Some(known), Some(age), _) if age < GOOD_ENOUGH => {
                    return Ok(known.addresses.clone());
                }
                (_, _, Some(look_up)) => look_up.clone(),
                (..) => unreachable!("what is not good enough is looked up"),
            }
        };
        match look_up.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(Ok(found))) => Ok(found.clone()),
            Ok(Some(Err(error))) => Err(io::Error::new(error.kind(), error.clone())),
            // It ends with the worker that has begun it.
            Ok(None) | Err(_) => Err(io::Error::other("the look-up of the name was broken off")),
        }
    }

    /// Writes down what was found. Better the old ones than none, and not asked for again at once.
    fn note(&self, found: io::Result<Arc<[SocketAddr]>>, now: Instant) -> Found {
        let mut state = self.state();
        let addresses = match (found, &state.known) {
            (Ok(found), _) => found,
            (Err(_), Some(known)) => known.addresses.clone(),
            (Err(error), None) => return Err(Arc::new(error)),
        };
        state.known = Some(Known { addresses: addresses.clone(), since: now });
        Ok(addresses)
    }

    /// Nobody is there: it may be somewhere else by now.
    pub(super) fn forget(&self) {
        self.state().known = None;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_looking(&self) -> bool {
        self.look_up.as_ref().is_some_and(|look_up| look_up.has_changed().is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot;
    use tokio::time::timeout;

    type Answer = io::Result<[SocketAddr; 1]>;

    fn one(last: u8) -> Answer {
        Ok([SocketAddr::from(([192, 0, 2, last], 80))])
    }

    fn none() -> Answer {
        Err(io::Error::other("nothing is known of it"))
    }

    /// The last number of what is found at a time, in seconds.
    async fn ask(
        addresses: &Addresses,
        (host, start, second): (&str, Instant, u64),
        look_up: impl Future<Output = Answer> + Send + 'static,
    ) -> String {
        let now = start + Duration::from_secs(second);
        let found = addresses.get((host, 80), now, |_| look_up).await;
        let found = found.map_or("-".to_owned(), |found| found[0].to_string());
        found.trim_start_matches("192.0.2.").trim_end_matches(":80").to_owned()
    }

    /// Lets a look-up that nobody waits for come to its end.
    async fn settle(addresses: &Addresses) {
        while addresses.state().is_looking() {
            tokio::task::yield_now().await;
        }
    }

    /// What is found for a name at some times by a resolver that answers with 192.0.2.N, or not
    /// at all.
    #[tokio::test]
    async fn names_are_looked_up_again() {
        let start = Instant::now();
        for (host, looks) in [
            // Not before the time is over; what is found then is for the next, and counts from
            // then.
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
            // After a long time it is waited for.
            ("a", &[(0, Some(1), "1"), (299, Some(2), "1"), (599, Some(3), "3")]),
            // Better the old ones than none, and not asked for again at once.
            ("a", &[(0, Some(1), "1"), (30, None, "1"), (31, Some(2), "1"), (60, Some(3), "1")]),
            ("a", &[(0, Some(1), "1"), (600, None, "1"), (601, Some(2), "1")]),
            ("a", &[(0, None, "-"), (0, Some(1), "1")]),
            ("192.0.2.9", &[(0, None, "9"), (99, Some(1), "9")]),
        ] {
            let addresses = Addresses::default();
            for &(second, answer, expected) in looks {
                let answer = async move { answer.map_or_else(none, one) };
                let found = ask(&addresses, (host, start, second), answer).await;
                assert_eq!(found, expected, "{host} at {second}");
                settle(&addresses).await;
            }
        }
    }

    #[tokio::test]
    async fn who_is_not_there_is_looked_up_at_once() {
        let (addresses, now) = (Addresses::default(), Instant::now());
        for last in [1, 2] {
            let found = ask(&addresses, ("a", now, 0), async move { one(last) }).await;
            assert_eq!(found, last.to_string());
            addresses.forget();
        }
    }

    /// However many wait, and give up.
    #[tokio::test]
    async fn one_look_up_is_under_way_and_is_not_in_vain() {
        let (addresses, now) = (Addresses::default(), Instant::now());
        let (answer, is_asked) = oneshot::channel();
        let slow = async move { is_asked.await.unwrap() };
        let first = ask(&addresses, ("a", now, 0), slow);
        assert!(timeout(Duration::from_millis(10), first).await.is_err());
        let others: Vec<_> = (0..3)
            .map(|_| {
                let addresses = addresses.clone();
                let second_look = async { unreachable!("one is under way") };
                tokio::spawn(async move { ask(&addresses, ("a", now, 9), second_look).await })
            })
            .collect();
        tokio::task::yield_now().await;
        answer.send(one(1)).unwrap();
        for other in others {
            assert_eq!(other.await.unwrap(), "1");
        }
    }

    #[tokio::test]
    async fn the_old_ones_are_believed_while_one_looks() {
        let (addresses, start) = (Addresses::default(), Instant::now());
        assert_eq!(ask(&addresses, ("a", start, 0), async { one(1) }).await, "1");
        let (answer, is_asked) = oneshot::channel();
        let slow = async move { is_asked.await.unwrap() };
        assert_eq!(ask(&addresses, ("a", start, 30), slow).await, "1");
        assert_eq!(ask(&addresses, ("a", start, 31), async { none() }).await, "1");
        answer.send(one(2)).unwrap();
        settle(&addresses).await;
        assert_eq!(ask(&addresses, ("a", start, 32), async { none() }).await, "2");
    }
}
