//! How often a client may ask.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::StatusCode;

use crate::app::{Application, Middleware};
use crate::clock::deadline::Stopwatch;
use crate::message::request::Request;
use crate::message::response::Response;
use crate::middleware::retry_after;

/// Limits the requests of each client, by a token bucket; those above it are answered 429
/// (RFC 6585 §4) with `Retry-After`.
///
/// ```
/// use std::time::Duration;
/// use weft::middleware::RateLimit;
/// use weft::{Application, Request, Response, testing};
///
/// async fn hello(_: Request) -> Response { Response::text("Hello\n") }
///
/// let app = hello.with(RateLimit::new(1, Duration::from_secs(60)).burst(2));
/// let ask = || {
///     let mut request = testing::request("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
///     request.set_peer("192.0.2.1:1234".parse().unwrap());
///     testing::call(app.clone(), request)
/// };
/// assert_eq!([ask().status, ask().status], [200, 200]);
/// let reply = ask();
/// assert_eq!((reply.status.as_u16(), reply.header("retry-after")), (429, Some("60")));
/// ```
///
/// A client is a peer's IPv4 address or /64 network of IPv6, for who has one address of such
/// a network has 2^64. A bucket holds [`burst`](RateLimit::burst) requests and fills up
/// steadily; refused requests take nothing out. Peers on Unix sockets have no address, and are
/// not limited: behind a proxy, [`RealAddress`](super::RealAddress) has to come first.
///
/// # How many clients are known
/// All clones, and so all workers, share one table of a fixed size, in parts for 16 clients
/// with a mutex each. A client is forgotten when its bucket is full again. Those who find
/// their part full of others share one more bucket, 16 times as large and as fast. So in a
/// flood from ever new addresses, whoever is known stays limited and is not locked out,
/// newcomers get through as far as the flood leaves them something, and the sum of all has a
/// limit in any case.
#[derive(Clone)]
pub struct RateLimit {
    rate: Rate,
    table: Arc<Table>,
    clock: Stopwatch,
}

/// Times are in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Rate {
    /// For one request to come back into a bucket.
    interval: u64,
    burst: u32,
}

/// A hash table of buckets.
struct Table {
    keys: RandomState,
    sets: Box<[Mutex<Set>]>,
}

/// A client's bucket may be in any slot of one set.
#[derive(Default)]
struct Set {
    slots: [Slot; SLOTS],
    /// When the bucket of those will be full who found no slot.
    others_full_at: u64,
}

const SLOTS: usize = 16;

/// A bucket: who has it, and when it will be full again. Before that, each interval is a
/// request that is missing; afterwards the slot is free.
#[derive(Clone, Copy, Default)]
struct Slot {
    client: u64,
    full_at: u64,
}

impl RateLimit {
    /// So many requests within a time: `RateLimit::new(10, Duration::from_secs(1))`.
    pub fn new(requests: u32, per: Duration) -> RateLimit {
        let per = u64::try_from(per.as_nanos()).unwrap_or(u64::MAX);
        let burst = requests.max(1);
        let interval = (per / u64::from(burst)).clamp(1, LONGEST);
        RateLimit {
            rate: Rate { interval, burst },
            table: Arc::new(Table::new(65_536)),
            clock: Stopwatch::start(),
        }
    }

    /// How many requests may come at once after a pause; at least 1. Default: as many as may
    /// come within the time.
    pub fn burst(mut self, requests: u32) -> RateLimit {
        self.rate.burst = requests.max(1);
        self
    }

    /// For how many clients there is room, rounded up to a power of two. Default: 65,536,
    /// which take 1.1 MiB. With half of that some parts of the table begin to be full.
    pub fn clients(self, most: usize) -> RateLimit {
        RateLimit { table: Arc::new(Table::new(most)), ..self }
    }
}

/// Ten years: sums of it and of times do not overflow.
const LONGEST: u64 = 10 * 365 * 86_400 * 1_000_000_000;

impl Middleware for RateLimit {
    async fn call(&self, request: Request, next: &impl Application) -> Response {
        let Some(address) = request.peer().address() else { return next.call(request).await };
        let now = u64::try_from(self.clock.elapsed().as_nanos()).unwrap_or(u64::MAX);
        match self.table.take(client(address.ip()), now, self.rate) {
            Ok(()) => next.call(request).await,
            Err(wait) => retry_after(StatusCode::TOO_MANY_REQUESTS, wait),
        }
    }
}

impl fmt::Debug for RateLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit").field("rate", &self.rate).finish_non_exhaustive()
    }
}

/// The number of a client. IPv6 has nobody in ::/32, where those of IPv4 are put.
fn client(address: IpAddr) -> u64 {
    match address.to_canonical() {
        IpAddr::V4(four) => four.to_bits().into(),
        IpAddr::V6(six) => (six.to_bits() >> 64) as u64,
    }
}

impl Table {
    fn new(clients: usize) -> Table {
        let sets = clients.div_ceil(SLOTS).clamp(1, 1 << 24).next_power_of_two();
        Table { keys: RandomState::new(), sets: (0..sets).map(|_| Mutex::default()).collect() }
    }

