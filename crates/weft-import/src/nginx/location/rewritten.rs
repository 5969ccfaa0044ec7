//! Routes of the paths that `rewrite` changes.

use super::redirect::{is_redirect, matches_all};
use super::rewrite::{Rewrite, RewriteKind};
use super::rewrite::{
    appended_target, changed_prefix, is_of_all, is_safe, parse, target, whole_path,
};
use super::{Location, Pattern, Responder, fields, route};
use crate::document::{Route, Table};
use crate::nested_regex;
use crate::nginx::tree::Directive;
use crate::regex;

/// The routes of the `rewrite` directives of a location.
#[derive(Default)]
pub(crate) struct RewrittenRoutes {
    pub(crate) routes: Vec<Route>,
    /// The route in place of a location with a regular expression.
    pub(crate) whole: Option<Route>,
    /// They have all paths of the location.
    pub(crate) are_complete: bool,
}

/// Returns the routes of the `rewrite` directives of a location, or of the server, that apply to
/// some of its paths. A directive that cannot be carried over is reported, and its paths are
/// refused, as they have other contents in nginx.
pub(crate) fn routes<'a>(location: &Location<'a>) -> RewrittenRoutes {
    let directives = location.scope.own("rewrite");
    let applies_to_all = directives.first().is_some_and(|first| is_of_all(location, first));
    let is_appended = matches!(
        &*directives,
        [only] if is_redirect(only) && appended_target(location, only).is_some()
    );
    let is_response = location.directive.is_some() && (applies_to_all || is_appended);
    if location.is_rewritten || location.is_refused.get() || is_response {
        return RewrittenRoutes::default();
    }
    if changed_prefix(location).is_some() && !location.scope.own("proxy_pass").is_empty() {
        return RewrittenRoutes::default();
    }
    let mut found = RewrittenRoutes::default();
    if let Some(first) = directives.first().filter(|first| has_same_expression(location, first)) {
        match whole_route(location, first) {
            Ok(route) => found.whole = Some(route),
            Err(reason) => location.refuse(first, format!("{reason}; its location is refused")),
        }
        return found;
    }
    if let [only] = &*directives
        && let Some(routes) = with_exceptions(location, only)
    {
        return routes;
    }
    if let [only] = &*directives
        && let Some(Ok(route)) = below_prefix(location, only)
    {
        location.scope.outcomes.carried(only);
        found.whole = Some(route);
        return found;
    }
    for directive in directives {
        let rewrite = parse(location, directive);
        let route = rewrite.as_ref().map_err(String::clone);
        let refusal = || refusal(location, &rewrite.as_ref().ok()?.regex);
        let route = route.and_then(|rewrite| {
            let regex = restricted(location, &rewrite.regex)?;
            route_of(location, rewrite, &regex, rewrite.directive.arg(1))
        });
        match route {
            Ok(route) => found.routes.push(route),
            Err(reason) if is_redirect(directive) => location.lost(directive, reason),
            Err(reason) => match refusal() {
                Some(route) => {
                    location.lost(directive, format!("{reason}; its paths are refused"));
                    found.routes.push(route);
                }
                None => location.refuse(directive, format!("{reason}; its location is refused")),
            },
        }
        found.are_complete |= has_all_paths(location, directive);
    }
    found.are_complete &= !location.is_refused.get();
    found
}

/// Returns the routes of a location whose expression rewrites all paths that do not begin with one
/// of several texts: `^/(?!index|status) /index.php$request_uri`.
fn with_exceptions(location: &Location<'_>, directive: &Directive) -> Option<RewrittenRoutes> {
    let Pattern::Regex(own) = &location.pattern else { return None };
    let texts = directive.arg(0).strip_prefix("^/(?!")?.strip_suffix(')')?;
    let (flags, inner) = match own.strip_prefix("(?i)") {
        Some(inner) => ("(?i)", inner),
        None => ("", &**own),
    };
    let is_plain = !texts.contains(['(', ')']) && !inner.starts_with('^');
    let is_elsewhere = matches!(directive.arg(2), "" | "last");
    let target = target(location, directive.arg(1), RewriteKind::Elsewhere).ok()?;
    let excepted = format!("{flags}^/(?:{texts})");
    let own_target = target.split('{').next().unwrap_or_default();
    // Otherwise the new path would be rewritten again.
    let is_excepted = location.global.target.matches(&excepted, own_target);
    if !(is_plain && is_elsewhere && is_excepted && target.starts_with('/')) {
        return None;
    }
    let whole = location.with_regex(&format!("{excepted}.*(?:{inner})"));
    if !location.global.target.is_route_key(&whole.pattern.key()) {
        return None;
    }
    location.scope.outcomes.carried(directive);
    let mut table = Table::default();
    table.set("rewrite", target);
    let others = Route::new(location.pattern.key(), table);
    let routes = vec![Route { has_options_of_host: true, ..others }];
    Some(RewrittenRoutes { routes, whole: Some(route::translate(&whole)), are_complete: false })
}

