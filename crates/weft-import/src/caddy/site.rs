//! The routes of a site.

use std::collections::BTreeMap;

use super::addresses::{Part, Site};
use super::chain::{Context, Found, collect};
use super::decision::outcome;
use super::errors;
use super::matcher::{Case, is_host};
use super::outcome::{Outcome, Responder};
use super::region::{Paths, Region, Tail, regions};
use super::route::{Form, hidden, key, needs_expression, route};
use crate::document::{Host, Route, Table, Value};

/// Options of all routes of a site.
#[derive(Default)]
pub(super) struct SiteOptions {
    pub(super) access_log: Option<Value>,
    pub(super) needs_certificate: bool,
    /// A rule of the whole site cannot be carried over.
    pub(super) is_refused: bool,
}

/// Returns the hosts of a site with their names: one, unless its matchers distinguish names.
///
/// # Errors
/// A message if the site has too many sets of paths.
pub(super) fn hosts<'a>(
    context: &'a Context<'a>,
    site: &Site<'a>,
    options: &SiteOptions,
) -> Result<Vec<(Vec<String>, Host)>, String> {
    let mut found = Found::default();
    collect(site.block, &[], "", &mut found);
    let mut hosts = Vec::new();
    for names in groups(site, &found) {
        let mut host = Host { notes: context.notes.take(), ..Host::default() };
        match options.is_refused {
            true => host.routes.push(Route::refusal("/".to_owned(), "", 403)),
            false => {
                add_routes(context, site, &found, &names[0], &mut host)
                    .map_err(|reason| format!("{}: {reason}", site.at))?;
                add_options(site, options, &mut host);
            }
        }
        hosts.push((names, host));
    }
    Ok(hosts)
}

/// Returns the names of a site, and names below them that its matchers distinguish, in groups with
/// the same results.
fn groups(site: &Site<'_>, found: &Found) -> Vec<Vec<String>> {
    let mut names = site.names.clone();
    for host in found.hosts.iter().flatten() {
        let is_below = |name: &String| name == "*" || is_host(name, host);
        if !names.contains(host) && site.names.iter().any(is_below) && !host.contains('{') {
            names.push(host.clone());
        }
    }
    let mut groups: BTreeMap<Vec<bool>, Vec<String>> = BTreeMap::new();
    for name in names {
        let lists = found.hosts.iter();
        let results = lists.map(|list| list.iter().any(|host| is_host(host, &name))).collect();
        groups.entry(results).or_default().push(name);
    }
    let mut groups: Vec<_> = groups.into_values().collect();
    // In the order of the Caddyfile.
    let all = || site.names.iter().chain(found.hosts.iter().flatten());
    groups.sort_by_key(|names| all().position(|name| names.contains(name)));
    groups
}

/// The cases of a region: requests without a named method, then each named method.
struct Cases {
    region: Region,
    outcomes: Vec<Outcome>,
    notes: Vec<String>,
}

fn add_routes<'a>(
    context: &'a Context<'a>,
    site: &Site<'a>,
    found: &Found,
    name: &str,
    host: &mut Host,
) -> Result<(), String> {
    let mut methods: Vec<&str> = found.methods.iter().map(|method| &**method).collect();
    methods.sort_unstable();
    methods.dedup();
    let all: Vec<Option<&str>> =
        std::iter::once(None).chain(methods.into_iter().map(Some)).collect();
    let is_invalid = |paths: &&Paths| match paths {
        Paths::Regex(regex) => !context.target.is_route_key(&format!("~ {regex}")),
        _ => false,
    };
    if let Some(Paths::Regex(regex)) = found.paths.iter().find(is_invalid) {
        context.notes.lost_text(site.at, &format!("the expression `{regex}` has no equivalent"));
        host.notes.extend(context.notes.take());
        host.routes.push(Route::refusal("/".to_owned(), "", 403));
        return Ok(());
    }
    let mut cases = Vec::new();
    for region in regions(&found.paths)? {
        let outcome_of = |method: Option<&str>| {
            let target = context.target;
            let case = Case { region: &region, method, host: name, status: None, target };
            without_hidden(outcome(context, case, site.block), &region, context)
        };
        let outcomes: Vec<Outcome> = all.iter().map(|method| outcome_of(*method)).collect();
        cases.push(Cases { region, outcomes, notes: context.notes.take() });
    }
    let notes: Vec<Vec<String>> = cases.iter().map(|cases| cases.notes.clone()).collect();
    let cases = without_equal(context, cases);
    write(context, &all, &cases, host);
    errors::add(context, site.block, host);
    // Notes about paths without a route.
    let mut rest: Vec<String> = notes.into_iter().flatten().chain(context.notes.take()).collect();
    let is_written = |note: &String| host.routes.iter().any(|route| route.notes.contains(note));
    rest.retain(|note| !is_written(note));
    for note in rest {
        if !host.notes.contains(&note) {
            host.notes.push(note);
        }
    }
    if host.routes.is_empty() {
        let mut table = Table::default();
        table.set_response("", 200);
        host.routes.push(Route::new("/".to_owned(), table));
    }
    Ok(())
}

