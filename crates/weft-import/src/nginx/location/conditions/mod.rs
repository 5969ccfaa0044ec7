//! `if` blocks, which are options of a route, or routes with conditions.

pub(super) mod condition; // conditions of requests
pub(super) mod parse; // conditions of `if`
pub(super) mod program; // the order of `set`, `if` and `return`
pub(super) mod cases; // the cases of a location
mod referers; // `valid_referers`

use super::access::is_access_rule;
use super::map_redirects;
use super::redirect::{is_redirect, is_redirect_to_https, matches_all};
use super::{Location, Pattern};
use crate::document::Table;
use crate::nginx::tree::{Directive, named};

/// Translates the conditions of a block that applies to the location.
pub(crate) fn translate<'a>(location: &Location<'a>, block: &'a [Directive], options: &mut Table) {
    if named(block, "if").next().is_none() {
        return;
    }
    let cases = cases::cases(location, true);
    for directive in named(block, "if") {
        // Cases are routes of their own.
        match option(location, directive, options) || cases.known.contains(&directive.id) {
            true => location.scope.outcomes.carried_with_block(directive),
            false if protects(directive) => {
                let reason = "this condition has no equivalent, and without it the location would \
                              permit more: write a route for it in place of the refusal";
                location.refuse(directive, reason);
            }
            false => location.lost(directive, "this condition has no equivalent"),
        }
    }
}

/// Translates a condition as an option of the location. Returns false if it has no such option.
fn option<'a>(location: &Location<'a>, directive: &'a Directive, options: &mut Table) -> bool {
    let condition = directive.condition();
    let words: Vec<&str> = condition.split_whitespace().collect();
    match (&*words, directive.children()) {
        ([variable] | [variable, "!=", "\"\"" | "''" | ""], [response])
            if is_of_server(location, directive)
                && map_redirects::is_known(location, variable, response) =>
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
        (["-f" | "-e", file], [response, others @ ..]) if others.iter().all(is_break) => {
            closes_by_file(location, directive, file, response, options)
        }
        // Weft gives 404 for a script that does not exist.
        (["!-e" | "!-f", file], [response]) if is_about_scripts(location, file, response) => true,
        (["!-e" | "!-f", "$request_filename"], [rewrite, others @ ..])
            if others.iter().all(is_break) && rewrite.name == "rewrite" =>
        {
            falls_back(location, rewrite)
        }
        ([test @ ("!-e" | "!-f"), "$request_filename"], content) if passes(location, content) => {
            let folder = (*test == "!-e").then(|| "{path}/".to_owned());
            let paths = ["{path}".to_owned()].into_iter().chain(folder);
            let paths = paths.chain([name_of_missing(location)]).collect();
            location.fallback.replace(Some(paths));
            true
        }
        (["$ssl_client_verify", "!=", "SUCCESS"], [response]) if refuses(response) => {
            options.set("client_cert_required", true);
            true
        }
        (["$invalid_referer"], [response]) if refuses(response) => {
            referers::option(location, options).is_some()
        }
        (["$request_method", "!~" | "!~*", methods], [response]) => {
            let methods = allowed_methods(methods).filter(|_| refuses(response));
            methods.map(|methods| location.methods.replace(Some(methods))).is_some()
        }
        _ => false,
    }
}

/// Returns true for a directive of the server, outside of its locations.
fn is_of_server(location: &Location<'_>, directive: &Directive) -> bool {
    location.server.children().iter().any(|child| std::ptr::eq(child, directive))
}

fn is_break(directive: &Directive) -> bool {
    directive.name == "break"
}

/// Returns true if a lost condition protects content of the location: if it refuses requests, or
/// gives them another path. A redirect does not, nor does a path that has no file anyway.
fn protects(directive: &Directive) -> bool {
    let condition = directive.condition();
    let is_of_missing_file = condition.starts_with("!-e ") || condition.starts_with("!-f ");
    directive.children().iter().any(|child| match &*child.name {
        "return" => child.arg(0).starts_with(['4', '5']),
        "rewrite" => !is_of_missing_file && !is_redirect(child),
        name => is_access_rule(name),
    })
}

