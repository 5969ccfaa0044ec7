//! The performance targets: CPU time per request relative to other servers in the same run, and the
//! lower bound, the ratio of a server that only makes the two necessary system calls.

use crate::measure::Table;
use crate::stats::{CONNECTION, CPU, Ratio, median_of, ratio};

/// Workload, server, and the maximum ratio of Weft's CPU time to that of the server.
const MAX_CPU_RATIOS: &[(&str, &str, f64)] = &[
    ("memory", "epoll", 1.08),
    ("memory", "hyper", 0.90),
    ("memory", "axum", 0.85),
    ("memory", "actix", 0.90),
    ("browser", "epoll", 1.09),
    ("browser", "hyper", 0.87),
    ("browser", "axum", 0.75),
    ("pipelined", "epoll", 1.35),
    ("pipelined", "hyper", 0.60),
    ("pipelined", "nginx", 0.12),
    ("file", "nginx", 0.68),
    ("file", "h2o", 0.80),
    ("file", "warp", 0.42),
    ("file-16k", "nginx", 0.80),
    ("file-full", "nginx", 0.68),
    ("file-16k-full", "nginx", 0.80),
    ("file-1m", "nginx", 1.00),
    ("churn", "nginx", 1.00),
    ("proxy", "nginx", 1.00),
    ("h2-memory", "hyper", 0.90),
    ("tls-handshake", "nginx", 1.00),
    ("tls-bulk", "nginx", 1.10),
    ("axum", "axum", 0.95),
];

/// Maximum memory per idle connection in bytes.
const MAX_IDLE_BYTES: f64 = 1_500.0;

/// Maximum ratio of the CPU time of two workers to that of one.
const MAX_TWO_WORKERS_RATIO: f64 = 1.05;

/// A target and its measured value.
pub struct Outcome {
    pub name: String,
    pub target: f64,
    pub measured: Ratio,
    /// The ratio of a server that only receives and sends.
    pub lower_bound: Option<f64>,
}

/// The server of the lower bound.
const LOWER_BOUND: &str = "epoll";

impl Outcome {
    pub fn is_met(&self) -> bool {
        self.measured.median <= self.target
    }
}

/// Returns the outcomes of all targets with measurements.
pub fn outcomes(tables: &[Table]) -> Vec<Outcome> {
    let mut outcomes: Vec<Outcome> =
        MAX_CPU_RATIOS.iter().filter_map(|target| cpu(tables, target)).collect();
    outcomes.extend(idle(tables));
    outcomes.extend(two_workers(tables));
    outcomes
}

fn cpu(tables: &[Table], &(workload, peer, target): &(&str, &str, f64)) -> Option<Outcome> {
    let table = tables.iter().find(|table| table.workload.name == workload)?;
    let theirs = &table.with_one_worker(peer)?.rounds;
    let measured = ratio(&table.reference(1)?.rounds, theirs, CPU)?;
    let bound = table.with_one_worker(LOWER_BOUND).filter(|_| peer != LOWER_BOUND);
    let lower_bound = bound.and_then(|bound| Some(ratio(&bound.rounds, theirs, CPU)?.median));
    let name = format!("{}: CPU time, Weft : {peer}", table.workload.title);
    Some(Outcome { name, target, measured, lower_bound })
}

fn idle(tables: &[Table]) -> Option<Outcome> {
    let table = tables.iter().find(|table| table.workload.name == "idle")?;
    let rounds = &table.reference(1)?.rounds;
    let bytes = rounds.iter().flatten().filter_map(CONNECTION);
    let (low, high) =
        bytes.fold((f64::MAX, f64::MIN), |(low, high), bytes| (low.min(bytes), high.max(bytes)));
    let measured = Ratio { median: median_of(rounds, CONNECTION)?, low, high };
    let name = "bytes per idle connection".into();
    Some(Outcome { name, target: MAX_IDLE_BYTES, measured, lower_bound: None })
}

fn two_workers(tables: &[Table]) -> Option<Outcome> {
    let table = tables.iter().find(|table| table.workload.name == "two-workers")?;
    let measured = ratio(&table.reference(2)?.rounds, &table.reference(1)?.rounds, CPU)?;
    let name = "CPU time, two workers : one".into();
    Some(Outcome { name, target: MAX_TWO_WORKERS_RATIO, measured, lower_bound: None })
}

#[cfg(test)]
mod tests {
    use super::MAX_CPU_RATIOS;
    use crate::workloads::comparison::WORKLOADS;

    #[test]
    fn targets_refer_to_existing_workloads_and_peers() {
        for (name, peer, _) in MAX_CPU_RATIOS {
            let workload = WORKLOADS.iter().find(|workload| workload.name == *name);
            assert!(
                workload.is_some_and(|workload| workload.peers.contains(peer)),
                "{name}: {peer}"
            );
        }
    }
}
