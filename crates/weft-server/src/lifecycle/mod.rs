//! The life of the server process: start, signals, shutdown.

pub(crate) mod control; // the socket of `weft reload`, `stop` and `upgrade`
pub(crate) mod privileges; // user, group, umask, pid file
mod reload; // compares a new plan with the active one, and applies the difference
mod shutdown; // delay, drain and end of the process
mod signals; // signals → control events
mod watch; // changes to the files of the configuration

use std::sync::Arc;

use tokio::sync::watch as plan_channel;
use weft::Server;
use weft::net::LocalAddress;
use weft::server::ServerHandle;
use weft_config::{Problem, Sources};

use self::control::{ControlClient, ControlReport};
use self::privileges::PidFile;
use self::shutdown::ExitMode;
use self::signals::{ControlEvent, Signals};
use self::watch::{ConfigWatch, TextSender};
use crate::base::descriptors;
use crate::base::sys::OwnedFd;
use crate::cli::args::Args;
use crate::cli::control_request::ControlRequest;
use crate::config::Plan;
use crate::config::warn_if_insufficient;
use crate::config_change::{self, ChangeSender, ConfigHistory};
use crate::logs::{Logs, OpenLogs};
use crate::open::Opened;
use crate::open::active_plan::{ActivePlan, PlanSender};
use crate::open::application::ServedApplication;
use crate::sections::tls::OpenedTls;
use crate::sockets::defer_accept;
use crate::sockets::handover::{InheritedSockets, Predecessor, Successor, UpgradeResult};
use crate::sockets::systemd;
use crate::sockets::{self, BoundSocket, ListenSpec, OpenSocket, Protocol};
use crate::status::{MetricsRegistry, Status};
use crate::stream_server::StreamServer;

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
    /// Set if the files of the configuration are watched.
    watch: Option<ConfigWatch>,
    text_sender: TextSender,
    /// Changed texts of the files that were refused.
    refused: Option<Sources>,
}

/// Serves a plan until the process is to exit. Calls `started` when the server has started.
pub(crate) fn run(
    args: &Args,
    sources: Sources,
    plan: Plan,
    started: impl FnOnce(ChangeSender),
) -> Result<(), Vec<Problem>> {
    let problem = |message| vec![Problem::without_location(message)];
    // Signal handlers are installed before the first thread starts, so that no signal is lost.
    let signals = Signals::install();
    let mut signals = signals.map_err(|error| problem(error.to_string()))?;
    let (predecessor, inherited) = inherited_sockets().map_err(problem)?;
    descriptors::raise_limit();
    descriptors::grow_table();
    privileges::set_umask(plan.top.umask);
    let mut http3 = inherited.http3;
    let mut sockets = sockets::open(&plan.listening(), inherited.sockets)
        .map_err(|error| problem(error.to_string()))?;
    if plan.limits.http3 {
        let workers = thread_count(&plan);
        sockets.iter_mut().for_each(|socket| socket.bind_http3(workers, &mut http3));
    }
    let unused = http3.into_iter().map(|descriptor| descriptor.address());
    let unused: Vec<_> = unused.filter(|_| predecessor.is_none()).collect();
    let pid_file =
        plan.top.pid_file.as_ref().map(|path| PidFile::open(&path.value, &plan.top.run_as));
    let pid_file = pid_file.transpose().map_err(problem)?;
    // All later steps run as that user, so that a reload has the same permissions.
    privileges::become_user(&plan.top.run_as).map_err(problem)?;
    let opened = plan.open(None)?;
    let (change_sender, changes) = config_change::channel();
    signals.receive_changes(changes);
    let active = (ConfigHistory::new(sources), plan, opened);
    let senders = (change_sender.clone(), signals.text_sender());
    let server = ServerProcess::start(args, active, sockets, pid_file, senders);
    let mut server = server.map_err(problem)?;
    signals.open_control_socket();
    server.log_startup();
    server.log_problems();
    for address in unused {
        log::warn!(
            "the UDP socket {address} of the service manager is not used: HTTP/3 is disabled, or no \
             socket with TLS has this address"
        );
    }
    if args.file.is_some() {
        privileges::warn_of_root(&server.active().plan.top.run_as);
    }
    server.check_descriptor_limit();
    server.update_watch();
    // The service manager must receive the new main PID before the predecessor exits.
    systemd::ready();
    if let Some(predecessor) = predecessor {
        server.claim_socket_files();
        predecessor.notify_ready();
    }
    started(change_sender);
    server.handle_signals(signals);
    Ok(())
}

