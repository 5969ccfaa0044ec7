//! The routes of a server.

use std::cell::{Cell, RefCell};

use super::global::Global;
use super::location::access::is_access_rule;
use super::location::case_routes::{self, CaseRoutes};
use super::location::map_redirects;
use super::location::rewritten::{self, RewrittenRoutes};
use super::location::{Location, Pattern, rewrite, route};
use super::location::{files, folder, pages, precedence, script_patterns};
use super::scope::Scope;
use super::siblings::{prefix_of_key, siblings};
use super::sites::Server;
use super::tree::{Directive, named};
use super::variables::{Variables, group_names};
use crate::Target;
use crate::document::{Route, Table};
use crate::nested_regex::below;
use crate::regex;

/// Returns the routes of a server, each with the location that it is made of.
pub(super) fn routes<'a>(
    global: &'a Global<'a>,
    server: &Server<'a>,
    http: &Scope<'a>,
) -> Vec<(Option<&'a Directive>, Route)> {
    let directive = server.directive;
    let of_server = of_server(global, server, http);
    let has_response = directive.child("return").is_some();
    let is_redirected = rewrite::of_all(&of_server, &mut Table::default());
    if has_response || matches!(is_redirected, Ok(true)) {
        // It applies before any location.
        let pages = pages::routes(&of_server).into_iter().map(|route| (None, route));
        let CaseRoutes { conditional, other } = case_routes::translate(&of_server, true);
        let routes = conditional.into_iter().chain([other]).map(|route| (None, route));
        return without_unused_names(routes.chain(pages).collect());
    }
    let mut locations = Vec::new();
    collect(&of_server, server, &mut locations);
    precedence::arrange(&mut locations);
    let mut locations = without_folders(locations);
    // The conditions of a server apply before its locations.
    let precede = case_routes::precede_locations(&of_server);
    let first = if precede { case_routes::of_server(&of_server) } else { Vec::new() };
    let mut changed = map_redirects::routes(&of_server);
    changed.extend(rewritten::routes(&of_server).routes);
    if !precede && !changed.is_empty() {
        let reason = "its conditions set variables, beside a rewrite of all locations";
        of_server.refuse(directive, reason);
    }
    if of_server.is_refused.get() {
        // The server has the rules of a location that could not be carried over.
        locations.iter().for_each(|location| location.is_refused.set(true));
    }
    let has_root = locations.iter().any(|it| it.pattern == Pattern::Prefix("/".to_owned()));
    let has_files = directive.child("root").is_some();
    if !has_root && (has_files || locations.is_empty()) {
        locations.push(of_server);
    }
    // In a server, paths are rewritten before the location is determined.
    let changed = changed.into_iter().map(|route| (None, route));
    let routes: Vec<_> = changed.chain(routes_of(global, &locations, !precede)).collect();
    before_locations(first, routes)
}

/// Adds the routes of the server's conditions, which apply before all locations. They are
/// expressions, so that each exact path has its own.
fn before_locations(
    first: Vec<Route>,
    mut routes: Vec<(Option<&Directive>, Route)>,
) -> Vec<(Option<&Directive>, Route)> {
    let is_whole = |(_, route): &(Option<&Directive>, Route)| {
        prefix_of_key(&route.pattern).is_some_and(|(_, path)| path == "/")
            || ["@", "/ @"].iter().any(|begin| route.pattern.starts_with(begin))
    };
    if routes.iter().all(is_whole) {
        let own = of_key(&first, "/", &routes);
        routes.splice(0..0, own);
        return routes;
    }
    let exact = |key: &str| key.find("= ").filter(|at| !key[..*at].contains(['/', '~'])).is_some();
    let mut keys: Vec<String> = Vec::new();
    for (_, route) in &routes {
        let key = route.pattern.split(" @").next().unwrap_or_default();
        let key = key.find("= ").map_or(key, |at| &key[at..]);
        if exact(&route.pattern) && !keys.iter().any(|known| known == key) {
            keys.push(key.to_owned());
        }
    }
    for key in keys.iter().filter(|_| !first.is_empty()) {
        let own = of_key(&first, key, &routes);
        let is_own = |(_, route): &(Option<&Directive>, Route)| route.pattern.contains(&**key);
        let at = routes.iter().position(is_own).unwrap_or_default();
        routes.splice(at..at, own);
    }
    routes.splice(0..0, first.into_iter().map(|route| (None, route)));
    routes
}

