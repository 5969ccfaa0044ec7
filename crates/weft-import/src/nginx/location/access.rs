//! Access to a location: passwords, certificates of clients and authentication servers.

use std::path::Path;

use super::Location;
use crate::document::Table;
use crate::nginx::client_rules;
use crate::nginx::scope::Scope;
use crate::nginx::tree::{Directive, named};
use crate::nginx::variables::{split_name, title_case};
use crate::values::lists;

/// Returns true for directives that restrict the clients of a location. If one of them is lost, the
/// route refuses all requests.
pub(crate) fn is_access_rule(name: &str) -> bool {
    const NAMES: &str = "
        allow deny satisfy limit_except secure_link secure_link_md5 secure_link_secret
        valid_referers modsecurity internal
    ";
    lists(NAMES, name) || name.starts_with("auth_") || name.starts_with("access_by_lua")
}

/// Returns true if the location refuses all clients. `return` and `rewrite` precede its rules.
pub(crate) fn denies_all(location: &Location<'_>) -> bool {
    let block = location.scope.innermost();
    let is_sufficient = location.scope.one("satisfy").is_some_and(|it| it.arg(0) == "any");
    let mut rules = block.iter().filter(|it| is_access_rule(&it.name) && it.name != "internal");
    let denies = |rule: &Directive| rule.name == "deny" && *rule.args == ["all"];
    let precedes = |it: &Directive| matches!(&*it.name, "return" | "rewrite" | "if");
    rules.clone().next().is_some_and(|first| rules.all(denies) && denies(first))
        && !is_sufficient
        && !block.iter().any(precedes)
}

pub(crate) fn translate(location: &Location<'_>, table: &mut Table) {
    let scope = &location.scope;
    client_rules::translate(scope, &|directive, reason| location.refuse(directive, reason), table);
    if scope.one("satisfy").is_some_and(|satisfy| satisfy.arg(0) == "any") {
        table.set("satisfy", "any");
    }
    password(location, table);
    forward_auth(location, table);
    client_certificate(location, table);
}

/// Requires a certificate of the client where not all hosts do.
fn client_certificate(location: &Location<'_>, table: &mut Table) {
    let (scope, all) = (&location.scope, &location.global.client_certificates);
    let Some(verify) = scope.one("ssl_verify_client").filter(|verify| verify.arg(0) == "on") else {
        return;
    };
    let authority = scope.one("ssl_client_certificate");
    if let Some(other) = authority.filter(|own| Some(own.arg(0)) != all.authority) {
        return location.refuse(other, "all hosts have the same `client_ca`");
    }
    if !all.is_required() {
        table.set("client_cert_required", true);
        scope.outcomes.adapted(verify, "clients without a certificate get 403");
    }
}

fn password(location: &Location<'_>, table: &mut Table) {
    let scope = &location.scope;
    let Some(realm) = scope.one("auth_basic").filter(|basic| basic.arg(0) != "off") else { return };
    let Some(file) = scope.one("auth_basic_user_file") else {
        return location.refuse(realm, "there is no auth_basic_user_file");
    };
    match location.variables.literal(file.arg(0)) {
        Some(path) => {
            let path = location.global.path(&path);
            let file_path = Path::new(&path);
            let target = location.global.target;
            let users = file_path.exists().then(|| target.check_password_file(file_path));
            if let Some(Err(message)) = users {
                location.refuse(file, format!("a server does not start with it: {message}"));
            }
            table.set("basic_auth", path);
        }
        None => location.refuse(file, "the name of the file has variables"),
    }
    match location.variables.literal(realm.arg(0)) {
        Some(realm) => table.set("realm", realm),
        None => scope.outcomes.adapted(realm, "the realm is the default, as it has variables"),
    }
}

