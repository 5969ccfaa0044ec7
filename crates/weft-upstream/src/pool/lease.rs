//! Connections and streams that are leased to requests.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use weft::client_limit::ClientPermit;

use super::idle_connections::IdleConnections;
use super::shared_connection::SharedStream;
use crate::connect::upstream::Upstream;
use crate::connect::upstream_connection::UpstreamConnection;

/// A connection or a stream that is leased to one request.
pub(crate) enum Leased {
    /// A connection of HTTP/1.1 or FastCGI.
    Connection(ConnectionLease),
    /// A stream of HTTP/2.
    Stream(Box<StreamLease>),
}

/// A connection leased to one request. Dropping the lease closes the connection, unless it is
/// [returned](ConnectionLease::return_to_pool).
pub(crate) struct ConnectionLease {
    pub(crate) connection: Box<UpstreamConnection>,
    slot: PoolSlot,
    /// The connection has served a request before: the upstream may have closed it since, which
    /// does not count as a failure.
    pub(crate) is_reused: bool,
}

/// A stream of HTTP/2 leased to one request.
pub(crate) struct StreamLease {
    pub(crate) stream: SharedStream,
    slot: PoolSlot,
}

/// The right to use one connection of a pool, or one stream; ends on drop.
pub(crate) struct PoolSlot {
    idle: Arc<IdleConnections>,
    _permit: ClientPermit,
}

impl Drop for PoolSlot {
    fn drop(&mut self) {
        self.idle.upstream.health.end_probe();
    }
}

impl PoolSlot {
    pub(crate) fn new(idle: &Arc<IdleConnections>, permit: ClientPermit) -> PoolSlot {
        PoolSlot { idle: idle.clone(), _permit: permit }
    }

    /// Leases an idle connection, if there is one.
    pub(crate) fn take_idle(self) -> Result<ConnectionLease, PoolSlot> {
        match self.idle.take() {
            Some(connection) => Ok(ConnectionLease { connection, slot: self, is_reused: true }),
            None => Err(self),
        }
    }

    /// Leases a new connection.
    pub(crate) fn lease_connection(self, connection: UpstreamConnection) -> Leased {
        let connection = Box::new(connection);
        Leased::Connection(ConnectionLease { connection, slot: self, is_reused: false })
    }

    /// Leases a stream.
    pub(crate) fn lease_stream(self, stream: SharedStream) -> Leased {
        Leased::Stream(Box::new(StreamLease { stream, slot: self }))
    }
}

impl ConnectionLease {
    pub(crate) fn upstream(&self) -> &Arc<Upstream> {
        &self.slot.idle.upstream
    }

    /// Reads once, as [`poll_fill`](UpstreamConnection::poll_fill) of the connection, into a buffer
    /// of the pool. While nothing is received, the pool has the buffers that are empty.
    pub(crate) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        min_bytes: usize,
        max_bytes: usize,
    ) -> Poll<io::Result<usize>> {
        self.slot.idle.poll_fill(&mut self.connection, cx, min_bytes, max_bytes)
    }

    /// Returns the connection for the next request after request and response are complete. It is
    /// closed instead if unread input or unsent output remains.
    pub(crate) fn return_to_pool(self) {
        let ConnectionLease { mut connection, slot, .. } = self;
        if connection.is_drained() {
            connection.timer.stop();
            slot.idle.put(connection);
        }
    }
}

impl StreamLease {
    pub(crate) fn upstream(&self) -> &Arc<Upstream> {
        &self.slot.idle.upstream
    }
}
