//! The command line, and the configuration file that it names → [`Config`].

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use lexopt::prelude::*;
use weft_config::{ConfigLocation, Located, Problem, Sources, suggest};

use crate::apps::{FilesForm, Form};
use crate::cli::cache::CacheAction;
use crate::cli::completions::Shell;
use crate::cli::control_request::ControlRequest;
use crate::cli::foreign_commands;
use crate::cli::help::HelpTopic;
use crate::cli::kubernetes::KubernetesOptions;
use crate::cli::manual::ManualPage;
use crate::config::{Config, Plan, RouteConfig, flags, parse_route};
use crate::import::{Source, SourceKind};
use crate::sections::provided::ProvidedParts;

pub(crate) enum Command {
    Help(HelpTopic),
    Version,
    /// Prints a JSON schema of the configuration file.
    Schema,
    /// Formats configuration files, or reports those that are not formatted.
    Format {
        paths: Vec<PathBuf>,
        is_check: bool,
    },
    /// Prints a configuration of another server as one of Weft.
    Import(Source),
    /// Lists the certificates that are ordered, or changes something about them.
    Certificates {
        args: Args,
        action: CertificateAction,
    },
    /// Asks a running server about its response cache, or removes responses.
    Cache {
        args: Args,
        action: CacheAction,
    },
    /// Prints the hash of a password, behind the name of its user.
    HashPassword {
        name: Option<String>,
    },
    Manual(ManualPage),
    Completions(Shell),
    /// Lists the machines of a cluster.
    ClusterStatus(Args),
    Serve(Args),
    /// Serves the objects of a Kubernetes cluster.
    Kubernetes {
        args: Args,
        options: KubernetesOptions,
    },
    /// Sends a request to a running server: the server with this PID, or of the configuration's
    /// `pid_file`.
    Control {
        request: ControlRequest,
        args: Args,
        pid: Option<u32>,
    },
    /// Validates the configuration, and prints it if `print` is set.
    Check {
        args: Args,
        print: bool,
        /// Takes warnings for errors.
        is_strict: bool,
    },
}

/// The subject of `weft certificates`.
pub(crate) enum CertificateAction {
    List,
    /// Revokes the certificate of a name.
    Revoke {
        name: String,
        reason: Option<String>,
    },
    /// Changes the keys of the accounts.
    RollOver,
}

/// A configuration that the process makes itself.
#[derive(Default)]
struct GeneratedConfig {
    text: String,
    /// The plan of the text that was checked last, until it is used.
    checked: Option<(Sources, Plan)>,
}

