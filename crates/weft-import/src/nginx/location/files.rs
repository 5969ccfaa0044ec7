//! `root`, `alias` and other directives for files.

use super::fastcgi;
use super::{Location, Pattern, Refusal};
use crate::document::{Table, Value};
use crate::nginx::tree::{Directive, named};

pub(in crate::nginx) fn translate<'a>(
    location: &Location<'a>,
    table: &mut Table,
    options: &mut Table,
) -> Result<(), Refusal<'a>> {
    let folder = folder(location)?;
    table.set("files", Value::Text(folder));
    let scope = &location.scope;
    // Only these lead to folders.
    let has_folders = match &location.pattern {
        Pattern::Prefix(_) => true,
        Pattern::Exact(path) => path.ends_with('/'),
        Pattern::Regex(_) | Pattern::Named(_) => false,
    };
    let has_scripts = has_folders && fastcgi::beside_files(location, table, options);
    if let Some(index) = scope.one("index").filter(|_| has_folders) {
        let names: Vec<&str> = index.args.iter().map(|name| &**name).collect();
        let (usable, others): (Vec<&str>, Vec<&str>) =
            names.iter().partition(|name| !name.contains(['$', '/']) && !is_script(name));
        let are_run = has_scripts && others.iter().all(|name| *name == "index.php");
        if !others.is_empty() && !are_run {
            scope.outcomes.lost(index, format!("no index: {}", others.join(" ")));
        }
        if usable != ["index.html"] && !(are_run && usable.is_empty()) {
            table.set("index", Value::texts(usable));
        }
    }
    if scope.is_on("autoindex") {
        table.set("list", Value::Bool(true));
    }
    if table.get("php").is_none() {
        fallback(location, table);
    }
    if scope.one("gzip").is_some_and(|gzip| gzip.arg(0) == "off") {
        table.set("compress", Value::Bool(false));
    }
    Ok(())
}

/// Returns true for names of scripts, whose source must not be served as an index.
pub(in crate::nginx) fn is_script(name: &str) -> bool {
    [".php", ".cgi", ".pl", ".py"].iter().any(|end| name.ends_with(end))
}

/// Returns the directory whose files the route serves.
pub(in crate::nginx) fn folder<'a>(location: &Location<'a>) -> Result<String, Refusal<'a>> {
    let scope = &location.scope;
    let owner = location.directive.unwrap_or(location.server);
    let refusal = |directive, reason: &str| Refusal { directive, reason: reason.to_owned() };
    let Some(directive) = scope.all(&["root", "alias"]).pop() else {
        return Err(refusal(owner, "it has no `root`"));
    };
    let path = location.variables.literal(directive.arg(0));
    let path = path.ok_or_else(|| refusal(directive, "the directory has variables"))?;
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
            Err(refusal(directive, "the rest of the path would be joined without a slash"))
        }
        (Pattern::Prefix(_), _) => Ok(path.trim_end_matches('/').to_owned()),
        (_, "root") => Ok(path.trim_end_matches('/').to_owned()),
        _ => Err(refusal(directive, "an alias belongs to a prefix")),
    }
}

/// Translates `try_files`.
fn fallback(location: &Location<'_>, table: &mut Table) {
    let Some(directive) = location.scope.own("try_files").pop() else {
        if let Some(path) = location.fallback.borrow().clone() {
            table.set("try_files", Value::texts(["{path}", "{path}/", &*path]));
        }
        return;
    };
    let Some((last, others)) = directive.args.split_last() else { return };
    let are_usual = others.iter().all(|path| matches!(&**path, "$uri" | "$uri/"));
    let prefix = match &location.pattern {
        Pattern::Prefix(prefix) => prefix.trim_end_matches('/'),
        _ => "",
    };
    let in_folder = last.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('/'));
    let is_file = |last: &str| !last.contains(['$', '?']) && !is_script(last);
    match in_folder {
        _ if are_usual && last == "=404" => {}
        Some(file) if are_usual && !file.is_empty() && is_file(last) => {
            table.set("fallback", Value::text(file));
        }
        _ => match tried_paths(location, directive) {
            Ok(paths) => table.set("try_files", Value::texts(paths)),
            Err(reason) => location.scope.outcomes.lost(directive, reason),
        },
    }
}

/// Converts the paths of `try_files`.
fn tried_paths(location: &Location<'_>, directive: &Directive) -> Result<Vec<String>, String> {
    let names = named(location.server.children(), "location");
    let mut names = names.map(|child| child.arg(0));
    let is_missing = |last: &String| last.starts_with('@') && !names.any(|name| name == last);
    if directive.args.last().is_some_and(is_missing) {
        return Err("there is no location of this name".to_owned());
    }
    let prefix = match &location.pattern {
        Pattern::Prefix(prefix) => prefix.trim_end_matches('/'),
        _ => "",
    };
    let others = directive.args.iter().rev().skip(1);
    let is_inside = |path: &&String| path.starts_with("$uri") || path.starts_with(prefix);
    if let Some(other) = others.clone().find(|path| !is_inside(path)) {
        return Err(format!("{other} is no path below the prefix of the location"));
    }
    directive.args.iter().map(|path| location.variables.template(path)).collect()
}
