//! `fastcgi_pass`: scripts beside files, and applications; `scgi_pass` and `uwsgi_pass`.

use super::folder::{folder, is_script};
use super::precedence::is_of_prefix;
use super::{Location, Pattern, Refusal, Responder};
use super::{access, conditions, limits, response_cache, script_patterns};
use crate::document::{Table, Value};
use crate::nginx::tree::Directive;
use crate::nginx::upstream;
use crate::regex;
use crate::values::lists;

pub(crate) fn translate<'a>(
    location: &Location<'a>,
    pass: &'a Directive,
    table: &mut Table,
    options: &mut Table,
) -> Result<Responder, Refusal<'a>> {
    let refusal = |reason: String| Refusal::new(pass, reason);
    let addresses = addresses(location, pass).map_err(refusal)?;
    match script(location).map_err(refusal)? {
        Script::OfPath { app_root } => {
            // Files that are no scripts are not served, as in nginx.
            table.set("fastcgi", addresses);
            table.set("root", folder(location)?);
            set_app_root(app_root, table);
            let index = location.scope.one("fastcgi_index");
            let index = index.filter(|index| index.arg(0) != "index.php");
            table.set_some("index", index.map(|index| index.arg(0)));
            if let (Pattern::Regex(regex), Some(own)) = (&location.pattern, location.directive) {
                // The key has the paths; scripts of other locations are excluded.
                let patterns = script_patterns::patterns(location, own, regex, "/");
                let is_needed = script_patterns::is_of_all(regex)
                    || script_patterns::whole_paths(own, regex).is_some();
                table.set_some("scripts", patterns.filter(|_| is_needed));
            }
        }
        Script::Fixed(path) => {
            table.set("fastcgi", addresses);
            table.set("root", path);
        }
        Script::None => table.set("fastcgi", addresses),
    }
    report_try_files(location);
    settings(location, "fastcgi", table, options);
    Ok(Responder::Proxy)
}

/// Translates `scgi_pass` or `uwsgi_pass`: an application that handles all paths itself.
pub(crate) fn translate_application<'a>(
    location: &Location<'a>,
    protocol: &'static str,
    pass: &'a Directive,
    table: &mut Table,
    options: &mut Table,
) -> Result<Responder, Refusal<'a>> {
    let addresses = addresses(location, pass);
    table.set(protocol, addresses.map_err(|reason| Refusal::new(pass, reason))?);
    settings(location, protocol, table, options);
    Ok(Responder::Proxy)
}

/// Adds the keys by which a folder of files runs its scripts, if requests for its files lead to
/// them: by an index, or by the last element of `try_files`. Returns true if they are there.
pub(crate) fn beside_files(
    location: &Location<'_>,
    table: &mut Table,
    options: &mut Table,
) -> bool {
    let scope = &location.scope;
    let index = scope.one("index");
    let has_index = index.is_some_and(|index| index.args.iter().any(|name| is_script(name)));
    let front = front_controller(location);
    if !has_index && front.is_none() {
        return false;
    }
    // The scripts of an expression in place of a prefix have other precedence.
    let has_prefix = !matches!(location.pattern, Pattern::Regex(_));
    let Some(Scripts { location: scripts, directive, regex, pass, is_below }) =
        location_of_scripts(location).filter(|_| has_prefix)
    else {
        return false;
    };
    let mut own = Table::default();
    // The folder of a prefix is below its root.
    let (scope, variables) = (scripts.scope.clone(), scripts.variables.clone());
    let of_prefix = scripts.derive(location.pattern.clone(), scope, variables);
    let own_folder = folder(location).ok();
    let is_same_folder = matches!(script(&scripts), Ok(Script::OfPath { .. }))
        && (folder(&scripts).ok() == own_folder
            || is_below && !location.is_preferred && folder(&of_prefix).ok() == own_folder);
    if !is_same_folder || rules(&scripts) != rules(location) || has_other_last(location) {
        return false;
    }
    // The location of the scripts gives them another path, or is refused.
    if !scripts.scope.own("rewrite").is_empty() || scripts.is_refused.get() {
        return false;
    }
    let mut of_scripts = Table::default();
    if translate(&scripts, pass, &mut own, &mut of_scripts).is_err() {
        return false;
    }
    let hidden = scripts.scope.all(&["fastcgi_hide_header"]);
    if !hidden.is_empty() {
        let names: Vec<&str> = hidden.iter().map(|directive| directive.arg(0)).collect();
        of_scripts.set("remove_response_headers", names);
    }
    options.add(&of_scripts);
    let php = own.get("fastcgi").cloned();
    if let (Some(index), Some(_)) = (scripts.scope.one("fastcgi_index"), own.get("index")) {
        location.lost(index, "the index of a folder is `index.php`");
    }
    table.set_some("php", php);
    ["fastcgi", "root", "index"].iter().for_each(|key| own.remove(key));
    let prefix = match &location.pattern {
        Pattern::Prefix(prefix) => &**prefix,
        _ => "/",
    };
    own.remove("scripts");
    let patterns = script_patterns::patterns(location, directive, &regex, prefix);
    table.set_some("scripts", patterns);
    table.add(&own);
    if let Some(front) = front {
        table.set("fallback", front);
    }
    true
}

