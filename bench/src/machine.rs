//! The machine: CPUs, kernel, versions.

use std::fs;
use std::process::Command;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::Result;

pub struct Machine {
    /// The model of the processor.
    pub processor: String,
    pub kernel: String,
    /// The load average at the start of the run.
    pub load_average: String,
    pub server_cpus: Vec<usize>,
    pub load_cpus: Vec<usize>,
    /// The limit of file descriptors per process.
    pub descriptors: u64,
}

impl Machine {
    /// Assigns CPUs to the servers and to the load, those of the command line if there are any.
    pub fn new(servers: &[usize], load: &[usize]) -> Result<Machine> {
        let all = allowed()?;
        let half = (all.len() / 2).max(1);
        let (mut server_cpus, mut load_cpus) = (all[..half].to_vec(), all[half..].to_vec());
        if !servers.is_empty() {
            server_cpus = servers.to_vec();
            load_cpus = all.into_iter().filter(|cpu| !server_cpus.contains(cpu)).collect();
        }
        if !load.is_empty() {
            load_cpus = load.to_vec();
        }
        if load_cpus.is_empty() {
            return Err(
                "at least two CPUs are required: one for the servers and one for the load".into()
            );
        }
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name"));
        Ok(Machine {
            processor: model
                .map_or("unknown", |model| model.trim_start_matches([' ', '\t', ':']))
                .to_owned(),
            kernel: first_output_line("uname", &["-sr"]).unwrap_or_default(),
            load_average: fs::read_to_string("/proc/loadavg").unwrap_or_default(),
            server_cpus,
            load_cpus,
            descriptors: raise_descriptors(),
        })
    }

    /// Pins this process, and with it all load generators, to the CPUs of the load.
    pub fn pin_to_load_cpus(&self) -> Result<()> {
        let mut set = CpuSet::new();
        self.load_cpus.iter().for_each(|cpu| set.set(*cpu));
        sched_setaffinity(None, &set)
            .map_err(|error| format!("cannot pin to the CPUs of the load: {error}"))
    }

    /// Returns the CPUs of a server that needs `count` of them, or all CPUs if there are not
    /// enough.
    pub fn cpus_for(&self, count: usize) -> Vec<usize> {
        match self.server_cpus.get(..count) {
            Some(cpus) => cpus.to_vec(),
            None => [&self.server_cpus[..], &self.load_cpus].concat(),
        }
    }
}

fn allowed() -> Result<Vec<usize>> {
    let set = sched_getaffinity(None)
        .map_err(|error| format!("cannot read the CPU affinity: {error}"))?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect())
}

/// Raises the limit of file descriptors to its maximum. The servers inherit it.
fn raise_descriptors() -> u64 {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Runs a program and returns the first non-empty line of its standard output or standard error.
pub fn first_output_line(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    text.lines().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
}
