//! The outcome of a case, also if matchers depend on more than a route does.
//!
//! Routes of Weft are chosen by host, path and method. If a matcher depends on something else, the
//! directives are evaluated twice: with the directive and without it. If the matcher is a condition
//! of routes, both outcomes are used. Otherwise, the one is used that opens nothing; if there is
//! none, the case is refused.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::chain::{Chain, Context};
use super::handlers;
use super::matcher::{Case, Dependence, Kind, values};
use super::outcome::{CurrentPath, Outcome, Responder};
use super::tree::Directive;
use crate::document::Table;

/// Maximum number of directives of a case whose matchers depend on more than a route does.
const MAX_DEPENDENCES: usize = 6;

/// Returns the outcome of the requests of a case.
pub(super) fn outcome<'a>(
    context: &'a Context<'a>,
    case: Case<'a>,
    block: &'a [Directive],
) -> Outcome {
    decide(context, case, block, &BTreeMap::new())
}

fn decide<'a>(
    context: &'a Context<'a>,
    case: Case<'a>,
    block: &'a [Directive],
    assumed: &BTreeMap<usize, bool>,
) -> Outcome {
    let chain = Chain { context, case, assumed: assumed.clone(), open: RefCell::default() };
    let mut outcome = Outcome::default();
    let scopes = vec![block];
    chain.items(&context.order.sort(block), &scopes, &mut outcome);
    handlers::finish(&chain, block, &mut outcome);
    let Some((directive, dependence)) = chain.open.into_inner() else { return outcome };
    if assumed.len() >= MAX_DEPENDENCES {
        context.notes.lost(directive, "too many matchers depend on more than path and method");
        outcome.refuse();
        return outcome;
    }
    let with = |is_run: bool| {
        let mut assumed = assumed.clone();
        assumed.insert(directive.id, is_run);
        decide(context, case, block, &assumed)
    };
    combine(context, directive, &dependence, with(true), with(false))
}

/// Returns the outcome that is right, or that opens nothing, if a directive is run for some
/// requests only.
fn combine(
    context: &Context<'_>,
    directive: &Directive,
    dependence: &Dependence,
    run: Outcome,
    skipped: Outcome,
) -> Outcome {
    if run == skipped {
        return run;
    }
    let notes = &context.notes;
    let Dependence { kind, is_negated } = dependence;
    let (inside, outside) = if *is_negated { (&skipped, &run) } else { (&run, &skipped) };
    let has_cases = !(run.cases.is_empty() && skipped.cases.is_empty());
    let found = match kind {
        Kind::Values(_) => by_conditions(kind, inside, outside),
        Kind::Networks(networks) if !has_cases => {
            by_networks(networks, inside, outside).or_else(|| by_conditions(kind, inside, outside))
        }
        Kind::Networks(_) => by_conditions(kind, inside, outside),
        // The outcomes of conditions have no others.
        _ if has_cases => None,
        Kind::Unencrypted => match &inside.responder {
            Responder::Redirect { to, .. } if to.starts_with("https://") => {
                let mut outcome = outside.clone();
                outcome.options.set("https_redirect", true);
                Some(outcome)
            }
            _ => None,
        },
        Kind::File(candidates) => by_file(directive, candidates, inside, outside),
        Kind::OfClient | Kind::Unknown => None,
    };
    if let Some(outcome) = found {
        return outcome;
    }
    let reason = match kind {
        Kind::Networks(_) => "its matcher is about the address of the client",
        Kind::Unencrypted => "its matcher is about the protocol",
        Kind::File(_) => "its matcher is about a file",
        Kind::Values(_) | Kind::OfClient => "its matcher is about values that the client chooses",
        Kind::Unknown => "its matcher has no equivalent",
    };
    if has_cases {
        let plain = |outcome: &Outcome| Outcome { cases: Vec::new(), ..outcome.clone() };
        let outcomes = [&run, &skipped].into_iter();
        let mut all =
            outcomes.flat_map(|it| [it].into_iter().chain(it.cases.iter().map(|it| &it.1)));
        let plain_skipped = plain(&skipped);
        if all.all(|it| plain(it).is_like(&plain_skipped)) {
            notes.lost(directive, reason);
            return plain_skipped;
        }
        let reason = format!("{reason}, beside other conditions; these paths are refused");
        notes.lost(directive, reason);
        return Outcome { responder: Responder::Refused, ..plain_skipped };
    }
    if skipped.is_like(&run) {
        notes.lost(directive, reason);
        return skipped;
    }
    // Rules about access apply to all requests.
    if run.differs_in_access(&skipped) && run.has_access_of(&skipped) {
        notes.lost(directive, format!("{reason}, so that it applies to all requests"));
        return run;
    }
    // Each client can choose to be outside, so that this opens nothing.
    if *kind == Kind::OfClient && (!inside.is_closed() || outside.is_closed()) {
        notes.lost(directive, reason);
        return outside.clone();
    }
    if skipped.is_closed() && !skipped.is_refused() {
        notes.lost(directive, reason);
        return skipped;
    }
    notes.lost(directive, format!("{reason}, so that these paths are refused"));
    let mut outcome = skipped;
    outcome.refuse();
    outcome
}

