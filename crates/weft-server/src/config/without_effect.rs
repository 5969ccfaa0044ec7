//! Keys that have no effect where they stand.

use weft_config::{ConfigLocation, Problem};

use super::Config;
use super::route_config::RouteConfig;
use crate::apps::Form;
use crate::options::{RouteFacts, RouteOptions, Scope};

/// Returns a warning for each key that has no effect without another.
pub(crate) fn without_effect(config: &Config) -> Vec<Problem> {
    let mut warnings = Vec::new();
    let all = |route: &RouteConfig, host: &RouteOptions| {
        route.options.clone().or(host).or(&config.defaults)
    };
    let mut of_all_hosts = Vec::new();
    for host in &config.hosts {
        let routes = || host.routes.iter().map(|route| all(route, &host.options));
        let found = host.options.without_effect(&Scope::of_routes(routes().collect()));
        warnings.extend(found.into_iter().map(|message| host.names.problem(message)));
        for (route, all) in host.routes.iter().zip(routes()) {
            let facts = facts(config, &route.form.value);
            let found = route.options.without_effect(&Scope::of_route(all, &facts));
            let found = found.into_iter().chain(route.form.value.ineffective());
            warnings.extend(found.map(|message| route.form.problem(message)));
        }
        of_all_hosts.extend(routes());
    }
    let is_traced = config.defaults.tracing.has_spans()
        || of_all_hosts.iter().any(|options| options.tracing.has_spans());
    let found = config.defaults.without_effect(&Scope::of_routes(of_all_hosts));
    warnings.extend(found.into_iter().map(|message| Problem {
        location: ConfigLocation::Unknown,
        message: format!("[defaults]: {message}"),
    }));
    warnings.extend(config.tls.warning());
    warnings.extend(config.tracing.warning(is_traced));
    warnings.extend(config.status.warnings());
    warnings
}

fn facts(config: &Config, form: &Form) -> RouteFacts {
    RouteFacts {
        is_redirect: form.is_redirect(),
        has_application: form.runs_application(),
        has_client_ca: config.tls.client_ca.is_some(),
        has_access_log: config.log.has_access(),
    }
}
