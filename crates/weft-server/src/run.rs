//! A server from its start to its end.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use weft::middleware::CleanPath;
use weft::tls::Tls;
use weft::{Application, Bound, Hurry, Running, Server};

use crate::args::Args;
use crate::config::Problem;
use crate::handover::{Arrival, Predecessor, Successor};
use crate::logs::Logs;
use crate::open::Opened;
use crate::plan::{AppPlan, Plan};
use crate::privileges::{self, PidFile};
use crate::signals::{Order, Signals};
use crate::sockets::{self, Open, Protocol, Served};
use crate::status::{Counted, Register, Status};
use crate::switch::{Switch, Switchboard};
use crate::systemd;

/// How long a stop waits for whoever reads the logs.
const LOG_PATIENCE: Duration = Duration::from_secs(2);

/// How long connections at rest may still bring a request when another process has taken over.
const REST: Duration = Duration::from_secs(5);

/// A server that runs, and what it came from.
pub(crate) struct Serving<'a> {
    pub(crate) args: &'a Args,
    pub(crate) plan: Plan,
    pub(crate) running: Running,
    pub(crate) served: Vec<Served>,
    pub(crate) routes: Switchboard,
    pub(crate) tls: Option<Tls>,
    pub(crate) status: Option<Status>,
    logs: Arc<Logs>,
    pid_file: Option<PidFile>,
}

/// How a server ends.
enum End {
    Stop,
    Finish,
    Retire,
}

pub(crate) fn run(args: &Args, plan: Plan) -> Result<(), Vec<Problem>> {
    let wrong = |message| vec![Problem::of_system(message)];
    // Before the first thread, so that no signal is lost.
    let signals = Signals::catch(args.file.is_some() || plan.tls.is_some());
    let signals = signals.map_err(|error| wrong(error.to_string()))?;
    let (predecessor, found) = find_sockets().map_err(wrong)?;
    make_room_for_descriptors();
    privileges::set_umask(plan.umask);
    let sockets = sockets::open(&plan, found).map_err(|error| wrong(error.to_string()))?;
    let pid_file = plan.pid_file.as_ref().map(|path| PidFile::open(path, &plan.identity));
    let pid_file = pid_file.transpose().map_err(wrong)?;
    // All that follows is done by that user, as it will be when the configuration is reloaded.
    privileges::become_user(&plan.identity).map_err(wrong)?;
    let opened = plan.open(None)?;
    let serving = Serving::start(args, plan, opened, sockets, pid_file).map_err(wrong)?;
    serving.announce();
    // A service manager has to know of this process before the one that it knows ends.
    systemd::ready();
    if let Some(predecessor) = predecessor {
        serving.claim_files();
        predecessor.relieve();
    }
    serving.until_its_end(signals);
    Ok(())
}

/// Lays out the kernel's table of this process's descriptors while there is one thread only:
/// when it grows later, the worker that opens something waits for all processors, some 10 ms
/// at every power of two.
fn make_room_for_descriptors() {
    const MOST: u64 = 16 << 10;
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(MOST);
    let last = limit.min(MOST).saturating_sub(1);
    // A descriptor with the highest number, for a moment. Only an advantage.
    let _ = rustix::io::fcntl_dupfd_cloexec(std::io::stderr(), last as i32);
}

/// The sockets that this process was given, and by which other.
fn find_sockets() -> Result<(Option<Predecessor>, Vec<Open>), String> {
    let handed_over = Predecessor::find();
    let problem = |error| format!("cannot take over from the process that runs: {error}");
    match handed_over.map_err(problem)? {
        Some((predecessor, sockets)) => Ok((Some(predecessor), sockets)),
        None => Ok((None, systemd::sockets()?)),
    }
}

