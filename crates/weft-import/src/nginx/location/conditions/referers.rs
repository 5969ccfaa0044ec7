//! `valid_referers`, which `if ($invalid_referer)` refuses.

use super::condition::{Condition, Subject, Test};
use crate::document::Table;
use crate::nginx::location::Location;
use crate::nginx::sites::host_names;
use crate::regex::escape;
use crate::values::lists;

/// Translates `valid_referers` as the option `referers`. Returns `None` if Weft would permit or
/// refuse other pages.
pub(super) fn option(location: &Location<'_>, options: &mut Table) -> Option<()> {
    let (scope, directive) = (&location.scope, location.scope.one("valid_referers")?);
    let has = |word: &str| directive.args.iter().any(|arg| arg == word);
    let hosts = names(location).map(|name| host_names(name)).collect::<Option<Vec<_>>>()?.concat();
    if !has("none") || hosts.is_empty() || hosts.iter().any(|host| host.starts_with('~')) {
        return None;
    }
    if !has("blocked") || !has("server_names") && !hosts.contains(&location.variables.server_name) {
        let note =
            "pages of the same host, and URLs with other schemes than HTTP, are permitted, too";
        scope.outcomes.adapted(directive, note);
    }
    options.set("referers", hosts);
    Some(())
}

/// Returns the names of `valid_referers`, also of the directive in the server.
fn names<'l>(location: &'l Location<'_>) -> impl Iterator<Item = &'l String> {
    let directive = location.scope.one("valid_referers");
    let has_server_names =
        directive.is_some_and(|it| it.args.iter().any(|arg| arg == "server_names"));
    let of_server = location.server.children().iter().filter(|it| it.name == "server_name");
    let of_server = of_server.flat_map(|it| &it.args).filter(move |_| has_server_names);
    let listed = directive.into_iter().flat_map(|it| &it.args);
    listed.filter(|arg| !lists("none blocked server_names", arg)).chain(of_server)
}

/// Returns the condition that the field `Referer` is not valid.
pub(super) fn condition(location: &Location<'_>) -> Option<Condition> {
    let directive = location.scope.one("valid_referers")?;
    let has = |word: &str| directive.args.iter().any(|arg| arg == word);
    let alternatives = names(location).map(|name| of_name(name)).collect::<Option<Vec<_>>>()?;
    let valid = format!("~ (?i)^https?://(?:{})", alternatives.join("|"));
    if !location.global.target.is_route_key(&valid) {
        return None;
    }
    let refused = if alternatives.is_empty() { Vec::new() } else { vec![valid] };
    let accepted = match (has("none"), has("blocked")) {
        // Without a URL, or with a URL that another program has changed.
        (true, true) => vec!["~ (?i)^https?://".to_owned()],
        (true, false) => vec!["~ .".to_owned()],
        (false, false) => Vec::new(),
        (false, true) => return None,
    };
    let test = match accepted.is_empty() && refused.is_empty() {
        true => return None,
        false => Test::Values { accepted, refused },
    };
    let subject = Subject::Value("{header.referer}".to_owned());
    Some(Condition { subject, test, label: "referer".to_owned() })
}

/// Returns an expression for the URLs of a name, behind the scheme.
fn of_name(name: &str) -> Option<String> {
    const END: &str = "(?:[:/]|$)";
    if let Some(regex) = name.strip_prefix('~') {
        return Some(match regex.strip_prefix('^') {
            Some(anchored) => format!("(?:{anchored})"),
            None => format!(".*(?:{regex})"),
        });
    }
    let (host, path) = match name.split_once('/') {
        Some((host, path)) => (host, format!("(?::[0-9]+)?/{}", escape(path))),
        None => (name, END.to_owned()),
    };
    let host = match (host.strip_prefix("*."), host.strip_prefix('.'), host.strip_suffix(".*")) {
        (Some(domain), ..) => format!("[^:/]*\\.{}", escape(domain)),
        (_, Some(domain), _) => format!("(?:[^:/]*\\.)?{}", escape(domain)),
        (.., Some(begin)) => format!("{}\\.[^:/]*", escape(begin)),
        _ => escape(host),
    };
    (!host.contains("\\*")).then(|| host + &path)
}
