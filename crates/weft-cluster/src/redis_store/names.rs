//! Names of the keys of a cluster.

use aws_lc_rs::digest::{SHA256, digest};

/// The names of the keys of a cluster, and of this process among its processes.
#[derive(Clone)]
pub(super) struct Names {
    prefix: String,
    pub(super) process: String,
}

impl Names {
    /// All keys of a cluster have a hash tag in common: its scripts use several keys.
    pub(super) fn new(cluster: &str, process: u64) -> Names {
        let hash = digest(&SHA256, cluster.as_bytes());
        let hash: String = hash.as_ref()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        Names { prefix: format!("weft:{{{hash}}}"), process: format!("{process:016x}") }
    }

    pub(super) fn bucket(&self, key: u128) -> String {
        format!("{}:rate:{key:032x}", self.prefix)
    }

    pub(super) fn processes(&self) -> String {
        format!("{}:processes", self.prefix)
    }

    pub(super) fn bus(&self) -> String {
        format!("{}:bus", self.prefix)
    }

    pub(super) fn value(&self, key: &str) -> String {
        format!("{}:value:{key}", self.prefix)
    }

    /// The names of all values.
    pub(super) fn index(&self) -> String {
        format!("{}:values", self.prefix)
    }

    pub(super) fn lease(&self, name: &str) -> String {
        format!("{}:lease:{name}", self.prefix)
    }
}
