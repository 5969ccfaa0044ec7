//! Everything that follows from the objects of the cluster.

use std::collections::{BTreeMap, BTreeSet};

use super::conditions::{ObjectEvent, ObjectStatus};
use super::endpoints::Pool;
use crate::objects::{ObjectName, ObjectRef};

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
    pub(super) owners: BTreeMap<usize, ObjectRef>,
    /// Pools of endpoints, by the names of upstreams in the text.
    pub pools: BTreeMap<String, Pool>,
    pub(super) pools_of_services: BTreeMap<ObjectName, Vec<String>>,
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
    /// Returns the names of the pools with endpoints of a service.
    pub fn pools_of(&self, service: &ObjectName) -> impl Iterator<Item = &String> {
        self.pools_of_services.get(service).into_iter().flatten()
    }

    /// Returns the object whose routes are in a line of the text, counted from 1.
    pub fn owner_of_line(&self, line: usize) -> Option<&ObjectRef> {
        self.owners.get(&line)
    }
}