    /// Takes a request out of a client's bucket, or says how long there is none.
    fn take(&self, client: u64, now: u64, rate: Rate) -> Result<(), Duration> {
        let set = self.keys.hash_one(client) as usize % self.sets.len();
        let mut set = self.sets[set].lock().unwrap_or_else(PoisonError::into_inner);
        let Set { slots, others_full_at } = &mut *set;
        let known = slots.iter().position(|slot| slot.client == client);
        match known.or_else(|| slots.iter().position(|slot| slot.full_at <= now)) {
            Some(slot) => {
                slots[slot].client = client;
                rate.take(&mut slots[slot].full_at, now)
            }
            None => rate.of_others().take(others_full_at, now),
        }
    }
}

impl Rate {
    /// How long an empty bucket takes to be full.
    fn capacity(self) -> u64 {
        self.interval.saturating_mul(self.burst.into()).min(LONGEST)
    }

    /// The rate of those who have no slot.
    fn of_others(self) -> Rate {
        let interval = (self.interval / SLOTS as u64).max(1);
        Rate { interval, burst: self.burst.saturating_mul(SLOTS as u32) }
    }

    /// Takes a request out of a bucket, or says how long there is none.
    fn take(self, full_at: &mut u64, now: u64) -> Result<(), Duration> {
        let would_be = (*full_at).max(now) + self.interval;
        match (would_be - now).saturating_sub(self.capacity()) {
            0 => *full_at = would_be,
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

    /// One request a second, three at once.
    const RATE: Rate = Rate { interval: SECOND, burst: 3 };

    /// How many seconds a client has to wait, 0 for not at all.
    fn wait(table: &Table, client: u64, seconds: f64) -> f64 {
        let now = (seconds * SECOND as f64) as u64;
        table.take(client, now, RATE).map_or_else(|wait| wait.as_secs_f64(), |()| 0.0)
    }

    #[test]
    fn a_bucket_empties_and_fills() {
        let table = Table::new(16);
        for (seconds, waits) in [
            (100.0, 0.0),
            (100.0, 0.0),
            (100.0, 0.0),
            (100.0, 1.0),
            // What is refused takes nothing out.
            (100.5, 0.5),
            (100.75, 0.25),
            (101.0, 0.0),
            (101.0, 1.0),
            (103.5, 0.0),
            (103.5, 0.0),
            (103.5, 0.5),
            // It gets no fuller than full.
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
    fn a_full_table_locks_nobody_out_and_goes_on_limiting() {
        let table = Table::new(SLOTS);
        assert_eq!(table.sets.len(), 1);
        for client in 1..=16 {
            for waits in [0.0, 0.0, 0.0, 1.0] {
                assert_eq!(wait(&table, client, 100.0), waits, "{client}");
            }
        }
        // New ones share a bucket of 16 times the size, which fills up 16 times as fast.
        for client in 1_000..1_048 {
            assert_eq!(wait(&table, client, 100.0), 0.0, "{client}");
        }
        for client in 1_048..2_000 {
            assert_eq!(wait(&table, client, 100.0), 0.0625, "{client}");
        }
        assert_eq!(wait(&table, 2_000, 100.0625), 0.0);
        assert_eq!(wait(&table, 2_001, 100.0625), 0.0625);
        // Those who were there before have what they are due, and no more.
        assert_eq!(wait(&table, 1, 100.5), 0.5);
        assert_eq!(wait(&table, 1, 101.0), 0.0);
        assert_eq!(wait(&table, 1, 101.0), 1.0);
        // When buckets are full again, their slots are for the next.
        for waits in [0.0, 0.0, 0.0, 1.0] {
            assert_eq!(wait(&table, 3_000, 103.0), waits);
        }
        assert_eq!(wait(&table, 1, 103.0), 0.0);
    }

    #[test]
    fn clients() {
        for (a, b, same) in [
            ("192.0.2.1", "192.0.2.2", false),
            ("192.0.2.1", "::ffff:192.0.2.1", true),
            ("2001:db8::1", "2001:db8::ffff:1", true),
            ("2001:db8:0:1::1", "2001:db8:0:2::1", false),
        ] {
            let [one, other] = [a, b].map(|address| client(address.parse().unwrap()));
            assert_eq!(one == other, same, "{a} and {b}");
        }
    }

    #[test]
    fn rates_at_the_edge() {
        for (requests, per, burst, passed) in [
            (0, Duration::MAX, 0, 1),
            (1, Duration::MAX, u32::MAX, 1),
            (u32::MAX, Duration::ZERO, u32::MAX, 9),
            (3, Duration::from_secs(3_600), 3, 3),
        ] {
            let app = async |_: Request| Response::text("ok");
            let app = app.with(RateLimit::new(requests, per).burst(burst));
            let ask = || {
                let mut request = testing::request("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
                request.set_peer("192.0.2.1:80".parse().unwrap());
                // Clones share the table.
                testing::call(app.clone(), request).status == 200
            };
            assert_eq!((0..9).filter(|_| ask()).count(), passed, "{requests} in {per:?}");
        }
    }
}
