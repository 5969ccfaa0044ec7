//! `proxy_pass`, its settings, and groups of upstreams.

use super::fields;
use super::precedence::is_replaced_prefix;
use super::response_cache;
use super::rewrite;
use super::{Location, Pattern, Refusal, Responder};
use crate::document::{Table, Value};
use crate::nginx::tree::Directive;
use crate::nginx::upstream::{self, GroupKind};
use crate::regex;
use crate::values::lists;

pub(crate) fn translate<'a>(
    location: &Location<'a>,
    pass: &'a Directive,
    table: &mut Table,
    options: &mut Table,
) -> Result<Responder, Refusal<'a>> {
    let (url, path) = match rewritten_url(location, pass) {
        Some((url, path)) => (url, Some(path)),
        None => (literal(location, pass)?, None),
    };
    let parts = url.split_once("://");
    let (scheme, rest) = parts.ok_or_else(|| Refusal::new(pass, "its URL has no scheme"))?;
    let prefix = "proxy";
    translate_url(location, Url { pass, prefix, scheme, rest }, table, options)?;
    response_cache::translate(location, prefix, options);
    table.set_some("rewrite", path);
    responses(location, table);
    Ok(Responder::Proxy)
}

/// Translates `grpc_pass`, which forwards the whole path over HTTP/2.
pub(crate) fn translate_grpc<'a>(
    location: &Location<'a>,
    pass: &'a Directive,
    table: &mut Table,
    options: &mut Table,
) -> Result<Responder, Refusal<'a>> {
    let url = literal(location, pass)?;
    let (scheme, rest) = match url.split_once("://") {
        Some(("grpcs", rest)) => ("https", rest),
        Some(("grpc", rest)) => ("h2c", rest),
        Some(_) => return Err(Refusal::new(pass, "its scheme is neither grpc nor grpcs")),
        None => ("h2c", &*url),
    };
    translate_url(location, Url { pass, prefix: "grpc", scheme, rest }, table, options)?;
    table.set("http_version", "2");
    Ok(Responder::Proxy)
}

fn literal<'a>(location: &Location<'a>, pass: &'a Directive) -> Result<String, Refusal<'a>> {
    let url = location.variables.literal(pass.arg(0));
    url.ok_or_else(|| Refusal::new(pass, "its URL has variables"))
}

/// Splits a URL whose path has variables into the URL of the upstream, and the path as the key
/// `rewrite`. nginx passes such a path on as it is, without the query of the request.
fn rewritten_url(location: &Location<'_>, pass: &Directive) -> Option<(String, String)> {
    let text = pass.arg(0);
    let (scheme, rest) = text.split_once("://")?;
    let (host, path) = rest.split_at(rest.find('/').filter(|_| !rest.starts_with("unix:"))?);
    if is_replaced_prefix(location) && path.ends_with('/') && !text.contains('$') {
        let host = location.variables.literal(host)?;
        return Some((format!("{scheme}://{host}"), format!("{path}{{re.1}}")));
    }
    if !path.contains('$') || matches!(location.pattern, Pattern::Named(_)) {
        return None;
    }
    let (path, has_query) = match (path.strip_suffix("$request_uri"), path.split_once("$is_args")) {
        (Some(path), _) => (format!("{path}$uri"), true),
        (_, Some((path, "$args" | "$query_string"))) => (path.to_owned(), true),
        (_, Some(_)) => return None,
        _ => (path.to_owned(), false),
    };
    let host = location.variables.literal(host)?;
    let path = location.variables.template(&path).ok()?;
    let path = path.replace("/{path}", "{path}").replace("/{uri}", "{path}");
    let is_known = !path.contains("{uri}") && path.contains('{');
    let end = if has_query || path.contains('?') { "" } else { "?" };
    let root = if matches!(location.pattern, Pattern::Prefix(_)) { "/" } else { "" };
    is_known.then(|| (format!("{scheme}://{host}{root}"), path + end))
}

/// URL of an upstream, or of a group.
struct Url<'u, 'a> {
    /// The directive with the URL.
    pass: &'a Directive,
    /// Prefix of the names of the directives that apply to it.
    prefix: &'static str,
    /// Scheme of the URL in Weft.
    scheme: &'u str,
    rest: &'u str,
}

fn translate_url<'a>(
    location: &Location<'a>,
    url: Url<'_, 'a>,
    table: &mut Table,
    options: &mut Table,
) -> Result<(), Refusal<'a>> {
    let Url { pass, prefix, scheme, rest } = url;
    let (host, path) = split_host(rest);
    let changed = rewrite::changed_prefix(location);
    let path = match &changed {
        // nginx forwards the changed path, and ignores the path of the URL.
        Some(changed) => upstream_path(location, changed),
        None if location.is_rewritten => Ok(String::new()),
        None => upstream_path(location, path),
    };
    let path = path.map_err(|reason| Refusal::new(pass, reason))?;
    let group = location.global.upstreams.get(host).copied();
    // The first key of the table.
    table.set("proxy", "");
    let urls = match group {
        Some(group) => group_urls(location, group, scheme, &path, table)
            .map_err(|reason| Refusal::new(pass, reason))?,
        None => vec![join(scheme, host, &path)],
    };
    table.set("proxy", Value::one_or_list(urls));
    fields::requests(location, prefix, group.map(|_| host), table, options);
    fields::names_of_requests(location, table);
    let read_timeouts = ["response_timeout", "body_timeout", "tunnel_timeout"];
    upstream::settings(&location.scope, prefix, &read_timeouts, table);
    retries(location, prefix, table);
    if scheme == "https" {
        tls(location, prefix, table);
    }
    upstream::compression(&location.scope, options);
    Ok(())
}

