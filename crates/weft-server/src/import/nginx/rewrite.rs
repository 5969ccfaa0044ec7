//! `rewrite`.

use super::location::{Location, Pattern, Refusal, Responder};
use super::tree::Directive;
use crate::import::document::{Table, Value};

/// Translates a `rewrite` of a location that redirects all of its paths. Other ones are reported.
pub(super) fn redirect<'a>(
    location: &Location<'a>,
    table: &mut Table,
) -> Result<Option<Responder>, Refusal<'a>> {
    let Some(rewrite) = location.scope.own("rewrite").into_iter().next() else { return Ok(None) };
    let refusal = |reason: &str| Refusal { directive: rewrite, reason: reason.to_owned() };
    let status = match rewrite.arg(2) {
        "permanent" => 301,
        "redirect" => 302,
        _ if rewrite.arg(1).contains("://") => 302,
        _ => return Err(refusal("Weft does not select a location by a rewritten path")),
    };
    let target = appended_target(location, rewrite)
        .ok_or_else(|| refusal("only `^PREFIX(.*)$ TARGET$1` is a redirect of a prefix"))?;
    table.set("redirect", Value::Text(target));
    if status != 301 {
        table.set("status", Value::Number(status));
    }
    Ok(Some(Responder::Redirect))
}

/// Returns the target of a redirect to which the rest of the path and the query are appended.
fn appended_target(location: &Location<'_>, rewrite: &Directive) -> Option<String> {
    let Pattern::Prefix(prefix) = &location.pattern else { return None };
    let rest = rewrite.arg(0).strip_prefix('^')?.strip_prefix(&**prefix)?;
    let target = rewrite.arg(1).strip_suffix("$1")?;
    let is_whole =
        matches!(rest, "(.*)$" | "(.*)") && prefix.ends_with('/') == target.ends_with('/');
    (is_whole && !target.contains(['$', '?', '#', '{'])).then(|| target.to_owned())
}
