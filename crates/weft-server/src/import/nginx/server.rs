//! The routes of a server.

use std::cell::Cell;

use super::global::Global;
use super::location::{Location, Pattern};
use super::scope::Scope;
use super::sites::Server;
use super::tree::Directive;
use super::variables::{Variables, group_names};
use crate::import::document::{Route, Value};

/// Returns the routes of a server, each with the location that it is made of.
pub(super) fn routes<'a>(
    global: &'a Global<'a>,
    server: &Server<'a>,
    http: &Scope<'a>,
) -> Vec<(Option<&'a Directive>, Route)> {
    let directive = server.directive;
    let of_server = of_server(global, server, http);
    let has_response = directive.children().iter().any(|child| child.name == "return");
    if has_response {
        // It applies before any location.
        return vec![(None, of_server.route())];
    }
    let mut locations = Vec::new();
    collect(&of_server, server, &mut locations);
    let has_root = locations.iter().any(|it| it.pattern == Pattern::Prefix("/".to_owned()));
    let has_files = directive.children().iter().any(|child| child.name == "root");
    if !has_root && (has_files || locations.is_empty()) {
        locations.push(of_server);
    }
    routes_of(&locations)
}

/// Returns the routes of the locations of a server, without those of the server itself.
pub(super) fn locations<'a>(
    global: &'a Global<'a>,
    server: &Server<'a>,
    http: &Scope<'a>,
) -> Vec<(Option<&'a Directive>, Route)> {
    let mut locations = Vec::new();
    collect(&of_server(global, server, http), server, &mut locations);
    routes_of(&locations)
}

fn routes_of<'a>(locations: &[Location<'a>]) -> Vec<(Option<&'a Directive>, Route)> {
    let mut routes: Vec<_> =
        locations.iter().map(|location| (location.directive, location.route())).collect();
    drop_second_keys(locations, &mut routes);
    routes
}

/// Returns the server itself as a location.
fn of_server<'a>(global: &'a Global<'a>, server: &Server<'a>, http: &Scope<'a>) -> Location<'a> {
    let scope = http.inside(server.directive.children());
    let pattern = Pattern::Prefix("/".to_owned());
    Location {
        global,
        server: server.directive,
        directive: None,
        variables: variables(server, &pattern, &scope),
        pattern,
        scope,
        is_refused: Cell::new(false),
    }
}

/// Weft has one route for a prefix with and without a slash at its end.
fn drop_second_keys(locations: &[Location<'_>], routes: &mut Vec<(Option<&Directive>, Route)>) {
    let mut known = Vec::new();
    let mut index = 0;
    routes.retain(|(directive, route)| {
        let location = &locations[index];
        index += 1;
        let key = match &location.pattern {
            Pattern::Prefix(prefix) => prefix.trim_end_matches('/').to_owned(),
            _ => route.pattern.clone(),
        };
        let is_new = !known.contains(&key);
        if let (false, Some(directive)) = (is_new, directive) {
            location.scope.outcomes.lost(directive, "there is another route for these paths");
        }
        known.push(key);
        is_new
    });
}

/// Collects the locations in a block, also nested ones.
fn collect<'a>(outer: &Location<'a>, server: &Server<'a>, locations: &mut Vec<Location<'a>>) {
    let children = outer.scope.innermost().iter();
    for directive in children.filter(|child| child.name == "location") {
        let outcomes = outer.scope.outcomes;
        outcomes.carried(directive);
        let scope = outer.scope.inside(directive.children());
        let Some(pattern) = pattern(directive) else {
            outcomes.lost(directive, "this location has no equivalent");
            continue;
        };
        let location = Location {
            global: outer.global,
            server: outer.server,
            directive: Some(directive),
            variables: variables(server, &pattern, &scope),
            pattern,
            scope,
            is_refused: Cell::new(false),
        };
        collect(&location, server, locations);
        locations.push(location);
    }
}

fn pattern(directive: &Directive) -> Option<Pattern> {
    match &*directive.args {
        [path] if path.starts_with('@') => Some(Pattern::Named(path.clone())),
        [path] => Some(Pattern::Prefix(path.clone())),
        [modifier, path] => match &**modifier {
            "^~" => Some(Pattern::Prefix(path.clone())),
            "=" => Some(Pattern::Exact(path.clone())),
            "~" => Some(Pattern::Regex(path.clone())),
            "~*" => Some(Pattern::Regex(format!("(?i){path}"))),
            _ => None,
        },
        _ => None,
    }
}

fn variables(server: &Server<'_>, pattern: &Pattern, scope: &Scope<'_>) -> Variables {
    let host_regex = server.names.iter().find_map(|name| name.strip_prefix("~ "));
    let regex = match pattern {
        Pattern::Regex(regex) => Some(&**regex),
        _ => None,
    };
    let constants = scope.levels().iter().flat_map(|level| level.iter());
    let constants = constants.filter(|directive| directive.name == "set").map(|directive| {
        scope.outcomes.carried(directive);
        (directive.arg(0).trim_start_matches('$').to_owned(), directive.arg(1).to_owned())
    });
    Variables {
        server_name: server.names.first().cloned().unwrap_or_default(),
        has_groups: regex.is_some(),
        has_host_groups: host_regex.is_some(),
        groups: regex.map(group_names).unwrap_or_default(),
        host_groups: host_regex.map(group_names).unwrap_or_default(),
        // A later `set`, and that of an inner block, has precedence.
        constants: constants.collect::<Vec<_>>().into_iter().rev().collect(),
    }
}

/// Lets only clients of this machine use the routes of a server that listens for them only.
pub(super) fn restrict_to_loopback(routes: &mut [(Option<&Directive>, Route)]) {
    for (_, route) in routes {
        if route.table.get("allow").is_none() {
            route.table.set("allow", Value::texts(["127.0.0.0/8", "::1"]));
        }
    }
}