/// Returns routes with conditions for another key, with labels that no route of this key has.
fn of_key<'a>(
    first: &[Route],
    key: &str,
    routes: &[(Option<&'a Directive>, Route)],
) -> Vec<(Option<&'a Directive>, Route)> {
    let mut own = case_routes::with_key(first, key);
    for route in &mut own {
        while routes.iter().any(|(_, known)| known.pattern == route.pattern) {
            route.pattern.push_str("-first");
        }
    }
    own.into_iter().map(|route| (None, route)).collect()
}

/// Returns the routes of the locations of a server, without the routes of the server itself.
pub(super) fn locations<'a>(
    global: &'a Global<'a>,
    server: &Server<'a>,
    http: &Scope<'a>,
) -> Vec<(Option<&'a Directive>, Route)> {
    let mut locations = Vec::new();
    collect(&of_server(global, server, http), server, &mut locations);
    routes_of(global, &locations, true)
}

/// Returns the routes of locations. `has_conditions` is true if the conditions of the server belong
/// to each of them.
fn routes_of<'a>(
    global: &Global<'_>,
    locations: &[Location<'a>],
    has_conditions: bool,
) -> Vec<(Option<&'a Directive>, Route)> {
    // A `rewrite` that is lost refuses the location.
    let (mut changed, mut others, mut wholes) = (Vec::new(), Vec::new(), Vec::new());
    for location in locations {
        let found = match location.directive {
            Some(_) => rewritten::routes(location),
            None => RewrittenRoutes::default(),
        };
        for route in found.routes {
            let own = case_routes::responses(location, &route.pattern, has_conditions);
            changed.extend(own.into_iter().map(|route| (None, route)));
            changed.push((location.directive, route));
        }
        if !found.are_complete {
            others.push(location);
            wholes.push(found.whole);
        }
    }
    let mut conditional = Vec::new();
    let mut translate = |(location, whole): (&&Location<'a>, Option<Route>)| {
        let found = match whole {
            Some(other) => {
                let own = case_routes::responses(location, &other.pattern, has_conditions);
                CaseRoutes { conditional: own, other }
            }
            None => case_routes::translate(location, has_conditions),
        };
        if !found.conditional.is_empty() {
            conditional.push((found.other.pattern.clone(), found.conditional));
        }
        (location.directive, found.other)
    };
    let mut routes: Vec<_> = others.iter().zip(wholes).map(&mut translate).collect();
    drop_second_keys(&others, &mut routes);
    drop_scripts(global, &mut routes, &conditional);
    let siblings_with_conditions: Vec<String> =
        conditional.iter().map(|(pattern, _)| pattern.clone()).collect();
    let mut routes: Vec<_> = routes
        .into_iter()
        .flat_map(|(location, route)| {
            let own = conditional.iter().position(|(pattern, _)| *pattern == route.pattern);
            let own = own.map(|at| conditional.remove(at).1).unwrap_or_default();
            own.into_iter().map(|route| (None, route)).chain([(location, route)])
        })
        .collect();
    routes.extend(others.iter().flat_map(|location| responses_to_methods(location)));
    routes.extend(changed);
    routes.extend(locations.iter().filter_map(case_routes::missing).map(|route| (None, route)));
    routes.extend(locations.iter().flat_map(pages::routes).map(|route| (None, route)));
    let index_route = |location: &&Location<'_>| {
        let key = location.pattern.key();
        let (_, own) = routes.iter().find(|(_, route)| route.pattern == key)?;
        files::index_route(location, &own.table).map(|route| (None, route))
    };
    let of_indexes: Vec<_> = others.iter().filter_map(index_route).collect();
    routes.extend(of_indexes);
    let mut routes = without_unused_names(routes);
    let siblings = siblings(&routes, &siblings_with_conditions);
    routes.extend(siblings.into_iter().map(|route| (None, route)));
    routes
}

