//! Objects of the cluster → the plan: the text of a configuration, the pools of endpoints, the
//! certificates and the statuses of objects. Pure.
//!
//! A part that is invalid is left out, and its owner gets a condition or an event. No object
//! changes the routes of another one, except for the precedence of the Gateway API: an older route
//! has precedence over a younger route with the same match.

mod backends; // references to services → pools
mod certificates; // references to Secrets → certificates
mod cluster_plan; // the plan
mod conditions; // conditions, statuses and events
mod endpoints; // pools → endpoints
mod fields; // names and values of fields
mod filters; // filters of a rule → options of a route
mod gateways; // Gateways → listeners
mod grants; // references to other namespaces
mod hostnames; // intersections of host names
mod http_routes; // HTTPRoutes → routes
mod ingress; // Ingresses → routes
mod matches; // matches → keys, conditions and precedence
mod planner; // a plan that is being made
mod sections; // routes by listener and host → text
mod settings; // settings of the translation
mod timeouts; // durations of the Gateway API
mod toml; // values in TOML

use std::collections::BTreeMap;

pub use self::cluster_plan::{ClusterPlan, DEFAULT_SERVER_NAME, POOL_DOMAIN, PemIdentity};
pub use self::conditions::{
    Condition, GatewayStatus, ListenerStatus, ObjectEvent, ObjectStatus, ParentStatus,
};
pub use self::endpoints::{Endpoint, Pool};
pub use self::settings::PlanSettings;

use self::gateways::PlannedGateway;
use self::planner::Planner;
use crate::objects::{ClusterObjects, ObjectName, ObjectRef};

impl ClusterPlan {
    /// Makes the plan of all objects. The parts of the objects in `refused` are left out for the
    /// given reasons.
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
}

impl Planner<'_> {
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
