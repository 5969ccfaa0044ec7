//! The upstreams of a proxy: those of its settings, and those of services in the DNS (SRV), which change
//! while the server runs.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use rustls::ClientConfig;
use tokio::time::timeout;

use super::addresses::AnswerCache;
use super::balance::Balancer;
use super::check;
use super::control::ControlChange;
use super::health::{FailurePolicy, Health};
use super::member::UpstreamMember;
use super::pool::Pool;
use super::settings::{Check, ProxySettings};
use super::upstream::Upstream;
use crate::base::dns::{Resolver, Service};
use crate::base::throttled_log::ThrottledWarning;

/// Upstreams at one time. A change of services replaces the group; what both have in common is shared, so
/// that connections and health are kept.
pub(super) struct Group {
    pub(super) upstreams: Vec<Arc<Upstream>>,
    /// In the same order.
    members: Vec<UpstreamMember>,
    /// Answers from which the group was made, in the order of the services.
    answers: Vec<Option<Arc<[Service]>>>,
}

/// The current group, and the services on which it depends.
pub(super) struct Groups {
    settings: Arc<ProxySettings>,
    tls: Option<Arc<ClientConfig>>,
    resolver: Resolver,
    services: Vec<ServiceSource>,
    current: Mutex<Arc<Group>>,
    failure_warning: ThrottledWarning,
    /// Set once there are health checks.
    check: OnceLock<Arc<Check>>,
}

/// A member that stands for the servers of a service.
struct ServiceSource {
    member: UpstreamMember,
    cache: AnswerCache<Service>,
}

/// The upstreams of one worker, with its connections to them.
pub(super) struct Members {
    group: Arc<Group>,
    pub(super) pools: Vec<Arc<Pool>>,
    pub(super) balancer: Balancer,
}

impl Groups {
    /// # Errors
    /// If an upstream is invalid.
    pub(super) fn new(
        settings: Arc<ProxySettings>,
        tls: Option<Arc<ClientConfig>>,
    ) -> Result<Groups, String> {
        let (services, members): (Vec<_>, Vec<_>) =
            settings.upstreams.iter().cloned().partition(|member| member.url.is_service());
        let source = |member| ServiceSource { member, cache: AnswerCache::new(settings.dns.ttl) };
        let services: Vec<_> = services.into_iter().map(source).collect();
        let resolver = Resolver::new(&settings.dns.servers);
        let upstreams = members.iter().map(|member| open(&settings, &tls, member));
        let upstreams = upstreams.collect::<Result<_, String>>()?;
        let answers = services.iter().map(|_| None).collect();
        let current = Mutex::new(Arc::new(Group { upstreams, members, answers }));
        let (failure_warning, check) = Default::default();
        Ok(Groups { settings, tls, resolver, services, current, failure_warning, check })
    }

    /// Starts health checks of the upstreams, and of those that are found later. Must be called on the event
    /// loop.
    pub(super) fn start_checks(&self, check: &Check) {
        let check = self.check.get_or_init(|| Arc::new(check.clone()));
        self.current().upstreams.iter().for_each(|upstream| self.start_check(upstream, check));
    }

    fn start_check(&self, upstream: &Arc<Upstream>, check: &Arc<Check>) {
        let is_lenient = self.settings.lenient_responses;
        tokio::spawn(check::run(Arc::downgrade(upstream), check.clone(), is_lenient));
    }

    /// Returns true if the upstreams may change.
    pub(super) fn has_services(&self) -> bool {
        !self.services.is_empty()
    }

    /// Returns the upstreams as they were found last.
    pub(super) fn current(&self) -> Arc<Group> {
        self.lock().clone()
    }

    /// Returns the upstreams. Looks up services whose records have expired; waits only for those without
    /// records.
    pub(super) async fn resolve(&self) -> Arc<Group> {
        let mut answers = Vec::with_capacity(self.services.len());
        for ServiceSource { member, cache } in &self.services {
            let resolver = self.resolver.clone();
            let lookup = |name: String| async move {
                let mut found = resolver.services(&name).await?;
                found.items.sort_by(|a, b| (a.priority, &a.target).cmp(&(b.priority, &b.target)));
                Ok((found.items, found.ttl))
            };
            let found = cache.get(member.url.host(), Instant::now(), lookup);
            let found = timeout(self.settings.connect_timeout, found).await;
            let found = found.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
            if let Err(error) = &found {
                self.failure_warning.warn(&format!("the upstream {member}: {error}"));
            }
            answers.push(found.ok());
        }
        let mut current = self.lock();
        // An answer that has not changed is another slice with the same items.
        if current.answers != answers {
            *current = Arc::new(self.group(&current, answers));
        }
        current.clone()
    }