/// Translates `auth_request`, whose target is another location that forwards to a server.
fn forward_auth(location: &Location<'_>, table: &mut Table) {
    let scope = &location.scope;
    let Some(request) = scope.one("auth_request").filter(|request| request.arg(0) != "off") else {
        return;
    };
    let target = location.global.exact_location(location.server, request.arg(0));
    let pass = target.and_then(|target| target.child("proxy_pass"));
    let Some((target, pass)) = target.zip(pass) else {
        return location.refuse(request, "there is no location with proxy_pass for its URI");
    };
    let url = literal_of(location, target, pass.arg(0));
    let Some(url) = url.filter(|url| !location.global.upstreams.contains_key(host_of(url))) else {
        return location.refuse(request, "its server has variables, or is a group of servers");
    };
    let has_path = url.split_once("://").is_some_and(|(_, rest)| rest.contains('/'));
    let url = if has_path { url } else { format!("{url}{}", request.arg(0)) };
    table.set("forward_auth", url);
    for field in named(target.children(), "proxy_set_header") {
        scope.outcomes.adapted(
            field,
            "a server of forward_auth gets the fields of the client, and X-Forwarded-Method and \
             X-Forwarded-Uri",
        );
    }
    scope.outcomes.carried_with_block(target);
    forwarded_fields(location, table);
}

/// Returns a text of the location of an authentication server, if its variables are constants.
fn literal_of(location: &Location<'_>, target: &Directive, text: &str) -> Option<String> {
    let children = target.children();
    let mut conditional = named(children, "if").flat_map(|it| named(it.children(), "set"));
    if text.contains('$') && conditional.next().is_some() {
        return None;
    }
    let sets: Vec<&Directive> = named(children, "set").collect();
    let own = sets.into_iter().rev();
    let own = own.map(|set| (set.arg(0).trim_start_matches('$').to_owned(), set.arg(1).to_owned()));
    let mut variables = location.variables.clone();
    variables.constants.splice(0..0, own);
    variables.literal(text)
}

/// Translates `auth_request_set $x $upstream_http_x` with `proxy_set_header X $x`.
fn forwarded_fields(location: &Location<'_>, table: &mut Table) {
    let scope = &location.scope;
    let mut names = Vec::new();
    for set in scope.all(&["auth_request_set"]) {
        let uses = uses_of(scope, set.arg(0));
        let is_forwarded =
            |it: &&Directive| it.name == "proxy_set_header" && it.arg(1) == set.arg(0);
        let is_cookie = |it: &&Directive| {
            it.name == "add_header" && it.arg(0).eq_ignore_ascii_case("set-cookie")
        };
        match set.arg(1).strip_prefix("$upstream_http_") {
            // The client gets the cookies of the authentication server anyway.
            Some("set_cookie") if uses.iter().all(is_cookie) => {}
            Some(_) if uses.is_empty() => {}
            Some(source) if uses.iter().all(is_forwarded) => {
                let same = uses.iter().find(|it| it.arg(0).eq_ignore_ascii_case(&field(source)));
                let name =
                    same.map_or_else(|| title_case(&field(source)), |it| it.arg(0).to_owned());
                if !names.contains(&name) {
                    names.push(name);
                }
            }
            _ => location.refuse(set, "only fields that upstreams get are"),
        }
    }
    if !names.is_empty() {
        table.set("forward_auth_headers", names);
    }
}

/// Returns the directives of a location that have a variable in their value.
fn uses_of<'a>(scope: &Scope<'a>, variable: &str) -> Vec<&'a Directive> {
    let name = variable.trim_start_matches('$');
    let has = |text: &String| {
        text.match_indices('$').any(|(at, _)| split_name(&text[at + 1..]).0 == name)
    };
    let uses = scope.levels().iter().flat_map(|level| level.iter()).filter(|it| {
        it.name != "auth_request_set" && it.args.iter().any(has)
            || it.name == "if" && it.children().iter().any(|child| child.args.iter().any(has))
    });
    uses.collect()
}

/// Returns a template for a variable that has a field of the authentication server, which the
/// request has in place of the client's.
pub(crate) fn field_of_authentication(location: &Location<'_>, text: &str) -> Option<String> {
    let sets = location.scope.all(&["auth_request_set"]);
    let set = sets.into_iter().find(|set| set.arg(0) == text)?;
    let source = set.arg(1).strip_prefix("$upstream_http_")?;
    Some(format!("{{header.{}}}", field(source)))
}

/// Returns the name of a field for the name of its variable.
fn field(variable: &str) -> String {
    variable.replace('_', "-")
}

fn host_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split('/').next().unwrap_or_default()
}
