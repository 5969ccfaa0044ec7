//! What the servers are loaded with: other people's tools where there are any, our own where
//! there are none.

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
use crate::workload::{Ask, Scheme};

pub use self::h2load::H2load;
pub use self::handshakes::Handshakes;
pub use self::rush::Rush;
pub use self::wrk::Wrk;

pub enum Load {
    /// HTTP/1 over kept connections.
    Wrk(Wrk),
    /// The same, by a client that is faster than the servers.
    Rush(Rush),
    /// HTTP/2, or a fixed number of requests.
    H2load(H2load),
    /// TLS handshakes, one after another.
    Handshakes(Handshakes),
    /// The same, while strace counts the server's system calls.
    Strace(Wrk),
    /// Active connections beside some that rest.
    Idle { idle: u32, active: Wrk },
    /// Good clients beside some that send a byte a second.
    SlowClients { slow: u32, active: Wrk },
}

/// One run of a load.
pub struct Run<'a> {
    pub server: &'a Server,
    pub ask: &'a Ask,
    pub seconds: u32,
    pub machine: &'a Machine,
    /// For files that do not outlive it.
    pub folder: &'a Path,
}

/// What the client saw.
pub struct Tally {
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
            Load::Rush(rush) => run.metered(|| rush.run(run)),
            Load::Strace(wrk) => strace::run(run, wrk),
            Load::H2load(h2load) => run.metered(|| h2load.run(run)),
            Load::Handshakes(load) => run.metered(|| load.run(run)),
            Load::Idle { idle, active } => idle_beside(run, *idle, active),
            Load::SlowClients { slow, active } => {
                let attack = clients::SlowClients::start(run.server.port, *slow)?;
                let sample = run.metered(|| active.run(run));
                attack.end()?;
                sample
            }
        }
    }

    /// The commands, as the report shows them.
    pub fn commands(&self, ask: &Ask, seconds: u32) -> String {
        let wrk =
            |wrk: &Wrk| format!("wrk {}", wrk.words(&ask.url("PORT"), ask, seconds, 1).join(" "));
        match self {
            Load::Wrk(load) => wrk(load),
            Load::Rush(load) => load.words(&ask.url("PORT"), seconds),
            Load::Strace(load) => format!("strace -f -c -p PID\n{}", wrk(load)),
            Load::Idle { active, .. } | Load::SlowClients { active, .. } => wrk(active),
            Load::H2load(load) => {
                format!("h2load {}", load.words(&ask.url("PORT"), ask, seconds, 1).join(" "))
            }
            Load::Handshakes(load) => {
                format!("openssl {}", load.words("127.0.0.1:PORT", seconds).join(" "))
            }
        }
    }
}

impl Run<'_> {
    fn url(&self) -> String {
        self.ask.url(&self.ask.port(self.server).to_string())
    }

    /// What a load cost the server. Memory is looked at while the load is on.
    fn metered(&self, load: impl FnOnce() -> Result<Tally>) -> Result<Sample> {
        let before = self.server.cpu();
        let (tally, memory_kib) = thread::scope(|scope| {
            let memory = scope.spawn(|| {
                thread::sleep(Duration::from_millis(500));
                self.server.memory_kib()
            });
            (load(), memory.join().unwrap_or(0))
        });
        let cpu_seconds = self.server.cpu().seconds_since(&before);
        let Tally { requests, errors, seconds, latency } = tally?;
        if requests == 0 {
            return Err("no request was answered".into());
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

impl Ask {
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

fn idle_beside(run: &Run<'_>, idle: u32, active: &Wrk) -> Result<Sample> {
    let room = u32::try_from(run.machine.descriptors).unwrap_or(u32::MAX).saturating_sub(1_000);
    if room < idle {
        return Err(format!(
            "only {room} of {idle} connections fit the limit of descriptors (ulimit -Hn)"
        ));
    }
    let before = run.server.memory_kib();
    let connections = clients::Idle::open(run.server.port, run.ask, idle)?;
    let grown = run.server.memory_kib().saturating_sub(before);
    let mut sample = run.metered(|| active.run(run))?;
    let lost = connections.lost();
    if lost > 0 {
        return Err(format!("{lost} of {idle} idle connections were closed"));
    }
    sample.connection_bytes = Some(grown as f64 * 1024.0 / f64::from(idle));
    Ok(sample)
}
