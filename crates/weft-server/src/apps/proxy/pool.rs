//! The connections of one worker to one upstream: those in use are counted, others kept.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::failure::Failure;
use super::settings::Settings;
use super::traffic::Traffic;
use super::upstream::Upstream;
use super::wire::{INPUT_BYTES, Wire};

/// The mutex is a worker's own, as nobody but bodies that went to another thread shares it.
pub(super) struct Pool {
    pub(super) upstream: Arc<Upstream>,
    settings: Arc<Settings>,
    /// One for each connection that may be in use. As a new one is made only where none is idle,
    /// all of them together are not more.
    places: Semaphore,
    waiting: AtomicUsize,
    idle: Mutex<Idle>,
    /// What is counted, if anybody counts.
    pub(super) traffic: OnceLock<Traffic>,
}

#[derive(Default)]
struct Idle {
    /// The one that was used last is taken first, so that those which are too many grow old.
    connections: Vec<(Box<Wire>, Instant)>,
    /// An idle connection owns no buffer.
    buffers: Vec<BytesMut>,
    /// A task looks for those that are too old.
    is_swept: bool,
}

/// A connection that a request has for itself. It closes with the lease, unless it is
/// [given back](Lease::give_back).
pub(super) struct Lease {
    pub(super) wire: Box<Wire>,
    place: Place,
    /// Whether it has served before: the upstream may have closed it in the meantime, which is
    /// not its fault.
    pub(super) is_reused: bool,
}

/// The right to have a connection.
struct Place(Arc<Pool>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.places.add_permits(1);
    }
}

impl Pool {
    pub(super) fn new(upstream: Arc<Upstream>, settings: Arc<Settings>) -> Arc<Pool> {
        let places = Semaphore::new(settings.max_connections.min(Semaphore::MAX_PERMITS));
        let (waiting, idle) = (AtomicUsize::new(0), Mutex::default());
        let traffic = OnceLock::new();
        Arc::new(Pool { upstream, settings, places, waiting, idle, traffic })
    }

    /// How many requests are there or wait.
    pub(super) fn load(&self) -> usize {
        self.in_use() + self.queued()
    }

    /// How many connections are in use or being made.
    pub(super) fn in_use(&self) -> usize {
        self.settings.max_connections.saturating_sub(self.places.available_permits())
    }

    /// How many connections are kept.
    pub(super) fn idle_count(&self) -> usize {
        self.idle().connections.len()
    }

    /// How many requests wait.
    pub(super) fn queued(&self) -> usize {
        self.waiting.load(Relaxed)
    }

    /// Whether a request would have to wait.
    pub(super) fn is_full(&self) -> bool {
        self.places.available_permits() == 0
    }

    /// A connection: one that is kept, unless it is to be `fresh`.
    pub(super) async fn lease(self: &Arc<Pool>, fresh: bool) -> Result<Lease, Failure> {
        match self.places.try_acquire() {
            Ok(place) => place.forget(),
            // Boxed, as what is not done at once is large and rare.
            Err(_) => Box::pin(self.queue()).await?,
        }
        let place = Place(self.clone());
        if fresh {
            // One that is kept makes room for it, so that all together stay within the limit.
            drop(self.idle().connections.pop());
        } else if let Some(wire) = self.take_idle() {
            return Ok(Lease { wire, place, is_reused: true });
        }
        let wire = Box::pin(self.upstream.connect(self.settings.connect_timeout)).await;
        let wire = Box::new(wire.map_err(Failure::of_connecting)?);
        Ok(Lease { wire, place, is_reused: false })
    }

    /// Waits for a place, and takes it.
    async fn queue(&self) -> Result<(), Failure> {
        if self.waiting.load(Relaxed) >= self.settings.max_queued {
            return Err(Failure::Full);
        }
        let _waiting = Waiting::join(&self.waiting);
        match timeout(self.settings.queue_timeout, self.places.acquire()).await {
            Ok(Ok(place)) => {
                place.forget();
                Ok(())
            }
            Ok(Err(_)) | Err(_) => Err(Failure::Full),
        }
    }

    fn take_idle(&self) -> Option<Box<Wire>> {
        let mut idle = self.idle();
        loop {
            let (mut wire, since) = idle.connections.pop()?;
            if since.elapsed() < self.settings.keep_alive_timeout && wire.is_quiet() {
                wire.input = idle.buffers.pop().unwrap_or_default();
                return Some(wire);
            }
        }
    }

    fn keep(self: &Arc<Pool>, mut wire: Box<Wire>) {
        let mut idle = self.idle();
        if idle.connections.len() >= self.settings.max_idle_connections {
            return;
        }
        // What is left of it, if responses have parts of it, is whole again when they are sent.
        let buffer = std::mem::take(&mut wire.input);
        if idle.buffers.len() < MOST_BUFFERS && buffer.capacity() <= INPUT_BYTES {
            idle.buffers.push(buffer);
        }
        idle.connections.push((wire, Instant::now()));
        if !idle.is_swept
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            idle.is_swept = true;
            let period = self.settings.keep_alive_timeout / 4;
            let period = period.clamp(LEAST_PERIOD, MOST_PERIOD);
            runtime.spawn(sweep(Arc::downgrade(self), period));
        }
    }

    fn idle(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many buffers are kept for connections that are taken.
const MOST_BUFFERS: usize = 16;

const LEAST_PERIOD: Duration = Duration::from_millis(10);
const MOST_PERIOD: Duration = Duration::from_secs(60);

/// Closes connections that have not been used for too long or have ended, until none is left.
async fn sweep(pool: Weak<Pool>, period: Duration) {
    loop {
        tokio::time::sleep(period).await;
        let Some(pool) = pool.upgrade() else { return };
        let most = pool.settings.keep_alive_timeout;
        let mut idle = pool.idle();
        idle.connections.retain_mut(|(wire, since)| since.elapsed() < most && wire.is_quiet());
        if idle.connections.is_empty() {
            *idle = Idle::default();
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
    pub(super) fn upstream(&self) -> &Upstream {
        &self.place.0.upstream
    }

    /// Request and response are through: the next request may have the connection, unless
    /// something has come that nobody has asked for, or could not be sent.
    pub(super) fn give_back(self) {
        let Lease { mut wire, place, .. } = self;
        if wire.is_through() {
            wire.clock.stop();
            place.0.keep(wire);
        }
    }
}
