//! Objects of the cluster → the plan: the text of a configuration, the pools of endpoints, the
//! certificates and the statuses of objects. Pure.
//!
//! A part that is invalid is left out, and its owner gets a condition or an event. No object changes
//! the routes of another one, except for the precedence of the Gateway API: an older route has
//! precedence over a younger route with the same match.

mod backends; // references to services → pools
mod certificates; // references to Secrets → certificates
mod conditions; // conditions, statuses and events
mod endpoints; // pools → endpoints
mod filters; // filters of a rule → options of a route
mod gateways; // Gateways → listeners
mod grants; // references to other namespaces
mod hostnames; // intersections of host names
mod http_routes; // HTTPRoutes → routes
mod ingress; // Ingresses → routes
mod matches; // matches → keys, conditions and precedence
mod sections; // routes by listener and host → text
mod settings; // settings of the translation
mod timeouts; // durations of the Gateway API
mod toml; // values in TOML

use std::collections::{BTreeMap, BTreeSet};

pub use self::conditions::{
    Condition, GatewayStatus, ListenerStatus, ObjectEvent, ObjectStatus, ParentStatus,
};
pub use self::endpoints::{Endpoint, Pool};
pub use self::settings::PlanSettings;

use self::backends::Backends;
use self::gateways::PlannedGateway;
use self::sections::Sections;
use crate::objects::{ClusterObjects, ObjectName, ObjectRef};

/// Domain of the names of pools, which the process resolves itself.
pub const POOL_DOMAIN: &str = "kubernetes";

/// Server name of the certificate for clients that send none, and for those whose name has no
/// certificate of its own.
pub const DEFAULT_SERVER_NAME: &str = "*";

/// Everything that follows from the objects of the cluster.
#[derive(Debug, Default)]
pub struct ClusterPlan {
    /// Text of the configuration.
    pub text: String,
    /// Objects whose routes are in the text, by the number of the line.
    owners: BTreeMap<usize, ObjectRef>,
    /// Pools of endpoints, by the names of upstreams in the text.
    pub pools: BTreeMap<String, Pool>,
    pools_of_services: BTreeMap<ObjectName, Vec<String>>,
    /// Certificates with their keys, by server name.
    pub identities: BTreeMap<String, PemIdentity>,
    /// Statuses of the objects of this controller.
    pub statuses: BTreeMap<ObjectRef, ObjectStatus>,
    /// Events about objects.
    pub events: BTreeSet<ObjectEvent>,
}

/// A certificate chain and its private key, in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct PemIdentity {
    /// The chain.
    pub certificate: Vec<u8>,
    /// The private key.
    pub key: Vec<u8>,
}

/// Shows neither.
impl std::fmt::Debug for PemIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PemIdentity").finish_non_exhaustive()
    }
}

impl ClusterPlan {
    /// Makes the plan of all objects. The parts of the objects in `refused` are left out for the given
    /// reasons.
    pub fn new(
        objects: &ClusterObjects,
        settings: &PlanSettings,
        refused: &BTreeMap<ObjectRef, String>,
    ) -> ClusterPlan {
        let mut planner = Planner::new(objects, settings, refused);
        planner.plan_gateway_classes();
        let mut gateways = planner.plan_gateways();
        planner.plan_http_routes(&mut gateways);
        planner.plan_ingresses();
        planner.finish(gateways)
    }

    /// Returns the names of the pools with endpoints of a service.
    pub fn pools_of(&self, service: &ObjectName) -> impl Iterator<Item = &String> {
        self.pools_of_services.get(service).into_iter().flatten()
    }

    /// Returns the object whose routes are in a line of the text, counted from 1.
    pub fn owner_of_line(&self, line: usize) -> Option<&ObjectRef> {
        self.owners.get(&line)
    }
}

/// A plan that is being made.
struct Planner<'a> {
    objects: &'a ClusterObjects,
    settings: &'a PlanSettings,
    refused: &'a BTreeMap<ObjectRef, String>,
    sections: Sections,
    plan: ClusterPlan,
}

impl<'a> Planner<'a> {
    fn new(
        objects: &'a ClusterObjects,
        settings: &'a PlanSettings,
        refused: &'a BTreeMap<ObjectRef, String>,
    ) -> Planner<'a> {
        let sections = Sections::new(settings);
        Planner { objects, settings, refused, sections, plan: ClusterPlan::default() }
    }

    fn finish(mut self, gateways: BTreeMap<ObjectName, PlannedGateway<'_>>) -> ClusterPlan {
        let addresses = &self.settings.addresses;
        for gateway in gateways.into_values() {
            let (object, status) = gateway.into_status(addresses);
            self.plan.statuses.insert(object, ObjectStatus::Gateway(status));
        }
        for (name, pool) in &self.plan.pools {
            for service in pool.services() {
                let pools = self.plan.pools_of_services.entry(service.clone()).or_default();
                pools.push(name.clone());
            }
        }
        (self.plan.text, self.plan.owners) = self.sections.into_text();
        self.plan
    }
}
