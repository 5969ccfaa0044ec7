//! Metrics of this process, from the kernel.

use serde::Serialize;

use crate::base::sys::{cpu_time, descriptor_limit, open_descriptors, resident_bytes};

/// Metrics of the process. Values that the system does not report are `None`.
#[derive(Debug, Default, Serialize)]
pub(super) struct Process {
    pub(super) cpu_seconds: f64,
    pub(super) resident_bytes: Option<u64>,
    pub(super) open_descriptors: Option<u64>,
    pub(super) max_descriptors: Option<u64>,
}

impl Process {
    /// Reads the metrics. Blocks: the system may take time for a report.
    pub(super) fn read() -> Process {
        Process {
            cpu_seconds: cpu_time().as_secs_f64(),
            resident_bytes: resident_bytes(),
            open_descriptors: open_descriptors(),
            max_descriptors: descriptor_limit().soft,
        }
    }
}
