//! Values and leases of a store for other threads: a thread of its own makes the calls.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use crate::redis_store::RedisStore;
use crate::sealed_store::SealedStore;
use crate::secret::ClusterSecret;
use crate::store::{Expected, LeaseToken, Store, StoredValue, ValueVersion};
use crate::store_error::StoreError;

/// Number of calls that wait for the thread. Further ones fail.
const MAX_WAITING: usize = 256;

/// Time for which a caller waits, also for the calls before its own.
const WAIT_TIME: Duration = Duration::from_secs(5);

/// Time for which calls fail at once after the store was away.
const AWAY_TIME: Duration = Duration::from_secs(1);

/// Lifetime of a lease whose process has ended, and interval at which a process extends it.
const LEASE_LIFETIME: Duration = Duration::from_secs(60);
const LEASE_INTERVAL: Duration = Duration::from_secs(15);

/// Interval at which leases are checked.
const TICK: Duration = Duration::from_secs(5);

/// Maximum number of values that [`SharedValues::read_all`] returns.
pub const MAX_READ: usize = 1_024;

/// Encrypted values and leases of a cluster, for callers in other threads. The first call starts
/// the thread that makes the calls, one after the other; it ends when this value is dropped.
///
/// Functions without `async` block for up to 5 s. While the store is away, they fail at once.
pub struct SharedValues {
    store: RedisStore,
    cluster: String,
    secrets: Vec<ClusterSecret>,
    requests: OnceLock<Result<mpsc::Sender<Request>, StoreError>>,
}

/// A lease, which is extended until this value is dropped.
pub struct HeldLease {
    name: String,
    token: LeaseToken,
    requests: mpsc::Sender<Request>,
    _held: Arc<()>,
}

/// A value to put.
#[derive(Clone, Debug)]
pub struct NewValue {
    /// Its key.
    pub key: String,
    /// Its content.
    pub value: Vec<u8>,
    /// Condition of the change.
    pub expected: Expected,
    /// Time after which it is removed.
    pub lifetime: Option<Duration>,
}

/// Function that returns the present value of an announcement.
pub type Announcement = Box<dyn Fn() -> Vec<u8> + Send>;

/// Lifetime of an announcement whose process has ended.
const ANNOUNCED_TIME: Duration = Duration::from_secs(20);

/// Function that gets the result of a call.
type Reply<T> = Box<dyn FnOnce(Result<T, StoreError>) + Send>;

/// Keys and versions.
type Listed = Vec<(String, ValueVersion)>;

enum Request {
    Get(String, Reply<Option<StoredValue>>),
    Put(NewValue, Reply<Option<ValueVersion>>),
    Delete(String, Expected, Reply<bool>),
    List(String, Reply<Listed>),
    ReadAll(String, Reply<Vec<(String, Vec<u8>)>>),
    Lease(String, Reply<Option<HeldLease>>),
    Release(String, LeaseToken),
    Announce(String, Announcement),
}

impl SharedValues {
    pub(crate) fn new(store: RedisStore, cluster: &str, secrets: &[ClusterSecret]) -> SharedValues {
        let (cluster, secrets) = (cluster.to_owned(), secrets.to_vec());
        SharedValues { store, cluster, secrets, requests: OnceLock::new() }
    }

    /// Returns a value; `None` if there is none.
    ///
    /// # Errors
    /// As for all calls of [`Store`].
    pub fn get(&self, key: &str) -> Result<Option<StoredValue>, StoreError> {
        self.call(|reply| Request::Get(key.to_owned(), reply))
    }

    /// Creates or replaces a value if its condition is true, and returns its version.
    ///
    /// # Errors
    /// As for all calls of [`Store`].
    pub fn put(&self, value: NewValue) -> Result<Option<ValueVersion>, StoreError> {
        self.call(|reply| Request::Put(value, reply))
    }

    /// Deletes a value.
    ///
    /// # Errors
    /// As for all calls of [`Store`].
    pub fn delete(&self, key: &str) -> Result<(), StoreError> {
        self.call(|reply| Request::Delete(key.to_owned(), Expected::Any, reply)).map(drop)
    }

    /// Returns the keys with this beginning, and their versions.
    ///
    /// # Errors
    /// As for all calls of [`Store`].
    pub fn list(&self, prefix: &str) -> Result<Listed, StoreError> {
        self.call(|reply| Request::List(prefix.to_owned(), reply))
    }

    /// Returns the keys with this beginning, and their values. Values that cannot be decrypted are
    /// omitted.
    ///
    /// # Errors
    /// As for all calls of [`Store`], and if there are more than [`MAX_READ`].
    pub fn read_all(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        self.call(|reply| Request::ReadAll(prefix.to_owned(), reply))
    }

