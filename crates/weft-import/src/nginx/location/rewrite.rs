//! `rewrite`: redirects, and other paths for the same location or for another one.

use super::redirect::matches_all;
use super::{Location, Pattern, Refusal};
use crate::document::Table;
use crate::nginx::tree::Directive;
use crate::regex;

/// A `rewrite` directive.
pub(super) struct Rewrite<'a> {
    pub(super) directive: &'a Directive,
    /// Regular expression in the syntax of Weft.
    pub(super) regex: String,
    pub(super) kind: RewriteKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RewriteKind {
    Redirect(u64),
    /// The location of the new path responds.
    Elsewhere,
    /// This location responds.
    Here,
}

/// Translates a `rewrite` of all paths of a location as the response of its route. Returns false if
/// there is none.
pub(crate) fn of_all<'a>(location: &Location<'a>, table: &mut Table) -> Result<bool, Refusal<'a>> {
    let rewrites = location.scope.own("rewrite");
    if let [only] = &*rewrites
        && let Some(target) = appended_target(location, only)
        && let Ok(Rewrite { kind: RewriteKind::Redirect(status), .. }) = parse(location, only)
    {
        table.set_redirect(target, status);
        return Ok(true);
    }
    let Some(directive) = rewrites.into_iter().next().filter(|it| is_of_all(location, it)) else {
        return Ok(false);
    };
    match redirect_all(location, directive, table) {
        Ok(()) => Ok(true),
        // `routes` reports the one of a server.
        Err(_) if location.directive.is_none() => Ok(false),
        Err(reason) => Err(Refusal::new(directive, reason)),
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
        RewriteKind::Redirect(status) => {
            match (is_prefix && !target.contains('{'), target.contains('?')) {
                // The rest of the path would be appended.
                (true, false) => target.push_str("?{query}"),
                (true, true) if !location.may_be_regex() => {
                    return Err("other locations begin with its prefix".to_owned());
                }
                _ => {}
            }
            table.set_redirect(target, status);
        }
        RewriteKind::Elsewhere if is_safe(location, &target, &[]) => {
            table.set("rewrite", target);
        }
        RewriteKind::Elsewhere | RewriteKind::Here => {
            return Err("it applies to its own result".to_owned());
        }
    }
    Ok(())
}

/// Returns the target of a `rewrite` of all paths, in which `$1` is the path.
pub(super) fn whole_path(directive: &Directive) -> String {
    match directive.arg(0).contains("/(") {
        true => directive.arg(1).replace("/$1", "$uri"),
        false => directive.arg(1).replace("$1", "$uri"),
    }
}

/// Returns the target of a redirect to which the rest of the path and the query are appended.
pub(super) fn appended_target(location: &Location<'_>, directive: &Directive) -> Option<String> {
    let Pattern::Prefix(prefix) = &location.pattern else { return None };
    let rest = directive.arg(0).strip_prefix('^')?.strip_prefix(&**prefix)?;
    let target = directive.arg(1).strip_suffix("$1")?;
    let is_whole =
        matches!(rest, "(.*)$" | "(.*)") && prefix.ends_with('/') == target.ends_with('/');
    (is_whole && !target.contains(['$', '?', '#', '{'])).then(|| target.to_owned())
}

/// Returns the target of a `rewrite` of all paths to another location, as an element of
/// `try_files`.
pub(crate) fn fallback(location: &Location<'_>, directive: &Directive) -> Option<String> {
    let is_all = directive.name == "rewrite" && matches_all(directive.arg(0));
    let kind = parse(location, directive).ok().filter(|_| is_all)?.kind;
    let is_path = directive.arg(1).starts_with('/') && !matches!(kind, RewriteKind::Redirect(_));
    let target = target(location, &whole_path(directive), kind).ok().filter(|_| is_path)?;
    // In Weft, a path with two slashes is the path itself.
    let path = target.split('?').next().unwrap_or_default().trim_start_matches('/');
    (path != "{path}").then_some(target)
}

