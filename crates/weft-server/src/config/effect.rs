//! Keys and words that have no effect where they stand.

use weft_config::{ConfigLocation, Problem};

use super::options::RouteOptions;
use super::route::{Action, RouteConfig};
use super::{Config, HostConfig};

/// Returns a warning for each key of a route that has no effect without another.
pub(crate) fn without_effect(config: &Config) -> Vec<Problem> {
    let mut warnings = Vec::new();
    for host in &config.hosts {
        let found = of_outer(&host.options, &[host], config);
        warnings.extend(found.map(|message| host.names.problem(message)));
        for route in &host.routes {
            let found = of_route(config, host, route);
            warnings.extend(found.map(|message| route.action.problem(message)));
        }
    }
    let all: Vec<_> = config.hosts.iter().collect();
    let found = of_outer(&config.defaults, &all, config);
    warnings.extend(found.map(|message| Problem {
        location: ConfigLocation::Unknown,
        message: format!("[defaults]: {message}"),
    }));
    warnings.extend(config.tls.warning());
    let has_spans = |options: &RouteOptions| options.has_tracing();
    let mut hosts = config.hosts.iter();
    let is_traced = has_spans(&config.defaults)
        || hosts.any(|host| {
            has_spans(&host.options) || host.routes.iter().any(|route| has_spans(&route.options))
        });
    warnings.extend(config.tracing.warning(is_traced));
    warnings.extend(config.status.warnings());
    warnings
}

/// A condition, and the warning if it is true.
type Finding = (bool, &'static str);

/// Finds options of a host, or of all hosts, that have no effect on any route.
fn of_outer(
    own: &RouteOptions,
    hosts: &[&HostConfig],
    config: &Config,
) -> impl Iterator<Item = &'static str> + use<> {
    let mut routes = Vec::new();
    for host in hosts {
        let options = host.routes.iter().map(|route| route.options.clone().or(&host.options));
        routes.extend(options.map(|options| options.or(&config.defaults)));
    }
    messages(without_basis(own, |is_basis| routes.is_empty() || routes.iter().any(is_basis)))
}

fn of_route(
    config: &Config,
    host: &HostConfig,
    route: &RouteConfig,
) -> impl Iterator<Item = &'static str> {
    let own = &route.options;
    let all = own.clone().or(&host.options).or(&config.defaults);
    let logs = own.access_log.iter().flatten();
    let has_no_output = !config.log.has_access() && logs.into_iter().any(|log| log.to.is_none());
    let refuses_all = own.client_cert_required == Some(true) && config.tls.client_ca.is_none();
    let mut found = vec![
        (has_no_output, "`access_log` has no effect without `to`: `access` in [log] is none"),
        (refuses_all, "`client_cert_required` refuses all requests without `client_ca` in [tls]"),
    ];
    found.extend(without_basis(own, |is_basis| is_basis(&all)));
    found.extend(without_access_rules(own, &all));
    found.extend(without_fitting_action(own, &route.action.value));
    messages(found)
}

fn messages(found: impl IntoIterator<Item = Finding>) -> impl Iterator<Item = &'static str> {
    found.into_iter().filter(|(is_found, _)| *is_found).map(|(_, message)| message)
}

fn has_authentication(options: &RouteOptions) -> bool {
    options.basic_auth.as_ref().is_some_and(|file| file.value().is_some())
        || options.jwt.as_ref().is_some_and(|keys| keys.value().is_some())
}

/// Finds options that need another one. `any` returns true if the other option may be set where
/// `own` applies.
fn without_basis(
    own: &RouteOptions,
    any: impl Fn(fn(&RouteOptions) -> bool) -> bool,
) -> [Finding; 7] {
    let has_rate = any(|all| all.rate.as_ref().is_some_and(|rate| rate.value().is_some()));
    let has_bandwidth = any(|all| all.bandwidth.is_some_and(|bandwidth| bandwidth > 0));
    let has_pages = any(|all| !all.error_pages.is_empty());
    let has_texts = any(RouteOptions::substitutes);
    [
        (own.burst.is_some() && !has_rate, "`burst` has no effect without `rate`"),
        (own.rate_key.is_some() && !has_rate, "`rate_key` has no effect without `rate`"),
        (
            own.bandwidth_after.is_some() && !has_bandwidth,
            "`bandwidth_after` has no effect without `bandwidth`",
        ),
        (
            own.intercept_errors == Some(true) && !has_pages,
            "`intercept_errors` has no effect without `error_pages`",
        ),
        (
            (own.sub_filter_types.is_some() || own.sub_filter_once.is_some()) && !has_texts,
            "`sub_filter_types` and `sub_filter_once` have no effect without `sub_filter`",
        ),
        (
            own.realm.is_some() && !any(has_authentication),
            "`realm` has no effect without `basic_auth`",
        ),
        (
            own.gzip_level.is_some() && !any(|all| all.compress == Some(true)),
            "`gzip_level` has no effect without `compress`",
        ),
    ]
}

/// Finds options of a route that need rules of access, which `all` has.
fn without_access_rules(own: &RouteOptions, all: &RouteOptions) -> [Finding; 3] {
    let has_server = all.forward_auth.as_ref().is_some_and(|url| url.value().is_some());
    let has_cors_options = own.cors_methods.is_some()
        || own.cors_headers.is_some()
        || own.cors_credentials.is_some()
        || own.cors_max_age.is_some();
    [
        (
            own.satisfy.is_some() && !(has_authentication(all) || has_server || all.has_networks()),
            "`satisfy` has no effect without networks and authentication",
        ),
        (
            (own.forward_auth_headers.is_some() || own.forward_auth_timeout.is_some())
                && !has_server,
            "`forward_auth_headers` and `forward_auth_timeout` have no effect without `forward_auth`",
        ),
        (
            has_cors_options && all.cors.as_ref().is_none_or(Vec::is_empty),
            "`cors_methods`, `cors_headers`, `cors_credentials` and `cors_max_age` have no effect \
             without `cors`",
        ),
    ]
}

/// Finds options and settings that have no effect on the action of a route.
fn without_fitting_action(own: &RouteOptions, action: &Action) -> [Finding; 4] {
    let proxy = match action {
        Action::Proxy(settings) => Some(settings),
        _ => None,
    };
    let has_application =
        matches!(action, Action::Proxy(_) | Action::Cgi(_) | Action::ScriptSite { .. });
    [
        (
            own.compress == Some(true) && matches!(action, Action::Redirect { .. }),
            "`compress` has no effect on a redirect",
        ),
        (
            own.accel.is_some() && !has_application,
            "`accel` has no effect on a route without upstreams and scripts",
        ),
        (
            proxy.is_some_and(|proxy| proxy.has_unused_resolver()),
            "`resolver` has no effect without an upstream with a name",
        ),
        (
            proxy.is_some_and(|proxy| proxy.ca.is_some() && !proxy.has_tls_upstream()),
            "`ca` has no effect without an upstream https://",
        ),
    ]
}
