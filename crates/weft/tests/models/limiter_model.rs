use std::net::IpAddr;

use shuttle::future::block_on;
use shuttle::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use shuttle::sync::{Arc, Mutex};
use shuttle::thread;
use weft::Settings;

use crate::connection_limiter::{ConnectionLimiter, ConnectionPermit};
use crate::stand_ins::time::set_timeouts_expire;

const PEER: Option<IpAddr> = Some(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST));

fn limiter(max_connections: usize, max_connections_per_peer: usize) -> Arc<ConnectionLimiter> {
    let settings = Settings { max_connections, max_connections_per_peer, ..Settings::default() };
    ConnectionLimiter::new(&settings)
}

/// Two acceptors at the limit accept all connections, because each end of a connection lets one of
/// them continue; also if the other one has no client to accept any more.
pub fn ended_connections_wake_acceptors() {
    set_timeouts_expire(false);
    let limiter = limiter(1, 9);
    let first = limiter.try_acquire(PEER).expect("the first connection");
    let clientless = thread::spawn({
        let limiter = limiter.clone();
        move || block_on(limiter.wait_for_capacity(async || false))
    });
    let worker = thread::spawn(move || drop(first));
    accept(&limiter, async || false, |permit| drop(thread::spawn(move || drop(permit))));
    worker.join().unwrap();
    clientless.join().unwrap();
}

/// Two acceptors at the limit accept all connections, because idle ones are closed.
pub fn idle_connections_are_closed() {
    set_timeouts_expire(true);
    let limiter = limiter(1, 9);
    let idle = Arc::new(Mutex::new(Vec::<ConnectionPermit>::new()));
    let idle_too = idle.clone();
    let close_idle = async move || {
        let closed = idle.lock().unwrap().pop();
        closed.is_some()
    };
    accept(&limiter, close_idle, move |permit| idle_too.lock().unwrap().push(permit));
}

/// Accepts two connections in each of two acceptors.
fn accept(
    limiter: &Arc<ConnectionLimiter>,
    close_idle: impl AsyncFn() -> bool + Clone + Send + 'static,
    serve: impl Fn(ConnectionPermit) + Clone + Send + 'static,
) {
    let acceptors = [0; 2].map(|_| {
        let (limiter, close_idle, serve) = (limiter.clone(), close_idle.clone(), serve.clone());
        thread::spawn(move || {
            for _ in 0..2 {
                block_on(limiter.wait_for_capacity(&close_idle));
                serve(limiter.try_acquire(PEER).expect("few connections of the peer"));
            }
        })
    });
    for acceptor in acceptors {
        acceptor.join().unwrap();
    }
}

/// A peer never has more connections than its limit, and can have as many again after their end,
/// also while the limit is changed.
pub fn counts_peers() {
    const MAX: usize = 2;
    let limiter = limiter(9, MAX);
    let open = Arc::new(AtomicUsize::new(0));
    let connections = [0; 3].map(|_| {
        let (limiter, open) = (limiter.clone(), open.clone());
        thread::spawn(move || {
            let Some(permit) = limiter.try_acquire(PEER) else { return };
            assert!(open.fetch_add(1, SeqCst) < MAX);
            open.fetch_sub(1, SeqCst);
            drop(permit);
        })
    });
    let settings = Settings { max_connections_per_peer: MAX, ..Settings::default() };
    limiter.update_settings(&settings);
    for connection in connections {
        connection.join().unwrap();
    }
    let permits: Vec<_> = (0..4).map_while(|_| limiter.try_acquire(PEER)).collect();
    assert_eq!(permits.len(), MAX);
}
