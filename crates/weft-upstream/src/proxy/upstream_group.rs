//! The upstreams of a proxy: those of its settings, and those of services in the DNS (SRV), which change
//! while the server runs.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use rustls::ClientConfig;

use super::Shared;
use crate::balance::balancer::Balancer;
use crate::balance::sticky::Sticky;
use crate::check::health_check as check;
use crate::connect::upstream::Upstream;
use crate::dns::services::{Answers, Services, keep_or_open};
use crate::health::operator_changes::OperatorChanges;
use crate::health::operator_control::ControlChange;
use crate::health::upstream_health::{FailurePolicy, Health};
use crate::pool::connection_pool::Pool;
use crate::settings::proxy_settings::{Check, ProxySettings};
use crate::url::member::UpstreamMember;

/// Upstreams at one time. A change of services replaces the group; both share their common upstreams, so
/// that connections and health are kept.
pub(crate) struct Group {
    pub(crate) upstreams: Vec<Arc<Upstream>>,
    /// Members in the order of `upstreams`.
    members: Vec<UpstreamMember>,
    /// Answers from which the group was made.
    answers: Answers,
}

/// The current group, and the services on which it depends.
pub(crate) struct Groups {
    settings: Arc<ProxySettings>,
    tls: Option<Arc<ClientConfig>>,
    services: Services,
    current: Mutex<Arc<Group>>,
    /// Changes of the servers of services. They change together with the group.
    changes: OperatorChanges,
    /// Set once there are health checks.
    check: OnceLock<Arc<Check>>,
}

/// The upstreams of one worker, with its connections to them.
pub(crate) struct Members {
    group: Arc<Group>,
    pub(crate) pools: Vec<Arc<Pool>>,
    pub(crate) balancer: Balancer,
    /// Tags of the upstreams for a cookie, if there is one.
    pub(crate) tags: Vec<String>,
}

impl Groups {
    /// # Errors
    /// If an upstream is invalid.
    pub(crate) fn new(
        settings: Arc<ProxySettings>,
        tls: Option<Arc<ClientConfig>>,
    ) -> Result<Groups, String> {
        let (services, members) = Services::split(&settings.upstreams, &settings.dns);
        let upstreams = members.iter().map(|member| open(&settings, &tls, member));
        let upstreams = upstreams.collect::<Result<_, String>>()?;
        let answers = services.no_answers();
        let current = Mutex::new(Arc::new(Group { upstreams, members, answers }));
        let (changes, check) = Default::default();
        Ok(Groups { settings, tls, services, current, changes, check })
    }

    /// Starts health checks of the upstreams, and of those that are found later. Must be called on the event
    /// loop.
    pub(crate) fn start_checks(&self, check: &Check) {
        // Set under the lock, so that those which are found at the same time are not started twice.
        let current = self.lock();
        let check = self.check.get_or_init(|| Arc::new(check.clone()));
        current.upstreams.iter().for_each(|upstream| self.start_check(upstream, check));
    }

    fn start_check(&self, upstream: &Arc<Upstream>, check: &Arc<Check>) {
        let is_lenient = self.settings.lenient_responses;
        tokio::spawn(check::run(Arc::downgrade(upstream), check.clone(), is_lenient));
    }

    /// Returns true if the upstreams may change.
    pub(crate) fn has_services(&self) -> bool {
        !self.services.is_empty()
    }

    /// Returns the upstreams as they were found last.
    pub(crate) fn current(&self) -> Arc<Group> {
        self.lock().clone()
    }

    /// Makes a change of an operator; returns false if there is no upstream with this URL.
    pub(crate) fn change(&self, url: &str, change: ControlChange) -> bool {
        let current = self.lock();
        let found = current.upstreams.iter().find(|upstream| upstream.to_string() == url);
        if let (Some(upstream), true) = (found, self.has_services()) {
            self.changes.add(&upstream.url, change);
        }
        found.map(|upstream| upstream.change(change)).is_some()
    }

