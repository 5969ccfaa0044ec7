//! The measured workloads.

pub mod adverse; // those of --adverse
pub mod comparison; // the default
pub mod experiments; // those of --experiments
pub mod http3; // those of --http3

use crate::workload::Workload;

/// Returns all workloads.
pub fn all() -> impl Iterator<Item = &'static Workload> {
    let first = comparison::WORKLOADS.iter().chain(experiments::WORKLOADS);
    first.chain(adverse::WORKLOADS).chain(http3::WORKLOADS)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::peers;

    #[test]
    fn workloads_have_unique_names_and_existing_peers() {
        let peers: BTreeSet<&str> = peers::all().map(|peer| peer.name).collect();
        assert_eq!(peers.len(), peers::all().count());
        let names: BTreeSet<&str> = all().map(|workload| workload.name).collect();
        assert_eq!(names.len(), all().count());
        for workload in all() {
            let unknown: Vec<_> =
                workload.peers.iter().filter(|peer| !peers.contains(*peer)).collect();
            assert!(unknown.is_empty(), "{}: {unknown:?}", workload.name);
        }
    }
}
