//! A running peer: starting it on its CPUs, waiting until it listens, stopping it.

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
use crate::peer::{Origin, Peer};
use crate::process::{self, Cpu};
use crate::request::Scheme;
use crate::site::{PAGE, Site};

pub struct Server {
    child: Child,
    pub port: u16,
    pub tls_port: u16,
    /// HTTP/2 without TLS.
    pub h2c_port: u16,
    /// The command that started it, with placeholders instead of folders.
    pub command: String,
}

/// Starts servers.
pub struct Launcher<'a> {
    pub machine: &'a Machine,
    pub programs: &'a Programs,
    pub site: &'a Site,
    next_port: Cell<u16>,
}

/// Ports below the kernel's range of ephemeral ports.
const PORTS: Range<u16> = 20_000..32_000;

impl<'a> Launcher<'a> {
    pub fn new(machine: &'a Machine, programs: &'a Programs, site: &'a Site) -> Launcher<'a> {
        Launcher { machine, programs, site, next_port: Cell::new(PORTS.start) }
    }

    /// Starts a peer, and waits until it accepts connections.
    pub fn start(
        &self,
        peer: &Peer,
        workers: usize,
        cpus: &[usize],
        upstream: u16,
    ) -> Result<Server> {
        self.start_under(&[], peer, workers, cpus, upstream)
    }

    /// The same, under the control of another program.
    pub fn start_under(
        &self,
        wrapper: &[String],
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
        // Most servers detect HTTP/2 with prior knowledge on the HTTP/1 port.
        let h2c_port = if template.contains("@h2c_port@") { self.port()? } else { port };
        let mut placeholders = self.placeholders(&config, workers, upstream);
        if let (Origin::Root(..), Some(root)) = (peer.origin, &self.site.root) {
            // The paths within the root.
            let root = root.display().to_string();
            let paths = placeholders.iter_mut().filter_map(|(_, value)| {
                let path = value.strip_prefix(&root)?.to_owned();
                Some((value, path))
            });
            paths.for_each(|(value, path)| *value = path);
            placeholders.push(("@root@", root));
        }
        placeholders.push(("@port@", port.to_string()));
        placeholders.push(("@tls_port@", tls_port.to_string()));
        placeholders.push(("@h2c_port@", h2c_port.to_string()));
        let fill = |text: &str| {
            placeholders
                .iter()
                .fold(text.to_owned(), |text, (name, value)| text.replace(name, value))
        };
        fs::write(&config, fill(&template))
            .map_err(|error| format!("{}: {error}", config.display()))?;
        let cpus = cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        let command = peer.command.iter().map(|argument| fill(argument));
        let child = self.spawn(&cpus, wrapper.iter().cloned().chain(command))?;
        let command = peer.command.join(" ").replace("@workers@", &workers.to_string());
        let command = format!("taskset -c {cpus} {command}");
        let mut server = Server { child, port, tls_port, h2c_port, command };
        server.wait(self)?;
        Ok(server)
    }

    /// Returns the placeholders of commands and configuration files with their values.
    fn placeholders(
        &self,
        config: &Path,
        workers: usize,
        upstream: u16,
    ) -> Vec<(&'static str, String)> {
        let Launcher { programs, site, .. } = self;
        let show = |path: &Path| path.display().to_string();
        vec![
            ("@bin@", show(&programs.bin)),
            ("@weft@", show(&programs.weft)),
            ("@config@", show(config)),
            ("@run@", show(&site.run)),
            ("@site@", show(&site.folder)),
            ("@cert@", show(&site.certificate)),
            ("@key@", show(&site.key)),
            ("@pem@", show(&site.pem)),
            ("@page@", PAGE.to_owned()),
            ("@user@", std::env::var("USER").unwrap_or("root".to_owned())),
            ("@workers@", workers.to_string()),
            // With 1, lighttpd has an additional process that supervises the only worker.
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

    /// The output on stderr of the last server.
    pub fn stderr(&self) -> PathBuf {
        self.site.run.join("stderr")
    }

    /// Returns a free port that has not been used recently.
    fn port(&self) -> Result<u16> {
        let next = self.next_port.get();
        let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
        let port = (next..PORTS.end).chain(PORTS.start..next).find(is_free);
        let port = port.ok_or("no free port between 20,000 and 32,000")?;
        self.next_port.set(port + 1);
        Ok(port)
    }
}

impl Server {
    fn wait(&mut self, launcher: &Launcher<'_>) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(10);
        while TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_err() {
            if Instant::now() > deadline || matches!(self.child.try_wait(), Ok(Some(_))) {
                let stderr = fs::read_to_string(launcher.stderr()).unwrap_or_default();
                let reason = stderr.trim().lines().last().unwrap_or("no output on stderr");
                let run = launcher.site.run.display().to_string();
                return Err(format!("it does not listen: {}", reason.replace(&run, "@run@")));
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    pub fn port_of(&self, scheme: Scheme) -> u16 {
        match scheme {
            Scheme::Http => self.port,
            Scheme::Https => self.tls_port,
            Scheme::H2c => self.h2c_port,
        }
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
    /// Stops the server with SIGTERM, and with SIGKILL if it still runs after two seconds.
    fn drop(&mut self) {
        let processes = self.processes();
        signal(self.child.id(), Signal::TERM);
        let deadline = Instant::now() + Duration::from_secs(2);
        while Instant::now() < deadline {
            if matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)) {
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
        processes.into_iter().rev().for_each(|process| signal(process, Signal::KILL));
        let _ = self.child.wait();
    }
}

/// Sends a signal. Errors are ignored: the process may have ended meanwhile.
fn signal(process: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(process).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}
