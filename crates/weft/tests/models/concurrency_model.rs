use shuttle::future::block_on;
use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use shuttle::thread;

use crate::concurrency::ConcurrencyLimit;
use crate::stand_ins::coin;
use crate::stand_ins::time::set_timeouts_expire;

/// At most one request is admitted and one is queued at a time. Without a queue timeout, a queued
/// request is admitted; nothing remains in use or queued.
pub fn admits_queued_requests() {
    let expire = coin();
    set_timeouts_expire(expire);
    let limit = ConcurrencyLimit::new(1).max_queued(1);
    let active = Arc::new(AtomicUsize::new(0));
    let requests = [0; 3].map(|_| {
        let (limit, active) = (limit.clone(), active.clone());
        thread::spawn(move || {
            let Some(permit) = block_on(limit.acquire()) else { return false };
            assert_eq!(active.fetch_add(1, SeqCst), 0);
            assert!(limit.queued() <= 1);
            active.fetch_sub(1, SeqCst);
            drop(permit);
            true
        })
    });
    let admitted = requests.map(|request| request.join().unwrap());
    let admitted = admitted.iter().filter(|is_admitted| **is_admitted).count();
    assert!(admitted >= if expire { 1 } else { 2 });
    assert_eq!((limit.in_use(), limit.queued()), (0, 0));
}
