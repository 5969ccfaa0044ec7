//! Placeholders `{map.NAME}` in the texts of routes and in the formats of logs.

use std::collections::BTreeSet;

use weft_config::Problem;

use super::host_plan::HostPlan;
use super::route_plan::RoutePlan;
use crate::sections::log::LogSettings;
use crate::sections::maps::{MapsPlan, unknown_map};
use crate::template::map_names;

/// Reports maps that the configuration does not have.
pub(super) fn check_map_names(
    maps: &MapsPlan,
    hosts: &[HostPlan],
    log: &LogSettings,
    problems: &mut Vec<Problem>,
) {
    for route in hosts.iter().flat_map(|host| &host.routes) {
        for name in route.map_names(log).into_iter().filter(|name| !maps.has(name)) {
            problems.push(route.form.problem(unknown_map(&name, maps.names())));
        }
    }
}

impl RoutePlan {
    /// Returns the names of the maps in the texts of the route and in the formats of its logs.
    pub(crate) fn map_names(&self, log: &LogSettings) -> BTreeSet<String> {
        let formats = match self.options.access_log.logs() {
            None => vec![&log.format.format],
            Some(own) => own.iter().map(|own| own.format(&log.format)).collect(),
        };
        let of_logs = formats.iter().flat_map(|format| format.names());
        let of_logs = of_logs.filter_map(|name| name.strip_prefix("map."));
        // Each text of a route is printed.
        map_names(&self.print()).chain(of_logs).map(str::to_owned).collect()
    }
}
