//! The evaluation of directives for the requests of a case: its state, and the matchers in blocks.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::matcher::{self, Case, Condition, Dependence, parse_named};
use super::notes::Notes;
use super::order::Order;
use super::region::Paths;
use super::tree::Directive;
use super::users::Users;
use super::values::maps::Maps;
use crate::Target;

/// Values that apply to a whole configuration.
pub(super) struct Context<'a> {
    pub(super) target: &'a dyn Target,
    pub(super) order: Order,
    pub(super) notes: Notes,
    pub(super) users: Users,
    pub(super) maps: Maps,
    /// Directory of the Caddyfile.
    pub(super) base: std::path::PathBuf,
}

/// Continuation of a request: the next directive, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    Next,
    Done,
}

/// The evaluation of one case, with an assumption about each directive that depends on more.
pub(super) struct Chain<'a> {
    pub(super) context: &'a Context<'a>,
    pub(super) case: Case<'a>,
    pub(super) assumed: BTreeMap<usize, bool>,
    /// The first directive without an assumption.
    pub(super) open: RefCell<Option<(&'a Directive, Dependence)>>,
}

/// Blocks around a directive, with their named matchers. The innermost one is the last.
pub(super) type Scopes<'a> = Vec<&'a [Directive]>;

impl<'a> Chain<'a> {
    pub(super) fn lost(&self, directive: &Directive, reason: impl AsRef<str>) {
        self.context.notes.lost(directive, reason);
    }

    pub(super) fn adapted(&self, directive: &Directive, note: impl AsRef<str>) {
        self.context.notes.adapted(directive, note);
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

/// Placeholders for the file that the matcher `file` has found.
const FOUND: [&str; 4] = [
    "{http.matchers.file.relative}",
    "{file_match.relative}",
    "{http.matchers.file.relative}?{query}",
    "{file_match.relative}?{query}",
];

/// Returns true for a rewrite to the file that its matcher has found.
pub(super) fn is_try_files(directive: &Directive, args: &[String]) -> bool {
    directive.name == "rewrite" && matches!(args, [to] if FOUND.contains(&&**to))
}
