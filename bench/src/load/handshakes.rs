//! `openssl s_time`: handshakes, one after another.

use std::process::Command;
use std::time::Instant;

use super::{Run, Tally};
use crate::Result;

pub enum Handshakes {
    Full,
    /// All but the first, with what that was given. By TLS 1.2: where the version is 1.3, this
    /// client leaves before it has got a ticket.
    Resumed,
}

impl Handshakes {
    pub fn run(&self, run: &Run<'_>) -> Result<Tally> {
        let begun = Instant::now();
        let output = Command::new("openssl")
            .args(self.words(&format!("127.0.0.1:{}", run.server.tls_port), run.seconds))
            .output()
            .map_err(|error| format!("openssl: {error}"))?;
        let said = String::from_utf8_lossy(&output.stdout);
        let requests = count(&said)
            .ok_or_else(|| format!("openssl: {said}{}", String::from_utf8_lossy(&output.stderr)))?;
        Ok(Tally { requests, errors: 0, seconds: begun.elapsed().as_secs_f64(), latency: None })
    }

    pub fn words(&self, address: &str, seconds: u32) -> Vec<String> {
        let how = match self {
            Handshakes::Full => ["-new", "-tls1_3"],
            Handshakes::Resumed => ["-reuse", "-tls1_2"],
        };
        let seconds = seconds.to_string();
        let words = ["s_time", "-connect", address, how[0], how[1], "-time", &seconds];
        words.map(str::to_owned).to_vec()
    }
}

/// `1234 connections in 2 real seconds, 0 bytes read per connection`
fn count(said: &str) -> Option<u64> {
    let line = said.lines().find(|line| line.contains("real seconds"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_openssl_says() {
        let said = "\n\n900 connections in 0.40s; 2250.00 connections/user sec, bytes read 0\n\
            910 connections in 2 real seconds, 0 bytes read per connection\n";
        assert_eq!(super::count(said), Some(910));
    }
}
