//! The life of the server process: start, signals, shutdown.

pub(crate) mod privileges; // user, group, umask, pid file
mod reload; // compares a new plan with the active one, and applies the difference
mod signals; // signals → control events

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use weft::{LocalAddress, Server, ServerHandle, ShutdownHandle};
use weft_config::{Problem, Sources, show_time};

use self::privileges::PidFile;
use self::signals::{ControlEvent, Signals};
use crate::base::descriptors;
use crate::cli::args::Args;
use crate::config::Plan;
use crate::config::warn_if_insufficient;
use crate::config_change::{self, ChangeSender, ConfigHistory};
use crate::logs::{Logs, OpenLogs};
use crate::open::Opened;
use crate::open::active_plan::{ActivePlan, PlanSender};
use crate::open::application::ServedApplication;
use crate::sockets::defer_accept;
use crate::sockets::handover::{Predecessor, Successor, UpgradeResult};
use crate::sockets::systemd;
use crate::sockets::{self, BoundSocket, ListenSpec, OpenSocket, Protocol};
use crate::status::{MetricsRegistry, Status};
use crate::stream_server::{StreamDeadline, StreamServer};

/// Maximum time to wait at exit for a log output that accepts no data.
const LOG_FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// Time in which idle connections may send one more request after another process has taken over.
const IDLE_GRACE: Duration = Duration::from_secs(5);

/// The running server, with its command line and its active plan.
pub(crate) struct ServerProcess<'a> {
    pub(crate) args: &'a Args,
    pub(crate) history: ConfigHistory,
    pub(crate) active: PlanSender,
    pub(crate) handle: ServerHandle,
    pub(crate) status: Option<Status>,
    pub(crate) streams: StreamServer,
    pub(crate) logs: Arc<Logs>,
    pid_file: Option<PidFile>,
}

/// Reason for the exit of the process.
enum ExitMode {
    /// Stop within `drain_timeout`.
    Stop,
    /// Stop without a time limit.
    Quit,
    /// Another process serves the sockets.
    HandedOver,
}

pub(crate) fn run(args: &Args, sources: Sources, plan: Plan) -> Result<(), Vec<Problem>> {
    let problem = |message| vec![Problem::without_location(message)];
    // Signal handlers are installed before the first thread starts, so that no signal is lost.
    let signals = Signals::install();
    let mut signals = signals.map_err(|error| problem(error.to_string()))?;
    let (predecessor, inherited) = inherited_sockets().map_err(problem)?;
    descriptors::raise_limit();
    descriptors::grow_table();
    privileges::set_umask(plan.top.umask);
    let sockets =
        sockets::open(&plan.listening(), inherited).map_err(|error| problem(error.to_string()))?;
    let pid_file =
        plan.top.pid_file.as_ref().map(|path| PidFile::open(&path.value, &plan.top.run_as));
    let pid_file = pid_file.transpose().map_err(problem)?;
    // All later steps run as that user, so that a reload has the same permissions.
    privileges::become_user(&plan.top.run_as).map_err(problem)?;
    let opened = plan.open(None)?;
    let (change_sender, changes) = config_change::channel();
    signals.receive_changes(changes);
    let active = (ConfigHistory::new(sources), plan, opened);
    let server = ServerProcess::start(args, active, sockets, pid_file, change_sender);
    let server = server.map_err(problem)?;
    server.log_startup();
    server.log_warnings();
    server.check_descriptor_limit();
    // The service manager must receive the new main PID before the predecessor exits.
    systemd::ready();
    if let Some(predecessor) = predecessor {
        server.claim_socket_files();
        predecessor.notify_ready();
    }
    server.handle_signals(signals);
    Ok(())
}