/// Stores the response of a location to some methods, which becomes a route of its own. Returns
/// false if the condition does something else.
pub(super) fn has_own_response<'a>(location: &Location<'a>, directive: &'a Directive) -> bool {
    let condition = directive.condition();
    let words: Vec<&str> = condition.split_whitespace().collect();
    let (["$request_method", "=" | "~" | "~*", methods], children) =
        (&*words, directive.children())
    else {
        return false;
    };
    let is_fields = |child: &Directive| matches!(&*child.name, "add_header" | "default_type");
    let is_response = matches!(children, [fields @ .., last] if last.name == "return" && fields.iter().all(is_fields));
    let methods = match is_method(methods) {
        true => Some((*methods).to_owned()),
        false => allowed_methods(methods),
    };
    let has_key = !matches!(location.pattern, Pattern::Named(_));
    // The route of GET has HEAD, too.
    let Some(methods) = methods.filter(|it| is_response && has_key && it != "HEAD") else {
        return false;
    };
    let mut responses = location.responses_to_methods.borrow_mut();
    if !responses.iter().any(|(_, known)| std::ptr::eq(*known, directive)) {
        responses.push((methods, directive));
    }
    true
}

/// Returns true for `if (!-f SCRIPT) { return 404; }` in a location that runs the script.
fn is_about_scripts(location: &Location<'_>, file: &str, response: &Directive) -> bool {
    let parameters = location.scope.all(&["fastcgi_param"]);
    let scripts = parameters.iter().filter(|it| it.arg(0) == "SCRIPT_FILENAME");
    let is_script = |file: &str| {
        file == "$request_filename"
            || file == "$document_root$fastcgi_script_name"
            || scripts.clone().any(|script| script.arg(1) == file)
    };
    let runs = !location.scope.own("fastcgi_pass").is_empty();
    runs && response.name == "return" && response.arg(0) == "404" && is_script(file)
}

/// Translates `if (-f FILE) { return 503; }`, and a `rewrite` of all paths to the file.
fn closes_by_file(
    location: &Location<'_>,
    directive: &Directive,
    file: &str,
    response: &Directive,
    options: &mut Table,
) -> bool {
    let root = location.scope.all(&["root"]).pop().map_or("", |root| root.arg(0));
    let closes = match &*response.name {
        "return" => *response.args == ["503"],
        "rewrite" => {
            matches_all(response.arg(0))
                && file.strip_prefix("$document_root") == Some(response.arg(1))
        }
        _ => false,
    };
    let file = location.variables.literal(&file.replace("$document_root", root));
    let Some(file) = file.filter(|_| closes) else { return false };
    options.set("maintenance", location.global.path(&file));
    location.scope.outcomes.adapted(directive, "clients get the content of the file");
    true
}

/// Translates `if (!-e $request_filename) { rewrite ^ /index.php last; }`.
fn falls_back(location: &Location<'_>, rewrite: &Directive) -> bool {
    let target = super::rewrite::fallback(location, rewrite);
    let paths = |target| vec!["{path}".to_owned(), "{path}/".to_owned(), target];
    target.map(|target| location.fallback.replace(Some(paths(target)))).is_some()
}

/// Returns true if a block passes requests without a file to an upstream. Other paths have files.
pub(super) fn passes(location: &Location<'_>, content: &[Directive]) -> bool {
    let passes = |block: &[Directive]| block.iter().any(|it| it.name.ends_with("_pass"));
    let is_content = |it: &Directive| !matches!(&*it.name, "return" | "rewrite" | "set");
    let own = location.scope.innermost();
    passes(content)
        && content.iter().all(is_content)
        && location.directive.is_some()
        && !passes(own)
        && !own.iter().any(|it| it.name == "try_files")
}

/// Returns the name of the route for paths of the location without a file.
pub(super) fn name_of_missing(location: &Location<'_>) -> String {
    let path = location.directive.and_then(|it| it.args.last()).map_or("", String::as_str);
    let is_permitted = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let words = path.split(|c| !is_permitted(c)).filter(|word| !word.is_empty());
    words.fold("@missing".to_owned(), |name, word| format!("{name}-{word}"))
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
    let names = match names.strip_prefix('(') {
        Some(names) => names.strip_suffix(')')?,
        None => names,
    };
    let mut names: Vec<&str> = names.split('|').collect();
    let are_methods = names.iter().all(|name| is_method(name));
    // GET includes HEAD.
    names.retain(|name| *name != "HEAD");
    (are_methods && !names.is_empty()).then(|| names.join(","))
}

fn is_method(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_uppercase())
}

fn refuses(response: &Directive) -> bool {
    response.name == "return" && matches!(response.arg(0), "403" | "405" | "444")
}