    /// Makes the group of these answers, with the upstreams that the former group has, too.
    fn group(&self, former: &Group, answers: Vec<Option<Arc<[Service]>>>) -> Group {
        let own = self.settings.upstreams.iter().filter(|member| !member.url.is_service());
        let found = self.services.iter().zip(&answers);
        let found = found.flat_map(|(source, answer)| match answer {
            Some(services) => members_of(&source.member, services),
            None => Vec::new(),
        });
        let (mut members, mut upstreams) = (Vec::<UpstreamMember>::new(), Vec::new());
        for member in own.cloned().chain(found) {
            if members.iter().any(|known| known.url.is_same_upstream(&member.url)) {
                continue;
            }
            let kept = former.members.iter().position(|known| known.url == member.url);
            let upstream = match kept {
                Some(index) => Ok(former.upstreams[index].clone()),
                None => open(&self.settings, &self.tls, &member),
            };
            match upstream {
                Ok(upstream) => {
                    if let (None, Some(check)) = (kept, self.check.get()) {
                        self.start_check(&upstream, check);
                    }
                    if kept.is_some_and(|index| former.members[index].weight != member.weight) {
                        let weight = Some(member.weight);
                        upstream.change(ControlChange { mode: None, weight });
                    }
                    upstreams.push(upstream);
                    members.push(member);
                }
                Err(error) => log::warn!("the upstream {member} is left out: {error}"),
            }
        }
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

/// Returns the servers of a service: those of the lowest priority, and the others as backups (RFC 2782).
/// The options of `source` apply to each of them.
fn members_of(source: &UpstreamMember, services: &[Service]) -> Vec<UpstreamMember> {
    let first = services.iter().map(|service| service.priority).min();
    let member = |service: &Service| {
        let url = source.url.of_server(&service.target, service.port)?;
        // Of servers with the weight 0, some requests reach each.
        let weight = u32::from(service.weight).max(1);
        let is_backup = source.is_backup || Some(service.priority) != first;
        Some(UpstreamMember { url, weight, is_backup, max_connections: source.max_connections })
    };
    services.iter().filter_map(member).collect()
}

impl Members {
    /// Creates the connections of a worker to a group, and keeps those to upstreams that `former` has, too.
    pub(super) fn new(
        group: Arc<Group>,
        settings: &Arc<ProxySettings>,
        former: &[Arc<Pool>],
        seed: u64,
    ) -> Members {
        let pool = |(upstream, member): (&Arc<Upstream>, &UpstreamMember)| {
            let kept = former.iter().find(|pool| Arc::ptr_eq(&pool.upstream, upstream));
            kept.cloned().unwrap_or_else(|| {
                Pool::new(upstream.clone(), member.max_connections, settings.clone())
            })
        };
        let pools = group.upstreams.iter().zip(&group.members).map(pool).collect();
        let shares = group.members.iter().map(UpstreamMember::share).collect();
        let balancer = Balancer::new(settings.balance, shares, seed);
        Members { group, pools, balancer }
    }

    pub(super) fn is_of(&self, group: &Arc<Group>) -> bool {
        Arc::ptr_eq(&self.group, group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_become_backups_and_weights_stay() {
        let source = UpstreamMember::parse_list(
            "srv+http://_http._tcp.example/app max_connections=9",
            super::super::UpstreamUrl::parse_member,
        );
        let service = |priority, weight, port, target: &str| Service {
            priority,
            weight,
            port,
            target: target.to_owned(),
        };
        let services =
            [service(20, 5, 80, "c"), service(10, 3, 8080, "a"), service(10, 0, 80, "b.example")];
        let members = members_of(&source.unwrap()[0], &services);
        let shown: Vec<_> = members.iter().map(ToString::to_string).collect();
        let expected = [
            "http://c:80/app weight=5 backup max_connections=9",
            "http://a:8080/app weight=3 max_connections=9",
            "http://b.example:80/app max_connections=9",
        ];
        assert_eq!(shown, expected);
    }
}
