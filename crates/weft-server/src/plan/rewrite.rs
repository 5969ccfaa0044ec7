//! Validates changes of paths, and the groups of patterns in templates. Pure.

use super::RoutePlan;
use crate::captures::Group;
use crate::config::{Action, ConfigResult, Located, Problem, RewriteConfig, suggest};
use crate::route::{Otherwise, PathKey, PathTemplate, Pattern, Rewrite, RouteKey, TryFiles};
use crate::template::Template;

pub(super) fn plan_rewrite(
    config: RewriteConfig,
    action: &Located<Action>,
    key: Option<&RouteKey>,
) -> ConfigResult<Option<Rewrite>> {
    let RewriteConfig { rewrite, try_files } = config;
    let Some(first) = try_files.first() else {
        let parse = |written: Located<String>| {
            let path = PathTemplate::parse(&written.value);
            let path = path.and_then(|path| check_groups(path.template(), key).map(|()| path));
            path.map(Rewrite::To).map_err(|message| written.problem(message))
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
        check_groups(path.template(), key).map_err(|message| first.problem(message))?;
    }
    Ok(Some(Rewrite::TryFiles(files)))
}

/// Reports names of routes that their host does not have.
pub(super) fn check_route_names(routes: &[RoutePlan], problems: &mut Vec<Problem>) {
    let known = routes.iter().filter_map(|route| match &route.key.path {
        PathKey::Name(name) => Some(&**name),
        _ => None,
    });
    for route in routes {
        let Some(Rewrite::TryFiles(TryFiles { otherwise: Otherwise::Route(name), .. })) =
            &route.rewrite
        else {
            continue;
        };
        if known.clone().any(|known| known == name) {
            continue;
        }
        let hint = match suggest(name, known.clone()) {
            Some(suggestion) => format!("did you mean @{suggestion}?"),
            None => format!("it is a route of the same host with the key \"@{name}\""),
        };
        problems.push(route.app.problem(format!("unknown route @{name}; {hint}")));
    }
}

/// Parses a template of a route, which may have the groups of its pattern.
pub(super) fn parse_template(text: &str, key: Option<&RouteKey>) -> Result<Template, String> {
    let template = Template::parse(text)?;
    check_groups(&template, key)?;
    Ok(template)
}

/// Returns an error if a template has a group that the pattern of the route does not have. A `key` that
/// is invalid is reported elsewhere.
pub(super) fn check_groups(template: &Template, key: Option<&RouteKey>) -> Result<(), String> {
    let mut groups = template.groups();
    let unknown = match key.map(|key| &key.path) {
        None => None,
        Some(PathKey::Pattern(pattern)) => {
            let unknown = groups.find(|group| !pattern.has_group(group));
            unknown.map(|group| unknown_group(group, pattern))
        }
        Some(_) => groups
            .next()
            .map(|group| format!("{{re.{group}}} needs a route with a pattern, as \"~ ^/a/(.+)\"")),
    };
    unknown.map_or(Ok(()), Err)
}

fn unknown_group(group: &Group, pattern: &Pattern) -> String {
    let hint = match suggest(&group.to_string(), pattern.group_names()) {
        Some(suggestion) => format!("did you mean {{re.{suggestion}}}?"),
        None => match pattern.count_groups() {
            0 => "it has none".to_owned(),
            count => format!("its groups are {{re.1}} to {{re.{count}}}"),
        },
    };
    format!("the pattern has no group {{re.{group}}}; {hint}")
}
