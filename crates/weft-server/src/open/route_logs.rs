//! The logs of a route, and the notes about its requests that their lines need.

use weft::log::LogFormat;

use crate::base::log_format::RequestValue;
use crate::base::request_notes::is_group;
use crate::config::RoutePlan;
use crate::logs::RouteLogPlan;
use crate::route::PathKey;
use crate::sections::log::LogSettings;

/// Returns the logs of a route. A route without logs of its own needs none if the lines in the log
/// of all routes have only values of the record. Spans have values of the notes, too.
pub(super) fn route_logs(
    route: &RoutePlan,
    log: &LogSettings,
    exports_spans: bool,
) -> Option<RouteLogPlan> {
    let own = route.options.access_log.logs();
    let default = log.has_access().then_some(&log.format.format);
    let formats: Vec<&LogFormat> = match own {
        None => default.into_iter().collect(),
        Some(own) => own.iter().map(|own| own.format(&log.format)).collect(),
    };
    let names = formats.iter().flat_map(|format| format.names());
    let names: Vec<&str> = names.filter(|name| has_value(route, name)).collect();
    let id = names.contains(&"request_id").then_some("x-request-id");
    let fields = formats.iter().flat_map(|format| format.response_fields()).chain(id);
    let response_fields: Box<[_]> = fields.filter_map(|name| name.parse().ok()).collect();
    let has_span = exports_spans && route.options.tracing.has_spans();
    let needs_notes = own.is_some() || !names.is_empty() || !response_fields.is_empty() || has_span;
    needs_notes.then(|| RouteLogPlan {
        name: route.key.to_string().into(),
        response_fields,
        has_groups: names.iter().any(|name| is_group(name)),
        maps: names.iter().filter_map(|name| name.strip_prefix("map.")).map(Into::into).collect(),
        own: own.map(Into::into),
    })
}

/// Returns true if requests of a route may have a value with this name.
fn has_value(route: &RoutePlan, name: &str) -> bool {
    match name {
        "route" => true,
        "trace_id" | "span_id" => route.options.tracing.has_spans(),
        name if RequestValue::parse(name).is_some() => true,
        name if name.starts_with("re.") => matches!(route.key.path, PathKey::Pattern(_)),
        // Some of the names of a host may be patterns.
        name if is_group(name) => true,
        "user" => route.options.has_users(),
        "request_id" => route.options.request_id.is_set() || route.form.value.runs_application(),
        _ => route.form.value.upstreams().is_some(),
    }
}
