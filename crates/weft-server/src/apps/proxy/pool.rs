//! The connections of one worker to one upstream: those in use are counted, others kept.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::failure::Failure;
use super::settings::Settings;
use super::upload::RequestBody;
use super::upstream::Upstream;

/// The mutex is a worker's own, as nobody but bodies that went to another thread shares it.
pub(super) struct Pool {
    pub(super) upstream: Arc<Upstream>,
    settings: Arc<Settings>,
    /// One for each connection that may be in use. As a new one is made only where none is idle,
    /// all of them together are not more.
    places: Arc<Semaphore>,
    waiting: AtomicUsize,
    idle: Mutex<Idle>,
}

#[derive(Default)]
struct Idle {
    /// The one that was used last is taken first, so that those which are too many grow old.
    connections: Vec<(Connection, Instant)>,
    /// A task looks for those that are too old.
    is_swept: bool,
}

/// A connection that hyper drives in a task of its own. It closes with the value.
struct Connection {
    sender: SendRequest<RequestBody>,
    task: AbortHandle,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A connection that a request has for itself. It closes with the lease, unless it is
/// [given back](Lease::give_back).
pub(super) struct Lease {
    connection: Connection,
    pool: Arc<Pool>,
    place: OwnedSemaphorePermit,
    /// Whether it has served before: the upstream may have closed it in the meantime, which is
    /// not its fault.
    pub(super) is_reused: bool,
}

impl Pool {
    pub(super) fn new(upstream: Arc<Upstream>, settings: Arc<Settings>) -> Arc<Pool> {
        let places = Arc::new(Semaphore::new(settings.max_connections.min(Semaphore::MAX_PERMITS)));
        let (waiting, idle) = (AtomicUsize::new(0), Mutex::default());
        Arc::new(Pool { upstream, settings, places, waiting, idle })
    }

    /// How many requests are there or wait.
    pub(super) fn load(&self) -> usize {
        let in_use = self.settings.max_connections.saturating_sub(self.places.available_permits());
        in_use + self.waiting.load(Relaxed)
    }

    /// Whether a request would have to wait.
    pub(super) fn is_full(&self) -> bool {
        self.places.available_permits() == 0
    }

    /// A connection: one that is kept, unless it is to be `fresh`.
    pub(super) async fn lease(self: &Arc<Pool>, fresh: bool) -> Result<Lease, Failure> {
        let place = match self.places.clone().try_acquire_owned() {
            Ok(place) => place,
            Err(_) => self.queue().await?,
        };
        if fresh {
            // One that is kept makes room for it, so that all together stay within the limit.
            drop(self.idle().connections.pop());
        } else if let Some(connection) = self.take_idle().await {
            return Ok(Lease { connection, pool: self.clone(), place, is_reused: true });
        }
        let connection = self.connect().await?;
        Ok(Lease { connection, pool: self.clone(), place, is_reused: false })
    }

    async fn queue(&self) -> Result<OwnedSemaphorePermit, Failure> {
        if self.waiting.load(Relaxed) >= self.settings.max_queued {
            return Err(Failure::Full);
        }
        let _waiting = Waiting::join(&self.waiting);
        match timeout(self.settings.queue_timeout, self.places.clone().acquire_owned()).await {
            Ok(Ok(place)) => Ok(place),
            Ok(Err(_)) | Err(_) => Err(Failure::Full),
        }
    }

    async fn take_idle(&self) -> Option<Connection> {
        loop {
            let (mut connection, since) = self.idle().connections.pop()?;
            let is_old = since.elapsed() >= self.settings.keep_alive_timeout;
            if is_old || connection.sender.is_closed() {
                continue;
            }
            if connection.sender.is_ready() {
                return Some(connection);
            }
            // The task that drives it has not had its turn since the last response.
            let ready = timeout(self.settings.connect_timeout, connection.sender.ready());
            if let Ok(Ok(())) = ready.await {
                return Some(connection);
            }
        }
    }

    async fn connect(&self) -> Result<Connection, Failure> {
        let stream = self.upstream.connect(self.settings.connect_timeout).await;
        let stream = stream.map_err(Failure::Unreachable)?;
        let mut builder = Builder::new();
        builder.max_buf_size(self.settings.max_response_head_bytes);
        builder.max_header_size(self.settings.max_response_head_bytes);
        let shaken = builder.handshake::<_, RequestBody>(TokioIo::new(stream)).await;
        let (sender, driver) = shaken.map_err(Failure::BadAnswer)?;
        // What goes wrong is told to the request.
        let task = tokio::spawn(async move { drop(driver.with_upgrades().await) });
        Ok(Connection { sender, task: task.abort_handle() })
    }

    fn keep(self: &Arc<Pool>, connection: Connection) {
        if connection.sender.is_closed() {
            return;
        }
        let mut idle = self.idle();
        if idle.connections.len() < self.settings.max_idle_connections {
            idle.connections.push((connection, Instant::now()));
            if !idle.is_swept
                && let Ok(runtime) = tokio::runtime::Handle::try_current()
            {
                idle.is_swept = true;
                let period = self.settings.keep_alive_timeout / 4;
                let period = period.clamp(LEAST_PERIOD, MOST_PERIOD);
                runtime.spawn(sweep(Arc::downgrade(self), period));
            }
        }
    }

    fn idle(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const LEAST_PERIOD: Duration = Duration::from_millis(10);
const MOST_PERIOD: Duration = Duration::from_secs(60);

/// Closes connections that have not been used for too long, until none is left.
async fn sweep(pool: Weak<Pool>, period: Duration) {
    loop {
        tokio::time::sleep(period).await;
        let Some(pool) = pool.upgrade() else { return };
        let most = pool.settings.keep_alive_timeout;
        let mut idle = pool.idle();
        idle.connections
            .retain(|(connection, since)| !connection.sender.is_closed() && since.elapsed() < most);
        if idle.connections.is_empty() {
            idle.is_swept = false;
            return;
        }
    }
}

/// One of those who wait.
struct Waiting<'a>(&'a AtomicUsize);

impl Waiting<'_> {
    fn join(count: &AtomicUsize) -> Waiting<'_> {
        count.fetch_add(1, Relaxed);
        Waiting(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Lease {
    pub(super) fn sender(&mut self) -> &mut SendRequest<RequestBody> {
        &mut self.connection.sender
    }

    pub(super) fn upstream(&self) -> &Upstream {
        &self.pool.upstream
    }

    /// Request and response are through: the next request may have the connection.
    pub(super) fn give_back(self) {
        let Lease { connection, pool, place, .. } = self;
        pool.keep(connection);
        drop(place);
    }
}
