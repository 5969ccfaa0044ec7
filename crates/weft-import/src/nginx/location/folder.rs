//! `root` and `alias`: the directory of a location.

use std::path::Path;

use super::access::denies_all;
use super::{Location, Pattern, Refusal};
use crate::nginx::directives::{Treatment, treatment};
use crate::nginx::tree::Directive;

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

/// Returns true if a location serves the files of a folder that does not exist, although its `root`
/// does. Without that, this machine is not the machine of nginx.
pub(crate) fn is_missing(location: &Location<'_>) -> bool {
    let Pattern::Prefix(prefix) = &location.pattern else { return false };
    let responds = |child: &Directive| {
        let name = &*child.name;
        name.ends_with("_pass")
            || matches!(name, "return" | "rewrite" | "internal" | "empty_gif")
            || matches!(treatment(name), Some(Treatment::Lost(_)))
    };
    let Some(directive) = location.scope.all(&["root", "alias"]).pop() else { return false };
    if prefix == "/" || directive.name == "alias" {
        return false;
    }
    if location.scope.innermost().iter().any(responds) || denies_all(location) {
        return false;
    }
    let Ok(folder) = folder(location) else { return false };
    let folder = Path::new(&folder);
    let root = location.variables.literal(directive.arg(0)).map(|root| location.global.path(&root));
    root.is_some_and(|root| Path::new(&root).is_dir()) && !folder.is_dir()
}

/// Returns true for names of scripts, whose source must not be served as an index.
pub(super) fn is_script(name: &str) -> bool {
    [".php", ".cgi", ".pl", ".py"].iter().any(|end| name.ends_with(end))
}
