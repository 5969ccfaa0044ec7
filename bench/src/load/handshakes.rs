//! `openssl s_time`: sequential handshakes.

use std::process::Command;
use std::time::Instant;

use super::{LoadResult, Run};
use crate::Result;

pub enum Handshakes {
    Full,
    /// Full handshakes, each with a request for the path of the workload.
    WithRequest,
    /// All handshakes except the first resume its session. With TLS 1.2: under TLS 1.3 this client
    /// disconnects before it has received a ticket.
    Resumed,
}

impl Handshakes {
    pub fn run(&self, run: &Run<'_>) -> Result<LoadResult> {
        let start = Instant::now();
        let output = Command::new("openssl")
            .args(self.arguments(&format!("127.0.0.1:{}", run.server.tls_port), run.seconds))
            .args(self.path(run.request.path))
            .output()
            .map_err(|error| format!("openssl: {error}"))?;
        let stdout = String::from_utf8_lossy(&output.stdout);
        let requests = count(&stdout).ok_or_else(|| {
            format!("openssl: {stdout}{}", String::from_utf8_lossy(&output.stderr))
        })?;
        Ok(LoadResult {
            requests,
            errors: 0,
            seconds: start.elapsed().as_secs_f64(),
            latency: None,
        })
    }

    fn path<'a>(&self, path: &'a str) -> Vec<&'a str> {
        match self {
            Handshakes::WithRequest => vec!["-www", path],
            Handshakes::Full | Handshakes::Resumed => Vec::new(),
        }
    }

    pub fn arguments(&self, address: &str, seconds: u32) -> Vec<String> {
        let options = match self {
            Handshakes::Full | Handshakes::WithRequest => ["-new", "-tls1_3"],
            Handshakes::Resumed => ["-reuse", "-tls1_2"],
        };
        let seconds = seconds.to_string();
        let arguments = ["s_time", "-connect", address, options[0], options[1], "-time", &seconds];
        arguments.map(str::to_owned).to_vec()
    }
}

/// Parses `1234 connections in 2 real seconds, 0 bytes read per connection`
fn count(stdout: &str) -> Option<u64> {
    let line = stdout.lines().find(|line| line.contains("real seconds"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn parses_output_of_openssl() {
        let stdout = "\n\n900 connections in 0.40s; 2250.00 connections/user sec, bytes read 0\n\
            910 connections in 2 real seconds, 0 bytes read per connection\n";
        assert_eq!(super::count(stdout), Some(910));
    }
}
