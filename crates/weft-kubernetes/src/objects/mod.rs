//! Objects of the cluster, as far as the plan needs them. Pure.
//!
//! An object is read from the JSON of the API server. Fields that are unknown are ignored, and
//! fields that are missing have their defaults, so that an object of another version of the API is
//! read as far as possible.

mod cluster_objects; // all objects in memory
pub(crate) mod core; // Service, EndpointSlice, Secret, Namespace
pub(crate) mod gateway; // GatewayClass, Gateway, ReferenceGrant
pub(crate) mod http_route; // HTTPRoute
pub(crate) mod ingress; // Ingress, IngressClass
pub(crate) mod kind; // kinds, with their places in the API
mod metadata; // names and metadata

pub use self::cluster_objects::{ClusterObjects, Effect};
pub use self::kind::Kind;
pub(crate) use self::metadata::Object;
pub use self::metadata::{ObjectName, ObjectRef};
