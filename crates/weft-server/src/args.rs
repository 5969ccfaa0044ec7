//! The command line → [`Args`]: syntax only.

use std::ffi::OsString;
use std::path::PathBuf;

use lexopt::prelude::*;
use weft::{Address, DirectorySettings, HeaderRule, Links};

pub(crate) const HELP: &str = "\
Serves the files of a folder over HTTP.

Usage: weft [DIR] [OPTION]...

  DIR              the folder to serve [default: .]
  --listen ADDR    where to listen: host:port, :port, [v6]:port or unix:PATH;
                   may be repeated [default: 127.0.0.1:8080]
  --workers N      event loops, each a thread [default: one per CPU]
  --no-log         no access log on stdout

Files:
  --index NAME     the file that stands for its folder; may be repeated, then the
                   first that is there [default: index.html]
  --list           list folders that have no such file
  --spa FILE       serve this file of the folder for what is not found: the page of
                   an application that routes in the browser
  --cache RULE     what Cache-Control says: a time (90s, 5m, 1h, 7d), immutable,
                   no-cache or any other value; for some files: '*.css=1h',
                   '/assets/**=immutable'; may be repeated, the last that fits counts
  --language TAG   pages in this language are in files such as about.html.TAG; may
                   be repeated
  --compress       compress texts for clients that accept it [default]
  --no-compress    do not; compressed files beside them (.br .zst .gz) still serve
  --follow-links   follow symbolic links out of the folder

  -h, --help       this text
  -V, --version    the version
";

pub(crate) enum Command {
    Help,
    Version,
    Serve(Box<Args>),
}

pub(crate) struct Args {
    pub(crate) directory: PathBuf,
    pub(crate) listen: Vec<String>,
    pub(crate) workers: Option<usize>,
    pub(crate) log: bool,
    pub(crate) files: Box<DirectorySettings>,
}

/// Reads the command line, the program's name first.
pub(crate) fn parse(line: impl IntoIterator<Item = OsString>) -> Result<Command, lexopt::Error> {
    let mut parser = lexopt::Parser::from_iter(line);
    let mut directory = None;
    let mut args = Args {
        directory: ".".into(),
        listen: Vec::new(),
        workers: None,
        log: true,
        files: Box::new(DirectorySettings { index: Vec::new(), ..DirectorySettings::default() }),
    };
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
            Long("index") => args.files.index.push(parser.value()?.string()?),
            Long("list") => args.files.listing = true,
            Long("spa") => args.files.fallback = Some(parser.value()?.string()?),
            Long("cache") => {
                let rule = HeaderRule::cache(&parser.value()?.string()?);
                args.files.headers.push(rule.map_err(|error| format!("--cache: {error}"))?);
            }
            Long("language") => args.files.languages.push(parser.value()?.string()?),
            Long("compress") => args.files.compress = true,
            Long("no-compress") => args.files.compress = false,
            Long("follow-links") => args.files.links = Links::Anywhere,
            Value(value) if directory.is_none() => directory = Some(value.into()),
            argument => return Err(argument.unexpected()),
        }
    }
    if args.listen.is_empty() {
        args.listen.push("127.0.0.1:8080".to_owned());
    }
    if args.files.index.is_empty() {
        args.files.index = DirectorySettings::default().index;
    }
    args.directory = directory.unwrap_or(args.directory);
    Ok(Command::Serve(Box::new(args)))
}

const MOST_WORKERS: usize = 1024;
