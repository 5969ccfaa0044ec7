//! Fields of responses and of requests to upstreams.

use super::access;
use super::{Location, Responder};
use crate::document::{Table, Value};
use crate::nginx::field_values::FieldValues;
use crate::nginx::tree::{Directive, named};
use crate::values::{duration, lists};

/// Translates `add_header` and its like.
pub(crate) fn responses(
    location: &Location<'_>,
    responder: Responder,
    table: &mut Table,
    options: &mut Table,
) {
    let scope = &location.scope;
    let (mut set, cache) = added_fields(location, responder, table);
    let control = cache_control(location, cache);
    match (control.single(), responder) {
        (Some(""), _) => {}
        (Some(control), Responder::Files) => table.set("cache", control),
        (Some(control), _) => set.set("Cache-Control", control),
        (None, _) => set.set_some("Cache-Control", control.for_statuses("2xx 3xx")),
    }
    for directive in scope.all(&["more_set_headers"]) {
        for field in &directive.args {
            match field.split_once(':') {
                Some((name, text)) if !name.starts_with('-') && !text.contains('$') => {
                    set.set(name.trim(), text.trim());
                }
                _ => scope.outcomes.lost(directive, "only fields with a fixed value are"),
            }
        }
    }
    let removed = removed_fields(location, responder);
    if !set.is_empty() {
        options.set("response_headers", set);
    }
    if !removed.is_empty() {
        options.set("remove_response_headers", removed);
    }
}

/// Adds the fields of responses to a route that has no other options.
pub(crate) fn add_responses(location: &Location<'_>, responder: Responder, table: &mut Table) {
    let mut options = Table::default();
    responses(location, responder, &mut Table::default(), &mut options);
    table.set_some("response_headers", options.get("response_headers").cloned());
}

/// Translates `add_header`. Returns the fields, and the values of `Cache-Control`.
fn added_fields(
    location: &Location<'_>,
    responder: Responder,
    table: &mut Table,
) -> (Table, Vec<FieldValues>) {
    let scope = &location.scope;
    let mut set = Table::default();
    let mut cache = Vec::new();
    for directive in scope.all(&["add_header"]) {
        let name = directive.arg(0);
        if directive.arg(1).is_empty() {
            continue;
        }
        let values = match field_values(location, directive.arg(1)) {
            Ok(values) => values,
            Err(reason) => {
                scope.outcomes.lost(directive, reason);
                continue;
            }
        };
        let Some(value) = values.for_statuses("*") else { continue };
        match name.to_ascii_lowercase().as_str() {
            "cache-control" if values.has_placeholders() && scope.one("expires").is_none() => {
                set.set(name, value);
            }
            "cache-control" if values.has_placeholders() => {
                scope.outcomes.lost(directive, "a lifetime in caches has no variables");
            }
            "cache-control" => cache.push(values),
            "content-type" if responder == Responder::Text => {
                table.set("content_type", value);
            }
            "content-length" | "date" | "connection" | "transfer-encoding" | "keep-alive" => {
                scope.outcomes.lost(directive, "the server sets this field itself");
            }
            _ if set.keys().any(|known| known.eq_ignore_ascii_case(name)) => {
                match set.get(&format!("+{name}")) {
                    None => set.set(format!("+{name}"), value),
                    Some(_) => scope.outcomes.lost(directive, "a field has at most two values"),
                }
            }
            _ => set.set(name, value),
        }
    }
    (set, cache)
}

/// Returns the names of fields that responses must not have.
fn removed_fields<'a>(location: &Location<'a>, responder: Responder) -> Vec<&'a str> {
    let scope = &location.scope;
    let mut removed: Vec<&str> = scope
        .all(&["more_clear_headers"])
        .into_iter()
        .flat_map(|directive| directive.args.iter().map(|name| &**name))
        .collect();
    if responder == Responder::Proxy {
        for name in
            ["proxy_hide_header", "fastcgi_hide_header", "scgi_hide_header", "uwsgi_hide_header"]
        {
            removed.extend(scope.all(&[name]).iter().map(|hidden| hidden.arg(0)));
        }
    }
    removed
}

fn field_values(location: &Location<'_>, text: &str) -> Result<FieldValues, String> {
    FieldValues::of(text, &location.variables, &location.global.maps)
}

/// Returns the value of a field as a template, or reports a variable without an equivalent.
///
/// `$http_host` has the port that the client has sent, and `$host` has none.
fn value(location: &Location<'_>, directive: &Directive, text: &str) -> Option<String> {
    let parts = text.split("$http_host").map(|part| location.variables.template(part));
    let value = parts.collect::<Result<Vec<_>, _>>().map(|parts| parts.join("{header.Host}"));
    value.map_err(|reason| location.lost(directive, reason)).ok()
}

/// Joins the values of `Cache-Control` and the lifetime that `expires` adds to them.
fn cache_control(location: &Location<'_>, mut values: Vec<FieldValues>) -> FieldValues {
    let scope = &location.scope;
    if let Some(directive) = scope.one("expires") {
        let lost = "only a time, `max`, `epoch` or `off` is";
        let is_time = directive.args.len() == 1;
        let times = field_values(location, directive.arg(0)).map(|times| times.try_map(lifetime));
        match times {
            Ok(Some(control)) if is_time => values.insert(0, control),
            Ok(_) => scope.outcomes.lost(directive, lost),
            Err(reason) => scope.outcomes.lost(directive, reason),
        }
    }
    FieldValues::join(&values, joined)
}

