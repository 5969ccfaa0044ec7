//! Bytes in temporary files that clients have not read.
//!
//! A client that requests large bodies and leaves them unread makes the server write to the disk,
//! at no cost of its own. Therefore these bytes count against a limit of the client for some time
//! after their files are gone. The bytes that the server writes for a client are bounded by the
//! bytes that the client reads, plus its limit, plus that limit again per [`DECAY_TIME`].

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use weft::client_limit::Client;

/// Time after which all bytes that a client may leave unread are available again. They become
/// available little by little.
const DECAY_TIME: Duration = Duration::from_secs(600);

/// Maximum number of clients with unread bytes. If there are more, the client with the fewest is
/// removed.
const MAX_CLIENTS: usize = 1_024;

/// The unread bytes of clients.
#[derive(Default)]
pub(crate) struct UnreadBytes {
    clients: Mutex<HashMap<Client, Unread>>,
    /// Number of clients. It nearly always is 0, and reading it is cheaper than locking.
    count: AtomicUsize,
}

#[derive(Clone, Copy)]
struct Unread {
    bytes: u64,
    since: Instant,
}

impl Unread {
    /// Returns the bytes that still count, if `max` bytes decay in [`DECAY_TIME`].
    fn remaining(&self, max: u64, now: Instant) -> u64 {
        let part =
            now.saturating_duration_since(self.since).as_secs_f64() / DECAY_TIME.as_secs_f64();
        self.bytes.saturating_sub((max as f64 * part) as u64)
    }
}

impl UnreadBytes {
    /// Adds bytes that a client has not read. `max` is the limit of a client.
    pub(crate) fn add(&self, client: Client, bytes: u64, max: u64, now: Instant) {
        self.change(client, max, now, |former| former.saturating_add(bytes));
    }

    /// Adds bytes, unless that exceeds the limit.
    pub(crate) fn try_add(&self, client: Client, bytes: u64, max: u64, now: Instant) -> bool {
        let mut is_added = false;
        self.change(client, max, now, |former| match former.saturating_add(bytes) {
            sum if sum <= max => {
                is_added = true;
                sum
            }
            _ => former,
        });
        is_added
    }

    /// Removes bytes that the client has read, or that its reading permits.
    pub(crate) fn remove(&self, client: Client, bytes: u64, max: u64, now: Instant) {
        if self.count.load(Relaxed) > 0 {
            self.change(client, max, now, |former| former.saturating_sub(bytes));
        }
    }

    /// Replaces the bytes that still count.
    fn change(&self, client: Client, max: u64, now: Instant, change: impl FnOnce(u64) -> u64) {
        let mut clients = self.clients();
        let former = clients.get(&client).map_or(0, |unread| unread.remaining(max, now));
        match change(former) {
            0 => drop(clients.remove(&client)),
            bytes => drop(clients.insert(client, Unread { bytes, since: now })),
        }
        if clients.len() > MAX_CLIENTS {
            clients.retain(|_, unread| unread.remaining(max, now) > 0);
        }
        if clients.len() > MAX_CLIENTS {
            let remaining = |unread: &Unread| unread.remaining(max, now);
            let fewest = clients.iter().min_by_key(|(_, unread)| remaining(unread));
            let fewest = fewest.map(|(client, _)| *client);
            fewest.map(|client| clients.remove(&client));
        }
        self.count.store(clients.len(), Relaxed);
    }

    /// Returns the number of bytes that count against the limit of a client, which is `max`.
    pub(crate) fn of(&self, client: Client, max: u64, now: Instant) -> u64 {
        if self.count.load(Relaxed) == 0 {
            return 0;
        }
        let mut clients = self.clients();
        let remaining = clients.get(&client).map_or(0, |unread| unread.remaining(max, now));
        if remaining == 0 {
            clients.remove(&client);
            self.count.store(clients.len(), Relaxed);
        }
        remaining
    }

    fn clients(&self) -> MutexGuard<'_, HashMap<Client, Unread>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(n: usize) -> Client {
        Client::new(std::net::IpAddr::from((n as u32).to_be_bytes()))
    }

    #[test]
    fn unread_bytes_are_forgotten_little_by_little() {
        let (unread, start) = (UnreadBytes::default(), Instant::now());
        let after = |part: f64| start + DECAY_TIME.mul_f64(part);
        let of = |n, part| unread.of(client(n), 100, after(part));
        unread.add(client(1), 80, 100, start);
        assert_eq!((of(1, 0.0), of(1, 0.5), of(2, 0.0)), (80, 30, 0));
        unread.add(client(1), 30, 100, after(0.5));
        assert_eq!((of(1, 0.5), of(1, 1.0), of(1, 1.2)), (60, 10, 0));
        assert_eq!(unread.count.load(Relaxed), 0);
    }

    #[test]
    fn read_bytes_make_room_for_others() {
        let (unread, now) = (UnreadBytes::default(), Instant::now());
        let try_add = |bytes| unread.try_add(client(1), bytes, 100, now);
        assert!(try_add(60) && !try_add(41) && try_add(40));
        unread.remove(client(1), 30, 100, now);
        assert!(!try_add(31) && try_add(30));
        unread.remove(client(1), 1_000, 100, now);
        assert_eq!((unread.of(client(1), 100, now), unread.count.load(Relaxed)), (0, 0));
    }

    #[test]
    fn the_number_of_clients_is_bounded() {
        let (unread, now) = (UnreadBytes::default(), Instant::now());
        for n in 0..2 * MAX_CLIENTS {
            unread.add(client(n), 1_000 + n as u64, 10_000, now);
        }
        assert_eq!(unread.clients().len(), MAX_CLIENTS);
        // The clients with the most bytes remain.
        assert_eq!(unread.of(client(0), 10_000, now), 0);
        assert!(unread.of(client(2 * MAX_CLIENTS - 1), 10_000, now) > 0);
    }
}