/// The parsed command line.
#[derive(Default)]
pub(crate) struct Args {
    pub(crate) file: Option<PathBuf>,
    directory: Option<PathBuf>,
    routes: Vec<String>,
    /// Options that correspond to configuration keys, each with its arguments.
    options: Vec<(&'static str, Vec<OsString>)>,
    /// Configuration that the process makes itself, besides the file.
    generated: Option<Mutex<GeneratedConfig>>,
    provided: ProvidedParts,
}

/// The reason for a nonzero exit status.
pub(crate) enum Failure {
    /// The command line is invalid.
    Usage(Vec<Problem>),
    /// Another error: an invalid file, or a failed system call.
    Other(Vec<Problem>),
    /// A check has found only warnings, which are printed already.
    Warnings,
}

/// Options that do not correspond to a configuration key.
pub(crate) const OTHER_OPTIONS: [&str; 18] = [
    "config",
    "port",
    "route",
    "print",
    "pid",
    "strict",
    "no-log",
    "tls-key",
    "follow-links",
    "kubeconfig",
    "controller",
    "address",
    "nginx-class",
    "port-offset",
    "lease",
    "secret-namespace",
    "help",
    "version",
];

/// Name of a text that the process makes, in messages.
pub(crate) const GENERATED: &str = "generated";

/// The use of the configuration on the command line.
enum Mode {
    Serve,
    Check,
    Control(ControlRequest, Option<u32>),
    Certificates(CertificateAction),
    Kubernetes(KubernetesOptions),
}

/// Parses the command line. The first item is the program's name.
pub(crate) fn parse(line: impl IntoIterator<Item = OsString>) -> Result<Command, lexopt::Error> {
    let mut parser = lexopt::Parser::from_iter(line);
    let (mut args, mut mode) = (Args::default(), Mode::Serve);
    let (mut print, mut is_strict, mut tls_keys) = (false, false, Vec::new());
    while let Some(argument) = parser.next()? {
        match argument {
            Short('h') | Long("help") => return parse_help(&mut parser),
            Short('V') | Long("version") => return Ok(Command::Version),
            Short('c') | Long("config") if args.file.is_none() => {
                args.file = Some(parser.value()?.into());
            }
            Short('p') | Long("port") => {
                let port: u16 = parser.value()?.parse()?;
                args.option("listen").push(format!("127.0.0.1:{port}").into());
            }
            Short('c') | Long("config") => {
                return Err("--config is given twice; only one file is permitted".into());
            }
            Long("route") => args.routes.push(parser.value()?.string()?),
            Long("print") => print = true,
            Long("strict") => is_strict = true,
            Long("tls-key") => tls_keys.push(parser.value()?),
            Long("no-log") => args.option("log").push("none".into()),
            Long("follow-links") => args.option("links").push("anywhere".into()),
            Long(name) => {
                let name = name.to_owned();
                let is_of_mode = match &mut mode {
                    Mode::Certificates(action) => action.set_option(&name, &mut parser)?,
                    Mode::Control(_, pid) if name == "pid" => {
                        *pid = Some(parser.value()?.parse()?);
                        true
                    }
                    Mode::Kubernetes(options) => options.set_option(&name, &mut parser)?,
                    Mode::Serve | Mode::Check | Mode::Control(..) => false,
                };
                if !is_of_mode {
                    args.set_option(&name, &mut parser)?;
                }
            }
            Value(word) if matches!(mode, Mode::Serve) && args.has_no_operand() => {
                match word.to_str() {
                    Some("schema") => return parse_schema(&mut parser),
                    Some("fmt") => return parse_format(&mut parser),
                    Some("import") => return parse_import(&mut parser),
                    Some("cache") => return parse_cache(&mut parser),
                    Some("kubernetes") => mode = Mode::Kubernetes(KubernetesOptions::default()),
                    Some("hash-password") => return parse_hash_password(&mut parser),
                    Some("man") => return parse_manual(&mut parser),
                    Some("completions") => return parse_completions(&mut parser),
                    Some("cluster") => return parse_cluster(&mut parser),
                    Some("check") => mode = Mode::Check,
                    Some("certificates") => mode = Mode::Certificates(CertificateAction::List),
                    name => match name.and_then(ControlRequest::parse) {
                        Some(request) => mode = Mode::Control(request, None),
                        None => args.directory = Some(directory(word)?),
                    },
                }
            }
            Value(path) if matches!(mode, Mode::Serve) && args.directory.is_none() => {
                args.directory = Some(path.into());
            }
            Value(path) if !matches!(mode, Mode::Serve) && args.file.is_none() => {
                args.file = Some(path.into());
            }
            argument => return Err(unexpected(&argument)),
        }
    }
    args.pair_keys(tls_keys)?;
    if !matches!(mode, Mode::Check) && (print || is_strict) {
        let name = if print { "print" } else { "strict" };
        return Err(format!("--{name} belongs to `weft check FILE`").into());
    }
    match mode {
        Mode::Serve => Ok(Command::Serve(args)),
        Mode::Kubernetes(options) => Ok(Command::Kubernetes { args, options }),
        Mode::Check if args.file.is_none() => {
            Err("`check` needs the file to be checked; a folder of that name is ./check".into())
        }
        Mode::Check => Ok(Command::Check { args, print, is_strict }),
        Mode::Control(request, None) if args.file.is_none() => {
            let name = request.name();
            let needs = "needs --pid PID or the configuration file, which has `pid_file`";
            Err(format!("`{name}` {needs}").into())
        }
        Mode::Control(request, pid) => Ok(Command::Control { request, args, pid }),
        Mode::Certificates(_) if args.file.is_none() => {
            Err("`certificates` needs the configuration file".into())
        }
        Mode::Certificates(action) => Ok(Command::Certificates { args, action }),
    }
}

/// Returns the error for an argument that does not exist, or not here.
fn unexpected(argument: &lexopt::Arg<'_>) -> lexopt::Error {
    let foreign = |letter: char| {
        let counterpart = foreign_commands::option(letter)?;
        Some(format!("there is no option -{letter}; it is {counterpart}").into())
    };
    match argument {
        Short(letter) => foreign(*letter).unwrap_or_else(|| argument.clone().unexpected()),
        argument => argument.clone().unexpected(),
    }
}

/// Returns the directory to serve.
///
/// # Errors
/// If there is none of that name, which is a command of another server.
fn directory(word: OsString) -> Result<PathBuf, String> {
    let path = PathBuf::from(word);
    match path.to_str().and_then(foreign_commands::command) {
        Some(counterpart) if !path.exists() => {
            Err(format!("there is no command or folder `{}`; it is {counterpart}", path.display()))
        }
        _ => Ok(path),
    }
}

/// Parses the arguments of `weft cluster`.
fn parse_cluster(parser: &mut lexopt::Parser) -> Result<Command, lexopt::Error> {
    let usage = || "expected `weft cluster status FILE`".into();
    match parser.next()? {
        Some(Value(word)) if word == "status" => {}
        _ => return Err(usage()),
    }
    let mut args = Args::default();
    while let Some(argument) = parser.next()? {
        match argument {
            Short('c') | Long("config") if args.file.is_none() => {
                args.file = Some(parser.value()?.into());
            }
            Value(path) if args.file.is_none() => args.file = Some(path.into()),
            argument => return Err(argument.unexpected()),
        }
    }
    match args.file {
        Some(_) => Ok(Command::ClusterStatus(args)),
        None => Err(usage()),
    }
}

/// Parses the topic of the help, if there is one.
fn parse_help(parser: &mut lexopt::Parser) -> Result<Command, lexopt::Error> {
    let topic = match parser.optional_value() {
        Some(topic) => Some(topic),
        None => match parser.next()? {
            Some(Value(topic)) => Some(topic),
            _ => None,
        },
    };
    topic.map_or(Ok(HelpTopic::Overview), HelpTopic::parse).map(Command::Help)
}

/// Parses the arguments of `weft cache`: an action with its options, and the configuration file.
fn parse_cache(parser: &mut lexopt::Parser) -> Result<Command, lexopt::Error> {
    let usage = "`cache` needs `status`, `list` or `purge`; a folder of that name is ./cache";
    let word = match parser.next()? {
        Some(Value(word)) => word.string()?,
        _ => return Err(usage.into()),
    };
    let mut action = CacheAction::parse(&word).ok_or(usage)?;
    let mut args = Args::default();
    while let Some(argument) = parser.next()? {
        match argument {
            Long(name) => {
                let name = name.to_owned();
                if !action.set_option(&name, parser)? {
                    return Err(format!("`cache {word}` has no option --{name}").into());
                }
            }
            Value(path) if args.file.is_none() => args.file = Some(path.into()),
            argument => return Err(argument.unexpected()),
        }
    }
    match args.file {
        Some(_) => Ok(Command::Cache { args, action }),
        None => Err("`cache` needs the configuration file, which has the status endpoint".into()),
    }
}

/// Parses the arguments of `weft schema`, which has none.
fn parse_schema(parser: &mut lexopt::Parser) -> Result<Command, lexopt::Error> {
    end(parser).map(|()| Command::Schema)
}

/// Parses the arguments of `weft hash-password`.
fn parse_hash_password(parser: &mut lexopt::Parser) -> Result<Command, lexopt::Error> {
    let name = word(parser)?;
    end(parser).map(|()| Command::HashPassword { name })
}

/// Parses the arguments of `weft man`.
fn parse_manual(parser: &mut lexopt::Parser) -> Result<Command, lexopt::Error> {
    let page = word(parser)?.as_deref().and_then(ManualPage::parse);
    let usage = "`man` needs the page, `weft` or `weft.toml`; a folder of that name is ./man";
    end(parser)?;
    Ok(Command::Manual(page.ok_or(usage)?))
}

/// Parses the arguments of `weft completions`.
fn parse_completions(parser: &mut lexopt::Parser) -> Result<Command, lexopt::Error> {
    let shell = word(parser)?.as_deref().and_then(Shell::parse);
    let usage = "`completions` needs the shell, `bash`, `zsh` or `fish`; a folder of that name is \
                 ./completions";
    end(parser)?;
    Ok(Command::Completions(shell.ok_or(usage)?))
}

/// Parses a word, if there is one.
fn word(parser: &mut lexopt::Parser) -> Result<Option<String>, lexopt::Error> {
    match parser.next()? {
        None => Ok(None),
        Some(Value(word)) => word.string().map(Some),
        Some(argument) => Err(argument.unexpected()),
    }
}

/// Checks that there are no further arguments.
fn end(parser: &mut lexopt::Parser) -> Result<(), lexopt::Error> {
    match parser.next()? {
        None => Ok(()),
        Some(argument) => Err(argument.unexpected()),
    }
}

/// Parses the arguments of `weft fmt`.
fn parse_format(parser: &mut lexopt::Parser) -> Result<Command, lexopt::Error> {
    let (mut paths, mut is_check) = (Vec::new(), false);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("check") => is_check = true,
            Value(path) => paths.push(path.into()),
            argument => return Err(argument.unexpected()),
        }
    }
    match paths.is_empty() {
        true => Err("`fmt` needs the files to be formatted; a folder of that name is ./fmt".into()),
        false => Ok(Command::Format { paths, is_check }),
    }
}