/// Returns the `Cache-Control` for the argument of `expires`.
fn lifetime(time: &str) -> Option<String> {
    match time {
        "" | "off" => Some(String::new()),
        "max" => Some("max-age=315360000".to_owned()),
        "epoch" => Some("no-cache".to_owned()),
        time if time.starts_with('-') => Some("no-cache".to_owned()),
        time => {
            let time = duration(time.trim_start_matches('+'))?;
            Some(format!("max-age={}", time.as_secs()))
        }
    }
}

/// Joins values of `Cache-Control`. One `max-age` is enough, and the first one has precedence in
/// most caches.
fn joined(values: &[&str]) -> String {
    let mut parts = Vec::<&str>::new();
    for part in values.iter().flat_map(|value| value.split(',')).map(str::trim) {
        let is_age = |part: &str| part.starts_with("max-age");
        let is_known = parts.iter().any(|known| *known == part || is_age(known) && is_age(part));
        if !is_known && !part.is_empty() {
            parts.push(part);
        }
    }
    parts.join(", ")
}

/// Translates `proxy_set_header` (or another `prefix`). Without one for `Host` the upstream gets
/// its own name. Fields of `options` that an authentication server sets are not set here.
pub(crate) fn requests(
    location: &Location<'_>,
    prefix: &str,
    upstream_name: Option<&str>,
    table: &mut Table,
    options: &mut Table,
) {
    let scope = &location.scope;
    let (mut set, mut removed) = (Table::default(), Vec::new());
    let mut has_host = false;
    let auth_fields = match options.get("forward_auth_headers") {
        Some(Value::List(names)) => names.clone(),
        _ => Vec::new(),
    };
    for directive in scope.all(&[&format!("{prefix}_set_header")]) {
        let (name, text) = (directive.arg(0), directive.arg(1));
        match (name.to_ascii_lowercase().as_str(), text) {
            ("host", "$host") if has_other_ports(location) => {
                has_host = true;
                set.set(name, "{host}");
            }
            ("host", "$host" | "$http_host") => has_host = true,
            ("host", "$proxy_host") => {}
            ("host", text) => {
                has_host = true;
                match location.variables.literal(text) {
                    Some(host) => table.set("host", host),
                    None => set.set_some(name, value(location, directive, text)),
                }
            }
            (
                "x-forwarded-for" | "x-forwarded-proto" | "x-forwarded-host" | "forwarded"
                | "upgrade" | "connection" | "te" | "content-length" | "transfer-encoding"
                | "expect" | "keep-alive" | "proxy" | "via",
                text,
            ) => own_field(location, directive, text),
            ("x-sendfile-type" | "x-accel-mapping" | "x-accel-redirect", _) => {
                let reason = "`accel` names the folders; then the route may set this field";
                scope.outcomes.lost(directive, reason);
            }
            (_, "") => removed.push(name),
            _ if auth_fields.contains(&Value::from(name)) => {}
            (_, text) => {
                let of_authentication = access::field_of_authentication(location, text);
                if let Some(value) = of_authentication.or_else(|| value(location, directive, text))
                {
                    set.set(name, value);
                }
            }
        }
    }
    if !has_host {
        table.set("host", upstream_name.unwrap_or("upstream"));
    }
    if !set.is_empty() {
        options.set("request_headers", set);
    }
    if !removed.is_empty() {
        options.set("remove_request_headers", removed);
    }
}

/// Returns true if clients send a port in `Host`, because the server does not listen on the usual
/// ones only.
fn has_other_ports(location: &Location<'_>) -> bool {
    let port = |listen: &Directive| {
        let address = listen.arg(0);
        let port = address.rsplit_once(':').map_or(address, |(_, port)| port);
        port.parse::<u16>().ok().filter(|port| ![80, 443].contains(port))
    };
    named(location.server.children(), "listen").any(|listen| port(listen).is_some())
}

/// Translates the rules about names of request fields that upstreams get.
pub(crate) fn names_of_requests(location: &Location<'_>, table: &mut Table) {
    let scope = &location.scope;
    let has_any = scope.one("ignore_invalid_headers").is_some_and(|it| it.arg(0) == "off");
    let has_underscores = scope.is_on("underscores_in_headers");
    match (has_any, has_underscores) {
        (true, _) => table.set("field_names", "any"),
        (false, true) => table.set("field_names", "underscores"),
        (false, false) => {}
    }
}

/// Reports values other than usual ones of fields that the proxy generates.
fn own_field(location: &Location<'_>, directive: &Directive, text: &str) {
    const USUAL: &str = "
        $proxy_add_x_forwarded_for $remote_addr $scheme $host $http_host $host:$server_port
        $http_upgrade $connection_upgrade upgrade Upgrade close keep-alive $proxy_x_forwarded_proto
    ";
    let map = text.strip_prefix('$').and_then(|name| location.global.maps.get(name));
    let is_upgrade = map.is_some_and(|map| map.arg(0) == "$http_upgrade");
    if !text.is_empty() && !lists(USUAL, text) && !is_upgrade {
        location.lost(directive, "the proxy generates this field itself");
    }
}
