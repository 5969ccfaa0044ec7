//! Routes of the paths that `rewrite` changes.

use super::rewrite::{Rewrite, RewriteKind};
use super::rewrite::{appended_target, changed_prefix, is_of_all, is_safe, parse, target};
use super::{Location, Pattern, route};
use crate::document::{Route, Table};
use crate::nginx::regex;

/// Returns the routes of the `rewrite` directives of a location, or of the server, that apply to
/// some of its paths. One that cannot be carried over is reported.
pub(crate) fn routes<'a>(location: &Location<'a>) -> Vec<Route> {
    let directives = location.scope.own("rewrite");
    let applies_to_all = directives.first().is_some_and(|first| is_of_all(location, first));
    let is_appended = directives.len() == 1 && appended_target(location, directives[0]).is_some();
    if location.is_rewritten || location.directive.is_some() && (applies_to_all || is_appended) {
        return Vec::new();
    }
    if changed_prefix(location).is_some() && !location.scope.own("proxy_pass").is_empty() {
        return Vec::new();
    }
    let mut routes = Vec::new();
    for directive in directives {
        let route = parse(location, directive).and_then(|rewrite| route(location, &rewrite));
        match route {
            Ok(route) => routes.push(route),
            Err(reason) => location.lost(directive, reason),
        }
    }
    routes
}

fn route<'a>(location: &Location<'a>, rewrite: &Rewrite<'a>) -> Result<Route, String> {
    let regex = restricted(location, &rewrite.regex)?;
    let inner = location.with_regex(&regex);
    let target = target(&inner, rewrite.directive.arg(1), rewrite.kind)?;
    let mut table = Table::default();
    match rewrite.kind {
        RewriteKind::Redirect(status) => table.set_redirect(target, status),
        RewriteKind::Elsewhere if !is_safe(location, &target, &[&regex]) => {
            return Err("it applies to its own result".to_owned());
        }
        RewriteKind::Elsewhere => table.set("rewrite", target),
        RewriteKind::Here => {
            let mut route = route::translate(&inner);
            let responds = ["files", "proxy", "fastcgi", "scgi", "uwsgi"]
                .iter()
                .any(|key| route.table.get(key).is_some());
            if responds {
                route.table.set("rewrite", target);
            }
            return Ok(route);
        }
    }
    Ok(Route::new(format!("~ {regex}"), table))
}

/// Returns the expression for the paths of the location only.
fn restricted(location: &Location<'_>, regex: &str) -> Result<String, String> {
    let prefix = match &location.pattern {
        _ if location.directive.is_none() => return beside_exact_locations(location, regex),
        Pattern::Prefix(prefix) => prefix,
        Pattern::Exact(_) | Pattern::Regex(_) | Pattern::Named(_) => {
            return Err("its location has no prefix".to_owned());
        }
    };
    let regex =
        regex::below(prefix, regex).ok_or("its regular expression would match other locations")?;
    let literal = regex::literal_prefix(&regex).unwrap_or(prefix);
    let mut prefixes = location.prefixes_of_server();
    let is_inner = |other: &&str| {
        other.len() > prefix.len() && (other.starts_with(literal) || literal.starts_with(other))
    };
    match prefixes.find(is_inner) {
        Some(other) => Err(format!("it would apply to the location {other}, too")),
        None => Ok(regex),
    }
}

/// Returns the expression of a server, unless an exact location would precede it.
fn beside_exact_locations(location: &Location<'_>, regex: &str) -> Result<String, String> {
    let matches = |path: &str| location.global.target.matches(regex, path);
    let children = location.server.children().iter();
    let mut exact = children.filter(|child| child.name == "location" && child.arg(0) == "=");
    match exact.find(|child| matches(child.arg(1))) {
        Some(exact) => Err(format!("the location {} would precede it", exact.arg(1))),
        None => Ok(regex.to_owned()),
    }
}
