//! The upstreams as operators see and change them: reports, and states that they set.

use std::sync::{Arc, PoisonError, Weak};

use super::{ReverseProxy, WorkerMembers};
use crate::connect::upstream::Upstream;
use crate::health::operator_control::ControlChange;
use crate::pool::connection_pool::Pool;
use crate::pool::upstream_metrics::UpstreamReport;
use crate::proxy::upstream_group::Members;

impl ReverseProxy {
    /// Reports the state of the upstreams and the metrics of all clones.
    pub fn report(&self) -> Vec<UpstreamReport> {
        let counted_pools =
            self.shared.counted_pools.lock().unwrap_or_else(PoisonError::into_inner);
        let pools: Vec<Arc<Pool>> = counted_pools.iter().filter_map(Weak::upgrade).collect();
        let report = |upstream: &Arc<Upstream>| {
            let mut report = UpstreamReport::new(upstream);
            let own_pools = pools.iter().filter(|pool| Arc::ptr_eq(&pool.upstream, upstream));
            own_pools.for_each(|pool| report.add(pool));
            report
        };
        let group = self.shared.groups.current();
        let reports = group.upstreams.iter().map(report);
        let of_mirror = self.shared.mirror.iter().flat_map(ReverseProxy::report);
        let of_mirror = of_mirror.map(|it| UpstreamReport { is_mirror: true, ..it });
        reports.chain(of_mirror).collect()
    }

    /// The upstreams, and the server that gets copies of their requests.
    fn all_upstreams(&self) -> Vec<Arc<Upstream>> {
        let of_mirror = self.shared.mirror.iter().flat_map(ReverseProxy::all_upstreams);
        self.shared.groups.current().upstreams.iter().cloned().chain(of_mirror).collect()
    }

    /// Counts a request of which a copy was to be sent by this proxy.
    pub(crate) fn count_dropped_copy(&self) {
        // A mirror has one fixed upstream.
        if let WorkerMembers::Fixed(Members { pools, .. }) = &self.members
            && let Some(metrics) = pools[0].metrics.get()
        {
            metrics.count_dropped_copy();
        }
    }

    /// Changes the state of an upstream; returns false if there is none with this URL.
    pub fn change_upstream(&self, url: &str, change: ControlChange) -> bool {
        let mirror = self.shared.mirror.as_ref();
        self.shared.groups.change(url, change)
            || mirror.is_some_and(|mirror| mirror.change_upstream(url, change))
    }

    /// Takes over the states of upstreams that operators have set, from a former proxy with the same
    /// upstreams.
    pub fn take_over(&self, former: &ReverseProxy) {
        self.shared.groups.take_over(&former.shared.groups);
        let all_former = former.all_upstreams();
        for upstream in self.all_upstreams() {
            let is_same = |former: &&Arc<Upstream>| former.url == upstream.url;
            if let Some(former) = all_former.iter().find(is_same) {
                upstream.take_over(former);
            }
        }
    }
}
