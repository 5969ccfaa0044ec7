//! Connections of one worker to one upstream: leased to requests, or idle.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use futures_util::future::{Either, ready};
use weft::Request;
use weft::client_limit::{Client, ClientLimit, ClientLimitSettings};

use super::idle_connections::IdleConnections;
use super::lease::{Leased, PoolSlot};
use super::shared_connections::{Acquired, SharedConnections};
use super::upstream_metrics::UpstreamMetrics;
use super::upstream_report::UpstreamReport;
use crate::base::counter::Histogram;
use crate::connect::upstream::Upstream;
use crate::gateway_error::GatewayError;
use crate::settings::proxy_settings::ProxySettings;
use crate::url::http_version::HttpVersion;

/// The pool of a worker.
pub(crate) struct ConnectionPool {
    pub(crate) upstream: Arc<Upstream>,
    /// Host and port of the upstream, or the path of its socket.
    pub(crate) upstream_name: Arc<str>,
    settings: Arc<ProxySettings>,
    /// Limit on the connections in use. A new connection is opened only if none is idle, so this
    /// also limits the total.
    limit: ClientLimit,
    idle: Arc<IdleConnections>,
    http2: Arc<SharedConnections>,
    /// Times to establish a connection, with its handshakes.
    connect_times: Arc<Histogram>,
    /// Metrics, if they are collected.
    pub(crate) metrics: OnceLock<UpstreamMetrics>,
}

impl ConnectionPool {
    /// Creates a pool of at most `max_connections`; `None`: the number in the settings.
    pub(crate) fn new(
        upstream: Arc<Upstream>,
        max_connections: Option<usize>,
        settings: Arc<ProxySettings>,
    ) -> Arc<ConnectionPool> {
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
        let connect_times = Arc::<Histogram>::default();
        let http2 =
            SharedConnections::new(upstream.clone(), settings.clone(), connect_times.clone());
        Arc::new(ConnectionPool {
            upstream_name: upstream.url.location().into(),
            idle: IdleConnections::new(upstream.clone(), settings.clone()),
            metrics: OnceLock::new(),
            upstream,
            settings,
            limit,
            http2,
            connect_times,
        })
    }

    /// Returns the number of requests in progress or queued.
    pub(crate) fn load(&self) -> usize {
        self.limit.load() + self.http2.waiting()
    }

    /// Returns the number of connections in use or being opened, and the number of idle
    /// connections.
    fn connection_counts(&self) -> (usize, usize) {
        let (in_use, idle) = self.http2.counts();
        match self.upstream.http_version {
            HttpVersion::Http2 => (in_use, idle),
            _ if in_use > 0 => (in_use, idle),
            _ => (self.limit.in_use(), idle + self.idle.len()),
        }
    }

    /// Adds the connections and the metrics of this worker.
    pub(crate) fn add_to(&self, report: &mut UpstreamReport) {
        let (in_use, idle) = self.connection_counts();
        report.connections_in_use += in_use;
        report.connections_idle += idle;
        report.queued += self.limit.queued() + self.http2.waiting();
        if let Some(metrics) = self.metrics.get() {
            metrics.add_to(report);
            report.connect_times.add(&self.connect_times);
        }
    }

    /// Returns true if a request would have to wait.
    pub(crate) fn is_full(&self) -> bool {
        self.limit.is_full()
    }

    /// Leases a connection to a request, which counts for `client`: an idle one, unless `force_new`
    /// is set, or else a new one. Over HTTP/2, leases a stream of a connection. Adds the time of
    /// the wait for other requests to `queue_time`, also if there is no connection in the end.
    pub(crate) fn lease(
        self: &Arc<ConnectionPool>,
        request: &Request,
        client: Option<Client>,
        force_new: bool,
        queue_time: &mut Duration,
    ) -> impl Future<Output = Result<Leased, GatewayError>> {
        let slot = self.limit.try_acquire(client).map(|permit| PoolSlot::new(&self.idle, permit));
        let may_take_idle = !force_new && !self.http2.is_expected();
        let slot = match slot {
            Some(slot) if may_take_idle => match slot.take_idle() {
                Ok(lease) => return Either::Left(ready(Ok(Leased::Connection(lease)))),
                Err(slot) => Some(slot),
            },
            slot => slot,
        };
        // Boxed: the future is large and rarely needed.
        let waiting = self.wait_for_lease(request, client, slot, force_new, queue_time);
        Either::Right(Box::pin(waiting))
    }

    /// Leases a connection that is not available at once. `slot` is the right to a connection, if
    /// the limit permits one now.
    async fn wait_for_lease(
        self: &Arc<ConnectionPool>,
        request: &Request,
        client: Option<Client>,
        slot: Option<PoolSlot>,
        force_new: bool,
        queue_time: &mut Duration,
    ) -> Result<Leased, GatewayError> {
        let mut slot = match slot {
            Some(slot) => slot,
            None => {
                let since = Instant::now();
                let half_close = request.half_close();
                let yields = move || half_close.is_detected();
                // Boxed: the future is large and rarely needed.
                let permit = Box::pin(self.limit.acquire_yielding(client, yields)).await;
                *queue_time += since.elapsed();
                let overloaded = GatewayError::Overloaded("too many requests in progress");
                PoolSlot::new(&self.idle, permit.ok_or(overloaded)?)
            }
        };
        if self.http2.is_expected() {
            let acquired = Box::pin(self.http2.acquire(queue_time)).await;
            return acquired.map(|acquired| leased(acquired, slot));
        }
        if force_new {
            // Keeps the total within the limit.
            self.idle.close_one();
        } else {
            slot = match slot.take_idle() {
                Ok(lease) => return Ok(Leased::Connection(lease)),
                Err(slot) => slot,
            };
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
        Ok(slot.lease_connection(connection))
    }
}

fn leased(acquired: Acquired, slot: PoolSlot) -> Leased {
    match acquired {
        Acquired::Stream(stream) => slot.lease_stream(stream),
        Acquired::Http1(connection) => slot.lease_connection(connection),
    }
}
