//! Rates, numbers of requests and sizes.

use super::Location;
use crate::document::Table;
use crate::nginx::global::zone_name;
use crate::nginx::process;
use crate::nginx::tree::Directive;
use crate::nginx::variables::is_client_address;

pub(crate) fn translate(location: &Location<'_>, table: &mut Table) {
    let scope = &location.scope;
    let size = scope.size("client_max_body_size");
    table.set_some(
        "max_body_bytes",
        size.map(|size| if size == "0B" { UNLIMITED.into() } else { size }),
    );
    let mut limits = scope.all(&["limit_req"]).into_iter();
    if let Some(limit) = limits.next() {
        rate(location, limit, table);
    }
    limits.for_each(|limit| scope.outcomes.lost(limit, "a route has one rate"));
    for (name, key) in [("limit_rate", "bandwidth"), ("limit_rate_after", "bandwidth_after")] {
        table.set_some(key, scope.size(name).filter(|size| size != "0B"));
    }
    if location.directive.is_some() {
        for directive in process::server_limits().flat_map(|name| scope.own(name)) {
            scope.outcomes.lost(directive, "it applies to the whole server, in `[limits]`");
        }
    }
    for limit in scope.all(&["limit_conn"]) {
        concurrency(location, limit, table);
    }
}

/// Maximum size of a body without a limit.
const UNLIMITED: &str = "1048576GiB";

fn rate(location: &Location<'_>, limit: &Directive, table: &mut Table) {
    let outcomes = location.scope.outcomes;
    let zone = zone_name(limit).and_then(|name| location.global.zones.get(name).copied());
    let Some(zone) = zone.filter(|zone| zone.name == "limit_req_zone") else {
        return outcomes.lost(limit, "there is no limit_req_zone of this name");
    };
    outcomes.carried(zone);
    if !is_client_address(zone.arg(0)) {
        match location.variables.template(zone.arg(0)) {
            Ok(key) => table.set("rate_key", key),
            Err(reason) => return outcomes.lost(limit, reason),
        }
    }
    let rate = zone.parameter("rate").unwrap_or_default();
    let rate = match rate.split_once("r/") {
        Some((number, unit @ ("s" | "m"))) => format!("{number}/{unit}"),
        _ => return outcomes.lost(limit, "the rate of its zone is invalid"),
    };
    table.set("rate", rate);
    let burst: u64 = limit.parameter("burst").and_then(|burst| burst.parse().ok()).unwrap_or(0);
    // nginx does not count the first request, which is always served.
    table.set("burst", burst + 1);
    if burst > 0 && !limit.args.iter().any(|arg| arg == "nodelay") {
        outcomes.adapted(limit, "requests within the burst are served at once, not delayed");
    }
}

fn concurrency(location: &Location<'_>, limit: &Directive, table: &mut Table) {
    let outcomes = location.scope.outcomes;
    let zone = location.global.zones.get(limit.arg(0)).copied();
    let Some(zone) = zone.filter(|zone| zone.name == "limit_conn_zone") else {
        return outcomes.lost(limit, "there is no limit_conn_zone of this name");
    };
    outcomes.carried(zone);
    match (zone.arg(0), limit.arg(1).parse::<u64>()) {
        ("$server_name", Ok(number)) => {
            table.set("max_concurrent_requests", number);
            outcomes.adapted(limit, "each route counts its own requests");
        }
        _ => outcomes.lost(
            limit,
            "Weft limits the connections of a client to the whole server only \
             (`[limits] max_connections_per_peer`)",
        ),
    }
}
