//! The directives that a request meets in Caddy, evaluated for the requests of a case.
//!
//! Routes of Weft are chosen by host, path and method. If a matcher depends on something else, the
//! directives are evaluated twice: with the directive and without it. Of both outcomes, the one is
//! used that opens nothing; if there is none, the case is refused.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::handlers;
use super::matcher::{
    self, Case, Condition, Dependence, Kind, Matched, PathInCase, evaluate, parse_named,
};
use super::notes::Notes;
use super::order::Order;
use super::outcome::{CurrentPath, Outcome, Responder};
use super::region::Paths;
use super::tree::Directive;
use super::users::Users;
use crate::Target;

/// Maximum number of directives of a case whose matchers depend on more than a route does.
const MAX_DEPENDENCES: usize = 6;

/// Values that apply to a whole configuration.
pub(super) struct Context<'a> {
    pub(super) target: &'a dyn Target,
    pub(super) order: Order,
    pub(super) notes: Notes,
    pub(super) users: Users,
    /// Directory of the Caddyfile.
    pub(super) base: std::path::PathBuf,
}

/// Whether a request goes on to the next directive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    Next,
    Done,
}

/// The evaluation of one case, with an assumption about each directive that depends on more.
pub(super) struct Chain<'a> {
    pub(super) context: &'a Context<'a>,
    pub(super) case: Case<'a>,
    assumed: BTreeMap<usize, bool>,
    /// The first directive without an assumption.
    open: RefCell<Option<(&'a Directive, Dependence)>>,
}

/// Blocks around a directive, with their named matchers. The innermost one is the last.
pub(super) type Scopes<'a> = Vec<&'a [Directive]>;

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
    let found = match kind {
        Kind::Networks(networks) => by_networks(networks, inside, outside),
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
        Kind::OfClient => "its matcher is about values that the client chooses",
        Kind::Unknown => "its matcher has no equivalent",
    };
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

impl<'a> Chain<'a> {
    pub(super) fn lost(&self, directive: &Directive, reason: impl AsRef<str>) {
        self.context.notes.lost(directive, reason);
    }

    pub(super) fn adapted(&self, directive: &Directive, note: impl AsRef<str>) {
        self.context.notes.adapted(directive, note);
    }

    /// Runs the directives of a block, sorted unless the block is a `route`.
    pub(super) fn block(
        &self,
        block: &'a [Directive],
        is_sorted: bool,
        scopes: &Scopes<'a>,
        outcome: &mut Outcome,
    ) -> Flow {
        let mut scopes = scopes.clone();
        scopes.push(block);
        let items = match is_sorted {
            true => self.context.order.sort(block),
            false => block.iter().filter(|it| !it.name.starts_with('@')).collect(),
        };
        self.items(&items, &scopes, outcome)
    }