impl<'a> Serving<'a> {
    fn start(
        args: &'a Args,
        plan: Plan,
        opened: Opened,
        sockets: Vec<Open>,
        mut pid_file: Option<PidFile>,
    ) -> Result<Serving<'a>, String> {
        let Opened { routing, tls } = opened;
        let (routes, line) = Switchboard::new(routing);
        let is_status = |open: &Open| open.place.protocol == Protocol::Status;
        let register = sockets.iter().any(is_status).then(Register::new);
        // Routes are told apart by clean paths only.
        let mut server = Server::per_worker({
            let (line, register) = (line.clone(), register.clone());
            move || {
                let (line, tally) = (line.clone(), register.as_ref().map(Register::tally));
                async move { Ok(Switch::new(line, tally).with(CleanPath::new().rewrite())) }
            }
        });
        server = server.settings(plan.limits.clone());
        if let Some(workers) = plan.workers {
            server = server.workers(workers);
        }
        let (mut served, mut of_status) = (Vec::new(), Vec::new());
        for open in sockets {
            let (known, listener) = open.secured(tls.as_ref())?;
            match known.place.protocol {
                Protocol::Http | Protocol::Https => server = server.listener(listener),
                Protocol::Status => of_status.push(listener),
            }
            served.push(known);
        }
        let logs = Arc::new(Logs::open(&plan.log)?);
        let of_workers = logs.clone();
        let server = match register.clone() {
            None => server.hooks(move || of_workers.worker()),
            Some(register) => server.hooks(move || Counted::new(of_workers.worker(), &register)),
        };
        let running = server.start().map_err(|error| error.to_string())?;
        let status = register.map(|register| Status::start(register, line, of_status));
        let status = status.transpose().map_err(|error| error.to_string())?;
        if let Some(file) = &mut pid_file {
            file.write().map_err(|error| format!("cannot write the pid file: {error}"))?;
        }
        Ok(Serving { args, plan, running, served, routes, tls, status, logs, pid_file })
    }

    /// Has the files of sockets that were handed over go with this process.
    fn claim_files(&self) {
        let of_status = self.status.as_ref().map(|status| &status.running);
        [Some(&self.running), of_status].into_iter().flatten().for_each(Running::claim_files);
    }

    /// Says what is served where.
    fn announce(&self) {
        let joined = |running: &Running| {
            let addresses: Vec<_> = running.addresses().iter().map(ToString::to_string).collect();
            addresses.join(" ")
        };
        let workers = self.running.worker_count();
        let plural = if workers == 1 { "" } else { "s" };
        let is_self_signed = self.plan.tls.as_ref().is_some_and(|tls| tls.certificates.is_empty());
        let note = if is_self_signed { "; no client trusts its certificate" } else { "" };
        let status = self.status.as_ref().map(|status| joined(&status.running));
        let status = status.map_or_else(String::new, |places| format!("; status at {places}"));
        let file = self.args.file.as_ref().map(|path| path.display().to_string());
        log::info!(
            "serving {} on {} with {workers} worker{plural}{note}{status}",
            file.unwrap_or_else(|| what(&self.plan)),
            joined(&self.running),
        );
    }

    /// Does what it is told until that is to end.
    fn until_its_end(mut self, mut signals: Signals) {
        let mut successor = None;
        let end = loop {
            match signals.next(&mut successor) {
                Order::Stop => break End::Stop,
                Order::Finish => break End::Finish,
                Order::Reload => self.reload_and_say(),
                Order::Reopen => self.logs.reopen(),
                Order::Upgrade if successor.is_some() => {
                    log::warn!("an upgrade is under way already");
                }
                Order::Upgrade => successor = self.upgrade(),
                Order::Arrived(Arrival::Serves) => break End::Retire,
                Order::Arrived(Arrival::Failed(reason)) => {
                    log::error!("the upgrade failed, and this process serves on: {reason}");
                    successor = None;
                }
            }
        };
        if let Some(successor) = successor.filter(|_| !matches!(end, End::Retire)) {
            successor.call_off();
        }
        self.end(end, signals);
    }

    /// Starts the process that is to take over.
    fn upgrade(&self) -> Option<Successor> {
        let started = self.sockets().map_err(|error| error.to_string()).and_then(|all| {
            let place = |bound: &_| self.served.iter().find(|served| served.bound == *bound);
            let placed = all.into_iter().filter_map(|(bound, socket)| {
                place(&bound).map(|served| (served.place.clone(), socket))
            });
            Successor::start(placed.collect()).map_err(|error| error.to_string())
        });
        started.map_err(|error| log::error!("cannot start the upgrade: {error}")).ok()
    }

    /// Duplicates of all sockets that are served.
    fn sockets(&self) -> weft::Result<Vec<(Bound, OwnedFd)>> {
        let mut sockets = self.running.sockets()?;
        if let Some(status) = &self.status {
            sockets.extend(status.running.sockets()?);
        }
        Ok(sockets)
    }

    fn end(self, end: End, signals: Signals) {
        let Serving { plan, running, status, logs, pid_file, .. } = self;
        if matches!(end, End::Stop) {
            // The others may take long, and the logs stay bounded meanwhile.
            logs.release();
            heed_stops(signals, logs.clone(), None);
        } else {
            heed_stops(signals, logs.clone(), Some((running.hurry(), plan.drain_timeout)));
        }
        match end {
            End::Retire => {
                // From now on it is the other process that says how the server is.
                if let Some(status) = status {
                    status.retire();
                }
                running.retire(plan.retire_timeout, REST);
            }
            End::Stop | End::Finish => {
                systemd::stopping();
                let is_patient = matches!(end, End::Finish);
                running.shutdown(if is_patient { Duration::MAX } else { plan.drain_timeout });
                if let Some(status) = status {
                    status.stop();
                }
                if let Some(file) = pid_file {
                    file.remove();
                }
            }
        }
        logs.close(LOG_PATIENCE);
    }
}

/// Heeds what the program is told while it ends, in a thread of its own. A first stop gives what
/// is under way the usual time, unless it has no more than that; another ends the program.
fn heed_stops(mut signals: Signals, logs: Arc<Logs>, first: Option<(Hurry, Duration)>) {
    let heed = move || {
        if let Some((hurry, grace)) = first {
            signals.wait_for_stop(|| logs.reopen());
            logs.release();
            hurry.finish_within(grace);
        }
        // Who asks twice does not want to wait; but the logs are written.
        signals.wait_for_stop(|| logs.reopen());
        logs.close(LOG_PATIENCE);
        std::process::exit(1);
    };
    // Without that thread no signal is heard any more, and the program ends all the same.
    drop(std::thread::Builder::new().spawn(heed));
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