/// Returns the routes of conditions that respond to some methods.
fn responses_to_methods<'a>(location: &Location<'a>) -> Vec<(Option<&'a Directive>, Route)> {
    let responses = location.responses_to_methods.borrow();
    let route = |(methods, directive): &(String, &'a Directive)| {
        let scope = location.scope.inside(directive.children());
        let own = location.derive(location.pattern.clone(), scope, location.variables.clone());
        own.methods.replace(Some(methods.clone()));
        (None, route::translate(&own))
    };
    responses.iter().map(route).collect()
}

/// Drops named routes that no route leads to, and second routes of the same page.
fn without_unused_names(
    mut routes: Vec<(Option<&Directive>, Route)>,
) -> Vec<(Option<&Directive>, Route)> {
    let texts: Vec<String> = routes.iter().map(|(_, route)| route.table.show()).collect();
    let mut known = Vec::new();
    routes.retain(|(_, Route { pattern, .. })| {
        let is_used = || texts.iter().any(|text| text.contains(&format!("\"{pattern}\"")));
        if !pattern.starts_with('@') {
            return true;
        }
        let is_new = !known.contains(pattern);
        known.push(pattern.clone());
        is_new && is_used()
    });
    routes
}

/// Converts prefixes whose folders do not exist to regular expressions, which look for their paths
/// in the folder around them.
fn without_folders(locations: Vec<Location<'_>>) -> Vec<Location<'_>> {
    let may_be_regex =
        |location: &Location<'_>| location.may_be_regex() && folder::is_missing(location);
    let (mut missing, mut others): (Vec<_>, Vec<_>) = locations.into_iter().partition(may_be_regex);
    for location in &mut missing {
        if let Pattern::Prefix(prefix) = &location.pattern {
            location.pattern = Pattern::Regex(format!("^{}", regex::escape(prefix)));
        }
    }
    others.extend(missing);
    others
}

/// Returns the server itself as a location.
fn of_server<'a>(global: &'a Global<'a>, server: &Server<'a>, http: &Scope<'a>) -> Location<'a> {
    let scope = http.inside(server.directive.children());
    let pattern = Pattern::Prefix("/".to_owned());
    Location {
        global,
        server: server.directive,
        directive: None,
        variables: variables(global, server, &pattern, &scope),
        pattern,
        scope,
        is_preferred: false,
        depth: 0,
        is_rewritten: false,
        fallback: RefCell::default(),
        is_refused: Cell::new(false),
        methods: RefCell::default(),
        responses_to_methods: RefCell::default(),
    }
}

/// Weft has one route for a prefix with and without a slash at its end.
fn drop_second_keys(locations: &[&Location<'_>], routes: &mut Vec<(Option<&Directive>, Route)>) {
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
            location.lost(directive, "there is another route for these paths");
        }
        known.push(key);
        is_new
    });
}

