//! Compares a new plan with the active one, and applies the difference to the running server.
//!
//! [`PlanChange::prepare`] does everything that can fail. Then unchanged sockets, connections,
//! WebSockets and unchanged applications continue without interruption.

use std::sync::Arc;

use weft::Settings;
use weft::tls::Tls;
use weft_config::{Problem, Sources};

use crate::config::Plan;
use crate::config_change::{ChangeError, ChangeRequest, ConfigChange, ConfigHistory};
use crate::lifecycle::ServerProcess;
use crate::lifecycle::control::{ControlReport, ControlResult};
use crate::logs::OpenLogs;
use crate::open::active_plan::ActivePlan;
use crate::sections::limits;
use crate::sockets::defer_accept;
use crate::sockets::systemd;
use crate::sockets::{self, BoundSocket, ListenSpec, Protocol, ServedSocket, SocketChanges};

/// A new plan, with all that it needs opened, and its difference from the active plan.
struct PlanChange {
    next: ActivePlan,
    opened: Vec<(ListenSpec, BoundSocket)>,
    closed: Vec<ServedSocket>,
    /// Settings and certificates for the `Tls` that open sockets share.
    tls: Option<Tls>,
    limits: Option<Settings>,
    /// Names of changed settings that a running process cannot apply.
    restart_only: Vec<&'static str>,
}

