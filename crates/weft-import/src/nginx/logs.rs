//! `access_log` and `error_log`, of the whole server, of hosts and of locations.

use super::global::{Global, is_log_off};
use super::log_format::convert;
use super::maps::{Map, MapKey, is_true};
use super::outcomes::Outcomes;
use super::scope::Scope;
use super::tree::Directive;
use crate::document::{Table, Value};

/// Sets the access log of `[log]`.
pub(super) fn access_log(global: &Global<'_>, outcomes: &Outcomes, log: &mut Table) {
    let [directive] = &*global.access_logs else { return };
    outcomes.carried(directive);
    if is_log_off(directive) {
        return log.set("access", "none");
    }
    match target(global, directive, outcomes) {
        Some(to) if to == "stdout" => {}
        Some(to) => log.set("access", to),
        None => return,
    }
    daemon(directive, log);
    let format = format(global, directive, outcomes);
    if format != "combined" {
        log.set("format", format);
    }
}

/// Sets the error log of `[log]`.
pub(super) fn error_log(
    global: &Global<'_>,
    directive: &Directive,
    outcomes: &Outcomes,
    log: &mut Table,
) {
    let level = match directive.arg(1) {
        "debug" => "debug",
        "info" | "notice" => "info",
        "warn" => "warn",
        _ => "error",
    };
    match target(global, directive, outcomes) {
        Some(to) if matches!(&*to, "stdout" | "stderr") => {}
        Some(to) => {
            log.set("error", to);
            daemon(directive, log);
        }
        None => {}
    }
    log.set("level", level);
}

/// Sets the access logs of a location, unless `[log]` has the same.
pub(super) fn translate(global: &Global<'_>, scope: &Scope<'_>, options: &mut Table) {
    let logs = scope.all(&["access_log"]);
    let is_common = match (&*logs, &*global.access_logs) {
        ([own], [common]) => own.args == common.args && own.parameter("if").is_none(),
        _ => false,
    };
    if logs.is_empty() || is_common {
        return;
    }
    if logs.iter().any(|log| is_log_off(log)) {
        return options.set("access_log", false);
    }
    let converted = logs.iter().filter_map(|log| one(global, log, scope.outcomes));
    options.set_filled("access_log", Value::one_or_list(converted.collect::<Vec<Value>>()));
}

/// Converts an access log of a location; `None` if its destination has no equivalent.
fn one(global: &Global<'_>, directive: &Directive, outcomes: &Outcomes) -> Option<Value> {
    let mut table = Table::default();
    table.set("to", target(global, directive, outcomes)?);
    let common = match &*global.access_logs {
        [common] if !is_log_off(common) => format(global, common, outcomes),
        _ => "combined".to_owned(),
    };
    let format = format(global, directive, outcomes);
    if format != common {
        table.set("format", format);
    }
    if let Some(condition) = directive.parameter("if") {
        set_condition(global, directive, condition, outcomes, &mut table);
    }
    Some(match (table.keys().count(), table.get("to")) {
        (1, Some(to)) => to.clone(),
        _ => Value::Table(table),
    })
}

/// Returns the destination of a log; `None` if it has no equivalent, which is reported.
fn target(global: &Global<'_>, directive: &Directive, outcomes: &Outcomes) -> Option<String> {
    match directive.arg(0) {
        "/dev/stdout" => Some("stdout".to_owned()),
        "stderr" | "/dev/stderr" => Some("stderr".to_owned()),
        path if path.contains('$') => {
            outcomes.lost(directive, "the name of a log has no variables");
            None
        }
        path if path.starts_with("syslog:") => {
            let server = parameter(path, "server").unwrap_or_default();
            let has_port = server.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
            Some(match server.strip_prefix("unix:") {
                Some(socket) => format!("syslog:unix:{socket}"),
                None if has_port => format!("syslog:udp://{server}"),
                None => format!("syslog:udp://{server}:514"),
            })
        }
        path => Some(global.path(path)),
    }
}

