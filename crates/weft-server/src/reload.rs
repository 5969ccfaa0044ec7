//! Applies a new plan to the running server.
//!
//! Steps that can fail are done first. Then unchanged sockets, connections, WebSockets and unchanged
//! applications continue without interruption.

use weft::ServerHandle;
use weft::tls::Tls;

use crate::args::Failure;
use crate::config::Problem;
use crate::open::Opened;
use crate::plan::Plan;
use crate::run::ServerProcess;
use crate::sockets::{ListenSpec, Protocol};
use crate::{print, sockets, systemd};

impl ServerProcess<'_> {
    /// Reloads the configuration and logs the result. After an error the previous configuration
    /// stays in effect.
    pub(crate) fn reload_and_log(&mut self) {
        systemd::reloading();
        let result = self.reload();
        if let Some(status) = &self.status {
            status.register.reloaded(result.is_ok());
        }
        match result {
            Ok(()) => log::info!("the configuration was reloaded"),
            Err(problems) => {
                for problem in problems {
                    log::error!("{problem}");
                }
                log::error!(
                    "the configuration was not reloaded; the previous configuration stays \
                     in effect"
                );
            }
        }
        systemd::ready();
    }

    fn reload(&mut self) -> Result<(), Vec<Problem>> {
        let problem = |error: weft::Error| vec![Problem::without_location(error.to_string())];
        let plan = self.args.config().map_err(Failure::into_problems).and_then(Plan::new)?;
        let opened = self.routes.with(|former| plan.open(Some(former)))?;
        // Metrics are set up when workers start, so that a reload cannot add the status endpoint.
        let has_status = self.status.is_some();
        let changes = sockets::changes(&plan, &self.served, &self.handle, has_status);
        let changes = changes.map_err(problem)?;
        let Opened { routing, tls } = opened;
        let tls = self.updated_tls(tls, &plan);
        let opened = changes.opened.into_iter().map(|open| open.with_tls(tls.as_ref()));
        let opened: Vec<_> = opened
            .collect::<Result<_, _>>()
            .map_err(|message| vec![Problem::without_location(message)])?;
        self.routes.replace(routing);
        for (socket, listener) in opened {
            // Fails only if `reuse_port` is set and a socket of another worker cannot be bound.
            if let Err(error) = self.server_of(&socket.spec).listen(listener) {
                log::error!("{error}");
            }
            self.served.push(socket);
        }
        for closed in changes.closed {
            self.server_of(&closed.spec).stop_listening(&closed.local_address);
            self.served.retain(|socket| *socket != closed);
        }
        if plan.limits != self.plan.limits {
            self.handle.renew(plan.limits.clone());
        }
        self.warn_about_restart_only_changes(&plan);
        // A TLS socket of the service manager stays open without `[tls]`, and needs the previous
        // `Tls`.
        (self.plan, self.tls) = (plan, tls.or_else(|| self.tls.take()));
        Ok(())
    }

    /// Returns the server that the socket belongs to: the main server or the status endpoint.
    fn server_of(&mut self, spec: &ListenSpec) -> &mut ServerHandle {
        match (&mut self.status, spec.protocol) {
            (Some(status), Protocol::Status) => &mut status.running,
            _ => &mut self.handle,
        }
    }

    /// Loads the new settings and certificates into the existing `Tls`, which open sockets share.
    /// Returns the `Tls` for new sockets.
    fn updated_tls(&self, newer: Option<Tls>, plan: &Plan) -> Option<Tls> {
        let (Some(current), Some(newer)) = (&self.tls, newer.clone()) else { return newer };
        let is_self_signed =
            |plan: &Plan| plan.tls.as_ref().is_some_and(|tls| tls.certificates.is_empty());
        // A self-signed certificate is kept, because clients may have stored an exception for it.
        if !(is_self_signed(plan) && is_self_signed(&self.plan)) {
            current.renew(newer);
        }
        Some(current.clone())
    }

    /// Logs changed settings that a running process cannot apply.
    fn warn_about_restart_only_changes(&self, plan: &Plan) {
        let former = &self.plan;
        let changed = [
            ("workers", plan.workers != former.workers),
            ("log", print::log(&plan.log) != print::log(&former.log)),
            ("status", self.status.is_none() && plan.status.list != former.status.list),
            ("user", plan.run_as.user != former.run_as.user),
            ("group", plan.run_as.group != former.run_as.group),
            ("umask", plan.umask != former.umask),
            ("pid_file", plan.pid_file != former.pid_file),
            ("backlog", plan.limits.backlog != former.limits.backlog),
            ("reuse_port", plan.limits.reuse_port != former.limits.reuse_port),
        ];
        let changed: Vec<_> = changed
            .iter()
            .filter(|(_, is_changed)| *is_changed)
            .map(|(name, _)| format!("`{name}`"))
            .collect();
        if !changed.is_empty() {
            let names = changed.join(", ");
            log::warn!("changes to {names} take effect at the next start or upgrade");
        }
    }
}
