//! The limit on open file descriptors.

use std::process::{Child, Command};
use std::sync::OnceLock;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};
use weft::DirectorySettings;

use crate::apps::proxy::{ProxySettings, UpstreamMember};
use crate::plan::{AppPlan, Plan};

/// Soft limit that the process was started with. Child processes get it back, because programs that
/// use `select(2)` fail with a higher one.
static INHERITED: OnceLock<Option<u64>> = OnceLock::new();

/// Environment variable by which a process passes the inherited soft limit to its successor.
const INHERITED_VARIABLE: &str = "WEFT_INHERITED_DESCRIPTOR_LIMIT";

/// Raises the soft limit to the hard limit.
pub(crate) fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    let passed = std::env::var(INHERITED_VARIABLE).ok().and_then(|text| text.parse().ok());
    INHERITED.get_or_init(|| passed.or(limit.current));
    // A failure leaves the limit as it is, and the check of the plan reports it.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Grows the process's descriptor table in the kernel while there is only one thread. If the table
/// of a multithreaded process grows, the calling thread waits for an RCU grace period on all
/// processors, about 10 ms at every power of two.
pub(crate) fn grow_table() {
    const MAX_DESCRIPTORS: u64 = 16 << 10;
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(MAX_DESCRIPTORS);
    let last = limit.min(MAX_DESCRIPTORS).saturating_sub(1);
    // Opens a descriptor with the highest number and closes it again. Ignored: this is only an
    // optimization.
    let _ = rustix::io::fcntl_dupfd_cloexec(std::io::stderr(), last as i32);
}

/// Sets the soft limit of a child process to the inherited one. Only the parent can do so without
/// unsafe code, so that the child may run for a moment with the higher limit.
pub(crate) fn restore_limit(child: &Child) {
    let inherited = INHERITED.get().copied().flatten();
    let limit = getrlimit(Resource::Nofile);
    if inherited != limit.current {
        // Fails if the child has exited, or runs as another user.
        let _ = prlimit(
            Some(Pid::from_child(child)),
            Resource::Nofile,
            Rlimit { current: inherited, ..limit },
        );
    }
}

/// Passes the inherited limit to a successor, which is started with the raised one.
pub(crate) fn pass_inherited_limit(command: &mut Command) -> &mut Command {
    match INHERITED.get().copied().flatten() {
        Some(limit) => command.env(INHERITED_VARIABLE, limit.to_string()),
        None => command,
    }
}

/// Logs a warning if the connections, cached files and upstream connections that a plan permits need
/// more descriptors than the process may open.
pub(crate) fn warn_if_insufficient(plan: &Plan, workers: usize) {
    let Some(limit) = getrlimit(Resource::Nofile).current else { return };
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
    let apps = || plan.hosts.iter().flat_map(|host| &host.routes).map(|route| &route.app.value);
    let has_files = apps().any(|app| app.files().is_some());
    let cached = if has_files { DirectorySettings::default().max_cached_descriptors } else { 0 };
    let upstream = apps().filter_map(AppPlan::upstreams);
    let connections = |settings: &ProxySettings| {
        let of_member =
            |member: &UpstreamMember| member.max_connections.unwrap_or(settings.max_connections);
        workers * settings.upstreams.iter().map(of_member).sum::<usize>()
    };
    let upstream = upstream.map(connections);
    let of_workers = workers * (cached + WORKER_DESCRIPTORS);
    // One descriptor for the client, and one for the upstream.
    let streams = plan.streams.iter().map(|stream| 2 * stream.settings.value.max_connections);
    let needed = plan.limits.max_connections + upstream.sum::<usize>() + of_workers;
    let needed = needed + streams.sum::<usize>();
    (needed + PROCESS_DESCRIPTORS) as u64
}