/// Returns a parameter of `syslog:server=…,facility=…`.
fn parameter<'a>(target: &'a str, name: &str) -> Option<&'a str> {
    let parameters = target.strip_prefix("syslog:")?.split(',');
    parameters
        .filter_map(|it| it.split_once('='))
        .find(|(known, _)| *known == name)
        .map(|(_, it)| it)
}

/// Sets facility and tag of messages to a logging daemon, which all logs have in common.
fn daemon(directive: &Directive, log: &mut Table) {
    if directive.arg(0).starts_with("syslog:") {
        let or = |name, default| parameter(directive.arg(0), name).unwrap_or(default);
        // The defaults of nginx.
        log.set("facility", or("facility", "local7"));
        log.set("tag", or("tag", "nginx"));
    }
}

/// Returns the format of an access log, and reports variables that are missing in it.
fn format(global: &Global<'_>, directive: &Directive, outcomes: &Outcomes) -> String {
    let name = directive.args.get(1).filter(|name| !name.contains('='));
    let Some(name) = name.filter(|name| *name != "combined") else { return "combined".to_owned() };
    let Some(format) = global.formats.get(&**name) else {
        outcomes.lost(directive, "there is no log_format of this name");
        return "combined".to_owned();
    };
    let texts = format.args.iter().skip(1).filter(|text| !text.starts_with("escape="));
    let converted = convert(&texts.map(|text| &**text).collect::<String>());
    match &*converted.missing {
        [] => outcomes.carried(format),
        missing => outcomes.lost(format, format!("a log has no {}", missing.join(", "))),
    }
    converted.format
}

/// Translates `if=$VARIABLE` of a map by the status or by the program of the client.
fn set_condition(
    global: &Global<'_>,
    directive: &Directive,
    condition: &str,
    outcomes: &Outcomes,
    table: &mut Table,
) {
    let map = condition.strip_prefix('$').and_then(|name| global.maps.get(name).copied());
    let Some((map, block)) = map.and_then(|block| Some((Map::of(block, global.target)?, block)))
    else {
        return outcomes
            .lost(directive, "its condition has no equivalent, so all requests are logged");
    };
    match map.source {
        "$status" => {
            outcomes.carried(block);
            table.set("status", statuses(&map));
        }
        "$http_user_agent" if is_true(map.default) => match skipped_agents(&map) {
            Some(agents) => {
                outcomes.carried(block);
                table.set("skip_agents", agents);
            }
            None => outcomes.lost(block, "`skip_agents` has texts, and no regular expressions"),
        },
        source => outcomes.lost(
            directive,
            format!("a log has no condition about {source}, so all requests are logged"),
        ),
    }
}

/// Returns the statuses whose value is true, as classes and ranges.
fn statuses(map: &Map<'_>) -> Vec<String> {
    let mut found = Vec::new();
    for class in (200..600_u16).step_by(100) {
        let is_logged: Vec<u16> =
            (class..class + 100).filter(|status| is_true(map.value(&status.to_string()))).collect();
        let mut rest = &*is_logged;
        while let [first, ..] = rest {
            let length =
                rest.iter().zip(*first..).take_while(|(status, next)| *status == next).count();
            let last = rest[length - 1];
            found.push(match (length, last) {
                (100, _) => format!("{}xx", class / 100),
                (1, last) => last.to_string(),
                (_, last) => format!("{first}-{last}"),
            });
            rest = &rest[length..];
        }
    }
    found
}

/// Returns the texts in `User-Agent` for which the value is false.
fn skipped_agents(map: &Map<'_>) -> Option<Vec<String>> {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'/' | b' ');
    let skipped = map.entries.iter().filter(|(_, value)| !is_true(value));
    let texts = skipped.map(|(key, _)| match key {
        MapKey::Regex(regex) if regex.bytes().all(is_plain) => Some(regex.clone()),
        _ => None,
    });
    texts.collect()
}
