//! `rewrite`: redirects, and other paths for the same location or for another one.

use super::returns::set_redirect;
use super::{Location, Pattern, Refusal};
use crate::document::{Route, Table, Value};
use crate::nginx::regex;
use crate::nginx::tree::Directive;

/// A `rewrite` directive.
struct Rewrite<'a> {
    directive: &'a Directive,
    /// Regular expression in the syntax of Weft.
    regex: String,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Redirect(u64),
    /// The location of the new path responds.
    Elsewhere,
    /// This location responds.
    Here,
}

/// Returns true for a regular expression that matches all paths.
pub(in crate::nginx) fn matches_all(regex: &str) -> bool {
    const ALL: [&str; 10] =
        ["^", "^/", "^(.*)$", "^(.*)", "^.*$", ".*", "(.*)", "^/(.*)$", "^/(.*)", "^/.*$"];
    ALL.contains(&regex)
}

/// Translates a `rewrite` of all paths of a location as the response of its route. Returns false if
/// there is none.
pub(in crate::nginx) fn of_all<'a>(
    location: &Location<'a>,
    table: &mut Table,
) -> Result<bool, Refusal<'a>> {
    let rewrites = location.scope.own("rewrite");
    if let [only] = &*rewrites
        && let Some(target) = appended_target(location, only)
        && let Ok(Rewrite { kind: Kind::Redirect(status), .. }) = parse(location, only)
    {
        set_redirect(table, target, status);
        return Ok(true);
    }
    let Some(directive) = rewrites.into_iter().next().filter(|it| is_of_all(location, it)) else {
        return Ok(false);
    };
    match redirect_all(location, directive, table) {
        Ok(()) => Ok(true),
        // `routes` reports the one of a server.
        Err(_) if location.directive.is_none() => Ok(false),
        Err(reason) => Err(Refusal { directive, reason }),
    }
}

fn redirect_all(
    location: &Location<'_>,
    directive: &Directive,
    table: &mut Table,
) -> Result<(), String> {
    let kind = parse(location, directive)?.kind;
    let mut target = target(location, &whole_path(directive), kind)?;
    let is_prefix = matches!(location.pattern, Pattern::Prefix(_));
    match kind {
        Kind::Redirect(status) => {
            match (is_prefix && !target.contains('{'), target.contains('?')) {
                // The rest of the path would be appended.
                (true, false) => target.push_str("?{query}"),
                (true, true) if !location.may_be_regex() => {
                    return Err("other locations begin with its prefix".to_owned());
                }
                _ => {}
            }
            set_redirect(table, target, status);
        }
        Kind::Elsewhere if is_safe(location, &target, &[]) => {
            table.set("rewrite", Value::Text(target));
        }
        Kind::Elsewhere | Kind::Here => return Err("it applies to its own result".to_owned()),
    }
    Ok(())
}

/// Returns the target of a `rewrite` of all paths, in which `$1` is the path.
fn whole_path(directive: &Directive) -> String {
    match directive.arg(0).contains("/(") {
        true => directive.arg(1).replace("/$1", "$uri"),
        false => directive.arg(1).replace("$1", "$uri"),
    }
}

/// Returns the target of a redirect to which the rest of the path and the query are appended.
fn appended_target(location: &Location<'_>, directive: &Directive) -> Option<String> {
    let Pattern::Prefix(prefix) = &location.pattern else { return None };
    let rest = directive.arg(0).strip_prefix('^')?.strip_prefix(&**prefix)?;
    let target = directive.arg(1).strip_suffix("$1")?;
    let is_whole =
        matches!(rest, "(.*)$" | "(.*)") && prefix.ends_with('/') == target.ends_with('/');
    (is_whole && !target.contains(['$', '?', '#', '{'])).then(|| target.to_owned())
}

/// Returns the target of a `rewrite` of all paths to another location, as an element of `try_files`.
pub(in crate::nginx) fn fallback(location: &Location<'_>, directive: &Directive) -> Option<String> {
    let is_all = directive.name == "rewrite" && matches_all(directive.arg(0));
    let kind = parse(location, directive).ok().filter(|_| is_all)?.kind;
    let is_path = directive.arg(1).starts_with('/') && !matches!(kind, Kind::Redirect(_));
    target(location, &whole_path(directive), kind).ok().filter(|_| is_path)
}

/// Returns true for an expression that matches all paths of a location.
fn is_of_all(location: &Location<'_>, directive: &Directive) -> bool {
    let is_prefix = !matches!(&location.pattern, Pattern::Regex(_));
    let is_here = directive.arg(2) == "break" && location.directive.is_some();
    is_prefix && matches_all(directive.arg(0)) && !is_here && !location.is_rewritten
}

/// Returns the prefix that takes the place of the location's for an upstream, if the location only
/// changes that: `rewrite ^/api/(.*)$ /v1/$1 break`.
pub(in crate::nginx) fn changed_prefix(location: &Location<'_>) -> Option<String> {
    let Pattern::Prefix(prefix) = &location.pattern else { return None };
    let [directive] = &*location.scope.own("rewrite") else { return None };
    let rest = directive.arg(0).strip_prefix('^')?;
    let rest = rest.strip_prefix(&**prefix).or_else(|| {
        let unslashed = prefix.strip_suffix('/')?;
        rest.strip_prefix(unslashed)
            .filter(|rest| rest.starts_with("(/") || rest.starts_with("/?("))
    })?;
    let target = directive.arg(1).strip_suffix("$1")?;
    let is_rest = matches!(
        rest,
        "(.*)$" | "(.*)" | "(/.*)$" | "(/.*)" | "/?(.*)$" | "/?(.*)" | "/(.*)$" | "/(.*)"
    );
    let is_plain = !target.contains(['$', '?', '#', '{', ':']);
    (is_rest && is_plain && directive.arg(2) == "break").then(|| match target {
        "" => "/".to_owned(),
        target => target.to_owned(),
    })
}

