//! `proxy_pass`, its settings, and groups of upstreams.

use super::fields;
use super::location::{Location, Pattern, Refusal};
use super::rewrite;
use super::tree::Directive;
use super::values::{size, time};
use crate::import::document::{Table, Value};

pub(super) fn translate<'a>(
    location: &Location<'a>,
    pass: &'a Directive,
    table: &mut Table,
    options: &mut Table,
) -> Result<(), Refusal<'a>> {
    let url = literal(location, pass)?;
    let parts = url.split_once("://");
    let (scheme, rest) = parts.ok_or_else(|| refusal(pass, "its URL has no scheme"))?;
    let prefix = "proxy";
    translate_url(location, Url { pass, prefix, scheme, rest }, table, options)?;
    responses(location, table);
    Ok(())
}

/// Translates `grpc_pass`, which forwards the whole path over HTTP/2.
pub(super) fn translate_grpc<'a>(
    location: &Location<'a>,
    pass: &'a Directive,
    table: &mut Table,
    options: &mut Table,
) -> Result<(), Refusal<'a>> {
    let url = literal(location, pass)?;
    let (scheme, rest) = match url.split_once("://") {
        Some(("grpcs", rest)) => ("https", rest),
        Some(("grpc", rest)) => ("h2c", rest),
        Some(_) => return Err(refusal(pass, "its scheme is neither grpc nor grpcs")),
        None => ("h2c", &*url),
    };
    translate_url(location, Url { pass, prefix: "grpc", scheme, rest }, table, options)?;
    table.set("http_version", Value::text("2"));
    Ok(())
}

fn refusal<'a>(directive: &'a Directive, reason: &str) -> Refusal<'a> {
    Refusal { directive, reason: reason.to_owned() }
}

fn literal<'a>(location: &Location<'a>, pass: &'a Directive) -> Result<String, Refusal<'a>> {
    let url = location.variables.literal(pass.arg(0));
    url.ok_or_else(|| refusal(pass, "its URL has variables"))
}

/// URL of an upstream, or of a group.
struct Url<'u, 'a> {
    /// The directive with the URL.
    pass: &'a Directive,
    /// Begin of the names of the directives that apply to it.
    prefix: &'static str,
    /// As in Weft.
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
        // nginx forwards the changed path, and ignores that of the URL.
        Some(changed) => upstream_path(location, changed),
        None if location.is_rewritten => Ok(String::new()),
        None => upstream_path(location, path),
    };
    let path = path.map_err(|reason| refusal(pass, reason))?;
    let group = location.global.upstreams.get(host).copied();
    // The first key of the table.
    table.set("proxy", Value::text(""));
    let urls = match group {
        Some(group) => group_urls(location, group, scheme, &path, table)
            .map_err(|reason| refusal(pass, reason))?,
        None => vec![join(scheme, host, &path)],
    };
    match <[String; 1]>::try_from(urls) {
        Ok([url]) => table.set("proxy", Value::Text(url)),
        Err(urls) => table.set("proxy", Value::texts(urls)),
    }
    fields::requests(location, prefix, group.map(|_| host), table, options);
    settings(location, prefix, scheme, table);
    if ["gzip", "brotli", "zstd"].iter().any(|name| location.scope.is_on(name)) {
        options.set("compress", Value::Switch(true));
    }
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
            "server" => urls.extend(server_url(location, group, directive, scheme, path, table)),
            "least_conn" => {
                outcomes.carried(directive);
                table.set("balance", Value::text("least-connections"));
            }
            "keepalive_timeout" => match time(directive.arg(0)) {
                Some(time) => {
                    outcomes.carried(directive);
                    table.set("keep_alive_timeout", Value::Text(time));
                }
                None => outcomes.lost(directive, "this is no time"),
            },
            "keepalive" => match directive.arg(0).parse() {
                Ok(number) => {
                    outcomes.carried(directive);
                    table.set("max_idle_connections", Value::Number(number));
                }
                Err(_) => outcomes.lost(directive, "this is no number"),
            },
            "keepalive_requests" => outcomes.carried(directive),
            "ip_hash" => {
                outcomes.carried(directive);
                table.set("balance", Value::text("hash"));
            }
            "hash" => match location.variables.template(directive.arg(0)) {
                Ok(key) => {
                    outcomes.carried(directive);
                    table.set("balance", Value::text("hash"));
                    table.set("hash_key", Value::Text(key));
                }
                Err(reason) => outcomes.lost(directive, reason),
            },
            "random"
                if matches!((directive.arg(0), directive.arg(1)), ("two", "" | "least_conn")) =>
            {
                outcomes.carried(directive);
                table.set("balance", Value::text("random-two"));
            }
            "sticky" if directive.arg(0) == "cookie" => sticky_cookie(location, directive, table),
            "random" | "sticky" => {
                outcomes.lost(directive, "requests are distributed by turns");
            }
            _ => {}
        }
    }
    urls.sort_unstable();
    urls.dedup();
    if urls.is_empty() { Err("its group has no servers") } else { Ok(urls) }
}

