//! [`Config`] → [`Plan`]: all values are resolved and validated, but nothing is opened yet. Pure.

use std::collections::HashMap;

use weft::{Method, Network, Settings};
use weft_config::{ConfigLocation, Problem};

use super::host_names::host_names;
use super::route_plan::{Inherited, RoutePlan, plan_routes, route_of_others};
use super::sent_scripts::withhold_scripts;
use super::without_effect::without_effect;
use super::{Config, HostConfig};
use crate::apps::FilesConfig;
use crate::options::RouteOptions;
use crate::options::error_pages::ErrorPageOptions;
use crate::route::PathKey;
use crate::sections::acme::{AcmeConfig, can_order};
use crate::sections::addresses::check_listening;
use crate::sections::log::LogSettings;
use crate::sections::status::StatusConfig;
use crate::sections::streams::StreamConfig;
use crate::sections::tls::{Certificates, TlsConfig};
use crate::sections::top::TopConfig;
use crate::sections::tracing::TracingSettings;
use crate::template::{Pattern, check_host_groups};

/// The validated configuration from which the server is started. A reload compares plans by value.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) top: TopConfig,
    pub(crate) log: LogSettings,
    /// `None` if nothing is served over TLS.
    pub(crate) tls: Option<TlsConfig>,
    /// Certificates that are ordered, if any.
    pub(crate) acme: Option<AcmeConfig>,
    /// Without addresses there is no status endpoint.
    pub(crate) status: StatusConfig,
    /// Export of spans; `None` without a collector.
    pub(crate) tracing: Option<TracingSettings>,
    pub(crate) limits: Settings,
    pub(crate) hosts: Vec<HostPlan>,
    pub(crate) streams: Vec<StreamConfig>,
    /// Values that are valid, but probably not intended; see also `Plan::warnings`.
    pub(crate) warnings: Vec<Problem>,
}

/// Routes of one or more hosts.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HostPlan {
    /// Names in lower case. `*.example.org` matches all subdomains, `*` all other hosts, and `~
    /// REGEX`, as the only name, those in which the pattern is found.
    pub(crate) names: Vec<String>,
    pub(crate) routes: Vec<RoutePlan>,
    /// Pages for errors of the router itself.
    pub(crate) error_pages: ErrorPageOptions,
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
    /// Validates the configuration. Returns all errors, also errors of its syntax.
    pub(crate) fn new(config: Config) -> Result<Plan, Vec<Problem>> {
        match Plan::of_valid_parts(config) {
            (plan, problems) if problems.is_empty() => Ok(plan),
            (_, problems) => Err(problems),
        }
    }

    /// Makes a plan of the parts of a configuration that are valid, and returns all problems of the
    /// others. Resources of this plan can still be opened to report their problems, although it
    /// cannot be served.
    pub(crate) fn of_valid_parts(config: Config) -> (Plan, Vec<Problem>) {
        let mut warnings = without_effect(&config);
        warnings.extend(config.warnings);
        let Config { top, log, mut tls, acme, status, tracing, limits, files, .. } = config;
        let Config { mut defaults, hosts, streams, mut problems, .. } = config;
        let is_complete = problems.is_empty();
        let of_streams: Vec<_> = streams.iter().flat_map(StreamConfig::addresses).collect();
        let listening = [&top.listen.list, &tls.listen.list, &status.listen.list, &of_streams];
        check_listening(listening.into_iter().flatten(), &mut problems);
        let files = files.or(&FilesConfig::defaults());
        let all_names = || {
            let names = hosts.iter().map(|host| &*host.names.value);
            names.filter(|names| !names.starts_with("~ ")).flat_map(str::split_whitespace)
        };
        let is_automatic = matches!(tls.certificates, Certificates::Automatic)
            || tls.lacks_certificates() && can_order(all_names(), &acme.challenge_kinds());
        if is_automatic {
            tls.certificates = Certificates::Automatic;
        }
        if is_automatic || acme.orders_certificates() {
            defaults.canonical.redirect_to_https_by_default();
        }
        let common = Common {
            defaults: &defaults,
            files: &files,
            trusted_proxies: &top.trusted_proxies,
            limits: &limits,
        };
        let mut plans = plan_hosts(hosts, &common, &mut problems);
        withhold_scripts(&mut plans, &files, &mut problems);
        let host_names = plans.iter().flat_map(|host| &host.names).map(String::as_str);
        let host_names = is_automatic.then(|| host_names.collect());
        let acme = acme.plan(host_names, &mut warnings, &mut problems);
        let has_routes = plans.iter().any(|host| !host.routes.is_empty());
        let has_tls_streams = streams.iter().any(|stream| stream.settings.value.tls);
        let tls = tls.plan(acme.is_some(), has_tls_streams, is_complete);
        let tls = tls.map_err(|problem| problems.push(problem)).ok().flatten();
        let acme = acme.filter(|_| tls.is_some());
        for stream in &streams {
            stream.check(tls.is_some(), is_complete, &mut problems, &mut warnings);
        }
        if !has_routes && streams.is_empty() && problems.is_empty() {
            problems.push(Problem::without_location(NOTHING_TO_SERVE));
        }
        let listen = top.listen.or_default(default_listen(&acme, tls.as_ref(), has_routes));
        let plan = Plan {
            top: TopConfig { listen, ..top },
            log,
            tls,
            acme,
            status: StatusConfig { listen: status.listen.or_default(None), ..status },
            tracing: tracing.endpoint.is_some().then_some(tracing),
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
        let groups = options
            .templates()
            .into_iter()
            .filter_map(|it| check_host_groups(it, host_pattern.as_ref()).err());
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
    acme: &Option<AcmeConfig>,
    tls: Option<&TlsConfig>,
    has_routes: bool,
) -> Option<&'static str> {
    if acme.is_some() {
        return Some("[::]:80");
    }
    let is_plain = tls.is_none_or(|tls| tls.listen.list.is_empty());
    (is_plain && has_routes).then_some("127.0.0.1:8080")
}
