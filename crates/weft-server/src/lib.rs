//! The web server `weft`: arguments → `Config` → `Plan` → run.
//!
//! A library, because Cargo compiles a program only after all of its dependencies are complete, but
//! a library beside them.

mod base; // small parts that import nothing else of the program
mod template; // texts with placeholders
mod sections; // the sections with fixed keys
mod route; // keys, readings and rewriting of routes
mod options; // options of a route: keys, inheritance, middleware
mod apps; // forms of routes: files, proxy, CGI, redirect, text
mod config; // text → Config → Plan
mod config_change; // changes by clients of the status endpoint
#[cfg(feature = "import")]
mod import; // configurations of other servers → text
#[cfg(not(feature = "import"))]
#[path = "import/disabled.rs"]
mod import;
mod cli; // the command line
mod logs; // access log and error log
mod router; // router: host and path → application
mod stream; // TCP connections that are forwarded without HTTP
mod sockets; // listening sockets: configured, inherited, changed at a reload
mod open; // opens the directories and certificates of a plan
mod stream_server; // the server of all streams
mod status; // status endpoint and metrics
#[cfg(feature = "kubernetes")]
mod kubernetes; // the configuration of a cluster
#[cfg(not(feature = "kubernetes"))]
#[path = "kubernetes/disabled.rs"]
mod kubernetes;
mod lifecycle; // the life of the server process: start, reload, signals, shutdown

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cli::args::{self, Args, CertificateAction, Command, Failure};
use cli::control_request::ControlRequest;
use cli::kubernetes::KubernetesOptions;
use cli::{cache, certificates, cluster, hash_password, help};
use config::{Plan, print_plan, schema};
use lifecycle::control::{self, ControlResult};
use lifecycle::privileges;
use logs::print_error;
use sections::cluster::ClusterConfig;
use sections::tracing::Tracer;
use weft_config::{Problem, Sources, format};

/// Exit status of a check that has found only warnings, and of an import that has lost something.
const INCOMPLETE: u8 = 3;

/// Runs the program with the arguments of the process.
pub fn main() -> ExitCode {
    let result = match args::parse(std::env::args_os()) {
        Ok(Command::Help(topic)) => {
            print_stdout(&help::help(topic));
            Ok(())
        }
        Ok(Command::Version) => {
            print_stdout(concat!("weft ", env!("CARGO_PKG_VERSION"), "\n"));
            Ok(())
        }
        Ok(Command::Schema) => {
            print_stdout(&schema::schema());
            Ok(())
        }
        Ok(Command::Manual(page)) => {
            print_stdout(&page.text());
            Ok(())
        }
        Ok(Command::Completions(shell)) => {
            print_stdout(&shell.script());
            Ok(())
        }
        Ok(Command::HashPassword { name }) => hash_password(name.as_deref()),
        Ok(Command::Format { paths, is_check }) => format_files(&paths, is_check),
        Ok(Command::Import(source)) => return import(&source),
        Ok(Command::Serve(args)) => serve(&args),
        Ok(Command::Kubernetes { args, options }) => serve_cluster(args, &options),
        Ok(Command::Check { args, print, is_strict }) => check(&args, print, is_strict),
        Ok(Command::Control { request, args, pid }) => return control(request, &args, pid),
        Ok(Command::Cache { args, action }) => cache(&args, &action),
        Ok(Command::ClusterStatus(args)) => cluster_status(&args),
        Ok(Command::Certificates { args, action }) => certificates(&args, &action),
        Err(problem) => {
            print_error(&format!("{problem}; try --help"));
            return ExitCode::from(2);
        }
    };
    let (problems, hint, code) = match result {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Usage(problems)) => (problems, "; try --help", 2),
        Err(Failure::Other(problems)) => (problems, "", 1),
        Err(Failure::Warnings) => return ExitCode::from(INCOMPLETE),
    };
    for problem in problems {
        print_error(&format!("{problem}{hint}"));
    }
    ExitCode::from(code)
}

fn plan(args: &Args, sources: &Sources) -> Result<Plan, Failure> {
    Plan::new(args.config(sources)).map_err(|problems| args.failure(problems))
}