/// Refuses an exact path that belongs to a hidden file.
fn without_hidden(mut outcome: Outcome, region: &Region, context: &Context<'_>) -> Outcome {
    for (_, own) in &mut outcome.cases {
        *own = without_hidden(own.clone(), region, context);
    }
    let Region::Exact(path) = region else { return outcome };
    let path = path.strip_prefix(&*outcome.stripped).unwrap_or(path);
    let is_files = matches!(outcome.responder, Responder::Files(_) | Responder::Php(_));
    if is_files && outcome.hidden.iter().any(|regex| context.target.matches(regex, path)) {
        outcome.responder = Responder::Fixed { text: String::new(), status: 404 };
    }
    outcome
}

/// Refuses the paths of sites that have an address with a path.
pub(super) fn refuse_parts(
    context: &Context<'_>,
    parts: &[Part],
    names: &[String],
    host: &mut Host,
) {
    for part in parts {
        let is_own = |name: &String| part.host.is_empty() || *name == part.host || name == "*";
        if !names.iter().any(|name| is_own(name) || is_host(&part.host, name)) {
            continue;
        }
        let Ok(regions) = regions(&[Paths::parse(&part.path)]) else { continue };
        let regex = regions[0].regex(None).unwrap_or_else(|| "^/".to_owned());
        let key = format!("~ {regex}");
        if context.target.is_route_key(&key) {
            host.routes.insert(0, Route::refusal(key, "", 403));
        }
    }
}

/// Drops regions whose paths have the same outcome in the next one.
fn without_equal(context: &Context<'_>, cases: Vec<Cases>) -> Vec<Cases> {
    let mut kept = Vec::<Cases>::new();
    for own in cases.into_iter().rev() {
        let outer = outer(context, &own.region, &kept);
        if outer.is_none_or(|outer| outer.outcomes != own.outcomes) {
            kept.insert(0, own);
        }
    }
    kept
}

/// Returns the first of later regions that includes a region.
fn outer<'a>(context: &Context<'_>, region: &Region, later: &'a [Cases]) -> Option<&'a Cases> {
    later.iter().find(|cases| cases.region.includes(region, context.target))
}

fn write(context: &Context<'_>, methods: &[Option<&str>], all: &[Cases], host: &mut Host) {
    let forms = forms(context, all);
    let mut named = Vec::<Route>::new();
    let common = common_hidden(all);
    if let Some(first) = all.last().filter(|_| !common.is_empty()) {
        let outcome = Outcome { hidden: common.clone(), ..Outcome::default() };
        host.routes = hidden(&first.region, &outcome, context.target);
    }
    let shared = |note: &String| all.iter().filter(|it| it.notes.contains(note)).count() > 1;
    for (cases, form) in all.iter().zip(&forms) {
        let first = &cases.outcomes[0];
        if common.is_empty() {
            host.routes.extend(hidden(&cases.region, first, context.target));
        }
        let Some(pattern) = key(&cases.region, first, *form) else {
            // The paths would reach another route.
            let regex = cases.region.regex(None).unwrap_or_else(|| "^/".to_owned());
            host.routes.push(Route::refusal(format!("~ {regex}"), "", 403));
            continue;
        };
        let mut notes: Vec<String> =
            cases.notes.iter().filter(|note| !shared(note)).cloned().collect();
        for (outcome, key) in by_methods(cases, methods, &pattern) {
            let case = Case {
                region: &cases.region,
                method: None,
                host: "",
                status: None,
                target: context.target,
            };
            let outcome = if outcome.stripped == first.stripped {
                outcome.clone()
            } else {
                Outcome { responder: Responder::Refused, ..outcome.clone() }
            };
            let others = methods_of_others(cases, methods, &outcome);
            for (mut when, own, label) in conditional(&outcome, first) {
                if !others.is_empty() && key == pattern {
                    // A route without methods would have the requests of other routes, too.
                    when.set("method", others.clone());
                }
                let key = format!("{key} @{label}");
                let of_case = route(case, &own, *form, key.clone());
                let mut of_case = of_case.unwrap_or_else(|| {
                    let mut table = Table::default();
                    table.set_response("", 200);
                    Route::new(key, table)
                });
                of_case.table.set("when", when);
                of_case.notes = std::mem::take(&mut notes);
                host.routes.push(of_case);
            }
            let Some(mut route) = route(case, &outcome, *form, key) else { continue };
            route.notes = std::mem::take(&mut notes);
            host.routes.push(route);
            named.extend(without_file(context, &outcome));
        }
    }
    for route in named {
        if !host.routes.iter().any(|known| known.pattern == route.pattern) {
            host.routes.push(route);
        }
    }
}

/// Returns the methods with other outcomes, as conditions that exclude them.
fn methods_of_others(cases: &Cases, methods: &[Option<&str>], own: &Outcome) -> Vec<String> {
    let all = cases.outcomes.iter().zip(methods);
    let named = all.filter_map(|(outcome, method)| method.filter(|_| outcome != own));
    named.map(|method| format!("!= {method}")).collect()
}

