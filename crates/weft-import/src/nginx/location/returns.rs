//! `return`: redirects and fixed responses.

use super::rewrite::is_target;
use super::{Location, Pattern, Refusal, Responder};
use crate::document::Table;
use crate::nginx::tree::Directive;

pub(crate) fn translate<'a>(
    location: &Location<'_>,
    response: &'a Directive,
    table: &mut Table,
) -> Result<Responder, Refusal<'a>> {
    let refusal = |reason: String| Refusal::new(response, reason);
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
            table.set_response("", 444);
            Ok(Responder::Text)
        }
        200..=599 => {
            let text = location.variables.template(text).map_err(refusal)?;
            let has_body = !matches!(status, 204 | 205 | 304);
            table.set_response(if has_body { &text } else { "" }, status);
            if has_body && !text.is_empty() {
                media_type(location, &text, table);
            }
            Ok(Responder::Text)
        }
        _ => Err(refusal("a status is a number from 200 to 599".to_owned())),
    }
}

/// Sets the media type of a text. The usual value of `http` is for files of unknown types.
fn media_type(location: &Location<'_>, text: &str, table: &mut Table) {
    let directive = location.scope.one("default_type");
    let is_usual = |it: &Directive| matches!(it.arg(0), "text/plain" | "application/octet-stream");
    let Some(directive) = directive.filter(|it| !is_usual(it)) else { return };
    match text.replace("{{", "").contains('{') {
        true => location.lost(directive, "a text with variables is text/plain"),
        false => table.set("content_type", directive.arg(0)),
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
    if !is_target(&target) {
        let reason = "its target is neither a URL nor a path";
        return Err(Refusal::new(response, reason));
    }
    let is_prefix = matches!(location.pattern, Pattern::Prefix(_));
    let target = match (target.contains('{'), target.contains(['?', '#'])) {
        (true, _) => target,
        // A question mark at the end drops the query of the request.
        (false, false) if !is_prefix || location.may_be_regex() => format!("{target}?"),
        (false, true) if !is_prefix || location.may_be_regex() => target,
        (false, true) => {
            let reason = "its target has a query, and other locations begin with its prefix";
            return Err(Refusal::new(response, reason));
        }
        (false, false) => {
            location.lost(response, "the rest of the path and the query are appended");
            target
        }
    };
    table.set_redirect(target, status);
    Ok(())
}
