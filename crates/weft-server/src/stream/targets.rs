//! Upstreams of a stream, and connections to them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustls::ClientConfig;
use tokio::net::UdpSocket;

use super::metrics::{TargetMetrics, TargetReport};
use crate::apps::proxy::{
    Availability, Balance, Balancer, Candidate, Check, FailurePolicy, Health, Share, Upstream,
    UpstreamConnection, UpstreamReport, UpstreamUrl, check,
};

/// Failed connections, one after the other or within the window, after which an upstream is tried
/// last for the down time: the defaults of a proxy route.
const FAILURES: FailurePolicy = FailurePolicy {
    max_failures: 3,
    window: Duration::from_secs(10),
    down_time: Duration::from_secs(10),
    slow_start: Duration::ZERO,
};

/// One or more upstreams.
pub(crate) struct Targets {
    targets: Vec<Target>,
    balancer: Balancer,
}

struct Target {
    upstream: Arc<Upstream>,
    /// Number of open connections.
    connections: AtomicUsize,
    metrics: TargetMetrics,
}

/// A connection to an upstream, which counts until it is dropped.
pub(crate) struct TargetConnection<'t, C> {
    connection: C,
    target: &'t Target,
    start: Instant,
}

impl Targets {
    /// # Errors
    /// If an upstream is invalid.
    pub(crate) fn new(
        urls: &[UpstreamUrl],
        balance: Balance,
        tls: &Option<Arc<ClientConfig>>,
    ) -> Result<Targets, String> {
        let target = |url: &UpstreamUrl| {
            let upstream = Upstream::new(url.clone(), Health::new(FAILURES, Instant::now()), tls)?;
            let (connections, metrics) = Default::default();
            Ok(Target { upstream: Arc::new(upstream), connections, metrics })
        };
        let targets = urls.iter().map(target).collect::<Result<_, String>>()?;
        let shares = urls.iter().map(|_| Share { is_backup: false, seed: 0 }).collect();
        Ok(Targets { targets, balancer: Balancer::new(balance, shares, 0) })
    }

    /// Starts the checks of all upstreams.
    pub(crate) fn start_checks(&self, check: &Arc<Check>) {
        for target in &self.targets {
            let upstream = Arc::downgrade(&target.upstream);
            tokio::spawn(check::run(upstream, check.clone(), false));
        }
    }

    /// Connects to one of the upstreams and sends `preface`, after a failure to the next. `None` if none
    /// accepts a connection; the reasons are logged.
    pub(crate) async fn connect(
        &self,
        preface: &[u8],
        connect_timeout: Duration,
    ) -> Option<TargetConnection<'_, UpstreamConnection>> {
        let mut tried = Vec::new();
        while let Some(index) = self.choose(&tried) {
            let target = &self.targets[index];
            match target.upstream.connect_with_preface(preface, connect_timeout).await {
                Ok(connection) => {
                    target.upstream.record_success();
                    return Some(target.connected(connection));
                }
                Err(error) => {
                    target.upstream.record_failure(&format!("cannot connect: {error}"));
                    tried.push(index);
                }
            }
        }
        None
    }

    /// Opens a socket for the datagrams of one of the upstreams, after a failure of the next. `None` if
    /// there is none; the reasons are logged.
    pub(crate) async fn connect_datagrams(
        &self,
        limit: Duration,
    ) -> Option<TargetConnection<'_, UdpSocket>> {
        let mut tried = Vec::new();
        while let Some(index) = self.choose(&tried) {
            let target = &self.targets[index];
            match target.upstream.connect_udp(limit).await {
                Ok(socket) => return Some(target.connected(socket)),
                Err(error) => {
                    target
                        .upstream
                        .record_failure(&format!("cannot open a socket for it: {error}"));
                    tried.push(index);
                }
            }
        }
        None
    }

    /// Reports the upstreams, which are selected by a pattern of server names.
    pub(crate) fn report(&self, server_name: &str) -> Vec<TargetReport> {
        let report = |Target { upstream, connections, metrics }: &Target| {
            let UpstreamReport { url, state, failures, .. } = UpstreamReport::new(upstream);
            TargetReport {
                upstream: url,
                server_name: server_name.to_owned(),
                state,
                connections: metrics.connections.load(Relaxed),
                open: connections.load(Relaxed),
                failures,
                bytes_received: metrics.traffic.received.load(Relaxed),
                bytes_sent: metrics.traffic.sent.load(Relaxed),
                durations: metrics.durations(),
            }
        };
        self.targets.iter().map(report).collect()
    }

    /// Returns the number of an upstream that was not tried, and whose checks pass. Those that rest are
    /// tried last.
    fn choose(&self, tried: &[usize]) -> Option<usize> {
        let now = Instant::now();
        let candidate = |index: usize| {
            let target = &self.targets[index];
            Candidate {
                is_up: !tried.contains(&index) && !target.upstream.health.is_unhealthy(),
                was_tried: target.upstream.health.availability(now) == Availability::Resting,
                is_full: false,
                weight: 1,
                load: target.connections.load(Relaxed),
            }
        };
        self.balancer.choose(None, candidate)
    }
}

impl Target {
    /// Counts a connection.
    fn connected<C>(&self, connection: C) -> TargetConnection<'_, C> {
        self.connections.fetch_add(1, Relaxed);
        self.metrics.connections.fetch_add(1, Relaxed);
        TargetConnection { connection, target: self, start: Instant::now() }
    }
}

impl fmt::Display for Targets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<_> = self.targets.iter().map(|it| it.upstream.to_string()).collect();
        f.write_str(&all.join(" "))
    }
}

impl<C> TargetConnection<'_, C> {
    pub(crate) fn upstream(&self) -> &Upstream {
        &self.target.upstream
    }

    /// Returns the connection, and the metrics of its upstream.
    pub(crate) fn parts(&mut self) -> (&mut C, &TargetMetrics) {
        (&mut self.connection, &self.target.metrics)
    }
}

impl<C> Drop for TargetConnection<'_, C> {
    fn drop(&mut self) {
        self.target.connections.fetch_sub(1, Relaxed);
        self.target.metrics.record_duration(self.start.elapsed());
    }
}
