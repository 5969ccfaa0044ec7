//! The upstreams of a proxy: the upstreams in its settings, and the servers of services in the DNS
//! (SRV), which change while the server runs.

use std::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Release},
};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use rustls::ClientConfig;
use tokio::runtime::Handle;

use crate::check::health_check as check;
use crate::connect::upstream::Upstream;
use crate::dns::services::{DnsServices, ServiceAnswers, keep_or_open_members};
use crate::health::operator_changes::OperatorChanges;
use crate::health::operator_control::ControlChange;
use crate::health::upstream_health::{FailurePolicy, UpstreamHealth};
use crate::settings::health_check_settings::HealthCheck;
use crate::settings::proxy_settings::{ForwardedHost, ProxySettings, UpstreamProtocol};
use crate::url::member::UpstreamMember;
use crate::url::upstream_url::UpstreamUrl;

/// Maximum number of upstreams of a route after additions by operators.
const MAX_MEMBERS: usize = 1_024;

/// Upstreams at one time. A change of services or of an operator replaces the group. Upstreams of
/// both groups are shared, so that connections and health are kept.
pub(crate) struct UpstreamGroup {
    pub(crate) upstreams: Vec<Arc<Upstream>>,
    /// Members in the order of `upstreams`.
    pub(crate) members: Vec<UpstreamMember>,
    /// Answers from which the group was made.
    answers: ServiceAnswers,
}

/// The current group, and the services on which it depends.
pub(crate) struct UpstreamGroups {
    settings: Arc<ProxySettings>,
    tls: Option<Arc<ClientConfig>>,
    services: DnsServices,
    /// Upstreams of the settings, with the additions and removals by operators. Locked after
    /// `current`.
    configured: Mutex<Vec<UpstreamMember>>,
    /// Set once operators have added or removed an upstream.
    is_edited: AtomicBool,
    current: Mutex<Arc<UpstreamGroup>>,
    /// Changes of the servers of services. They change together with the group.
    changes: OperatorChanges,
    /// Set once there are health checks.
    checks: OnceLock<Checks>,
}

/// Health checks, and the event loop on which they run: operators add upstreams on other threads.
struct Checks {
    check: Arc<HealthCheck>,
    runtime: Handle,
}

impl UpstreamGroups {
    /// # Errors
    /// If an upstream is invalid.
    pub(crate) fn new(
        settings: Arc<ProxySettings>,
        tls: Option<Arc<ClientConfig>>,
    ) -> Result<UpstreamGroups, String> {
        let (services, members) = DnsServices::split(&settings.upstreams, &settings.dns);
        let upstreams = members.iter().map(|member| open(&settings, &tls, member));
        let upstreams = upstreams.collect::<Result<_, String>>()?;
        let answers = services.no_answers();
        let current = Mutex::new(Arc::new(UpstreamGroup { upstreams, members, answers }));
        let (changes, checks, is_edited) = Default::default();
        let configured = Mutex::new(settings.upstreams.clone());
        Ok(UpstreamGroups {
            settings,
            tls,
            services,
            configured,
            is_edited,
            current,
            changes,
            checks,
        })
    }

    /// Starts health checks of the upstreams, and of upstreams that are found later. Must be called
    /// on the event loop.
    pub(crate) fn start_checks(&self, check: &HealthCheck) {
        // Set under the lock, so that those which are found at the same time are not started twice.
        let current = self.lock();
        let checks = self.checks.get_or_init(|| {
            let mut check = check.clone();
            if let (true, ForwardedHost::Fixed(host)) = (check.host.is_empty(), &self.settings.host)
            {
                check.host = host.clone();
            }
            Checks { check: Arc::new(check), runtime: Handle::current() }
        });
        current.upstreams.iter().for_each(|upstream| self.start_check(upstream, checks));
    }

    fn start_check(&self, upstream: &Arc<Upstream>, Checks { check, runtime }: &Checks) {
        let is_lenient = self.settings.lenient_responses;
        runtime.spawn(check::run(Arc::downgrade(upstream), check.clone(), is_lenient));
    }

    /// Returns true if the upstreams may change.
    pub(crate) fn has_services(&self) -> bool {
        !self.services.is_empty()
    }

    /// Returns the upstreams as they were found last.
    pub(crate) fn current(&self) -> Arc<UpstreamGroup> {
        self.lock().clone()
    }

    /// Makes a change of an operator; returns false if there is no upstream with this URL,
    /// with or without a slash at its end.
    pub(crate) fn change(&self, url: &str, change: ControlChange) -> bool {
        let current = self.lock();
        let requested: Option<UpstreamUrl> = url.parse().ok();
        let found = current.upstreams.iter().find(|upstream| {
            let is_same = |it: &UpstreamUrl| upstream.url.is_same_upstream(it);
            upstream.to_string() == url || requested.as_ref().is_some_and(is_same)
        });
        if let (Some(upstream), true) = (found, self.has_services()) {
            self.changes.add(&upstream.url, change);
        }
        found.map(|upstream| upstream.change(change)).is_some()
    }

