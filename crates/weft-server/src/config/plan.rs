//! [`Config`] → [`Plan`]: all values are resolved and validated, but nothing is opened yet. Pure.

use std::collections::HashMap;

use weft::Settings;
use weft::net::IpNetwork;
use weft_config::{ConfigLocation, Located, Problem};

use super::host_listeners::{bind_hosts, check_ports, is_bound, is_without_tls};
use super::host_names::{SectionNames, section_names};
use super::host_plan::HostPlan;
use super::map_references::check_map_names;
use super::route_plan::{Inherited, plan_routes, route_of_others};
use super::sent_scripts::withhold_scripts;
use super::unsupported::unsupported;
use super::without_effect::without_effect;
use super::{Config, HostConfig};
use crate::apps::FilesConfig;
use crate::base::sys::FEATURES;
use crate::options::RouteOptions;
use crate::sections::acme::{AcmeConfig, can_order};
use crate::sections::addresses::check_listening;
use crate::sections::cluster::ClusterConfig;
use crate::sections::log::LogSettings;
use crate::sections::maps::MapsPlan;
use crate::sections::provided::ProvidedParts;
use crate::sections::response_cache::StoreSettings;
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
    /// The store of the option `response_cache`.
    pub(crate) response_cache: StoreSettings,
    /// `None` if this machine belongs to no cluster.
    pub(crate) cluster: Option<ClusterConfig>,
    pub(crate) limits: Settings,
    pub(crate) maps: MapsPlan,
    pub(crate) hosts: Vec<HostPlan>,
    pub(crate) streams: Vec<StreamConfig>,
    /// Certificates and endpoints that change without a reload.
    pub(crate) provided: ProvidedParts,
    /// Values that are valid, but probably not intended; see also `Plan::warnings`.
    pub(crate) warnings: Vec<Problem>,
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
        let Config { mut top, log, mut tls, acme, status, tracing, limits, files, .. } = config;
        let Config { response_cache, cluster, provided, .. } = config;
        let Config { mut defaults, maps, hosts, streams, mut problems, .. } = config;
        let is_complete = problems.is_empty();
        let of_streams: Vec<Vec<_>> =
            streams.iter().map(|stream| stream.addresses().collect()).collect();
        let named = |host: HostConfig| {
            let names = section_names(&host.names, &mut problems);
            check_ports(&host, &names, &mut problems);
            (host, names)
        };
        let mut hosts: Vec<_> = hosts.into_iter().map(named).collect();
        let others: Vec<_> = status.listen.list.iter().chain(of_streams.iter().flatten()).collect();
        bind_hosts(&mut hosts, &mut top.listen, &mut tls.listen, &others);
        let mut listening: Vec<Vec<_>> =
            [&top.listen, &tls.listen, &status.listen].map(|it| it.all().collect()).into();
        listening.extend(of_streams.iter().map(|addresses| addresses.iter().collect()));
        check_listening(&listening, limits.reuse_port, &mut problems);
        problems.extend(unsupported(&top, &limits, &FEATURES));
        let files = files.or(&FilesConfig::defaults());
        let all_names = || {
            let with_tls = hosts.iter().filter(|(host, _)| !is_without_tls(host));
            let names = with_tls.flat_map(|(_, names)| &names.hosts).map(String::as_str);
            names.filter(|name| !name.starts_with(['~', ':']))
        };
        let is_automatic = matches!(tls.certificates, Certificates::Automatic)
            || tls.lacks_certificates() && can_order(all_names(), &acme.challenge_kinds());
        if is_automatic {
            tls.certificates = Certificates::Automatic;
        }
        let bound_defaults = defaults.clone();
        if is_automatic || acme.orders_certificates() {
            defaults.canonical.redirect_to_https_by_default();
        }
        let common = Common {
            defaults: &defaults,
            without_tls: &bound_defaults,
            files: &files,
            trusted_proxies: &top.trusted_proxies,
            limits: &limits,
        };
        let is_everywhere =
            hosts.iter().any(|(host, names)| !is_bound(host, names) && !host.routes.is_empty());
        let tls_hosts: Vec<_> = all_names().map(str::to_owned).collect();
        let mut plans = plan_hosts(hosts, &common, &mut problems);
        withhold_scripts(&mut plans, &files, &mut problems);
        let maps = MapsPlan::new(maps, &mut problems);
        check_map_names(&maps, &plans, &log, &mut problems);
        let host_names =
            is_automatic.then(|| tls_hosts.iter().map(String::as_str).collect::<Vec<_>>());
        let acme = acme.plan(host_names, &mut warnings, &mut problems);
        let has_routes = plans.iter().any(|host| !host.routes.is_empty());
        let has_tls_streams = streams.iter().any(|stream| stream.settings.value.tls);
        let default_listen_tls = match (acme.is_some(), has_tls_streams) {
            (true, _) if is_everywhere || tls.listen.of_hosts.is_empty() => Some("[::]:443"),
            (false, false) if tls.listen.of_hosts.is_empty() => Some("127.0.0.1:8443"),
            // The certificates have other users.
            _ => None,
        };
        let tls = tls.plan(acme.is_some(), default_listen_tls, is_complete);
        let tls = tls.map_err(|problem| problems.push(problem)).ok().flatten();
        let acme = acme.filter(|_| tls.is_some());
        for stream in &streams {
            stream.check(tls.is_some(), is_complete, &mut problems, &mut warnings);
        }
        if !has_routes && streams.is_empty() && problems.is_empty() {
            problems.push(Problem::without_location(NOTHING_TO_SERVE));
        }
        let cluster = cluster.plan(is_complete).map_err(|problem| problems.push(problem));
        let cluster = cluster.ok().flatten();
        let listen = top.listen.or_default(default_listen(&acme, tls.as_ref(), is_everywhere));
        let plan = Plan {
            top: TopConfig { listen, ..top },
            log,
            tls,
            acme,
            status: StatusConfig { listen: status.listen.or_default(None), ..status },
            tracing: tracing.endpoint.is_some().then_some(tracing),
            response_cache,
            cluster,
            limits,
            maps,
            hosts: plans,
            streams,
            provided,
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
    /// Defaults of hosts that are not served over TLS.
    without_tls: &'a RouteOptions,
    files: &'a FilesConfig,
    trusted_proxies: &'a [IpNetwork],
    limits: &'a Settings,
}

