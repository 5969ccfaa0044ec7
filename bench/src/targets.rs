//! What Weft means to reach: CPU time per request beside that of others in the same run; and
//! what the floor reaches, below which two system calls cannot be made.

use crate::measure::Table;
use crate::stats::{CONNECTION, CPU, Ratio, median_of, ratio};

/// The CPU time of Weft's first peer in a workload may be at most so many times another's.
const AT_MOST: &[(&str, &str, f64)] = &[
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

/// Memory that an idle connection may cost.
const IDLE_BYTES: f64 = 1_500.0;

/// Two workers beside one.
const TWO_WORKERS: f64 = 1.05;

/// A target and what was measured of it.
pub struct Outcome {
    pub what: String,
    pub target: f64,
    pub found: Ratio,
    /// Of a server that does nothing but to receive and to send.
    pub floor: Option<f64>,
}

/// That server.
const FLOOR: &str = "epoll";

impl Outcome {
    pub fn is_met(&self) -> bool {
        self.found.median <= self.target
    }
}

/// Those of which something was measured.
pub fn outcomes(tables: &[Table]) -> Vec<Outcome> {
    let mut outcomes: Vec<Outcome> =
        AT_MOST.iter().filter_map(|target| cpu(tables, target)).collect();
    outcomes.extend(idle(tables));
    outcomes.extend(two_workers(tables));
    outcomes
}

fn cpu(tables: &[Table], &(workload, peer, target): &(&str, &str, f64)) -> Option<Outcome> {
    let table = tables.iter().find(|table| table.workload.name == workload)?;
    let theirs = &table.alone(peer)?.rounds;
    let found = ratio(&table.ours(1)?.rounds, theirs, CPU)?;
    let floor = table.alone(FLOOR).filter(|_| peer != FLOOR);
    let floor = floor.and_then(|floor| Some(ratio(&floor.rounds, theirs, CPU)?.median));
    let what = format!("{}: CPU time, Weft : {peer}", table.workload.title);
    Some(Outcome { what, target, found, floor })
}

fn idle(tables: &[Table]) -> Option<Outcome> {
    let table = tables.iter().find(|table| table.workload.name == "idle")?;
    let rounds = &table.ours(1)?.rounds;
    let bytes = rounds.iter().flatten().filter_map(CONNECTION);
    let (low, high) =
        bytes.fold((f64::MAX, f64::MIN), |(low, high), bytes| (low.min(bytes), high.max(bytes)));
    let found = Ratio { median: median_of(rounds, CONNECTION)?, low, high };
    let what = "bytes per idle connection".into();
    Some(Outcome { what, target: IDLE_BYTES, found, floor: None })
}

fn two_workers(tables: &[Table]) -> Option<Outcome> {
    let table = tables.iter().find(|table| table.workload.name == "two-workers")?;
    let found = ratio(&table.ours(2)?.rounds, &table.ours(1)?.rounds, CPU)?;
    let what = "CPU time, two workers : one".into();
    Some(Outcome { what, target: TWO_WORKERS, found, floor: None })
}

#[cfg(test)]
mod tests {
    use super::AT_MOST;
    use crate::workload;

    #[test]
    fn targets_are_about_what_is_measured() {
        for (name, peer, _) in AT_MOST {
            let workload = workload::usual().find(|workload| workload.name == *name);
            assert!(
                workload.is_some_and(|workload| workload.peers.contains(peer)),
                "{name}: {peer}"
            );
        }
    }
}
