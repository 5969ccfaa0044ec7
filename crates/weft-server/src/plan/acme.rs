//! Names for which certificates are ordered.

use std::sync::Arc;

use super::HostPlan;
use crate::acme::{AcmePlan, Name, OnDemandPlan};
use crate::config::{AcmeConfig, Located, OnDemandConfig, Problem};

/// Plans the orders of the domains, and of the names of hosts if `has_hosts` is set. Returns `None` if
/// there is nothing to order.
pub(super) fn plan_acme(
    config: AcmeConfig,
    has_hosts: bool,
    hosts: &[HostPlan],
    warnings: &mut Vec<Problem>,
) -> Option<AcmePlan> {
    let directories = config.directory_urls();
    let mut names: Vec<Name> =
        config.domains.iter().filter_map(|name| name.value.parse().ok()).collect();
    for name in hosts.iter().filter(|_| has_hosts).flat_map(|host| &host.names) {
        match name.parse::<Name>() {
            Ok(name) => names.extend(Some(name).filter(|name| !name.is_local())),
            // The host of all other names has no certificate of its own.
            Err(_) if name == "*" => {}
            Err(reason) => {
                let message = format!("no certificate is ordered for {name:?}: {reason}");
                warnings.push(Problem::without_location(message));
            }
        }
    }
    names.sort();
    names.dedup();
    let [ca, state] = [config.ca, config.state].map(|path| path.map(|path| path.value));
    let [email, profile] = [config.email, config.profile].map(|text| text.map(value));
    let OnDemandConfig { patterns, ask, rate, max_names, timeout } = config.on_demand;
    let is_on_demand = !patterns.is_empty() || ask.is_some();
    let on_demand = OnDemandPlan { patterns, ask, rate, max_names, timeout };
    let on_demand = is_on_demand.then(|| Arc::new(on_demand));
    (has_hosts || !names.is_empty() || is_on_demand).then_some(AcmePlan {
        names,
        includes_hosts: has_hosts,
        directories,
        email,
        ca,
        state,
        allows_ephemeral_state: config.allows_ephemeral_state,
        has_placeholder: config.has_placeholder,
        challenges: config.challenges,
        profile,
        on_demand,
        retry_delay: config.retry_delay,
    })
}

fn value<T>(located: Located<T>) -> T {
    located.value
}
