//! The number of file descriptors that a plan permits to be open.

use weft::files::DirectorySettings;
use weft_upstream::copy::MAX_PIPES;
use weft_upstream::{ProxySettings, UpstreamMember};

use super::Plan;
use crate::base::sys::descriptor_limit;

/// Logs a warning if the connections, cached files and upstream connections that a plan permits
/// need more descriptors than the process may open.
pub(crate) fn warn_if_insufficient(plan: &Plan, workers: usize) {
    let Some(limit) = descriptor_limit().soft else { return };
    let needed = needed(plan, workers);
    if needed > limit {
        log::warn!(
            "`max_connections` = {} with files, upstreams and streams needs {needed} file descriptors, and \
             the limit is {limit}: raise it (`ulimit -n`, `LimitNOFILE=` of systemd) or lower \
             `max_connections`",
            plan.limits.max_connections,
        );
    }
}

/// Number of descriptors of a worker without connections: its event loop, and pipes in use.
const WORKER_DESCRIPTORS: usize = 8;

/// Number of descriptors of the process itself: standard streams, logs, listeners, signals.
const PROCESS_DESCRIPTORS: usize = 64;

/// Returns the number of descriptors that a plan permits to be open.
fn needed(plan: &Plan, workers: usize) -> u64 {
    let forms = || plan.hosts.iter().flat_map(|host| &host.routes).map(|route| &route.form.value);
    let has_files = forms().any(|form| form.served_directory().is_some());
    let cached = if has_files { DirectorySettings::default().max_cached_descriptors } else { 0 };
    let upstream = forms().filter_map(|form| form.upstreams());
    let connections = |settings: &ProxySettings| {
        let of_member =
            |member: &UpstreamMember| member.max_connections.unwrap_or(settings.max_connections);
        workers * settings.upstreams.iter().map(of_member).sum::<usize>()
    };
    let upstream = upstream.map(connections);
    let of_workers = workers * (cached + WORKER_DESCRIPTORS);
    // One descriptor for the client, and one for the upstream; two for a pipe.
    let streams =
        plan.streams.iter().map(|stream| 2 * (stream.settings.value.max_connections + MAX_PIPES));
    let needed = plan.limits.max_connections + upstream.sum::<usize>() + of_workers;
    let needed = needed + streams.sum::<usize>() + plan.response_cache.descriptors();
    (needed + PROCESS_DESCRIPTORS) as u64
}
