//! The command line.

use std::path::{Path, PathBuf};

use lexopt::prelude::*;

use crate::workload::{self, Workload};
use crate::{Result, experiments, peer};

pub const HELP: &str = "\
Measures Weft beside other servers and writes a report.

usage: cargo run --release --manifest-path bench/Cargo.toml -- [OPTION]...

  --quick              rounds of one second, three of each
  --rounds N           how often each server is measured (5)
  --seconds N          how long each time (3)
  --experiments        the experiments of docs/experiments.md, in place of the comparison
  --only NAME,...      these workloads or experiments alone; --list names them
  --peers NAME,...     these servers alone, and Weft
  --server-cpus N,...  where the servers run (the first half of the CPUs)
  --load-cpus N,...    where the load comes from (all others)
  --out DIR            where the report is written (bench/report; with --experiments its folder
                       experiments, with --only its folder some)
  --install            install what is missing, with apt-get
  --list               name the workloads
  --help               this text
";

pub struct Options {
    pub rounds: usize,
    pub seconds: u32,
    pub peers: Vec<String>,
    pub server_cpus: Vec<usize>,
    pub load_cpus: Vec<usize>,
    pub out: PathBuf,
    /// What is to be measured.
    pub workloads: Vec<&'static Workload>,
    pub install: bool,
    pub list: bool,
    /// As it was given, for the report, but for the folder, which is nobody's business.
    pub command: String,
}

pub fn read() -> Result<Options> {
    from(std::env::args().skip(1).collect()).map_err(|error| format!("{error}\n\n{HELP}"))
}

fn from(words: Vec<String>) -> std::result::Result<Options, lexopt::Error> {
    let mut options = Options {
        rounds: 5,
        seconds: 3,
        peers: Vec::new(),
        server_cpus: Vec::new(),
        load_cpus: Vec::new(),
        out: PathBuf::new(),
        workloads: workload::usual().collect(),
        install: false,
        list: false,
        command: command(words.iter().cloned()),
    };
    parse(&mut options, lexopt::Parser::from_args(words))?;
    Ok(options)
}

fn command(mut arguments: impl Iterator<Item = String>) -> String {
    let mut words = Vec::new();
    while let Some(word) = arguments.next() {
        match word.as_str() {
            "--out" => drop(arguments.next()),
            word if word.starts_with("--out=") => {}
            _ => words.push(word),
        }
    }
    words.join(" ")
}

fn parse(
    options: &mut Options,
    mut arguments: lexopt::Parser,
) -> std::result::Result<(), lexopt::Error> {
    let (mut out, mut folder) = (None, "report");
    while let Some(argument) = arguments.next()? {
        match argument {
            Long("quick") => (options.rounds, options.seconds) = (3, 1),
            Long("rounds") => options.rounds = arguments.value()?.parse::<usize>()?.max(1),
            Long("seconds") => options.seconds = arguments.value()?.parse::<u32>()?.max(1),
            Long("experiments") => {
                options.workloads = experiments::WORKLOADS.iter().collect();
                folder = "report/experiments";
            }
            Long("only") => {
                options.workloads = named(&arguments.value()?.string()?)?;
                folder = "report/some";
            }
            Long("peers") => {
                options.peers = list(&arguments.value()?.string()?);
                let is_known = |name: &&String| peer::all().any(|peer| peer.name == **name);
                if let Some(name) = options.peers.iter().find(|name| !is_known(name)) {
                    return Err(format!("there is no server {name:?}").into());
                }
            }
            Long("server-cpus") => options.server_cpus = cpus(arguments.value()?)?,
            Long("load-cpus") => options.load_cpus = cpus(arguments.value()?)?,
            Long("out") => out = Some(arguments.value()?.into()),
            Long("install") => options.install = true,
            Long("list") => options.list = true,
            Short('h') | Long("help") => {
                print!("{HELP}");
                std::process::exit(0);
            }
            _ => return Err(argument.unexpected()),
        }
    }
    options.out = out.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join(folder));
    Ok(())
}

fn named(text: &str) -> std::result::Result<Vec<&'static Workload>, lexopt::Error> {
    let named = |name: String| {
        let found = workload::all().find(|workload| workload.name == name);
        found.ok_or_else(|| format!("there is no workload {name:?}; --list names them").into())
    };
    list(text).into_iter().map(named).collect()
}

fn list(text: &str) -> Vec<String> {
    text.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

fn cpus(value: std::ffi::OsString) -> std::result::Result<Vec<usize>, lexopt::Error> {
    value.parse_with(|text| text.split(',').map(str::parse).collect::<std::result::Result<_, _>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> std::result::Result<Options, lexopt::Error> {
        from(words.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn what_is_measured_and_where_it_goes() {
        let names = |options: &Options| {
            options.workloads.iter().map(|workload| workload.name).collect::<Vec<_>>()
        };
        let usual = read(&[]).unwrap();
        assert!(usual.out.ends_with("report") && names(&usual).contains(&"memory"));
        let quick = read(&["--quick", "--experiments", "--out", "/elsewhere"]).unwrap();
        assert_eq!(
            (quick.rounds, quick.seconds, quick.command.as_str()),
            (3, 1, "--quick --experiments")
        );
        assert!(quick.out == Path::new("/elsewhere") && names(&quick).contains(&"ladder"));
        let some = read(&["--only", "file,ladder", "--server-cpus", "0,2"]).unwrap();
        assert!(some.out.ends_with("report/some"));
        assert_eq!((names(&some), some.server_cpus), (vec!["file", "ladder"], vec![0, 2]));
    }

    #[test]
    fn names_that_nobody_has() {
        for words in
            [["--only", "fiel"], ["--peers", "ngnix"], ["--server-cpus", "a"], ["--rounds", "x"]]
        {
            assert!(read(&words).is_err(), "{words:?}");
        }
    }
}
