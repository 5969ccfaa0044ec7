//! The command line → [`Args`]: syntax only.

use std::ffi::OsString;
use std::path::PathBuf;

use lexopt::prelude::*;
use weft::Address;

pub(crate) const HELP: &str = "\
Serves the files of a folder over HTTP.

Usage: weft [DIR] [--listen ADDR]... [--workers N] [--no-log]

  DIR              the folder to serve [default: .]
  --listen ADDR    where to listen: host:port, :port, [v6]:port or unix:PATH;
                   may be repeated [default: 127.0.0.1:8080]
  --workers N      event loops, each a thread [default: one per CPU]
  --no-log         no access log on stdout
  -h, --help       this text
  -V, --version    the version
";

pub(crate) enum Command {
    Help,
    Version,
    Serve(Args),
}

pub(crate) struct Args {
    pub(crate) directory: PathBuf,
    pub(crate) listen: Vec<String>,
    pub(crate) workers: Option<usize>,
    pub(crate) log: bool,
}

/// Reads the command line, the program's name first.
pub(crate) fn parse(line: impl IntoIterator<Item = OsString>) -> Result<Command, lexopt::Error> {
    let mut parser = lexopt::Parser::from_iter(line);
    let mut directory = None;
    let mut args = Args { directory: ".".into(), listen: Vec::new(), workers: None, log: true };
    while let Some(argument) = parser.next()? {
        match argument {
            Short('h') | Long("help") => return Ok(Command::Help),
            Short('V') | Long("version") => return Ok(Command::Version),
            Long("listen") => {
                let address = parser.value()?.string()?;
                address.parse::<Address>().map_err(|error| error.reason().to_owned())?;
                args.listen.push(address);
            }
            Long("workers") => {
                let workers: usize = parser.value()?.parse()?;
                if workers == 0 || workers > MOST_WORKERS {
                    return Err(format!("--workers is a number from 1 to {MOST_WORKERS}").into());
                }
                args.workers = Some(workers);
            }
            Long("no-log") => args.log = false,
            Value(value) if directory.is_none() => directory = Some(value.into()),
            argument => return Err(argument.unexpected()),
        }
    }
    if args.listen.is_empty() {
        args.listen.push("127.0.0.1:8080".to_owned());
    }
    args.directory = directory.unwrap_or(args.directory);
    Ok(Command::Serve(args))
}

const MOST_WORKERS: usize = 1024;
