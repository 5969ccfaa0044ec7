//! Upstreams of a stream, and connections to them. Those of services in the DNS change meanwhile.

use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustls::ClientConfig;
use tokio::net::UdpSocket;
use weft_upstream::ThrottledWarning;
use weft_upstream::rendezvous::hash;
use weft_upstream::{
    BalanceCandidate, BalancePolicy, Balancer, ControlChange, DnsServices, DnsSettings,
    FailurePolicy, HealthCheck, ServiceAnswers, Upstream, UpstreamAvailability, UpstreamConnection,
    UpstreamHealth, UpstreamMember, UpstreamReport, keep_or_open_members, run_checks,
};

use super::metrics::{TargetMetrics, TargetReport};
use crate::sections::streams::StreamSettings;

/// One or more upstreams.
pub(crate) struct Targets {
    /// Members of the configuration.
    members: Vec<UpstreamMember>,
    dns: DnsSettings,
    failures: FailurePolicy,
    balance: BalancePolicy,
    tls: Option<Arc<ClientConfig>>,
    services: DnsServices,
    group: Mutex<Arc<TargetGroup>>,
    /// Set once there are checks.
    check: OnceLock<Arc<HealthCheck>>,
    full_warning: ThrottledWarning,
}

/// The upstreams at one time. A change of services replaces the group; both share their common
/// upstreams.
struct TargetGroup {
    targets: Vec<Arc<Target>>,
    /// Members in the order of `targets`.
    members: Vec<UpstreamMember>,
    /// Answers from which the group was made.
    answers: ServiceAnswers,
    /// Threads share the selection: one of them chooses and counts its connection before another
    /// one chooses.
    balancer: Mutex<Balancer>,
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
struct TargetSlot {
    index: usize,
    target: Arc<Target>,
}

/// A connection to an upstream, which counts until it is dropped.
pub(crate) struct TargetConnection<C> {
    connection: C,
    slot: TargetSlot,
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
        let (services, others) = DnsServices::split(members, &settings.dns);
        let failures = FailurePolicy {
            max_failures: settings.max_failures,
            max_failure_rate: None,
            window: settings.failure_window,
            down_time: settings.down_time,
            slow_start: Duration::ZERO,
        };
        let open = |member: &UpstreamMember| Target::open(member, failures, &settings.dns, tls);
        let targets = others.iter().map(open);
        let targets = targets.collect::<Result<_, String>>()?;
        let (answers, balance) = (services.no_answers(), settings.balance);
        let group = TargetGroup::new(targets, others, answers, balance);
        Ok(Targets {
            members: members.to_vec(),
            dns: settings.dns.clone(),
            failures,
            balance,
            tls: tls.clone(),
            services,
            group: Mutex::new(Arc::new(group)),
            check: OnceLock::new(),
            full_warning: ThrottledWarning::default(),
        })
    }

    /// Starts the checks of all upstreams, also of those that are found later.
    pub(crate) fn start_checks(&self, check: &Arc<HealthCheck>) {
        // Set under the lock, so that those which are found at the same time are not started twice.
        let group = self.lock();
        let check = self.check.get_or_init(|| check.clone());
        group.targets.iter().for_each(|target| target.start_check(check));
    }

    fn lock(&self) -> MutexGuard<'_, Arc<TargetGroup>> {
        self.group.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the upstreams as the DNS has them now.
    async fn resolve(&self, limit: Duration) -> Arc<TargetGroup> {
        if self.services.is_empty() {
            return self.lock().clone();
        }
        // Boxed: few streams have services.
        Box::pin(self.services.resolve(limit)).await;
        let mut group = self.lock();
        let answers = self.services.answers();
        if group.answers != answers {
            *group = Arc::new(self.group_of(&group, answers));
        }
        group.clone()
    }

    /// Makes the group of these answers, with the upstreams that the former group has, too.
    fn group_of(&self, former: &TargetGroup, answers: ServiceAnswers) -> TargetGroup {
        let found = self.services.members(&self.members, &answers);
        let open = |member: &UpstreamMember| {
            Target::open(member, self.failures, &self.dns, &self.tls)
                .inspect(|target| self.check.get().iter().for_each(|it| target.start_check(it)))
        };
        let change_weight = |target: &Arc<Target>, member: &UpstreamMember| {
            target.upstream.change(ControlChange { mode: None, weight: Some(member.weight) });
        };
        let former = (&*former.members, &*former.targets);
        let (members, targets) = keep_or_open_members(found, former, open, change_weight);
        let names: Vec<_> = members.iter().map(ToString::to_string).collect();
        log::info!("the upstreams of a stream are now {}", names.join(" "));
        TargetGroup::new(targets, members, answers, self.balance)
    }

