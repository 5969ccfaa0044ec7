//! A location: its paths, and the directives that apply to it.

pub(super) mod route; // a location → a route
pub(super) mod rewritten; // routes of rewritten paths
pub(super) mod map_redirects; // redirects by the value of a path
mod response_cache; // caches of responses
pub(super) mod redirect; // directives that redirect
pub(super) mod access; // authentication
mod conditions; // `if`
pub(super) mod case_routes; // routes with conditions
mod returns; // redirects and fixed responses
pub(super) mod rewrite; // rewritten paths
pub(super) mod folder; // `root` and `alias`
mod destination; // the location of an index or of a last path
pub(super) mod files; // directories
mod proxy; // `proxy_pass` and `grpc_pass`
mod fastcgi; // scripts and applications
pub(super) mod script_patterns; // scripts that run beside files
mod fields; // fields of requests and responses
mod limits; // rates and sizes
pub(super) mod precedence; // the order of locations
pub(super) mod pages; // error pages and substituted texts

use std::cell::{Cell, RefCell};

use super::global::Global;
use super::scope::Scope;
use super::tree::{Directive, named};
use super::variables::Variables;

/// Paths of a location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pattern {
    Prefix(String),
    Exact(String),
    Regex(String),
    Named(String),
}

impl Pattern {
    /// Returns the key of a route for all methods.
    pub(crate) fn key(&self) -> String {
        match self {
            Pattern::Prefix(path) => path.clone(),
            Pattern::Exact(path) => format!("= {path}"),
            Pattern::Regex(regex) => format!("~ {regex}"),
            Pattern::Named(name) => name.clone(),
        }
    }
}

/// A location, or a server as far as none of its locations applies.
pub(crate) struct Location<'a> {
    pub(crate) global: &'a Global<'a>,
    pub(crate) server: &'a Directive,
    /// `None`: the server itself.
    pub(crate) directive: Option<&'a Directive>,
    pub(crate) pattern: Pattern,
    pub(crate) scope: Scope<'a>,
    pub(crate) variables: Variables<'a>,
    /// The location is a prefix that precedes regular expressions (`^~`).
    pub(crate) is_preferred: bool,
    /// Number of prefixes around it.
    pub(crate) depth: usize,
    /// The location has the paths that a `rewrite … break` has changed.
    pub(crate) is_rewritten: bool,
    /// Paths that `if (!-e $request_filename) { … }` tries, as in `try_files`.
    pub(crate) fallback: RefCell<Option<Vec<String>>>,
    /// A rule about access could not be carried over.
    pub(crate) is_refused: Cell<bool>,
    /// Methods to which the location is restricted, as in the key of a route.
    pub(crate) methods: RefCell<Option<String>>,
    /// Methods to which a condition responds, as in the key of a route.
    pub(crate) responses_to_methods: RefCell<Vec<(String, &'a Directive)>>,
}

/// A directive without which a location cannot respond as in nginx.
pub(crate) struct Refusal<'a> {
    pub(crate) directive: &'a Directive,
    pub(crate) reason: String,
}

/// Origin of the responses of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Responder {
    Files,
    Proxy,
    Redirect,
    Text,
}

impl<'a> Refusal<'a> {
    pub(crate) fn new(directive: &'a Directive, reason: impl Into<String>) -> Refusal<'a> {
        Refusal { directive, reason: reason.into() }
    }
}

/// Collects the prefixes of locations, also of nested ones.
fn collect_prefixes<'a>(block: &'a [Directive], prefixes: &mut Vec<&'a str>) {
    for directive in named(block, "location") {
        match &*directive.args {
            [path] if !path.starts_with('@') => prefixes.push(path),
            [modifier, path] if modifier == "^~" => prefixes.push(path),
            _ => {}
        }
        collect_prefixes(directive.children(), prefixes);
    }
}

impl<'a> Location<'a> {
    /// Reports a directive that is not carried over.
    pub(crate) fn lost(&self, directive: &Directive, reason: impl Into<String>) {
        self.scope.outcomes.lost(directive, reason);
    }

    /// Reports a rule about access that cannot be carried over. The route refuses all requests.
    pub(crate) fn refuse(&self, directive: &Directive, reason: impl Into<String>) {
        self.scope.outcomes.lost(directive, reason);
        self.is_refused.set(true);
    }

    /// Returns true if a regular expression for the prefix of the location would match no paths of
    /// other locations with a prefix.
    pub(crate) fn may_be_regex(&self) -> bool {
        let Pattern::Prefix(prefix) = &self.pattern else { return false };
        self.prefixes_of_server().all(|other| other == prefix || !other.starts_with(&**prefix))
    }

    /// Returns the prefixes of all locations of the server.
    pub(crate) fn prefixes_of_server(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let mut prefixes = Vec::new();
        collect_prefixes(self.server.children(), &mut prefixes);
        prefixes.into_iter()
    }

    /// Returns the same location for its paths that an expression matches.
    pub(crate) fn with_regex(&self, regex: &str) -> Location<'a> {
        let variables = self.variables.with_groups(regex);
        Location {
            is_rewritten: true,
            is_refused: self.is_refused.clone(),
            ..self.derive(Pattern::Regex(regex.to_owned()), self.scope.clone(), variables)
        }
    }

    /// Returns a location with other paths. None of its directives has been translated.
    pub(crate) fn derive(
        &self,
        pattern: Pattern,
        scope: Scope<'a>,
        variables: Variables<'a>,
    ) -> Location<'a> {
        Location {
            pattern,
            scope,
            variables,
            is_rewritten: false,
            fallback: RefCell::default(),
            is_refused: Cell::new(false),
            methods: RefCell::default(),
            responses_to_methods: RefCell::default(),
            ..*self
        }
    }
}
