//! A location, and its route.

pub(super) mod conditions; // `if`
pub(super) mod returns; // redirects and fixed responses
pub(super) mod rewrite; // rewritten paths
pub(super) mod files; // directories
pub(super) mod proxy; // `proxy_pass` and `grpc_pass`
pub(super) mod fastcgi; // scripts and applications
pub(super) mod access; // authentication
pub(super) mod fields; // fields of requests and responses
pub(super) mod limits; // rates and sizes
pub(super) mod map_redirects; // redirects by the value of a path
pub(super) mod pages; // error pages and substituted texts

use std::cell::{Cell, RefCell};

use self::access::{is_access_rule, refuses};
use super::directives::{Treatment, treatment};
use super::global::Global;
use super::logs;
use super::regex::escape;
use super::scope::Scope;
use super::tree::{Directive, named};
use super::variables::{Variables, group_names};
use crate::document::{Route, Table, Value};

/// Paths of a location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::nginx) enum Pattern {
    Prefix(String),
    Exact(String),
    Regex(String),
    Named(String),
}

impl Pattern {
    /// Returns the key of a route for all methods.
    pub(in crate::nginx) fn key(&self) -> String {
        match self {
            Pattern::Prefix(path) => path.clone(),
            Pattern::Exact(path) => format!("= {path}"),
            Pattern::Regex(regex) => format!("~ {regex}"),
            Pattern::Named(name) => name.clone(),
        }
    }
}

/// A location, or a server as far as none of its locations applies.
pub(in crate::nginx) struct Location<'a> {
    pub(in crate::nginx) global: &'a Global<'a>,
    pub(in crate::nginx) server: &'a Directive,
    /// `None`: the server itself.
    pub(in crate::nginx) directive: Option<&'a Directive>,
    pub(in crate::nginx) pattern: Pattern,
    pub(in crate::nginx) scope: Scope<'a>,
    pub(in crate::nginx) variables: Variables<'a>,
    /// True for a prefix that precedes regular expressions (`^~`).
    pub(in crate::nginx) is_preferred: bool,
    /// Number of prefixes around it.
    pub(in crate::nginx) depth: usize,
    /// True for the paths that a `rewrite … break` has changed.
    pub(in crate::nginx) is_rewritten: bool,
    /// Path that `if (!-e $request_filename) { rewrite … }` has for paths without a file.
    pub(in crate::nginx) fallback: RefCell<Option<String>>,
    /// True if a rule about access could not be carried over.
    pub(in crate::nginx) is_refused: Cell<bool>,
    /// Methods to which the location is restricted, as in the key of a route.
    pub(in crate::nginx) methods: RefCell<Option<String>>,
}

/// Origin of the responses of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nginx) enum Responder {
    Files,
    Proxy,
    Redirect,
    Text,
}

/// A directive without which a location cannot respond as in nginx.
pub(in crate::nginx) struct Refusal<'a> {
    pub(in crate::nginx) directive: &'a Directive,
    pub(in crate::nginx) reason: String,
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

/// Directives that respond, and have no equivalent.
const OTHER_RESPONDERS: [&str; 9] = [
    "memcached_pass",
    "stub_status",
    "dav_methods",
    "js_content",
    "content_by_lua_block",
    "content_by_lua_file",
    "passenger_enabled",
    "random_index",
    "perl",
];

impl<'a> Location<'a> {
    /// Reports a rule about access that cannot be carried over. The route refuses all requests.
    pub(in crate::nginx) fn refuse(&self, directive: &Directive, reason: impl Into<String>) {
        self.scope.outcomes.lost(directive, reason);
        self.is_refused.set(true);
    }

    pub(in crate::nginx) fn route(&self) -> Route {
        let (mut table, mut options) = (Table::default(), Table::default());
        conditions::translate(self, self.server.children(), &mut options);
        conditions::translate(self, self.scope.innermost(), &mut options);
        access::translate(self, &mut options);
        limits::translate(self, &mut options);
        pages::translate(self, &mut options);
        logs::translate(self, &mut options);
        self.refuse_unknown_access_rules();
        match self.respond(&mut table, &mut options) {
            Ok(responder) => fields::responses(self, responder, &mut table, &mut options),
            Err(Refusal { directive, reason }) => {
                self.scope.outcomes.lost(directive, reason);
                return self.refusing_route(501, "this location could not be imported\n");
            }
        }
        if self.is_refused.get() {
            return self.refusing_route(403, "the access rules could not be imported\n");
        }
        if table.mentions("{request_id}") || options.mentions("{request_id}") {
            options.set("request_id", Value::Bool(true));
        }
        table.add(&options);
        let pattern = match (&self.pattern, table.get("redirect")) {
            (Pattern::Prefix(prefix), Some(Value::Text(target))) if target.contains('?') => {
                // The target is complete, and the key must be one to which nothing is appended.
                self.key_of(&Pattern::Regex(format!("^{}", escape(prefix))))
            }
            _ => self.key(),
        };
        Route { notes: Vec::new(), pattern, table, is_refusal: false }
    }

    /// Returns the key of the route.
    fn key(&self) -> String {
        self.key_of(&self.pattern)
    }

    fn key_of(&self, pattern: &Pattern) -> String {
        let key = pattern.key();
        match &*self.methods.borrow() {
            Some(methods) => format!("{methods} {key}"),
            None => key,
        }
    }

