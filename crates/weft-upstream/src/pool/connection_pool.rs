//! Connections of one worker to one upstream: leased to requests, or idle.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use futures_util::future::{Either, ready};

use super::upstream_metrics::UpstreamMetrics;
use crate::base::counter::Histogram;
use crate::connect::upstream::Upstream;
use crate::connect::upstream_connection::{INPUT_BYTES, UpstreamConnection};
use crate::gateway_error::GatewayError;
use crate::pool::shared_connection::StreamLease;
use crate::pool::shared_connections::Acquired;
use crate::pool::shared_connections::Connections;
use crate::settings::proxy_settings::ProxySettings;
use crate::url::http_version::HttpVersion;
use weft::client_limit::{Client, ClientLimit, ClientLimitSettings, ClientPermit};

/// The pool of a worker. Its mutex is uncontended: only bodies that moved to another thread share
/// it.
pub(crate) struct Pool {
    pub(crate) upstream: Arc<Upstream>,
    /// Host and port of the upstream, or the path of its socket.
    pub(crate) upstream_name: Arc<str>,
    settings: Arc<ProxySettings>,
    /// Limit on the connections in use. A new connection is opened only if none is idle, so this
    /// also limits the total.
    limit: ClientLimit,
    idle: Mutex<Idle>,
    pub(crate) http2: Arc<Connections>,
    /// Times to establish a connection, with its handshakes.
    pub(crate) connect_times: Arc<Histogram>,
    /// Metrics, if they are collected.
    pub(crate) metrics: OnceLock<UpstreamMetrics>,
}

#[derive(Default)]
struct Idle {
    /// Used as a stack: the most recently used connection is taken first, so that surplus ones
    /// expire.
    connections: Vec<(Box<UpstreamConnection>, Instant)>,
    /// Spare buffers: a connection that is idle or waited for owns none.
    spare_inputs: Vec<BytesMut>,
    spare_outputs: Vec<Vec<u8>>,
    /// The task that closes expired connections is running.
    is_sweeper_running: bool,
}

/// A connection leased to one request. Dropping the lease closes the connection, unless it is
/// [returned](Lease::return_to_pool).
pub(crate) struct Lease {
    pub(crate) connection: Box<UpstreamConnection>,
    slot: PoolSlot,
    /// The connection has served a request before: the upstream may have closed it since, which
    /// does not count as a failure.
    pub(crate) is_reused: bool,
}

/// The means to send one request.
pub(crate) enum Leased {
    /// A connection of HTTP/1.1 or FastCGI.
    Connection(Lease),
    /// A stream of HTTP/2.
    Stream(Box<StreamLease>),
}

/// The right to use one connection of a pool, or one stream; ends on drop.
pub(crate) struct PoolSlot {
    pool: Arc<Pool>,
    _permit: ClientPermit,
}

impl Drop for PoolSlot {
    fn drop(&mut self) {
        self.pool.upstream.health.end_probe();
    }
}

impl Pool {
    /// Creates a pool of at most `max_connections`; `None`: the number in the settings.
    pub(crate) fn new(
        upstream: Arc<Upstream>,
        max_connections: Option<usize>,
        settings: Arc<ProxySettings>,
    ) -> Arc<Pool> {
        let limit = ClientLimit::new(ClientLimitSettings {
            max_per_client: settings.max_connections_per_client,
            max_queued: settings.max_queued,
            queue_timeout: settings.queue_timeout,
            ..ClientLimitSettings::new(match upstream.http_version {
                HttpVersion::Http2 => settings.max_http2_connections * settings.max_streams,
                HttpVersion::Http1 | HttpVersion::Negotiated => {
                    max_connections.unwrap_or(settings.max_connections)
                }
            })
        });
        let (idle, metrics) = (Mutex::default(), OnceLock::new());
        let upstream_name = upstream.url.location().into();
        let connect_times = Arc::<Histogram>::default();
        let http2 = Connections::new(upstream.clone(), settings.clone(), connect_times.clone());
        Arc::new(Pool {
            upstream,
            upstream_name,
            settings,
            limit,
            idle,
            http2,
            connect_times,
            metrics,
        })
    }

    /// Requests in progress or queued.
    pub(crate) fn load(&self) -> usize {
        self.limit.load() + self.http2.waiting()
    }

    /// Requests in progress.
    fn in_use(&self) -> usize {
        self.limit.in_use()
    }

    /// Number of connections in use or being opened, and of idle ones.
    pub(crate) fn connection_counts(&self) -> (usize, usize) {
        let (in_use, idle) = self.http2.counts();
        match self.upstream.http_version {
            HttpVersion::Http2 => (in_use, idle),
            _ if in_use > 0 => (in_use, idle),
            _ => (self.in_use(), idle + self.idle().connections.len()),
        }
    }

    /// Requests that wait for a connection or a stream.
    pub(crate) fn queued(&self) -> usize {
        self.limit.queued() + self.http2.waiting()
    }