/// Splits `HOST:PORT/PATH` or `unix:SOCKET:/PATH`. The path is empty if there is none.
fn split_host(rest: &str) -> (&str, &str) {
    let at = match rest.strip_prefix("unix:") {
        Some(socket) => socket.find(':').map(|at| "unix:".len() + at),
        None => rest.find('/'),
    };
    let (host, path) = rest.split_at(at.unwrap_or(rest.len()));
    (host, path.strip_prefix(':').unwrap_or(path))
}

/// Returns the path of the URL in Weft, which takes the place of the prefix: a URL without a path
/// passes on the whole path of the request.
fn upstream_path(location: &Location<'_>, path: &str) -> Result<String, &'static str> {
    match (&location.pattern, path) {
        (Pattern::Prefix(prefix), "") => Ok(prefix.clone()),
        (Pattern::Prefix(prefix), path) if prefix.ends_with('/') == path.ends_with('/') => {
            Ok(path.to_owned())
        }
        // `/api` with `http://app/` forwards `/api/x` as `//x`, which upstreams read as `/x`.
        (Pattern::Prefix(_), path) if path.ends_with('/') => Ok(path.to_owned()),
        (Pattern::Prefix(_), _) => Err("the path of its URL would join the rest without a slash"),
        (Pattern::Exact(_), path) if path != "/" => Ok(path.to_owned()),
        (_, "") => Ok(String::new()),
        _ => Err("a URL with a path belongs to a location with a prefix"),
    }
}

fn join(scheme: &str, host: &str, path: &str) -> String {
    match host.strip_prefix("unix:") {
        Some(_) if path.is_empty() || path == "/" => host.to_owned(),
        Some(_) => format!("{host}:{path}"),
        None if path.is_empty() => format!("{scheme}://{host}/"),
        None => format!("{scheme}://{host}{path}"),
    }
}

/// Returns the URLs of the servers in an `upstream` block.
fn group_urls(
    location: &Location<'_>,
    group: &Directive,
    scheme: &str,
    path: &str,
    table: &mut Table,
) -> Result<Vec<String>, &'static str> {
    let outcomes = location.scope.outcomes;
    let mut urls = Vec::new();
    for directive in group.children() {
        match &*directive.name {
            "server" => {
                let url = join(scheme, directive.arg(0), path);
                urls.extend(upstream::member(
                    outcomes,
                    group,
                    directive,
                    url,
                    GroupKind::Http,
                    table,
                ));
                continue;
            }
            "least_conn" => table.set("balance", "least-connections"),
            "keepalive_timeout" => {
                let time = outcomes.time(directive, directive.arg(0));
                table.set_some("keep_alive_timeout", time);
            }
            "keepalive" => {
                let number = outcomes.number(directive, directive.arg(0));
                table.set_some("max_idle_connections", number);
            }
            "keepalive_requests" => {}
            "ip_hash" => table.set("balance", "hash"),
            "hash" => match location.variables.template(directive.arg(0)) {
                Ok(key) => {
                    table.set("balance", "hash");
                    table.set("hash_key", key);
                }
                Err(reason) => outcomes.lost(directive, reason),
            },
            "random" if matches!(&directive.args.join(" ")[..], "two" | "two least_conn") => {
                table.set("balance", "random-two");
            }
            "sticky" if directive.arg(0) == "cookie" => sticky_cookie(location, directive, table),
            "random" | "sticky" => outcomes.lost(directive, "requests are distributed by turns"),
            _ => continue,
        }
        outcomes.carried(directive);
    }
    urls.sort_unstable();
    urls.dedup();
    if urls.is_empty() { Err("its group has no servers") } else { Ok(urls) }
}

/// Translates `sticky cookie NAME`. Weft sets the attributes of the cookie.
fn sticky_cookie(location: &Location<'_>, directive: &Directive, table: &mut Table) {
    let outcomes = location.scope.outcomes;
    outcomes.carried(directive);
    table.set("sticky_cookie", directive.arg(1));
    for parameter in directive.args.iter().skip(2) {
        match parameter.split_once('=').unwrap_or((parameter, "")) {
            ("expires", "max") => table.set("sticky_max_age", "365d"),
            ("expires", text) => {
                if let Some(time) = outcomes.time(directive, text) {
                    table.set("sticky_max_age", time);
                }
            }
            ("path", "/") | ("httponly" | "secure", _) | ("samesite", "lax") => {}
            (name, _) => outcomes.lost(directive, format!("the cookie has its own `{name}`")),
        }
    }
}

