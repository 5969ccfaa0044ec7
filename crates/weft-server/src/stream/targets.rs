//! Upstreams of a stream, and connections to them.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustls::ClientConfig;

use crate::apps::proxy::{
    Balance, Candidate, Check, FailurePolicy, Health, Upstream, UpstreamConnection, UpstreamUrl,
    check, choose,
};

/// Failed connections, one after the other or within the window, after which an upstream is tried
/// last for the down time: the defaults of a proxy route.
const FAILURES: FailurePolicy = FailurePolicy {
    max_failures: 3,
    window: Duration::from_secs(10),
    down_time: Duration::from_secs(10),
};

/// One or more upstreams.
pub(super) struct Targets {
    targets: Vec<Target>,
    balance: Balance,
    /// The upstream with which the next selection begins.
    next: AtomicUsize,
}

struct Target {
    upstream: Arc<Upstream>,
    connections: AtomicUsize,
}

/// A connection to an upstream, which counts until it is dropped.
pub(super) struct TargetConnection<'t> {
    connection: UpstreamConnection,
    target: &'t Target,
}

impl Targets {
    /// # Errors
    /// If an upstream is invalid.
    pub(super) fn new(
        urls: &[UpstreamUrl],
        balance: Balance,
        tls: &Option<Arc<ClientConfig>>,
    ) -> Result<Targets, String> {
        let target = |url: &UpstreamUrl| {
            let upstream = Upstream::new(url.clone(), Health::new(FAILURES, Instant::now()), tls)?;
            Ok(Target { upstream: Arc::new(upstream), connections: AtomicUsize::new(0) })
        };
        let targets = urls.iter().map(target).collect::<Result<_, String>>()?;
        Ok(Targets { targets, balance, next: AtomicUsize::new(0) })
    }

    /// Starts the checks of all upstreams.
    pub(super) fn start_checks(&self, check: &Arc<Check>) {
        for target in &self.targets {
            let upstream = Arc::downgrade(&target.upstream);
            tokio::spawn(check::run(upstream, check.clone(), false));
        }
    }

    /// Connects to one of the upstreams and sends `preface`, after a failure to the next. `None` if none
    /// accepts a connection; the reasons are logged.
    pub(super) async fn connect(
        &self,
        preface: &[u8],
        connect_timeout: Duration,
    ) -> Option<TargetConnection<'_>> {
        let mut tried = Vec::new();
        while let Some(index) = self.choose(&tried) {
            let target = &self.targets[index];
            match target.upstream.connect_with_preface(preface, connect_timeout).await {
                Ok(connection) => {
                    target.upstream.record_success();
                    target.connections.fetch_add(1, Relaxed);
                    return Some(TargetConnection { connection, target });
                }
                Err(error) => {
                    target.upstream.record_failure(&format!("cannot connect: {error}"));
                    tried.push(index);
                }
            }
        }
        None
    }

    /// Returns the number of an upstream that was not tried, and whose checks pass. Those that rest are
    /// tried last.
    fn choose(&self, tried: &[usize]) -> Option<usize> {
        let now = Instant::now();
        let candidate = |index: usize| {
            let target = &self.targets[index];
            Candidate {
                is_up: !tried.contains(&index) && !target.upstream.health.is_unhealthy(),
                was_tried: target.upstream.health.is_resting(now),
                is_full: false,
                load: target.connections.load(Relaxed),
            }
        };
        let (count, next) = (self.targets.len(), self.next.load(Relaxed));
        let chosen = choose(self.balance, count, next, candidate)?;
        self.next.store((chosen + 1) % count, Relaxed);
        Some(chosen)
    }
}

impl fmt::Display for Targets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<_> = self.targets.iter().map(|it| it.upstream.to_string()).collect();
        f.write_str(&all.join(" "))
    }
}

impl TargetConnection<'_> {
    pub(super) fn upstream(&self) -> &Upstream {
        &self.target.upstream
    }
}

impl Deref for TargetConnection<'_> {
    type Target = UpstreamConnection;

    fn deref(&self) -> &UpstreamConnection {
        &self.connection
    }
}

impl DerefMut for TargetConnection<'_> {
    fn deref_mut(&mut self) -> &mut UpstreamConnection {
        &mut self.connection
    }
}

impl Drop for TargetConnection<'_> {
    fn drop(&mut self) {
        self.target.connections.fetch_sub(1, Relaxed);
    }
}
