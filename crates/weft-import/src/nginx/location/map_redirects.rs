//! Redirects by `map`: `map $uri $new { /old /new; }` with `if ($new) { return 301 $new; }`.

use super::Location;
use crate::document::{Route, Table};
use crate::nginx::maps::{Map, MapKey};
use crate::nginx::tree::{Directive, named};

/// Returns the `map` and the status of a condition that redirects to the values of a map of paths.
fn redirecting<'a>(
    location: &Location<'a>,
    condition: &str,
    response: &Directive,
) -> Option<(&'a Directive, u64)> {
    let name = condition.strip_prefix('$')?.trim_end_matches([' ', '!', '=', '"', '\'']);
    let status = match (&*response.name, response.arg(0)) {
        ("return", "301" | "302" | "303" | "307" | "308") => response.arg(0).parse().ok()?,
        _ => return None,
    };
    let is_value = response.arg(1).strip_prefix('$')? == name;
    location.global.maps.get(name).copied().filter(|_| is_value).map(|map| (map, status))
}

/// Returns true if a condition is about a map of redirects that has equivalents.
pub(crate) fn is_known(location: &Location<'_>, condition: &str, response: &Directive) -> bool {
    of_condition(location, condition, response).is_some()
}

/// Returns the routes of all such conditions of the server.
pub(crate) fn routes(location: &Location<'_>) -> Vec<Route> {
    let conditions = named(location.server.children(), "if");
    let routes = conditions.filter_map(|condition| {
        let [response] = condition.children() else { return None };
        of_condition(location, &condition.condition(), response)
    });
    routes.flatten().collect()
}

fn of_condition(
    location: &Location<'_>,
    condition: &str,
    response: &Directive,
) -> Option<Vec<Route>> {
    let (directive, status) = redirecting(location, condition, response)?;
    let map = Map::of(directive, location.global.target)?;
    if !matches!(map.source, "$uri" | "$request_uri" | "$document_uri") || !map.default.is_empty() {
        return None;
    }
    let entries = map.entries.iter().filter(|(_, target)| !target.is_empty());
    let routes: Option<Vec<Route>> = entries
        .map(|(key, target)| {
            let (pattern, target) = match key {
                MapKey::Text(path) if path.starts_with('/') && !path.contains('?') => {
                    (format!("= {path}"), location.variables.literal(target)?)
                }
                MapKey::Regex(regex) => (
                    format!("~ {regex}"),
                    location.with_regex(regex).variables.template(target).ok()?,
                ),
                MapKey::Text(_) => return None,
            };
            if !target.starts_with('/') && !target.contains("://") {
                return None;
            }
            // nginx adds no query, and Weft adds none to a target with placeholders.
            let is_plain = !target.contains(['?', '{']);
            let target = if is_plain { format!("{target}?") } else { target };
            let mut table = Table::default();
            table.set_redirect(target, status);
            Some(Route::new(pattern, table))
        })
        .collect();
    let routes = routes?;
    // The location would be a second route of the same path.
    let exact = location.server.children().iter().filter(|child| child.arg(0) == "=");
    let is_taken = |route: &Route| {
        let path = route.pattern.strip_prefix("= ");
        exact.clone().any(|child| child.name == "location" && Some(child.arg(1)) == path)
    };
    (!routes.iter().any(is_taken)).then_some(routes)
}
