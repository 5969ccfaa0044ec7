//! The routes of a location: one for each case, and the route of all other requests.

pub(crate) use super::conditions::cases::precede_locations;
use super::conditions::cases::{cases, is_response};
use super::conditions::condition::{Condition, Subject, Test, exclude_each_other, when};
use super::conditions::parse::SetValue;
use super::conditions::program::{Case, CaseEnd};
use super::conditions::{has_own_response, name_of_missing, passes};
use super::{Location, Pattern, route};
use crate::document::{Route, Table, Value};
use crate::nginx::tree::named;
use crate::nginx::variables::{Variables, split_name};

/// Maximum number of routes for one path.
const MAX_ROUTES: usize = 64;

/// Maximum number of patterns in the conditions of one path, as in Weft.
const MAX_PATTERNS: usize = 64;

/// Maximum number of conditions of a route, as in Weft.
const MAX_CONDITIONS: usize = 64;

/// The routes of a location.
pub(crate) struct CaseRoutes {
    /// Routes with conditions, the first one with precedence. Their keys have labels.
    pub(crate) conditional: Vec<Route>,
    pub(crate) other: Route,
}

/// Returns routes with conditions for another key.
pub(crate) fn with_key(routes: &[Route], key: &str) -> Vec<Route> {
    let rename = |route: &Route| {
        let (own, label) = route.pattern.rsplit_once(" @").unwrap_or((&route.pattern, "case"));
        let methods = own.find(['/', '=', '~']).map_or("", |at| &own[..at]);
        let methods = if key.starts_with(['/', '=', '~']) { methods } else { "" };
        Route { pattern: format!("{methods}{key} @{label}"), ..route.clone() }
    };
    routes.iter().map(rename).collect()
}

/// Returns the responses of a location's conditions for the key of another route, whose paths a
/// `rewrite` of the location changes.
pub(crate) fn responses(location: &Location<'_>, key: &str, has_server: bool) -> Vec<Route> {
    let mut routes = Vec::new();
    let cases = cases(location, has_server).cases;
    for case in cases.iter().filter(|case| is_response(case)) {
        add(location, case, &mut routes);
    }
    with_key(&written(routes), key)
}

/// Restricts a route to requests without TLS.
pub(crate) fn without_tls(route: &mut Route) {
    let restricted = |table: &Table| {
        let mut values = match table.get("value") {
            Some(Value::Table(values)) => values.clone(),
            _ => Table::default(),
        };
        values.set("{scheme}", "http");
        let mut table = table.clone();
        table.set("value", values);
        Value::from(table)
    };
    let when = match route.table.get("when") {
        Some(Value::List(tables)) => {
            let of_table = |value: &Value| match value {
                Value::Table(table) => restricted(table),
                other => other.clone(),
            };
            Value::List(tables.iter().map(of_table).collect())
        }
        Some(Value::Table(table)) => restricted(table),
        _ => {
            route.pattern.push_str(" @http");
            restricted(&Table::default())
        }
    };
    route.table.set("when", when);
}

/// Returns the routes of the server's conditions, which precede all locations.
pub(crate) fn of_server(of_server: &Location<'_>) -> Vec<Route> {
    let pattern = Pattern::Regex("^/".to_owned());
    let (scope, variables) = (of_server.scope.clone(), of_server.variables.clone());
    let all = of_server.derive(pattern, scope, variables);
    let cases = cases(&all, true).cases;
    let mut routes = Vec::new();
    for case in cases.iter().filter(|case| is_response(case)) {
        add(&all, case, &mut routes);
    }
    if are_too_many(&routes) {
        refuse(of_server, "it has too many conditions");
        routes.clear();
    }
    written(routes)
}

