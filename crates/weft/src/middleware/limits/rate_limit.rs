//! Request rate limit per client.

use std::fmt;
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::StatusCode;

use crate::app::{Application, Middleware};
use crate::clock::deadline::Stopwatch;
use crate::message::request::Request;
use crate::message::response::Response;
use crate::middleware::limits::retry_after::retry_after;
use crate::middleware::limits::shared_rate::{SharedRate, SharedSet, SharedTable};

/// Limits the request rate of each client with a token bucket. Requests over the limit get 429
/// (RFC 6585 §4) with `Retry-After`.
///
/// ```
/// use std::time::Duration;
/// use weft::middleware::RateLimit;
/// use weft::{Application, Request, Response, testing};
///
/// async fn hello(_: Request) -> Response { Response::text("Hello\n") }
///
/// let app = hello.wrap(RateLimit::new(1, Duration::from_secs(60)).burst(2));
/// let send = || {
///     let mut request = testing::request("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
///     request.set_peer("192.0.2.1:1234".parse().unwrap());
///     testing::call(app.clone(), request)
/// };
/// assert_eq!([send().status, send().status], [200, 200]);
/// let reply = send();
/// assert_eq!((reply.status.as_u16(), reply.header("retry-after")), (429, Some("60")));
/// ```
///
/// A client is identified by its IPv4 address or its IPv6 /64 network, because a client with one
/// address of such a network usually has all 2^64. A bucket holds [`burst`](RateLimit::burst)
/// requests and is refilled at a constant rate; rejected requests take nothing from it. Peers on
/// Unix sockets have no address and are not limited: behind a proxy, place
/// [`RealAddress`](crate::middleware::RealAddress) first.
///
/// # Number of clients
/// All clones, and so all workers, share one table of fixed size, divided into sets of 16 clients
/// with a mutex each. A client's slot is free again when its bucket is full. If all slots of a
/// set are in use, further clients share the overflow bucket of the set, which is 16 times as
/// large and refilled 16 times as fast. So in a flood from ever new addresses, clients with a slot
/// keep their own limit and are not locked out, new clients share the overflow bucket with the
/// flood, and the total rate is limited in any case.
#[derive(Clone)]
pub struct RateLimit {
    rate: Rate,
    table: Arc<Table>,
    clock: Stopwatch,
}

/// Times are in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    /// Time to refill a bucket by one request.
    pub(super) interval: u64,
    pub(super) burst: u32,
}

/// A hash table of buckets.
pub(super) struct Table {
    keys: Keys,
    sets: Box<[Mutex<Set>]>,
    /// Buckets that have changed, of a limit that several processes share.
    pub(super) shared: Option<SharedTable>,
}

/// Hash functions of clients.
enum Keys {
    /// Differs in each table.
    Random(RandomState),
    /// The same in all processes with this secret.
    Secret([u8; 16]),
}

/// A client's bucket may be in any slot of one set.
#[derive(Default)]
struct Set {
    slots: [Slot; SLOTS],
    /// Time at which the overflow bucket, shared by clients without a slot, is full again.
    overflow_full_at: u64,
    shared: Option<Box<SharedSet>>,
}

pub(super) const SLOTS: usize = 16;

/// The bucket of one client. Each interval until `full_at` is one request missing from the bucket;
/// after that time the slot is free.
#[derive(Clone, Copy, Default)]
struct Slot {
    client: u64,
    full_at: u64,
}

impl RateLimit {
    /// Allows this number of requests per period: `RateLimit::new(10, Duration::from_secs(1))`.
    pub fn new(requests: u32, period: Duration) -> RateLimit {
        let period = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
        let burst = requests.max(1);
        let interval = (period / u64::from(burst)).clamp(1, MAX_NANOS);
        RateLimit {
            rate: Rate { interval, burst },
            table: Arc::new(Table::new(65_536)),
            clock: Stopwatch::start(),
        }
    }

    /// Sets the number of requests that may arrive at once after a pause; at least 1. Default: the
    /// number of requests per period.
    pub fn burst(mut self, requests: u32) -> RateLimit {
        self.rate.burst = requests.max(1);
        self
    }

    /// Takes a request of the client with this key, for limits by anything else than the address:
    /// an API key, a user. The table has room for as many keys as for addresses.
    ///
    /// ```
    /// use std::time::Duration;
    /// use weft::middleware::RateLimit;
    ///
    /// let limit = RateLimit::new(1, Duration::from_secs(60));
    /// assert!(limit.take("alice").is_ok());
    /// assert_eq!(limit.take("alice").unwrap_err().status().as_u16(), 429);
    /// assert!(limit.take("bob").is_ok());
    /// ```
    ///
    /// # Errors
    /// The response to a request over the limit.
    pub fn take(&self, key: &(impl Hash + ?Sized)) -> Result<(), Response> {
        self.take_of_client(self.table.keys.hash(key))
    }

    fn take_of_client(&self, client: u64) -> Result<(), Response> {
        let taken = self.table.take(client, nanos(self.clock.elapsed()), self.rate);
        taken.map_err(|wait| retry_after(StatusCode::TOO_MANY_REQUESTS, wait))
    }