fn serve(args: &Args) -> Result<(), Failure> {
    let sources = args.sources();
    let plan = plan(args, &sources)?;
    lifecycle::run(args, sources, plan, drop).map_err(Failure::Other)
}

/// Serves the objects of a cluster.
fn serve_cluster(args: Args, options: &KubernetesOptions) -> Result<(), Failure> {
    let (args, started) = kubernetes::start(args, options)?;
    let sources = args.sources();
    let plan = plan(&args, &sources)?;
    lifecycle::run(&args, sources, plan, started).map_err(Failure::Other)
}

/// Validates the configuration and opens its resources, as the user of the server, but binds no
/// socket.
fn check(args: &Args, print: bool, is_strict: bool) -> Result<(), Failure> {
    let sources = args.sources();
    let (plan, invalid) = Plan::of_valid_parts(args.config(&sources));
    let opened = privileges::check(&plan.top.run_as).and_then(|()| plan.open(None));
    let (mut problems, of_cluster) = match opened {
        Ok(opened) => (opened.unavailable_problems(), opened.check_cluster()),
        Err(problems) => (problems, None),
    };
    problems.extend(logs::check(&plan.log));
    let tracing = plan.tracing.as_ref().map_or(Ok(()), Tracer::check);
    problems.extend(tracing.err().map(Problem::without_location));
    if !invalid.is_empty() {
        return Err(args.failure([invalid, problems].concat()));
    }
    let mut warnings = plan.warnings();
    warnings.extend(of_cluster);
    warnings.iter().for_each(|warning| print_error(&warning.as_warning()));
    if is_strict && !warnings.is_empty() && problems.is_empty() {
        problems.push(Problem::without_location("there are warnings, which --strict forbids"));
    }
    if !problems.is_empty() {
        return Err(Failure::Other(problems));
    }
    if let Some(acme) = &plan.acme {
        if !acme.domains.is_empty() || !acme.on_demand.is_enabled() {
            print_error(&certificates::describe(acme));
        }
        if acme.on_demand.is_enabled() {
            print_error(&certificates::describe_on_demand(&acme.on_demand));
        }
        if plan.cluster.as_ref().is_some_and(ClusterConfig::has_store) {
            print_error(certificates::DESCRIBED_CLUSTER);
        }
    }
    if print {
        print_stdout(&print_plan(&plan));
    }
    if warnings.is_empty() { Ok(()) } else { Err(Failure::Warnings) }
}

/// Sends a request to a running server, and prints the result. The exit status is 3 if some sites
/// could not be opened by a reload.
fn control(request: ControlRequest, args: &Args, pid: Option<u32>) -> ExitCode {
    let pid = pid.map_or_else(|| running_server(args, request), Ok);
    let (result, problems) = match pid.and_then(|pid| control::send(request, pid)) {
        Ok(result) => result,
        Err(message) => {
            print_error(&message);
            return ExitCode::FAILURE;
        }
    };
    problems.iter().for_each(|problem| print_error(problem));
    match result {
        ControlResult::Complete => ExitCode::SUCCESS,
        ControlResult::Incomplete => {
            print_error("the configuration was reloaded, without the parts above");
            ExitCode::from(INCOMPLETE)
        }
        ControlResult::Failed => {
            print_error(request.failure());
            ExitCode::FAILURE
        }
    }
}

/// Returns the PID in the `pid_file` of a configuration.
fn running_server(args: &Args, request: ControlRequest) -> Result<u32, String> {
    let (plan, _) = Plan::of_valid_parts(args.config(&args.sources()));
    let Some(path) = plan.top.pid_file.map(|path| path.value) else {
        return Err(format!(
            "which server is to {}? The configuration has no `pid_file`; give the PID as --pid PID",
            request.name()
        ));
    };
    let shown = path.display();
    let text = std::fs::read_to_string(&path)
        .map_err(|error| format!("cannot read the PID of the server in {shown}: {error}"))?;
    text.trim().parse().map_err(|_| format!("{shown} has no PID: no server runs"))
}