/// Translates `sticky cookie NAME`. The attributes of the cookie are those of Weft.
fn sticky_cookie(location: &Location<'_>, directive: &Directive, table: &mut Table) {
    let outcomes = location.scope.outcomes;
    outcomes.carried(directive);
    table.set("sticky_cookie", Value::text(directive.arg(1)));
    for parameter in directive.args.iter().skip(2) {
        match parameter.split_once('=').unwrap_or((parameter, "")) {
            ("expires", "max") => table.set("sticky_max_age", Value::text("365d")),
            ("expires", text) => match time(text) {
                Some(time) => table.set("sticky_max_age", Value::Text(time)),
                None => outcomes.lost(directive, "this is no time"),
            },
            ("path", "/") | ("httponly" | "secure", _) | ("samesite", "lax") => {}
            (name, _) => outcomes.lost(directive, format!("the cookie has its own `{name}`")),
        }
    }
}

fn server_url(
    location: &Location<'_>,
    group: &Directive,
    server: &Directive,
    scheme: &str,
    path: &str,
    table: &mut Table,
) -> Option<String> {
    let outcomes = location.scope.outcomes;
    outcomes.carried(server);
    let others = group.children().iter().filter(|other| other.name == "server");
    let is_only = others.count() == 1;
    let mut options = vec![join(scheme, server.arg(0), path)];
    for parameter in server.args.iter().skip(1) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let number = value.parse::<u64>().ok();
        match (name, number) {
            ("down", _) => return None,
            ("max_fails", Some(number @ 1..)) => {
                table.set("max_failures", Value::Number(number));
            }
            // An upstream that is the only one always gets requests.
            ("max_fails" | "fail_timeout", Some(0)) if is_only => {}
            ("max_fails", Some(0)) => {
                outcomes.lost(server, "servers that fail get no requests for a time");
            }
            ("fail_timeout", _) => match time(value) {
                Some(time) => {
                    table.set("failure_window", Value::text(time.clone()));
                    table.set("down_time", Value::Text(time));
                }
                None => outcomes.lost(server, "servers that fail get no requests for a time"),
            },
            ("slow_start", _) => match time(value) {
                Some(time) => table.set("slow_start", Value::Text(time)),
                None => outcomes.lost(server, "this is no time"),
            },
            ("weight", Some(1)) | ("max_conns", Some(0)) | ("resolve", _) => {}
            ("weight", Some(number @ 1..=65_535)) => options.push(format!("weight={number}")),
            ("backup", _) => options.push("backup".to_owned()),
            ("max_conns", Some(number @ 1..=65_535)) => {
                outcomes.lost(server, "`max_connections` is a limit for each worker");
                options.push(format!("max_connections={number}"));
            }
            _ => outcomes.lost(server, format!("there is no `{name}`")),
        }
    }
    Some(options.join(" "))
}