/// Returns the routes of the `rewrite` directives of a location, or of the server, that apply to some
/// of its paths. One that cannot be carried over is reported.
pub(in crate::nginx) fn routes<'a>(location: &Location<'a>) -> Vec<Route> {
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
        let route = parse(location, directive).and_then(|rewrite| rewrite.route(location));
        match route {
            Ok(route) => routes.push(route),
            Err(reason) => location.scope.outcomes.lost(directive, reason),
        }
    }
    routes
}

fn parse<'a>(location: &Location<'_>, directive: &'a Directive) -> Result<Rewrite<'a>, String> {
    let kind = match directive.arg(2) {
        "permanent" => Kind::Redirect(301),
        "redirect" => Kind::Redirect(302),
        _ if directive.arg(1).contains("://") => Kind::Redirect(302),
        "break" if location.directive.is_some() => Kind::Here,
        // In a server, the location is always determined afterwards.
        "last" | "break" | "" => Kind::Elsewhere,
        _ => return Err("this flag is not known".to_owned()),
    };
    let unknown = || "its regular expression has no equivalent".to_owned();
    let regex = regex::translate(location.global.target, directive.arg(0)).ok_or_else(unknown)?;
    Ok(Rewrite { directive, regex, kind })
}

impl<'a> Rewrite<'a> {
    fn route(&self, location: &Location<'a>) -> Result<Route, String> {
        let regex = self.restricted(location)?;
        let inner = location.with_regex(&regex);
        let target = target(&inner, self.directive.arg(1), self.kind)?;
        let mut table = Table::default();
        match self.kind {
            Kind::Redirect(status) => set_redirect(&mut table, target, status),
            Kind::Elsewhere if !is_safe(location, &target, &[&regex]) => {
                return Err("it applies to its own result".to_owned());
            }
            Kind::Elsewhere => table.set("rewrite", Value::Text(target)),
            Kind::Here => {
                let mut route = inner.route();
                let responds = ["files", "proxy", "fastcgi", "scgi", "uwsgi"]
                    .iter()
                    .any(|key| route.table.get(key).is_some());
                if responds {
                    route.table.set("rewrite", Value::Text(target));
                }
                return Ok(route);
            }
        }
        Ok(Route { notes: Vec::new(), pattern: format!("~ {regex}"), table, is_refusal: false })
    }

    /// Returns the expression for the paths of the location only.
    fn restricted(&self, location: &Location<'_>) -> Result<String, String> {
        let prefix = match &location.pattern {
            _ if location.directive.is_none() => return self.beside_exact_locations(location),
            Pattern::Prefix(prefix) => prefix,
            Pattern::Exact(_) | Pattern::Regex(_) | Pattern::Named(_) => {
                return Err("its location has no prefix".to_owned());
            }
        };
        let regex = regex::below(prefix, &self.regex)
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
    fn beside_exact_locations(&self, location: &Location<'_>) -> Result<String, String> {
        let matches = |path: &str| location.global.target.matches(&self.regex, path);
        let children = location.server.children().iter();
        let mut exact = children.filter(|child| child.name == "location" && child.arg(0) == "=");
        match exact.find(|child| matches(child.arg(1))) {
            Some(exact) => Err(format!("the location {} would precede it", exact.arg(1))),
            None => Ok(self.regex.clone()),
        }
    }
}

/// Converts a target. nginx appends the query of the request, unless the target ends with a question
/// mark; Weft does so if the target has no query, and in a redirect no placeholders.
fn target(location: &Location<'_>, text: &str, kind: Kind) -> Result<String, String> {
    let has_own_query = text.contains("$request_uri") || text.contains("$args");
    let (text, is_final) = match text.strip_suffix('?') {
        Some(text) => (text, true),
        None => (text, has_own_query),
    };
    let target = location.variables.template(text)?;
    if !target.starts_with(['/', '{']) && !target.contains("://") {
        return Err("its target is neither a URL nor a path".to_owned());
    }
    let is_expanded = matches!(kind, Kind::Redirect(_)) && target.contains('{');
    Ok(match (is_final, target.contains('?')) {
        (true, false) if !is_expanded && !has_own_query => format!("{target}?"),
        (false, true) => format!("{target}&{{query}}"),
        (false, false) if is_expanded => format!("{target}?{{query}}"),
        (true, _) | (false, false) => target,
    })
}

/// Returns true if none of the expressions, nor the location itself, matches the target again. Values
/// of placeholders are assumed to be a word.
fn is_safe(location: &Location<'_>, target: &str, regexes: &[&str]) -> bool {
    let mut path = String::new();
    let mut rest = target.split('?').next().unwrap_or_default();
    while let Some((before, behind)) = rest.split_once('{') {
        path.push_str(before);
        path.push_str("word");
        rest = behind.split_once('}').map_or("", |(_, behind)| behind);
    }
    path.push_str(rest);
    let matches = |regex: &&str| location.global.target.matches(regex, &path);
    let is_own = match (&location.pattern, regexes) {
        (Pattern::Prefix(prefix), []) => path.starts_with(&**prefix),
        (Pattern::Exact(exact), []) => path == *exact,
        _ => false,
    };
    !is_own && !regexes.iter().any(matches)
}
