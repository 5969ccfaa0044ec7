//! `http3-load`: HTTP/3 by a client of this workspace, which verifies each response.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::{LoadResult, Run};
use crate::Result;
use crate::stats::Sample;

pub struct Http3 {
    pub connections: u32,
    pub mode: Mode,
}

#[derive(Clone, Copy)]
pub enum Mode {
    /// So many requests in progress on each connection.
    Streams(u32),
    /// A connection for each request.
    Handshakes,
    /// The same, resuming the session of an earlier connection.
    Resumed,
    /// Connections that are kept after one request.
    Idle,
}

/// The running client, between its lines `begin` and `end`.
struct Client {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Http3 {
    /// Measures the part of the load behind the handshakes and the warm-up.
    pub fn run(&self, run: &Run<'_>) -> Result<Sample> {
        let memory = run.server.memory_kib();
        let mut client = self.start(run)?;
        client.line("begin")?;
        if let Mode::Idle = self.mode {
            let growth = run.server.memory_kib().saturating_sub(memory);
            return self.idle(client, growth);
        }
        let before = run.server.cpu();
        let line = client.line("end")?;
        let (after, memory_kib) = (run.server.cpu(), run.server.memory_kib());
        client.finish()?;
        let LoadResult { requests, errors, seconds, latency } =
            parse(&line).ok_or_else(|| format!("http3-load: {line:?}"))?;
        // Few failed handshakes are in the report.
        let is_handshake = matches!(self.mode, Mode::Handshakes | Mode::Resumed);
        if requests == 0 || errors > 0 && !is_handshake || errors * 100 > requests {
            return Err(format!("{errors} errors, {requests} responses"));
        }
        Ok(Sample {
            requests,
            errors,
            seconds,
            cpu_seconds: after.seconds_since(&before),
            system_seconds: after.system_seconds_since(&before),
            latency,
            memory_kib,
            ..Sample::default()
        })
    }

    fn idle(&self, mut client: Client, growth_kib: u64) -> Result<Sample> {
        drop(client.child.stdin.take());
        let line = client.line("end")?;
        client.finish()?;
        let open = value(&line, "open").unwrap_or(0.0) as u32;
        if open != self.connections {
            return Err(format!("{open} of {} connections are open", self.connections));
        }
        let connection_bytes = Some(growth_kib as f64 * 1024.0 / f64::from(self.connections));
        let requests = self.connections.into();
        Ok(Sample { requests, seconds: 1.0, connection_bytes, ..Sample::default() })
    }

    fn start(&self, run: &Run<'_>) -> Result<Client> {
        let file = run.site.file(run.request.path);
        let address = format!("127.0.0.1:{}", run.server.tls_port);
        let mut command = Command::new(program()?);
        command.args(self.arguments(&address, run.request.path, &file, run.seconds));
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.map_err(|error| format!("http3-load: {error}"))?;
        let output = child.stdout.take().ok_or("http3-load has no output")?;
        Ok(Client { child, output: BufReader::new(output) })
    }

    pub fn arguments(&self, address: &str, path: &str, file: &Path, seconds: u32) -> Vec<String> {
        let options = match self.mode {
            Mode::Streams(streams) => format!("--streams {streams} --seconds {seconds}"),
            Mode::Handshakes => format!("--handshakes --seconds {seconds}"),
            Mode::Resumed => format!("--handshakes --resume --seconds {seconds}"),
            Mode::Idle => "--idle".to_owned(),
        };
        let mut arguments = vec![address.to_owned(), path.to_owned(), file.display().to_string()];
        arguments.extend(["--connections".to_owned(), self.connections.to_string()]);
        arguments.extend(options.split(' ').map(str::to_owned));
        arguments
    }
}

impl Client {
    /// Returns the next line, which must begin with this word.
    fn line(&mut self, word: &str) -> Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line).map_err(|error| format!("http3-load: {error}"))?;
        match line.starts_with(word) {
            true => Ok(line),
            false => Err(format!("http3-load printed {line:?} instead of {word:?}")),
        }
    }

    fn finish(mut self) -> Result<()> {
        drop(self.child.stdin.take());
        self.child.wait().map(drop).map_err(|error| format!("http3-load: {error}"))
    }
}

/// Ends the client of a failed measurement.
impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn program() -> Result<PathBuf> {
    let exe = std::env::current_exe().map_err(|error| error.to_string())?;
    Ok(exe.with_file_name("http3-load"))
}

/// Parses `end requests=10 errors=0 seconds=1.000 ... p50=1 p99=2 p999=3`.
fn parse(line: &str) -> Option<LoadResult> {
    Some(LoadResult {
        requests: value(line, "requests")? as u64,
        errors: value(line, "errors")? as u64,
        seconds: value(line, "seconds")?,
        latency: Some([value(line, "p50")?, value(line, "p99")?, value(line, "p999")?]),
    })
}

fn value(line: &str, key: &str) -> Option<f64> {
    let words = line.split_whitespace().filter_map(|word| word.split_once('='));
    words.filter(|(name, _)| *name == key).find_map(|(_, value)| value.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_the_last_line_of_the_client() {
        let line = "end requests=10 errors=0 seconds=0.500 bytes=9 p50=1 p99=20 p999=300\n";
        let result = parse(line).unwrap();
        assert_eq!((result.requests, result.errors, result.seconds), (10, 0, 0.5));
        assert_eq!(result.latency, Some([1.0, 20.0, 300.0]));
        assert!(parse("end requests=10 errors=0\n").is_none());
    }
}
