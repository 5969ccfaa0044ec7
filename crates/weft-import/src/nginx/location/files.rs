//! `root`, `alias` and other directives for files.

use std::path::Path;

use super::fastcgi;
use super::folder::{folder, is_missing, is_script};
use super::precedence::{is_of_prefix, is_replaced_prefix};
use super::{Location, Pattern, Refusal, Responder, destination};
use crate::document::{Route, Table};
use crate::nginx::tree::{Directive, named};

pub(crate) fn translate<'a>(
    location: &Location<'a>,
    table: &mut Table,
    options: &mut Table,
) -> Result<Responder, Refusal<'a>> {
    let scope = &location.scope;
    if let Some((folder, path)) = file_of_alias(location) {
        table.set("files", folder);
        let is_own = matches!(&location.pattern, Pattern::Exact(own) if *own == path);
        table.set_some("rewrite", Some(path).filter(|_| !is_own));
        return Ok(Responder::Files);
    }
    let folder = folder(location)?;
    if let Some(directive) = location.directive.filter(|_| is_missing(location)) {
        let note = format!("the folder {folder} does not exist, and clients get 404");
        scope.outcomes.adapted(directive, note);
        if let Some(other) = scope.own("try_files").pop() {
            location.lost(other, "the folder of the location does not exist");
        }
        table.set_response("", 404);
        return Ok(Responder::Text);
    }
    table.set("files", folder);
    // Only these lead to folders.
    let has_folders = match &location.pattern {
        Pattern::Prefix(_) => true,
        Pattern::Exact(path) => path.ends_with('/'),
        // An expression in place of a prefix.
        Pattern::Regex(_) => is_of_prefix(location) && !location.is_rewritten,
        Pattern::Named(_) => false,
    };
    let has_scripts = has_folders && fastcgi::beside_files(location, table, options);
    if let (Pattern::Exact(path), false) = (&location.pattern, has_scripts)
        && let Some(script) = first_index(location, path)
    {
        // The location of the script responds.
        let mut rewritten = Table::default();
        rewritten.set("rewrite", format!("{path}{script}"));
        *table = rewritten;
        return Ok(Responder::Redirect);
    }
    let names = match has_folders {
        true => index_files(location, has_scripts),
        false => vec!["index.html".to_owned()],
    };
    if names != ["index.html"] {
        table.set("index", names);
    }
    if scope.is_on("autoindex") && !has_files_only(location) {
        table.set("list", true);
    }
    if table.get("php").is_none() {
        fallback(location, table);
    }
    if scope.is_off("gzip") {
        table.set("compress", false);
    }
    Ok(Responder::Files)
}

/// Returns the names of index files that are sent.
fn index_files(location: &Location<'_>, has_scripts: bool) -> Vec<String> {
    let index = location.scope.one("index");
    let names = index.map_or(vec!["index.html"], |index| {
        let names: Vec<&str> = index.args.iter().map(|name| &**name).collect();
        let (usable, others): (Vec<&str>, Vec<&str>) =
            names.iter().partition(|name| !name.contains(['$', '/']) && !is_script(name));
        let are_run = has_scripts && others.iter().all(|name| *name == "index.php");
        if !others.is_empty() && !are_run {
            location.lost(index, format!("no index: {}", others.join(" ")));
        }
        usable
    });
    if has_files_only(location) {
        return Vec::new();
    }
    let is_sent = |name: &&str| match protection_of_index(location, name) {
        Some(other) => {
            let about = format!("no index {name}, because this location has its paths");
            location.lost(other, about);
            false
        }
        None => true,
    };
    names.into_iter().filter(is_sent).map(str::to_owned).collect()
}

/// Returns true if `try_files` leads to files, but to no folders.
fn has_files_only(location: &Location<'_>) -> bool {
    let directive = location.scope.own("try_files").pop();
    let paths = directive.and_then(|directive| directive.args.split_last());
    paths.is_some_and(|(_, paths)| !paths.iter().any(|path| path.ends_with('/')))
}

