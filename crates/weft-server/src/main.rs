//! The web server `weft`: arguments → server → run.

mod args;
mod log;
mod signals;
mod tls;

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use weft::tls::Tls;
use weft::{Directory, Error, ErrorKind, Hooks, Peer, Running, Server};

use args::{Args, Command};

/// How long a stop waits for whoever reads the access log.
const LOG_PATIENCE: Duration = Duration::from_secs(2);

/// How long a stop waits for responses under way.
const GRACE: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    match args::parse(std::env::args_os()) {
        Ok(Command::Help) => say(args::HELP),
        Ok(Command::Version) => say(concat!("weft ", env!("CARGO_PKG_VERSION"), "\n")),
        Ok(Command::Serve(args)) => {
            if let Err(problem) = serve(&args) {
                tell(&problem);
                return ExitCode::FAILURE;
            }
        }
        Err(problem) => {
            tell(&format!("{problem}; try --help"));
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
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

fn serve(args: &Args) -> Result<(), String> {
    let directory = Directory::with_settings(&args.directory, (*args.files).clone())
        .map_err(|error| format!("cannot serve {}: {error}", args.directory.display()))?;
    // Before the first thread, so that no signal is lost.
    let signals = signals::Signals::catch(args.tls.is_some()).map_err(|error| error.to_string())?;
    let mut server = Server::new(directory);
    if let Some(workers) = args.workers {
        server = server.workers(workers);
    }
    for address in &args.listen {
        server = server.listen(address).map_err(|error| error.to_string())?;
    }
    let tls = args.tls.as_ref().map(tls::set_up).transpose()?;
    if let (Some(args), Some(tls)) = (&args.tls, &tls) {
        for address in &args.listen {
            server = server.listen_tls(address, tls).map_err(|error| error.to_string())?;
        }
    }
    let workers = server.worker_count();
    let sink = log::Sink::stdout().map_err(|error| error.to_string())?;
    let server = match args.log {
        true => start(server, {
            let sink = sink.clone();
            move || log::AccessLog::new(sink.clone())
        }),
        // Hooks cost a little for each request.
        false if tls.is_some() => start(server, || Complaints),
        false => server.start(),
    };
    let running = server.map_err(|error| error.to_string())?;
    announce(&running, args, workers);
    let reload = || {
        if let Some(Err(error)) = tls.as_ref().map(Tls::reload) {
            complain(&error);
        }
    };
    let signals = signals.wait(reload);
    let impatient = sink.clone();
    let watch = std::thread::Builder::new().spawn(move || {
        // Who asks twice does not want to wait; but the log is written.
        signals.wait(|| {});
        impatient.close(LOG_PATIENCE);
        std::process::exit(1);
    });
    // Without that thread a second signal is not heard; the first is heeded all the same.
    drop(watch);
    sink.release();
    running.shutdown(GRACE);
    sink.close(LOG_PATIENCE);
    Ok(())
}

fn start<H: Hooks + 'static>(
    server: Server<Directory>,
    hooks: impl Fn() -> H + Send + Sync + 'static,
) -> weft::Result<Running> {
    server.hooks(hooks).start()
}

/// Tells of certificates that could not be loaded anew, where there is no log.
struct Complaints;

impl Hooks for Complaints {
    fn error(&self, _: &Peer, error: &Error) {
        complain_of_setting(error);
    }
}

/// Certificates are loaded anew while clients are served. If that fails, who runs the server
/// has to know.
fn complain_of_setting(error: &Error) {
    if error.kind() == ErrorKind::InvalidSetting {
        complain(error);
    }
}

fn complain(error: &Error) {
    tell(&format!("the certificates stay as they were: {error}"));
}

/// Says what is served where.
fn announce(running: &Running, args: &Args, workers: usize) {
    let addresses: Vec<String> = running.addresses().iter().map(ToString::to_string).collect();
    let plural = if workers == 1 { "" } else { "s" };
    let is_self_signed = args.tls.as_ref().is_some_and(|tls| tls.files.is_empty());
    let note = if is_self_signed { "; no client trusts its certificate" } else { "" };
    tell(&format!(
        "serving {} on {} with {workers} worker{plural}{note}",
        args.directory.display(),
        addresses.join(" "),
    ));
}
