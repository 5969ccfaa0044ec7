//! A location, and its route.

use std::cell::Cell;

use super::access::{is_access_rule, refuses};
use super::directives::{Treatment, treatment};
use super::global::Global;
use super::scope::Scope;
use super::tree::Directive;
use super::variables::Variables;
use super::{access, conditions, fields, files, limits, proxy, returns, rewrite};
use crate::import::document::{Route, Table, Value};

/// Paths of a location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Pattern {
    Prefix(String),
    Exact(String),
    Regex(String),
    Named(String),
}

/// A location, or a server as far as none of its locations applies.
pub(super) struct Location<'a> {
    pub(super) global: &'a Global<'a>,
    pub(super) server: &'a Directive,
    /// `None`: the server itself.
    pub(super) directive: Option<&'a Directive>,
    pub(super) pattern: Pattern,
    pub(super) scope: Scope<'a>,
    pub(super) variables: Variables,
    /// A rule about access could not be carried over.
    pub(super) is_refused: Cell<bool>,
}

/// Origin of the responses of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Responder {
    Files,
    Proxy,
    Redirect,
    Text,
}

/// A directive without which a location cannot respond as in nginx.
pub(super) struct Refusal<'a> {
    pub(super) directive: &'a Directive,
    pub(super) reason: String,
}

/// Directives that respond, and have no equivalent.
const OTHER_RESPONDERS: [&str; 14] = [
    "fastcgi_pass",
    "uwsgi_pass",
    "scgi_pass",
    "grpc_pass",
    "memcached_pass",
    "stub_status",
    "empty_gif",
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
    pub(super) fn refuse(&self, directive: &Directive, reason: impl Into<String>) {
        self.scope.outcomes.lost(directive, reason);
        self.is_refused.set(true);
    }

    pub(super) fn route(&self) -> Route {
        let (mut table, mut options) = (Table::default(), Table::default());
        conditions::translate(self, self.server.children(), &mut options);
        conditions::translate(self, self.scope.innermost(), &mut options);
        access::translate(self, &mut options);
        limits::translate(self, &mut options);
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
        table.add(&options);
        Route { notes: Vec::new(), pattern: self.key(), table, is_refusal: false }
    }

    /// Returns the key of the route.
    fn key(&self) -> String {
        match &self.pattern {
            Pattern::Prefix(path) => path.clone(),
            Pattern::Exact(path) => format!("= {path}"),
            Pattern::Regex(regex) => format!("~ {regex}"),
            Pattern::Named(name) => name.clone(),
        }
    }

    fn refusing_route(&self, status: u64, text: &str) -> Route {
        let mut table = Table::default();
        table.set("respond", Value::text(text));
        table.set("status", Value::Number(status));
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
            self.scope.outcomes.adapted(internal, "clients get 404");
            table.set("respond", Value::text(""));
            table.set("status", Value::Number(404));
            return Ok(Responder::Text);
        }
        if let Some(response) = self.scope.own("return").into_iter().next() {
            return returns::translate(self, response, table);
        }
        if let Some(response) = rewrite::redirect(self, table)? {
            return Ok(response);
        }
        if let Some(pass) = self.scope.own("proxy_pass").pop() {
            proxy::translate(self, pass, table, options)?;
            return Ok(Responder::Proxy);
        }
        files::translate(self, table)?;
        Ok(Responder::Files)
    }

    /// Refuses requests if there are access rules that nothing has translated.
    fn refuse_unknown_access_rules(&self) {
        let levels = self.scope.levels();
        for directive in levels.iter().flat_map(|level| level.iter()) {
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
