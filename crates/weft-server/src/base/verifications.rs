//! Verifications of credentials, which take much CPU time: hashes of passwords by design, and
//! signatures of tokens.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, Shared, WeakShared};
use weft::client_limit::{Client, ClientLimit, ClientLimitSettings};
use weft::message::HalfClose;
use weft::net::IpNetwork;
use weft::{Request, Response, StatusCode, header};

/// Concurrent verifications of one kind. Guessing occupies at most this number of processors.
const MAX_CONCURRENT: usize = 2;

/// Verifications that wait, in total and for one client.
const MAX_QUEUED: usize = 256;
const MAX_QUEUED_PER_CLIENT: usize = 16;

/// Maximum time in the queue.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(5);

/// Digest of credentials and of the secret, or keys, that they are verified against.
pub(crate) type Digest = [u8; 32];

/// Verifies credentials in blocking threads. One client may occupy one of them, so that it cannot
/// delay the logins of others by guessing. Requests with the same credentials share a verification:
/// a browser sends many at once. Verifications for clients that may have left wait behind all
/// others.
pub(crate) struct Verifications<T> {
    limit: ClientLimit,
    running: Mutex<HashMap<Digest, Running<T>>>,
}

/// A verification that waits or runs.
struct Running<T> {
    verification: WeakShared<Verification<T>>,
    requesters: Requesters,
}

/// The connections of the requests that share a verification.
type Requesters = Arc<Mutex<Vec<HalfClose>>>;

/// The client that a verification counts for, and its connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Requester {
    client: Option<Client>,
    half_close: HalfClose,
}

impl Requester {
    pub(crate) fn of_request(request: &Request, proxies: &[IpNetwork]) -> Requester {
        let client = Client::of_request(request, proxies);
        Requester { client, half_close: request.half_close() }
    }
}

type Verification<T> = BoxFuture<'static, Result<T, Busy>>;

/// The queue is full, or the wait took too long: the credentials were not verified.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Busy;

/// Returns the limit for all verifications of one kind, whatever their routes and files.
pub(crate) fn new_limit() -> ClientLimit {
    ClientLimit::new(ClientLimitSettings {
        max_per_client: 1,
        max_queued: MAX_QUEUED,
        max_queued_per_client: MAX_QUEUED_PER_CLIENT,
        queue_timeout: QUEUE_TIMEOUT,
        ..ClientLimitSettings::new(MAX_CONCURRENT)
    })
}

impl<T: Clone + Send + Sync + 'static> Verifications<T> {
    pub(crate) fn new(limit: ClientLimit) -> Verifications<T> {
        Verifications { limit, running: Mutex::default() }
    }

    /// Returns the result of `verify` for credentials with this digest.
    ///
    /// # Errors
    /// If too many other credentials are being verified.
    pub(crate) async fn verify(
        &self,
        digest: Digest,
        requester: Requester,
        verify: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Busy> {
        self.join(digest, requester, verify).await
    }

    /// Joins the verification of the same credentials, or starts one.
    fn join(
        &self,
        digest: Digest,
        requester: Requester,
        verify: impl FnOnce() -> T + Send + 'static,
    ) -> Shared<Verification<T>> {
        let Requester { client, half_close } = requester;
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(same) = running.get(&digest)
            && let Some(verification) = same.verification.upgrade()
        {
            lock(&same.requesters).push(half_close);
            return verification;
        }
        let limit = self.limit.clone();
        let requesters = Requesters::new(Mutex::new(vec![half_close]));
        let may_have_left = {
            let requesters = requesters.clone();
            move || lock(&requesters).iter().all(HalfClose::is_detected)
        };
        let verification = async move {
            let permit = limit.acquire_yielding(client, may_have_left).await.ok_or(Busy)?;
            permit.spawn_blocking(verify).await.map_err(|_| Busy)
        };
        let verification = verification.boxed().shared();
        // Each remaining verification has a request that waits, and the queue is limited.
        running.retain(|_, running| running.verification.upgrade().is_some());
        if let Some(weak) = verification.downgrade() {
            running.insert(digest, Running { verification: weak, requesters });
        }
        verification
    }
}

