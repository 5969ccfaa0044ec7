//! Statuses of objects: conditions, without times.

use serde_json::{Value, json};

use crate::objects::ObjectRef;
use crate::objects::http_route::ParentReference;

/// A condition of an object or of a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Type, such as `Accepted`.
    pub kind: &'static str,
    /// True if the condition holds.
    pub is_true: bool,
    /// Reason in one word.
    pub reason: &'static str,
    /// Explanation.
    pub message: String,
}

impl Condition {
    pub(super) fn new(
        kind: &'static str,
        is_true: bool,
        reason: &'static str,
        message: impl Into<String>,
    ) -> Condition {
        let mut message = message.into();
        if message.len() > MAX_MESSAGE_BYTES {
            let end = (0..=MAX_MESSAGE_BYTES).rev().find(|at| message.is_char_boundary(*at));
            message.truncate(end.unwrap_or_default());
        }
        Condition { kind, is_true, reason, message }
    }
}

/// Maximum size of a message; the API server refuses messages over 32 KiB.
const MAX_MESSAGE_BYTES: usize = 2_048;

/// Status of an object, as this controller sets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectStatus {
    /// Conditions of a GatewayClass.
    GatewayClass(Vec<Condition>),
    /// Status of a Gateway.
    Gateway(GatewayStatus),
    /// Status of a route for each of its parents.
    Route(Vec<ParentStatus>),
    /// Addresses of an Ingress.
    Ingress(Vec<String>),
}

/// Status of a Gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GatewayStatus {
    /// Addresses at which clients reach the listeners.
    pub addresses: Vec<String>,
    /// Conditions of the Gateway.
    pub conditions: Vec<Condition>,
    /// Statuses of the listeners, in their order.
    pub listeners: Vec<ListenerStatus>,
}

/// Status of a listener.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListenerStatus {
    /// Name of the listener.
    pub name: String,
    /// Kinds of routes that may be attached.
    pub supported_kinds: Vec<&'static str>,
    /// Number of attached routes.
    pub attached_routes: u32,
    /// Conditions of the listener.
    pub conditions: Vec<Condition>,
}

/// Status of a route for one of its parents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParentStatus {
    /// The parent, as the route names it.
    pub parent: Value,
    /// Conditions.
    pub conditions: Vec<Condition>,
}

/// An event about an object, for its owner.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectEvent {
    /// The object.
    pub object: ObjectRef,
    /// Reason in one word.
    pub reason: &'static str,
    /// Explanation.
    pub message: String,
}

/// Returns a reference to a parent as JSON, with the fields that the route has set and the defaults
/// of the API.
pub(super) fn parent_json(parent: &ParentReference, namespace: &str) -> Value {
    let mut json = json!({
        "group": parent.group.as_deref().unwrap_or("gateway.networking.k8s.io"),
        "kind": parent.kind.as_deref().unwrap_or("Gateway"),
        "namespace": parent.namespace.as_deref().unwrap_or(namespace),
        "name": parent.name,
    });
    if let Some(section) = &parent.section_name {
        json["sectionName"] = json!(section);
    }
    if let Some(port) = parent.port {
        json["port"] = json!(port);
    }
    json
}
