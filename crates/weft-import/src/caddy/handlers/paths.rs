//! `root`, `rewrite`, `uri` and `try_files`.

use super::super::chain::{Chain, Flow, Scopes, conditions, is_try_files};
use super::super::matcher::Condition;
use super::super::outcome::{CurrentPath, Outcome};
use super::super::region::Region;
use super::super::tree::Directive;
use super::super::values::placeholders::template;

pub(super) fn root(
    chain: &Chain<'_>,
    directive: &Directive,
    args: &[String],
    outcome: &mut Outcome,
) -> Flow {
    let Some(path) = args.last() else { return Flow::Next };
    match folder(chain, path, outcome) {
        Ok(path) => outcome.root = Some(path),
        Err(name) => {
            chain.lost(directive, format!("a folder has no {name}; its paths are refused"));
            outcome.refuse();
            return Flow::Done;
        }
    }
    Flow::Next
}

/// Returns the absolute path of a folder.
///
/// # Errors
/// A placeholder in it.
pub(super) fn folder(chain: &Chain<'_>, path: &str, outcome: &Outcome) -> Result<String, String> {
    let path = template(path, outcome)?;
    if path.contains('{') && !path.contains("{env.") {
        return Err("placeholder".to_owned());
    }
    let path = chain.context.base.join(path);
    // Without `.` and a slash at the end.
    let path: std::path::PathBuf = path.components().collect();
    Ok(path.to_string_lossy().into_owned())
}

pub(super) fn rewrite<'a>(
    chain: &Chain<'a>,
    directive: &'a Directive,
    args: &[String],
    scopes: &Scopes<'a>,
    outcome: &mut Outcome,
) -> Flow {
    let Some(to) = args.first() else { return Flow::Next };
    if is_try_files(directive, args) {
        let (conditions, _) = conditions(directive, scopes);
        let found = conditions.into_iter().flatten().find_map(|condition| match condition {
            Condition::File(candidates) => Some(candidates),
            _ => None,
        });
        outcome.candidates = found.unwrap_or_default();
        return Flow::Next;
    }
    // The query is kept unless there is another one.
    let to = to.strip_suffix("?{query}").unwrap_or(to);
    let to = to.replace("{uri}", "{path}").replace("{http.request.uri}", "{path}");
    let to = if to.starts_with('?') { format!("{{path}}{to}") } else { to };
    match template(&to, outcome) {
        Ok(path) if path.starts_with('/') || path.starts_with('{') => {
            outcome.path = CurrentPath::Changed(path);
            Flow::Next
        }
        result => {
            let name = result.err().unwrap_or_else(|| "path without a slash".to_owned());
            chain.lost(directive, format!("{name} has no equivalent; its paths are refused"));
            outcome.refuse();
            Flow::Done
        }
    }
}

pub(super) fn uri(
    chain: &Chain<'_>,
    directive: &Directive,
    args: &[String],
    outcome: &mut Outcome,
) -> Flow {
    let prefix = match args {
        [operation, prefix] if operation == "strip_prefix" && !prefix.contains('{') => prefix,
        _ => {
            chain.lost(directive, "the path cannot be changed so; its paths are refused");
            outcome.refuse();
            return Flow::Done;
        }
    };
    let prefix = format!("{}{}", outcome.stripped, prefix.trim_end_matches('/'));
    let is_below = |path: &str| {
        let rest = path.to_ascii_lowercase();
        let rest = rest.strip_prefix(&prefix.to_ascii_lowercase()).map(str::to_owned);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let applies = match chain.case.region {
        Region::Exact(path) => is_below(path),
        Region::Below(path, _) => is_below(path),
    };
    match &outcome.path {
        CurrentPath::OfRequest if applies => outcome.stripped = prefix,
        CurrentPath::OfRequest => {}
        CurrentPath::Changed(_) => {
            chain.lost(directive, "the path has been rewritten before; its paths are refused");
            outcome.refuse();
            return Flow::Done;
        }
    }
    Flow::Next
}

pub(super) fn try_files(args: &[String], outcome: &mut Outcome) -> Flow {
    let candidate = |text: &String| {
        let text = text.replace("{http.request.uri.path}", "{path}");
        text.strip_suffix("?{query}").unwrap_or(&text).to_owned()
    };
    outcome.candidates = args.iter().map(candidate).collect();
    Flow::Next
}
