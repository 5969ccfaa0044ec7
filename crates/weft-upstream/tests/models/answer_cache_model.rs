use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use shuttle::future::block_on;
use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use shuttle::thread;

use crate::answer_cache::{AddressCache, TtlBounds};
use crate::stand_ins::coin;

/// Addresses may be dropped at once.
const BOUNDS: TtlBounds = TtlBounds { min: Duration::ZERO, max: Duration::from_secs(60) };

/// At most one lookup is in progress at a time, and each caller gets the result of one, also if
/// others drop the addresses or the lookup fails.
pub fn callers_share_a_lookup() {
    let (addresses, now) = (AddressCache::new(BOUNDS), Instant::now());
    let lookups = Arc::new(AtomicUsize::new(0));
    let callers = [0; 3].map(|_| {
        let (addresses, lookups) = (addresses.clone(), lookups.clone());
        thread::spawn(move || {
            let (fails, invalidates) = (coin(), coin());
            let resolve = |_| async move {
                assert_eq!(lookups.fetch_add(1, SeqCst), 0);
                shuttle::future::yield_now().await;
                lookups.fetch_sub(1, SeqCst);
                match fails {
                    true => Err(io::Error::other("unknown host")),
                    false => Ok(([SocketAddr::from(([192, 0, 2, 1], 80))], None)),
                }
            };
            match block_on(addresses.get("a", now, resolve)) {
                Ok(found) => assert_eq!(found.len(), 1),
                Err(error) => assert_eq!(error.to_string(), "unknown host"),
            }
            if invalidates {
                addresses.invalidate(now);
            }
        })
    });
    for caller in callers {
        caller.join().unwrap();
    }
}
