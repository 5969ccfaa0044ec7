//! `if` blocks that are options in Weft.

use super::Location;
use super::map_redirects;
use super::redirect::is_redirect_to_https;
use crate::document::Table;
use crate::nginx::sites::host_names;
use crate::nginx::tree::{Directive, named};
use crate::nginx::values::lists;

/// Translates the conditions of a block that applies to the location.
pub(crate) fn translate(location: &Location<'_>, block: &[Directive], options: &mut Table) {
    for directive in named(block, "if") {
        let condition = directive.condition();
        let words: Vec<&str> = condition.split_whitespace().collect();
        let done = match (&*words, directive.children()) {
            ([variable] | [variable, "!=", "\"\"" | "''" | ""], [response])
                if map_redirects::is_known(location, variable, response) =>
            {
                true
            }
            (words, [response]) if is_plain(words) && is_redirect_to_https(response) => {
                options.set("https_redirect", true);
                true
            }
            (["$host" | "$http_host", "!=", name], [response]) => {
                let host = redirect_host(response).filter(|host| host == name);
                options.set_some("canonical_host", host);
                host.is_some()
            }
            (["$host" | "$http_host", "=", _], [response]) => {
                let host = redirect_host(response).filter(|host| !host.contains('$'));
                options.set_some("canonical_host", host);
                host.is_some()
            }
            (["-f" | "-e", file], [response]) if response.name == "return" => {
                closes_by_file(location, directive, file, response, options)
            }
            (["!-e" | "!-f", "$request_filename"], [rewrite, others @ ..]) => {
                let is_break = |other: &Directive| other.name == "break";
                others.iter().all(is_break) && falls_back(location, rewrite)
            }
            (["$ssl_client_verify", "!=", "SUCCESS"], [response]) if refuses(response) => {
                options.set("client_cert_required", true);
                true
            }
            (["$invalid_referer"], [response]) if refuses(response) => {
                referers(location, options).is_some()
            }
            (["$request_method", "!~" | "!~*", methods], [response]) => {
                let methods = allowed_methods(methods).filter(|_| refuses(response));
                methods.map(|methods| location.methods.replace(Some(methods))).is_some()
            }
            _ => false,
        };
        match done {
            true => location.scope.outcomes.carried_with_block(directive),
            false => location.lost(directive, "this condition has no equivalent"),
        }
    }
}

/// Translates `if (-f FILE) { return 503; }`.
fn closes_by_file(
    location: &Location<'_>,
    directive: &Directive,
    file: &str,
    response: &Directive,
    options: &mut Table,
) -> bool {
    let root = location.scope.all(&["root"]).pop().map_or("", |root| root.arg(0));
    let file = location.variables.literal(&file.replace("$document_root", root));
    let Some(file) = file.filter(|_| response.arg(0) == "503" && response.args.len() == 1) else {
        return false;
    };
    options.set("maintenance", location.global.path(&file));
    location.scope.outcomes.adapted(directive, "clients get the content of the file");
    true
}

/// Translates `valid_referers` with `if ($invalid_referer) { return 403; }`. Returns `None` if Weft
/// would permit or refuse other pages.
fn referers(location: &Location<'_>, options: &mut Table) -> Option<()> {
    let (scope, directive) = (&location.scope, location.scope.one("valid_referers")?);
    let has = |word: &str| directive.args.iter().any(|arg| arg == word);
    let names = location.server.children().iter().filter(|it| it.name == "server_name");
    let names = names.flat_map(|it| &it.args).filter(|_| has("server_names"));
    let listed = directive.args.iter();
    let listed = listed.filter(|arg| !lists("none blocked server_names", arg)).chain(names);
    let hosts = listed.map(|name| host_names(name)).collect::<Option<Vec<_>>>()?.concat();
    if !has("none") || hosts.is_empty() || hosts.iter().any(|host| host.starts_with('~')) {
        scope.outcomes.lost(directive, "only `none` and names of hosts are");
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

/// Translates `if (!-e $request_filename) { rewrite ^ /index.php last; }`.
fn falls_back(location: &Location<'_>, rewrite: &Directive) -> bool {
    let target = super::rewrite::fallback(location, rewrite);
    target.map(|target| location.fallback.replace(Some(target))).is_some()
}

/// Returns true for conditions of requests without TLS.
fn is_plain(words: &[&str]) -> bool {
    matches!(
        words,
        ["$scheme", "!=", "https"]
            | ["$scheme", "=", "http"]
            | ["$https", "!=", "on"]
            | ["$https", "="]
            | ["$server_port", "=", "80"]
            | ["$server_port", "!=", "443"]
    )
}

/// Returns the host of a redirect that keeps path and query.
fn redirect_host(response: &Directive) -> Option<&str> {
    let url = match (&*response.name, response.arg(0)) {
        ("return", "301" | "302" | "307" | "308") => response.arg(1),
        _ => return None,
    };
    let (_, rest) = url.split_once("://")?;
    rest.strip_suffix("$request_uri")
}

/// Returns the methods of an expression such as `^(GET|HEAD|POST)$`, as in the key of a route.
fn allowed_methods(regex: &str) -> Option<String> {
    let names = regex.strip_prefix('^')?.strip_suffix('$')?;
    let names = names.strip_prefix('(')?.strip_suffix(')')?;
    let is_method = |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_uppercase());
    let mut names: Vec<&str> = names.split('|').collect();
    let are_methods = names.iter().all(|name| is_method(name));
    // GET includes HEAD.
    names.retain(|name| *name != "HEAD");
    (are_methods && !names.is_empty()).then(|| names.join(","))
}

fn refuses(response: &Directive) -> bool {
    response.name == "return" && matches!(response.arg(0), "403" | "405" | "444")
}