/// Returns the route of a location with an expression in a prefix, all of whose paths a `rewrite`
/// changes by the prefix: `location ~ \.x$ { rewrite ^/prefix/(.*)$ /other/$1 break; }`.
fn below_prefix<'a>(
    location: &Location<'a>,
    directive: &'a Directive,
) -> Option<Result<Route, String>> {
    let (Pattern::Regex(own), Some(of_location)) = (&location.pattern, location.directive) else {
        return None;
    };
    let rest = directive.arg(0).strip_prefix('^')?;
    let prefix = rest.strip_suffix("(.*)$").or_else(|| rest.strip_suffix("(.*)"))?;
    let target = location.global.target;
    let inner = regex::of_modifier(target, of_location.arg(0), of_location.arg(1))?;
    let (flags, text) = match inner.strip_prefix("(?i)") {
        Some(text) => ("(?i)", text),
        None => ("", &*inner),
    };
    let text = text.strip_suffix('$')?;
    let has_groups = text.replace("(?:", "").contains(['(', '|', '^']);
    if nested_regex::below(prefix, &inner).as_ref() != Some(own) || has_groups {
        return None;
    }
    let regex = format!("{flags}^{}(.*{text})$", regex::escape(prefix));
    let rewrite = parse(location, directive).ok()?;
    Some(route_of(location, &rewrite, &regex, directive.arg(1)))
}

/// Returns a route that refuses the paths of a `rewrite`; `None` if it would not have them all.
fn refusal(location: &Location<'_>, regex: &str) -> Option<Route> {
    let regex = match &location.pattern {
        _ if location.directive.is_none() => beside_exact_locations(location, regex).ok()?,
        Pattern::Prefix(prefix) => nested_regex::below(prefix, regex)?,
        Pattern::Exact(_) | Pattern::Regex(_) | Pattern::Named(_) => return None,
    };
    let text = "this rewrite could not be imported\n";
    let mut route = Route::refusal(format!("~ {regex}"), text, 403);
    fields::add_responses(location, Responder::Text, &mut route.table);
    Some(route)
}

/// Returns true if a `rewrite` matches all paths of its location, such as `^/a/(.*)$` in `/a/`.
fn has_all_paths(location: &Location<'_>, directive: &Directive) -> bool {
    let Pattern::Prefix(prefix) = &location.pattern else { return false };
    if location.directive.is_none() {
        return false;
    }
    let rest = directive.arg(0).strip_prefix('^').and_then(|rest| {
        let escaped = regex::escape(prefix);
        rest.strip_prefix(&**prefix).or_else(|| rest.strip_prefix(&*escaped))
    });
    let Some(rest) = rest.or_else(|| matches_all(directive.arg(0)).then_some("")) else {
        return false;
    };
    let rest = rest.strip_prefix("/?").unwrap_or(rest);
    let rest = rest.strip_suffix('$').unwrap_or(rest);
    let is_named = rest.strip_prefix("(?<").is_some_and(|named| {
        named.split_once('>').is_some_and(|(_, expression)| expression == ".*)")
    });
    is_named || matches!(rest, "" | ".*" | "(.*)")
}

/// Returns the route of a location with a regular expression whose paths are all rewritten.
fn whole_route<'a>(location: &Location<'a>, directive: &'a Directive) -> Result<Route, String> {
    let rewrite = parse(location, directive)?;
    match &location.pattern {
        Pattern::Regex(own) if matches_all(directive.arg(0)) => {
            route_of(location, &rewrite, own, &whole_path(directive))
        }
        _ => route_of(location, &rewrite, &rewrite.regex, directive.arg(1)),
    }
}

/// Returns true if a `rewrite` matches all paths of a location with a regular expression.
fn has_same_expression(location: &Location<'_>, directive: &Directive) -> bool {
    let (Pattern::Regex(own), Some(_)) = (&location.pattern, location.directive) else {
        return false;
    };
    let beginning = |regex: &str| {
        let regex = regex.replace("\\/", "/");
        let ends = ["/?(.*)$", "(.*)$", "(.*)", ".*$", ".*", "$"];
        let end = ends.iter().find_map(|end| regex.strip_suffix(end));
        end.map(str::to_owned).unwrap_or(regex)
    };
    matches_all(directive.arg(0)) || beginning(own) == beginning(directive.arg(0))
}

fn route_of<'a>(
    location: &Location<'a>,
    rewrite: &Rewrite<'a>,
    regex: &str,
    text: &str,
) -> Result<Route, String> {
    let (regex, text) = &slashed(regex, text);
    let inner = location.with_regex(regex);
    let target = target(&inner, text, rewrite.kind)?;
    let mut table = Table::default();
    match rewrite.kind {
        RewriteKind::Redirect(status) => {
            table.set_redirect(target, status);
            fields::add_responses(location, Responder::Redirect, &mut table);
        }
        RewriteKind::Elsewhere if !is_safe(location, &target, &[regex]) => {
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

/// Moves the slash with which all paths begin out of the first group of an expression, if a target
/// begins with the group: `^(.+)/+$` with `$1` is `^/(.*)/+$` with `/$1`.
fn slashed(regex: &str, text: &str) -> (String, String) {
    let groups =
        [("^(.+)", "^/(.*)"), ("^(.*)", "^/(.*)"), ("^(/.*)", "^/(.*)"), ("^(/.+)", "^/(.+)")];
    let changed =
        groups.iter().find_map(|(from, to)| Some(format!("{to}{}", regex.strip_prefix(from)?)));
    match (changed, text.strip_prefix("$1")) {
        (Some(changed), Some(rest)) if !rest.contains("$1") => (changed, format!("/$1{rest}")),
        _ => (regex.to_owned(), text.to_owned()),
    }
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
    let regex = nested_regex::below(prefix, regex)
        .ok_or("its regular expression would match other locations")?;
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