/// Translates the rewriting of fields in responses.
fn responses(location: &Location<'_>, table: &mut Table) {
    let scope = &location.scope;
    let mut redirects = Table::default();
    for directive in scope.all(&["proxy_redirect"]) {
        match (directive.arg(0), directive.arg(1)) {
            ("default", _) => {}
            ("off", _) => table.set("rewrite_location", Value::Switch(false)),
            (from, to) if !from.starts_with('~') && !format!("{from}{to}").contains('$') => {
                redirects.set(from, Value::text(to));
            }
            _ => scope.outcomes.lost(directive, "only fixed texts are"),
        }
    }
    if !redirects.is_empty() {
        table.set("rewrite_location", Value::Table(redirects));
    }
    for (name, key) in
        [("proxy_cookie_path", "cookie_path"), ("proxy_cookie_domain", "cookie_domain")]
    {
        let mut changes = Table::default();
        for directive in scope.all(&[name]) {
            match (directive.arg(0), directive.arg(1)) {
                ("off", _) => {}
                (from, to) if !from.starts_with('~') && !format!("{from}{to}").contains('$') => {
                    changes.set(from, Value::text(to));
                }
                _ => scope.outcomes.lost(directive, "only fixed texts are"),
            }
        }
        if !changes.is_empty() {
            table.set(key, Value::Table(changes));
        }
    }
}

fn settings(location: &Location<'_>, prefix: &str, scheme: &str, table: &mut Table) {
    let scope = &location.scope;
    let one = |name: &str| scope.one(&format!("{prefix}_{name}"));
    for (name, key) in [("buffering", "buffer_responses"), ("request_buffering", "buffer_requests")]
    {
        if one(name).is_some_and(|switch| switch.arg(0) == "off") {
            table.set(key, Value::Switch(false));
        }
    }
    let times: [(&str, &[&str]); 2] = [
        ("connect_timeout", &["connect_timeout"]),
        ("read_timeout", &["response_timeout", "body_timeout", "tunnel_timeout"]),
    ];
    for (name, keys) in times {
        let Some(directive) = one(name) else { continue };
        match time(directive.arg(0)) {
            Some(time) => keys.iter().for_each(|key| table.set(*key, Value::text(time.clone()))),
            None => scope.outcomes.lost(directive, "this is no time"),
        }
    }
    if let Some(directive) = one("max_temp_file_size") {
        match size(directive.arg(0)) {
            Some(size) => table.set("max_temp_file_bytes", Value::Text(size)),
            None => scope.outcomes.lost(directive, "this is no size"),
        }
    }
    if let Some(directive) = one("next_upstream_tries") {
        match directive.arg(0).parse::<u64>() {
            Ok(tries @ 1..) => table.set("max_retries", Value::Number(tries - 1)),
            _ => scope.outcomes.lost(directive, "the number of retries has a limit"),
        }
    }
    if let Some(directive) = one("next_upstream") {
        if directive.arg(0) == "off" {
            table.set("max_retries", Value::Number(0));
        }
        let statuses = directive.args.iter().filter_map(|arg| arg.strip_prefix("http_"));
        let statuses: Vec<&str> = statuses.collect();
        if !statuses.is_empty() {
            table.set("failure_statuses", Value::texts(statuses));
        }
    }
    if scheme == "https" {
        if let Some(directive) = one("ssl_trusted_certificate") {
            table.set("ca", Value::Text(location.global.path(directive.arg(0))));
        }
        for (name, key) in [("ssl_certificate", "tls_cert"), ("ssl_certificate_key", "tls_key")] {
            if let Some(directive) = one(name) {
                table.set(key, Value::Text(location.global.path(directive.arg(0))));
            }
        }
        if let Some(directive) = one("ssl_name") {
            match location.variables.literal(directive.arg(0)) {
                Some(name) => table.set("tls_name", Value::Text(name)),
                None => scope.outcomes.lost(directive, "the name has no variables"),
            }
        }
        if one("ssl_verify").is_none_or(|switch| switch.arg(0) != "on") {
            let pass = scope.own(&format!("{prefix}_pass"));
            let note = format!(
                "the certificate of the upstream is verified, which nginx does with \
                 {prefix}_ssl_verify only; `ca` names the authority of a private one"
            );
            pass.iter().for_each(|pass| scope.outcomes.lost(pass, note.clone()));
        }
    }
}
