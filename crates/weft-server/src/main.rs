//! The web server `weft`: arguments → [`Config`](config::Config) → [`Plan`] → run.

mod args; // the command line
mod help; // its help text
mod config; // text → Config
mod plan; // Config → Plan
mod print; // Plan → text
mod open; // opens the directories and certificates of a plan
mod active_plan; // the plan in effect, with everything that is open for it
mod tls; // TlsPlan → Tls
mod route; // router: host and path → application
mod reloadable_router; // a worker's router, replaced at a reload
mod apps; // the applications: files, proxy, CGI, redirect, text
mod run; // the life of the server process: start, signals, shutdown
mod reload; // compares a new plan with the active one, and applies the difference
mod sockets; // listening sockets: configured, inherited, changed at a reload
mod handover; // passes the sockets to the next process at an upgrade
mod systemd; // socket activation and sd_notify
mod privileges; // user, group, umask, pid file
mod signals; // signals → control events
mod logs; // access log and error log
mod status; // status endpoint and metrics
mod counter; // counters and histograms
mod exhaustion; // detection of resource exhaustion
#[cfg(test)]
mod docs_sync; // tests that file, command line and documentation agree

use std::io::Write;
use std::process::ExitCode;

use args::{Args, Command, Failure};
use plan::Plan;

fn main() -> ExitCode {
    let result = match args::parse(std::env::args_os()) {
        Ok(Command::Help) => {
            print_stdout(&help::help());
            Ok(())
        }
        Ok(Command::Version) => {
            print_stdout(concat!("weft ", env!("CARGO_PKG_VERSION"), "\n"));
            Ok(())
        }
        Ok(Command::Serve(args)) => serve(&args),
        Ok(Command::Check { args, print }) => check(&args, print),
        Err(problem) => {
            print_error(&format!("{problem}; try --help"));
            return ExitCode::from(2);
        }
    };
    let (problems, hint, code) = match result {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Usage(problems)) => (problems, "; try --help", 2),
        Err(Failure::Other(problems)) => (problems, "", 1),
    };
    for problem in problems {
        print_error(&format!("{problem}{hint}"));
    }
    ExitCode::from(code)
}

fn plan(args: &Args) -> Result<Plan, Failure> {
    Plan::new(args.config()?).map_err(|problems| match &args.file {
        Some(_) => Failure::Other(problems),
        None => Failure::Usage(problems),
    })
}

fn serve(args: &Args) -> Result<(), Failure> {
    let plan = plan(args)?;
    run::run(args, plan).map_err(Failure::Other)
}

/// Validates the configuration and opens its resources, but binds no socket.
fn check(args: &Args, print: bool) -> Result<(), Failure> {
    let plan = plan(args)?;
    plan.open(None).map_err(Failure::Other)?;
    if let Err(message) = privileges::check(&plan.run_as) {
        return Err(Failure::Other(vec![config::Problem::without_location(message)]));
    }
    if print {
        print_stdout(&print::print(&plan));
    }
    Ok(())
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