    /// Returns true if a regular expression for the prefix of the location would match no paths of
    /// other locations with a prefix.
    pub(in crate::nginx) fn may_be_regex(&self) -> bool {
        let Pattern::Prefix(prefix) = &self.pattern else { return false };
        self.prefixes_of_server().all(|other| other == prefix || !other.starts_with(&**prefix))
    }

    /// Returns the prefixes of all locations of the server.
    pub(in crate::nginx) fn prefixes_of_server(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let mut prefixes = Vec::new();
        collect_prefixes(self.server.children(), &mut prefixes);
        prefixes.into_iter()
    }

    /// Returns the same location for those of its paths that an expression matches.
    pub(in crate::nginx) fn with_regex(&self, regex: &str) -> Location<'a> {
        let variables =
            Variables { has_groups: true, groups: group_names(regex), ..self.variables.clone() };
        Location {
            is_rewritten: true,
            is_refused: self.is_refused.clone(),
            ..self.derive(Pattern::Regex(regex.to_owned()), self.scope.clone(), variables)
        }
    }

    /// Returns a location with other paths, none of whose directives are translated yet.
    pub(in crate::nginx) fn derive(
        &self,
        pattern: Pattern,
        scope: Scope<'a>,
        variables: Variables<'a>,
    ) -> Location<'a> {
        Location {
            global: self.global,
            server: self.server,
            directive: self.directive,
            pattern,
            scope,
            variables,
            is_preferred: self.is_preferred,
            depth: self.depth,
            is_rewritten: false,
            fallback: RefCell::default(),
            is_refused: Cell::new(false),
            methods: RefCell::default(),
        }
    }

    fn refusing_route(&self, status: u64, text: &str) -> Route {
        let mut table = Table::default();
        returns::respond(&mut table, text, status);
        Route { notes: Vec::new(), pattern: self.key(), table, is_refusal: true }
    }

    fn respond(&self, table: &mut Table, options: &mut Table) -> Result<Responder, Refusal<'a>> {
        let mut own = self.scope.innermost().iter();
        let other = own.find(|directive| OTHER_RESPONDERS.contains(&&*directive.name));
        if let Some(directive) = other {
            let reason = match treatment(&directive.name) {
                Some(Treatment::Lost(reason)) => reason.to_owned(),
                _ => "Weft has no such response".to_owned(),
            };
            return Err(Refusal { directive, reason });
        }
        if let Some(internal) = self.scope.own("internal").pop() {
            self.report_internal(internal);
            returns::respond(table, "", 404);
            return Ok(Responder::Text);
        }
        if let Some(response) = self.scope.own("return").into_iter().next() {
            return returns::translate(self, response, table);
        }
        if rewrite::of_all(self, table)? {
            return Ok(Responder::Redirect);
        }
        if !self.scope.own("empty_gif").is_empty() {
            table.set("empty_gif", Value::Bool(true));
            return Ok(Responder::Text);
        }
        if let Some(pass) = self.scope.own("proxy_pass").pop() {
            proxy::translate(self, pass, table, options)?;
            return Ok(Responder::Proxy);
        }
        if let Some(pass) = self.scope.own("grpc_pass").pop() {
            proxy::translate_grpc(self, pass, table, options)?;
            return Ok(Responder::Proxy);
        }
        if let Some(pass) = self.scope.own("fastcgi_pass").pop() {
            return fastcgi::translate(self, pass, table, options);
        }
        for protocol in ["scgi", "uwsgi"] {
            if let Some(pass) = self.scope.own(&format!("{protocol}_pass")).pop() {
                return fastcgi::translate_application(self, protocol, pass, table, options);
            }
        }
        files::translate(self, table, options)?;
        Ok(Responder::Files)
    }

    /// Translates `limit_except` that refuses all other methods.
    fn restricts_methods(&self, directive: &Directive) -> bool {
        let refuses = match directive.children() {
            [rule] => rule.name == "deny" && rule.arg(0) == "all",
            _ => false,
        };
        if refuses {
            self.scope.outcomes.carried_with_block(directive);
            self.scope.outcomes.adapted(directive, "other methods get 405");
            *self.methods.borrow_mut() = Some(directive.args.join(","));
        }
        refuses
    }

    /// Clients get 404 from an internal location. Only some internal requests have an equivalent.
    fn report_internal(&self, internal: &Directive) {
        let uri = self.directive.map_or("", |location| location.args.last().map_or("", |uri| uri));
        let is_asked = self.global.is_target(self.server, "auth_request", uri)
            || self.global.is_target(self.server, "error_page", uri)
            // A front controller.
            || !self.scope.own("fastcgi_pass").is_empty();
        match is_asked {
            true => self.scope.outcomes.adapted(internal, "clients get 404"),
            false => self.scope.outcomes.lost(
                internal,
                "clients get 404; `accel` of a route names the folders for X-Accel-Redirect",
            ),
        }
    }

    /// Refuses requests if there are access rules that nothing has translated.
    fn refuse_unknown_access_rules(&self) {
        let levels = self.scope.levels();
        for directive in levels.iter().flat_map(|level| level.iter()) {
            if directive.name == "limit_except" {
                if !self.restricts_methods(directive) {
                    self.refuse(directive, "only `deny all` is, which refuses all other methods");
                }
                continue;
            }
            let is_translated = treatment(&directive.name) == Some(Treatment::Translated);
            if is_access_rule(&directive.name) && !is_translated {
                self.refuse(directive, "this rule about access is not known");
            }
            if directive.name == "if"
                && refuses(directive)
                && self.scope.outcomes.is_lost(directive)
            {
                self.is_refused.set(true);
            }
        }
    }
}
