//! Objects of a Kubernetes cluster as the configuration of the web server Weft.
//!
//! [`ClusterObjects`] has the objects in memory, [`ClusterPlan`] is computed from them without any
//! input or output.

mod api; // the API server
mod objects; // objects of the cluster
mod plan; // objects → plan

pub use api::controller::{ControllerSettings, Target, TextProblem, run};
pub use objects::{ClusterObjects, Effect, Kind, ObjectName, ObjectRef};
pub use plan::{
    ClusterPlan, Condition, DEFAULT_SERVER_NAME, Endpoint, GatewayStatus, ListenerStatus,
    ObjectEvent, ObjectStatus, POOL_DOMAIN, ParentStatus, PemIdentity, PlanSettings, Pool,
};
