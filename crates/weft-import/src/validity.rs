//! Routes that the target does not accept: options are dropped, or the route refuses requests.

use weft_config::{Problem, quoted};

use super::document::{Document, Host, Route, Table, Value};
use super::{Imported, Target};

/// Options whose loss opens nothing.
pub(super) const HARMLESS: [&str; 6] = [
    "response_headers",
    "remove_response_headers",
    "compress",
    "access_log",
    "tracing",
    "max_body_bytes",
];

/// Text of routes that the target does not accept.
const REFUSAL: &str = "this route could not be imported\n";

/// Maximum number of options that are looked for. Behind it, routes refuse requests.
const MAX_SEARCHES: usize = 64;

/// Maximum number of problems that are named at the beginning.
const MAX_NAMED: usize = 20;

/// A route and the problem with it.
struct Fault {
    /// Index of the host and of the route.
    at: (usize, usize),
    message: String,
}

/// Part of a route's table that is dropped.
struct Part {
    key: &'static str,
    /// Name of an entry, if the value of the key is a table.
    name: Option<String>,
    value: Value,
}

/// Drops options that the target does not accept if their loss opens nothing, and has other such
/// routes refuse requests. Returns false if there was one.
pub(super) fn close_invalid(document: &mut Document, target: &dyn Target) -> bool {
    let mut is_valid = true;
    for round in 0.. {
        let faults = faults(document, target);
        let Some(first) = faults.first() else { break };
        is_valid = false;
        let part = match round < MAX_SEARCHES {
            true => invalid_part(document, first, target),
            false => None,
        };
        let is_changed = match part {
            // Other routes have inherited it, too.
            Some(part) => {
                faults.iter().filter(|fault| drop_part(document, fault, &part)).count() > 0
            }
            None if round < MAX_SEARCHES => refuse(document, first, target),
            // From the end, as routes may be removed.
            None => {
                let faults = faults.iter().rev();
                faults.filter(|fault| refuse(document, fault, target)).count() > 0
            }
        };
        if !is_changed {
            break;
        }
    }
    is_valid
}

/// Formats the file. Its beginning says so if the target does not accept it.
pub(super) fn finish(mut document: Document, is_complete: bool, target: &dyn Target) -> Imported {
    let text = document.print();
    let problems = target.problems(&text);
    if problems.is_empty() {
        return Imported { text, is_complete };
    }
    let named = problems.iter().take(MAX_NAMED);
    let named = named.map(|Problem { message, .. }| format!("- not carried over: {message}"));
    let first = "This configuration is not valid until these problems are solved:".to_owned();
    document.notes.splice(0..0, std::iter::once(first).chain(named));
    Imported { text: document.print(), is_complete: false }
}

/// Returns the routes with problems. One that has several is there once.
fn faults(document: &Document, target: &dyn Target) -> Vec<Fault> {
    let (text, routes) = document.print_routes_in_lines();
    let mut faults = Vec::<Fault>::new();
    for Problem { location, message } in target.problems(&text) {
        let at = location.line().and_then(|(_, line)| routes.get(&line).copied());
        let is_known = |at: (usize, usize)| faults.iter().any(|fault| fault.at == at);
        if let Some(at) = at.filter(|at| !is_known(*at)) {
            faults.push(Fault { at, message });
        }
    }
    faults
}

/// Returns the harmless part of a route without which it does not have its problem.
fn invalid_part(document: &mut Document, fault: &Fault, target: &dyn Target) -> Option<Part> {
    let (host, index) = fault.at;
    let table = document.hosts[host].routes[index].table.clone();
    let mut solves = |part: &Part| {
        let mut rest = table.clone();
        rest.remove_in(part.key, part.name.as_deref(), &part.value);
        document.hosts[host].routes[index].table = rest;
        let faults = faults(document, target);
        !faults.iter().any(|other| other.at == fault.at && other.message == fault.message)
    };
    let found = parts(&table).into_iter().find(|part| solves(part));
    document.hosts[host].routes[index].table = table;
    found
}

/// Returns the harmless parts of a table: entries and items first.
fn parts(table: &Table) -> Vec<Part> {
    let mut parts = Vec::new();
    for key in HARMLESS {
        let Some(value) = table.get(key) else { continue };
        match value {
            Value::Table(entries) => {
                parts.extend(entries.entries().iter().map(|(name, value)| Part {
                    key,
                    name: Some(name.clone()),
                    value: value.clone(),
                }))
            }
            Value::List(items) => {
                let part = |item: &Value| Part { key, name: None, value: item.clone() };
                parts.extend(items.iter().map(part));
            }
            Value::Text(_) | Value::Number(_) | Value::Bool(_) => {}
        }
        parts.push(Part { key, name: None, value: value.clone() });
    }
    parts
}

