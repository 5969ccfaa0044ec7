//! h2load: HTTP/2, and fixed numbers of requests.

use std::fs;
use std::process::Command;

use super::{LoadResult, Run};
use crate::Result;
use crate::request::{RequestSpec, Scheme};
use crate::stats::percentile;

/// The file with the URLs of requests that differ, which the program cannot let differ in fields.
const URLS: &str = "urls";

pub struct H2load {
    /// The number of requests; `None` for a fixed duration.
    pub requests: Option<u32>,
    pub connections: u32,
    /// The number of concurrent requests per connection.
    pub streams: u32,
}

impl H2load {
    /// The arguments for a gRPC message in the file `message`.
    pub const GRPC: [&str; 6] =
        ["-d", "message", "-H", "content-type: application/grpc", "-H", "te: trailers"];

    /// The arguments for a JSON document in the file `document`.
    pub const JSON: [&str; 4] = ["-d", "document", "-H", "content-type: application/json"];

    pub fn run(&self, run: &Run<'_>) -> Result<LoadResult> {
        self.run_with(run, &[])
    }

    /// Sends a message with a text of 100 bytes as its first field.
    pub fn run_grpc(&self, run: &Run<'_>) -> Result<LoadResult> {
        let message = [&[0, 0, 0, 0, 102, 10, 100][..], &[b'x'; 100]].concat();
        let path = run.folder.join("message");
        fs::write(&path, message).map_err(|error| format!("{}: {error}", path.display()))?;
        self.run_with(run, &H2load::GRPC)
    }

    /// Sends a document of 100 bytes.
    pub fn run_json(&self, run: &Run<'_>) -> Result<LoadResult> {
        let text = "x".repeat(50);
        let document = format!("{{\"id\":1234567,\"is_active\":true,\"name\":\"{text}\"}}");
        let path = run.folder.join("document");
        fs::write(&path, document).map_err(|error| format!("{}: {error}", path.display()))?;
        self.run_with(run, &H2load::JSON)
    }

    fn run_with(&self, run: &Run<'_>, further: &[&str]) -> Result<LoadResult> {
        let log = run.folder.join("requests.log");
        // h2load appends to its log.
        let _ = fs::remove_file(&log);
        let threads = run.machine.load_cpus.len();
        if run.request.varies {
            let path = run.folder.join(URLS);
            let urls: String = (0..500).map(|id| format!("{}?id={id}\n", run.url())).collect();
            fs::write(&path, urls).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        let output = Command::new("h2load")
            .args(further)
            .args(self.arguments(&run.url(), run.request, run.seconds, threads))
            .current_dir(run.folder)
            .output()
            .map_err(|error| format!("h2load: {error}"))?;
        let stdout = String::from_utf8_lossy(&output.stdout);
        let mut result = parse(&stdout).ok_or_else(|| {
            format!("h2load: {stdout}{}", String::from_utf8_lossy(&output.stderr))
        })?;
        if self.requests.is_none() {
            result.seconds = f64::from(run.seconds);
        }
        result.latency = latency(&fs::read_to_string(&log).unwrap_or_default());
        Ok(result)
    }

    pub fn arguments(
        &self,
        url: &str,
        request: &RequestSpec,
        seconds: u32,
        threads: usize,
    ) -> Vec<String> {
        let mut arguments = vec![match self.requests {
            Some(requests) => format!("-n{requests}"),
            None => format!("-D{seconds}"),
        }];
        arguments.extend([
            format!("-c{}", self.connections),
            format!("-m{}", self.streams),
            format!("-t{threads}"),
            "--log-file=requests.log".to_owned(),
        ]);
        if request.scheme == Scheme::Http {
            arguments.push("--h1".to_owned());
        }
        arguments.extend(request.fields.iter().map(|(name, value)| format!("-H{name}: {value}")));
        match request.varies {
            true => arguments.extend(["-i", URLS].map(str::to_owned)),
            false => arguments.push(url.to_owned()),
        }
        arguments
    }
}

/// Parses the output of h2load.
fn parse(stdout: &str) -> Option<LoadResult> {
    let finished = stdout.lines().find_map(|line| line.strip_prefix("finished in "))?;
    let requests = stdout.lines().find_map(|line| line.strip_prefix("requests: "))?;
    let count = |suffix: &str| {
        requests.split(", ").find_map(|part| part.strip_suffix(suffix)?.trim().parse().ok())
    };
    Some(LoadResult {
        requests: count(" succeeded")?,
        errors: count(" failed")?,
        seconds: duration(finished.split(',').next()?)?,
        latency: None,
    })
}

/// Parses a duration in seconds: `1.23s` or `456.78ms`.
fn duration(text: &str) -> Option<f64> {
    match text.strip_suffix("ms") {
        Some(number) => Some(number.parse::<f64>().ok()? / 1e3),
        None => text.strip_suffix('s')?.parse().ok(),
    }
}

/// Returns the percentiles of the third column of the log.
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
    fn parses_output_of_h2load() {
        let stdout = "finished in 456.00ms, 81234.56 req/s, 12.00MB/s\n\
            requests: 100 total, 100 started, 100 done, 98 succeeded, 2 failed, 2 errored, 0 timeout\n";
        let result = parse(stdout).unwrap();
        assert_eq!((result.requests, result.errors, result.seconds), (98, 2, 0.456));
        assert_eq!(duration("1.50s"), Some(1.5));
        assert_eq!(latency("1\t200\t30\n2\t200\t10\n3\t200\t20\n"), Some([20.0, 30.0, 30.0]));
    }
}
