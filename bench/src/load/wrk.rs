//! wrk: HTTP/1 in a closed loop.

use std::process::Command;

use super::{LoadResult, Run};
use crate::Result;
use crate::request::RequestSpec;

pub struct Wrk {
    pub connections: u32,
    /// The number of requests per write.
    pub pipelined: u32,
    /// Requests `/slow` with each hundredth request.
    pub slow: bool,
    /// Pauses each connection for 1 ms before a request.
    pub has_pause: bool,
}

impl Wrk {
    pub const fn new(connections: u32) -> Wrk {
        Wrk { connections, pipelined: 1, slow: false, has_pause: false }
    }

    pub fn run(&self, run: &Run<'_>) -> Result<LoadResult> {
        let script = run.folder.join("wrk.lua");
        std::fs::write(&script, include_str!("wrk.lua")).map_err(|error| error.to_string())?;
        let threads = run.machine.load_cpus.len().min(self.connections as usize);
        let output = Command::new("wrk")
            .args(self.arguments(&run.url(), run.request, run.seconds, threads))
            .current_dir(run.folder)
            .output()
            .map_err(|error| format!("wrk: {error}"))?;
        let stdout = String::from_utf8_lossy(&output.stdout);
        parse(&stdout)
            .ok_or_else(|| format!("wrk: {}", String::from_utf8_lossy(&output.stderr).trim()))
    }

    pub fn arguments(
        &self,
        url: &str,
        request: &RequestSpec,
        seconds: u32,
        threads: usize,
    ) -> Vec<String> {
        let mut arguments = vec![
            format!("-t{threads}"),
            format!("-c{}", self.connections),
            format!("-d{seconds}s"),
            "--timeout".to_owned(),
            "10s".to_owned(),
        ];
        for (name, value) in request.fields {
            arguments.extend(["-H".to_owned(), format!("{name}: {value}")]);
        }
        let slow = if self.slow { "/slow" } else { "-" };
        arguments.extend(["-s", "wrk.lua", url, "--"].map(str::to_owned));
        let pause = if self.has_pause { "1" } else { "0" };
        let varied = if request.varies { "4096" } else { "1" };
        let script =
            [self.pipelined.to_string(), slow.to_owned(), pause.to_owned(), varied.to_owned()];
        arguments.extend(script);
        arguments
    }
}

/// Parses the line that `wrk.lua` writes.
fn parse(stdout: &str) -> Option<LoadResult> {
    let line = stdout.lines().find_map(|line| line.strip_prefix("result "))?;
    let numbers: Vec<f64> =
        line.split(' ').map(|number| number.parse().ok()).collect::<Option<_>>()?;
    let [requests, errors, micros, p50, p99, p999] = numbers[..] else { return None };
    Some(LoadResult {
        requests: requests as u64,
        errors: errors as u64,
        seconds: micros / 1e6,
        latency: Some([p50, p99, p999]),
    })
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn parses_result_line_of_the_script() {
        let result = parse("ServerHandle 1s test\nresult 100 2 1500000 50 990 9990\n").unwrap();
        assert_eq!((result.requests, result.errors, result.seconds), (100, 2, 1.5));
        assert_eq!(result.latency, Some([50.0, 990.0, 9990.0]));
        assert!(parse("unable to connect\n").is_none());
    }
}
