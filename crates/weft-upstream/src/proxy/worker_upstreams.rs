//! The upstreams of one worker, with its connections to them.

use std::sync::{Arc, Mutex, PoisonError};

use super::proxy_context::ProxyContext;
use super::upstream_groups::{UpstreamGroup, UpstreamGroups};
use crate::balance::balancer::Balancer;
use crate::balance::sticky::StickyCookie;
use crate::connect::upstream::Upstream;
use crate::pool::connection_pool::ConnectionPool;
use crate::url::member::UpstreamMember;

/// The upstreams of one worker.
pub(crate) enum WorkerUpstreams {
    Fixed {
        group: WorkerGroup,
        /// The group in place of `group`, after operators have added or removed an upstream.
        edited: Mutex<Option<Arc<WorkerGroup>>>,
    },
    /// Some are servers of services. One worker uses the lock.
    Changing(Mutex<Arc<WorkerGroup>>),
}

/// A group of upstreams, with the connections of one worker to them.
pub(crate) struct WorkerGroup {
    group: Arc<UpstreamGroup>,
    pub(crate) pools: Vec<Arc<ConnectionPool>>,
    pub(crate) balancer: Balancer,
    /// Tags of the upstreams for a cookie, if there is one.
    pub(crate) tags: Vec<String>,
}

impl WorkerUpstreams {
    /// Creates the upstreams of a worker. `seed` makes the random choices of workers differ.
    pub(crate) fn new(
        groups: &UpstreamGroups,
        context: &ProxyContext,
        seed: u64,
    ) -> WorkerUpstreams {
        let group = WorkerGroup::new(groups.current(), context, &[], seed);
        match groups.has_services() {
            true => WorkerUpstreams::Changing(Mutex::new(Arc::new(group))),
            false => WorkerUpstreams::Fixed { group, edited: Mutex::default() },
        }
    }

    /// Returns the current pools.
    pub(crate) fn pools(&self) -> Vec<Arc<ConnectionPool>> {
        match self {
            WorkerUpstreams::Fixed { group, edited } => {
                let edited = edited.lock().unwrap_or_else(PoisonError::into_inner);
                edited.as_deref().unwrap_or(group).pools.clone()
            }
            WorkerUpstreams::Changing(group) => {
                group.lock().unwrap_or_else(PoisonError::into_inner).pools.clone()
            }
        }
    }
}

impl WorkerGroup {
    /// Creates the connections of a worker to a group, and keeps the connections to upstreams that
    /// `former` has, too.
    pub(crate) fn new(
        group: Arc<UpstreamGroup>,
        context: &ProxyContext,
        former: &[Arc<ConnectionPool>],
        seed: u64,
    ) -> WorkerGroup {
        let ProxyContext { settings, sticky, .. } = context;
        let pool = |(upstream, member): (&Arc<Upstream>, &UpstreamMember)| {
            let kept = former.iter().find(|pool| Arc::ptr_eq(&pool.upstream, upstream));
            kept.cloned().unwrap_or_else(|| {
                ConnectionPool::new(upstream.clone(), member.max_connections, settings.clone())
            })
        };
        let pools = group.upstreams.iter().zip(&group.members).map(pool).collect();
        let shares = group.members.iter().map(UpstreamMember::share).collect();
        let balancer = Balancer::new(settings.balance, shares, seed);
        let tag = |sticky: &StickyCookie| {
            group.members.iter().map(|member| sticky.tag(&member.url)).collect()
        };
        let tags = sticky.as_ref().map(tag).unwrap_or_default();
        WorkerGroup { group, pools, balancer, tags }
    }

    pub(crate) fn is_of(&self, group: &Arc<UpstreamGroup>) -> bool {
        Arc::ptr_eq(&self.group, group)
    }
}