impl ServerProcess<'_> {
    /// Reloads the configuration and logs the result. After an error the previous configuration
    /// stays in effect.
    pub(crate) fn reload_and_log(&mut self) -> ControlReport {
        self.load_and_log(self.args.sources())
    }

    /// Uses changed texts of the files, unless they are in effect already or were refused before.
    pub(crate) fn use_changed_files(&mut self, sources: Sources) {
        let is_refused = self.refused.as_ref().is_some_and(|refused| refused.is_same(&sources));
        if is_refused || self.history.current().is_same(&sources) {
            return;
        }
        log::info!("files of the configuration have changed");
        self.load_and_log(sources);
    }

    fn load_and_log(&mut self, sources: Sources) -> ControlReport {
        let plan = Plan::new(self.args.config(&sources));
        self.use_and_log(sources, plan)
    }

    fn use_and_log(&mut self, sources: Sources, plan: Result<Plan, Vec<Problem>>) -> ControlReport {
        systemd::reloading();
        let was_set_by_client = self.history.is_set_by_client();
        let result = plan.and_then(|plan| self.use_plan(plan));
        if let Some(status) = &self.status {
            status.registry.record_reload(result.is_ok());
        }
        let report = match result {
            Ok(()) => {
                self.history = ConfigHistory::new(sources);
                self.refused = None;
                self.update_watch();
                self.log_reload(was_set_by_client)
            }
            Err(problems) => {
                self.refused = Some(sources);
                problems.iter().for_each(|problem| log::error!("{problem}"));
                log::error!(
                    "the configuration was not reloaded; the previous configuration stays \
                     in effect"
                );
                ControlReport::failed(problems)
            }
        };
        systemd::ready();
        report
    }

    /// Logs the success of a reload, also if some sites could not be opened.
    fn log_reload(&self, was_set_by_client: bool) -> ControlReport {
        if was_set_by_client {
            log::warn!("the files replace the configuration that a client set");
        }
        let active = self.active();
        match self.args.file.is_some() || active.plan.tls.is_some() {
            true => log::info!("the configuration was reloaded"),
            false => log::info!(
                "there is no configuration file and no certificate to reload; replaced \
                 directories were opened again"
            ),
        }
        self.check_descriptor_limit();
        let problems = active.opened.unavailable_problems();
        let result = match problems.is_empty() {
            true => ControlResult::Complete,
            false => ControlResult::Incomplete,
        };
        ControlReport { result, problems, warnings: active.plan.warnings() }
    }

    /// Makes a change of a client, logs it, and sends the result. A failed reply is ignored: the
    /// client has disconnected, and the change is logged.
    pub(crate) fn change(&mut self, request: ChangeRequest) {
        match request {
            ChangeRequest::Config { change, reply } => {
                let _ = reply.send(self.change_config(change));
            }
            ChangeRequest::Generated { reply } => {
                let report = match self.args.take_checked() {
                    Some((sources, plan)) => self.use_and_log(sources, Ok(plan)),
                    None => self.reload_and_log(),
                };
                let _ = reply.send(!matches!(report.result, ControlResult::Failed));
            }
            ChangeRequest::Upstream { change, reply } => {
                let _ = reply.send(self.active().opened.routing.change_upstreams(&change));
            }
        }
    }

    fn change_config(&mut self, change: ConfigChange) -> Result<Vec<Problem>, ChangeError> {
        systemd::reloading();
        let result = match change {
            ConfigChange::Replace(text) => self.replace_config(text),
            ConfigChange::Undo => self.undo_config(),
        };
        if let Some(status) = &self.status {
            status.registry.record_reload(result.is_ok());
        }
        match &result {
            Ok(_) => {
                self.update_watch();
                self.check_descriptor_limit();
            }
            Err(_) => log::warn!("a change of the configuration by a client was refused"),
        }
        systemd::ready();
        result
    }

    fn replace_config(&mut self, text: String) -> Result<Vec<Problem>, ChangeError> {
        let sources = self.args.sources_of(text).ok_or(ChangeError::Conflict(
            "the server was started without --config, so there is no file to replace",
        ))?;
        self.use_sources(&sources).map_err(ChangeError::Invalid)?;
        self.history.replace(sources);
        log::info!("a client replaced the configuration, until the next reload or start");
        Ok(self.active().plan.warnings())
    }

    fn undo_config(&mut self) -> Result<Vec<Problem>, ChangeError> {
        let nothing = ChangeError::Conflict("there is no replacement to undo");
        let former = self.history.former().ok_or(nothing)?;
        let plan = Plan::new(self.args.config(former)).map_err(ChangeError::Invalid)?;
        self.use_plan(plan).map_err(ChangeError::Invalid)?;
        self.history.undo();
        log::info!("a client undid the last replacement of the configuration");
        Ok(self.active().plan.warnings())
    }

    fn use_sources(&mut self, sources: &Sources) -> Result<(), Vec<Problem>> {
        self.use_plan(Plan::new(self.args.config(sources))?)
    }

    fn use_plan(&mut self, plan: Plan) -> Result<(), Vec<Problem>> {
        let change = PlanChange::prepare(plan, &self.active(), self)?;
        self.apply(change);
        self.log_problems();
        Ok(())
    }

    /// Applies a change. The order matters:
    ///
    /// 1. The logs come first, so that `reopen` and `close` reach the outputs of the new plan
    ///    before a worker writes to them.
    /// 2. The plan is sent to the workers before new sockets accept, so that a request at a new
    ///    address finds its routes.
    fn apply(&mut self, change: PlanChange) {
        let PlanChange { next, opened, closed, tls, limits, restart_only } = change;
        if let (Some(shared), Some(newer)) = (&next.opened.tls, tls) {
            // Open sockets have the former `Tls`, which gets the settings of the new one.
            shared.tls.renew(newer);
        }
        next.opened.buffer_space.set_limits(next.plan.top.buffer_space());
        self.logs.replace(next.logs.clone());
        let former = self.active.send_replace(Arc::new(next));
        let former = former.opened.response_store.clone();
        if !former.is_same(&self.active().opened.response_store) {
            // The new store waits for the folder.
            drop(former.save_in_background());
        }
        self.active().opened.routing.reset_upstreams();
        self.active().opened.order_certificates();
        self.active().opened.start_cluster(&self.active.subscribe());
        for (spec, listener) in opened {
            // Fails only if `reuse_port` is set and a socket of another worker cannot be bound, or
            // without descriptors.
            if let Err(error) = self.listen(&spec, listener) {
                log::error!("{error}");
            }
        }
        let defer_accept = self.active().plan.top.defer_accept;
        if let Err(error) = defer_accept::set(&self.handle, defer_accept) {
            log::error!("{error}");
        }
        for ServedSocket { spec, local_address } in closed {
            match (spec.protocol, &mut self.status) {
                (Protocol::Stream, _) => self.streams.stop_listening(&local_address),
                (Protocol::Datagram, _) => self.streams.stop_receiving(&spec),
                (Protocol::Status, Some(status)) => {
                    status.handle.stop_listening(&local_address);
                }
                _ => {
                    self.handle.stop_listening(&local_address);
                }
            }
        }
        if let Some(limits) = limits {
            self.handle.update_settings(limits);
        }
        if !restart_only.is_empty() {
            let names: Vec<_> = restart_only.iter().map(|name| format!("`{name}`")).collect();
            let names = names.join(", ");
            log::warn!("changes to {names} take effect at the next start or upgrade");
        }
    }

    /// Adds a listening socket to the server of its protocol.
    fn listen(&mut self, spec: &ListenSpec, socket: BoundSocket) -> Result<(), String> {
        let listener = match (spec.protocol, socket) {
            (Protocol::Stream | Protocol::Datagram, socket)
            | (_, socket @ BoundSocket::Datagram(_)) => {
                return self.streams.listen(socket, spec);
            }
            (_, BoundSocket::Listener(listener)) => listener,
        };
        let added = match (spec.protocol, &mut self.status) {
            (Protocol::Status, Some(status)) => status.handle.listen(listener),
            _ => self.handle.listen(listener),
        };
        added.map_err(|error| error.to_string())
    }
}

