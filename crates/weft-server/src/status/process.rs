//! Metrics of this process, from the kernel.

use std::fs;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

/// Metrics of the process. Values that `/proc` does not provide are `None`.
#[derive(Debug, Default, Serialize)]
pub(super) struct Process {
    pub(super) cpu_seconds: f64,
    pub(super) resident_bytes: Option<u64>,
    pub(super) open_descriptors: Option<u64>,
    pub(super) max_descriptors: Option<u64>,
}

impl Process {
    /// Reads the metrics. Blocks: a read of `/proc` may take time.
    pub(super) fn read() -> Process {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        let cpu = Duration::try_from(cpu).unwrap_or_default();
        Process {
            cpu_seconds: cpu.as_secs_f64(),
            resident_bytes: number("/proc/self/status", "VmRSS:").map(|kib| kib << 10),
            open_descriptors: open_descriptors(),
            max_descriptors: number("/proc/self/limits", "Max open files"),
        }
    }
}

/// Returns the first number after `prefix`, in the first line of `file` that starts with it.
fn number(file: &str, prefix: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let rest = text.lines().find_map(|line| line.strip_prefix(prefix))?;
    rest.split_whitespace().next()?.parse().ok()
}

fn open_descriptors() -> Option<u64> {
    let count = fs::read_dir("/proc/self/fd").ok()?.count();
    // One descriptor belongs to the open directory itself.
    Some(count.saturating_sub(1) as u64)
}
