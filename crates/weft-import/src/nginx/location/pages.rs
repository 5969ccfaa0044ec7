//! Error pages, and texts that are replaced in bodies.

use super::Location;
use super::folder::is_script;
use crate::document::{Route, Table};
use crate::nginx::tree::{Directive, named};

pub(crate) fn translate(location: &Location<'_>, options: &mut Table) {
    let scope = &location.scope;
    let mut pages = Table::default();
    for directive in scope.all(&["error_page"]) {
        match page(location, directive) {
            Ok((statuses, target)) => pages.set(statuses, target),
            Err(reason) => scope.outcomes.lost(directive, reason),
        }
    }
    if !pages.is_empty() {
        options.set("error_pages", pages);
    }
    if scope.is_on("proxy_intercept_errors") && options.get("error_pages").is_some() {
        options.set("intercept_errors", true);
    }
    substitutions(location, options);
}

/// Returns the statuses of a page and its file or URL.
fn page(location: &Location<'_>, directive: &Directive) -> Result<(String, String), &'static str> {
    let (target, statuses) = directive.args.split_last().ok_or("it has no page")?;
    let (statuses, has_own_status) = match statuses.split_last() {
        Some((last, statuses)) if last == "=" => (statuses, true),
        _ => (statuses, false),
    };
    let route = route(location, target)?;
    let has_own_status = has_own_status || redirects(location, target);
    if has_own_status && route.is_none() {
        return Err("the status of the page differs from the status of the response");
    }
    let is_known = |status: &String| {
        let digits = status.strip_prefix('=').unwrap_or(status);
        let range = if status.starts_with('=') { 200..=599 } else { 400..=599 };
        digits.parse::<u16>().is_ok_and(|status| range.contains(&status))
    };
    if !statuses.iter().all(is_known) {
        return Err("pages are for the statuses 400 to 599");
    }
    let mut statuses = statuses.join(" ");
    if let Some(name) = route {
        statuses.push_str(if has_own_status { " =" } else { "" });
        return Ok((statuses, name));
    }
    if target.contains("://") && !target.contains('$') {
        return Ok((statuses, target.clone()));
    }
    if !target.starts_with('/') || target.contains(['$', '?']) {
        return Err("its page is not a file");
    }
    let root = root_of(location, target).ok_or("its page is not a file")?;
    if location.global.is_passed(location.server, target) {
        let note = "the page is a file, whereas nginx requests it from an upstream";
        location.scope.outcomes.adapted(directive, note);
    }
    Ok((statuses, format!("{}{target}", root.trim_end_matches('/'))))
}

/// Returns the name of the route that responds with a page: a named location, or a route that leads
/// to the script of a path. `None` for a file or a URL.
fn route(location: &Location<'_>, target: &str) -> Result<Option<String>, &'static str> {
    let mut names = named(location.server.children(), "location").map(|child| child.arg(0));
    if target.starts_with('@') {
        let is_known = names.any(|name| name == target);
        return if is_known {
            Ok(Some(target.to_owned()))
        } else {
            Err("there is no such location")
        };
    }
    let path = target.split('?').next().unwrap_or_default();
    if !target.starts_with('/') || target.contains('$') {
        return Ok(None);
    }
    let runs =
        |child: &Directive| matches!(&*child.name, "fastcgi_pass" | "scgi_pass" | "uwsgi_pass");
    let found = location.global.location_of(location.server, path);
    match found.is_some_and(|found| found.children().iter().any(runs)) {
        true => Ok(Some(page_name(target))),
        // Clients would get the text.
        false if is_script(path) => Err("its page is a script, which no location runs"),
        false => Ok(None),
    }
}

/// Returns true for a named location that redirects, whose status is the status of the response.
fn redirects(location: &Location<'_>, target: &str) -> bool {
    let mut locations = named(location.server.children(), "location");
    let found = locations.find(|child| target.starts_with('@') && child.arg(0) == target);
    let response = found.and_then(|found| found.child("return"));
    response.is_some_and(|response| response.arg(0).starts_with('3'))
}

/// Returns the name of the route that leads to a path for the page of an error.
fn page_name(target: &str) -> String {
    let is_permitted = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let name = target.trim_start_matches('/').chars();
    let name: String = name.map(|c| if is_permitted(c) { c } else { '-' }).collect();
    format!("@page-{name}")
}

/// Returns the routes that lead to the scripts of error pages.
pub(crate) fn routes(location: &Location<'_>) -> Vec<Route> {
    let directives = location.scope.all(&["error_page"]);
    let targets = directives.into_iter().filter_map(|directive| directive.args.last());
    let targets = targets.filter(|target| {
        !target.starts_with('@') && matches!(route(location, target), Ok(Some(_)))
    });
    let route = |target: &String| {
        let mut table = Table::default();
        table.set("rewrite", &**target);
        Route { has_options_of_host: true, ..Route::new(page_name(target), table) }
    };
    targets.map(route).collect()
}

/// Returns the directory with the file of a URI: the root of the location with exactly this path,
/// or else of the server.
fn root_of(location: &Location<'_>, uri: &str) -> Option<String> {
    let own = location.global.exact_location(location.server, uri);
    let responds = |child: &Directive| {
        child.name.ends_with("_pass") || matches!(&*child.name, "return" | "rewrite" | "alias")
    };
    if own.is_some_and(|own| own.children().iter().any(responds)) {
        return None;
    }
    let root = |block: &[Directive]| {
        let root = block.iter().find(|child| child.name == "root");
        root.and_then(|root| location.variables.literal(root.arg(0)))
    };
    let of_own = own.and_then(|own| root(own.children()));
    // `http` and the server: no location has the path of the page.
    let outer = || location.scope.levels().iter().take(2).rev().find_map(|level| root(level));
    of_own.or_else(outer).map(|root| location.global.path(&root))
}

fn substitutions(location: &Location<'_>, options: &mut Table) {
    let scope = &location.scope;
    let mut texts = Table::default();
    for directive in scope.all(&["sub_filter"]) {
        match location.variables.template(directive.arg(1)) {
            Ok(replacement) if !directive.arg(0).contains('$') => {
                texts.set(directive.arg(0), replacement);
            }
            _ => scope.outcomes.lost(directive, "a variable has no equivalent"),
        }
    }
    if texts.is_empty() {
        return;
    }
    options.set("sub_filter", texts);
    if let Some(types) = scope.one("sub_filter_types") {
        options.set("sub_filter_types", types.args.clone());
    }
    if scope.one("sub_filter_once").is_some_and(|once| once.arg(0) == "off") {
        options.set("sub_filter_once", false);
    }
}
