//! [`Config`] → [`Plan`]: all values are resolved and validated, but nothing is opened yet. Pure.

mod acme; // names for which certificates are ordered
mod host_names; // names of hosts
mod redirect; // targets of redirects
mod rewrite; // changes of paths, and groups in templates
mod split; // shares of requests for other routes
mod streams; // TCP connections that are forwarded without HTTP
mod route; // routes and their applications
mod tls; // TLS
pub(crate) mod descriptors; // number of file descriptors
pub(crate) mod print; // Plan → text
#[cfg(test)]
mod random_configs; // tests that printed configurations have the same meaning

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use weft::{HeaderName, Method, Network, Settings};
use weft_config::{ConfigLocation, ConfigResult, Located, Problem};

use self::acme::{can_order, plan_acme};
use self::host_names::{host_list, host_names};
use self::rewrite::check_host_groups;
use self::route::{Inherited, plan_routes, route_of_others};
use self::streams::{plan_streams, stream_addresses};
use self::tls::plan_tls;

pub(crate) use self::route::{AppPlan, RoutePlan};
pub(crate) use self::split::DEFAULT_KEY as DEFAULT_SPLIT_KEY;
pub(crate) use self::streams::{StreamPlan, udp_address};
pub(crate) use self::tls::TlsPlan;

use crate::apps::spool::BufferSpaceLimits;
use crate::config::PermittedChanges;
use crate::config::{
    Certificates, Config, ErrorPage, FilesConfig, HostConfig, LogConfig, RouteOptions, TopConfig,
    TracingConfig, without_effect,
};
use crate::route::{PathKey, Pattern};

/// The validated configuration from which the server is started. A reload compares plans by value.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) listen: Addresses,
    /// `None`: one per CPU.
    pub(crate) workers: Option<usize>,
    /// The kernel passes connections on with their first bytes.
    pub(crate) defer_accept: bool,
    /// Time for requests in flight to complete at a stop.
    pub(crate) drain_timeout: Duration,
    /// Time for requests in flight to complete after another process has taken over the sockets.
    pub(crate) handover_timeout: Duration,
    /// Limits of the space for buffered bodies.
    pub(crate) buffer_space: BufferSpaceLimits,
    /// Proxies whose `client_ip_header` is trusted.
    pub(crate) trusted_proxies: Vec<Network>,
    pub(crate) client_ip_header: HeaderName,
    pub(crate) run_as: RunAs,
    pub(crate) umask: Option<u32>,
    pub(crate) pid_file: Option<PathBuf>,
    pub(crate) log: LogConfig,
    /// Export of spans; `None` without a collector.
    pub(crate) tracing: Option<TracingConfig>,
    pub(crate) tls: Option<TlsPlan>,
    /// Addresses of the status endpoint. Empty: no endpoint.
    pub(crate) status: Addresses,
    /// Hosts of the status endpoint, in the form of [`HostPlan::names`].
    pub(crate) status_hosts: Vec<String>,
    pub(crate) config_changes: PermittedChanges,
    pub(crate) upstream_changes: PermittedChanges,
    pub(crate) limits: Settings,
    pub(crate) hosts: Vec<HostPlan>,
    pub(crate) streams: Vec<StreamPlan>,
    /// Values that are valid, but probably not intended; see also `Plan::warnings`.
    pub(crate) warnings: Vec<Problem>,
}

/// Addresses to listen on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Addresses {
    pub(crate) list: Vec<String>,
    /// The configuration has no addresses, and `list` has the default.
    pub(crate) are_defaults: bool,
}

/// User and group of the process after its sockets are bound. `None`: unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RunAs {
    pub(crate) user: Option<String>,
    pub(crate) group: Option<String>,
}

/// Routes of one or more hosts.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HostPlan {
    /// Names in lower case. `*.example.org` matches all subdomains, `*` all other hosts, and `~ REGEX`, as
    /// the only name, those in which the pattern is found.
    pub(crate) names: Vec<String>,
    pub(crate) routes: Vec<RoutePlan>,
    /// Pages for errors of the router itself.
    pub(crate) error_pages: Vec<ErrorPage>,
}