/// Returns true for an expression that matches all paths of a location.
pub(super) fn is_of_all(location: &Location<'_>, directive: &Directive) -> bool {
    let is_prefix = !matches!(&location.pattern, Pattern::Regex(_));
    let is_here = directive.arg(2) == "break" && location.directive.is_some();
    is_prefix && matches_all(directive.arg(0)) && !is_here && !location.is_rewritten
}

/// Returns the prefix that takes the place of the location's for an upstream, if the location only
/// changes that: `rewrite ^/api/(.*)$ /v1/$1 break`.
pub(crate) fn changed_prefix(location: &Location<'_>) -> Option<String> {
    let Pattern::Prefix(prefix) = &location.pattern else { return None };
    let [directive] = &*location.scope.own("rewrite") else { return None };
    let rest = directive.arg(0).strip_prefix('^')?;
    if let Some((base, ".*)" | ".*)$")) = rest.split_once('(')
        && let (Some(kept), Some(target)) =
            (prefix.strip_prefix(base), directive.arg(1).strip_suffix("$1"))
        && directive.arg(2) == "break"
        && base.ends_with('/')
        && target.starts_with('/')
        && !target.contains(['$', '?', '#', '{', ':'])
    {
        // `^/a/(.*)` in `/a/b/`, which keeps `b/`.
        return Some(format!("{target}{kept}"));
    }
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

pub(super) fn parse<'a>(
    location: &Location<'_>,
    directive: &'a Directive,
) -> Result<Rewrite<'a>, String> {
    let kind = match directive.arg(2) {
        "permanent" => RewriteKind::Redirect(301),
        "redirect" => RewriteKind::Redirect(302),
        _ if directive.arg(1).contains("://") => RewriteKind::Redirect(302),
        "break" if location.directive.is_some() => RewriteKind::Here,
        // In a server, the location is always determined afterwards.
        "last" | "break" | "" => RewriteKind::Elsewhere,
        _ => return Err("this flag is not known".to_owned()),
    };
    let unknown = || "its regular expression has no equivalent".to_owned();
    let regex = regex::translate(location.global.target, directive.arg(0)).ok_or_else(unknown)?;
    Ok(Rewrite { directive, regex, kind })
}

/// Converts a target. nginx appends the query of the request, unless the target ends with a
/// question mark; Weft does so if the target has no query, and in a redirect no placeholders.
pub(super) fn target(
    location: &Location<'_>,
    text: &str,
    kind: RewriteKind,
) -> Result<String, String> {
    let has_own_query = text.contains("$request_uri") || text.contains("$args");
    let (text, is_final) = match text.strip_suffix('?') {
        Some(text) => (text, true),
        None => (text, has_own_query),
    };
    let target = location.variables.template(text)?;
    if !is_target(&target) {
        return Err("its target is neither a URL nor a path".to_owned());
    }
    let is_expanded = matches!(kind, RewriteKind::Redirect(_)) && target.contains('{');
    Ok(match (is_final, target.contains('?')) {
        (true, false) if !is_expanded && !has_own_query => format!("{target}?"),
        (false, true) => format!("{target}&{{query}}"),
        (false, false) if is_expanded => format!("{target}?{{query}}"),
        (true, _) | (false, false) => target,
    })
}

/// Returns true for the URL or the path of a redirect or a rewritten request. Other values of the
/// request could be the name of a host.
pub(super) fn is_target(target: &str) -> bool {
    const BEGINNINGS: [&str; 6] = ["/", "{path}", "{uri}", "{rest}", "{map.", "{scheme}://"];
    let has_scheme = target.split_once("://").is_some_and(|(scheme, _)| !scheme.contains('{'));
    has_scheme || BEGINNINGS.iter().any(|begin| target.starts_with(begin))
}

/// Returns true if none of the expressions, nor the location itself, matches the target again.
/// Values of placeholders are assumed to be a word.
pub(super) fn is_safe(location: &Location<'_>, target: &str, regexes: &[&str]) -> bool {
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