/// Drops a part of a route. Returns false if the route does not have it.
fn drop_part(document: &mut Document, fault: &Fault, part: &Part) -> bool {
    let (host, index) = fault.at;
    let route = &mut document.hosts[host].routes[index];
    if !route.table.remove_in(part.key, part.name.as_deref(), &part.value) {
        return false;
    }
    let Part { key, name, value } = part;
    let name = name.as_ref().map(|name| format!(".{}", quoted(name))).unwrap_or_default();
    let (value, message) = (value.show(), &fault.message);
    route.notes.push(format!("`{key}{name} = {value}`: not carried over: {message}"));
    true
}

/// Has a route refuse all requests; with an invalid key or condition, the host. Returns false if
/// that changes nothing.
fn refuse(document: &mut Document, fault: &Fault, target: &dyn Target) -> bool {
    let (host, index) = fault.at;
    let host = &mut document.hosts[host];
    let note = format!("not carried over: {}", fault.message);
    let Route { pattern, table, is_refusal, notes, .. } = host.routes[index].clone();
    if !is_refusal {
        let mut refusal = Route::refusal(pattern, REFUSAL, 403);
        refusal.table.set_some("when", table.get("when").cloned());
        refusal.notes = notes;
        refusal.notes.push(note);
        host.routes[index] = refusal;
        return true;
    }
    let corrected = without_empty_segments(&pattern);
    if corrected == pattern || !target.is_route_key(&corrected) {
        return close(host, note);
    }
    // Weft has the same route for paths with and without empty segments.
    match host.routes.iter().any(|route| route.pattern == corrected) {
        true => {
            host.notes.extend(host.routes.remove(index).notes);
            host.notes.push(note);
        }
        false => host.routes[index].pattern = corrected,
    }
    true
}

fn close(host: &mut Host, note: String) -> bool {
    let closed = vec![Route::refusal("/".to_owned(), REFUSAL, 403)];
    if host.routes == closed {
        return false;
    }
    let routes = std::mem::replace(&mut host.routes, closed);
    host.notes.extend(routes.into_iter().flat_map(|route| route.notes));
    host.notes.push(note);
    true
}

fn without_empty_segments(key: &str) -> String {
    let mut key = key.to_owned();
    while key.contains("//") {
        key = key.replace("//", "/");
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_target::TestTarget;

    fn route(pattern: &str, fields: &[(&str, &str)]) -> Route {
        let mut table = Table::default();
        let mut headers = Table::default();
        fields.iter().for_each(|(name, value)| headers.set(*name, *value));
        table.set("files", "/a");
        table.set_filled("response_headers", headers);
        Route::new(pattern.to_owned(), table)
    }

    /// Returns the routes of a host, and if nothing was lost.
    fn closed(routes: Vec<Route>) -> (Vec<String>, bool) {
        let host = Host { names: "*".to_owned(), routes, ..Host::default() };
        let mut document = Document { hosts: vec![host], ..Document::default() };
        let is_valid = close_invalid(&mut document, &TestTarget);
        let show = |route: &Route| format!("{} {}", route.pattern, route.table.show());
        (document.hosts[0].routes.iter().map(show).collect(), is_valid)
    }

    #[test]
    fn drops_and_closes() {
        let refused = format!("{{ respond = {}, status = 403 }}", quoted(REFUSAL));
        let files = "{ files = \"/a\" }";
        let valid = vec![route("/", &[("a", "b")])];
        let shown = "/ { files = \"/a\", response_headers = { a = \"b\" } }".to_owned();
        assert_eq!(closed(valid.clone()), (vec![shown.clone()], true));
        // The same field in several routes, and other fields.
        let routes =
            vec![route("/c", &[("a", "INVALID")]), route("/", &[("a", "b"), ("INVALID", "")])];
        assert_eq!(closed(routes), (vec![format!("/c {files}"), shown], false));
        // A route with a condition keeps it.
        let mut invalid = route("/c @a", &[]);
        invalid.table.set("files", "INVALID");
        invalid.table.set("when", "x");
        let refusal = refused.replace(" }", ", when = \"x\" }");
        let expected = vec![format!("/c @a {refusal}"), format!("/ {files}")];
        assert_eq!(closed(vec![invalid.clone(), route("/", &[])]), (expected, false));
        // A condition or a key that is invalid itself: the route of other requests is closed, too.
        invalid.table.set("when", "INVALID");
        for invalid in [invalid, route("/INVALID", &[])] {
            let found = closed(vec![invalid, route("/", &[])]);
            assert_eq!(found, (vec![format!("/ {refused}")], false));
        }
    }

    /// Behind the limit, routes are closed without a search.
    #[test]
    fn searches_have_a_limit() {
        let routes = |count: usize| {
            let route = |it: usize| route(&format!("/{it}"), &[(&format!("INVALID-{it}"), "")]);
            closed((0..count).map(route).collect()).0
        };
        let refused =
            |count: usize| routes(count).iter().filter(|route| route.contains("403")).count();
        assert_eq!([refused(MAX_SEARCHES), refused(MAX_SEARCHES + 3)], [0, 3]);
    }
}