    fn items(&self, items: &[&'a Directive], scopes: &Scopes<'a>, outcome: &mut Outcome) -> Flow {
        let mut used_groups = Vec::new();
        for directive in items {
            // Of these, the first that matches is run.
            let group = match &*directive.name {
                "handle" | "handle_path" => Some("handle"),
                "rewrite" => Some("rewrite"),
                "root" => Some("root"),
                _ => None,
            };
            if group.is_some_and(|group| used_groups.contains(&group)) {
                continue;
            }
            let (matched, args) = self.matched(directive, scopes, outcome);
            let is_run = match matched {
                Matched::Yes => true,
                Matched::No => false,
                Matched::Depends(dependence) => self.assumption(directive, dependence),
            };
            if is_run {
                used_groups.extend(group);
                if handlers::run(self, directive, args, scopes, outcome) == Flow::Done {
                    return Flow::Done;
                }
            }
        }
        Flow::Next
    }

    fn assumption(&self, directive: &'a Directive, dependence: Dependence) -> bool {
        let known = self.assumed.get(&directive.id).copied();
        if known.is_none() && self.open.borrow().is_none() {
            self.open.replace(Some((directive, dependence)));
        }
        known.unwrap_or(false)
    }

    /// Evaluates the matcher of a directive. Returns the other arguments, too.
    fn matched(
        &self,
        directive: &'a Directive,
        scopes: &Scopes<'a>,
        outcome: &Outcome,
    ) -> (Matched, &'a [String]) {
        let (conditions, args) = conditions(directive, scopes);
        let Some(conditions) = conditions else {
            self.lost(directive, "there is no matcher of this name");
            let kind = Kind::Unknown;
            return (Matched::Depends(Dependence { kind, is_negated: false }), args);
        };
        let path = match &outcome.path {
            CurrentPath::OfRequest => PathInCase::Stripped(&outcome.stripped),
            CurrentPath::Changed(path) if path.contains('{') => PathInCase::Unknown,
            CurrentPath::Changed(path) => {
                PathInCase::Fixed(path.split('?').next().unwrap_or_default())
            }
        };
        match evaluate(&conditions, self.case, &path) {
            // `try_files`, written as a matcher and a rewrite.
            Matched::Depends(Dependence { kind: Kind::File(_), is_negated: false })
                if handlers::paths::is_try_files(directive, args) =>
            {
                (Matched::Yes, args)
            }
            matched => (matched, args),
        }
    }
}

/// Returns the conditions of the matcher of a directive, and its other arguments; no conditions if
/// the matcher is not defined.
pub(super) fn conditions<'a>(
    directive: &'a Directive,
    scopes: &[&'a [Directive]],
) -> (Option<Vec<Condition>>, &'a [String]) {
    let args = &*directive.args;
    let Some((first, rest)) = args.split_first().filter(|_| has_matcher(directive)) else {
        return (Some(Vec::new()), args);
    };
    if first == "*" {
        return (Some(Vec::new()), rest);
    }
    if first.starts_with('/') || directive.name == "handle_path" {
        let path = Condition::Path(vec![Paths::parse(first)]);
        return (Some(vec![path]), rest);
    }
    if !first.starts_with('@') {
        return (Some(Vec::new()), args);
    }
    let blocks = scopes.iter().rev().flat_map(|block| block.iter());
    let definition = { blocks }.find(|it| it.name == *first);
    (definition.map(parse_named), rest)
}

/// Returns true if the first argument of a directive may be a matcher.
fn has_matcher(directive: &Directive) -> bool {
    match (&*directive.name, directive.args.len()) {
        ("try_files" | "tls" | "bind" | "log" | "handle_errors" | "map", _) => false,
        // The only argument is the value.
        ("root" | "rewrite" | "redir", 1) => false,
        _ => true,
    }
}

/// Collects the paths, methods and hosts of all matchers in a block. `stripped` is the prefix that
/// paths have lost.
pub(super) fn collect(
    block: &[Directive],
    scopes: &[&[Directive]],
    stripped: &str,
    found: &mut Found,
) {
    let mut scopes = scopes.to_vec();
    scopes.push(block);
    let stripped_by = |directive: &Directive| match (&*directive.name, directive.arg(0)) {
        ("handle_path", path) => Some(path.trim_end_matches(['*', '/']).to_owned()),
        _ => None,
    };
    let mut prefixes = vec![stripped.to_owned()];
    for directive in block.iter().filter(|it| it.name == "uri") {
        if let Some(at) = directive.args.iter().position(|arg| arg == "strip_prefix") {
            let prefix = directive.arg(at + 1).trim_end_matches('/');
            found.paths.push(Paths::Exact(format!("{stripped}{prefix}")));
            found.paths.push(Paths::Prefix(format!("{stripped}{prefix}/")));
            prefixes.push(format!("{stripped}{prefix}"));
        }
    }
    for directive in block.iter().filter(|it| !it.name.starts_with('@')) {
        let (conditions, _) = conditions(directive, &scopes);
        let conditions = conditions.unwrap_or_default();
        let (mut paths, mut methods, mut hosts) = (Vec::new(), Vec::new(), Vec::new());
        matcher::collect(&conditions, &mut paths, &mut methods, &mut hosts);
        for prefix in &prefixes {
            found.paths.extend(paths.iter().map(|paths| paths.behind(prefix)));
        }
        found.methods.extend(methods.into_iter().map(str::to_owned));
        found.hosts.extend(hosts.into_iter().map(<[String]>::to_vec));
        let has_handlers = matches!(&*directive.name, "handle" | "handle_path" | "route");
        if has_handlers {
            let inner = stripped_by(directive).unwrap_or_default();
            collect(directive.children(), &scopes, &format!("{stripped}{inner}"), found);
        }
    }
}

/// Paths, methods and hosts that the matchers of a site name.
#[derive(Default)]
pub(super) struct Found {
    pub(super) paths: Vec<Paths>,
    pub(super) methods: Vec<String>,
    /// Lists of hosts, each of a matcher.
    pub(super) hosts: Vec<Vec<String>>,
}
