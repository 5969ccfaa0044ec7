//! State and counts of a cluster, for its operator.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

/// State and counts of a cluster in this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClusterStatus {
    /// The store answers.
    pub is_connected: bool,
    /// Number of processes of the cluster, as of the last answer of the store.
    pub processes: u32,
    /// Messages that the store has accepted from this process.
    pub published: u64,
    /// Messages of other processes.
    pub received: u64,
    /// Messages that no process with the secret has sent.
    pub forged: u64,
    /// Interruptions in which messages were lost.
    pub gaps: u64,
}

/// The state, while it changes.
#[derive(Default)]
pub(crate) struct StatusCell {
    is_connected: AtomicBool,
    processes: AtomicU32,
    pub(crate) published: AtomicU64,
    pub(crate) received: AtomicU64,
    pub(crate) forged: AtomicU64,
    pub(crate) gaps: AtomicU64,
}

impl StatusCell {
    pub(crate) fn set_link(&self, is_connected: bool, processes: u32) {
        self.is_connected.store(is_connected, Relaxed);
        self.processes.store(processes, Relaxed);
    }

    pub(crate) fn status(&self) -> ClusterStatus {
        ClusterStatus {
            is_connected: self.is_connected.load(Relaxed),
            processes: self.processes.load(Relaxed),
            published: self.published.load(Relaxed),
            received: self.received.load(Relaxed),
            forged: self.forged.load(Relaxed),
            gaps: self.gaps.load(Relaxed),
        }
    }
}
