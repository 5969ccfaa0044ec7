//! The idle connections of one worker to one upstream, and spare buffers.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::BytesMut;

use crate::connect::upstream::Upstream;
use crate::connect::upstream_connection::{INPUT_BYTES, UpstreamConnection};
use crate::settings::proxy_settings::ProxySettings;

/// Idle connections of a worker. Their mutex is uncontended: only bodies that moved to another
/// thread share it.
pub(crate) struct IdleConnections {
    pub(crate) upstream: Arc<Upstream>,
    pub(crate) settings: Arc<ProxySettings>,
    idle: Mutex<Idle>,
}

#[derive(Default)]
struct Idle {
    /// Used as a stack: the most recently used connection is taken first, so that surplus
    /// connections expire.
    connections: Vec<(Box<UpstreamConnection>, Instant)>,
    /// Spare buffers: a connection that is idle or waited for owns none.
    spare_inputs: Vec<BytesMut>,
    spare_outputs: Vec<Vec<u8>>,
    /// The task that closes expired connections is running.
    is_sweeper_running: bool,
}

/// Maximum number of input buffers kept for reuse, and of output buffers.
const MAX_SPARE_BUFFERS: usize = 16;

/// Maximum capacity of an output buffer kept for reuse, in bytes. Nearly all heads of requests fit.
const MAX_SPARE_OUTPUT_BYTES: usize = 8 << 10;

const MIN_SWEEP_PERIOD: Duration = Duration::from_millis(10);
const MAX_SWEEP_PERIOD: Duration = Duration::from_secs(60);

impl IdleConnections {
    pub(crate) fn new(
        upstream: Arc<Upstream>,
        settings: Arc<ProxySettings>,
    ) -> Arc<IdleConnections> {
        Arc::new(IdleConnections { upstream, settings, idle: Mutex::default() })
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().connections.len()
    }

    /// Takes the connection that was used last, if it is usable.
    pub(crate) fn take(&self) -> Option<Box<UpstreamConnection>> {
        let now = Instant::now();
        self.upstream.refresh_addresses(now);
        let mut idle = self.lock();
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

    /// Closes the connection that was used last.
    pub(crate) fn close_one(&self) {
        drop(self.lock().connections.pop());
    }

    /// Keeps a connection whose request and response are complete.
    pub(crate) fn put(self: &Arc<Self>, mut connection: Box<UpstreamConnection>) {
        let mut idle = self.lock();
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

    /// Reads once from a connection, as [`poll_fill`](UpstreamConnection::poll_fill), into a spare
    /// buffer. While nothing is received, empty buffers of the connection are spare.
    pub(crate) fn poll_fill(
        &self,
        connection: &mut UpstreamConnection,
        cx: &mut Context<'_>,
        min_bytes: usize,
        max_bytes: usize,
    ) -> Poll<io::Result<usize>> {
        // Locked once for both: nothing else waits for the lock meanwhile, as a rule.
        let mut idle = self.lock();
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

    /// Returns true if an idle connection may be used again.
    fn may_keep(&self, connection: &mut UpstreamConnection, idle_time: Duration) -> bool {
        let limit = connection.idle_limit.unwrap_or(Duration::MAX);
        idle_time < limit.min(self.settings.keep_alive_timeout)
            && self.leads_to_upstream(connection)
            && connection.is_reusable()
    }

    /// Returns false for a connection to an address that the name of the upstream does not have any
    /// more.
    fn leads_to_upstream(&self, connection: &mut UpstreamConnection) -> bool {
        self.upstream.has_address(connection.address, &mut connection.compared_at)
    }

    fn lock(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Idle {
    /// Takes the empty buffers of a connection for reuse. Parts of an input buffer may be shared
    /// with responses. Its full capacity is available again when these are dropped.
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

/// Closes connections that have been idle too long or were closed by the upstream. Ends when no
/// idle connection remains.
async fn sweep(connections: Weak<IdleConnections>, period: Duration) {
    loop {
        tokio::time::sleep(period).await;
        let Some(connections) = connections.upgrade() else { return };
        let (now, mut idle) = (Instant::now(), connections.lock());
        idle.connections.retain_mut(|(connection, since)| {
            connections.may_keep(connection, now.saturating_duration_since(*since))
        });
        if idle.connections.is_empty() {
            *idle = Idle::default();
            return;
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
