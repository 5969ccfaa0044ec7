//! A process of a cluster: its limits and messages, exchanged by a thread of its own.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};
use weft::middleware::RateLimit;

use crate::bus::MAX_MESSAGE_BYTES;
use crate::cluster_status::{ClusterStatus, StatusCell};
use crate::message_exchange::{self, EventHandler, Outgoing};
use crate::message_frame::{FRAME_BYTES, MessageFrame};
use crate::rate_exchange::{RateExchange, SharedLimit};
use crate::redis_store::{RedisStore, StoreSettings};
use crate::secret::ClusterSecret;
use crate::shared_values::SharedValues;
use crate::store_error::StoreError;

/// A process of a cluster. [`start`](Cluster::start) starts the thread that exchanges limits and
/// messages with the store; it ends when this value is dropped.
pub struct Cluster {
    name: String,
    process: u64,
    store: RedisStore,
    limit_secret: [u8; 16],
    limit_id_key: Key,
    frame: Arc<MessageFrame>,
    state: Arc<ClusterState>,
    outgoing: mpsc::Sender<Outgoing>,
    /// The receiver of the thread, until it is started.
    unstarted: Mutex<Option<mpsc::Receiver<Outgoing>>>,
    /// Its drop ends the thread.
    stop: Mutex<Option<oneshot::Sender<()>>>,
}

#[derive(Default)]
struct ClusterState {
    /// Limits that the thread does not have yet.
    new_limits: Mutex<Vec<SharedLimit>>,
    last_limit: AtomicU32,
    status: Arc<StatusCell>,
}

/// Outcome of [`Cluster::publish`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Published {
    /// The store has the message.
    Sent,
    /// The store has not accepted the message so far. It is repeated as long as this process runs.
    Pending,
    /// The message is not sent: it is too large, or too many wait.
    Refused,
}

/// Number of messages that wait for the store.
const MAX_QUEUED: usize = 256;

/// Time after which a message is pending.
const PUBLISH_TIME: Duration = Duration::from_secs(1);

impl Cluster {
    /// Creates a process of the cluster with this name. Nothing is connected yet.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn new(
        settings: StoreSettings,
        name: &str,
        secret: &ClusterSecret,
    ) -> Result<Cluster, String> {
        let mut process = [0; 8];
        aws_lc_rs::rand::fill(&mut process).map_err(|_| "the system has no random numbers")?;
        let process = u64::from_be_bytes(process);
        let (outgoing, unstarted) = mpsc::channel(MAX_QUEUED);
        Ok(Cluster {
            name: name.to_owned(),
            process,
            store: RedisStore::new(settings, name, process),
            limit_secret: secret.derive("clients of limits"),
            limit_id_key: Key::new(HMAC_SHA256, &secret.derive::<32>("names of limits")),
            frame: Arc::new(MessageFrame::new(&secret.derive("messages"), process)),
            state: Arc::default(),
            outgoing,
            unstarted: Mutex::new(Some(unstarted)),
            stop: Mutex::default(),
        })
    }

    /// Shares a limit with the limits of the same name in the other processes. The name contains
    /// everything that distinguishes the limit, such as its rate.
    pub fn share(&self, limit: RateLimit, name: &str) -> RateLimit {
        let (limit, rate) = limit.shared(self.limit_secret);
        let code = sign(&self.limit_id_key, name.as_bytes());
        let id = code.as_ref().iter().take(8).fold(0, |id, byte| id << 8 | u64::from(*byte));
        let number = self.state.last_limit.fetch_add(1, Relaxed);
        lock(&self.state.new_limits).push(SharedLimit { id, number, rate });
        limit
    }

    /// Starts the thread, unless it runs. `handler` gets the events of other processes.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn start(&self, handler: Arc<EventHandler>) -> Result<(), String> {
        let Some(queue) = lock(&self.unstarted).take() else { return Ok(()) };
        let (stop, is_stopped) = oneshot::channel();
        *lock(&self.stop) = Some(stop);
        let failed = |error| format!("cannot start the thread of the cluster: {error}");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(failed)?;
        let (store, state, frame) = (self.store.clone(), self.state.clone(), self.frame.clone());
        let run = async move {
            tokio::select! {
                _ = is_stopped => {}
                () = exchange_limits(&store, &state) => {}
                () = message_exchange::receive(store.bus(), frame, handler, state.status.clone()) => {}
                () = publish_all(&store, queue, &state) => {}
            }
        };
        let thread = std::thread::Builder::new().name("weft-cluster".to_owned());
        thread.spawn(move || runtime.block_on(run)).map_err(failed)?;
        Ok(())
    }

    /// Publishes a message to the other processes, and waits up to a second until the store has it.
    pub async fn publish(&self, content: &[u8]) -> Published {
        if content.len() > MAX_MESSAGE_BYTES - FRAME_BYTES {
            return Published::Refused;
        }
        let (done, is_done) = oneshot::channel();
        if self.outgoing.try_send((self.frame.make(content), done)).is_err() {
            return Published::Refused;
        }
        match timeout(PUBLISH_TIME, is_done).await {
            Ok(Ok(())) => Published::Sent,
            _ => Published::Pending,
        }
    }

    /// Publishes a message to the other processes, without waiting. Returns false if it is
    /// refused.
    pub fn publish_later(&self, content: &[u8]) -> bool {
        let (done, _) = oneshot::channel();
        content.len() <= MAX_MESSAGE_BYTES - FRAME_BYTES
            && self.outgoing.try_send((self.frame.make(content), done)).is_ok()
    }

    /// Returns the random number of this process.
    pub fn process(&self) -> u64 {
        self.process
    }

    /// Returns the values of the store. The first of `secrets` encrypts them, and all decrypt.
    pub fn values(&self, secrets: &[ClusterSecret]) -> SharedValues {
        SharedValues::new(self.store.clone(), &self.name, secrets)
    }

    /// Returns the state and the counts.
    pub fn status(&self) -> ClusterStatus {
        self.state.status.status()
    }

    /// Checks that the store can be used, and returns the number of processes of the cluster,
    /// without the calling one.
    ///
    /// # Errors
    /// If the store is away, or refuses a call.
    pub fn check(&self) -> Result<u32, StoreError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| StoreError::Away(error.to_string()))?;
        runtime.block_on(self.store.check())
    }
}

async fn exchange_limits(store: &RedisStore, state: &ClusterState) {
    let mut exchange = RateExchange::new(store.counters(), state.status.clone());
    loop {
        exchange.add(std::mem::take(&mut lock(&state.new_limits)));
        let pause = exchange.turn().await;
        sleep(pause).await;
    }
}

async fn publish_all(store: &RedisStore, queue: mpsc::Receiver<Outgoing>, state: &ClusterState) {
    message_exchange::publish(store.publisher(), queue, state.status.clone()).await;
    // The end of the queue is not the end of the other tasks.
    std::future::pending::<()>().await;
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does not show the keys.
impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("status", &self.status()).finish_non_exhaustive()
    }
}