    /// Connects to one of the upstreams and sends `preface`, after a failure to the next. `None` if
    /// none accepts a connection; the reasons are logged.
    pub(crate) async fn connect(
        &self,
        client: IpAddr,
        preface: &[u8],
        connect_timeout: Duration,
    ) -> Option<TargetConnection<UpstreamConnection>> {
        let group = self.resolve(connect_timeout).await;
        let mut tried = Vec::new();
        while let Some(slot) = self.reserve(&group, client, &tried) {
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

    /// Opens a socket for datagrams to one of the upstreams. After a failure, tries the next
    /// upstream. `None` if there is none; the reasons are logged.
    pub(crate) async fn connect_datagrams(
        &self,
        client: IpAddr,
        limit: Duration,
    ) -> Option<TargetConnection<UdpSocket>> {
        let group = self.resolve(limit).await;
        let mut tried = Vec::new();
        while let Some(slot) = self.reserve(&group, client, &tried) {
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
        let report = |target: &Arc<Target>| {
            let Target { upstream, connections, metrics, .. } = &**target;
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
        self.lock().targets.iter().map(report).collect()
    }

    /// Chooses an upstream that was not tried, whose checks pass, and that has fewer connections
    /// than its maximum. Upstreams that are down are tried last.
    fn reserve(&self, group: &TargetGroup, client: IpAddr, tried: &[usize]) -> Option<TargetSlot> {
        let now = Instant::now();
        let is_full = |target: &Target| {
            let open = target.connections.load(Relaxed);
            target.max_connections.is_some_and(|max| open >= max)
        };
        let may_connect = |index: usize| {
            !tried.contains(&index) && !group.targets[index].upstream.health.is_unhealthy()
        };
        let candidate = |index: usize| {
            let target = &group.targets[index];
            BalanceCandidate {
                is_up: may_connect(index) && !is_full(target),
                was_tried: target.upstream.health.availability(now) == UpstreamAvailability::Down,
                is_full: false,
                weight: target.upstream.weight(now),
                load: target.connections.load(Relaxed),
            }
        };
        let balancer = group.balancer.lock().unwrap_or_else(PoisonError::into_inner);
        let key = balancer.needs_key().then(|| hash(client.to_canonical().to_string().as_bytes()));
        let Some(index) = balancer.choose(key, candidate) else {
            let mut targets = group.targets.iter().enumerate();
            if targets.any(|(index, target)| may_connect(index) && is_full(target)) {
                self.full_warning.warn(&format!("{self}: `max_connections` of the upstreams"));
            }
            return None;
        };
        let target = group.targets[index].clone();
        target.connections.fetch_add(1, Relaxed);
        Some(TargetSlot { index, target })
    }
}

impl TargetGroup {
    fn new(
        targets: Vec<Arc<Target>>,
        members: Vec<UpstreamMember>,
        answers: ServiceAnswers,
        balance: BalancePolicy,
    ) -> TargetGroup {
        let shares = members.iter().map(UpstreamMember::share).collect();
        let balancer = Mutex::new(Balancer::new(balance, shares, 0));
        TargetGroup { targets, members, answers, balancer }
    }
}

impl Target {
    fn open(
        member: &UpstreamMember,
        failures: FailurePolicy,
        dns: &DnsSettings,
        tls: &Option<Arc<ClientConfig>>,
    ) -> Result<Arc<Target>, String> {
        let health = UpstreamHealth::new(failures, Instant::now());
        let upstream = Upstream::new(member.url.clone(), health, tls)?;
        let upstream = Arc::new(upstream.with_weight(member.weight).with_dns(dns));
        let max_connections = member.max_connections;
        let (connections, metrics) = Default::default();
        Ok(Arc::new(Target { upstream, max_connections, connections, metrics }))
    }

    fn start_check(&self, check: &Arc<HealthCheck>) {
        tokio::spawn(run_checks(Arc::downgrade(&self.upstream), check.clone(), false));
    }
}

impl TargetSlot {
    /// Counts an established connection.
    fn connected<C>(self, connection: C) -> TargetConnection<C> {
        self.target.metrics.connections.fetch_add(1, Relaxed);
        TargetConnection { connection, slot: self, start: Instant::now() }
    }
}

impl Drop for TargetSlot {
    fn drop(&mut self) {
        self.target.connections.fetch_sub(1, Relaxed);
    }
}

impl fmt::Display for Targets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<_> = self.members.iter().map(|member| member.url.to_string()).collect();
        f.write_str(&all.join(" "))
    }
}

impl<C> TargetConnection<C> {
    pub(crate) fn upstream(&self) -> &Upstream {
        &self.slot.target.upstream
    }

    /// Returns the connection, and the metrics of its upstream.
    pub(crate) fn parts(&mut self) -> (&mut C, &TargetMetrics) {
        (&mut self.connection, &self.slot.target.metrics)
    }
}

impl<C> Drop for TargetConnection<C> {
    fn drop(&mut self) {
        self.slot.target.metrics.record_duration(self.start.elapsed());
    }
}