/// Parses the arguments of `weft import`.
fn parse_import(parser: &mut lexopt::Parser) -> Result<Command, lexopt::Error> {
    let usage = "expected `weft import nginx FILE` or `weft import caddy FILE [--users FILE]`; a \
                 folder of that name is ./import";
    let mut words = Vec::new();
    let mut users = None;
    while let Some(argument) = parser.next()? {
        match argument {
            Value(word) => words.push(word),
            Long("users") => users = Some(parser.value()?.into()),
            argument => return Err(argument.unexpected()),
        }
    }
    let [kind, path] = &*words else { return Err(usage.into()) };
    let kind = match kind.to_str() {
        Some("nginx") if users.is_none() => SourceKind::Nginx,
        Some("caddy") => SourceKind::Caddy,
        _ => return Err(usage.into()),
    };
    Ok(Command::Import(Source { kind, path: path.into(), users }))
}

#[cfg(feature = "kubernetes")]
impl Args {
    /// Serves a text that the process makes, with these parts, besides the file.
    pub(crate) fn generate(&mut self, provided: ProvidedParts) {
        self.generated = Some(Mutex::default());
        self.provided = provided;
    }

    /// Replaces the text, and returns the former one.
    pub(crate) fn replace_generated(&self, text: String) -> String {
        let generated = self.generated();
        generated.map(|mut it| std::mem::replace(&mut it.text, text)).unwrap_or_default()
    }