/// Returns the script that gets all requests without a file.
fn front_controller(location: &Location<'_>) -> Option<String> {
    let last = last_path(location)?;
    let (path, query) = last.split_once(['?', '$']).unwrap_or((&last, ""));
    let keeps_query = matches!(
        query,
        "" | "$args" | "$query_string" | "is_args$args" | "is_args$query_string" | "{query}"
    );
    let is_at_top = matches!(&location.pattern, Pattern::Prefix(prefix) if prefix == "/");
    let path = path.strip_prefix('/').filter(|path| is_script(path));
    path.filter(|_| keeps_query && is_at_top).map(str::to_owned)
}

/// Returns the path for requests without a file: of `try_files`, or of a condition.
fn last_path(location: &Location<'_>) -> Option<String> {
    let directive = location.scope.own("try_files").pop();
    let last = directive.and_then(|directive| directive.args.last().cloned());
    last.or_else(|| location.fallback.borrow().as_ref()?.last().cloned())
}

/// Returns true if `try_files` ends with something other than a front controller or 404.
fn has_other_last(location: &Location<'_>) -> bool {
    last_path(location).is_some_and(|last| last != "=404") && front_controller(location).is_none()
}

/// The location whose scripts run beside files.
struct Scripts<'a> {
    location: Location<'a>,
    directive: &'a Directive,
    /// The regular expression of its paths.
    regex: String,
    pass: &'a Directive,
    /// The expression matches the index of the prefix.
    is_below: bool,
}

/// Returns the location of `/index.php`, below this location or beside it.
fn location_of_scripts<'a>(location: &Location<'a>) -> Option<Scripts<'a>> {
    let prefix = location.directive.filter(|_| is_of_prefix(location));
    let prefix = prefix.and_then(|it| it.args.last()).map_or("", |it| it.trim_end_matches('/'));
    let front = format!("{prefix}/index.php");
    let (inner, target) = (location.scope.innermost(), location.global.target);
    let blocks = [Some(inner), location.directive.map(|_| location.server.children())];
    let found = blocks.into_iter().flatten().flatten().find_map(|directive| {
        let pattern = match (&*directive.name, directive.arg(0)) {
            ("location", "=") => format!("^{}$", regex::escape(directive.arg(1))),
            ("location", modifier) => regex::of_modifier(target, modifier, directive.arg(1))?,
            _ => return None,
        };
        let pass = directive.child("fastcgi_pass")?;
        let is_match = |path: &str| target.matches(&pattern, path);
        let is_below = is_match(&front);
        (is_below || is_match("/index.php")).then_some((directive, pattern, pass, is_below))
    });
    let (directive, pattern, pass, is_below) = found?;
    let is_nested = inner.iter().any(|child| std::ptr::eq(child, directive));
    let mut scripts = location.with_regex(&pattern);
    scripts.scope = match is_nested || location.directive.is_none() {
        true => location.scope.inside(directive.children()),
        false => location.scope.outside().inside(directive.children()),
    };
    scripts.is_rewritten = false;
    Some(Scripts { location: scripts, directive, regex: pattern, pass, is_below })
}