/// Translates the rewriting of fields in responses.
fn responses(location: &Location<'_>, table: &mut Table) {
    cookie_flags(location, table);
    if location.scope.all(&["proxy_redirect"]).iter().any(|it| it.arg(0) == "off") {
        table.set("rewrite_location", false);
    }
    for (name, key) in [
        ("proxy_redirect", "rewrite_location"),
        ("proxy_cookie_path", "cookie_path"),
        ("proxy_cookie_domain", "cookie_domain"),
    ] {
        let replacements = replacements(location, name);
        if !replacements.is_empty() {
            table.set(key, replacements);
        }
    }
}

/// Translates `proxy_cookie_flags`, and attributes behind the path of `proxy_cookie_path`.
fn cookie_flags(location: &Location<'_>, table: &mut Table) {
    let mut flags = Table::default();
    for directive in location.scope.all(&["proxy_cookie_path"]) {
        if let Some(text) = attributes(directive) {
            let note = "cookies without a path get the attributes, too";
            location.scope.outcomes.adapted(directive, note);
            flags.set("*", text);
        }
    }
    for directive in location.scope.all(&["proxy_cookie_flags"]) {
        let Some((name, own)) = directive.args.split_first() else { continue };
        let own = known_flags(own.iter().map(String::as_str));
        let name = match name.strip_prefix('~') {
            Some("") => Some("*".to_owned()),
            Some(regex) => regex::of_modifier(location.global.target, "~*", regex)
                .map(|regex| format!("~ {regex}")),
            None => Some(name.clone()).filter(|name| name != "off"),
        };
        match name.zip(own) {
            Some((name, own)) => flags.set(name, own),
            None if directive.arg(0) == "off" => {}
            None => location.lost(directive, "there is no such flag"),
        }
    }
    table.set_filled("cookie_flags", flags);
}

/// Returns the flags of `proxy_cookie_path / "/; Secure; HttpOnly"`.
fn attributes(directive: &Directive) -> Option<String> {
    let (path, attributes) = directive.arg(1).split_once(';')?;
    known_flags(attributes.split(';').map(str::trim).filter(|it| !it.is_empty()))
        .filter(|_| path.trim() == "/" && directive.arg(0) == "/")
}

fn known_flags<'f>(flags: impl Iterator<Item = &'f str>) -> Option<String> {
    const FLAGS: &str = "
        secure httponly samesite=strict samesite=lax samesite=none nosecure nohttponly nosamesite
    ";
    let lower: Vec<String> = flags.map(str::to_ascii_lowercase).collect();
    let are_known = !lower.is_empty() && lower.iter().all(|flag| lists(FLAGS, flag));
    are_known.then(|| lower.join(" "))
}

/// Returns the texts that the directives of a name replace, with their replacements.
fn replacements(location: &Location<'_>, name: &str) -> Table {
    let mut replacements = Table::default();
    for directive in location.scope.all(&[name]) {
        match (directive.arg(0), directive.arg(1)) {
            ("default" | "off", _) => {}
            (_, to) if to.contains(';') && attributes(directive).is_some() => {}
            (_, to) if to.contains(';') => {
                location.lost(directive, "cookies get no other attributes")
            }
            (from, to) if !from.starts_with('~') && !format!("{from}{to}").contains('$') => {
                replacements.set(from, to);
            }
            _ => location.lost(directive, "only fixed texts are"),
        }
    }
    replacements
}

/// Translates the number of retries, and the statuses that are failures.
fn retries(location: &Location<'_>, prefix: &str, table: &mut Table) {
    let scope = &location.scope;
    if let Some(directive) = scope.one(&format!("{prefix}_next_upstream_tries")) {
        match directive.arg(0).parse::<u64>() {
            Ok(tries @ 1..) => table.set("max_retries", tries - 1),
            _ => scope.outcomes.lost(directive, "the number of retries has a limit"),
        }
    }
    if let Some(directive) = scope.one(&format!("{prefix}_next_upstream")) {
        if directive.arg(0) == "off" {
            table.set("max_retries", 0);
        }
        let statuses = directive.args.iter().filter_map(|arg| arg.strip_prefix("http_"));
        let statuses: Vec<&str> = statuses.collect();
        if !statuses.is_empty() {
            table.set("failure_statuses", statuses);
        }
    }
}

/// Translates the settings of TLS to an upstream.
fn tls(location: &Location<'_>, prefix: &str, table: &mut Table) {
    let scope = &location.scope;
    let one = |name: &str| scope.one(&format!("{prefix}_{name}"));
    upstream::authority(scope, location.global, prefix, table);
    for (name, key) in [("ssl_certificate", "tls_cert"), ("ssl_certificate_key", "tls_key")] {
        if let Some(directive) = one(name) {
            table.set(key, location.global.path(directive.arg(0)));
        }
    }
    if let Some(directive) = one("ssl_name") {
        match location.variables.literal(directive.arg(0)) {
            Some(name) => table.set("tls_name", name),
            None => scope.outcomes.lost(directive, "the name has no variables"),
        }
    }
}