    /// Acquires the lease of a name; `None` if another process or task has it.
    ///
    /// # Errors
    /// As for all calls of [`Store`].
    pub fn lease(&self, name: &str) -> Result<Option<HeldLease>, StoreError> {
        self.call(|reply| Request::Lease(name.to_owned(), reply))
    }

    /// Puts a value every 5 s, until this value is dropped. It is removed 20 s afterwards. Another
    /// announcement takes its place.
    ///
    /// # Errors
    /// If the thread cannot be started, or if too many calls wait for it.
    pub fn announce(&self, key: &str, value: Announcement) -> Result<(), StoreError> {
        let request = Request::Announce(key.to_owned(), value);
        self.requests()?.try_send(request).map_err(|_| busy())
    }

    /// Does the same as [`put`](SharedValues::put), without blocking.
    ///
    /// # Errors
    /// As for all calls of [`Store`].
    pub async fn put_async(&self, value: NewValue) -> Result<Option<ValueVersion>, StoreError> {
        self.call_async(|reply| Request::Put(value, reply)).await
    }

    /// Does the same as [`read_all`](SharedValues::read_all), without blocking.
    ///
    /// # Errors
    /// As for [`read_all`](SharedValues::read_all).
    pub async fn read_all_async(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        self.call_async(|reply| Request::ReadAll(prefix.to_owned(), reply)).await
    }

    /// Deletes a value some time, without waiting.
    pub fn delete_later(&self, key: &str) {
        if let Ok(requests) = self.requests() {
            // If too many calls wait, the lifetime of the value ends.
            let _ =
                requests.try_send(Request::Delete(key.to_owned(), Expected::Any, Box::new(drop)));
        }
    }

    fn call<T: Send + 'static>(
        &self,
        request: impl FnOnce(Reply<T>) -> Request,
    ) -> Result<T, StoreError> {
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        // Fails if the caller does not wait any more.
        let reply = Box::new(move |result| drop(sender.send(result)));
        self.requests()?.try_send(request(reply)).map_err(|_| busy())?;
        receiver.recv_timeout(WAIT_TIME).unwrap_or_else(|_| Err(busy()))
    }

    async fn call_async<T: Send + 'static>(
        &self,
        request: impl FnOnce(Reply<T>) -> Request,
    ) -> Result<T, StoreError> {
        let (sender, receiver) = oneshot::channel();
        let reply = Box::new(move |result| drop(sender.send(result)));
        self.requests()?.try_send(request(reply)).map_err(|_| busy())?;
        match timeout(WAIT_TIME, receiver).await {
            Ok(Ok(result)) => result,
            _ => Err(busy()),
        }
    }

    fn requests(&self) -> Result<&mpsc::Sender<Request>, StoreError> {
        let started = self.requests.get_or_init(|| {
            let (sender, receiver) = mpsc::channel(MAX_WAITING);
            let failed = |error| {
                StoreError::Refused(format!("cannot start the thread of the store: {error}"))
            };
            let store = SealedStore::new(self.store.values(), &self.cluster, &self.secrets);
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.map_err(failed)?;
            let calls = Calls {
                store,
                away: None,
                leases: HashMap::new(),
                known: HashMap::new(),
                announced: None,
                requests: sender.downgrade(),
            };
            let thread = std::thread::Builder::new().name("weft-store".to_owned());
            thread.spawn(move || runtime.block_on(calls.run(receiver))).map_err(failed)?;
            Ok(sender)
        });
        started.as_ref().map_err(Clone::clone)
    }
}

