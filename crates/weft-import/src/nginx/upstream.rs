//! Settings that upstreams of all protocols have in common.

use super::global::Global;
use super::location::Location;
use super::outcomes::Outcomes;
use super::scope::Scope;
use super::tree::{Directive, named};
use crate::document::{Table, Value};

/// Translates buffering, timeouts and sizes: the directives whose names begin with `prefix`.
/// `read_timeouts` are the keys that `read_timeout` stands for.
pub(super) fn settings(
    location: &Location<'_>,
    prefix: &str,
    read_timeouts: &[&str],
    table: &mut Table,
) {
    let scope = &location.scope;
    let one = |name: &str| scope.one(&format!("{prefix}_{name}"));
    for (name, key) in [("buffering", "buffer_responses"), ("request_buffering", "buffer_requests")]
    {
        if one(name).is_some_and(|switch| switch.arg(0) == "off") {
            table.set(key, Value::Bool(false));
        }
    }
    for (name, keys) in
        [("connect_timeout", &["connect_timeout"][..]), ("read_timeout", read_timeouts)]
    {
        if let Some(time) = one(name).and_then(|it| scope.outcomes.time(it, it.arg(0))) {
            keys.iter().for_each(|key| table.set(*key, Value::text(time.clone())));
        }
    }
    let size = one("max_temp_file_size").and_then(|it| scope.outcomes.size(it, it.arg(0)));
    if let Some(size) = size {
        table.set("max_temp_file_bytes", Value::Text(size));
    }
}

/// Translates the compression of responses, which for files is the default.
pub(super) fn compression(location: &Location<'_>, options: &mut Table) {
    let scope = &location.scope;
    let has_gzip = scope.is_on("gzip");
    if !has_gzip && !["brotli", "zstd"].iter().any(|name| scope.is_on(name)) {
        return;
    }
    options.set("compress", Value::Bool(true));
    let Some(level) = scope.one("gzip_comp_level").filter(|_| has_gzip) else { return };
    match level.arg(0).parse() {
        Ok(number @ 1..=9) => options.set("gzip_level", Value::Number(number)),
        _ => scope.outcomes.lost(level, "a level is a number from 1 to 9"),
    }
}

/// Translates the authority of the upstream's certificate, which Weft always verifies.
pub(super) fn authority(scope: &Scope<'_>, global: &Global<'_>, prefix: &str, table: &mut Table) {
    if let Some(directive) = scope.one(&format!("{prefix}_ssl_trusted_certificate")) {
        table.set("ca", Value::Text(global.path(directive.arg(0))));
    }
    if !scope.is_on(&format!("{prefix}_ssl_verify")) {
        let note = format!(
            "the certificate of the upstream is verified, which nginx does with \
             {prefix}_ssl_verify only; `ca` names the authority of a private one"
        );
        let pass = scope.own(&format!("{prefix}_pass"));
        pass.iter().for_each(|pass| scope.outcomes.lost(pass, note.clone()));
    }
}

/// Translates `max_fails` or `fail_timeout` of a server of a group. In Weft, all servers of a group have
/// the same limit.
pub(super) fn failure_limit(
    outcomes: &Outcomes,
    group: &Directive,
    server: &Directive,
    (name, value): (&str, &str),
    table: &mut Table,
) {
    let is_only = named(group.children(), "server").count() == 1;
    let (keys, limit): (&[&str], Value) = match (name, value.parse::<u64>()) {
        // An upstream that is the only one always gets requests.
        (_, Ok(0)) if is_only => return,
        (_, Ok(0)) => {
            return outcomes.lost(server, "servers that fail get no requests for a time");
        }
        ("max_fails", Ok(number)) => (&["max_failures"], Value::Number(number)),
        ("max_fails", Err(_)) => return outcomes.lost(server, "the number is invalid"),
        _ => match outcomes.time(server, value) {
            Some(time) => (&["failure_window", "down_time"], Value::Text(time)),
            None => return,
        },
    };
    for key in keys {
        if table.get(key).is_some_and(|other| *other != limit) {
            outcomes.lost(server, format!("all servers of a group have the same `{key}`"));
        }
        table.set(*key, limit.clone());
    }
}