/// Returns the sockets that this process inherited, and the predecessor if it sent them.
fn inherited_sockets() -> Result<(Option<Predecessor>, Vec<OpenSocket>), String> {
    let handover = Predecessor::detect();
    let problem = |error| format!("cannot take over the sockets of the running process: {error}");
    match handover.map_err(problem)? {
        Some((predecessor, sockets)) => Ok((Some(predecessor), sockets)),
        None => Ok((None, systemd::sockets()?)),
    }
}

impl<'a> ServerProcess<'a> {
    fn start(
        args: &'a Args,
        (history, plan, opened): (ConfigHistory, Plan, Opened),
        sockets: Vec<OpenSocket>,
        mut pid_file: Option<PidFile>,
        changes: ChangeSender,
    ) -> Result<ServerProcess<'a>, String> {
        let tls = opened.tls.as_ref().map(|opened| &opened.tls);
        let with_tls = sockets.into_iter().map(|open| open.with_tls(tls));
        let (sockets, bound): (Vec<_>, Vec<_>) =
            with_tls.collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
        let specs: Vec<ListenSpec> = sockets.iter().map(|socket| socket.spec.clone()).collect();
        opened.buffer_space.set_limits(plan.top.buffer_space());
        let open_logs = Arc::new(OpenLogs::open(&plan.logs(), None)?);
        let logs = Arc::new(Logs::new(open_logs.clone()));
        let active = ActivePlan { plan, opened, sockets, logs: open_logs };
        let (active, rx) = watch::channel(Arc::new(active));
        let plan = &active.borrow().clone().plan;
        let registry =
            specs.iter().any(|spec| spec.protocol == Protocol::Status).then(MetricsRegistry::new);
        let mut server = Server::per_worker({
            let (rx, registry) = (rx.clone(), registry.clone());
            move || {
                let (rx, route_metrics) =
                    (rx.clone(), registry.as_ref().map(MetricsRegistry::register_route_metrics));
                async move { Ok(ServedApplication::routes(rx, route_metrics)) }
            }
        });
        server = server.settings(plan.limits.clone());
        if let Some(workers) = plan.top.workers {
            server = server.workers(workers);
        }
        let mut status_listeners = Vec::new();
        let mut streams = StreamServer::new(rx.clone(), thread_count(plan));
        for (spec, socket) in specs.into_iter().zip(bound) {
            match (spec.protocol, socket) {
                (Protocol::Http | Protocol::Https, BoundSocket::Listener(listener)) => {
                    server = server.listener(listener);
                }
                (Protocol::Status, BoundSocket::Listener(listener)) => {
                    status_listeners.push(listener);
                }
                (_, socket) => streams.listen(socket, &spec)?,
            }
        }
        let worker_logs = logs.clone();
        let server = match registry.clone() {
            None => server.hooks(move || worker_logs.worker()),
            Some(registry) => server.hooks(move || registry.count_events(worker_logs.worker())),
        };
        // A configuration may have streams only.
        let handle = server.start_workers().map_err(|error| error.to_string())?;
        defer_accept::set(&handle, plan.top.defer_accept)?;
        active.borrow().opened.order_certificates();
        let status =
            registry.map(|registry| Status::start(registry, rx, changes, status_listeners));
        let status = status.transpose().map_err(|error| error.to_string())?;
        if let Some(file) = &mut pid_file {
            file.write().map_err(|error| format!("cannot write the pid file: {error}"))?;
        }
        Ok(ServerProcess { args, history, active, handle, status, streams, logs, pid_file })
    }

    /// Returns the active plan.
    pub(crate) fn active(&self) -> Arc<ActivePlan> {
        self.active.borrow().clone()
    }

    /// Makes this process remove the files of inherited Unix sockets when it exits.
    fn claim_socket_files(&self) {
        let status_handle = self.status.as_ref().map(|status| &status.handle);
        [Some(&self.handle), status_handle]
            .into_iter()
            .flatten()
            .for_each(ServerHandle::claim_socket_files);
    }

    /// Logs the content, the addresses and the number of workers.
    fn log_startup(&self) {
        let (workers, plan) = (self.handle.worker_count(), &self.active().plan);
        let plural = if workers == 1 { "" } else { "s" };
        let is_self_signed =
            plan.acme.is_none() && plan.tls.as_ref().is_some_and(|tls| tls.pairs().is_empty());
        let note = if is_self_signed { "; its certificate is self-signed" } else { "" };
        let status = self.status.as_ref().map(|status| {
            let addresses = status.handle.addresses().iter().map(ToString::to_string);
            addresses.collect::<Vec<_>>().join(" ")
        });
        let status =
            status.map_or_else(String::new, |addresses| format!("; status at {addresses}"));
        let file = self.args.file.as_ref().map(|path| path.display().to_string());
        log::info!(
            "serving {} on {} with {workers} worker{plural}{note}{status}",
            file.unwrap_or_else(|| served_content(plan)),
            self.addresses(),
        );
    }

    /// The addresses of sites and streams.
    fn addresses(&self) -> String {
        let sites = self.handle.addresses().iter().map(ToString::to_string);
        let streams = self.streams.addresses();
        sites.chain(streams).collect::<Vec<_>>().join(" ")
    }

    /// Logs the values of the active plan that are probably unintended.
    pub(crate) fn log_warnings(&self) {
        self.active().plan.warnings().iter().for_each(|warning| log::warn!("{warning}"));
    }

    /// Logs a warning if the limit on open files is too low for the active plan.
    pub(crate) fn check_descriptor_limit(&self) {
        warn_if_insufficient(&self.active().plan, self.handle.worker_count());
    }

    /// Handles signals and the result of upgrades until the process is to exit.
    fn handle_signals(mut self, mut signals: Signals) {
        let mut successor = None;
        let exit_mode = loop {
            match signals.next(&mut successor) {
                ControlEvent::Stop => break ExitMode::Stop,
                ControlEvent::Quit => break ExitMode::Quit,
                ControlEvent::Reload => self.reload_and_log(),
                ControlEvent::Change(request) => self.change(request),
                ControlEvent::ReopenLogs => self.logs.reopen(),
                ControlEvent::Upgrade if successor.is_some() => {
                    log::warn!("an upgrade is already in progress");
                }
                ControlEvent::Upgrade => successor = self.upgrade(),
                ControlEvent::UpgradeFinished(UpgradeResult::Serving) => {
                    break ExitMode::HandedOver;
                }
                ControlEvent::UpgradeFinished(UpgradeResult::Failed(reason)) => {
                    log::error!(
                        "the upgrade failed, and this process continues to serve: {reason}"
                    );
                    successor = None;
                }
            }
        };
        // A stop during an upgrade also stops the successor, which would otherwise serve
        // afterwards.
        if let Some(successor) = successor.filter(|_| !matches!(exit_mode, ExitMode::HandedOver)) {
            successor.cancel();
        }
        self.exit(exit_mode, signals);
    }

    /// Starts the successor process and sends it the sockets. The library has the sockets by their
    /// addresses only, and the successor must also know the protocol of each, so the specification
    /// of the active plan is sent with it.
    fn upgrade(&self) -> Option<Successor> {
        if self.history.is_set_by_client() {
            log::warn!("the successor reads the files, not the configuration that a client set");
        }
        let served = &self.active().sockets;
        let started = self.sockets().map_err(|error| error.to_string()).and_then(|all| {
            let of_tcp = || served.iter().filter(|it| it.spec.protocol != Protocol::Datagram);
            let find = |address: &_| of_tcp().find(|served| served.local_address == *address);
            let with_specs = all.into_iter().filter_map(|(address, socket)| {
                find(&address).map(|served| (served.spec.clone(), socket))
            });
            let datagrams = self.streams.datagram_sockets().map_err(|error| error.to_string())?;
            let with_specs = with_specs.chain(datagrams).collect();
            Successor::start(with_specs).map_err(|error| error.to_string())
        });
        started.map_err(|error| log::error!("cannot start the upgrade: {error}")).ok()
    }

    /// Returns duplicates of all listening sockets.
    fn sockets(&self) -> weft::Result<Vec<(LocalAddress, OwnedFd)>> {
        let mut sockets = self.handle.sockets()?;
        if let Some(status) = &self.status {
            sockets.extend(status.handle.sockets()?);
        }
        sockets.extend(self.streams.sockets()?);
        Ok(sockets)
    }

    fn exit(self, mode: ExitMode, signals: Signals) {
        let plan = &self.active().plan;
        let ServerProcess { handle, status, mut streams, logs, pid_file, .. } = self;
        streams.close();
        if matches!(mode, ExitMode::Stop) {
            // Only in this mode: the others may take long, and the log buffers must stay bounded.
            logs.release();
            watch_for_stop(signals, logs.clone(), None);
        } else {
            let shutdown = (handle.shutdown_handle(), streams.deadline(), plan.top.drain_timeout);
            watch_for_stop(signals, logs.clone(), Some(shutdown));
        }
        match mode {
            ExitMode::HandedOver => {
                // The status endpoint stops first, so that the other process answers all of its
                // requests.
                if let Some(status) = status {
                    status.drain_after_handover();
                }
                streams.deadline().set(plan.top.handover_timeout);
                handle.drain_after_handover(plan.top.handover_timeout, IDLE_GRACE);
                streams.finish();
            }
            ExitMode::Stop | ExitMode::Quit => {
                systemd::stopping();
                let is_unlimited = matches!(mode, ExitMode::Quit);
                let limit = if is_unlimited { Duration::MAX } else { plan.top.drain_timeout };
                streams.deadline().set(limit);
                let start = Instant::now();
                handle.shutdown(limit);
                streams.finish();
                if start.elapsed() >= limit {
                    log::warn!(
                        "requests in progress after `drain_timeout` ({}) were cut",
                        show_time(limit)
                    );
                }
                if let Some(status) = status {
                    status.stop();
                }
                if let Some(file) = pid_file {
                    file.remove();
                }
            }
        }
        logs.close(LOG_FLUSH_TIMEOUT);
    }
}