/// Returns the rules about access and rates of a location.
fn rules(location: &Location<'_>) -> Table {
    let mut options = Table::default();
    conditions::translate(location, location.scope.innermost(), &mut options);
    access::translate(location, &mut options);
    limits::translate(location, &mut options);
    options.remove("max_body_bytes");
    options
}

/// Returns the addresses of the application.
fn addresses(location: &Location<'_>, pass: &Directive) -> Result<Value, String> {
    let address = location.variables.literal(pass.arg(0)).ok_or("its address has variables")?;
    let Some(group) = location.global.upstreams.get(&*address) else {
        return Ok(address.into());
    };
    let outcomes = location.scope.outcomes;
    let mut addresses = Vec::new();
    for directive in group.children() {
        match &*directive.name {
            "server" => {
                outcomes.carried(directive);
                addresses.push(directive.arg(0).to_owned());
                let others = directive.args.iter().skip(1);
                let is_default = |it: &&String| {
                    matches!(&***it, "fail_timeout=0" | "max_fails=0" | "resolve" | "weight=1")
                };
                if !others.into_iter().all(|other| is_default(&other)) {
                    outcomes.lost(directive, "all servers of a group have the same settings");
                }
            }
            "zone" | "keepalive" | "keepalive_timeout" | "keepalive_requests" => {
                outcomes.carried(directive);
            }
            _ => outcomes.lost(directive, "requests are distributed by turns"),
        }
    }
    match addresses.is_empty() {
        true => Err("its group has no servers".to_owned()),
        false => Ok(Value::one_or_list(addresses)),
    }
}

/// The script that a location runs.
enum Script {
    /// The file of the path, which the application has below another folder if that is set.
    OfPath { app_root: Option<String> },
    /// One script for all paths.
    Fixed(String),
    /// The application handles all paths itself.
    None,
}

fn script(location: &Location<'_>) -> Result<Script, String> {
    let parameters = location.scope.all(&["fastcgi_param"]);
    let mut files = parameters.iter().filter(|it| it.arg(0) == "SCRIPT_FILENAME");
    let Some(file) = files.next_back() else { return Ok(Script::None) };
    let text = file.arg(1);
    if text == "$request_filename" {
        return Ok(Script::OfPath { app_root: None });
    }
    let of_group = script_group(location).and_then(|group| text.strip_suffix(&*group));
    let root = text.strip_suffix("$fastcgi_script_name").or_else(|| text.strip_suffix("$uri"));
    let root = root.or(of_group);
    match root.map(|root| root.trim_end_matches('/')) {
        Some("$document_root" | "$realpath_root") => Ok(Script::OfPath { app_root: None }),
        Some(root) if !root.contains('$') => Ok(Script::OfPath { app_root: Some(root.to_owned()) }),
        _ => {
            let root = location.scope.all(&["root"]).pop().map_or("", |root| root.arg(0));
            let path = text.replace("$document_root", root).replace("$realpath_root", root);
            let path = location.variables.literal(&path).filter(|path| path.starts_with('/'));
            path.map(Script::Fixed).ok_or_else(|| format!("{text} is no path of a script"))
        }
    }
}

