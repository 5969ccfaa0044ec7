//! Load generators: established tools where they exist, own clients otherwise.

mod clients;
mod h2load;
mod handshakes;
mod rush;
mod strace;
mod wrk;

use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::Result;
use crate::machine::Machine;
use crate::server::Server;
use crate::stats::Sample;
use crate::workload::{RequestSpec, Scheme};

pub use self::h2load::H2load;
pub use self::handshakes::Handshakes;
pub use self::rush::Saturate;
pub use self::wrk::Wrk;

pub enum Load {
    /// HTTP/1 over persistent connections.
    Wrk(Wrk),
    /// The same, with a client that is faster than the servers.
    Saturate(Saturate),
    /// HTTP/2, or a fixed number of requests.
    H2load(H2load),
    /// Sequential TLS handshakes.
    Handshakes(Handshakes),
    /// wrk, while strace counts the server's system calls.
    Strace(Wrk),
    /// Active connections in addition to idle ones.
    Idle { idle: u32, active: Wrk },
    /// Regular clients in addition to some that send one byte per second.
    SlowClients { slow: u32, active: Wrk },
}

/// One run of a load.
pub struct Run<'a> {
    pub server: &'a Server,
    pub request: &'a RequestSpec,
    pub seconds: u32,
    pub machine: &'a Machine,
    /// Folder for temporary files.
    pub folder: &'a Path,
}

/// The measurements of the load generator.
pub struct LoadResult {
    pub requests: u64,
    pub errors: u64,
    pub seconds: f64,
    /// p50, p99, p99.9 in microseconds.
    pub latency: Option<[f64; 3]>,
}

impl Load {
    pub fn run(&self, run: &Run<'_>) -> Result<Sample> {
        match self {
            Load::Wrk(wrk) => run.metered(|| wrk.run(run)),
            Load::Saturate(load) => run.metered(|| load.run(run)),
            Load::Strace(wrk) => strace::run(run, wrk),
            Load::H2load(h2load) => run.metered(|| h2load.run(run)),
            Load::Handshakes(load) => run.metered(|| load.run(run)),
            Load::Idle { idle, active } => with_idle(run, *idle, active),
            Load::SlowClients { slow, active } => {
                let attack = clients::SlowClients::start(run.server.port, *slow)?;
                let sample = run.metered(|| active.run(run));
                attack.end()?;
                sample
            }
        }
    }

    /// Returns the commands for the report.
    pub fn commands(&self, request: &RequestSpec, seconds: u32) -> String {
        let wrk = |wrk: &Wrk| {
            format!("wrk {}", wrk.arguments(&request.url("PORT"), request, seconds, 1).join(" "))
        };
        match self {
            Load::Wrk(load) => wrk(load),
            Load::Saturate(load) => load.arguments(&request.url("PORT"), seconds),
            Load::Strace(load) => format!("strace -f -c -p PID\n{}", wrk(load)),
            Load::Idle { active, .. } | Load::SlowClients { active, .. } => wrk(active),
            Load::H2load(load) => {
                format!(
                    "h2load {}",
                    load.arguments(&request.url("PORT"), request, seconds, 1).join(" ")
                )
            }
            Load::Handshakes(load) => {
                format!("openssl {}", load.arguments("127.0.0.1:PORT", seconds).join(" "))
            }
        }
    }
}

impl Run<'_> {
    fn url(&self) -> String {
        self.request.url(&self.request.port(self.server).to_string())
    }

    /// Measures the CPU time and memory of the server under a load. Memory is sampled during the
    /// load.
    fn metered(&self, load: impl FnOnce() -> Result<LoadResult>) -> Result<Sample> {
        let before = self.server.cpu();
        let (result, memory_kib) = thread::scope(|scope| {
            let memory = scope.spawn(|| {
                thread::sleep(Duration::from_millis(500));
                self.server.memory_kib()
            });
            (load(), memory.join().unwrap_or(0))
        });
        let cpu_seconds = self.server.cpu().seconds_since(&before);
        let LoadResult { requests, errors, seconds, latency } = result?;
        if requests == 0 {
            return Err("no request succeeded".into());
        }
        Ok(Sample {
            requests,
            errors,
            seconds,
            cpu_seconds,
            latency,
            memory_kib,
            ..Sample::default()
        })
    }
}

impl RequestSpec {
    pub fn url(&self, port: &str) -> String {
        let scheme = if self.scheme == Scheme::Https { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{port}{}", self.path)
    }

    pub fn port(&self, server: &Server) -> u16 {
        match self.scheme {
            Scheme::Http => server.port,
            Scheme::Https => server.tls_port,
            Scheme::H2c => server.h2c_port,
        }
    }
}

/// Opens idle connections, then measures active ones.
fn with_idle(run: &Run<'_>, idle: u32, active: &Wrk) -> Result<Sample> {
    let available =
        u32::try_from(run.machine.descriptors).unwrap_or(u32::MAX).saturating_sub(1_000);
    if available < idle {
        return Err(format!(
            "cannot open {idle} connections: the limit of file descriptors allows {available} (see ulimit -Hn)"
        ));
    }
    let before = run.server.memory_kib();
    let connections = clients::Idle::open(run.server.port, run.request, idle)?;
    let growth = run.server.memory_kib().saturating_sub(before);
    let mut sample = run.metered(|| active.run(run))?;
    let closed = connections.closed_count();
    if closed > 0 {
        return Err(format!("{closed} of {idle} idle connections were closed"));
    }
    sample.connection_bytes = Some(growth as f64 * 1024.0 / f64::from(idle));
    Ok(sample)
}