/// Translates a location to its routes. `has_server` is true if the conditions of the server belong
/// to them.
pub(crate) fn translate(location: &Location<'_>, has_server: bool) -> CaseRoutes {
    let mut cases = cases(location, has_server).cases;
    if are_of_methods(location, &cases) {
        cases.retain(|case| !is_response(case));
    }
    let Some(last) = cases.pop() else {
        return CaseRoutes { conditional: Vec::new(), other: route::translate(location) };
    };
    let all = cases.iter().chain([&last]);
    let mut variants_of_all = all.map(|it| variants(of_case(location, it), it.conditions.clone()));
    if variants_of_all.any(|found| found.iter().any(|(conditions, _)| is_inexpressible(conditions)))
    {
        refuse(location, "several of its conditions are about the same value");
    }
    let mut routes = Vec::new();
    for case in cases.iter().chain([&last]) {
        add(location, case, &mut routes);
    }
    let Some(CaseRoute { route: mut other, .. }) = routes.pop() else {
        return CaseRoutes { conditional: Vec::new(), other: route::translate(location) };
    };
    if !have_one_key(location, &mut routes, &other) {
        refuse(location, "a condition with other contents precedes a redirect");
        other = route::translate(location);
    }
    if are_too_many(&routes) {
        refuse(location, "it has too many conditions");
        other = route::translate(location);
    }
    // All requests are refused, whatever the conditions.
    if other.is_refusal {
        routes.clear();
    }
    while routes.last().is_some_and(|last| last.route.table == other.table) {
        routes.pop();
    }
    CaseRoutes { conditional: written(routes), other }
}

/// Gives routes the key of a later redirect whose target is complete, which is an expression in place
/// of the prefix and would precede them. Returns false if a route has another meaning there.
fn have_one_key(location: &Location<'_>, routes: &mut [CaseRoute], other: &Route) -> bool {
    let Pattern::Prefix(_) = &location.pattern else { return true };
    let is_expression = |route: &Route| route.pattern.contains("~ ");
    let last = match is_expression(other) {
        true => Some((routes.len(), other.pattern.clone())),
        false => routes
            .iter()
            .rposition(|it| is_expression(&it.route))
            .map(|at| (at, routes[at].route.pattern.clone())),
    };
    let Some((last, pattern)) = last else { return true };
    routes[..last].iter_mut().all(|CaseRoute { route, .. }| {
        let has = |key: &str| route.table.get(key).is_some();
        let is_possible = route.pattern == pattern || has("respond") || has("redirect");
        route.pattern.clone_from(&pattern);
        is_possible
    })
}

fn refuse(location: &Location<'_>, reason: &str) {
    location.refuse(location.directive.unwrap_or(location.server), reason);
}

/// Returns true if there are more routes or patterns than Weft accepts for a path.
fn are_too_many(routes: &[CaseRoute]) -> bool {
    let conditions = routes.iter().flat_map(|route| &route.sets).flatten();
    let has_too_many =
        |route: &CaseRoute| route.sets.iter().map(Vec::len).sum::<usize>() > MAX_CONDITIONS;
    routes.len() > MAX_ROUTES
        || conditions.map(Condition::count_patterns).sum::<usize>() > MAX_PATTERNS
        || routes.iter().any(has_too_many)
}

/// Returns true if all cases are responses to methods, which are routes of their own.
fn are_of_methods<'a>(location: &Location<'a>, cases: &[Case<'a>]) -> bool {
    let ends_with_response = cases.last().is_some_and(is_response);
    let are_all = !ends_with_response
        && cases.iter().rev().skip(1).all(|case| match case.end {
            CaseEnd::Response(directive) => {
                location.scope.innermost().iter().any(|child| std::ptr::eq(child, directive))
                    && case.conditions.len() == 1
                    && has_own_response(location, directive)
            }
            CaseEnd::Content(_) | CaseEnd::Rest => false,
        });
    let mut responses = location.responses_to_methods.borrow_mut();
    let mut all: Vec<&str> = responses.iter().flat_map(|(methods, _)| methods.split(',')).collect();
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    // Only one route has a method.
    let are_distinct = all.len() == count;
    if !(are_all && are_distinct) {
        responses.clear();
    }
    are_all && are_distinct
}

/// Adds the routes of a case.
fn add<'a>(location: &Location<'a>, case: &Case<'a>, routes: &mut Vec<CaseRoute>) {
    for (conditions, variant) in variants(of_case(location, case), case.conditions.clone()) {
        push(&conditions, route_of(&variant, case), routes);
    }
}

