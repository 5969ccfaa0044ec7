//! Names and metadata of objects.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde_json::Value;

use super::kind::Kind;

/// Namespace and name of an object. The namespace of a cluster-scoped object is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectName {
    /// Namespace; empty for a cluster-scoped object.
    pub namespace: String,
    /// Name in the namespace.
    pub name: String,
}

/// Kind, namespace and name of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectRef {
    /// Kind of the object.
    pub kind: Kind,
    /// Namespace and name.
    pub name: ObjectName,
}

impl ObjectName {
    pub(crate) fn new(namespace: &str, name: &str) -> ObjectName {
        ObjectName { namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace.is_empty() {
            true => f.write_str(&self.name),
            false => write!(f, "{}/{}", self.namespace, self.name),
        }
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.name)
    }
}

/// Metadata of an object.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Metadata {
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) uid: String,
    pub(crate) generation: i64,
    pub(crate) resource_version: String,
    /// RFC 3339, in UTC and of one length, so that texts are compared.
    pub(crate) creation_timestamp: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) annotations: BTreeMap<String, String>,
}

impl Metadata {
    pub(crate) fn object_name(&self) -> ObjectName {
        ObjectName::new(&self.namespace, &self.name)
    }

    /// Position of an object among others: older objects come first, then those with a smaller
    /// name.
    pub(crate) fn age_order(&self) -> (&str, &str, &str) {
        (&self.creation_timestamp, &self.namespace, &self.name)
    }
}

/// An object with a specification, and its status as JSON.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Object<S> {
    pub(crate) metadata: Metadata,
    pub(crate) spec: S,
    /// Status that the API server has; the writer of statuses compares it with the status of the
    /// plan.
    pub(crate) status: Value,
}
