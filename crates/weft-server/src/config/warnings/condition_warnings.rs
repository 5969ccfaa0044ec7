//! Routes with conditions that are probably not intended.

use weft_config::Problem;

use crate::config::host_plan::HostPlan;
use crate::config::route_plan::RoutePlan;
use crate::route::PathKey;

/// Returns warnings about a route with conditions.
pub(super) fn condition_warnings(host: &HostPlan, route: &RoutePlan) -> Vec<Problem> {
    let messages = [unreachable(host, route), open_otherwise(host, route)];
    messages.into_iter().flatten().map(|message| route.form.problem(message)).collect()
}

/// Finds an earlier route that gets all requests of the route.
fn unreachable(host: &HostPlan, route: &RoutePlan) -> Option<String> {
    let conditions = route.conditions.as_deref()?;
    let earlier = host.routes.iter().take_while(|other| other.key != route.key);
    let covers = |other: &&RoutePlan| {
        let methods = &other.key.methods;
        other.key.path == route.key.path
            && (methods.is_none() || *methods == route.key.methods)
            && other.conditions.as_deref().is_some_and(|it| it.cover(conditions))
    };
    let other = earlier.into_iter().find(covers)?;
    Some(format!(
        "no request gets the route `{}`: each that meets its conditions also meets the conditions \
         of `{}`, which comes before it",
        route.key, other.key
    ))
}

/// Finds a restriction that clients avoid if their requests do not meet the conditions.
fn open_otherwise(host: &HostPlan, route: &RoutePlan) -> Option<String> {
    route.conditions.as_deref().filter(|_| route.options.restrict_clients())?;
    let of_path = host
        .routes
        .iter()
        .find(|other| other.conditions.is_none() && other.key.path == route.key.path);
    let of_shorter = || match &route.key.path {
        PathKey::Prefix(path) => host.route_of(&format!("{path}/")),
        PathKey::Exact(path) => host.route_of(path),
        PathKey::Pattern(_) | PathKey::Name(_) => None,
    };
    let other = of_path.or_else(of_shorter)?;
    (!other.options.restrict_clients()).then(|| {
        format!(
            "`{}` restricts its clients, but requests that do not meet its conditions get `{}`, \
             which does not",
            route.key, other.key
        )
    })
}
