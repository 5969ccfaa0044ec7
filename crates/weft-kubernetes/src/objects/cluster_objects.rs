//! All objects in memory, and the effects of their changes.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::core::{EndpointSlice, Namespace, Secret, Service};
use super::gateway::{Gateway, GatewayClass, ReferenceGrant};
use super::http_route::HttpRoute;
use super::ingress::{Ingress, IngressClass};
use super::kind::Kind;
use super::metadata::{Metadata, Object, ObjectName, ObjectRef};

/// All objects that the plan depends on.
#[derive(Debug, Default)]
pub struct ClusterObjects {
    pub(crate) gateway_classes: BTreeMap<ObjectName, Object<GatewayClass>>,
    pub(crate) gateways: BTreeMap<ObjectName, Object<Gateway>>,
    pub(crate) http_routes: BTreeMap<ObjectName, Object<HttpRoute>>,
    pub(crate) reference_grants: BTreeMap<ObjectName, Object<ReferenceGrant>>,
    pub(crate) ingress_classes: BTreeMap<ObjectName, Object<IngressClass>>,
    pub(crate) ingresses: BTreeMap<ObjectName, Object<Ingress>>,
    pub(crate) services: BTreeMap<ObjectName, Object<Service>>,
    pub(crate) endpoint_slices: BTreeMap<ObjectName, EndpointSlice>,
    /// Names of the slices of each service.
    pub(crate) slices_of_services: BTreeMap<ObjectName, Vec<ObjectName>>,
    pub(crate) secrets: BTreeMap<ObjectName, Secret>,
    pub(crate) namespaces: BTreeMap<ObjectName, Namespace>,
    /// Objects that could not be read, with the reason.
    pub(crate) unreadable: BTreeMap<ObjectRef, String>,
    /// Services whose endpoints have changed since they were taken.
    changed_services: BTreeSet<ObjectName>,
}

/// The effect of a changed object on the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// The plan does not depend on the change.
    None,
    /// Endpoints have changed, which are no part of the configuration.
    Endpoints,
    /// The configuration may have changed.
    Plan,
}

impl ClusterObjects {
    /// Adds or replaces an object, whose JSON is of this kind.
    pub fn set(&mut self, kind: Kind, value: Value) -> Effect {
        let metadata = value.get("metadata").cloned().unwrap_or_default();
        let metadata: Metadata = serde_json::from_value(metadata).unwrap_or_default();
        let name = metadata.object_name();
        let object = ObjectRef { kind, name: name.clone() };
        self.unreadable.remove(&object);
        let result = match kind {
            Kind::GatewayClass => insert(&mut self.gateway_classes, name, value),
            Kind::Gateway => insert(&mut self.gateways, name, value),
            Kind::HttpRoute => insert(&mut self.http_routes, name, value),
            Kind::ReferenceGrant => insert(&mut self.reference_grants, name, value),
            Kind::IngressClass => insert(&mut self.ingress_classes, name, value),
            Kind::Ingress => insert(&mut self.ingresses, name, value),
            Kind::Service => insert(&mut self.services, name, value),
            Kind::Secret => insert(&mut self.secrets, name, value),
            Kind::Namespace => insert(&mut self.namespaces, name, value),
            Kind::EndpointSlice => self.set_slice(name, value),
        };
        result.unwrap_or_else(|error| {
            // A former version of the object must not stay in effect.
            self.remove(kind, &object.name);
            self.unreadable.insert(object, error);
            Effect::Plan
        })
    }

    fn set_slice(&mut self, name: ObjectName, value: Value) -> Result<Effect, String> {
        let slice: EndpointSlice = read(value)?;
        if self.endpoint_slices.get(&name) == Some(&slice) {
            return Ok(Effect::None);
        }
        self.remove_slice(&name);
        if let Some(service) = slice.service() {
            self.changed_services.insert(service.clone());
            self.slices_of_services.entry(service).or_default().push(name.clone());
        }
        self.endpoint_slices.insert(name, slice);
        Ok(Effect::Endpoints)
    }

