//! Validates changes of paths, and the groups of patterns in templates. Pure.

use super::RoutePlan;
use weft_config::{ConfigResult, Located, Problem, suggest};

use crate::config::{Action, RewriteConfig};
use crate::route::{PathKey, PathTemplate, Pattern, Rewrite, RouteKey, TryFiles};
use crate::template::Template;
use crate::template::captures::Group;

pub(super) fn plan_rewrite(
    config: RewriteConfig,
    action: &Located<Action>,
    patterns: Patterns<'_>,
) -> ConfigResult<Option<Rewrite>> {
    let RewriteConfig { rewrite, try_files } = config;
    let Some(first) = try_files.first() else {
        let parse = |written: Located<String>| {
            let path = PathTemplate::parse(&written.value);
            let path = path.and_then(|path| check_groups(path.template(), patterns).map(|()| path));
            let rewrite = match &action.value {
                Action::Rewrite => Rewrite::PassOn,
                _ => Rewrite::To,
            };
            path.map(rewrite).map_err(|message| written.problem(message))
        };
        return rewrite.map(parse).transpose();
    };
    if let Some(rewrite) = rewrite {
        return Err(rewrite.problem("a route has `rewrite` or `try_files`, not both"));
    }
    if let Action::ScriptSite { .. } = &action.value {
        // A script that is looked up would run.
        let message = "`try_files` and `php` exclude each other; `fallback = \"index.php\"` is the \
                       front controller";
        return Err(first.problem(message));
    }
    if matches!(&action.value, Action::Files { files, .. } if files.fallback.is_some()) {
        let message = "`fallback` and `try_files` exclude each other; the last element of \
                       `try_files` may be the path of the fallback";
        return Err(first.problem(message));
    }
    let elements: Vec<&str> = try_files.iter().map(|element| &*element.value).collect();
    let files = TryFiles::parse(&elements)
        .map_err(|(number, message)| try_files[number].problem(message))?;
    for path in files.paths() {
        check_groups(path.template(), patterns).map_err(|message| first.problem(message))?;
    }
    Ok(Some(Rewrite::TryFiles(files)))
}

/// Reports names of routes that their host does not have.
pub(super) fn check_route_names(routes: &[RoutePlan], problems: &mut Vec<Problem>) {
    let known = routes.iter().filter_map(|route| match &route.key.path {
        PathKey::Name(name) => Some(&**name),
        _ => None,
    });
    let is_unknown = |name: &&str| !known.clone().any(|known| known == *name);
    let named = routes.iter().flat_map(|route| route.named_routes().map(move |name| (route, name)));
    for (route, name) in named.filter(|(_, name)| is_unknown(name)) {
        let hint = match suggest(name, known.clone()) {
            Some(suggestion) => format!("did you mean @{suggestion}?"),
            None => format!("it is a route of the same host with the key \"@{name}\""),
        };
        problems.push(route.app.problem(format!("unknown route @{name}; {hint}")));
    }
}

/// Patterns whose groups the templates of a route may have.
#[derive(Clone, Copy)]
pub(super) struct Patterns<'a> {
    /// `None` for an invalid key, which is reported elsewhere.
    pub(super) key: Option<&'a RouteKey>,
    /// Set if the host of the route is a pattern.
    pub(super) host: Option<&'a Pattern>,
}

/// Parses a template of a route, which may have the groups of its patterns.
pub(super) fn parse_template(text: &str, patterns: Patterns<'_>) -> Result<Template, String> {
    let template = Template::parse(text)?;
    check_groups(&template, patterns)?;
    Ok(template)
}

/// Returns an error if a template has a group that the patterns of the route and of its host do not
/// have.
pub(super) fn check_groups(template: &Template, patterns: Patterns<'_>) -> Result<(), String> {
    let of_path = patterns.key.and_then(|key| match &key.path {
        PathKey::Pattern(pattern) => unknown_group(template.groups(), pattern, "the pattern", "re"),
        _ => template
            .groups()
            .next()
            .map(|group| format!("{{re.{group}}} needs a route with a pattern, as \"~ ^/a/(.+)\"")),
    });
    of_path.or_else(|| check_host_groups(template, patterns.host).err()).map_or(Ok(()), Err)
}

/// Returns an error if a template has a group that the pattern of the host does not have.
pub(super) fn check_host_groups(template: &Template, host: Option<&Pattern>) -> Result<(), String> {
    let unknown = match host {
        Some(pattern) => {
            unknown_group(template.host_groups(), pattern, "the pattern of the host", "host")
        }
        None => template.host_groups().next().map(|group| {
            format!(
                "{{host.{group}}} needs a host with a pattern, as [hosts.'~ ^(.+)\\.example\\.org$']"
            )
        }),
    };
    unknown.map_or(Ok(()), Err)
}

/// Describes the first group that a pattern does not have.
fn unknown_group<'g>(
    mut groups: impl Iterator<Item = &'g Group>,
    pattern: &Pattern,
    subject: &str,
    prefix: &str,
) -> Option<String> {
    let group = groups.find(|group| !pattern.has_group(group))?;
    let hint = match suggest(&group.to_string(), pattern.group_names()) {
        Some(suggestion) => format!("did you mean {{{prefix}.{suggestion}}}?"),
        None => match pattern.count_groups() {
            0 => "it has none".to_owned(),
            count => format!("its groups are {{{prefix}.1}} to {{{prefix}.{count}}}"),
        },
    };
    Some(format!("{subject} has no group {{{prefix}.{group}}}; {hint}"))
}
