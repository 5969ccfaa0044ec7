//! A peer that runs: started on its cores, watched, and ended.

use std::cell::Cell;
use std::fs;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::Result;
use crate::build::Programs;
use crate::machine::Machine;
use crate::peer::Peer;
use crate::process::{self, Cpu};
use crate::site::{PAGE, Site};

pub struct Server {
    child: Child,
    pub port: u16,
    pub tls_port: u16,
    /// HTTP/2 without TLS.
    pub h2c_port: u16,
    /// How it was started, with the names of folders in place of these.
    pub command: String,
}

/// All that servers are started with.
pub struct Stage<'a> {
    pub machine: &'a Machine,
    pub programs: &'a Programs,
    pub site: &'a Site,
    next_port: Cell<u16>,
}

/// Below the range that the kernel takes clients' ports from.
const PORTS: Range<u16> = 20_000..32_000;

impl<'a> Stage<'a> {
    pub fn new(machine: &'a Machine, programs: &'a Programs, site: &'a Site) -> Stage<'a> {
        Stage { machine, programs, site, next_port: Cell::new(PORTS.start) }
    }

    /// Starts a peer, and waits until it accepts connections.
    pub fn start(
        &self,
        peer: &Peer,
        workers: usize,
        cpus: &[usize],
        upstream: u16,
    ) -> Result<Server> {
        let template = match peer.config {
            Some(name) => self.programs.config(name)?,
            None => String::new(),
        };
        let config = self.site.run.join(peer.config.unwrap_or("none"));
        let (port, tls_port) = (self.port()?, self.port()?);
        // Most find out by themselves which version a client speaks.
        let h2c_port = if template.contains("@h2c_port@") { self.port()? } else { port };
        let mut places = self.places(&config, workers, upstream);
        places.push(("@port@", port.to_string()));
        places.push(("@tls_port@", tls_port.to_string()));
        places.push(("@h2c_port@", h2c_port.to_string()));
        let fill = |text: &str| {
            places.iter().fold(text.to_owned(), |text, (name, value)| text.replace(name, value))
        };
        fs::write(&config, fill(&template))
            .map_err(|error| format!("{}: {error}", config.display()))?;
        let cpus = cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        let child = self.spawn(&cpus, peer.command.iter().map(|argument| fill(argument)))?;
        let command = peer.command.join(" ").replace("@workers@", &workers.to_string());
        let command = format!("taskset -c {cpus} {command}");
        let mut server = Server { child, port, tls_port, h2c_port, command };
        server.wait(self)?;
        Ok(server)
    }

    /// What stands in commands and configuration files, and what it is replaced by.
    fn places(&self, config: &Path, workers: usize, upstream: u16) -> Vec<(&'static str, String)> {
        let Stage { programs, site, .. } = self;
        let show = |path: &Path| path.display().to_string();
        vec![
            ("@bin@", show(&programs.bin)),
            ("@weft@", show(&programs.weft)),
            ("@config@", show(config)),
            ("@run@", show(&site.run)),
            ("@site@", show(&site.folder)),
            ("@cert@", show(&site.certificate)),
            ("@key@", show(&site.key)),
            ("@page@", PAGE.to_owned()),
            ("@user@", std::env::var("USER").unwrap_or("root".to_owned())),
            ("@workers@", workers.to_string()),
            // lighttpd with 1 has a process that watches the only one that works.
            ("@worker_processes@", if workers > 1 { workers } else { 0 }.to_string()),
            ("@upstream@", format!("127.0.0.1:{upstream}")),
            ("@upstream_host@", "127.0.0.1".to_owned()),
            ("@upstream_port@", upstream.to_string()),
        ]
    }

    fn spawn(&self, cpus: &str, command: impl Iterator<Item = String>) -> Result<Child> {
        let stderr = fs::File::create(self.stderr()).map_err(|error| error.to_string())?;
        let mut taskset = Command::new("taskset");
        taskset.args(["-c", cpus]).args(command).stdin(Stdio::null()).stdout(Stdio::null());
        taskset.stderr(stderr).spawn().map_err(|error| format!("taskset: {error}"))
    }

    fn stderr(&self) -> PathBuf {
        self.site.run.join("stderr")
    }

    /// A port that is free, and was not used for long.
    fn port(&self) -> Result<u16> {
        let next = self.next_port.get();
        let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
        let port = (next..PORTS.end).chain(PORTS.start..next).find(is_free);
        let port = port.ok_or("there is no free port between 20,000 and 32,000")?;
        self.next_port.set(port + 1);
        Ok(port)
    }
}

impl Server {
    fn wait(&mut self, stage: &Stage<'_>) -> Result<()> {
        let end = Instant::now() + Duration::from_secs(10);
        while TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_err() {
            if Instant::now() > end || matches!(self.child.try_wait(), Ok(Some(_))) {
                let said = fs::read_to_string(stage.stderr()).unwrap_or_default();
                let said = said.trim().lines().last().unwrap_or("and says nothing");
                let run = stage.site.run.display().to_string();
                return Err(format!("it does not listen: {}", said.replace(&run, "@run@")));
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    pub fn processes(&self) -> Vec<u32> {
        process::tree(self.child.id())
    }

    pub fn cpu(&self) -> Cpu {
        Cpu::of(&self.processes())
    }

    pub fn memory_kib(&self) -> u64 {
        process::memory_kib(&self.processes())
    }
}

impl Drop for Server {
    /// Ends the server: politely, and if it has not gone after two seconds, at once.
    fn drop(&mut self) {
        let processes = self.processes();
        signal(self.child.id(), Signal::TERM);
        let end = Instant::now() + Duration::from_secs(2);
        while Instant::now() < end {
            if matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)) {
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
        processes.into_iter().rev().for_each(|process| signal(process, Signal::KILL));
        let _ = self.child.wait();
    }
}

/// It does not matter if the process has gone meanwhile.
fn signal(process: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(process).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}