/// Translates the location of a case.
fn route_of<'a>(location: &Location<'a>, case: &Case<'a>) -> Route {
    let mut route = route::translate(location);
    let CaseEnd::Response(directive) = case.end else { return route };
    let has = |route: &Route, keys: &[&str]| keys.iter().any(|key| route.table.get(key).is_some());
    let has_content = has(&route, &["files", "proxy", "fastcgi", "scgi", "uwsgi"]);
    let target = target_here(location, case).filter(|_| has_content);
    route.table.set_some("rewrite", target.clone());
    let responds = match has_content {
        true => target.is_some(),
        false => has(&route, &["respond", "redirect", "rewrite"]),
    };
    if !responds {
        location.lost(directive, "its response has no equivalent, and is refused");
        return Route::refusal(route.pattern, "this condition could not be imported\n", 403);
    }
    route
}

/// Returns the path that a `rewrite … break` gives to all requests of a case.
fn target_here(location: &Location<'_>, case: &Case<'_>) -> Option<String> {
    let CaseEnd::Response(directive) = case.end else { return None };
    let rewrite = directive.child("rewrite").filter(|it| it.arg(2) == "break")?;
    let is_whole = match &location.pattern {
        Pattern::Prefix(prefix) => prefix == "/",
        Pattern::Exact(_) | Pattern::Regex(_) => location.directive.is_some(),
        Pattern::Named(_) => false,
    };
    let target = rewrite.arg(1);
    let is_plain = target.starts_with('/') && !target.contains(['$', '?', '{']);
    (is_whole && is_plain && location.directive.is_some()).then(|| target.to_owned())
}

/// A route that is being composed. Requests get it that meet all conditions of a set.
struct CaseRoute {
    label: String,
    sets: Vec<Vec<Condition>>,
    route: Route,
}

/// Returns true if requests may meet the conditions, and no table can have them.
fn is_inexpressible(conditions: &[Condition]) -> bool {
    !exclude_each_other(conditions) && when(conditions).is_none()
}

fn push(conditions: &[Condition], route: Route, routes: &mut Vec<CaseRoute>) {
    let label = conditions.last().map(|last| last.label.clone()).unwrap_or_default();
    if exclude_each_other(conditions) || when(conditions).is_none() {
        return;
    }
    match routes.last_mut().filter(|_| !conditions.is_empty()) {
        // Adjacent routes with the same effect are one.
        Some(known) if known.route == route => {
            let has_all = |set: &Vec<Condition>| set.iter().all(|it| conditions.contains(it));
            if !known.sets.iter().any(has_all) {
                known.sets.retain(|set| !conditions.iter().all(|it| set.contains(it)));
                known.sets.push(conditions.to_vec());
            }
        }
        _ => routes.push(CaseRoute { label, sets: vec![conditions.to_vec()], route }),
    }
}

/// Returns the routes with their labels and conditions.
fn written(routes: Vec<CaseRoute>) -> Vec<Route> {
    let mut labels: Vec<String> = Vec::new();
    let written = routes.into_iter().map(|CaseRoute { label, sets, mut route }| {
        let mut own = label.clone();
        let mut number = 1;
        while labels.contains(&own) {
            number += 1;
            own = format!("{label}-{number}");
        }
        route.pattern.push_str(&format!(" @{own}"));
        labels.push(own);
        let tables: Vec<_> = sets.iter().filter_map(|set| when(set)).collect();
        route.table.set("when", Value::one_or_list(tables));
        route
    });
    written.collect()
}

/// Returns the location with the directives and variables of a case.
fn of_case<'a>(location: &Location<'a>, case: &Case<'a>) -> Location<'a> {
    let scope = match case.end {
        CaseEnd::Response(directive) if target_here(location, case).is_some() => {
            location.scope.inside_case(directive.children())
        }
        CaseEnd::Response(directive) => location.scope.inside(directive.children()),
        CaseEnd::Content(directive) => location.scope.inside_case(directive.children()),
        CaseEnd::Rest => location.scope.clone(),
    };
    let variables = with_sets(&location.variables, &case.sets);
    let derived = location.derive(location.pattern.clone(), scope, variables);
    derived.is_refused.set(location.is_refused.get());
    let is_rewritten = location.is_rewritten || target_here(location, case).is_some();
    Location { is_rewritten, ..derived }
}