/// Shows nothing of the secret.
impl std::fmt::Debug for SharedValues {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedValues").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}

impl Drop for HeldLease {
    fn drop(&mut self) {
        // If too many calls wait, the next tick ends the lease.
        let _ = self.requests.try_send(Request::Release(self.name.clone(), self.token));
    }
}

fn busy() -> StoreError {
    StoreError::Away("the store does not answer in time".to_owned())
}

/// The calls of the thread.
struct Calls<S> {
    store: S,
    /// Time until which calls fail, and the error.
    away: Option<(Instant, StoreError)>,
    leases: HashMap<String, OwnLease>,
    /// Values that were read by [`Request::ReadAll`].
    known: HashMap<String, (ValueVersion, Vec<u8>)>,
    announced: Option<(String, Announcement)>,
    requests: mpsc::WeakSender<Request>,
}

struct OwnLease {
    token: LeaseToken,
    extended_at: Instant,
    held: Weak<()>,
}

impl<S: Store> Calls<S> {
    async fn run(mut self, mut requests: mpsc::Receiver<Request>) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                request = requests.recv() => match request {
                    Some(request) => self.handle(request).await,
                    None => return,
                },
                _ = ticks.tick() => {
                    self.extend_leases().await;
                    self.announce().await;
                }
            }
        }
    }

    async fn handle(&mut self, request: Request) {
        match request {
            Request::Get(key, reply) => reply(self.call(async |it| it.get(&key).await).await),
            Request::Put(NewValue { key, value, expected, lifetime }, reply) => {
                let put = async |it: &mut S| it.put(&key, &value, expected, lifetime).await;
                reply(self.call(put).await);
            }
            Request::Delete(key, expected, reply) => {
                reply(self.call(async |it| it.delete(&key, expected).await).await);
            }
            Request::List(prefix, reply) => {
                reply(self.call(async |it| it.list(&prefix).await).await);
            }
            Request::ReadAll(prefix, reply) => reply(self.read_all(&prefix).await),
            Request::Lease(name, reply) => reply(self.lease(name).await),
            Request::Release(name, token) => self.release(&name, token).await,
            Request::Announce(key, value) => {
                self.announced = Some((key, value));
                self.announce().await;
            }
        }
    }

    /// Calls the store, unless it was away a moment ago.
    async fn call<T>(
        &mut self,
        call: impl AsyncFnOnce(&mut S) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        if let Some((until, error)) = &self.away
            && Instant::now() < *until
        {
            return Err(error.clone());
        }
        let result = call(&mut self.store).await;
        self.away = match &result {
            Err(error @ StoreError::Away(_)) => Some((Instant::now() + AWAY_TIME, error.clone())),
            _ => None,
        };
        result
    }

    /// Reads the values that have changed since the last call.
    async fn read_all(&mut self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        let listed = self.call(async |it| it.list(prefix).await).await?;
        if listed.len() > MAX_READ {
            let reason = format!("there are more than {MAX_READ} values beneath {prefix}");
            return Err(StoreError::Invalid(reason));
        }
        let mut former = std::mem::take(&mut self.known);
        let mut found = Vec::with_capacity(listed.len());
        for (key, version) in listed {
            let known = former.remove(&key).filter(|(known, _)| *known == version);
            let value = match known {
                Some((_, value)) => value,
                None => match self.call(async |it| it.get(&key).await).await {
                    Ok(Some(stored)) => stored.value,
                    Ok(None) => continue,
                    Err(error @ StoreError::Away(_)) => return Err(error),
                    Err(error) => {
                        log::error!("{error}");
                        continue;
                    }
                },
            };
            self.known.insert(key.clone(), (version, value.clone()));
            found.push((key, value));
        }
        let of_others = former.into_iter().filter(|(key, _)| !key.starts_with(prefix));
        self.known.extend(of_others);
        Ok(found)
    }

    async fn lease(&mut self, name: String) -> Result<Option<HeldLease>, StoreError> {
        if self.leases.get(&name).is_some_and(|own| own.held.strong_count() > 0) {
            return Ok(None);
        }
        let Some(requests) = self.requests.upgrade() else { return Ok(None) };
        let mut token = [0; 16];
        aws_lc_rs::rand::fill(&mut token)
            .map_err(|_| StoreError::Refused("the system has no random numbers".to_owned()))?;
        let token = LeaseToken(token);
        if !self.call(async |it| it.lease(&name, token, LEASE_LIFETIME).await).await? {
            return Ok(None);
        }
        let held = Arc::new(());
        let extended_at = Instant::now();
        let own = OwnLease { token, extended_at, held: Arc::downgrade(&held) };
        self.leases.insert(name.clone(), own);
        Ok(Some(HeldLease { name, token, requests, _held: held }))
    }

    async fn release(&mut self, name: &str, token: LeaseToken) {
        self.leases.retain(|known, own| known != name || own.token != token);
        // Otherwise its lifetime ends.
        let _ = self.call(async |it| it.release(name, token).await).await;
    }

    async fn announce(&mut self) {
        let Some((key, value)) = &self.announced else { return };
        let (key, value) = (key.clone(), value());
        let put =
            async |it: &mut S| it.put(&key, &value, Expected::Any, Some(ANNOUNCED_TIME)).await;
        // The next tick repeats it.
        let _ = self.call(put).await;
    }

    async fn extend_leases(&mut self) {
        let is_due = |own: &&mut OwnLease| own.extended_at.elapsed() >= LEASE_INTERVAL;
        let mut due = Vec::new();
        for (name, own) in &mut self.leases {
            if own.held.strong_count() == 0 {
                due.push((name.clone(), own.token, false));
            } else if is_due(&own) {
                own.extended_at = Instant::now();
                due.push((name.clone(), own.token, true));
            }
        }
        for (name, token, is_held) in due {
            if !is_held {
                self.release(&name, token).await;
                continue;
            }
            let extended = self.call(async |it| it.lease(&name, token, LEASE_LIFETIME).await).await;
            if matches!(extended, Ok(false)) {
                log::warn!("another machine has got the lease of {name} from the store");
            }
        }
    }
}
