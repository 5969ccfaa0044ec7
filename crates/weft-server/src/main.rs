//! The web server `weft`: arguments → [`Config`](config::Config) → [`Plan`] → run.

mod args; // the command line
mod help; // its help text
mod config; // text → Config
mod plan; // Config → Plan
mod print; // Plan → text
mod open; // the folders and certificates of a plan
mod tls; // certificates → TLS
mod route; // host and path → application
mod switch; // a worker's routes, which can be changed
mod apps; // what can answer
mod run; // a server, from its start to its end
mod reload; // another plan for a server that runs
mod sockets; // where it listens
mod handover; // sockets from one process to the next
mod systemd; // what a service manager gives and is told
mod privileges; // as whom it runs
mod signals; // what it is told
mod logs; // what is told of requests and of errors
mod status; // how it is, for whoever runs it
mod counter; // what that counts with
mod shortage; // what there is no room for
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
    run::run(args, plan).map_err(Failure::Other)
}

/// Does all but to listen.
fn check(args: &Args, print: bool) -> Result<(), Failure> {
    let plan = plan(args)?;
    plan.open(None).map_err(Failure::Other)?;
    if let Err(message) = privileges::check(&plan.identity) {
        return Err(Failure::Other(vec![config::Problem::of_system(message)]));
    }
    if print {
        say(&print::print(&plan));
    }
    Ok(())
}

fn say(text: &str) {
    // Where nobody listens, nobody misses it.
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// One line on stderr, whatever stands in the text: for those who started the program, and
/// where the error log cannot be had.
fn tell(text: &str) {
    let line = format!("weft: {}\n", logs::one_line(text));
    // Where nobody can listen, nobody is missed.
    let _ = std::io::stderr().write_all(line.as_bytes());
}