    /// Returns true if operators have added or removed an upstream.
    pub(crate) fn is_edited(&self) -> bool {
        self.is_edited.load(Acquire)
    }

    /// Adds an upstream. Its text may have options as in the configuration, such as a weight.
    ///
    /// # Errors
    /// With an invalid text, and if the upstream is there already or cannot be used beside the
    /// others.
    pub(crate) fn add(&self, text: &str) -> Result<(), String> {
        let parse: fn(&str) -> Result<UpstreamUrl, String> = match self.settings.protocol {
            UpstreamProtocol::Http1 => str::parse,
            UpstreamProtocol::FastCgi => UpstreamUrl::fastcgi,
            UpstreamProtocol::Scgi => UpstreamUrl::scgi,
            UpstreamProtocol::Uwsgi => UpstreamUrl::uwsgi,
        };
        let [member] = &UpstreamMember::parse_list(text, parse)?[..] else {
            return Err("expected one upstream".to_owned());
        };
        // The certificates and pins of the route are for upstreams of the same kind.
        let has_same_kind = |known: &UpstreamMember| known.url.is_tls() == member.url.is_tls();
        if !self.settings.upstreams.iter().any(has_same_kind) {
            let kind = if member.url.is_tls() { "with" } else { "without" };
            return Err(format!("{text}: the route has no upstream {kind} TLS"));
        }
        let current = self.lock();
        if current.members.len() >= MAX_MEMBERS {
            return Err(format!("the route has {MAX_MEMBERS} upstreams, the maximum"));
        }
        let mut edited = self.configured().clone();
        edited.push(member.clone());
        UpstreamMember::check_list(&edited)?;
        open(&self.settings, &self.tls, member)?;
        self.set_members(current, edited);
        Ok(())
    }

    /// Removes an upstream. Requests in progress complete. Returns false if there is none with this
    /// URL.
    ///
    /// # Errors
    /// If it is the last one.
    pub(crate) fn remove(&self, url: &str) -> Result<bool, String> {
        let current = self.lock();
        let mut edited = self.configured().clone();
        let before = edited.len();
        let requested: Option<UpstreamUrl> = url.parse().ok();
        edited.retain(|member| {
            let is_same = |it: &UpstreamUrl| member.url.is_same_upstream(it);
            member.url.to_string() != url && !requested.as_ref().is_some_and(is_same)
        });
        match edited.iter().any(|member| !member.is_backup) {
            _ if edited.len() == before => Ok(false),
            true => {
                self.set_members(current, edited);
                Ok(true)
            }
            false => Err(format!("{url} is the last upstream of its route, and stays")),
        }
    }

    /// Uses the upstreams of the settings again.
    pub(crate) fn reset(&self) {
        let current = self.lock();
        if *self.configured() != self.settings.upstreams {
            self.set_members(current, self.settings.upstreams.clone());
        }
    }

    fn set_members(
        &self,
        mut current: MutexGuard<'_, Arc<UpstreamGroup>>,
        members: Vec<UpstreamMember>,
    ) {
        *self.configured() = members;
        // Set before the group: a worker that finds it has the new group or waits for the lock.
        self.is_edited.store(true, Release);
        let answers = current.answers.clone();
        *current = Arc::new(self.group(&current, answers));
    }

    fn configured(&self) -> MutexGuard<'_, Vec<UpstreamMember>> {
        self.configured.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over the changes of operators from a former configuration.
    pub(crate) fn take_over(&self, former: &UpstreamGroups) {
        self.changes.take_over(&former.changes);
    }

    /// Returns the upstreams. Looks up services whose records have expired; waits only for those
    /// without records.
    pub(crate) async fn resolve(&self) -> Arc<UpstreamGroup> {
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
    fn group(&self, former: &UpstreamGroup, answers: ServiceAnswers) -> UpstreamGroup {
        let found = self.services.members(&self.configured(), &answers);
        let open = |member: &UpstreamMember| {
            open(&self.settings, &self.tls, member).inspect(|upstream| {
                self.checks.get().iter().for_each(|it| self.start_check(upstream, it));
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
        let (members, upstreams) = keep_or_open_members(found, former, open, change_weight);
        if self.has_services() || self.is_edited() {
            let names: Vec<_> = members.iter().map(ToString::to_string).collect();
            log::info!("the upstreams are now {}", names.join(" "));
        }
        UpstreamGroup { upstreams, members, answers }
    }

    fn lock(&self) -> MutexGuard<'_, Arc<UpstreamGroup>> {
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
    let health = UpstreamHealth::new(policy, Instant::now());
    if settings.check.is_some() {
        health.set_unchecked();
    }
    let url = &member.url;
    let http_version = settings.http_version_of(url);
    let name = settings.tls_name.as_deref();
    let upstream = Upstream::new(url.clone(), health, tls)?;
    let upstream = upstream.with_server_name(name)?.with_dns(&settings.dns);
    Ok(Arc::new(upstream.with_http_version(http_version).with_weight(member.weight)))
}