/// Returns the outcomes with conditions, each with its conditions and a label. An outcome that a
/// route with this key cannot have is refused.
fn conditional(outcome: &Outcome, first: &Outcome) -> Vec<(Table, Outcome, String)> {
    let mut labels = Vec::<String>::new();
    let with_label = |(when, own): &(Table, Outcome)| {
        let is_possible = own.stripped == first.stripped
            && own.without_file == outcome.without_file
            && (own.hidden == first.hidden || own.is_closed())
            || own.is_closed();
        let mut own = own.clone();
        if !is_possible {
            own.refuse();
        }
        let name = label(when);
        let known = labels.iter().filter(|known| **known == name).count();
        labels.push(name.clone());
        let label = if known == 0 { name } else { format!("{name}-{}", known + 1) };
        (when.clone(), own, label)
    };
    let cases = outcome.cases.iter().filter(|_| !outcome.is_refused());
    cases.map(with_label).collect()
}

/// Returns a label for conditions: the name of their last value.
fn label(when: &Table) -> String {
    let key = when.keys().last().unwrap_or("case");
    let name = match when.get(key) {
        Some(Value::Table(names)) => names.keys().last().unwrap_or(key),
        _ => key,
    };
    let is_permitted = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let name: String = name.chars().map(|c| if is_permitted(c) { c } else { '-' }).collect();
    name.trim_matches('-').to_ascii_lowercase()
}

/// Returns the expressions of hidden files if all routes that serve something have them.
fn common_hidden(all: &[Cases]) -> Vec<String> {
    let Some(last) = all.last().map(|cases| &cases.outcomes[0]) else { return Vec::new() };
    let is_equal = |outcome: &Outcome| {
        outcome.is_closed() || outcome.hidden == last.hidden && outcome.stripped.is_empty()
    };
    match all.iter().all(|cases| cases.outcomes.iter().all(is_equal)) {
        true => last.hidden.clone(),
        false => Vec::new(),
    }
}

/// Returns the outcomes of a region with their keys, which name methods if they differ.
fn by_methods<'a>(
    cases: &'a Cases,
    methods: &[Option<&str>],
    pattern: &str,
) -> Vec<(&'a Outcome, String)> {
    let others = &cases.outcomes[0];
    let mut found = vec![(others, pattern.to_owned())];
    let mut named = Vec::<(&Outcome, Vec<&str>)>::new();
    for (outcome, method) in cases.outcomes.iter().zip(methods) {
        let Some(method) = method.filter(|_| outcome != others) else { continue };
        match named.iter_mut().find(|(known, _)| *known == outcome) {
            Some((_, methods)) => methods.push(method),
            None => named.push((outcome, vec![method])),
        }
    }
    let named = named.into_iter();
    found.extend(named.map(|(outcome, all)| (outcome, format!("{} {pattern}", all.join(",")))));
    found
}

/// Returns the forms of the keys. Expressions precede prefixes, so that all prefixes below an
/// expression become expressions, too.
fn forms(context: &Context<'_>, all: &[Cases]) -> Vec<Form> {
    let default = Outcome::default();
    let needs = |index: usize| {
        let cases = &all[index];
        let outer = outer(context, &cases.region, &all[index + 1..]);
        let outer = outer.map_or(&default, |outer| &outer.outcomes[0]);
        let outcomes = cases.outcomes.iter();
        let mut all =
            outcomes.flat_map(|own| [own].into_iter().chain(own.cases.iter().map(|it| &it.1)));
        all.any(|own| match &cases.region {
            Region::Exact(path) => {
                path.bytes().any(|b| b.is_ascii_alphabetic())
                    && (own.access() != outer.access() || own.is_closed() && !outer.is_closed())
            }
            region => needs_expression(region, own, outer),
        })
    };
    let needed: Vec<bool> = (0..all.len()).map(needs).collect();
    let is_below_expression = |own: &Region| {
        all.iter().zip(&needed).any(|(cases, needed)| {
            let is_any = matches!(&cases.region, Region::Below(_, Tail::Any));
            *needed && is_any && cases.region.includes(own, context.target)
        })
    };
    let form = |(cases, needed): (&Cases, &bool)| match &cases.region {
        Region::Exact(_) if !needed => Form::Prefix,
        region if *needed || is_below_expression(region) => Form::Whole,
        _ => Form::Prefix,
    };
    all.iter().zip(&needed).map(form).collect()
}

/// Returns the route for paths without a file.
fn without_file(context: &Context<'_>, outcome: &Outcome) -> Option<Route> {
    let (name, others) = outcome.without_file.as_ref()?;
    let region = Region::Below(String::new(), Tail::Any);
    let target = context.target;
    let case = Case { region: &region, method: None, host: "", status: None, target };
    route(case, others, Form::Whole, name.clone())
}

fn add_options(site: &Site<'_>, options: &SiteOptions, host: &mut Host) {
    for route in host.routes.iter_mut().filter(|route| !route.is_refusal) {
        if site.redirecting.is_some() {
            route.table.set("https_redirect", true);
        }
        if options.needs_certificate {
            route.table.set("client_cert_required", true);
        }
        if route.table.get("access_log").is_none() {
            route.table.set_some("access_log", options.access_log.clone());
        }
    }
}