fn lock(requesters: &Requesters) -> MutexGuard<'_, Vec<HalfClose>> {
    requesters.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Busy {
    /// Returns the response for the client.
    pub(crate) fn response(self) -> Response {
        let seconds = QUEUE_TIMEOUT.as_secs().to_string();
        Response::from(StatusCode::SERVICE_UNAVAILABLE).with_header(header::RETRY_AFTER, seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    use futures_util::future::join_all;

    fn client(last: u8) -> Requester {
        let client = Some(Client::new([192, 0, 2, last].into()));
        Requester { client, ..Requester::default() }
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    /// Each row: the clients that verify different credentials, in order, while none ends, and the
    /// numbers of verifications that run, wait, and are refused.
    #[test]
    fn a_client_has_a_share() {
        let many = [1; 70];
        let two = [[1; 20], [2; 20]].concat();
        for (clients, expected) in [
            (&[1][..], (1, 0, 0)),
            (&[1, 2], (2, 0, 0)),
            (&[1, 1, 2], (2, 1, 0)),
            (&many, (1, 16, 53)),
            (&two, (2, 32, 6)),
        ] {
            runtime().block_on(async {
                let verifications = Verifications::new(new_limit());
                let (end, ended) = mpsc::channel::<()>();
                let ended = Arc::new(Mutex::new(ended));
                let mut open = Vec::new();
                let mut refused = 0;
                for (number, last) in clients.iter().enumerate() {
                    let ended = ended.clone();
                    let wait = move || {
                        let _ = ended.lock().unwrap().recv();
                    };
                    let mut digest = Digest::default();
                    digest[0] = number as u8;
                    let mut verification = verifications.join(digest, client(*last), wait);
                    match (&mut verification).now_or_never() {
                        Some(result) => refused += usize::from(result.is_err()),
                        None => open.push(verification),
                    }
                }
                let limit = &verifications.limit;
                assert_eq!((limit.in_use(), limit.queued(), refused), expected, "{clients:?}");
                drop(end);
                assert!(join_all(open).await.iter().all(Result::is_ok));
            });
        }
    }

    #[test]
    fn the_same_credentials_share_a_verification() {
        runtime().block_on(async {
            let verifications = Verifications::new(new_limit());
            let (sender, calls) = mpsc::channel();
            let verify = |digest: u8| {
                let sender = sender.clone();
                verifications.verify([digest; 32], client(1), move || {
                    sender.send(digest).unwrap();
                    digest
                })
            };
            let results = join_all([1, 1, 2, 1].map(verify)).await;
            let results: Vec<_> = results.into_iter().map(Result::unwrap).collect();
            assert_eq!(results, [1, 1, 2, 1]);
            assert_eq!(calls.try_iter().collect::<Vec<_>>(), [1, 2]);
            // One that has ended is not joined.
            verify(1).await.unwrap();
            assert_eq!(calls.try_iter().collect::<Vec<_>>(), [1]);
        });
    }

    /// The permit belongs to the thread that verifies, not to the request.
    #[test]
    fn a_client_that_leaves_frees_no_permit() {
        runtime().block_on(async {
            let verifications = Verifications::new(new_limit());
            let (end, ended) = mpsc::channel::<()>();
            let verify = move || {
                let _ = ended.recv();
            };
            let mut verification = verifications.join([0; 32], client(1), verify);
            assert!((&mut verification).now_or_never().is_none());
            drop(verification);
            assert_eq!(verifications.limit.in_use(), 1);
            let next = verifications.verify([1; 32], client(1), || ());
            drop(end);
            next.await.unwrap();
            assert_eq!(verifications.limit.in_use(), 0);
        });
    }
}
