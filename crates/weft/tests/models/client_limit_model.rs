use std::net::IpAddr;
use std::time::Duration;

use shuttle::future::block_on;
use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use shuttle::thread;

use crate::client_limit::{Client, ClientLimit, ClientLimitSettings};
use crate::stand_ins::time::set_timeouts_expire;

const MAX: usize = 2;

/// Uses by three clients, each of which may have one at a time. Returns the number of admitted
/// ones.
fn run_uses() -> usize {
    let settings = ClientLimitSettings {
        max_per_client: 1,
        max_queued: 4,
        queue_timeout: Duration::from_secs(1),
        ..ClientLimitSettings::new(MAX)
    };
    let limit = ClientLimit::new(settings);
    let clients: [Arc<AtomicUsize>; 3] = Default::default();
    let all = Arc::new(AtomicUsize::new(0));
    let uses = [0, 0, 1, 2].map(|number| {
        let (limit, active, all) = (limit.clone(), clients[number].clone(), all.clone());
        let client = Client::new(IpAddr::from([192, 0, 2, number as u8]));
        thread::spawn(move || {
            let Some(permit) = block_on(limit.acquire(Some(client))) else { return 0 };
            assert_eq!(active.fetch_add(1, SeqCst), 0);
            assert!(all.fetch_add(1, SeqCst) < MAX);
            all.fetch_sub(1, SeqCst);
            active.fetch_sub(1, SeqCst);
            drop(permit);
            1
        })
    });
    let admitted = uses.map(|one| one.join().unwrap()).iter().sum();
    assert_eq!((limit.in_use(), limit.queued()), (0, 0));
    let whole =
        [0, 1].map(|number| limit.try_acquire(Some(Client::new(IpAddr::from([0, 0, 0, number])))));
    assert!(whole.iter().all(Option::is_some));
    admitted
}

/// Each queued use is admitted once there is a permit for it.
pub fn admits_all_waiters() {
    set_timeouts_expire(false);
    assert_eq!(run_uses(), 4);
}

/// A permit that is sent to a waiter at the moment when it gives up goes to the next one.
pub fn abandoned_waits_lose_no_permit() {
    set_timeouts_expire(true);
    assert!(run_uses() >= 2);
}