/// Drops the route of all scripts if they are run in the only route with files, too.
fn drop_scripts(
    global: &Global<'_>,
    routes: &mut Vec<(Option<&Directive>, Route)>,
    conditional: &[(String, Vec<Route>)],
) {
    let is_of_scripts = |route: &Route| {
        let regex = route.pattern.strip_prefix("~ ");
        let has = |path: &str| regex.is_some_and(|regex| global.target.matches(regex, path));
        route.table.get("fastcgi").is_some() && has("/index.php") && !has("/a")
    };
    let with_files = routes.iter().filter(|(_, route)| route.table.get("files").is_some());
    let mut others = with_files.filter(|(_, route)| !is_of_scripts(route));
    let (Some((_, root)), None) = (others.next(), others.next()) else { return };
    let has_conditions = |pattern: &str| conditional.iter().any(|(known, _)| known == pattern);
    if root.pattern != "/" || has_conditions("/") {
        return;
    }
    let root = root.table.clone();
    let is_run = |route: &Route| {
        let regex = route.pattern.strip_prefix("~ ").unwrap_or_default();
        match script_patterns::is_of_all(regex) {
            true => root.get("scripts") == route.table.get("scripts"),
            false => script_patterns::have_names_of(root.get("scripts"), regex),
        }
    };
    let key_of_root = |key: &str| match key {
        "fastcgi" => "php".to_owned(),
        "root" => "files".to_owned(),
        key => key.to_owned(),
    };
    let is_contained =
        |table: &Table| table.keys().all(|key| root.get(&key_of_root(key)) == table.get(key));
    // A missing script gets 404 there, and not the front controller.
    let is_stricter = |location: &Option<&Directive>| {
        root.get("fallback").is_some() && location.is_some_and(refuses_missing_scripts)
    };
    routes.retain(|(location, route)| {
        let is_needless = is_of_scripts(route) && is_run(route) && is_contained(&route.table);
        !is_needless || is_stricter(location) || has_conditions(&route.pattern)
    });
}

/// Returns true if a location responds with 404 to paths without a script.
fn refuses_missing_scripts(location: &Directive) -> bool {
    let is_refusal = |directive: &Directive| match &*directive.name {
        "try_files" => directive.args.last().is_some_and(|last| last == "=404"),
        "if" => {
            let is_missing = directive.condition().starts_with("!-");
            let mut inner = directive.children().iter();
            is_missing && inner.any(|it| it.name == "return" && it.arg(0) == "404")
        }
        _ => false,
    };
    location.children().iter().any(is_refusal)
}

/// Collects the locations in a block. Nested locations come first, as they have precedence.
fn collect<'a>(outer: &Location<'a>, server: &Server<'a>, locations: &mut Vec<Location<'a>>) {
    for directive in named(outer.scope.innermost(), "location") {
        let (outcomes, target) = (outer.scope.outcomes, outer.global.target);
        outcomes.carried(directive);
        let scope = match named_response(outer, directive) {
            Some(named) => outer.scope.of_server().inside(named.children()),
            None => outer.scope.inside(directive.children()),
        };
        let is_preferred = outer.is_preferred || directive.arg(0) == "^~";
        let pattern = pattern(target, directive).and_then(|pattern| nested(outer, pattern));
        let pattern = pattern.filter(|pattern| target.is_route_key(&pattern.key()));
        let Some(pattern) = pattern else {
            let is_named = directive.arg(0).starts_with('@');
            let reason = "its path or regular expression has no equivalent";
            match !is_named && responds_or_refuses(directive) {
                // Its paths would reach another location.
                true => outer.refuse(directive, reason),
                false => outcomes.lost(directive, reason),
            }
            continue;
        };
        let variables = variables(outer.global, server, &pattern, &scope);
        let location = Location {
            directive: Some(directive),
            is_preferred,
            // Expressions in a prefix precede those beside it.
            depth: outer.depth + usize::from(matches!(outer.pattern, Pattern::Prefix(_))),
            ..outer.derive(pattern, scope, variables)
        };
        collect(&location, server, locations);
        locations.push(location);
    }
}

/// Returns the named location that responds to all requests of a location, by
/// `error_page 418 = @name; return 418;`.
fn named_response<'a>(outer: &Location<'a>, directive: &'a Directive) -> Option<&'a Directive> {
    let response = directive.child("return")?;
    let [status] = &*response.args else { return None };
    let mut pages = named(directive.children(), "error_page");
    let page = pages.find(|page| page.args.contains(status))?;
    let [.., equals, name] = &*page.args else { return None };
    let mut locations = named(outer.server.children(), "location");
    let is_named = |location: &&Directive| equals == "=" && *location.args == [name.clone()];
    let named = locations.find(is_named).filter(|_| name.starts_with('@'))?;
    let is_all = |child: &Directive| matches!(&*child.name, "return" | "error_page");
    if !directive.children().iter().all(is_all) {
        return None;
    }
    outer.scope.outcomes.carried_with_block(directive);
    Some(named)
}