/// Returns the group, with its `$`, that has the path of the script, in a location such as
/// `^(?<script>.+\.php)(?<path>/.*)?$`.
fn script_group(location: &Location<'_>) -> Option<String> {
    let Pattern::Regex(regex) = &location.pattern else { return None };
    let (name, rest) = regex.strip_prefix("^(?<")?.split_once('>')?;
    let ends = [".+\\.php)", ".+?\\.php)", "/.+\\.php)", ".*\\.php)"];
    let rest = ends.iter().find_map(|end| rest.strip_prefix(end))?;
    let inner = rest.strip_prefix("(?<").and_then(|rest| rest.split_once('>'));
    let is_path_info = match inner {
        Some((_, rest)) => matches!(rest, "/.*)?$" | "/.*)$" | "/.+)?$" | "/.+)$" | "/.*)?"),
        None => matches!(rest, "" | "$" | "(/.*)?$" | "(?:/.*)?$" | "(/|$)" | "(?:/|$)"),
    };
    is_path_info.then(|| format!("${name}"))
}

fn set_app_root(app_root: Option<String>, table: &mut Table) {
    let known = ["root", "files"].into_iter().find_map(|key| table.get(key));
    let own = app_root.filter(|root| known != Some(&Value::from(&**root)));
    table.set_some("script_root", own);
}

/// Reports a `try_files` that does more than check that the script exists, as Weft does.
fn report_try_files(location: &Location<'_>) {
    let is_usual = |arg: &String| {
        matches!(
            &**arg,
            "$uri" | "$fastcgi_script_name" | "$document_root$fastcgi_script_name" | "=404"
        )
    };
    for directive in location.scope.own("try_files") {
        if !directive.args.iter().all(is_usual) {
            location.lost(directive, "a path without a script gets 404");
        }
    }
}

/// Variables that applications get by default.
const STANDARD: &str = "
    AUTH_TYPE CONTENT_LENGTH CONTENT_TYPE DOCUMENT_ROOT DOCUMENT_URI GATEWAY_INTERFACE HTTPS
    HTTP_HOST HTTP_PROXY ORIG_PATH_INFO PATH_INFO PATH_TRANSLATED QUERY_STRING REDIRECT_STATUS
    REMOTE_ADDR REMOTE_PORT REMOTE_USER REQUEST_METHOD REQUEST_SCHEME REQUEST_URI SCGI
    SCRIPT_FILENAME SCRIPT_NAME SERVER_ADDR SERVER_NAME SERVER_PORT SERVER_PROTOCOL
    SERVER_SOFTWARE
";

/// Translates the directives whose names begin with `prefix`.
fn settings(location: &Location<'_>, prefix: &str, table: &mut Table, options: &mut Table) {
    let scope = &location.scope;
    response_cache::translate(location, prefix, options);
    let mut environment = Vec::new();
    for parameter in scope.all(&[&format!("{prefix}_param")]) {
        let (name, value) = (parameter.arg(0), parameter.arg(1));
        if name.contains("SENDFILE") || name.contains("X_ACCEL") {
            scope.outcomes.lost(parameter, "`accel` names the folders for X-Accel-Redirect");
            continue;
        }
        if !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            scope.outcomes.lost(parameter, "the name of the variable is invalid");
            continue;
        }
        let is_standard = lists(STANDARD, name);
        let is_fixed_https = name == "HTTPS" && !value.contains('$') && !value.is_empty();
        match location.variables.literal(value) {
            _ if is_standard && !is_fixed_https => {}
            Some(value) => environment.push(format!("{name}={value}")),
            None if name.starts_with("HTTP_") => {}
            None => {
                scope.outcomes.lost(parameter, "a variable of an application has a fixed value")
            }
        }
    }
    if !environment.is_empty() {
        table.set("environment", environment);
    }
    upstream::settings(scope, prefix, &["response_timeout", "body_timeout"], table);
    if scope.is_on(&format!("{prefix}_keep_conn")) {
        table.set("max_idle_connections", 8);
    }
    let intercepts = scope.is_on(&format!("{prefix}_intercept_errors"));
    if intercepts && !scope.all(&["error_page"]).is_empty() {
        options.set("intercept_errors", true);
    }
    upstream::compression(scope, options);
}