    /// Returns true if a request would have to wait.
    pub(crate) fn is_full(&self) -> bool {
        self.limit.is_full()
    }

    /// Leases a connection to a client: an idle one, unless `force_new` is set, or else a new one. Over
    /// HTTP/2, it is a stream of one. Adds the time of the wait for others to `queue_time`, also if there
    /// is no connection in the end.
    pub(crate) fn lease(
        self: &Arc<Pool>,
        client: Option<Client>,
        force_new: bool,
        queue_time: &mut Duration,
    ) -> impl Future<Output = Result<Leased, GatewayError>> {
        let permit = self.limit.try_acquire(client);
        let may_take_idle = permit.is_some() && !force_new && !self.http2.is_expected();
        let idle = if may_take_idle { self.take_idle() } else { None };
        match (permit, idle) {
            (Some(permit), Some(connection)) => {
                let slot = PoolSlot { pool: self.clone(), _permit: permit };
                let lease = Lease { connection, slot, is_reused: true };
                Either::Left(ready(Ok(Leased::Connection(lease))))
            }
            // Boxed: the future is large and rarely needed.
            (permit, _) => {
                Either::Right(Box::pin(self.wait_for_lease(client, permit, force_new, queue_time)))
            }
        }
    }

    /// Leases a connection that is not available at once. `permit` is the right to one, if there is a
    /// free one.
    async fn wait_for_lease(
        self: &Arc<Pool>,
        client: Option<Client>,
        mut permit: Option<ClientPermit>,
        force_new: bool,
        queue_time: &mut Duration,
    ) -> Result<Leased, GatewayError> {
        if permit.is_none() {
            let since = Instant::now();
            // Boxed: the future is large and rarely needed.
            permit = Box::pin(self.limit.acquire(client)).await;
            *queue_time += since.elapsed();
        }
        let permit = permit.ok_or(GatewayError::Overloaded("too many requests in progress"))?;
        let slot = PoolSlot { pool: self.clone(), _permit: permit };
        if self.http2.is_expected() {
            let acquired = Box::pin(self.http2.acquire(queue_time)).await;
            return acquired.map(|acquired| leased(acquired, slot));
        }
        if force_new {
            // Closes an idle connection to keep the total within the limit.
            drop(self.idle().connections.pop());
        } else if let Some(connection) = self.take_idle() {
            return Ok(Leased::Connection(Lease { connection, slot, is_reused: true }));
        }
        let since = Instant::now();
        let connection = Box::pin(self.upstream.connect(self.settings.connect_timeout)).await;
        let connection = connection.map_err(GatewayError::from_connect_error)?;
        self.connect_times.observe(since.elapsed());
        if connection.has_negotiated_http2 {
            // The upstream has changed since the last connection.
            let acquired = Box::pin(self.http2.adopt(connection, queue_time)).await;
            return acquired.map(|acquired| leased(acquired, slot));
        }
        Ok(leased(Acquired::Http1(connection), slot))
    }

    fn take_idle(&self) -> Option<Box<UpstreamConnection>> {
        let now = Instant::now();
        self.upstream.refresh_addresses(now);
        let mut idle = self.idle();
        loop {
            let (mut connection, since) = idle.connections.pop()?;
            if self.may_keep(&mut connection, now.saturating_duration_since(since)) {
                if let Some(buffer) = idle.spare_outputs.pop() {
                    connection.output.set_storage(buffer);
                }
                connection.leased_at = Some(now);
                return Some(connection);
            }
        }
    }

    /// Returns true if an idle connection may be used again.
    fn may_keep(&self, connection: &mut UpstreamConnection, idle_time: Duration) -> bool {
        idle_time < max_idle_time(&self.settings, connection)
            && self.leads_to_upstream(connection)
            && connection.is_reusable()
    }

    /// Returns false for a connection to an address that the name of the upstream does not have any more.
    fn leads_to_upstream(&self, connection: &mut UpstreamConnection) -> bool {
        self.upstream.has_address(connection.address, &mut connection.compared_at)
    }

