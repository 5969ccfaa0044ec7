//! Limit on concurrent requests.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use weft_proto::proxy_protocol::IpNetwork;

use crate::app::{Application, Middleware};
use crate::client_limit::{Client, ClientLimit, ClientLimitSettings};
use crate::message::request::Request;
use crate::message::response::Response;
use crate::middleware::limits::retry_after::retry_after;

/// Limits the number of concurrent requests in the application. Further requests wait in a
/// queue; if the queue is full or the wait takes too long, the response is 503 with
/// `Retry-After`.
///
/// ```
/// use std::time::Duration;
/// use weft::middleware::ConcurrencyLimit;
/// use weft::{Application, Request, Response, testing};
///
/// async fn hello(_: Request) -> Response { Response::text("Hello\n") }
///
/// let limit = ConcurrencyLimit::new(100).max_queued(50).queue_timeout(Duration::from_secs(1));
/// assert_eq!(testing::get(hello.wrap(limit), "/").status, 200);
/// let closed = ConcurrencyLimit::new(0).max_queued(0);
/// let reply = testing::get(hello.wrap(closed), "/");
/// assert_eq!((reply.status.as_u16(), reply.header("retry-after")), (503, Some("5")));
/// ```
///
/// The limit is shared by all clones, and so by all workers, because the protected resource, such
/// as a database, is shared too: a short lock at each end of a request. Queued requests are
/// admitted in order of arrival. A request counts until the application returns the response, not
/// while the response body is sent; if its client disconnects, it stops counting at once.
///
/// On the open Internet, set [`max_per_client`](ConcurrencyLimit::max_per_client), so that one
/// client with slow requests cannot exclude all others. It is not set by default, because an
/// application behind a proxy sees one client, unless
/// [`RealAddress`](crate::middleware::RealAddress) is in front. For a limit on something else than
/// requests, see [`ClientLimit`].
#[derive(Clone, Debug)]
pub struct ConcurrencyLimit {
    limit: ClientLimit,
    settings: ClientLimitSettings,
    proxies: Arc<[IpNetwork]>,
    retry_after: Duration,
}

impl ConcurrencyLimit {
    /// Admits at most `max_requests` at a time.
    pub fn new(max_requests: usize) -> ConcurrencyLimit {
        let settings = ClientLimitSettings {
            max_per_client: max_requests,
            max_queued: max_requests,
            queue_timeout: Duration::from_secs(5),
            ..ClientLimitSettings::new(max_requests)
        };
        let limit = ClientLimit::new(settings);
        let retry_after = Duration::from_secs(5);
        ConcurrencyLimit { limit, settings, proxies: Arc::default(), retry_after }
    }

    /// Sets the maximum number of concurrent requests of one client: an IPv4 address or an IPv6 /64
    /// network. The client may use the same share of the queue. 0: half of all. Default: all.
    pub fn max_per_client(self, max_per_client: usize) -> ConcurrencyLimit {
        self.with_settings(|settings| settings.max_per_client = max_per_client)
    }

    /// Sets the networks of proxies, which have no limit of their own if they have not named their
    /// client. Default: none.
    pub fn trust(self, proxies: impl Into<Arc<[IpNetwork]>>) -> ConcurrencyLimit {
        ConcurrencyLimit { proxies: proxies.into(), ..self }
    }

    /// Sets the maximum number of queued requests. Default: the maximum number of concurrent
    /// requests.
    pub fn max_queued(self, max_queued: usize) -> ConcurrencyLimit {
        self.with_settings(|settings| settings.max_queued = max_queued)
    }

    /// Sets the maximum time a request may wait in the queue. Default: 5 s.
    pub fn queue_timeout(self, queue_timeout: Duration) -> ConcurrencyLimit {
        self.with_settings(|settings| settings.queue_timeout = queue_timeout)
    }

    /// Sets the delay in `Retry-After` of the 503 response (RFC 9110 §10.2.3), rounded up to
    /// seconds. Default: 5 s.
    pub fn retry_after(self, time: Duration) -> ConcurrencyLimit {
        ConcurrencyLimit { retry_after: time, ..self }
    }

    fn with_settings(mut self, set: impl FnOnce(&mut ClientLimitSettings)) -> ConcurrencyLimit {
        set(&mut self.settings);
        ConcurrencyLimit { limit: ClientLimit::new(self.settings), ..self }
    }
}

impl Middleware for ConcurrencyLimit {
    async fn call(&self, request: Request, next: &impl Application) -> Response {
        let client = Client::of_request(&request, &self.proxies);
        let permit = match self.limit.try_acquire(client) {
            None => {
                let half_close = request.half_close();
                self.limit.acquire_yielding(client, move || half_close.is_detected()).await
            }
            permit => permit,
        };
        match permit {
            Some(_permit) => next.call(request).await,
            None => retry_after(StatusCode::SERVICE_UNAVAILABLE, self.retry_after),
        }
    }
}
