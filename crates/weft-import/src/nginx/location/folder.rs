//! `root` and `alias`: the directory of a location.

use super::{Location, Pattern, Refusal};

/// Returns the directory whose files the route serves.
pub(super) fn folder<'a>(location: &Location<'a>) -> Result<String, Refusal<'a>> {
    let scope = &location.scope;
    let owner = location.directive.unwrap_or(location.server);
    let Some(directive) = scope.all(&["root", "alias"]).pop() else {
        return Err(Refusal::new(owner, "it has no `root`"));
    };
    let path = location.variables.literal(directive.arg(0));
    let path = path.ok_or_else(|| Refusal::new(directive, "the directory has variables"))?;
    let path = location.global.path(&path);
    match (&location.pattern, &*directive.name) {
        (Pattern::Prefix(prefix), "root") => {
            let below = prefix.trim_matches('/');
            let path = path.trim_end_matches('/');
            Ok(if below.is_empty() && path.is_empty() {
                "/".to_owned()
            } else if below.is_empty() {
                path.to_owned()
            } else {
                format!("{path}/{below}")
            })
        }
        (Pattern::Prefix(prefix), _) if prefix.ends_with('/') && !path.ends_with('/') => {
            Err(Refusal::new(directive, "the rest of the path would be joined without a slash"))
        }
        (Pattern::Prefix(_), _) => Ok(path.trim_end_matches('/').to_owned()),
        (_, "root") => Ok(path.trim_end_matches('/').to_owned()),
        _ => Err(Refusal::new(directive, "an alias belongs to a prefix")),
    }
}

/// Returns true for names of scripts, whose source must not be served as an index.
pub(super) fn is_script(name: &str) -> bool {
    [".php", ".cgi", ".pl", ".py"].iter().any(|end| name.ends_with(end))
}