impl HostPlan {
    /// Returns the route of a GET request for a decoded path.
    pub(crate) fn route_of(&self, path: &str) -> Option<&RoutePlan> {
        let all = self.routes.iter().filter(|route| route.key.includes(&Method::GET));
        let exact =
            all.clone().find(|route| matches!(&route.key.path, PathKey::Exact(it) if it == path));
        let pattern = || {
            let matches = |route: &&RoutePlan| matches!(&route.key.path, PathKey::Pattern(pattern) if pattern.matches(path.as_bytes()));
            all.clone().find(matches)
        };
        let prefix = || {
            let length = |route: &&RoutePlan| route.key.prefix_length(path);
            all.clone().filter(|route| length(route).is_some()).max_by_key(length)
        };
        exact.or_else(pattern).or_else(prefix)
    }
}

impl Plan {
    /// Validates the configuration. The errors are all of it, also those of its syntax.
    pub(crate) fn new(config: Config) -> Result<Plan, Vec<Problem>> {
        match Plan::of_valid_parts(config) {
            (plan, problems) if problems.is_empty() => Ok(plan),
            (_, problems) => Err(problems),
        }
    }

    /// Makes a plan of the parts of a configuration that are valid, and returns all problems of the
    /// others. Resources of this plan can still be opened to report their problems, although it cannot be
    /// served.
    pub(crate) fn of_valid_parts(config: Config) -> (Plan, Vec<Problem>) {
        let mut warnings = without_effect(&config);
        warnings.extend(config.warnings);
        let Config { top, log, tls, acme, status, tracing, limits, files, .. } = config;
        let Config { mut defaults, hosts, streams, mut problems, .. } = config;
        let is_complete = problems.is_empty();
        let of_streams = stream_addresses(&streams);
        let listening = [&top.listen, &tls.listen, &status.listen, &of_streams];
        check_listening(listening.into_iter().flatten(), &mut problems);
        let files = files.or(&FilesConfig::defaults());
        let all_names = || {
            let names = hosts.iter().map(|host| &*host.names.value);
            names.filter(|names| !names.starts_with("~ ")).flat_map(str::split_whitespace)
        };
        let is_automatic = matches!(tls.certificates, Certificates::Automatic)
            || tls.lacks_certificates() && can_order(all_names(), &acme.challenge_kinds());
        if is_automatic || acme.orders_certificates() {
            defaults.https_redirect.get_or_insert(true);
        }
        let common = Common {
            defaults: &defaults,
            files: &files,
            trusted_proxies: &top.trusted_proxies,
            limits: &limits,
        };
        let plans = plan_hosts(hosts, &common, &mut problems);
        let acme = plan_acme(acme, is_automatic, &plans, &mut warnings, &mut problems);
        let is_automatic = acme.is_some();
        let has_routes = plans.iter().any(|host| !host.routes.is_empty());
        let has_tls_streams = streams.iter().any(|stream| stream.settings.tls);
        let tls = plan_tls(tls, acme, has_tls_streams, is_complete);
        let tls = tls.map_err(|problem| problems.push(problem)).ok().flatten();
        let status_hosts = host_list(status.hosts, &mut problems);
        let buffer_space = buffer_space(&top);
        let umask = top.umask.map(parse_umask).transpose();
        let umask = umask.map_err(|problem| problems.push(problem)).ok().flatten();
        let reports = (&mut problems, &mut warnings);
        let streams = plan_streams(streams, tls.is_some(), is_complete, reports);
        if !has_routes && streams.is_empty() && problems.is_empty() {
            problems.push(Problem::without_location(NOTHING_TO_SERVE));
        }
        let default_listen = default_listen(is_automatic, tls.as_ref(), has_routes);
        let plan = Plan {
            listen: Addresses::new(top.listen, default_listen),
            workers: top.workers,
            defer_accept: top.defer_accept,
            log,
            drain_timeout: top.drain_timeout,
            handover_timeout: top.handover_timeout,
            buffer_space,
            trusted_proxies: top.trusted_proxies,
            client_ip_header: top.client_ip_header,
            run_as: RunAs { user: top.user, group: top.group },
            umask,
            pid_file: top.pid_file.map(|path| path.value),
            tracing: tracing.endpoint.is_some().then_some(tracing),
            tls,
            status: Addresses::new(status.listen, None),
            status_hosts,
            config_changes: status.config_changes,
            upstream_changes: status.upstream_changes,
            limits,
            hosts: plans,
            streams,
            warnings,
        };
        (plan, problems)
    }
}

