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
                   may be repeated [default: 127.0.0.1:8080, or none with TLS]
  --workers N      event loops, each a thread [default: one per CPU]
  --no-log         no access log on stdout

TLS:
  --tls-cert FILE  the certificate and those up to its root, in PEM
  --tls-key FILE   its private key; both may be repeated, in the same order: clients
                   get the certificate for the name that they ask for, or the first
  --tls-self-signed
                   make a certificate for this machine, which no client trusts
  --tls-listen ADDR
                   where to speak TLS; may be repeated [default: 127.0.0.1:8443]
  --tls-tickets FILE
                   keys of session tickets, 48 bytes each: the first encrypts
  --tls-client-ca FILE
                   clients must have a certificate that one of these has signed

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
    pub(crate) tls: Option<TlsArgs>,
    pub(crate) workers: Option<usize>,
    pub(crate) log: bool,
    pub(crate) files: Box<DirectorySettings>,
}

/// How TLS is spoken, and where.
pub(crate) struct TlsArgs {
    pub(crate) listen: Vec<String>,
    /// Certificates and their keys; none: one that is made for the occasion.
    pub(crate) files: Vec<(PathBuf, PathBuf)>,
    pub(crate) tickets: Option<PathBuf>,
    pub(crate) client_ca: Option<PathBuf>,
}

/// The same as it stands on the command line.
#[derive(Default)]
struct TlsOptions {
    listen: Vec<String>,
    certificates: Vec<PathBuf>,
    keys: Vec<PathBuf>,
    self_signed: bool,
    tickets: Option<PathBuf>,
    client_ca: Option<PathBuf>,
}

/// Reads the command line, the program's name first.
pub(crate) fn parse(line: impl IntoIterator<Item = OsString>) -> Result<Command, lexopt::Error> {
    let mut parser = lexopt::Parser::from_iter(line);
    let mut directory = None;
    let mut args = Args {
        directory: ".".into(),
        listen: Vec::new(),
        tls: None,
        workers: None,
        log: true,
        files: Box::new(DirectorySettings { index: Vec::new(), ..DirectorySettings::default() }),
    };
    let mut tls = TlsOptions::default();
    while let Some(argument) = parser.next()? {
        match argument {
            Short('h') | Long("help") => return Ok(Command::Help),
            Short('V') | Long("version") => return Ok(Command::Version),
            Long("listen") => args.listen.push(address(parser.value()?)?),
            Long("tls-listen") => tls.listen.push(address(parser.value()?)?),
            Long("tls-cert") => tls.certificates.push(parser.value()?.into()),
            Long("tls-key") => tls.keys.push(parser.value()?.into()),
            Long("tls-self-signed") => tls.self_signed = true,
            Long("tls-tickets") => tls.tickets = Some(parser.value()?.into()),
            Long("tls-client-ca") => tls.client_ca = Some(parser.value()?.into()),
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
    args.tls = tls.checked()?;
    if args.listen.is_empty() && args.tls.is_none() {
        args.listen.push("127.0.0.1:8080".to_owned());
    }
    if args.files.index.is_empty() {
        args.files.index = DirectorySettings::default().index;
    }
    args.directory = directory.unwrap_or(args.directory);
    Ok(Command::Serve(Box::new(args)))
}

fn address(value: OsString) -> Result<String, lexopt::Error> {
    let address = value.string()?;
    address.parse::<Address>().map_err(|error| error.reason().to_owned())?;
    Ok(address)
}

impl TlsOptions {
    /// What they come to; `None` without a certificate.
    fn checked(mut self) -> Result<Option<TlsArgs>, String> {
        let (certificates, keys) = (self.certificates.len(), self.keys.len());
        if certificates != keys {
            return Err(format!(
                "each --tls-cert has its --tls-key; there are {certificates} and {keys}"
            ));
        }
        if certificates > 0 && self.self_signed {
            return Err("--tls-self-signed is for who has no --tls-cert".to_owned());
        }
        if certificates == 0 && !self.self_signed {
            return match self.without_certificate() {
                Some(option) => Err(format!("{option} needs --tls-cert or --tls-self-signed")),
                None => Ok(None),
            };
        }
        if self.listen.is_empty() {
            self.listen.push("127.0.0.1:8443".to_owned());
        }
        let files = self.certificates.into_iter().zip(self.keys).collect();
        let TlsOptions { listen, tickets, client_ca, .. } = self;
        Ok(Some(TlsArgs { listen, files, tickets, client_ca }))
    }

    /// An option that makes no sense where there is no certificate.
    fn without_certificate(&self) -> Option<&'static str> {
        let given = [
            ("--tls-listen", !self.listen.is_empty()),
            ("--tls-tickets", self.tickets.is_some()),
            ("--tls-client-ca", self.client_ca.is_some()),
        ];
        given.into_iter().find_map(|(option, is_given)| is_given.then_some(option))
    }
}

const MOST_WORKERS: usize = 1024;
