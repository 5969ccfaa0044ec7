//! Limit on concurrent requests.

use std::time::Duration;

use http::StatusCode;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use crate::app::{Application, Middleware};
use crate::message::request::Request;
use crate::message::response::Response;
use crate::middleware::retry_after::retry_after;
use crate::sync::Arc;
use crate::sync::atomic::{AtomicUsize, Ordering::Relaxed};

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
/// assert_eq!(testing::get(hello.with(limit), "/").status, 200);
/// let closed = ConcurrencyLimit::new(0).max_queued(0);
/// let reply = testing::get(hello.with(closed), "/");
/// assert_eq!((reply.status.as_u16(), reply.header("retry-after")), (503, Some("5")));
/// ```
///
/// The limit is shared by all clones, and so by all workers, because the protected resource, such
/// as a database, is shared too: one atomic operation at each end of a request below the limit.
/// Queued requests are admitted in order of arrival. A request counts until the application
/// returns the response, not while the response body is sent; if its client disconnects, it
/// stops counting at once.
///
/// An application may also limit something else than its requests, such as the processes that it
/// starts: it [acquires](ConcurrencyLimit::acquire) a permit for each.
#[derive(Clone, Debug)]
pub struct ConcurrencyLimit {
    permits: Arc<Semaphore>,
    queued: Arc<AtomicUsize>,
    max_requests: usize,
    max_queued: usize,
    queue_timeout: Duration,
    retry_after: Duration,
}

/// A permit of a [`ConcurrencyLimit`], released on drop.
#[derive(Debug)]
pub struct ConcurrencyPermit {
    _permit: OwnedSemaphorePermit,
}

impl ConcurrencyLimit {
    /// Admits at most `max_requests` at a time.
    pub fn new(max_requests: usize) -> ConcurrencyLimit {
        let max_requests = max_requests.min(Semaphore::MAX_PERMITS);
        ConcurrencyLimit {
            permits: Arc::new(Semaphore::new(max_requests)),
            queued: Arc::default(),
            max_requests,
            max_queued: max_requests,
            queue_timeout: Duration::from_secs(5),
            retry_after: Duration::from_secs(5),
        }
    }

    /// Sets the maximum number of queued requests. Default: the maximum number of concurrent
    /// requests.
    pub fn max_queued(self, max_queued: usize) -> ConcurrencyLimit {
        ConcurrencyLimit { max_queued, ..self }
    }

    /// Sets the maximum time a request may wait in the queue. Default: 5 s.
    pub fn queue_timeout(self, queue_timeout: Duration) -> ConcurrencyLimit {
        ConcurrencyLimit { queue_timeout, ..self }
    }

    /// Sets the delay in `Retry-After` of the 503 response (RFC 9110 §10.2.3), rounded up to
    /// seconds. Default: 5 s.
    pub fn retry_after(self, time: Duration) -> ConcurrencyLimit {
        ConcurrencyLimit { retry_after: time, ..self }
    }

    /// Acquires a permit; `None` if none is available without a wait.
    pub fn try_acquire(&self) -> Option<ConcurrencyPermit> {
        self.permits.clone().try_acquire_owned().ok().map(|_permit| ConcurrencyPermit { _permit })
    }

    /// Acquires a permit, after a wait in the queue if none is available; `None` if the queue is
    /// full or the wait takes too long.
    pub async fn acquire(&self) -> Option<ConcurrencyPermit> {
        match self.try_acquire() {
            Some(permit) => Some(permit),
            None => {
                let permit = self.queue(self.permits.clone().acquire_owned()).await;
                permit.map(|_permit| ConcurrencyPermit { _permit })
            }
        }
    }

    /// Returns the number of permits in use.
    pub fn in_use(&self) -> usize {
        self.max_requests - self.permits.available_permits()
    }

    /// Returns the number of queued requests.
    pub fn queued(&self) -> usize {
        self.queued.load(Relaxed)
    }

    /// Returns true if all permits are in use: further requests wait.
    pub fn is_full(&self) -> bool {
        self.permits.available_permits() == 0
    }

    /// Acquires a permit that need not outlive `self`, which saves a reference count.
    async fn acquire_borrowed(&self) -> Option<SemaphorePermit<'_>> {
        match self.permits.try_acquire() {
            Ok(permit) => Some(permit),
            Err(_) => self.queue(self.permits.acquire()).await,
        }
    }

    /// Waits in the queue for `permit`.
    async fn queue<P>(&self, permit: impl Future<Output = Result<P, AcquireError>>) -> Option<P> {
        let _slot = QueueSlot::acquire(&self.queued, self.max_queued)?;
        tokio::time::timeout(self.queue_timeout, permit).await.ok()?.ok()
    }
}

impl Middleware for ConcurrencyLimit {
    async fn call(&self, request: Request, next: &impl Application) -> Response {
        match self.acquire_borrowed().await {
            Some(_permit) => next.call(request).await,
            None => retry_after(StatusCode::SERVICE_UNAVAILABLE, self.retry_after),
        }
    }
}

/// A slot in the queue, released on drop.
struct QueueSlot<'a>(&'a AtomicUsize);

impl QueueSlot<'_> {
    fn acquire(queued: &AtomicUsize, max: usize) -> Option<QueueSlot<'_>> {
        let increment = |count| (count < max).then_some(count + 1);
        queued.fetch_update(Relaxed, Relaxed, increment).ok().map(|_| QueueSlot(queued))
    }
}

impl Drop for QueueSlot<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(future: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        runtime.unwrap().block_on(future);
    }

    #[test]
    fn queues_and_rejects_requests_over_the_limit() {
        run(async {
            let limit =
                ConcurrencyLimit::new(2).max_queued(1).queue_timeout(Duration::from_millis(20));
            let other = limit.clone();
            let first = limit.acquire().await.expect("a permit is available");
            let second = other.acquire().await.expect("a permit is available");
            // One request is queued and times out; another is rejected at once.
            let (timed_out, rejected) = tokio::join!(limit.acquire(), other.acquire());
            assert!(timed_out.is_none() && rejected.is_none());
            // A queued request gets a released permit, and then the queue is free again.
            let limit = limit.clone().queue_timeout(Duration::from_secs(30));
            for released in [first, second] {
                let (permit, ()) = tokio::join!(limit.acquire(), async { drop(released) });
                assert!(permit.is_some());
                drop(permit);
            }
            assert_eq!(limit.queued(), 0);
            assert_eq!(limit.in_use(), 0);
        });
    }

    #[test]
    fn dropped_waiter_leaves_the_queue() {
        run(async {
            let limit = ConcurrencyLimit::new(0).max_queued(1).queue_timeout(Duration::MAX);
            let timed_out = tokio::time::timeout(Duration::from_millis(5), limit.acquire()).await;
            assert!(timed_out.is_err());
            assert_eq!(limit.queued(), 0);
        });
    }
}
