//! Service, EndpointSlice, Secret and Namespace.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer};

use super::metadata::{Metadata, ObjectName};

/// Label of a slice with the name of its service.
const SERVICE_LABEL: &str = "kubernetes.io/service-name";

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Service {
    #[serde(rename = "type")]
    pub(crate) kind: Option<String>,
    pub(crate) external_name: Option<String>,
    pub(crate) ports: Vec<ServicePort>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ServicePort {
    pub(crate) name: String,
    pub(crate) port: u16,
    pub(crate) protocol: Option<String>,
    pub(crate) app_protocol: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct EndpointSlice {
    pub(crate) metadata: SliceMetadata,
    pub(crate) address_type: String,
    #[serde(deserialize_with = "list_or_null")]
    pub(crate) endpoints: Vec<Endpoint>,
    #[serde(deserialize_with = "list_or_null")]
    pub(crate) ports: Vec<EndpointPort>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SliceMetadata {
    pub(crate) namespace: String,
    pub(crate) labels: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Endpoint {
    pub(crate) addresses: Vec<String>,
    pub(crate) conditions: EndpointConditions,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct EndpointConditions {
    pub(crate) ready: Option<bool>,
    pub(crate) serving: Option<bool>,
    pub(crate) terminating: Option<bool>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct EndpointPort {
    pub(crate) name: Option<String>,
    pub(crate) port: Option<u16>,
}

/// Reads a list; the API server writes `null` for an empty one.
fn list_or_null<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

impl EndpointSlice {
    /// Returns the service that the endpoints belong to.
    pub(crate) fn service(&self) -> Option<ObjectName> {
        let name = self.metadata.labels.get(SERVICE_LABEL)?;
        Some(ObjectName::new(&self.metadata.namespace, name))
    }
}

/// A Secret with a certificate, as base64.
#[derive(Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Secret {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) data: BTreeMap<String, String>,
}

/// Shows no value.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret").field("kind", &self.kind).finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Namespace {
    pub(crate) metadata: Metadata,
}
