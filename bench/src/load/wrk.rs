//! wrk: HTTP/1 as fast as the answers come.

use std::process::Command;

use super::{Run, Tally};
use crate::Result;
use crate::workload::Ask;

pub struct Wrk {
    pub connections: u32,
    /// How many requests go in one write.
    pub pipelined: u32,
    /// Whether each hundredth request is for `/slow`.
    pub slow: bool,
    /// Whether a connection rests for a millisecond before its next request.
    pub rests: bool,
}

impl Wrk {
    pub const fn new(connections: u32) -> Wrk {
        Wrk { connections, pipelined: 1, slow: false, rests: false }
    }

    pub fn run(&self, run: &Run<'_>) -> Result<Tally> {
        let script = run.folder.join("wrk.lua");
        std::fs::write(&script, include_str!("wrk.lua")).map_err(|error| error.to_string())?;
        let threads = run.machine.load_cpus.len().min(self.connections as usize);
        let output = Command::new("wrk")
            .args(self.words(&run.url(), run.ask, run.seconds, threads))
            .current_dir(run.folder)
            .output()
            .map_err(|error| format!("wrk: {error}"))?;
        let said = String::from_utf8_lossy(&output.stdout);
        tally(&said)
            .ok_or_else(|| format!("wrk: {}", String::from_utf8_lossy(&output.stderr).trim()))
    }

    pub fn words(&self, url: &str, ask: &Ask, seconds: u32, threads: usize) -> Vec<String> {
        let mut words = vec![
            format!("-t{threads}"),
            format!("-c{}", self.connections),
            format!("-d{seconds}s"),
            "--timeout".to_owned(),
            "10s".to_owned(),
        ];
        for (name, value) in ask.fields {
            words.extend(["-H".to_owned(), format!("{name}: {value}")]);
        }
        let slow = if self.slow { "/slow" } else { "-" };
        words.extend(["-s", "wrk.lua", url, "--"].map(str::to_owned));
        let rest = if self.rests { "1" } else { "0" };
        words.extend([self.pipelined.to_string(), slow.to_owned(), rest.to_owned()]);
        words
    }
}

/// Reads the line that our script writes.
fn tally(said: &str) -> Option<Tally> {
    let line = said.lines().find_map(|line| line.strip_prefix("tally "))?;
    let numbers: Vec<f64> =
        line.split(' ').map(|number| number.parse().ok()).collect::<Option<_>>()?;
    let [requests, errors, micros, p50, p99, p999] = numbers[..] else { return None };
    Some(Tally {
        requests: requests as u64,
        errors: errors as u64,
        seconds: micros / 1e6,
        latency: Some([p50, p99, p999]),
    })
}

#[cfg(test)]
mod tests {
    use super::tally;

    #[test]
    fn the_line_of_the_script() {
        let tally = tally("Running 1s test\ntally 100 2 1500000 50 990 9990\n").unwrap();
        assert_eq!((tally.requests, tally.errors, tally.seconds), (100, 2, 1.5));
        assert_eq!(tally.latency, Some([50.0, 990.0, 9990.0]));
        assert!(super::tally("unable to connect\n").is_none());
    }
}