/// Returns the sockets that this process inherited, and the predecessor if it sent them.
fn inherited_sockets() -> Result<(Option<Predecessor>, InheritedSockets), String> {
    let handover = Predecessor::detect();
    let problem = |error| format!("cannot take over the sockets of the running process: {error}");
    match handover.map_err(problem)? {
        Some((predecessor, inherited)) => Ok((Some(predecessor), inherited)),
        None => Ok((None, systemd::sockets()?)),
    }
}

impl<'a> ServerProcess<'a> {
    fn start(
        args: &'a Args,
        (history, plan, opened): (ConfigHistory, Plan, Opened),
        sockets: Vec<OpenSocket>,
        mut pid_file: Option<PidFile>,
        (changes, text_sender): (ChangeSender, TextSender),
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
        let (active, rx) = plan_channel::channel(Arc::new(active));
        let plan = &active.borrow().clone().plan;
        let registry =
            specs.iter().any(|spec| spec.protocol == Protocol::Status).then(MetricsRegistry::new);
        let mut server = Server::per_worker({
            let (rx, registry) = (rx.clone(), registry.clone());
            move || {
                let (rx, route_metrics) =
                    (rx.clone(), registry.as_ref().map(MetricsRegistry::register_route_metrics));
                async move { ServedApplication::routes(rx, route_metrics) }
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
        active.borrow().opened.start_cluster(&rx);
        let status =
            registry.map(|registry| Status::start(registry, rx, changes, status_listeners));
        let status = status.transpose().map_err(|error| error.to_string())?;
        if let Some(file) = &mut pid_file {
            file.write().map_err(|error| format!("cannot write the pid file: {error}"))?;
        }
        Ok(ServerProcess {
            args,
            history,
            active,
            handle,
            status,
            streams,
            logs,
            pid_file,
            watch: None,
            text_sender,
            refused: None,
        })
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

    /// Logs what could not be opened, and the values of the active plan that are probably
    /// unintended.
    pub(crate) fn log_problems(&self) {
        let active = self.active();
        active.opened.log_unavailable();
        active.plan.warnings().iter().for_each(|warning| log::warn!("{warning}"));
    }

    /// Starts or stops to watch the files of the configuration, as the active plan says.
    pub(crate) fn update_watch(&mut self) {
        let file = self.args.file.as_ref().filter(|_| self.active().plan.top.watch);
        let Some(file) = file else {
            self.watch = None;
            return;
        };
        if self.watch.is_none() {
            let known = match self.history.is_set_by_client() {
                true => self.args.sources(),
                false => self.history.current().clone(),
            };
            match ConfigWatch::start(file, known, self.text_sender.clone()) {
                Ok(watch) => self.watch = Some(watch),
                Err(error) => log::error!("cannot watch the configuration: {error}"),
            }
        }
    }

    /// Logs a warning if the limit on open files is too low for the active plan.
    pub(crate) fn check_descriptor_limit(&self) {
        warn_if_insufficient(&self.active().plan, self.handle.worker_count());
    }

    /// Handles signals, requests and the result of upgrades until the process is to exit.
    fn handle_signals(mut self, mut signals: Signals) {
        let (mut upgrade, mut stop_client) = (Upgrade::default(), None);
        let exit_mode = loop {
            match signals.next(&mut upgrade.successor) {
                ControlEvent::Stop(signal) => break ExitMode::Stop(signal),
                ControlEvent::Quit => break ExitMode::Quit,
                ControlEvent::Reload => drop(self.reload_and_log()),
                ControlEvent::Request(ControlRequest::Reload, client) => {
                    client.reply(&self.reload_and_log());
                }
                ControlEvent::Request(ControlRequest::Stop, client) => {
                    stop_client = Some(client);
                    break ExitMode::Stop("`weft stop`");
                }
                ControlEvent::FilesChanged(texts) => self.use_changed_files(texts),
                ControlEvent::Daily => self.log_expiring_certificates(),
                ControlEvent::Change(request) => self.change(request),
                ControlEvent::ReopenLogs => {
                    self.logs.reopen();
                    log::info!("SIGUSR1: the log files were opened again");
                }
                ControlEvent::Request(ControlRequest::Upgrade, client) => {
                    self.begin_upgrade("`weft upgrade`", Some(client), &mut upgrade);
                }
                ControlEvent::Upgrade => self.begin_upgrade("SIGUSR2", None, &mut upgrade),
                ControlEvent::UpgradeFinished(UpgradeResult::Serving) => {
                    reply(upgrade.client.take(), &ControlReport::complete());
                    break ExitMode::HandedOver;
                }
                ControlEvent::UpgradeFinished(UpgradeResult::Failed(reason)) => {
                    log::error!(
                        "the upgrade failed, and this process continues to serve: {reason}"
                    );
                    reply(upgrade.client, &failure(reason));
                    upgrade = Upgrade::default();
                }
            }
        };
        // A stop during an upgrade also stops the successor, which would otherwise serve
        // afterwards.
        let is_handed_over = matches!(exit_mode, ExitMode::HandedOver);
        if let Some(successor) = upgrade.successor.filter(|_| !is_handed_over) {
            successor.cancel();
        }
        upgrade.client.into_iter().for_each(ControlClient::refuse);
        self.exit(exit_mode, signals);
        reply(stop_client, &ControlReport::complete());
    }

    /// Begins an upgrade, unless one is in progress. `client` gets its result.
    fn begin_upgrade(&self, cause: &str, client: Option<ControlClient>, upgrade: &mut Upgrade) {
        if upgrade.successor.is_some() {
            let reason = "an upgrade is already in progress";
            log::warn!("{reason}");
            return reply(client, &failure(reason.to_owned()));
        }
        log::info!("{cause}: an upgrade begins");
        match self.start_successor() {
            Ok(successor) => *upgrade = Upgrade { successor: Some(successor), client },
            Err(reason) => {
                log::error!("cannot start the upgrade: {reason}");
                reply(client, &failure(reason));
            }
        }
    }

    /// Logs the certificates of files that expire soon.
    fn log_expiring_certificates(&self) {
        let active = self.active();
        let tls = active.opened.tls.iter();
        tls.flat_map(OpenedTls::expiring).for_each(|warning| log::warn!("{warning}"));
    }

    /// Starts the successor process and sends it the sockets. The library has the sockets by their
    /// addresses only, and the successor must also know the protocol of each, so the specification
    /// of the active plan is sent with it.
    fn start_successor(&self) -> Result<Successor, String> {
        if self.history.is_set_by_client() {
            log::warn!("the successor reads the files, not the configuration that a client set");
        }
        let served = &self.active().sockets;
        let of_tcp = || served.iter().filter(|it| it.spec.protocol != Protocol::Datagram);
        let find = |address: &_| of_tcp().find(|served| served.local_address == *address);
        let all = self.sockets().map_err(|error| error.to_string())?;
        let with_specs = all.into_iter().filter_map(|(address, socket)| {
            find(&address).map(|served| (served.spec.clone(), socket))
        });
        let datagrams = self.streams.datagram_sockets().map_err(|error| error.to_string())?;
        let with_specs = with_specs.chain(datagrams).collect();
        let http3 = self.handle.http3_descriptors().map_err(|error| error.to_string())?;
        Successor::start(with_specs, http3).map_err(|error| error.to_string())
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
}

/// An upgrade in progress, with the client that waits for its result.
#[derive(Default)]
struct Upgrade {
    successor: Option<Successor>,
    client: Option<ControlClient>,
}

fn reply(client: Option<ControlClient>, report: &ControlReport) {
    client.into_iter().for_each(|client| client.reply(report));
}

fn failure(reason: String) -> ControlReport {
    ControlReport::failed(vec![Problem::without_location(reason)])
}

/// Returns the number of workers, and of threads for streams.
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