    /// Shares the limit with other processes: returns the limit, and the part that exchanges its
    /// buckets with them. Requests are counted in this process and never wait. `secret` is equal in
    /// all processes of one limit, and a secret: the hashes of clients depend on it. To be called
    /// after all other settings, because it empties the table.
    ///
    /// ```
    /// use std::time::Duration;
    /// use weft::middleware::RateLimit;
    ///
    /// let (limit, mut shared) = RateLimit::new(3, Duration::from_secs(60)).shared([7; 16]);
    /// assert!(limit.take("alice").is_ok());
    /// let taken = shared.take_changes(100);
    /// assert_eq!((taken.len(), taken[0].total), (1, 1));
    /// // Other processes have admitted requests of this client, too.
    /// shared.settle(&taken[0], Duration::from_secs(60));
    /// assert!(limit.take("alice").is_err());
    /// ```
    pub fn shared(self, secret: [u8; 16]) -> (RateLimit, SharedRate) {
        let sets = self.table.sets.len();
        let table = Table {
            keys: Keys::Secret(secret),
            sets: (0..sets)
                .map(|_| Mutex::new(Set { shared: Some(Box::default()), ..Set::default() }))
                .collect(),
            shared: Some(SharedTable::default()),
        };
        let limit = RateLimit { table: Arc::new(table), ..self };
        let shared = SharedRate::new(Arc::downgrade(&limit.table), limit.rate, limit.clock.clone());
        (limit, shared)
    }

    /// Sets the capacity of the table in clients, rounded up to a power of two. Default: 65,536
    /// (1.1 MiB). From half of the capacity on, some sets begin to be full.
    pub fn max_clients(self, clients: usize) -> RateLimit {
        RateLimit { table: Arc::new(Table::new(clients)), ..self }
    }
}

/// Ten years, in nanoseconds; sums with clock readings do not overflow.
const MAX_NANOS: u64 = 10 * 365 * 86_400 * 1_000_000_000;

impl Middleware for RateLimit {
    async fn call(&self, request: Request, next: &impl Application) -> Response {
        let Some(address) = request.peer().address() else { return next.call(request).await };
        match self.take_of_client(client_key(address.ip())) {
            Ok(()) => next.call(request).await,
            Err(refusal) => refusal,
        }
    }
}

impl fmt::Debug for RateLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit").field("rate", &self.rate).finish_non_exhaustive()
    }
}

/// The table key of a client. IPv4 addresses map to ::/32, which IPv6 does not assign to clients.
fn client_key(address: IpAddr) -> u64 {
    match address.to_canonical() {
        IpAddr::V4(four) => four.to_bits().into(),
        IpAddr::V6(six) => (six.to_bits() >> 64) as u64,
    }
}

impl Keys {
    fn hash(&self, key: &(impl Hash + ?Sized)) -> u64 {
        match self {
            Keys::Random(keys) => keys.hash_one(key),
            Keys::Secret(secret) => {
                let mut hasher = DefaultHasher::new();
                hasher.write(secret);
                key.hash(&mut hasher);
                hasher.finish()
            }
        }
    }
}

impl Table {
    fn new(clients: usize) -> Table {
        let sets = clients.div_ceil(SLOTS).clamp(1, 1 << 24).next_power_of_two();
        let sets = (0..sets).map(|_| Mutex::default()).collect();
        Table { keys: Keys::Random(RandomState::new()), sets, shared: None }
    }

    pub(super) fn set_number(&self, client: u64) -> usize {
        self.keys.hash(&client) as usize % self.sets.len()
    }

    /// Takes a request from a client's bucket; if it is empty, returns the time until the next.
    fn take(&self, client: u64, now: u64, rate: Rate) -> Result<(), Duration> {
        let number = self.set_number(client);
        let mut set = self.sets[number].lock().unwrap_or_else(PoisonError::into_inner);
        let Set { slots, overflow_full_at, shared } = &mut *set;
        let own_slot = slots.iter().position(|slot| slot.client == client);
        let Some(slot) = own_slot.or_else(|| slots.iter().position(|slot| slot.full_at <= now))
        else {
            return rate.overflow().take(overflow_full_at, now);
        };
        slots[slot].client = client;
        match (&self.shared, shared) {
            (Some(table), Some(set)) => {
                let rate = table.divided(rate);
                rate.take(&mut slots[slot].full_at, now)?;
                set.count(slot, own_slot.is_none());
                table.note(set, number, slots[slot].full_at - now > rate.capacity() / 2);
                Ok(())
            }
            _ => rate.take(&mut slots[slot].full_at, now),
        }
    }

    /// Calls a function with the clients, the counts and the buckets of a set.
    pub(super) fn with_shared<T>(
        &self,
        number: usize,
        apply: impl FnOnce([(u64, &mut u64); SLOTS], &mut SharedSet) -> T,
    ) -> Option<T> {
        let mut set = self.sets[number].lock().unwrap_or_else(PoisonError::into_inner);
        let Set { slots, shared, .. } = &mut *set;
        let slots = slots.each_mut().map(|slot| (slot.client, &mut slot.full_at));
        Some(apply(slots, shared.as_deref_mut()?))
    }
}

