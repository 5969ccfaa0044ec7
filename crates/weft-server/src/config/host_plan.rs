//! The routes of a host section, and the connections whose requests they get.

use weft::Method;

use super::host_names::named_ports;
use super::route_plan::RoutePlan;
use crate::base::listen_end::{HostBinding, Ipv4Ports};
use crate::options::error_pages::ErrorPageOptions;
use crate::route::PathKey;
use crate::sections::host::HostSettings;

/// Routes of one or more hosts.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HostPlan {
    /// Names in lower case. `*.example.org` matches all subdomains, `*` all other hosts, and `~
    /// REGEX`, as the only name, those in which the pattern is found. `:PORT` matches all other
    /// hosts on that port.
    pub(crate) names: Vec<String>,
    /// Distinguishes the section from others with the same names.
    pub(crate) label: Option<String>,
    /// Addresses that the host is bound to. An address with TLS begins with `tls://`.
    pub(crate) settings: HostSettings,
    pub(crate) routes: Vec<RoutePlan>,
    /// Pages for errors of the router itself.
    pub(crate) error_pages: ErrorPageOptions,
}

impl HostPlan {
    /// Returns the names, separated by spaces, and the label.
    pub(crate) fn title(&self) -> String {
        let label = self.label.iter().map(|label| format!(" @{label}"));
        std::iter::once(self.names.join(" ")).chain(label).collect()
    }

    /// Returns the connections whose requests the host gets. `ports` are of the whole plan.
    pub(crate) fn binding(&self, ports: &Ipv4Ports) -> HostBinding {
        let named = named_ports(&self.names);
        let addresses = &self.settings.listen.list;
        match (named.is_empty(), addresses.is_empty()) {
            (true, true) => HostBinding::Everywhere,
            (false, true) => HostBinding::Ports(named),
            (_, false) => HostBinding::Ends(
                addresses.iter().flat_map(|address| ports.ends(&address.value)).collect(),
            ),
        }
    }

    /// Returns the route of a GET request for a decoded path, if it meets no conditions.
    pub(crate) fn route_of(&self, path: &str) -> Option<&RoutePlan> {
        let all = self
            .routes
            .iter()
            .filter(|route| route.conditions.is_none() && route.key.includes(&Method::GET));
        let exact =
            all.clone().find(|route| matches!(&route.key.path, PathKey::Exact(it) if it == path));
        let pattern = || {
            let matches = |route: &&RoutePlan| matches!(&route.key.path, PathKey::Pattern(pattern) if pattern.matches(path.as_bytes()));
            all.clone().find(matches)
        };
        let prefix = || {
            let length = |route: &&RoutePlan| route.key.prefix_length(path);
            all.clone().filter(|route| length(route).is_some()).max_by_key(length)
        };
        exact.or_else(pattern).or_else(prefix)
    }
}
