//! Rounds over servers: each round measures every one once, and begins with another one.

use std::time::Instant;

use crate::Result;
use crate::answer;
use crate::args::Options;
use crate::build::Programs;
use crate::load::Run;
use crate::machine::Machine;
use crate::peer::{UPSTREAM, named};
use crate::server::Stage;
use crate::site::Site;
use crate::stats::Sample;
use crate::workload::Workload;

/// What was measured of one workload.
pub struct Table {
    pub workload: &'static Workload,
    /// Weft first, the others in the order of the workload; and the same for each number of
    /// workers.
    pub rows: Vec<Row>,
}

/// What was measured of one server.
pub struct Row {
    pub peer: &'static str,
    pub workers: usize,
    pub rounds: Vec<Option<Sample>>,
    /// How it was started.
    pub command: String,
    /// The names of the fields of its answer.
    pub fields: Vec<String>,
    /// Why rounds are missing. Who fails once is not asked again.
    pub trouble: Option<String>,
}

impl Table {
    /// The row of Weft that all others are compared with, if it was measured.
    pub fn ours(&self, workers: usize) -> Option<&Row> {
        let weft = self.workload.peers.first()?;
        self.rows.iter().find(|row| row.peer == *weft && row.workers == workers)
    }

    /// The row of a server with one worker.
    pub fn alone(&self, peer: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.peer == peer && row.workers == 1)
    }
}

/// All that was asked for, as it is to be reported.
pub fn all(options: &Options, machine: &Machine, site: &Site, programs: &Programs) -> Vec<Table> {
    let stage = Stage::new(machine, programs, site);
    options.workloads.iter().map(|workload| measure(workload, options, &stage)).collect()
}

fn measure(workload: &'static Workload, options: &Options, stage: &Stage<'_>) -> Table {
    let begun = Instant::now();
    let mut rows: Vec<Row> = Vec::new();
    for workers in workload.worker_counts(stage.machine.server_cpus.len()) {
        let peers = workload.peers.iter().filter(|peer| stage.programs.has(peer));
        rows.extend(peers.map(|peer| Row::new(peer, workers)));
    }
    for round in 0..options.rounds {
        for turn in 0..rows.len() {
            let turn = (turn + round) % rows.len();
            rows[turn].measure(workload, options.seconds, stage);
        }
    }
    eprintln!("{:16} {:4.0} s", workload.name, begun.elapsed().as_secs_f64());
    Table { workload, rows }
}

impl Row {
    fn new(peer: &'static str, workers: usize) -> Row {
        let (rounds, command, fields) = (Vec::new(), String::new(), Vec::new());
        Row { peer, workers, rounds, command, fields, trouble: None }
    }

    /// The server, and its workers if there are several.
    pub fn title(&self) -> String {
        match self.workers {
            1 => self.peer.to_owned(),
            workers => format!("{} × {workers}", self.peer),
        }
    }

    fn measure(&mut self, workload: &Workload, seconds: u32, stage: &Stage<'_>) {
        let sample = match &self.trouble {
            Some(_) => None,
            None => self.sample(workload, seconds, stage).map_or_else(
                |error| {
                    eprintln!("{} {}: {error}", workload.name, self.peer);
                    self.trouble = Some(error);
                    None
                },
                Some,
            ),
        };
        self.rounds.push(sample);
    }

    /// Starts the server, looks at its answer, and loads it.
    fn sample(&mut self, workload: &Workload, seconds: u32, stage: &Stage<'_>) -> Result<Sample> {
        let machine = stage.machine;
        let upstream = match workload.ask.path.starts_with("/proxy/") {
            true => Some(stage.start(named(UPSTREAM), 1, &machine.load_cpus, 0)?),
            false => None,
        };
        let port = upstream.as_ref().map_or(1, |upstream| upstream.port);
        let cpus = machine.cpus_for(workload.cores(self.workers));
        let server = stage.start(named(self.peer), self.workers, &cpus, port)?;
        self.command.clone_from(&server.command);
        self.fields = answer::check(&server, &workload.ask, stage.site)?;
        let ask = &workload.ask;
        workload.load.run(&Run { server: &server, ask, seconds, machine, folder: &stage.site.run })
    }
}