/// A duration as the nanoseconds of buckets.
pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX).min(MAX_NANOS)
}

impl Rate {
    /// Time to refill an empty bucket completely, in nanoseconds.
    pub(super) fn capacity(self) -> u64 {
        self.interval.saturating_mul(self.burst.into()).min(MAX_NANOS)
    }

    /// Rate of the overflow bucket.
    fn overflow(self) -> Rate {
        let interval = (self.interval / SLOTS as u64).max(1);
        Rate { interval, burst: self.burst.saturating_mul(SLOTS as u32) }
    }

    /// Takes a request from a bucket; if it is empty, returns the time until the next.
    fn take(self, full_at: &mut u64, now: u64) -> Result<(), Duration> {
        let new_full_at = (*full_at).max(now) + self.interval;
        match (new_full_at - now).saturating_sub(self.capacity()) {
            0 => *full_at = new_full_at,
            wait => return Err(Duration::from_nanos(wait)),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    const SECOND: u64 = 1_000_000_000;

    /// One request per second with a burst of three.
    const RATE: Rate = Rate { interval: SECOND, burst: 3 };

    /// Takes a request and returns the wait in seconds, 0 if admitted.
    fn wait(table: &Table, client: u64, seconds: f64) -> f64 {
        let now = (seconds * SECOND as f64) as u64;
        table.take(client, now, RATE).map_or_else(|wait| wait.as_secs_f64(), |()| 0.0)
    }

    #[test]
    fn bucket_is_emptied_and_refilled() {
        let table = Table::new(16);
        for (seconds, waits) in [
            (100.0, 0.0),
            (100.0, 0.0),
            (100.0, 0.0),
            (100.0, 1.0),
            // A rejected request takes nothing from the bucket.
            (100.5, 0.5),
            (100.75, 0.25),
            (101.0, 0.0),
            (101.0, 1.0),
            (103.5, 0.0),
            (103.5, 0.0),
            (103.5, 0.5),
            // The refill stops at the capacity.
            (1_000.0, 0.0),
            (1_000.0, 0.0),
            (1_000.0, 0.0),
            (1_000.0, 1.0),
        ] {
            assert_eq!(wait(&table, 7, seconds), waits, "at {seconds}");
        }
        assert_eq!(wait(&table, 8, 1_000.0), 0.0, "another client");
    }

    #[test]
    fn full_table_limits_without_locking_clients_out() {
        let table = Table::new(SLOTS);
        assert_eq!(table.sets.len(), 1);
        for client in 1..=16 {
            for waits in [0.0, 0.0, 0.0, 1.0] {
                assert_eq!(wait(&table, client, 100.0), waits, "{client}");
            }
        }
        // New clients share a bucket of 16 times the size and refill rate.
        for client in 1_000..1_048 {
            assert_eq!(wait(&table, client, 100.0), 0.0, "{client}");
        }
        for client in 1_048..2_000 {
            assert_eq!(wait(&table, client, 100.0), 0.0625, "{client}");
        }
        assert_eq!(wait(&table, 2_000, 100.0625), 0.0);
        assert_eq!(wait(&table, 2_001, 100.0625), 0.0625);
        // Clients with a slot keep their own limit.
        assert_eq!(wait(&table, 1, 100.5), 0.5);
        assert_eq!(wait(&table, 1, 101.0), 0.0);
        assert_eq!(wait(&table, 1, 101.0), 1.0);
        // Slots with full buckets are reused.
        for waits in [0.0, 0.0, 0.0, 1.0] {
            assert_eq!(wait(&table, 3_000, 103.0), waits);
        }
        assert_eq!(wait(&table, 1, 103.0), 0.0);
    }

    #[test]
    fn maps_addresses_to_clients() {
        for (a, b, same) in [
            ("192.0.2.1", "192.0.2.2", false),
            ("192.0.2.1", "::ffff:192.0.2.1", true),
            ("2001:db8::1", "2001:db8::ffff:1", true),
            ("2001:db8:0:1::1", "2001:db8:0:2::1", false),
        ] {
            let [one, other] = [a, b].map(|address| client_key(address.parse().unwrap()));
            assert_eq!(one == other, same, "{a} and {b}");
        }
    }

    #[test]
    fn accepts_extreme_rates() {
        for (requests, period, burst, admitted) in [
            (0, Duration::MAX, 0, 1),
            (1, Duration::MAX, u32::MAX, 1),
            (u32::MAX, Duration::ZERO, u32::MAX, 9),
            (3, Duration::from_secs(3_600), 3, 3),
        ] {
            let app = async |_: Request| Response::text("ok");
            let app = app.wrap(RateLimit::new(requests, period).burst(burst));
            let send = || {
                let mut request = testing::request("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
                request.set_peer("192.0.2.1:80".parse().unwrap());
                // Clones share the table.
                testing::call(app.clone(), request).status == 200
            };
            assert_eq!((0..9).filter(|_| send()).count(), admitted, "{requests} in {period:?}");
        }
    }
}
