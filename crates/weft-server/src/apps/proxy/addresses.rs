//! Where a name leads, and for how long that is believed.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long the addresses of a name are believed. Nobody tells us how long they may be.
const BELIEVED: Duration = Duration::from_secs(30);

/// What all workers know of a name. It is asked for when a connection is made, not for each
/// request.
#[derive(Default)]
pub(super) struct Addresses(Mutex<Option<Known>>);

struct Known {
    addresses: Arc<[SocketAddr]>,
    since: Instant,
}

impl Addresses {
    /// The addresses of a name, which are looked up if that was long ago. While one looks them up
    /// anew, the others believe the old ones; so does everybody when that fails.
    pub(super) async fn get<F: IntoIterator<Item = SocketAddr>>(
        &self,
        (host, port): (&str, u16),
        now: Instant,
        look_up: impl Future<Output = io::Result<F>>,
    ) -> io::Result<Arc<[SocketAddr]>> {
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Ok([SocketAddr::new(ip, port)].into());
        }
        let old = match &mut *self.known() {
            Some(known) if now.duration_since(known.since) < BELIEVED => {
                return Ok(known.addresses.clone());
            }
            Some(known) => {
                known.since = now;
                Some(known.addresses.clone())
            }
            None => None,
        };
        match (look_up.await, old) {
            (Ok(found), _) => {
                let addresses: Arc<[SocketAddr]> = found.into_iter().collect();
                *self.known() = Some(Known { addresses: addresses.clone(), since: now });
                Ok(addresses)
            }
            (Err(_), Some(old)) => Ok(old),
            (Err(error), None) => Err(error),
        }
    }

    /// Nobody is there: it may be somewhere else by now.
    pub(super) fn forget(&self) {
        *self.known() = None;
    }

    fn known(&self) -> MutexGuard<'_, Option<Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is found for a name at some times, in seconds, by a resolver that answers with
    /// 192.0.2.N, or not at all.
    #[tokio::test]
    async fn names_are_looked_up_again() {
        let start = Instant::now();
        for (host, looks) in [
            // Not before the time is over; what is found then counts from then.
            (
                "a",
                &[(0, Some(1), "1"), (29, Some(2), "1"), (30, Some(3), "3"), (59, Some(4), "3")][..],
            ),
            // Better the old ones than none, and not asked for again at once.
            ("a", &[(0, Some(1), "1"), (30, None, "1"), (31, Some(2), "1"), (60, Some(3), "3")]),
            ("a", &[(0, None, "-"), (0, Some(1), "1")]),
            ("192.0.2.9", &[(0, None, "9"), (99, Some(1), "9")]),
        ] {
            let addresses = Addresses::default();
            for &(second, answer, expected) in looks {
                let now = start + Duration::from_secs(second);
                let look_up = async {
                    match answer {
                        Some(last) => Ok([SocketAddr::from(([192, 0, 2, last], 80))]),
                        None => Err(io::Error::other("nothing is known of it")),
                    }
                };
                let found = addresses.get((host, 80), now, look_up).await;
                let found = found.map_or("-".to_owned(), |found| found[0].to_string());
                let found = found.trim_start_matches("192.0.2.").trim_end_matches(":80");
                assert_eq!(found, expected, "{host} at {second}");
            }
        }
    }

    #[tokio::test]
    async fn who_is_not_there_is_looked_up_at_once() {
        let (addresses, now) = (Addresses::default(), Instant::now());
        for last in [1, 2] {
            let look_up = async { Ok([SocketAddr::from(([192, 0, 2, last], 80))]) };
            let found = addresses.get(("a", 80), now, look_up).await.unwrap();
            assert_eq!(found[0].ip().to_string(), format!("192.0.2.{last}"));
            addresses.forget();
        }
    }

    /// Others do not wait for the one who looks.
    #[tokio::test]
    async fn the_old_ones_are_believed_while_one_looks() {
        let (addresses, start) = (Addresses::default(), Instant::now());
        let one = |last| Ok([SocketAddr::from(([192, 0, 2, last], 80))]);
        addresses.get(("a", 80), start, async { one(1) }).await.unwrap();
        let later = start + BELIEVED;
        let look_up = async {
            let found = addresses.get(("a", 80), later, async { one(3) }).await.unwrap();
            assert_eq!(found[0].ip().to_string(), "192.0.2.1");
            one(2)
        };
        let found = addresses.get(("a", 80), later, look_up).await.unwrap();
        assert_eq!(found[0].ip().to_string(), "192.0.2.2");
    }
}
