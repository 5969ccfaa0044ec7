//! Settings that upstreams of all protocols have in common.

use super::global::Global;
use super::outcomes::Outcomes;
use super::scope::Scope;
use super::tree::{Directive, named};
use crate::document::{Table, Value};

/// Translates buffering, timeouts and sizes: the directives whose names begin with `prefix`.
/// `read_timeouts` are the keys that `read_timeout` stands for.
pub(super) fn settings(scope: &Scope<'_>, prefix: &str, read_timeouts: &[&str], table: &mut Table) {
    for (name, key) in [("buffering", "buffer_responses"), ("request_buffering", "buffer_requests")]
    {
        let is_off = scope.is_off(&format!("{prefix}_{name}"));
        table.set_some(key, is_off.then_some(false));
    }
    table.set_some("connect_timeout", scope.time(&format!("{prefix}_connect_timeout")));
    let read_timeout = scope.time(&format!("{prefix}_read_timeout"));
    read_timeouts.iter().for_each(|key| table.set_some(key, read_timeout.clone()));
    table.set_some("max_temp_file_bytes", scope.size(&format!("{prefix}_max_temp_file_size")));
}

/// Translates the compression of responses, which for files is the default.
pub(super) fn compression(scope: &Scope<'_>, options: &mut Table) {
    let has_gzip = scope.is_on("gzip");
    if !has_gzip && !["brotli", "zstd"].iter().any(|name| scope.is_on(name)) {
        return;
    }
    options.set("compress", true);
    let Some(level) = scope.one("gzip_comp_level").filter(|_| has_gzip) else { return };
    match level.arg(0).parse() {
        Ok(number @ 1..=9) => options.set("gzip_level", number),
        _ => scope.outcomes.lost(level, "a level is a number from 1 to 9"),
    }
}

/// Translates the authority of the upstream's certificate, which Weft always verifies.
pub(super) fn authority(scope: &Scope<'_>, global: &Global<'_>, prefix: &str, table: &mut Table) {
    if let Some(directive) = scope.one(&format!("{prefix}_ssl_trusted_certificate")) {
        table.set("ca", global.path(directive.arg(0)));
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

/// Protocol of a group of servers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum GroupKind {
    Http,
    Stream,
}

/// Translates a server of a group to its address and its options; `None` for a server that is down.
/// Sets the options that all servers of a group have in common in `table`.
pub(super) fn member(
    outcomes: &Outcomes,
    group: &Directive,
    server: &Directive,
    address: String,
    kind: GroupKind,
    table: &mut Table,
) -> Option<String> {
    outcomes.carried(server);
    let mut words = vec![address];
    for parameter in server.args.iter().skip(1) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        match (name, value.parse::<u64>().ok()) {
            ("down", _) => return None,
            ("backup", _) => words.push("backup".to_owned()),
            ("weight", Some(1)) | ("max_conns", Some(0)) | ("resolve", _) => {}
            ("weight", Some(number @ 1..=65_535)) => words.push(format!("weight={number}")),
            ("max_conns", Some(number @ 1..=65_535)) => {
                if kind == GroupKind::Http {
                    outcomes.lost(server, "`max_connections` is a limit for each worker");
                }
                words.push(format!("max_connections={number}"));
            }
            ("max_fails" | "fail_timeout", _) => {
                failure_limit(outcomes, group, server, (name, value), table);
            }
            ("slow_start", _) if kind == GroupKind::Http => {
                table.set_some("slow_start", outcomes.time(server, value));
            }
            (name, _) if kind == GroupKind::Http => {
                outcomes.lost(server, format!("there is no `{name}`"));
            }
            (name, _) => outcomes.lost(server, format!("streams have no `{name}`")),
        }
    }
    Some(words.join(" "))
}

/// Translates `max_fails` or `fail_timeout` of a server of a group. In Weft, all servers of a group
/// have the same limit.
fn failure_limit(
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
        ("max_fails", Ok(number)) => (&["max_failures"], Value::from(number)),
        ("max_fails", Err(_)) => return outcomes.lost(server, "the number is invalid"),
        _ => match outcomes.time(server, value) {
            Some(time) => (&["failure_window", "down_time"], Value::from(time)),
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