    /// Removes an object.
    pub fn remove(&mut self, kind: Kind, name: &ObjectName) -> Effect {
        self.unreadable.remove(&ObjectRef { kind, name: name.clone() });
        let existed = match kind {
            Kind::GatewayClass => self.gateway_classes.remove(name).is_some(),
            Kind::Gateway => self.gateways.remove(name).is_some(),
            Kind::HttpRoute => self.http_routes.remove(name).is_some(),
            Kind::ReferenceGrant => self.reference_grants.remove(name).is_some(),
            Kind::IngressClass => self.ingress_classes.remove(name).is_some(),
            Kind::Ingress => self.ingresses.remove(name).is_some(),
            Kind::Service => self.services.remove(name).is_some(),
            Kind::Secret => self.secrets.remove(name).is_some(),
            Kind::Namespace => self.namespaces.remove(name).is_some(),
            Kind::EndpointSlice => {
                let existed = self.remove_slice(name);
                return if existed { Effect::Endpoints } else { Effect::None };
            }
        };
        if existed { Effect::Plan } else { Effect::None }
    }

    fn remove_slice(&mut self, name: &ObjectName) -> bool {
        let Some(former) = self.endpoint_slices.remove(name) else { return false };
        if let Some(service) = former.service() {
            if let Some(names) = self.slices_of_services.get_mut(&service) {
                names.retain(|known| known != name);
                if names.is_empty() {
                    self.slices_of_services.remove(&service);
                }
            }
            self.changed_services.insert(service);
        }
        true
    }

    /// Returns the services whose endpoints have changed since the last call.
    pub fn take_changed_services(&mut self) -> BTreeSet<ObjectName> {
        std::mem::take(&mut self.changed_services)
    }

    /// Returns the metadata of an object that has a status, and its status.
    pub(crate) fn status_of(&self, object: &ObjectRef) -> Option<(&Metadata, &Value)> {
        fn parts<S>(object: &Object<S>) -> (&Metadata, &Value) {
            (&object.metadata, &object.status)
        }
        match object.kind {
            Kind::GatewayClass => self.gateway_classes.get(&object.name).map(parts),
            Kind::Gateway => self.gateways.get(&object.name).map(parts),
            Kind::HttpRoute => self.http_routes.get(&object.name).map(parts),
            Kind::Ingress => self.ingresses.get(&object.name).map(parts),
            _ => None,
        }
    }

    /// Returns the names of all objects of a kind.
    pub fn names(&self, kind: Kind) -> Vec<ObjectName> {
        let names: Vec<_> = match kind {
            Kind::GatewayClass => self.gateway_classes.keys().collect(),
            Kind::Gateway => self.gateways.keys().collect(),
            Kind::HttpRoute => self.http_routes.keys().collect(),
            Kind::ReferenceGrant => self.reference_grants.keys().collect(),
            Kind::IngressClass => self.ingress_classes.keys().collect(),
            Kind::Ingress => self.ingresses.keys().collect(),
            Kind::Service => self.services.keys().collect(),
            Kind::EndpointSlice => self.endpoint_slices.keys().collect(),
            Kind::Secret => self.secrets.keys().collect(),
            Kind::Namespace => self.namespaces.keys().collect(),
        };
        let unreadable = self.unreadable.keys().filter(|it| it.kind == kind).map(|it| &it.name);
        names.into_iter().chain(unreadable).cloned().collect()
    }
}

/// Reads an object and inserts it. A change of the status only has no effect on the plan.
fn insert<T: DeserializeOwned + Planned>(
    objects: &mut BTreeMap<ObjectName, T>,
    name: ObjectName,
    value: Value,
) -> Result<Effect, String> {
    let object: T = read(value)?;
    let effect = match objects.get(&name) {
        Some(known) if known.is_same_for_plan(&object) => Effect::None,
        _ => Effect::Plan,
    };
    objects.insert(name, object);
    Ok(effect)
}

fn read<T: DeserializeOwned>(value: Value) -> Result<T, String> {
    serde_json::from_value(value).map_err(|error| error.to_string())
}

/// An object whose changes may change the plan.
trait Planned {
    /// Returns true if both lead to the same plan.
    fn is_same_for_plan(&self, other: &Self) -> bool;
}

impl<S: PartialEq> Planned for Object<S> {
    fn is_same_for_plan(&self, other: &Self) -> bool {
        let depends_on = |it: &Self| {
            let Metadata { uid, generation, labels, annotations, .. } = it.metadata.clone();
            (uid, generation, labels, annotations)
        };
        depends_on(self) == depends_on(other) && self.spec == other.spec
    }
}

impl Planned for Secret {
    fn is_same_for_plan(&self, other: &Self) -> bool {
        self == other
    }
}

impl Planned for Namespace {
    fn is_same_for_plan(&self, other: &Self) -> bool {
        self.metadata.labels == other.metadata.labels
    }
}
