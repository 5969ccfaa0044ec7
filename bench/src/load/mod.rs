//! Load generators: established tools where they exist, own clients otherwise.

mod bulk;
mod clients;
mod events;
mod h2load;
mod handshakes;
mod http3;
mod memory_limit;
mod rush;
mod strace;
mod varied;
mod wrk;

use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::Result;
use crate::machine::Machine;
use crate::request::RequestSpec;
use crate::server::Server;
use crate::site::{FileSet, Site};
use crate::stats::Sample;

pub use self::bulk::Uploads;
pub use self::h2load::H2load;
pub use self::handshakes::Handshakes;
pub use self::http3::{Http3, Mode};
pub use self::rush::Saturate;
pub use self::varied::{Pace, Paths, Varied};
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
    Idle {
        idle: u32,
        active: Wrk,
    },
    /// Regular clients in addition to some that send one byte per second.
    SlowClients {
        slow: u32,
        active: Wrk,
    },
    /// Regular clients in addition to some that read a large file slowly.
    SlowReaders {
        slow: u32,
        path: &'static str,
        active: Wrk,
    },
    /// Many paths, kept and new connections, or an open loop.
    Varied(Varied),
    /// The same, with files that are not in the page cache, and limited memory.
    Cold(Varied, &'static FileSet, u64),
    Uploads(Uploads),
    /// WebSocket messages, which the server returns.
    Echo {
        connections: u32,
    },
    /// HTTP/3.
    Http3(Http3),
    /// A gRPC message over HTTP/2.
    Grpc(H2load),
    /// A JSON document, which the server parses and returns.
    Json(H2load),
    /// Clients that receive server-sent events; each event counts.
    Events {
        clients: u32,
    },
}

/// One run of a load.
pub struct Run<'a> {
    pub server: &'a Server,
    pub request: &'a RequestSpec,
    pub seconds: u32,
    pub machine: &'a Machine,
    /// Folder for temporary files.
    pub folder: &'a Path,
    pub site: &'a Site,
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
            Load::SlowReaders { slow, path, active } => {
                let readers = bulk::SlowReaders::start(run.server.port, path, *slow)?;
                let sample = run.metered(|| active.run(run));
                readers.end()?;
                sample
            }
            Load::Varied(load) => run.metered(|| load.run(run)),
            Load::Cold(load, files, bytes) => {
                memory_limit::evict(run.site, files)?;
                let _limit = memory_limit::MemoryLimit::new(run.server, *bytes)?;
                run.metered(|| load.run(run))
            }
            Load::Uploads(load) => run.metered(|| load.run(run)),
            Load::Echo { connections } => run.metered(|| rush::echo(run, *connections)),
            Load::Grpc(load) => run.metered(|| load.run_grpc(run)),
            Load::Json(load) => run.metered(|| load.run_json(run)),
            Load::Events { clients } => events::run(run, *clients),
            Load::Http3(load) => load.run(run),
        }
    }

    /// Returns the files that the load needs in addition.
    pub fn files(&self) -> Option<&'static FileSet> {
        match self {
            Load::Varied(load) | Load::Cold(load, ..) => match load.paths {
                Paths::Of(set) => Some(set),
                Paths::One => None,
            },
            _ => None,
        }
    }

    /// Returns true if a GET request shows beforehand that the server responds correctly. Other
    /// loads check the responses themselves.
    pub fn is_get(&self) -> bool {
        !matches!(
            self,
            Load::Uploads(_)
                | Load::Echo { .. }
                | Load::Grpc(_)
                | Load::Json(_)
                | Load::Events { .. }
                | Load::Http3(_)
        )
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
            Load::Idle { active, .. }
            | Load::SlowClients { active, .. }
            | Load::SlowReaders { active, .. } => wrk(active),
            Load::Varied(load) | Load::Cold(load, ..) => {
                load.arguments(&request.url("PORT"), seconds)
            }
            Load::Uploads(load) => {
                let url = request.url("PORT");
                format!("bench/src/load/bulk.rs: uploads of {} bytes to {url}", load.bytes)
            }
            Load::Echo { connections } => {
                format!(
                    "bench/src/load/rush.rs: WebSockets on {connections} connections, {seconds} s"
                )
            }
            Load::Grpc(load) => {
                let arguments = load.arguments(&request.url("PORT"), request, seconds, 1).join(" ");
                format!("h2load {} {arguments}", H2load::GRPC.join(" "))
            }
            Load::Json(load) => {
                let arguments = load.arguments(&request.url("PORT"), request, seconds, 1).join(" ");
                format!("h2load {} {arguments}", H2load::JSON.join(" "))
            }
            Load::Events { clients } => {
                format!("bench/src/load/events.rs: {clients} clients, {seconds} s")
            }
            Load::Http3(load) => {
                let file = Path::new("FILE");
                let arguments = load.arguments("127.0.0.1:PORT", request.path, file, seconds);
                format!("http3-load {}", arguments.join(" "))
            }
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
        self.request.url(&self.port().to_string())
    }

    fn port(&self) -> u16 {
        self.server.port_of(self.request.scheme)
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
        let after = self.server.cpu();
        let cpu_seconds = after.seconds_since(&before);
        let system_seconds = after.system_seconds_since(&before);
        let LoadResult { requests, errors, seconds, latency } = result?;
        if requests == 0 {
            return Err("no request succeeded".into());
        }
        Ok(Sample {
            requests,
            errors,
            seconds,
            cpu_seconds,
            system_seconds,
            latency,
            memory_kib,
            ..Sample::default()
        })
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