/// Returns true if a location does not only change options of files.
fn responds_or_refuses(directive: &Directive) -> bool {
    directive.children().iter().any(|child| {
        let name = &*child.name;
        let responds = name.ends_with("_pass") || matches!(name, "return" | "rewrite" | "if");
        responds || is_access_rule(name) || name == "location" && responds_or_refuses(child)
    })
}

fn pattern(target: &dyn Target, directive: &Directive) -> Option<Pattern> {
    match &*directive.args {
        [path] if path.starts_with('@') => Some(Pattern::Named(path.clone())),
        [path] => Some(Pattern::Prefix(path.clone())),
        [modifier, path] => match &**modifier {
            "^~" => Some(Pattern::Prefix(path.clone())),
            "=" => Some(Pattern::Exact(path.clone())),
            modifier => regex::of_modifier(target, modifier, path).map(Pattern::Regex),
        },
        _ => None,
    }
}

/// Restricts a regular expression to the paths of the location around it.
fn nested(outer: &Location<'_>, pattern: Pattern) -> Option<Pattern> {
    match (&outer.pattern, pattern) {
        (Pattern::Prefix(prefix), Pattern::Regex(inner)) => {
            below(prefix, &inner).map(Pattern::Regex)
        }
        (Pattern::Regex(regex), Pattern::Regex(inner)) => {
            let literal = regex::literal_prefix(regex)?;
            // Otherwise it would match paths that the outer expression does not.
            let is_whole = literal.len() + "^".len() == regex.len();
            below(literal, &inner).filter(|_| is_whole).map(Pattern::Regex)
        }
        (_, pattern) => Some(pattern),
    }
}

fn variables<'a>(
    global: &Global<'a>,
    server: &Server<'_>,
    pattern: &Pattern,
    scope: &Scope<'_>,
) -> Variables<'a> {
    let host_regex = server.names.iter().find_map(|name| name.strip_prefix("~ "));
    let regex = match pattern {
        Pattern::Regex(regex) => Some(&**regex),
        _ => None,
    };
    let constants = scope.levels().iter().flat_map(|level| level.iter());
    let conditional = conditional_variables(scope);
    let is_constant = |directive: &&Directive| {
        directive.name == "set" && !conditional.contains(&directive.arg(0))
    };
    let constants = constants.filter(is_constant).map(|directive| {
        scope.outcomes.carried(directive);
        (directive.arg(0).trim_start_matches('$').to_owned(), directive.arg(1).to_owned())
    });
    Variables {
        target: global.target,
        server_name: server.names.first().cloned().unwrap_or_default(),
        has_groups: regex.is_some(),
        has_host_groups: host_regex.is_some(),
        groups: regex.map(group_names).unwrap_or_default(),
        host_groups: host_regex.map(group_names).unwrap_or_default(),
        // A later `set`, and a `set` of an inner block, has precedence.
        constants: constants
            .collect::<Vec<_>>()
            .into_iter()
            .rev()
            .chain(global.constants())
            .collect(),
        maps: global.tables.names().map(str::to_owned).collect(),
        other_maps: global
            .maps
            .iter()
            .map(|(name, map)| ((*name).to_owned(), map.arg(0).to_owned()))
            .collect(),
    }
}

/// Returns the variables, with their `$`, whose values depend on a condition.
fn conditional_variables<'a>(scope: &Scope<'a>) -> Vec<&'a str> {
    let conditions = scope.levels().iter().flat_map(|level| named(level, "if"));
    let sets = conditions.flat_map(|condition| named(condition.children(), "set"));
    sets.map(|set| set.arg(0)).collect()
}