/// Returns the location that refuses some clients and has the path of the index of a folder below
/// this prefix.
fn protection_of_index<'a>(location: &Location<'a>, name: &str) -> Option<&'a Directive> {
    let Pattern::Prefix(prefix) = &location.pattern else { return None };
    let path = format!("{}/folder/{name}", prefix.trim_end_matches('/'));
    // Longer prefixes have routes of their own.
    let other = destination::other_location(location, &path)
        .filter(|other| other.arg(0).starts_with('~'))?;
    let is_rule = |rule: &Directive| {
        matches!(&*rule.name, "deny" | "auth_basic" | "auth_request" | "return" | "internal")
    };
    other.children().iter().any(is_rule).then_some(other)
}

/// Returns the route for the path of a folder whose index belongs to another location.
pub(crate) fn index_route(location: &Location<'_>, own: &Table) -> Option<Route> {
    let Pattern::Prefix(prefix) = &location.pattern else { return None };
    if own.get("files").is_none() || own.get("rewrite").is_some() || has_files_only(location) {
        return None;
    }
    let index = location.scope.one("index");
    let names: Vec<&str> =
        index.map_or(vec!["index.html"], |index| index.args.iter().map(|name| &**name).collect());
    let folder = folder(location).ok()?;
    let prefix = format!("{}/", prefix.trim_end_matches('/'));
    let exists = |name: &&&str| Path::new(&format!("{folder}/{name}")).is_file();
    let name = names.iter().find(exists).or(names.first())?;
    let path = format!("{prefix}{name}");
    if name.contains(['$', '/']) || is_script(name) {
        return None;
    }
    let has_own = |other: &Directive| other.arg(0) == "=" && other.arg(1) == prefix;
    if named(location.server.children(), "location").any(has_own) {
        return None;
    }
    destination::other_location(location, &path)?;
    let mut table = Table::default();
    table.set("rewrite", path);
    Some(Route::new(format!("= {prefix}"), table))
}

/// Returns the script of `index` that is the index of a path, if its file exists.
fn first_index<'a>(location: &Location<'a>, path: &str) -> Option<&'a str> {
    let first = location.scope.one("index")?.args.first().filter(|name| is_script(name))?;
    let folder = folder(location).ok().filter(|_| path.ends_with('/'))?;
    let file = format!("{folder}{path}{first}");
    (!first.contains(['$', '/']) && Path::new(&file).is_file()).then_some(first)
}

/// Returns the folder and the path of the file that an `alias` names, which may have groups of the
/// location's regular expression.
fn file_of_alias(location: &Location<'_>) -> Option<(String, String)> {
    let has_file = match &location.pattern {
        Pattern::Exact(path) => !path.ends_with('/'),
        Pattern::Regex(_) => true,
        Pattern::Prefix(_) | Pattern::Named(_) => false,
    };
    let alias = location.scope.own("alias").pop().filter(|_| has_file)?;
    let text = alias.arg(0);
    if is_replaced_prefix(location) {
        return Some((location.global.path(text.trim_end_matches('/')), "/{re.1}".to_owned()));
    }
    let fixed = text.find('$').map_or(text, |at| &text[..at]);
    let (folder, _) = fixed.rsplit_once('/').filter(|(folder, _)| !folder.is_empty())?;
    let path = location.variables.template(&text[folder.len()..]).ok()?;
    (path.len() > 1).then(|| (location.global.path(folder), path))
}

/// Translates `try_files`.
fn fallback(location: &Location<'_>, table: &mut Table) {
    let Some(directive) = location.scope.own("try_files").pop() else {
        table.set_some("try_files", location.fallback.borrow().clone());
        return;
    };
    let Some((last, others)) = directive.args.split_last() else { return };
    let are_usual = others.iter().all(|path| matches!(&**path, "$uri" | "$uri/"));
    let has_folders = others.iter().any(|path| path == "$uri/");
    let prefix = match &location.pattern {
        Pattern::Prefix(prefix) => prefix.trim_end_matches('/'),
        _ => "",
    };
    let in_folder = last.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('/'));
    let is_file = |last: &str| !last.contains(['$', '?']) && !is_script(last);
    match in_folder {
        _ if are_usual && last == "=404" => {}
        // `fallback` serves folders with an index, which nginx does only with `$uri/`.
        Some(file)
            if are_usual
                && has_folders
                && !file.is_empty()
                && is_file(last)
                && destination::other_location(location, last).is_none() =>
        {
            table.set("fallback", file);
        }
        _ => match tried_paths(location, directive) {
            Ok(paths) => table.set("try_files", paths),
            Err(reason) => location.lost(directive, reason),
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