/// Handles signals during a shutdown, in a separate thread. With `limit`, the first stop signal
/// limits the rest of the shutdown to that duration. The next stop signal exits the process.
fn watch_for_stop(
    mut signals: Signals,
    logs: Arc<Logs>,
    limit: Option<(ShutdownHandle, StreamDeadline, Duration)>,
) {
    let watch = move || {
        if let Some((shutdown, streams, grace)) = limit {
            signals.wait_for_stop(|| logs.reopen());
            logs.release();
            shutdown.set_deadline(grace);
            streams.set(grace);
        }
        // A repeated stop signal exits at once, except that the logs are written.
        signals.wait_for_stop(|| logs.reopen());
        logs.close(LOG_FLUSH_TIMEOUT);
        std::process::exit(1);
    };
    // If the thread cannot be started, further signals are ignored, and the shutdown completes
    // anyway.
    let thread = std::thread::Builder::new().name("weft-signals".to_owned());
    drop(thread.spawn(watch));
}

/// Returns the number of threads for streams: as many as workers.
fn thread_count(plan: &Plan) -> usize {
    let per_cpu = || std::thread::available_parallelism().map_or(1, usize::from);
    plan.top.workers.unwrap_or_else(per_cpu)
}

/// Describes the content: the directory if it is the only route, otherwise the number of routes.
fn served_content(plan: &Plan) -> String {
    let mut routes = plan.hosts.iter().flat_map(|host| &host.routes);
    let first = routes.next();
    match (first.and_then(|route| route.form.value.served_directory()), routes.count()) {
        (Some(root), 0) => root.display().to_string(),
        (_, 0) => "1 route".to_owned(),
        (_, others) => format!("{} routes", others + 1),
    }
}
