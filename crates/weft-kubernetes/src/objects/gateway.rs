//! GatewayClass, Gateway and ReferenceGrant of the Gateway API.

use std::collections::BTreeMap;

use serde::Deserialize;

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct GatewayClass {
    pub(crate) controller_name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Gateway {
    pub(crate) gateway_class_name: String,
    pub(crate) listeners: Vec<Listener>,
    pub(crate) addresses: Vec<GatewayAddress>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct GatewayAddress {
    #[serde(rename = "type")]
    pub(crate) kind: Option<String>,
    pub(crate) value: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Listener {
    pub(crate) name: String,
    pub(crate) hostname: Option<String>,
    pub(crate) port: u16,
    pub(crate) protocol: String,
    pub(crate) tls: Option<ListenerTls>,
    pub(crate) allowed_routes: AllowedRoutes,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ListenerTls {
    pub(crate) mode: Option<String>,
    pub(crate) certificate_refs: Vec<ObjectReference>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct AllowedRoutes {
    pub(crate) namespaces: RouteNamespaces,
    pub(crate) kinds: Vec<RouteKind>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct RouteNamespaces {
    pub(crate) from: Option<String>,
    pub(crate) selector: Option<LabelSelector>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct RouteKind {
    pub(crate) group: Option<String>,
    pub(crate) kind: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct LabelSelector {
    pub(crate) match_labels: BTreeMap<String, String>,
    pub(crate) match_expressions: Vec<LabelExpression>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct LabelExpression {
    pub(crate) key: String,
    pub(crate) operator: String,
    pub(crate) values: Vec<String>,
}

impl LabelSelector {
    /// Returns true if the labels of an object match. A selector without requirements matches all.
    pub(crate) fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let has = |(key, value): (&String, &String)| labels.get(key) == Some(value);
        self.match_labels.iter().all(has)
            && self.match_expressions.iter().all(|it| it.matches(labels))
    }
}

impl LabelExpression {
    fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        let is_listed = value.is_some_and(|value| self.values.contains(value));
        match &*self.operator {
            "In" => is_listed,
            "NotIn" => !is_listed,
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            // An unknown operator selects nothing.
            _ => false,
        }
    }
}

/// Reference to another object: a Secret, or a Service with a port.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ObjectReference {
    pub(crate) group: Option<String>,
    pub(crate) kind: Option<String>,
    pub(crate) name: String,
    pub(crate) namespace: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ReferenceGrant {
    pub(crate) from: Vec<GrantFrom>,
    pub(crate) to: Vec<GrantTo>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct GrantFrom {
    pub(crate) group: String,
    pub(crate) kind: String,
    pub(crate) namespace: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct GrantTo {
    pub(crate) group: String,
    pub(crate) kind: String,
    pub(crate) name: Option<String>,
}