/// Maximum number of outcomes with conditions.
const MAX_CASES: usize = 16;

/// Combines the outcome of requests that meet a condition with the outcome of the others. Both may
/// have conditions, too.
fn by_conditions(kind: &Kind, inside: &Outcome, outside: &Outcome) -> Option<Outcome> {
    let when = match kind {
        Kind::Values(all) => values::when(all)?,
        Kind::Networks(networks) => {
            let mut table = Table::default();
            table.set("client", networks.clone());
            table
        }
        _ => return None,
    };
    let mut cases = Vec::new();
    for (inner, outcome) in &inside.cases {
        cases.push((values::joined(&when, inner)?, outcome.clone()));
    }
    cases.push((when, Outcome { cases: Vec::new(), ..inside.clone() }));
    cases.extend(outside.cases.iter().cloned());
    (cases.len() <= MAX_CASES).then(|| Outcome { cases, ..outside.clone() })
}

/// Combines the outcomes of clients inside and outside of networks.
fn by_networks(networks: &[String], inside: &Outcome, outside: &Outcome) -> Option<Outcome> {
    let has = |outcome: &Outcome, key: &str| outcome.options.get(key).is_some();
    let with = |outcome: &Outcome, key: &str| {
        let mut outcome = outcome.clone();
        outcome.add_to(key, networks.iter().cloned());
        Some(outcome)
    };
    if inside == outside {
        return Some(inside.clone());
    }
    if inside.is_closed() && outside.is_closed() {
        return Some(outside.clone());
    }
    // A second list would permit more. `deny` precedes `allow`.
    if outside.is_closed() && !has(inside, "allow") {
        return with(inside, "allow");
    }
    if inside.is_closed() && !has(outside, "satisfy") {
        return with(outside, "deny");
    }
    let is_authentication = inside.differs_in_access(outside)
        && inside.access().is_empty()
        && outside.access().keys().all(|key| matches!(key, "basic_auth" | "realm"));
    if is_authentication {
        let mut outcome = outside.clone();
        outcome.options.set("satisfy", "any");
        return with(&outcome, "allow");
    }
    None
}

/// Combines the outcomes of paths with a file and without one.
fn by_file(
    directive: &Directive,
    candidates: &[String],
    with_file: &Outcome,
    without: &Outcome,
) -> Option<Outcome> {
    let (Responder::Files(_), true) = (&with_file.responder, with_file.without_file.is_none())
    else {
        return None;
    };
    if let Some(outcome) = rewritten_without_file(candidates, with_file, without) {
        return Some(outcome);
    }
    let is_plain =
        |outcome: &Outcome| outcome.path == CurrentPath::OfRequest && outcome.stripped.is_empty();
    let is_usual = |it: &String| matches!(&**it, "{path}" | "{path}/" | "{path}.html");
    if !is_plain(with_file) || !is_plain(without) || !candidates.iter().all(is_usual) {
        return None;
    }
    if with_file.access() != without.access() || !with_file.candidates.is_empty() {
        return None;
    }
    let mut outcome = with_file.clone();
    outcome.candidates = candidates.to_vec();
    if !outcome.candidates.iter().any(|it| it == "{path}/") {
        outcome.candidates.push("{path}/".to_owned());
    }
    let name = directive.arg(0).trim_start_matches('@').to_owned();
    let name = match without.responder {
        Responder::Proxy(_) => "app".to_owned(),
        _ if name.is_empty() => "others".to_owned(),
        _ => format!("not-{}", name.to_ascii_lowercase()),
    };
    outcome.without_file = Some((format!("@{name}"), Box::new(without.clone())));
    Some(outcome)
}

/// Combines the outcomes if a path without a file is replaced by another one.
fn rewritten_without_file(
    candidates: &[String],
    with_file: &Outcome,
    without: &Outcome,
) -> Option<Outcome> {
    let CurrentPath::Changed(path) = &without.path else { return None };
    let plain = Outcome { path: CurrentPath::OfRequest, ..without.clone() };
    if path.contains(['{', '?']) || plain != *with_file || !with_file.candidates.is_empty() {
        return None;
    }
    let mut outcome = with_file.clone();
    outcome.candidates = candidates.to_vec();
    outcome.candidates.push(path.clone());
    Some(outcome)
}
