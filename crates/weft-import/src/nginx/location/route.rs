//! A location → a route.

use super::{Location, Pattern, Refusal, Responder};
use super::{access, conditions, fastcgi, fields, files, limits, pages, proxy, returns, rewrite};
use crate::document::{Route, Table, Value};
use crate::nginx::directives::{Treatment, treatment};
use crate::nginx::tree::Directive;
use crate::nginx::{location::access::is_access_rule, logs};
use crate::regex::escape;
use crate::values::lists;

/// Directives that respond, and have no equivalent.
const OTHER_RESPONDERS: &str = "
    memcached_pass stub_status dav_methods js_content content_by_lua_block content_by_lua_file
    passenger_enabled random_index perl
";

/// Translates a location. If that fails, the route refuses all requests.
pub(crate) fn translate(location: &Location<'_>) -> Route {
    let (mut table, mut options) = (Table::default(), Table::default());
    conditions::translate(location, location.server.children(), &mut options);
    conditions::translate(location, location.scope.innermost(), &mut options);
    access::translate(location, &mut options);
    limits::translate(location, &mut options);
    pages::translate(location, &mut options);
    logs::translate(location.global, &location.scope, &mut options);
    refuse_unknown_access_rules(location);
    match respond(location, &mut table, &mut options) {
        Ok(responder) => fields::responses(location, responder, &mut table, &mut options),
        Err(Refusal { directive, reason }) => {
            location.lost(directive, reason);
            return refusal(location, "this location could not be imported\n", 501);
        }
    }
    if location.is_refused.get() {
        return refusal(location, "the access rules could not be imported\n", 403);
    }
    if table.mentions("{request_id}") || options.mentions("{request_id}") {
        options.set("request_id", true);
    }
    table.add(&options);
    let pattern = match (&location.pattern, table.get("redirect")) {
        (Pattern::Prefix(prefix), Some(Value::Text(target))) if target.contains('?') => {
            // The target is complete, and the key must be one to which nothing is appended.
            key(location, &Pattern::Regex(format!("^{}", escape(prefix))))
        }
        _ => key(location, &location.pattern),
    };
    Route::new(pattern, table)
}

/// Returns a route that refuses all requests, with the fields of the location's responses.
fn refusal(location: &Location<'_>, text: &str, status: u64) -> Route {
    let mut route = Route::refusal(key(location, &location.pattern), text, status);
    fields::add_responses(location, Responder::Text, &mut route.table);
    route
}

/// Returns the key of the route for the methods of the location.
fn key(location: &Location<'_>, pattern: &Pattern) -> String {
    let key = pattern.key();
    match &*location.methods.borrow() {
        Some(methods) => format!("{methods} {key}"),
        None => key,
    }
}

/// Sets the keys of the form of the route.
fn respond<'a>(
    location: &Location<'a>,
    table: &mut Table,
    options: &mut Table,
) -> Result<Responder, Refusal<'a>> {
    let scope = &location.scope;
    let own = |name: &str| scope.own(name).pop();
    let mut directives = scope.innermost().iter();
    if let Some(directive) = directives.find(|it| lists(OTHER_RESPONDERS, &it.name)) {
        let reason = match treatment(&directive.name) {
            Some(Treatment::Lost(reason)) => reason,
            _ => "Weft has no such response",
        };
        return Err(Refusal::new(directive, reason));
    }
    if let Some(internal) = own("internal") {
        report_internal(location, internal);
        table.set_response("", 404);
        return Ok(Responder::Text);
    }
    if let Some(response) = scope.own("return").into_iter().next() {
        return returns::translate(location, response, table);
    }
    if access::denies_all(location) && location.directive.is_some() {
        scope.all(&["root", "alias"]);
        ["allow", "deny"].iter().for_each(|key| options.remove(key));
        table.set_response("", 403);
        return Ok(Responder::Text);
    }
    if rewrite::of_all(location, table)? {
        return Ok(Responder::Redirect);
    }
    if own("empty_gif").is_some() {
        table.set("empty_gif", true);
        return Ok(Responder::Text);
    }
    if let Some(pass) = own("proxy_pass") {
        return proxy::translate(location, pass, table, options);
    }
    if let Some(pass) = own("grpc_pass") {
        return proxy::translate_grpc(location, pass, table, options);
    }
    if let Some(pass) = own("fastcgi_pass") {
        return fastcgi::translate(location, pass, table, options);
    }
    for protocol in ["scgi", "uwsgi"] {
        if let Some(pass) = own(&format!("{protocol}_pass")) {
            return fastcgi::translate_application(location, protocol, pass, table, options);
        }
    }
    files::translate(location, table, options)
}

/// Reports the requests that reach an internal location in nginx. Only some of them have an
/// equivalent, and clients get 404.
fn report_internal(location: &Location<'_>, internal: &Directive) {
    let uri = location.directive.and_then(|directive| directive.args.last());
    let uri = uri.map_or("", String::as_str);
    let is_requested = location.global.is_target(location.server, "auth_request", uri)
        || location.global.is_target(location.server, "error_page", uri)
        // A front controller.
        || !location.scope.own("fastcgi_pass").is_empty();
    match is_requested {
        true => location.scope.outcomes.adapted(internal, "clients get 404"),
        false => location.lost(
            internal,
            "clients get 404; `accel` of a route names the folders for X-Accel-Redirect",
        ),
    }
}

/// Refuses requests if there are access rules that nothing has translated.
fn refuse_unknown_access_rules(location: &Location<'_>) {
    for directive in location.scope.levels().iter().flat_map(|level| level.iter()) {
        if directive.name == "limit_except" {
            if !restricts_methods(location, directive) {
                location.refuse(directive, "only `deny all` is, which refuses all other methods");
            }
            continue;
        }
        let is_translated = treatment(&directive.name) == Some(Treatment::Translated);
        if is_access_rule(&directive.name) && !is_translated {
            location.refuse(directive, "this rule about access is not known");
        }
    }
}

/// Translates a `limit_except` that refuses all other methods. Returns false for another one.
fn restricts_methods(location: &Location<'_>, directive: &Directive) -> bool {
    let outcomes = location.scope.outcomes;
    let refuses = match directive.children() {
        [rule] => rule.name == "deny" && rule.arg(0) == "all",
        _ => false,
    };
    if refuses {
        outcomes.carried_with_block(directive);
        outcomes.adapted(directive, "other methods get 405");
        *location.methods.borrow_mut() = Some(directive.args.join(","));
    }
    refuses
}