    fn put_idle(self: &Arc<Pool>, mut connection: Box<UpstreamConnection>) {
        let mut idle = self.idle();
        let has_place = idle.connections.len() < self.settings.max_idle_connections;
        if !has_place || !self.leads_to_upstream(&mut connection) {
            return;
        }
        idle.keep_buffers(&mut connection);
        idle.connections.push((connection, Instant::now()));
        if !idle.is_sweeper_running
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            idle.is_sweeper_running = true;
            let period = self.settings.keep_alive_timeout / 4;
            let period = period.clamp(MIN_SWEEP_PERIOD, MAX_SWEEP_PERIOD);
            runtime.spawn(sweep(Arc::downgrade(self), period));
        }
    }

    fn idle(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Idle {
    /// Takes the empty buffers of a connection for reuse. Parts of an input buffer may be shared with
    /// responses; its full capacity is available again when they are dropped.
    fn keep_buffers(&mut self, connection: &mut UpstreamConnection) {
        if connection.input.is_empty() {
            let buffer = std::mem::take(&mut connection.input);
            if self.spare_inputs.len() < MAX_SPARE_BUFFERS && buffer.capacity() <= INPUT_BYTES {
                self.spare_inputs.push(buffer);
            }
        }
        if connection.output.is_empty() {
            let buffer = connection.output.take_storage();
            let is_kept = (1..=MAX_SPARE_OUTPUT_BYTES).contains(&buffer.capacity());
            if is_kept && self.spare_outputs.len() < MAX_SPARE_BUFFERS {
                self.spare_outputs.push(buffer);
            }
        }
    }
}

/// Returns the time for which a connection is kept while it is idle.
fn max_idle_time(settings: &ProxySettings, connection: &UpstreamConnection) -> Duration {
    let limit = connection.idle_limit.unwrap_or(Duration::MAX);
    limit.min(settings.keep_alive_timeout)
}

fn leased(acquired: Acquired, slot: PoolSlot) -> Leased {
    match acquired {
        Acquired::Stream(stream) => Leased::Stream(Box::new(stream.with_slot(slot))),
        Acquired::Http1(connection) => {
            let connection = Box::new(connection);
            Leased::Connection(Lease { connection, slot, is_reused: false })
        }
    }
}

/// Maximum number of input buffers kept for reuse, and of output buffers.
const MAX_SPARE_BUFFERS: usize = 16;

/// Maximum capacity of an output buffer kept for reuse, in bytes. Nearly all heads of requests fit.
const MAX_SPARE_OUTPUT_BYTES: usize = 8 << 10;

const MIN_SWEEP_PERIOD: Duration = Duration::from_millis(10);
const MAX_SWEEP_PERIOD: Duration = Duration::from_secs(60);

/// Closes connections that have been idle too long or were closed by the upstream; ends when no
/// idle connection remains.
async fn sweep(pool: Weak<Pool>, period: Duration) {
    loop {
        tokio::time::sleep(period).await;
        let Some(pool) = pool.upgrade() else { return };
        let (now, mut idle) = (Instant::now(), pool.idle());
        idle.connections.retain_mut(|(connection, since)| {
            pool.may_keep(connection, now.saturating_duration_since(*since))
        });
        if idle.connections.is_empty() {
            *idle = Idle::default();
            return;
        }
    }
}

impl Lease {
    pub(crate) fn upstream(&self) -> &Arc<Upstream> {
        &self.slot.pool.upstream
    }

    /// Reads once, as [`poll_fill`](UpstreamConnection::poll_fill) of the connection, into a buffer of
    /// the pool. While nothing is received, the pool has the buffers that are empty.
    pub(crate) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        min_bytes: usize,
        max_bytes: usize,
    ) -> Poll<io::Result<usize>> {
        let Lease { connection, slot, .. } = self;
        // Locked once for both: nothing else waits for the pool meanwhile, as a rule.
        let mut idle = slot.pool.idle();
        if connection.input.capacity() == 0
            && let Some(buffer) = idle.spare_inputs.pop()
        {
            connection.input = buffer;
        }
        let filled = connection.poll_fill(cx, min_bytes, max_bytes);
        if filled.is_pending() {
            idle.keep_buffers(connection);
        }
        filled
    }

    /// Returns the connection for the next request after request and response are complete. It is
    /// closed instead if unread input or unsent output remains.
    pub(crate) fn return_to_pool(self) {
        let Lease { mut connection, slot, .. } = self;
        if connection.is_drained() {
            connection.timer.stop();
            slot.pool.put_idle(connection);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_few_and_small_buffers() {
        let mut idle = Idle::default();
        let (stream, _peer) = tokio::io::duplex(1);
        let mut connection = UpstreamConnection::new(Box::new(stream), None);
        let mut keep = |input_bytes, output_bytes| {
            connection.input = BytesMut::with_capacity(input_bytes);
            connection.output.set_storage(Vec::with_capacity(output_bytes));
            idle.keep_buffers(&mut connection);
            assert_eq!((connection.input.capacity(), connection.output.tail().capacity()), (0, 0));
            (idle.spare_inputs.len(), idle.spare_outputs.len())
        };
        assert_eq!(keep(INPUT_BYTES, MAX_SPARE_OUTPUT_BYTES), (1, 1));
        assert_eq!(keep(INPUT_BYTES + 1, MAX_SPARE_OUTPUT_BYTES + 1), (1, 1));
        assert_eq!((0..100).map(|_| keep(1_000, 1_000)).last(), Some((16, 16)));
        connection.input = BytesMut::from("input");
        connection.output.tail().extend_from_slice(b"output");
        idle.keep_buffers(&mut connection);
        assert_eq!(
            (&*connection.input, &**connection.output.tail()),
            (&b"input"[..], &b"output"[..])
        );
    }
}
