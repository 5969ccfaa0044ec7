//! Request rate limit per client.

use std::fmt;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;

use crate::app::{Application, Middleware};
use crate::clock::deadline::Stopwatch;
use crate::message::request::Request;
use crate::message::response::Response;
use crate::middleware::limits::bucket_rate::{MAX_NANOS, Rate, nanos};
use crate::middleware::limits::buckets::Table;
use crate::middleware::limits::retry_after::retry_after;
use crate::middleware::limits::shared_rate::SharedRate;

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
        self.take_of_client(self.table.client_of_key(key))
    }

    fn take_of_client(&self, client: u64) -> Result<(), Response> {
        let taken = self.table.take(client, nanos(self.clock.elapsed()), self.rate);
        taken.map_err(|wait| retry_after(StatusCode::TOO_MANY_REQUESTS, wait))
    }

    /// Shares the limit with other processes. Returns the limit, and the part by which the
    /// application exchanges its buckets with them. This process decides about its requests alone,
    /// so that none waits for the exchange.
    ///
    /// `secret` is known to the processes of this limit only. They report clients by hashes that
    /// depend on it, and never by addresses. Processes of different versions of Rust may have
    /// different hashes. The overflow buckets are not shared.
    ///
    /// Call [`burst`](RateLimit::burst) and [`max_clients`](RateLimit::max_clients) before: the shared
    /// part does not see later changes.
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
        let table = self.table.shared(secret);
        let limit = RateLimit { table: Arc::new(table), ..self };
        let shared = SharedRate::new(Arc::downgrade(&limit.table), limit.rate, limit.clock);
        (limit, shared)
    }

    /// Sets the capacity of the table in clients, rounded up to a power of two. Default: 65,536
    /// (1.1 MiB). From half of the capacity on, some sets begin to be full.
    pub fn max_clients(self, clients: usize) -> RateLimit {
        RateLimit { table: Arc::new(Table::new(clients)), ..self }
    }
}

impl Middleware for RateLimit {
    async fn call(&self, request: Request, next: &impl Application) -> Response {
        let Some(address) = request.peer().address() else { return next.call(request).await };
        match self.take_of_client(self.table.client_of_address(client_key(address.ip()))) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

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