    /// Returns the problems of a text. Without one, its plan is kept for `take_checked`.
    pub(crate) fn check_generated(&self, text: &str) -> Vec<Problem> {
        let sources = self.file.as_deref().map(Sources::read).unwrap_or_default();
        let sources = sources.with_generated(GENERATED, text.to_owned());
        let plan = Plan::new(self.config(&sources));
        match (plan, self.generated()) {
            (Err(problems), _) => problems,
            (Ok(plan), Some(mut generated)) => {
                generated.checked = Some((sources, plan));
                Vec::new()
            }
            (Ok(_), None) => Vec::new(),
        }
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

impl CertificateAction {
    /// Applies an option of `weft certificates`; returns false for any other.
    fn set_option(
        &mut self,
        name: &str,
        parser: &mut lexopt::Parser,
    ) -> Result<bool, lexopt::Error> {
        match (name, &mut *self) {
            ("revoke", _) => {
                let name = parser.value()?.string()?;
                *self = CertificateAction::Revoke { name, reason: None };
            }
            ("reason", CertificateAction::Revoke { reason, .. }) => {
                *reason = Some(parser.value()?.string()?);
            }
            ("roll-over", _) => *self = CertificateAction::RollOver,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

impl Args {
    /// Stores an option that corresponds to a configuration key, with its value.
    fn set_option(&mut self, name: &str, parser: &mut lexopt::Parser) -> Result<(), lexopt::Error> {
        let Some((flag, switch)) = find_flag(name) else {
            return Err(match name {
                "pid" => "--pid belongs to `weft reload`, `stop` and `upgrade`".into(),
                "reason" => "--reason belongs to `weft certificates FILE --revoke NAME`".into(),
                _ => unknown_option(name),
            });
        };
        let word = switch.map_or_else(|| parser.value(), |word| Ok(word.into()))?;
        self.option(flag).push(word);
        Ok(())
    }

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

    /// Reads the files of the configuration. A text that the process has made comes behind them.
    pub(crate) fn sources(&self) -> Sources {
        let sources = self.file.as_deref().map(Sources::read).unwrap_or_default();
        match self.generated() {
            Some(generated) => sources.with_generated(GENERATED, generated.text.clone()),
            None => sources,
        }
    }

    fn generated(&self) -> Option<MutexGuard<'_, GeneratedConfig>> {
        let generated = self.generated.as_ref();
        generated.map(|generated| generated.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the plan of the text that was checked last, once.
    pub(crate) fn take_checked(&self) -> Option<(Sources, Plan)> {
        self.generated()?.checked.take()
    }

    /// Takes a text in place of the file, whose directory its relative paths have as their base.
    /// Returns `None` without a file.
    pub(crate) fn sources_of(&self, text: String) -> Option<Sources> {
        let file = self.file.as_deref()?;
        let parent = file.parent().unwrap_or(Path::new(""));
        let base = if file.is_dir() { file } else { parent };
        Some(Sources::of_text("config", text, base))
    }

    /// Parses the files, and applies the options, which override them.
    pub(crate) fn config(&self, sources: &Sources) -> Config {
        let mut config = Config::parse(sources);
        config.provided = self.provided.clone();
        for (flag, arguments) in &self.options {
            let problem = config.set_option(flag, arguments).and_then(Result::err);
            config.problems.extend(problem);
        }
        for text in &self.routes {
            let location = ConfigLocation::Option("--route".to_owned());
            match parse_route(text) {
                Ok((host, prefix, form)) => add_route(&mut config, location, [host, prefix], form),
                Err(message) => config.problems.push(Problem { location, message }),
            }
        }
        if let Some(path) = self.directory.as_ref().filter(|path| path.is_file()) {
            let file = path.display();
            let is_caddyfile = path.file_name().is_some_and(|name| name == "Caddyfile");
            let reads = match path.extension().is_some_and(|extension| extension == "conf") {
                _ if is_caddyfile => format!("`weft import caddy {file}` translates it"),
                true => format!("`weft import nginx {file}` translates it"),
                false => format!("`weft --config {file}` reads a configuration"),
            };
            let message = format!("{file} is a file, not a directory; {reads}");
            config.problems.push(Problem::without_location(message));
            return config;
        }
        let has_no_route =
            self.file.is_none() && self.routes.is_empty() && self.generated.is_none();
        if let Some(root) = self.directory.clone().or(has_no_route.then(|| ".".into())) {
            let form = FilesForm::new(root).into();
            add_route(&mut config, ConfigLocation::Unknown, ["*".to_owned(), "/".to_owned()], form);
        }
        config
    }

    /// Returns the failure for these errors: one of the usage, if all are about the command line.
    pub(crate) fn failure(&self, problems: Vec<Problem>) -> Failure {
        let is_option = |problem: &Problem| matches!(problem.location, ConfigLocation::Option(_));
        match self.file.is_none() || problems.iter().all(is_option) {
            true => Failure::Usage(problems),
            false => Failure::Other(problems),
        }
    }
}

fn add_route(
    config: &mut Config,
    location: ConfigLocation,
    [host, prefix]: [String; 2],
    form: Form,
) {
    let names = Located { location: location.clone(), value: host };
    let key = Located { location: location.clone(), value: prefix };
    config.add_route(names, RouteConfig::new(key, Located { location, value: form }));
}
