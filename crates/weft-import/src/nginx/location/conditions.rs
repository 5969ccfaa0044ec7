//! `if`, as far as it stands for an option.

use super::Location;
use super::map_redirects;
use super::returns::is_redirect_to_https;
use crate::document::{Table, Value};
use crate::nginx::tree::{Directive, named};

/// Translates the conditions of a block that applies to the location.
pub(in crate::nginx) fn translate(
    location: &Location<'_>,
    block: &[Directive],
    options: &mut Table,
) {
    for directive in named(block, "if") {
        let condition = condition(directive);
        let words: Vec<&str> = condition.split_whitespace().collect();
        let done = match (&*words, directive.children()) {
            ([variable] | [variable, "!=", "\"\"" | "''" | ""], [response])
                if map_redirects::is_known(location, variable, response) =>
            {
                true
            }
            (words, [response]) if is_plain(words) && is_redirect_to_https(response) => {
                options.set("https_redirect", Value::Bool(true));
                true
            }
            (["$host" | "$http_host", "!=", name], [response]) => {
                let is_canonical = redirect_host(response) == Some(name);
                if is_canonical {
                    options.set("canonical_host", Value::text(*name));
                }
                is_canonical
            }
            (["$host" | "$http_host", "=", _], [response]) => {
                let host = redirect_host(response).filter(|host| !host.contains('$'));
                if let Some(host) = host {
                    options.set("canonical_host", Value::text(host));
                }
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
                options.set("client_cert_required", Value::Bool(true));
                true
            }
            (["$request_method", "!~" | "!~*", methods], [response]) => {
                let methods = allowed_methods(methods).filter(|_| refuses(response));
                let is_known = methods.is_some();
                if is_known {
                    *location.methods.borrow_mut() = methods;
                }
                is_known
            }
            _ => false,
        };
        match done {
            true => location.scope.outcomes.carried_with_block(directive),
            false => location.scope.outcomes.lost(directive, "this condition has no equivalent"),
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
    options.set("maintenance", Value::Text(location.global.path(&file)));
    location.scope.outcomes.adapted(directive, "clients get the content of the file");
    true
}

/// Translates `if (!-e $request_filename) { rewrite ^ /index.php last; }`.
fn falls_back(location: &Location<'_>, rewrite: &Directive) -> bool {
    let target = super::rewrite::fallback(location, rewrite);
    let is_known = target.is_some();
    if is_known {
        *location.fallback.borrow_mut() = target;
    }
    is_known
}

/// Returns the condition without its parentheses.
pub(in crate::nginx) fn condition(directive: &Directive) -> String {
    let text = directive.args.join(" ");
    let text = text.strip_prefix('(').unwrap_or(&text);
    text.strip_suffix(')').unwrap_or(text).trim().to_owned()
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
