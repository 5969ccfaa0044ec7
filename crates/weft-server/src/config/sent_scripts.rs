//! Scripts whose text clients would get: files are withheld, and values of the configuration that
//! name scripts are errors.

use std::collections::BTreeSet;

use weft_config::Problem;

use super::host_plan::HostPlan;
use super::route_plan::RoutePlan;
use crate::apps::{FilesConfig, Form};
use crate::base::script_files::AllScripts;
use crate::route::Rewrite;

/// Withholds the scripts of all routes from all routes that serve files. Reports values that name
/// scripts as files.
pub(super) fn withhold_scripts(
    hosts: &mut [HostPlan],
    inherited: &FilesConfig,
    problems: &mut Vec<Problem>,
) {
    let routes = hosts.iter().flat_map(|host| &host.routes);
    let scripts = AllScripts::new(routes.filter_map(|route| route.form.value.scripts()));
    for route in hosts.iter_mut().flat_map(|host| &mut host.routes) {
        route.form.value.withhold(&scripts, inherited);
        route.options.accel.withhold(&scripts);
    }
    let mut known = BTreeSet::new();
    for host in hosts {
        for route in &host.routes {
            let found = named_scripts(route, &scripts);
            let new = found.into_iter().filter(|message| known.insert(message.clone()));
            problems.extend(new.map(|message| route.form.problem(message)));
        }
    }
}

/// Returns a message for each value of a route that names a script whose text would be sent.
fn named_scripts(route: &RoutePlan, scripts: &AllScripts) -> Vec<String> {
    let RoutePlan { options, rewrite, form, .. } = route;
    let is_files = matches!(&form.value, Form::Files(_)) && form.value.scripts().is_none();
    let rewritten = rewrite.iter().filter(|_| is_files).flat_map(Rewrite::sent_files);
    let of_options = options.error_pages.sent_files().chain(options.maintenance.sent_files());
    let files = form.value.sent_files().into_iter().chain(of_options).chain(rewritten);
    files.filter_map(|file| scripts.check(&file).err()).collect()
}