const NOTHING_TO_SERVE: &str =
    "there is nothing to serve; add a section such as [hosts.\"*\"] with \"/\" = \"-> /srv/www\"";

/// Sections that apply to the routes of all hosts.
struct Common<'a> {
    defaults: &'a RouteOptions,
    files: &'a FilesConfig,
    trusted_proxies: &'a [Network],
    limits: &'a Settings,
}

/// Plans the hosts, and adds one for all other names if it has a response for their requests.
fn plan_hosts(
    hosts: Vec<HostConfig>,
    common: &Common<'_>,
    problems: &mut Vec<Problem>,
) -> Vec<HostPlan> {
    let mut plans = Vec::new();
    let mut known_names = HashMap::new();
    for host in hosts {
        let names = host_names(&host.names, &mut known_names, problems);
        let host_pattern = match &*names {
            [name] => name.strip_prefix("~ ").and_then(|name| Pattern::parse(name).ok()),
            _ => None,
        };
        let options = host.options.or(common.defaults);
        let groups =
            options.templates().filter_map(|it| check_host_groups(it, host_pattern.as_ref()).err());
        problems.extend(groups.map(|message| host.names.problem(message)));
        let Common { files, trusted_proxies, limits, .. } = *common;
        let inherited = Inherited { host_pattern, options, files, trusted_proxies, limits };
        let mut routes = plan_routes(host.routes, &inherited, problems);
        routes.extend(route_of_others(&routes, &inherited.options, &host.names.location));
        let error_pages = inherited.options.error_pages;
        plans.push(HostPlan { names, routes, error_pages });
    }
    let has_fallback = plans.iter().any(|host| host.names.iter().any(|name| name == "*"));
    if !has_fallback && !plans.is_empty() {
        plans.extend(fallback_host(common.defaults));
    }
    plans
}

/// Returns the host of names that no host has, if its errors have pages.
fn fallback_host(defaults: &RouteOptions) -> Option<HostPlan> {
    let route = route_of_others(&[], defaults, &ConfigLocation::Unknown)?;
    let (names, error_pages) = (vec!["*".to_owned()], defaults.error_pages.clone());
    Some(HostPlan { names, routes: vec![route], error_pages })
}

/// Returns the address without TLS that is used if none is given.
fn default_listen(
    is_automatic: bool,
    tls: Option<&TlsPlan>,
    has_routes: bool,
) -> Option<&'static str> {
    if is_automatic {
        return Some("[::]:80");
    }
    let is_plain = tls.is_none_or(|tls| tls.listen.list.is_empty());
    (is_plain && has_routes).then_some("127.0.0.1:8080")
}

fn buffer_space(top: &TopConfig) -> BufferSpaceLimits {
    BufferSpaceLimits {
        memory_bytes: top.max_buffer_bytes,
        memory_bytes_per_client: top.max_buffer_bytes_per_client,
        disk_bytes: top.max_temp_bytes,
        unread_bytes_per_client: top.max_unread_bytes_per_client,
    }
}

impl Addresses {
    fn new(given: Vec<Located<String>>, default: Option<&str>) -> Addresses {
        let are_defaults = given.is_empty();
        let mut list: Vec<String> = given.into_iter().map(|address| address.value).collect();
        if are_defaults {
            list.extend(default.map(str::to_owned));
        }
        Addresses { list, are_defaults }
    }
}

/// Reports addresses that occur twice. Port 0 is another port each time.
fn check_listening<'a>(
    addresses: impl Iterator<Item = &'a Located<String>>,
    problems: &mut Vec<Problem>,
) {
    let mut known = HashMap::new();
    for address in addresses.filter(|address| !address.value.ends_with(":0")) {
        let all = address.value.strip_prefix(':').map(|port| format!("[::]:{port}"));
        let normal = all.unwrap_or_else(|| address.value.clone());
        if let Some(first) = known.insert(normal, &address.location) {
            let first = first.relative_to(&address.location);
            let message = format!("the address `{}` is given twice{first}", address.value);
            problems.push(address.problem(message));
        }
    }
}

fn parse_umask(mask: Located<String>) -> ConfigResult<u32> {
    let parsed = u32::from_str_radix(&mask.value, 8).ok().filter(|mask| *mask <= 0o777);
    let invalid =
        || format!("expected a mask of three octal digits such as 027, found {:?}", mask.value);
    parsed.ok_or_else(|| mask.problem(invalid()))
}
