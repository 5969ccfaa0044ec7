//! The web server `weft`: arguments → [`Config`](config::Config) → [`Plan`] → run.

mod args; // the command line
mod help; // its help text
mod config; // text → Config
mod plan; // Config → Plan
mod warnings; // probable mistakes in a plan
mod captures;
mod certificates; // `weft certificates`
mod print; // Plan → text
mod format; // the canonical layout of a file
mod schema; // a JSON schema of the file
mod import; // configurations of other servers → text
mod open; // opens the directories and certificates of a plan
mod active_plan; // the plan in effect, with everything that is open for it
mod tls;
mod trace_context;
mod tracing; // TlsPlan → Tls
mod template; // texts with placeholders
mod rendezvous; // rendezvous hashing
mod route; // router: host and path → application
mod reloadable_router; // a worker's router, replaced at a reload
mod route_middleware; // middleware of a route, made of its options
mod substitution; // substitution of texts in bodies
mod field_changes; // changes of a route to fields
mod error_pages; // error pages of a route, from files
mod access; // access to a route: addresses and authentication
mod acme; // certificates that are ordered and renewed
mod watched_file; // files that are read again when they change
mod network_set; // sets of networks in files
mod request_notes; // notes about a request for its line in the access log
mod password_file; // users and hashed passwords
mod stream; // TCP connections that are forwarded without HTTP
mod splice; // bytes between two connections
mod apps; // the applications: files, proxy, CGI, redirect, text
mod config_change; // changes of the configuration by clients of the status endpoint
mod run; // the life of the server process: start, signals, shutdown
mod reload; // compares a new plan with the active one, and applies the difference
mod sockets; // listening sockets: configured, inherited, changed at a reload
mod defer_accept; // connections are accepted with their first bytes
mod handover; // passes the sockets to the next process at an upgrade
mod systemd; // socket activation and sd_notify
mod privileges; // user, group, umask, pid file
mod signals; // signals → control events
mod logs; // access log and error log
mod status; // status endpoint and metrics
mod counter; // counters and histograms
mod sync; // locks of cells that threads share
mod exhaustion; // detection of resource exhaustion
mod descriptors; // the limit on open file descriptors
mod throttled_log; // rate-limited warnings
#[cfg(test)]
mod docs_sync; // tests that file, command line and documentation agree
#[cfg(test)]
mod random_configs; // tests that printed configurations have the same meaning

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use args::{Args, CertificateAction, Command, Failure};
use config::{Problem, Sources};
use plan::Plan;
use tracing::Tracer;

/// Exit status of a check that has found only warnings, and of an import that has lost something.
const INCOMPLETE: u8 = 3;

fn main() -> ExitCode {
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
        Ok(Command::Format { paths, is_check }) => format_files(&paths, is_check),
        Ok(Command::Import { path }) => return import(&path),
        Ok(Command::Serve(args)) => serve(&args),
        Ok(Command::Check { args, print, is_strict }) => check(&args, print, is_strict),
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
    run::run(args, sources, plan).map_err(Failure::Other)
}

/// Validates the configuration and opens its resources, as the user of the server, but binds no
/// socket.
fn check(args: &Args, print: bool, is_strict: bool) -> Result<(), Failure> {
    let sources = args.sources();
    let (plan, invalid) = Plan::of_valid_parts(args.config(&sources));
    let mut problems = match privileges::check(&plan.run_as) {
        Ok(()) => plan.open(None).err().unwrap_or_default(),
        Err(problems) => problems,
    };
    problems.extend(logs::check(&plan.log));
    let tracing = plan.tracing.as_ref().map_or(Ok(()), Tracer::check);
    problems.extend(tracing.err().map(Problem::without_location));
    if !invalid.is_empty() {
        return Err(args.failure([invalid, problems].concat()));
    }
    let warnings = plan.warnings();
    warnings.iter().for_each(|warning| print_error(&warning.as_warning()));
    if is_strict && !warnings.is_empty() && problems.is_empty() {
        problems.push(Problem::without_location("there are warnings, which --strict forbids"));
    }
    if !problems.is_empty() {
        return Err(Failure::Other(problems));
    }
    if let Some(acme) = plan.tls.as_ref().and_then(|tls| tls.acme.as_ref()) {
        if !acme.names.is_empty() || acme.on_demand.is_none() {
            print_error(&certificates::describe(acme));
        }
        if let Some(on_demand) = &acme.on_demand {
            print_error(&certificates::describe_on_demand(on_demand));
        }
    }
    if print {
        print_stdout(&print::print(&plan));
    }
    if warnings.is_empty() { Ok(()) } else { Err(Failure::Warnings) }
}

fn certificates(args: &Args, action: &CertificateAction) -> Result<(), Failure> {
    let plan = plan(args, &args.sources())?;
    let problem = |message: String| Failure::Other(vec![Problem::without_location(message)]);
    let acme = plan.tls.and_then(|tls| tls.acme).ok_or_else(|| {
        problem("no certificates are ordered: set `certificates = \"auto\"` in [tls]".to_owned())
    })?;
    let result = match action {
        CertificateAction::List => certificates::list(&acme),
        CertificateAction::Revoke { name, reason } => {
            certificates::revoke(&acme, name, reason.as_deref())
        }
        CertificateAction::RollOver => certificates::roll_over(&acme),
    };
    result.map(|text| print_stdout(&text)).map_err(problem)
}

/// Formats files in place, or reports those that are not formatted.
fn format_files(paths: &[PathBuf], is_check: bool) -> Result<(), Failure> {
    let mut problems = Vec::new();
    for path in paths {
        let files = match path.is_dir() {
            true => config::toml_files(path),
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
    let problems = config::syntax_problems(&shown.to_string(), &text);
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
fn import(path: &Path) -> ExitCode {
    match import::import_nginx(path) {
        Ok(imported) => {
            print_stdout(import::NGINX_DIFFERENCES);
            print_stdout(&imported.text);
            if imported.is_complete { ExitCode::SUCCESS } else { ExitCode::from(INCOMPLETE) }
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

/// Writes one line to stderr, with control characters of `text` escaped. Used for errors before the
/// error log is open, and for failures of the error log.
fn print_error(text: &str) {
    let line = format!("weft: {}\n", logs::one_line(text));
    // Ignored: there is no output to report an error of stderr to.
    let _ = std::io::stderr().write_all(line.as_bytes());
}