/// Sends a request about the response cache to the status endpoint of a configuration.
fn cache(args: &Args, action: &cache::CacheAction) -> Result<(), Failure> {
    let plan = plan(args, &args.sources())?;
    let result = cache::run(action, plan.status.listen.texts().map(String::as_str));
    result
        .map(|text| print_stdout(&text))
        .map_err(|message| Failure::Other(vec![Problem::without_location(message)]))
}

/// Lists the machines of the cluster of a configuration.
fn cluster_status(args: &Args) -> Result<(), Failure> {
    let plan = plan(args, &args.sources())?;
    let status = match &plan.cluster {
        Some(config) => cluster::status(config),
        None => Err("the configuration has no [cluster] with a store".to_owned()),
    };
    status
        .map(|text| print_stdout(&text))
        .map_err(|message| Failure::Other(vec![Problem::without_location(message)]))
}

fn certificates(args: &Args, action: &CertificateAction) -> Result<(), Failure> {
    let plan = plan(args, &args.sources())?;
    let problem = |message: String| Failure::Other(vec![Problem::without_location(message)]);
    let acme = plan.acme.ok_or_else(|| {
        problem("no certificates are ordered: set `certificates = \"auto\"` in [tls]".to_owned())
    })?;
    let settings = certificates::settings(&acme, plan.cluster.as_ref()).map_err(problem)?;
    let result = match action {
        CertificateAction::List => certificates::list(&acme, &settings),
        CertificateAction::Revoke { name, reason } => {
            certificates::revoke(&settings, name, reason.as_deref())
        }
        CertificateAction::RollOver => certificates::roll_over(&settings),
    };
    result.map(|text| print_stdout(&text)).map_err(problem)
}

fn hash_password(name: Option<&str>) -> Result<(), Failure> {
    let line = hash_password::run(name);
    line.map(|line| print_stdout(&line))
        .map_err(|message| Failure::Other(vec![Problem::without_location(message)]))
}

/// Formats files in place, or reports those that are not formatted.
fn format_files(paths: &[PathBuf], is_check: bool) -> Result<(), Failure> {
    let mut problems = Vec::new();
    for path in paths {
        let files = match path.is_dir() {
            true => weft_config::toml_files(path),
            false => Ok(vec![path.clone()]),
        };
        let files = files.map_err(|message| problems.push(Problem::without_location(message)));
        for file in files.unwrap_or_default() {
            problems.extend(format_file(&file, is_check).err().unwrap_or_default());
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(Failure::Other(problems)) }
}

fn format_file(path: &Path, is_check: bool) -> Result<(), Vec<Problem>> {
    let shown = path.display();
    let problem = |message| vec![Problem::without_location(message)];
    let failed =
        |what: &str, error: std::io::Error| problem(format!("cannot {what} {shown}: {error}"));
    let text = std::fs::read_to_string(path).map_err(|error| failed("read", error))?;
    let problems = weft_config::syntax_problems(&shown.to_string(), &text);
    if !problems.is_empty() {
        return Err(problems);
    }
    let formatted =
        format::format(&text).map_err(|error| problem(format!("{shown}: {}", error.message())))?;
    match formatted == text {
        true => Ok(()),
        false if is_check => Err(problem(format!("{shown} is not formatted; `weft fmt` does it"))),
        // In place: the file keeps its owner, its mode and the links to it.
        false => std::fs::write(path, formatted).map_err(|error| failed("write", error)),
    }
}

/// Prints a configuration of nginx as one of Weft. The exit status is 3 if something was lost.
fn import(source: &import::Source) -> ExitCode {
    match import::import(source) {
        Ok((text, is_complete)) => {
            print_stdout(&text);
            if is_complete { ExitCode::SUCCESS } else { ExitCode::from(INCOMPLETE) }
        }
        Err(message) => {
            print_error(&message);
            ExitCode::FAILURE
        }
    }
}

fn print_stdout(text: &str) {
    // Ignored: there is no output to report an error of stdout to.
    let _ = std::io::stdout().write_all(text.as_bytes());
}
