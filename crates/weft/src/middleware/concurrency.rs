//! No more requests at a time than the application can bear.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use http::StatusCode;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::app::{Application, Middleware};
use crate::message::request::Request;
use crate::message::response::Response;
use crate::middleware::retry_after;

/// Lets so many requests at a time into the application; others wait in a queue, and are
/// answered 503 with `Retry-After` when that is full or the wait too long.
///
/// ```
/// use std::time::Duration;
/// use weft::middleware::Concurrency;
/// use weft::{Application, Request, Response, testing};
///
/// async fn hello(_: Request) -> Response { Response::text("Hello\n") }
///
/// let limit = Concurrency::new(100).queue(50).wait(Duration::from_secs(1));
/// assert_eq!(testing::get(hello.with(limit), "/").status, 200);
/// let closed = Concurrency::new(0).queue(0);
/// let reply = testing::get(hello.with(closed), "/");
/// assert_eq!((reply.status.as_u16(), reply.header("retry-after")), (503, Some("5")));
/// ```
///
/// The count is shared by all clones, and so by all workers, since what is protected, such as
/// a database, is shared too: one atomic operation at each end of a request while there is
/// room. Those who wait are let in in the order in which they came. A request counts until
/// the application has answered, not while the body of its response is sent; one whose
/// client leaves makes room at once.
#[derive(Clone, Debug)]
pub struct Concurrency {
    shared: Arc<Shared>,
    queue: usize,
    wait: Duration,
    retry_after: Duration,
}

#[derive(Debug)]
struct Shared {
    room: Semaphore,
    waiting: AtomicUsize,
}

impl Concurrency {
    /// At most so many requests at a time.
    pub fn new(requests: usize) -> Concurrency {
        let room = Semaphore::new(requests.min(Semaphore::MAX_PERMITS));
        let (wait, retry_after) = (Duration::from_secs(5), Duration::from_secs(5));
        let shared = Arc::new(Shared { room, waiting: AtomicUsize::new(0) });
        Concurrency { shared, queue: requests, wait, retry_after }
    }

    /// How many further requests may wait. Default: as many as there may be at a time.
    pub fn queue(self, requests: usize) -> Concurrency {
        Concurrency { queue: requests, ..self }
    }

    /// How long a request may wait. Default: 5 s.
    pub fn wait(self, most: Duration) -> Concurrency {
        Concurrency { wait: most, ..self }
    }

    /// When a client that was turned away may ask again, rounded up to seconds
    /// (`Retry-After`, RFC 9110 §10.2.3). Default: 5 s.
    pub fn retry_after(self, time: Duration) -> Concurrency {
        Concurrency { retry_after: time, ..self }
    }

    /// A place in the application, if there is one in time.
    async fn enter(&self) -> Option<SemaphorePermit<'_>> {
        let Shared { room, waiting } = &*self.shared;
        if let Ok(permit) = room.try_acquire() {
            return Some(permit);
        }
        let _place = Place::take(waiting, self.queue)?;
        tokio::time::timeout(self.wait, room.acquire()).await.ok()?.ok()
    }
}

impl Middleware for Concurrency {
    async fn call(&self, request: Request, next: &impl Application) -> Response {
        match self.enter().await {
            Some(_permit) => next.call(request).await,
            None => retry_after(StatusCode::SERVICE_UNAVAILABLE, self.retry_after),
        }
    }
}

/// A place in the queue.
struct Place<'a>(&'a AtomicUsize);

impl Place<'_> {
    fn take(waiting: &AtomicUsize, most: usize) -> Option<Place<'_>> {
        let one_more = |count| (count < most).then_some(count + 1);
        waiting.fetch_update(Relaxed, Relaxed, one_more).ok().map(|_| Place(waiting))
    }
}

impl Drop for Place<'_> {
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
    fn places() {
        run(async {
            let limit = Concurrency::new(2).queue(1).wait(Duration::from_millis(20));
            let other = limit.clone();
            let first = limit.enter().await.expect("there is room");
            let second = other.enter().await.expect("there is room");
            // One waits in vain, a further one is turned away at once.
            let (waited, turned_away) = tokio::join!(limit.enter(), other.enter());
            assert!(waited.is_none() && turned_away.is_none());
            // Who waits gets the place that somebody leaves, and then the queue is free again.
            let limit = limit.clone().wait(Duration::from_secs(30));
            for place in [first, second] {
                let (entered, ()) = tokio::join!(limit.enter(), async { drop(place) });
                assert!(entered.is_some());
                drop(entered);
            }
            assert_eq!(limit.shared.waiting.load(Relaxed), 0);
            assert_eq!(limit.shared.room.available_permits(), 2);
        });
    }

    #[test]
    fn who_gives_up_leaves_the_queue() {
        run(async {
            let limit = Concurrency::new(0).queue(1).wait(Duration::MAX);
            let given_up = tokio::time::timeout(Duration::from_millis(5), limit.enter()).await;
            assert!(given_up.is_err());
            assert_eq!(limit.shared.waiting.load(Relaxed), 0);
        });
    }
}