impl PlanChange {
    /// Opens a plan and compares it with the active one.
    fn prepare(
        plan: Plan,
        active: &ActivePlan,
        process: &ServerProcess<'_>,
    ) -> Result<PlanChange, Vec<Problem>> {
        let problem = |message| vec![Problem::without_location(message)];
        let mut resources = plan.open(Some(&active.opened))?;
        let logs = OpenLogs::open(&plan.logs(), Some(&active.logs)).map_err(problem)?;
        // Metrics are set up when workers start, so that a reload cannot add the status endpoint.
        let has_status = process.status.is_some();
        let changes =
            sockets::changes(&plan.listening(), &active.sockets, &process.handle, has_status);
        let SocketChanges { opened, closed } =
            changes.map_err(|error| problem(error.to_string()))?;
        let tls = match (&active.opened.tls, &mut resources.tls) {
            (Some(current), Some(newer)) => {
                Some(std::mem::replace(&mut newer.tls, current.tls.clone()))
            }
            // A TLS socket of the service manager stays open without `[tls]`.
            (current, none @ None) => {
                none.clone_from(current);
                None
            }
            (None, Some(_)) => None,
        };
        let shared_tls = resources.tls.as_ref().map(|opened| &opened.tls);
        let opened = opened.into_iter().map(|open| open.with_tls(shared_tls));
        let opened = opened.collect::<Result<Vec<_>, _>>().map_err(problem)?;
        let kept = active.sockets.iter().filter(|socket| !closed.contains(socket));
        let added = opened.iter().map(|(socket, _)| socket);
        let sockets = kept.chain(added).cloned().collect();
        let opened = opened.into_iter().map(|(socket, listener)| (socket.spec, listener)).collect();
        let limits = (plan.limits != active.plan.limits).then(|| plan.limits.clone());
        let restart_only = restart_only_changes(&active.plan, &plan, has_status);
        let next = ActivePlan { plan, opened: resources, sockets, logs: Arc::new(logs) };
        Ok(PlanChange { next, opened, closed, tls, limits, restart_only })
    }
}

/// Returns the names of changed settings that a running process cannot apply.
fn restart_only_changes(former: &Plan, plan: &Plan, has_status: bool) -> Vec<&'static str> {
    let needs_status = !has_status && plan.status.listen.list != former.status.listen.list;
    let status = needs_status.then_some("status");
    let top = plan.top.restart_only_changes(&former.top);
    let limits = limits::restart_only_changes(&plan.limits, &former.limits);
    top.chain(status).chain(limits).collect()
}
