//! Upstreams of a stream, and connections to them.

use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustls::ClientConfig;
use tokio::net::UdpSocket;

use super::metrics::{TargetMetrics, TargetReport};
use crate::apps::proxy::{
    Availability, Balancer, Candidate, Check, FailurePolicy, Health, Upstream, UpstreamConnection,
    UpstreamMember, UpstreamReport, check,
};
use crate::base::rendezvous::hash;
use crate::base::throttled_log::ThrottledWarning;
use crate::config::StreamSettings;

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
    /// Threads share the selection: one of them chooses and counts its connection before another
    /// one chooses.
    balancer: Mutex<Balancer>,
    full_warning: ThrottledWarning,
}

struct Target {
    upstream: Arc<Upstream>,
    /// Maximum number of open connections; `None`: no limit of its own.
    max_connections: Option<usize>,
    /// Number of open connections, and of those being opened.
    connections: AtomicUsize,
    metrics: TargetMetrics,
}

/// The right to one connection of an upstream. It counts until it is dropped.
struct TargetSlot<'t> {
    index: usize,
    target: &'t Target,
}

/// A connection to an upstream, which counts until it is dropped.
pub(crate) struct TargetConnection<'t, C> {
    connection: C,
    slot: TargetSlot<'t>,
    start: Instant,
}

impl Targets {
    /// # Errors
    /// If an upstream is invalid.
    pub(crate) fn new(
        members: &[UpstreamMember],
        settings: &StreamSettings,
        tls: &Option<Arc<ClientConfig>>,
    ) -> Result<Targets, String> {
        let target = |member: &UpstreamMember| {
            let health = Health::new(FAILURES, Instant::now());
            let upstream = Upstream::new(member.url.clone(), health, tls)?;
            let upstream = upstream.with_weight(member.weight).with_dns(&settings.dns);
            let upstream = Arc::new(upstream);
            let max_connections = member.max_connections;
            let (connections, metrics) = Default::default();
            Ok(Target { upstream, max_connections, connections, metrics })
        };
        let targets = members.iter().map(target).collect::<Result<_, String>>()?;
        let shares = members.iter().map(UpstreamMember::share).collect();
        let balancer = Mutex::new(Balancer::new(settings.balance, shares, 0));
        Ok(Targets { targets, balancer, full_warning: ThrottledWarning::default() })
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
        client: IpAddr,
        preface: &[u8],
        connect_timeout: Duration,
    ) -> Option<TargetConnection<'_, UpstreamConnection>> {
        let mut tried = Vec::new();
        while let Some(slot) = self.reserve(client, &tried) {
            let upstream = &slot.target.upstream;
            match upstream.connect_with_preface(preface, connect_timeout).await {
                Ok(connection) => {
                    upstream.record_success();
                    return Some(slot.connected(connection));
                }
                Err(error) => {
                    upstream.record_failure(&format!("cannot connect: {error}"));
                    tried.push(slot.index);
                }
            }
        }
        None
    }

    /// Opens a socket for the datagrams of one of the upstreams, after a failure of the next. `None` if
    /// there is none; the reasons are logged.
    pub(crate) async fn connect_datagrams(
        &self,
        client: IpAddr,
        limit: Duration,
    ) -> Option<TargetConnection<'_, UdpSocket>> {
        let mut tried = Vec::new();
        while let Some(slot) = self.reserve(client, &tried) {
            let upstream = &slot.target.upstream;
            match upstream.connect_udp(limit).await {
                Ok(socket) => return Some(slot.connected(socket)),
                Err(error) => {
                    upstream.record_failure(&format!("cannot open a socket for it: {error}"));
                    tried.push(slot.index);
                }
            }
        }
        None
    }

    /// Reports the upstreams, which are selected by a pattern of server names.
    pub(crate) fn report(&self, server_name: &str) -> Vec<TargetReport> {
        let report = |Target { upstream, connections, metrics, .. }: &Target| {
            let UpstreamReport { url, state, weight, failures, .. } = UpstreamReport::new(upstream);
            TargetReport {
                upstream: url,
                server_name: server_name.to_owned(),
                state,
                weight,
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

    /// Chooses an upstream that was not tried, whose checks pass, and that has fewer connections than
    /// its maximum. Those that rest are tried last.
    fn reserve(&self, client: IpAddr, tried: &[usize]) -> Option<TargetSlot<'_>> {
        let now = Instant::now();
        let is_full = |target: &Target| {
            let open = target.connections.load(Relaxed);
            target.max_connections.is_some_and(|max| open >= max)
        };
        let may_connect = |index: usize| {
            !tried.contains(&index) && !self.targets[index].upstream.health.is_unhealthy()
        };
        let candidate = |index: usize| {
            let target = &self.targets[index];
            Candidate {
                is_up: may_connect(index) && !is_full(target),
                was_tried: target.upstream.health.availability(now) == Availability::Resting,
                is_full: false,
                weight: target.upstream.weight(now),
                load: target.connections.load(Relaxed),
            }
        };
        let balancer = self.balancer.lock().unwrap_or_else(PoisonError::into_inner);
        let key = balancer.needs_key().then(|| hash(client.to_canonical().to_string().as_bytes()));
        let Some(index) = balancer.choose(key, candidate) else {
            let mut targets = self.targets.iter().enumerate();
            if targets.any(|(index, target)| may_connect(index) && is_full(target)) {
                self.full_warning.warn(&format!("{self}: `max_connections` of the upstreams"));
            }
            return None;
        };
        let target = &self.targets[index];
        target.connections.fetch_add(1, Relaxed);
        Some(TargetSlot { index, target })
    }
}

impl<'t> TargetSlot<'t> {
    /// Counts an established connection.
    fn connected<C>(self, connection: C) -> TargetConnection<'t, C> {
        self.target.metrics.connections.fetch_add(1, Relaxed);
        TargetConnection { connection, slot: self, start: Instant::now() }
    }
}

impl Drop for TargetSlot<'_> {
    fn drop(&mut self) {
        self.target.connections.fetch_sub(1, Relaxed);
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
        &self.slot.target.upstream
    }

    /// Returns the connection, and the metrics of its upstream.
    pub(crate) fn parts(&mut self) -> (&mut C, &TargetMetrics) {
        (&mut self.connection, &self.slot.target.metrics)
    }
}

impl<C> Drop for TargetConnection<'_, C> {
    fn drop(&mut self) {
        self.slot.target.metrics.record_duration(self.start.elapsed());
    }
}
