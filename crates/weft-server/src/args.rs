//! The command line, and the configuration file that it names → [`Config`].

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use lexopt::prelude::*;

use crate::config::{
    Action, Config, ConfigLocation, ConfigText, FilesConfig, Located, Problem, RouteConfig, flags,
    parse_route, suggest,
};

pub(crate) enum Command {
    Help,
    Version,
    Serve(Args),
    /// Validates the configuration, and prints it if `print` is set.
    Check {
        args: Args,
        print: bool,
    },
}

/// The parsed command line.
#[derive(Default)]
pub(crate) struct Args {
    pub(crate) file: Option<PathBuf>,
    directory: Option<PathBuf>,
    routes: Vec<String>,
    /// Options that correspond to configuration keys, each with its arguments.
    options: Vec<(&'static str, Vec<OsString>)>,
}

/// The reason for a nonzero exit status.
pub(crate) enum Failure {
    /// The command line is invalid.
    Usage(Vec<Problem>),
    /// Another error: an invalid file, or a failed system call.
    Other(Vec<Problem>),
}

impl Failure {
    pub(crate) fn into_problems(self) -> Vec<Problem> {
        let (Failure::Usage(problems) | Failure::Other(problems)) = self;
        problems
    }
}

/// Options that do not correspond to a configuration key.
pub(crate) const OTHER_OPTIONS: [&str; 8] =
    ["config", "route", "print", "no-log", "tls-key", "follow-links", "help", "version"];

/// Parses the command line. The first item is the program's name.
pub(crate) fn parse(line: impl IntoIterator<Item = OsString>) -> Result<Command, lexopt::Error> {
    let mut parser = lexopt::Parser::from_iter(line);
    let mut args = Args::default();
    let (mut check, mut print, mut tls_keys) = (false, false, Vec::new());
    while let Some(argument) = parser.next()? {
        match argument {
            Short('h') | Long("help") => return Ok(Command::Help),
            Short('V') | Long("version") => return Ok(Command::Version),
            Long("config") if args.file.is_none() => args.file = Some(parser.value()?.into()),
            Long("config") => {
                return Err("--config is given twice; only one file is permitted".into());
            }
            Long("route") => args.routes.push(parser.value()?.string()?),
            Long("print") => print = true,
            Long("tls-key") => tls_keys.push(parser.value()?),
            Long("no-log") => args.option("log").push("none".into()),
            Long("follow-links") => args.option("links").push("anywhere".into()),
            Long(name) => {
                let Some((flag, switch)) = find_flag(name) else {
                    return Err(unknown_option(name));
                };
                let word = switch.map_or_else(|| parser.value(), |word| Ok(word.into()))?;
                args.option(flag).push(word);
            }
            Value(word) if word == "check" && !check && args.has_no_operand() => check = true,
            Value(file) if check && args.file.is_none() => args.file = Some(file.into()),
            Value(path) if !check && args.directory.is_none() => args.directory = Some(path.into()),
            argument => return Err(argument.unexpected()),
        }
    }
    args.pair_keys(tls_keys)?;
    match (check, print) {
        (true, _) if args.file.is_none() => {
            Err("`check` needs the file to be checked; a folder of that name is ./check".into())
        }
        (true, print) => Ok(Command::Check { args, print }),
        (false, true) => Err("--print belongs to `weft check FILE`".into()),
        (false, false) => Ok(Command::Serve(args)),
    }
}

/// Returns the configuration option with this name. For a switch, also returns the argument that
/// `--NAME` or `--no-NAME` stands for.
fn find_flag(name: &str) -> Option<(&'static str, Option<&'static str>)> {
    flags().find_map(|flag| match flag.is_switch {
        false => (flag.name == name).then_some((flag.name, None)),
        true if flag.name == name => Some((flag.name, Some("yes"))),
        true => (name.strip_prefix("no-") == Some(flag.name)).then_some((flag.name, Some("no"))),
    })
}

fn unknown_option(name: &str) -> lexopt::Error {
    let known = flags().map(|flag| flag.name).chain(OTHER_OPTIONS);
    let hint = match suggest(name, known) {
        Some(suggestion) => format!("; did you mean --{suggestion}?"),
        None => String::new(),
    };
    format!("invalid option '--{name}'{hint}").into()
}

impl Args {
    /// Returns the arguments of an option that have been parsed so far.
    fn option(&mut self, flag: &'static str) -> &mut Vec<OsString> {
        let at = self.options.iter().position(|(known, _)| *known == flag);
        let at = at.unwrap_or_else(|| {
            self.options.push((flag, Vec::new()));
            self.options.len() - 1
        });
        &mut self.options[at].1
    }

    fn has_no_operand(&self) -> bool {
        self.directory.is_none() && self.file.is_none()
    }

    /// Inserts each private key after its certificate in the arguments of `tls-cert`.
    fn pair_keys(&mut self, keys: Vec<OsString>) -> Result<(), String> {
        let certificates = std::mem::take(self.option("tls-cert"));
        let (count, key_count) = (certificates.len(), keys.len());
        if count != key_count {
            return Err(format!(
                "each --tls-cert has its --tls-key; there are {count} and {key_count}"
            ));
        }
        self.options.retain(|(flag, _)| count > 0 || *flag != "tls-cert");
        for (certificate, key) in certificates.into_iter().zip(keys) {
            self.option("tls-cert").extend([certificate, key]);
        }
        Ok(())
    }

    /// Reads the configuration file, and applies the options, which override the file.
    pub(crate) fn config(&self) -> Result<Config, Failure> {
        let mut config = match &self.file {
            Some(path) => read(path).map_err(Failure::Other)?,
            None => Config::default(),
        };
        let options = self.options.iter();
        let set = options.filter_map(|(flag, arguments)| config.set_option(flag, arguments));
        let mut problems: Vec<Problem> = set.filter_map(Result::err).collect();
        for text in &self.routes {
            let location = ConfigLocation::Option("--route".to_owned());
            match parse_route(text) {
                Ok((host, prefix, action)) => {
                    add_route(&mut config, location, [host, prefix], action)
                }
                Err(message) => problems.push(Problem { location, message }),
            }
        }
        let has_no_route = self.file.is_none() && self.routes.is_empty();
        if let Some(root) = self.directory.clone().or(has_no_route.then(|| ".".into())) {
            let action = Action::Files { root, files: Box::<FilesConfig>::default() };
            add_route(
                &mut config,
                ConfigLocation::Unknown,
                ["*".to_owned(), "/".to_owned()],
                action,
            );
        }
        if problems.is_empty() { Ok(config) } else { Err(Failure::Usage(problems)) }
    }
}

fn add_route(
    config: &mut Config,
    location: ConfigLocation,
    [host, prefix]: [String; 2],
    action: Action,
) {
    let names = Located { location: location.clone(), value: host };
    let prefix = Located { location: location.clone(), value: prefix };
    config.add_route(names, RouteConfig { prefix, action: Located { location, value: action } });
}

fn read(path: &Path) -> Result<Config, Vec<Problem>> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| {
        vec![Problem {
            location: ConfigLocation::Unknown,
            message: format!("cannot read {name}: {error}"),
        }]
    })?;
    Config::parse(&ConfigText::new(&name, text), path.parent().unwrap_or(Path::new("")))
}
