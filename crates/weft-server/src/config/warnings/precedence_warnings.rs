//! Patterns that take paths from a prefix that restricts its clients.

use weft_config::Problem;

use crate::config::host_plan::HostPlan;
use crate::config::route_plan::RoutePlan;
use crate::route::PathKey;
use crate::template::Pattern;

/// Returns a warning about a route for a pattern that is open to all clients, if it precedes a
/// prefix with a password or a list of networks for some of its paths.
pub(super) fn precedence_warning(host: &HostPlan, route: &RoutePlan) -> Option<Problem> {
    let PathKey::Pattern(pattern) = &route.key.path else { return None };
    // A redirect or a fixed text discloses no file.
    if route.options.restrict_clients() || route.form.value.template().is_some() {
        return None;
    }
    let restricted = host.routes.iter().filter(|other| other.options.restrict_clients());
    let mut examples = restricted.filter_map(|other| {
        let PathKey::Prefix(prefix) = &other.key.path else { return None };
        Some((other, example(pattern, prefix)?))
    });
    let (other, path) = examples.next()?;
    Some(route.form.problem(format!(
        "`{}` takes precedence over `{}`, which restricts its clients: all clients get {path}",
        route.key, other.key
    )))
}

/// Returns a path below a prefix that a pattern matches. It has the extension that the pattern has
/// at last.
fn example(pattern: &Pattern, prefix: &str) -> Option<String> {
    let (_, extension) = pattern.source().rsplit_once("\\.").unwrap_or_default();
    let extension = extension.trim_start_matches(['(', '?', ':']);
    let end = extension.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(extension.len());
    let names = [format!("x.{}", &extension[..end]), ".x".to_owned(), "x".to_owned()];
    let mut paths = names.iter().map(|name| format!("{prefix}/{name}"));
    paths.find(|path| pattern.matches(path.as_bytes()))
}
