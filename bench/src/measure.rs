//! Rounds over all servers: each round measures every server once, and starts with a different one.

use std::time::Instant;

use crate::Result;
use crate::answer;
use crate::args::Options;
use crate::build::Programs;
use crate::load::Run;
use crate::machine::Machine;
use crate::peers::named;
use crate::server::Launcher;
use crate::site::Site;
use crate::stats::Sample;
use crate::workload::Workload;

/// The results of one workload.
pub struct Table {
    pub workload: &'static Workload,
    /// The servers in the order of the workload, Weft first; repeated for each number of workers.
    pub rows: Vec<Row>,
}

/// The results of one server.
pub struct Row {
    pub peer: &'static str,
    pub workers: usize,
    pub rounds: Vec<Option<Sample>>,
    /// The command that started the server.
    pub command: String,
    /// The names of the header fields of its response.
    pub fields: Vec<String>,
    /// The length of its body, if it is compressed.
    pub compressed_bytes: Option<u64>,
    /// The reason for missing rounds. A server that failed once is not measured again.
    pub failure: Option<String>,
}

impl Table {
    /// Returns the row of Weft with this number of workers, the reference of all comparisons.
    pub fn reference(&self, workers: usize) -> Option<&Row> {
        let reference = self.workload.peers.first()?;
        self.rows.iter().find(|row| row.peer == *reference && row.workers == workers)
    }

    /// Returns the row of a server with one worker.
    pub fn with_one_worker(&self, peer: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.peer == peer && row.workers == 1)
    }
}

/// Measures all selected workloads.
pub fn all(options: &Options, machine: &Machine, site: &Site, programs: &Programs) -> Vec<Table> {
    let launcher = Launcher::new(machine, programs, site);
    options.workloads.iter().map(|workload| measure(workload, options, &launcher)).collect()
}

fn measure(workload: &'static Workload, options: &Options, launcher: &Launcher<'_>) -> Table {
    let start = Instant::now();
    let mut rows: Vec<Row> = Vec::new();
    for workers in workload.worker_counts(launcher.machine.server_cpus.len()) {
        let peers = workload.peers.iter().filter(|peer| launcher.programs.has(peer));
        rows.extend(peers.map(|peer| Row::new(peer, workers)));
    }
    for round in 0..options.rounds {
        for index in 0..rows.len() {
            let index = (index + round) % rows.len();
            rows[index].measure(workload, options.seconds, launcher);
        }
    }
    eprintln!("{:16} {:4.0} s", workload.name, start.elapsed().as_secs_f64());
    Table { workload, rows }
}

impl Row {
    fn new(peer: &'static str, workers: usize) -> Row {
        let (rounds, command, fields) = (Vec::new(), String::new(), Vec::new());
        Row { peer, workers, rounds, command, fields, compressed_bytes: None, failure: None }
    }

    /// Returns the name of the server, with the number of workers if there are several.
    pub fn title(&self) -> String {
        match self.workers {
            1 => self.peer.to_owned(),
            workers => format!("{} × {workers}", self.peer),
        }
    }

    fn measure(&mut self, workload: &Workload, seconds: u32, launcher: &Launcher<'_>) {
        let sample = match &self.failure {
            Some(_) => None,
            None => self.sample(workload, seconds, launcher).map_or_else(
                |error| {
                    eprintln!("{} {}: {error}", workload.name, self.peer);
                    self.failure = Some(error);
                    None
                },
                Some,
            ),
        };
        self.rounds.push(sample);
    }

    /// Starts the server, checks its response, and applies the load.
    fn sample(
        &mut self,
        workload: &Workload,
        seconds: u32,
        launcher: &Launcher<'_>,
    ) -> Result<Sample> {
        let machine = launcher.machine;
        let upstream = match workload.request.path.starts_with("/proxy/") {
            true => {
                let upstream = named(workload.upstream());
                Some(launcher.start(upstream, 1, &machine.load_cpus, 0)?)
            }
            false => None,
        };
        let port = upstream.as_ref().map_or(1, |upstream| upstream.port);
        let cpus = machine.cpus_for(workload.cores(self.workers));
        let server = launcher.start(named(self.peer), self.workers, &cpus, port)?;
        self.command.clone_from(&server.command);
        if workload.load.is_get() && workload.request.path != "/json" {
            let answer = answer::check(&server, &workload.request, launcher.site)?;
            (self.fields, self.compressed_bytes) = (answer.fields, answer.compressed_bytes);
        }
        let (request, site) = (&workload.request, launcher.site);
        let folder = &site.run;
        workload.load.run(&Run { server: &server, request, seconds, machine, folder, site })
    }
}
