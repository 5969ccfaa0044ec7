//! The web server `weft`: arguments → [`Config`](config::Config) → [`Plan`] → run.

mod args; // the command line
mod help; // its help text
mod config; // text → Config
mod plan; // Config → Plan
mod print; // Plan → text
mod open; // the folders and certificates of a plan
mod tls; // certificates → TLS
mod route; // host and path → application
mod apps; // what can answer
mod run; // a server, until a signal
mod log; // the access log
mod signals; // what ends it
#[cfg(test)]
mod agreement; // file, command line and documentation say the same

use std::io::Write;
use std::process::ExitCode;

use args::{Args, Command, Failure};
use plan::Plan;

fn main() -> ExitCode {
    let done = match args::parse(std::env::args_os()) {
        Ok(Command::Help) => {
            say(&help::help());
            Ok(())
        }
        Ok(Command::Version) => {
            say(concat!("weft ", env!("CARGO_PKG_VERSION"), "\n"));
            Ok(())
        }
        Ok(Command::Serve(args)) => serve(&args),
        Ok(Command::Check { args, print }) => check(&args, print),
        Err(problem) => {
            tell(&format!("{problem}; try --help"));
            return ExitCode::from(2);
        }
    };
    let (problems, hint, code) = match done {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Usage(problems)) => (problems, "; try --help", 2),
        Err(Failure::Other(problems)) => (problems, "", 1),
    };
    for problem in problems {
        tell(&format!("{problem}{hint}"));
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
    let opened = plan.open().map_err(Failure::Other)?;
    let file = args.file.as_ref().map(|path| path.display().to_string());
    run::run(&plan, opened, file).map_err(|message| {
        Failure::Other(vec![config::Problem { place: config::Place::Unknown, message }])
    })
}

/// Does all but to listen.
fn check(args: &Args, print: bool) -> Result<(), Failure> {
    let plan = plan(args)?;
    plan.open().map_err(Failure::Other)?;
    if print {
        say(&print::print(&plan));
    }
    Ok(())
}

fn say(text: &str) {
    // Where nobody listens, nobody misses it.
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// One line on stderr, which the log does not use, whatever stands in the arguments.
fn tell(text: &str) {
    // Where nobody can listen, nobody is missed.
    let _ = writeln!(std::io::stderr(), "weft: {}", text.replace('\n', "\\n"));
}