    /// Takes over the changes of operators from a former configuration.
    pub(crate) fn take_over(&self, former: &Groups) {
        self.changes.take_over(&former.changes);
    }

    /// Returns the upstreams. Looks up services whose records have expired; waits only for those without
    /// records.
    pub(crate) async fn resolve(&self) -> Arc<Group> {
        self.services.resolve(self.settings.connect_timeout).await;
        let mut current = self.lock();
        let answers = self.services.answers();
        // An answer that has not changed is another slice with the same items.
        if current.answers != answers {
            *current = Arc::new(self.group(&current, answers));
        }
        current.clone()
    }

    /// Makes the group of these answers, with the upstreams that the former group has, too.
    fn group(&self, former: &Group, answers: Answers) -> Group {
        let found = self.services.members(&self.settings.upstreams, &answers);
        let open = |member: &UpstreamMember| {
            open(&self.settings, &self.tls, member).inspect(|upstream| {
                self.check.get().iter().for_each(|it| self.start_check(upstream, it));
                self.changes.of(&member.url).into_iter().for_each(|it| upstream.change(it));
            })
        };
        let change_weight = |upstream: &Arc<Upstream>, member: &UpstreamMember| {
            let is_set = self.changes.of(&member.url).is_some_and(|it| it.weight.is_some());
            if !is_set {
                upstream.change(ControlChange { mode: None, weight: Some(member.weight) });
            }
        };
        let former = (&*former.members, &*former.upstreams);
        let (members, upstreams) = keep_or_open(found, former, open, change_weight);
        if self.has_services() {
            let names: Vec<_> = members.iter().map(ToString::to_string).collect();
            log::info!("the upstreams are now {}", names.join(" "));
        }
        Group { upstreams, members, answers }
    }

    fn lock(&self) -> MutexGuard<'_, Arc<Group>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Creates an upstream.
fn open(
    settings: &ProxySettings,
    tls: &Option<Arc<ClientConfig>>,
    member: &UpstreamMember,
) -> Result<Arc<Upstream>, String> {
    let policy = FailurePolicy {
        max_failures: settings.max_failures,
        max_failure_rate: settings.failure_rate,
        window: settings.failure_window,
        down_time: settings.down_time,
        slow_start: settings.slow_start,
    };
    let url = &member.url;
    let http_version = settings.http_version_of(url);
    let name = settings.tls_name.as_deref();
    let upstream = Upstream::new(url.clone(), Health::new(policy, Instant::now()), tls)?;
    let upstream = upstream.with_server_name(name)?.with_dns(&settings.dns);
    Ok(Arc::new(upstream.with_http_version(http_version).with_weight(member.weight)))
}

impl Members {
    /// Creates the connections of a worker to a group, and keeps those to upstreams that `former` has, too.
    pub(crate) fn new(
        group: Arc<Group>,
        shared: &Shared,
        former: &[Arc<Pool>],
        seed: u64,
    ) -> Members {
        let Shared { settings, sticky, .. } = shared;
        let pool = |(upstream, member): (&Arc<Upstream>, &UpstreamMember)| {
            let kept = former.iter().find(|pool| Arc::ptr_eq(&pool.upstream, upstream));
            kept.cloned().unwrap_or_else(|| {
                Pool::new(upstream.clone(), member.max_connections, settings.clone())
            })
        };
        let pools = group.upstreams.iter().zip(&group.members).map(pool).collect();
        let shares = group.members.iter().map(UpstreamMember::share).collect();
        let balancer = Balancer::new(settings.balance, shares, seed);
        let tag =
            |sticky: &Sticky| group.members.iter().map(|member| sticky.tag(&member.url)).collect();
        let tags = sticky.as_ref().map(tag).unwrap_or_default();
        Members { group, pools, balancer, tags }
    }

    pub(crate) fn is_of(&self, group: &Arc<Group>) -> bool {
        Arc::ptr_eq(&self.group, group)
    }
}