fn with_sets<'a>(variables: &Variables<'a>, sets: &[(String, SetValue)]) -> Variables<'a> {
    let mut changed = variables.clone();
    for (name, value) in sets {
        changed.constants.retain(|(known, _)| known != name);
        if let SetValue::Text(text) = value {
            changed.constants.insert(0, (name.clone(), text.clone()));
        }
    }
    changed
}

/// Splits a location whose upstream depends on the value of a map: one for each value, the usual
/// value last, without a condition.
fn variants<'a>(
    location: Location<'a>,
    conditions: Vec<Condition>,
) -> Vec<(Vec<Condition>, Location<'a>)> {
    let passes = ["proxy_pass", "grpc_pass", "fastcgi_pass", "uwsgi_pass", "scgi_pass"];
    let pass = passes.iter().find_map(|name| location.scope.own(name).pop());
    let text = pass.map(|pass| pass.arg(0)).unwrap_or_default();
    let Some((name, values)) = table_in(&location, text, 0) else {
        return vec![(conditions, location)];
    };
    let mut found = Vec::new();
    for (index, value) in values.iter().enumerate() {
        let mut conditions = conditions.clone();
        if index + 1 < values.len() {
            let test = match &**value {
                "" => Test::Absent,
                value if value.starts_with(['~', '=', '!']) => {
                    Test::accepted(vec![format!("= {value}")])
                }
                value => Test::accepted(vec![value.to_owned()]),
            };
            let subject = Subject::Value(format!("{{map.{name}}}"));
            let is_permitted = |c: char| c.is_ascii_alphanumeric() || c == '-';
            let label: String =
                value.chars().map(|c| if is_permitted(c) { c } else { '-' }).collect();
            let label = match label.trim_matches('-') {
                "" => name.replace('_', "-"),
                label => label.to_owned(),
            };
            conditions.push(Condition { subject, test, label });
        }
        let sets = [(name.clone(), SetValue::Text(value.clone()))];
        let variables = with_sets(&location.variables, &sets);
        let variant = location.derive(location.pattern.clone(), location.scope.clone(), variables);
        variant.is_refused.set(location.is_refused.get());
        let variant = Location { is_rewritten: location.is_rewritten, ..variant };
        found.extend(variants(variant, conditions));
        if found.len() > MAX_ROUTES {
            break;
        }
    }
    found
}

/// Returns the first map in a text whose values are all known, and these values.
fn table_in(location: &Location<'_>, text: &str, depth: usize) -> Option<(String, Vec<String>)> {
    const MAX_DEPTH: usize = 8;
    let names = text.match_indices('$').map(|(at, _)| split_name(&text[at + 1..]).0);
    for name in names {
        let mut constants = location.variables.constants.iter();
        match constants.find(|(known, _)| known == name) {
            Some((_, value)) if depth < MAX_DEPTH => {
                if let Some(found) = table_in(location, value, depth + 1) {
                    return Some(found);
                }
            }
            Some(_) => {}
            None => {
                if let Some(values) = location.global.tables.values(name) {
                    return Some((name.to_owned(), values));
                }
            }
        }
    }
    None
}

/// Returns the route for paths without a file, if the location has one.
pub(crate) fn missing(location: &Location<'_>) -> Option<Route> {
    let directive = named(location.scope.innermost(), "if").find(|it| {
        let condition = it.condition();
        matches!(&*condition, "!-e $request_filename" | "!-f $request_filename")
            && passes(location, it.children())
    })?;
    let scope = location.scope.inside_case(directive.children());
    let pattern = Pattern::Named(name_of_missing(location));
    Some(route::translate(&location.derive(pattern, scope, location.variables.clone())))
}
