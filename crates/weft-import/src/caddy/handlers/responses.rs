//! `respond`, `redir`, `error` and `abort`.

use super::super::chain::{Chain, Flow};
use super::super::outcome::{Outcome, Responder};
use super::super::tree::Directive;
use super::super::values::placeholders::template;

fn refuse(chain: &Chain<'_>, directive: &Directive, reason: &str, outcome: &mut Outcome) -> Flow {
    chain.lost(directive, format!("{reason}; its paths are refused"));
    outcome.refuse();
    Flow::Done
}

pub(super) fn respond(
    chain: &Chain<'_>,
    directive: &Directive,
    args: &[String],
    outcome: &mut Outcome,
) -> Flow {
    let status_of = |text: &str| (text.len() == 3).then(|| text.parse::<u64>().ok()).flatten();
    let (mut body, mut status) = match args {
        [] => ("", Some(200)),
        [only] => match status_of(only) {
            Some(status) => ("", Some(status)),
            None => (&**only, Some(200)),
        },
        [body, status, ..] => (&**body, status_of(status)),
    };
    for child in directive.children() {
        match &*child.name {
            "body" => body = child.arg(0),
            "status" => status = status_of(child.arg(0)),
            _ => {}
        }
    }
    let Some(status) = status.filter(|status| (200..600).contains(status)) else {
        return refuse(chain, directive, "a status is a number from 200 to 599", outcome);
    };
    let has_body = !matches!(status, 204 | 205 | 304);
    match template(body, outcome) {
        Ok(text) => {
            let text = if has_body { text } else { String::new() };
            outcome.responder = Responder::Fixed { text, status };
        }
        Err(name) => {
            return refuse(chain, directive, &format!("{name} has no equivalent"), outcome);
        }
    }
    Flow::Done
}

pub(super) fn redirect(
    chain: &Chain<'_>,
    directive: &Directive,
    args: &[String],
    outcome: &mut Outcome,
) -> Flow {
    let Some(to) = args.first() else {
        return refuse(chain, directive, "there is no target", outcome);
    };
    let status = match args.get(1).map(|code| &**code) {
        None | Some("temporary") => 302,
        Some("permanent") => 301,
        Some("html") => {
            chain.adapted(directive, "a redirect with the status 302");
            302
        }
        Some(code) => code.parse().unwrap_or(0),
    };
    if !matches!(status, 301 | 302 | 303 | 307 | 308) {
        return refuse(chain, directive, "no redirect has this status", outcome);
    }
    match template(to, outcome) {
        Ok(to) if is_target(&to) => outcome.responder = Responder::Redirect { to, status },
        Ok(_) => return refuse(chain, directive, "its target has no equivalent", outcome),
        Err(name) => {
            return refuse(chain, directive, &format!("{name} has no equivalent"), outcome);
        }
    }
    Flow::Done
}

/// Returns true for a path, or a URL whose host is the configuration's.
fn is_target(to: &str) -> bool {
    let Some((scheme, rest)) = to.split_once("://") else {
        return to.starts_with('/') || to.starts_with("{\u{1}");
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let host = rest[..end].split("{\u{1}").next().unwrap_or_default();
    let host = host.replace("{host}", "h").replace("{port}", "0");
    // A value of the request must be in front of a domain.
    let domain = host.rsplit('}').next().unwrap_or_default();
    let is_fixed =
        !host.contains('{') || domain.starts_with('.') && domain.matches('.').count() > 1;
    matches!(scheme, "http" | "https" | "{scheme}") && !host.is_empty() && is_fixed
}

pub(super) fn error(
    chain: &Chain<'_>,
    directive: &Directive,
    args: &[String],
    outcome: &mut Outcome,
) -> Flow {
    let status = args.last().map_or(Some(500), |status| status.parse::<u64>().ok());
    let Some(status) = status.filter(|status| (400..600).contains(status)) else {
        return refuse(chain, directive, "the status of an error is 4xx or 5xx", outcome);
    };
    outcome.responder = Responder::Fixed { text: String::new(), status };
    Flow::Done
}

/// Closes the connection without a response, as the status 444 does in Weft. A named matcher may
/// become rules about networks, whose response is 403.
pub(super) fn abort(chain: &Chain<'_>, directive: &Directive, outcome: &mut Outcome) -> Flow {
    let is_named = directive.arg(0).starts_with('@');
    if is_named {
        chain.lost(directive, "the connection gets a response, 403");
    }
    let status = if is_named { 403 } else { 444 };
    outcome.responder = Responder::Fixed { text: String::new(), status };
    Flow::Done
}
