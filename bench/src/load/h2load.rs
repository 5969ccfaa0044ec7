//! h2load: HTTP/2, and the seeds' fixed number of requests.

use std::fs;
use std::process::Command;

use super::{Run, Tally};
use crate::Result;
use crate::stats::percentile;
use crate::workload::{Ask, Scheme};

pub struct H2load {
    /// How many requests, or as many as there is time for.
    pub requests: Option<u32>,
    pub connections: u32,
    /// How many requests of a connection are under way at a time.
    pub streams: u32,
}

impl H2load {
    pub fn run(&self, run: &Run<'_>) -> Result<Tally> {
        let log = run.folder.join("requests.log");
        // It appends.
        let _ = fs::remove_file(&log);
        let threads = run.machine.load_cpus.len();
        let output = Command::new("h2load")
            .args(self.words(&run.url(), run.ask, run.seconds, threads))
            .current_dir(run.folder)
            .output()
            .map_err(|error| format!("h2load: {error}"))?;
        let said = String::from_utf8_lossy(&output.stdout);
        let mut tally = tally(&said)
            .ok_or_else(|| format!("h2load: {said}{}", String::from_utf8_lossy(&output.stderr)))?;
        if self.requests.is_none() {
            tally.seconds = f64::from(run.seconds);
        }
        tally.latency = latency(&fs::read_to_string(&log).unwrap_or_default());
        Ok(tally)
    }

    pub fn words(&self, url: &str, ask: &Ask, seconds: u32, threads: usize) -> Vec<String> {
        let mut words = vec![match self.requests {
            Some(requests) => format!("-n{requests}"),
            None => format!("-D{seconds}"),
        }];
        words.extend([
            format!("-c{}", self.connections),
            format!("-m{}", self.streams),
            format!("-t{threads}"),
            "--log-file=requests.log".to_owned(),
        ]);
        if ask.scheme == Scheme::Http {
            words.push("--h1".to_owned());
        }
        words.extend(ask.fields.iter().map(|(name, value)| format!("-H{name}: {value}")));
        words.push(url.to_owned());
        words
    }
}

fn tally(said: &str) -> Option<Tally> {
    let finished = said.lines().find_map(|line| line.strip_prefix("finished in "))?;
    let requests = said.lines().find_map(|line| line.strip_prefix("requests: "))?;
    let count = |what: &str| {
        requests.split(", ").find_map(|part| part.strip_suffix(what)?.trim().parse().ok())
    };
    Some(Tally {
        requests: count(" succeeded")?,
        errors: count(" failed")?,
        seconds: duration(finished.split(',').next()?)?,
        latency: None,
    })
}

/// `1.23s` or `456.78ms`.
fn duration(text: &str) -> Option<f64> {
    match text.strip_suffix("ms") {
        Some(number) => Some(number.parse::<f64>().ok()? / 1e3),
        None => text.strip_suffix('s')?.parse().ok(),
    }
}

/// The third column of the log.
fn latency(log: &str) -> Option<[f64; 3]> {
    let column = |line: &str| line.split('\t').nth(2)?.parse().ok();
    let mut times: Vec<f64> = log.lines().filter_map(column).collect();
    times.sort_by(f64::total_cmp);
    Some([percentile(&times, 500)?, percentile(&times, 990)?, percentile(&times, 999)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_h2load_says() {
        let said = "finished in 456.00ms, 81234.56 req/s, 12.00MB/s\n\
            requests: 100 total, 100 started, 100 done, 98 succeeded, 2 failed, 2 errored, 0 timeout\n";
        let tally = tally(said).unwrap();
        assert_eq!((tally.requests, tally.errors, tally.seconds), (98, 2, 0.456));
        assert_eq!(duration("1.50s"), Some(1.5));
        assert_eq!(latency("1\t200\t30\n2\t200\t10\n3\t200\t20\n"), Some([20.0, 30.0, 30.0]));
    }
}
