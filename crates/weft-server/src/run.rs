//! Runs a plan until a signal ends it.

use std::time::Duration;

use weft::middleware::CleanPath;
use weft::tls::Tls;
use weft::{Application, Error, ErrorKind, Hooks, Peer, Running, Server};

use crate::open::Opened;
use crate::plan::{AppPlan, Plan};
use crate::signals::Signals;
use crate::{log, tell};

/// How long a stop waits for whoever reads the access log.
const LOG_PATIENCE: Duration = Duration::from_secs(2);

/// How long a stop waits for responses under way.
const GRACE: Duration = Duration::from_secs(10);

/// `file` is where the plan came from, if it came from one.
pub(crate) fn run(plan: &Plan, opened: Opened, file: Option<String>) -> Result<(), String> {
    let Opened { router, tls } = opened;
    // Before the first thread, so that no signal is lost.
    let signals = Signals::catch(tls.is_some()).map_err(|error| error.to_string())?;
    // Routes are told apart by clean paths only.
    let app = router.with(CleanPath::new().rewrite());
    let server = listen(Server::new(app), plan, tls.as_ref()).map_err(|error| error.to_string())?;
    let workers = server.worker_count();
    let sink = log::Sink::stdout().map_err(|error| error.to_string())?;
    let server = match plan.access_log {
        true => start(server, {
            let sink = sink.clone();
            move || log::AccessLog::new(sink.clone())
        }),
        // Hooks cost a little for each request.
        false if tls.is_some() => start(server, || Complaints),
        false => server.start(),
    };
    let running = server.map_err(|error| error.to_string())?;
    announce(&running, plan, file, workers);
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

fn listen<A: Application + 'static>(
    server: Server<A>,
    plan: &Plan,
    tls: Option<&Tls>,
) -> weft::Result<Server<A>> {
    let mut server = server.settings(plan.limits.clone());
    if let Some(workers) = plan.workers {
        server = server.workers(workers);
    }
    for address in &plan.listen {
        server = server.listen(address)?;
    }
    if let (Some(plan), Some(tls)) = (&plan.tls, tls) {
        for address in &plan.listen {
            server = server.listen_tls(address, tls)?;
        }
    }
    Ok(server)
}

fn start<A: Application + 'static, H: Hooks + 'static>(
    server: Server<A>,
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
pub(crate) fn complain_of_setting(error: &Error) {
    if error.kind() == ErrorKind::InvalidSetting {
        complain(error);
    }
}

fn complain(error: &Error) {
    tell(&format!("the certificates stay as they were: {error}"));
}

/// Says what is served where.
fn announce(running: &Running, plan: &Plan, file: Option<String>, workers: usize) {
    let addresses: Vec<String> = running.addresses().iter().map(ToString::to_string).collect();
    let plural = if workers == 1 { "" } else { "s" };
    let is_self_signed = plan.tls.as_ref().is_some_and(|tls| tls.certificates.is_empty());
    let note = if is_self_signed { "; no client trusts its certificate" } else { "" };
    tell(&format!(
        "serving {} on {} with {workers} worker{plural}{note}",
        file.unwrap_or_else(|| what(plan)),
        addresses.join(" "),
    ));
}

/// What is served: the folder if it is one, else how many routes there are.
fn what(plan: &Plan) -> String {
    let mut routes = plan.hosts.iter().flat_map(|host| &host.routes);
    match (routes.next().map(|route| &route.app.value), routes.count()) {
        (Some(AppPlan::Files { root, .. }), 0) => root.display().to_string(),
        (_, 0) => "1 route".to_owned(),
        (_, others) => format!("{} routes", others + 1),
    }
}
