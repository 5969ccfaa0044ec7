//! The command line.

use std::path::{Path, PathBuf};

use lexopt::prelude::*;

use crate::peer::Peer;
use crate::workload::Workload;
use crate::{Result, peers, workloads};

pub const HELP: &str = "\
Compares Weft with other servers and writes a report.

usage: cargo run --release --manifest-path bench/Cargo.toml -- [OPTION]...

  --quick              three rounds of one second
  --rounds N           number of rounds; each measures every server once (5)
  --seconds N          duration of a measurement (3)
  --experiments        measure the experiments of docs/experiments.md instead of the comparison
  --adverse            measure loads other than kept connections with small responses
  --http3              measure HTTP/3, with the servers in the folder of --root
  --root DIR           root of a newer suite of Debian (bench/debian-root.sh makes one); requires chroot(2)
  --instructions       print the instructions per request instead of a report: one connection, callgrind, by
                       default the workloads memory and browser of axum and axum-weft
  --only NAME,...      measure only these workloads or experiments; see --list
  --peers NAME,...     measure only these servers, and Weft
  --server-cpus N,...  CPUs of the servers (default: the first half)
  --load-cpus N,...    CPUs of the load generators (default: all others)
  --out DIR            output folder (bench/report; with --experiments bench/report/experiments,
                       with --adverse bench/report/adverse,
                       with --http3 bench/report/http3, with --only bench/report/some)
  --install            install missing packages with apt-get
  --list               list the workloads and experiments
  --help               print this help

Servers of Debian packages are found by PATH, so that another version is measured if its folder comes first.
";

pub struct Options {
    pub rounds: usize,
    pub seconds: u32,
    pub peers: Vec<String>,
    pub server_cpus: Vec<usize>,
    pub load_cpus: Vec<usize>,
    pub out: PathBuf,
    /// The workloads to measure.
    pub workloads: Vec<&'static Workload>,
    pub install: bool,
    /// The root of the servers with HTTP/3.
    pub root: Option<PathBuf>,
    pub list: bool,
    pub instructions: bool,
    /// The command line for the report, without the output folder, which may be private.
    pub command: String,
}

impl Options {
    /// Returns the servers of the workloads that are selected, and their upstream servers.
    pub fn selected_peers(&self) -> Vec<&'static Peer> {
        let is_upstream = |peer: &Peer| self.workloads.iter().any(|it| it.upstream() == peer.name);
        let is_used = |peer: &Peer| self.workloads.iter().any(|it| it.peers.contains(&peer.name));
        let is_selected = |peer: &Peer| {
            self.peers.is_empty()
                || peer.name.contains("weft")
                || self.peers.iter().any(|name| name == peer.name)
        };
        let is_measured = |peer: &Peer| is_used(peer) && is_selected(peer);
        peers::all().filter(|peer| is_upstream(peer) || is_measured(peer)).collect()
    }
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
        workloads: workloads::comparison::WORKLOADS.iter().collect(),
        install: false,
        root: None,
        list: false,
        instructions: false,
        command: command(words.iter().cloned()),
    };
    parse(&mut options, lexopt::Parser::from_args(words))?;
    Ok(options)
}

fn command(mut arguments: impl Iterator<Item = String>) -> String {
    let mut words = Vec::new();
    while let Some(word) = arguments.next() {
        match word.as_str() {
            "--out" | "--root" => drop(arguments.next()),
            word if word.starts_with("--out=") || word.starts_with("--root=") => {}
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
                options.workloads = workloads::experiments::WORKLOADS.iter().collect();
                folder = "report/experiments";
            }
            Long("adverse") => {
                options.workloads = workloads::adverse::WORKLOADS.iter().collect();
                folder = "report/adverse";
            }
            Long("http3") => {
                options.workloads = workloads::http3::WORKLOADS.iter().collect();
                folder = "report/http3";
            }
            Long("root") => options.root = Some(arguments.value()?.into()),
            Long("instructions") => {
                options.instructions = true;
                options.workloads = named("memory,browser")?;
                options.peers = list("axum,axum-weft");
            }
            Long("only") => {
                options.workloads = named(&arguments.value()?.string()?)?;
                folder = "report/some";
            }
            Long("peers") => {
                options.peers = list(&arguments.value()?.string()?);
                let exists = |name: &&String| peers::all().any(|peer| peer.name == **name);
                if let Some(name) = options.peers.iter().find(|name| !exists(name)) {
                    return Err(format!("unknown server {name:?}").into());
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
        let found = workloads::all().find(|workload| workload.name == name);
        found.ok_or_else(|| format!("unknown workload {name:?} (--list prints all names)").into())
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
    fn options_select_workloads_and_output_folder() {
        let names = |options: &Options| {
            options.workloads.iter().map(|workload| workload.name).collect::<Vec<_>>()
        };
        let default = read(&[]).unwrap();
        assert!(default.out.ends_with("report") && names(&default).contains(&"memory"));
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
    fn rejects_unknown_names_and_invalid_numbers() {
        for words in
            [["--only", "fiel"], ["--peers", "ngnix"], ["--server-cpus", "a"], ["--rounds", "x"]]
        {
            assert!(read(&words).is_err(), "{words:?}");
        }
    }
}