/// Plans the hosts, and adds one for all other names if it has a response for their requests.
fn plan_hosts(
    hosts: Vec<(HostConfig, SectionNames)>,
    common: &Common<'_>,
    problems: &mut Vec<Problem>,
) -> Vec<HostPlan> {
    let mut plans = Vec::new();
    let mut known = KnownHosts::default();
    for (host, SectionNames { hosts: names, label }) in hosts {
        let host_pattern = match &*names {
            [name] => name.strip_prefix("~ ").and_then(|name| Pattern::parse(name).ok()),
            _ => None,
        };
        let defaults = if is_without_tls(&host) { common.without_tls } else { common.defaults };
        let options = host.options.or(defaults);
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
        let mut plan = HostPlan { names, label, settings: host.settings, routes, error_pages };
        known.add(&mut plan, &host.names, problems);
        plans.push(plan);
    }
    let is_fallback = |host: &HostPlan| {
        host.settings.listen.list.is_empty() && host.names.iter().any(|name| name == "*")
    };
    let has_fallback = plans.iter().any(is_fallback);
    if !has_fallback && !plans.is_empty() {
        plans.extend(fallback_host(common.defaults));
    }
    plans
}

/// Returns the host of names that no host has, if its errors have pages.
fn fallback_host(defaults: &RouteOptions) -> Option<HostPlan> {
    let route = route_of_others(&[], defaults, &ConfigLocation::Unknown)?;
    let (names, error_pages) = (vec!["*".to_owned()], defaults.error_pages.clone());
    let (label, settings) = Default::default();
    Some(HostPlan { names, label, settings, routes: vec![route], error_pages })
}

/// Names of the hosts so far.
#[derive(Default)]
struct KnownHosts {
    /// By name, and by the address that the host is bound to.
    names: HashMap<(String, Option<String>), ConfigLocation>,
    titles: HashMap<String, ConfigLocation>,
}

impl KnownHosts {
    /// Adds a host, and removes names that another section has already.
    fn add(&mut self, host: &mut HostPlan, at: &Located<String>, problems: &mut Vec<Problem>) {
        let mut report = |first: ConfigLocation, what: String| {
            let first = first.relative_to(&at.location);
            problems.push(at.problem(format!("{what}{first}")));
        };
        let addresses = host.settings.listen.list.iter().map(|address| Some(address.value.clone()));
        let mut addresses: Vec<_> = addresses.collect();
        if addresses.is_empty() {
            addresses.push(None);
        }
        host.names.retain(|name| {
            let keys = addresses.iter().map(|address| (name.clone(), address.clone()));
            let known = keys.filter_map(|key| self.names.insert(key, at.location.clone())).next();
            let is_new = known.is_none();
            known
                .into_iter()
                .for_each(|first| report(first, format!("the host `{name}` is given twice")));
            is_new
        });
        if !host.names.is_empty()
            && let Some(first) = self.titles.insert(host.title(), at.location.clone())
        {
            let what = format!(
                "the section `{0}` is given twice; a label distinguishes it: \"{0} @internal\"",
                host.title()
            );
            report(first, what);
        }
    }
}

/// Returns the address without TLS that is used if none is given. `is_everywhere` is set if a host
/// with routes is not bound to an address.
fn default_listen(
    acme: &Option<AcmeConfig>,
    tls: Option<&TlsConfig>,
    is_everywhere: bool,
) -> Option<&'static str> {
    if acme.is_some() {
        return Some("[::]:80");
    }
    let is_plain = tls.is_none_or(|tls| tls.listen.list.is_empty());
    (is_plain && is_everywhere).then_some("127.0.0.1:8080")
}
