//! `return`: redirects and fixed responses.

use super::rewrite;
use super::{Location, Pattern, Refusal, Responder};
use crate::document::{Table, Value};
use crate::nginx::tree::Directive;

pub(in crate::nginx) fn translate<'a>(
    location: &Location<'_>,
    response: &'a Directive,
    table: &mut Table,
) -> Result<Responder, Refusal<'a>> {
    let refusal = |reason: String| Refusal { directive: response, reason };
    // `return URL` is a temporary redirect.
    let (status, text) = match response.arg(0).parse::<u64>() {
        Ok(status) => (status, response.arg(1)),
        Err(_) => (302, response.arg(0)),
    };
    match status {
        301 | 302 | 303 | 307 | 308 if !text.is_empty() => {
            let target = location.variables.template(text).map_err(refusal)?;
            redirect(location, response, target, status, table)?;
            Ok(Responder::Redirect)
        }
        444 => {
            location.scope.outcomes.adapted(response, "the connection gets a response, 403");
            respond(table, "", 403);
            Ok(Responder::Text)
        }
        200..=599 => {
            let text = location.variables.template(text).map_err(refusal)?;
            respond(table, if matches!(status, 204 | 205 | 304) { "" } else { &text }, status);
            Ok(Responder::Text)
        }
        _ => Err(refusal("a status is a number from 200 to 599".to_owned())),
    }
}

/// Sets the keys of a fixed response.
pub(in crate::nginx) fn respond(table: &mut Table, text: &str, status: u64) {
    table.set("respond", Value::text(text));
    if status != 200 {
        table.set("status", Value::Number(status));
    }
}

/// Sets the keys of a redirect. In Weft, the rest of the path is appended to a target of a prefix
/// without placeholders, and the query to one without a query.
fn redirect<'a>(
    location: &Location<'_>,
    response: &'a Directive,
    target: String,
    status: u64,
    table: &mut Table,
) -> Result<(), Refusal<'a>> {
    if !target.starts_with(['/', '{']) && !target.contains("://") {
        let reason = "its target is neither a URL nor a path".to_owned();
        return Err(Refusal { directive: response, reason });
    }
    let is_prefix = matches!(location.pattern, Pattern::Prefix(_));
    let target = match (target.contains('{'), target.contains(['?', '#'])) {
        (true, _) => target,
        // A question mark at the end drops the query of the request.
        (false, false) if !is_prefix || location.may_be_regex() => format!("{target}?"),
        (false, true) if !is_prefix || location.may_be_regex() => target,
        (false, true) => {
            let reason = "its target has a query, and other locations begin with its prefix";
            return Err(Refusal { directive: response, reason: reason.to_owned() });
        }
        (false, false) => {
            location
                .scope
                .outcomes
                .lost(response, "the rest of the path and the query are appended");
            target
        }
    };
    set_redirect(table, target, status);
    Ok(())
}

/// Sets the keys of a redirect, whose status is 301 by default.
pub(in crate::nginx) fn set_redirect(table: &mut Table, target: String, status: u64) {
    table.set("redirect", Value::Text(target));
    if status != 301 {
        table.set("status", Value::Number(status));
    }
}

/// Returns the host of a redirect to HTTPS, as it is written; `None` if it is that of the request.
pub(in crate::nginx) fn redirect_host(directive: &Directive) -> Option<&str> {
    let rest = directive.args.iter().find_map(|argument| argument.strip_prefix("https://"))?;
    if ["$host", "$http_host"].iter().any(|host| rest.starts_with(host)) {
        return None;
    }
    match rest.starts_with("$server_name") {
        true => Some("$server_name"),
        false => rest.split(['$', '/']).next(),
    }
}

/// Returns true for a redirect of all paths to the same path of HTTPS.
pub(in crate::nginx) fn is_redirect_to_https(directive: &Directive) -> bool {
    let is_same = |url: &str, ends: &[&str]| {
        let rest = url.strip_prefix("https://");
        rest.is_some_and(|rest| ends.iter().any(|end| rest.ends_with(end)))
    };
    match (&*directive.name, directive.arg(0)) {
        ("return", "301" | "302" | "303" | "307" | "308") => {
            is_same(directive.arg(1), &["$request_uri", "$uri$is_args$args"])
        }
        ("return", url) => is_same(url, &["$request_uri"]),
        ("rewrite", regex) if rewrite::matches_all(regex) => {
            let ends = ["$request_uri", "$request_uri?", "$1", "$uri"];
            is_same(directive.arg(1), &ends)
        }
        _ => false,
    }
}
