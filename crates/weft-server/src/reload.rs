//! Another plan for a server that runs.
//!
//! All that can fail is done first. Then sockets that stay, connections, WebSockets and
//! applications that did not change go on as if nothing had happened.

use weft::Running;
use weft::tls::Tls;

use crate::args::Failure;
use crate::config::Problem;
use crate::open::Opened;
use crate::plan::Plan;
use crate::run::Serving;
use crate::sockets::{Place, Protocol};
use crate::{print, sockets, systemd};

impl Serving<'_> {
    /// Does what the configuration says now, or says why not.
    pub(crate) fn reload_and_say(&mut self) {
        systemd::reloading();
        let done = self.reload();
        if let Some(status) = &self.status {
            status.register.reloaded(done.is_ok());
        }
        match done {
            Ok(()) => log::info!("the configuration was reloaded"),
            Err(problems) => {
                for problem in problems {
                    log::error!("{problem}");
                }
                log::error!("the configuration was not reloaded; the one before counts");
            }
        }
        systemd::ready();
    }

    fn reload(&mut self) -> Result<(), Vec<Problem>> {
        let wrong = |error: weft::Error| vec![Problem::of_system(error.to_string())];
        let plan = self.args.config().map_err(Failure::into_problems).and_then(Plan::new)?;
        let opened = self.routes.with(|former| plan.open(Some(former)))?;
        // Workers that do not count cannot begin to.
        let has_status = self.status.is_some();
        let change = sockets::change(&plan, &self.served, &self.running, has_status);
        let change = change.map_err(wrong)?;
        let Opened { routing, tls } = opened;
        let tls = self.renewed_tls(tls, &plan);
        let opened = change.opened.into_iter().map(|open| open.secured(tls.as_ref()));
        let opened: Vec<_> = opened
            .collect::<Result<_, _>>()
            .map_err(|message| vec![Problem::of_system(message)])?;
        self.routes.change(routing);
        for (known, listener) in opened {
            // The sockets of the other workers, if each has one of its own.
            if let Err(error) = self.server_at(&known.place).listen(listener) {
                log::error!("{error}");
            }
            self.served.push(known);
        }
        for closed in change.closed {
            self.server_at(&closed.place).unlisten(&closed.bound);
            self.served.retain(|known| *known != closed);
        }
        if plan.limits != self.plan.limits {
            self.running.renew(plan.limits.clone());
        }
        self.say_what_waits(&plan);
        // A socket of the service manager stays, and with it what its connections speak TLS by.
        (self.plan, self.tls) = (plan, tls.or_else(|| self.tls.take()));
        Ok(())
    }

    /// Which server serves there.
    fn server_at(&mut self, place: &Place) -> &mut Running {
        match (&mut self.status, place.protocol) {
            (Some(status), Protocol::Status) => &mut status.running,
            _ => &mut self.running,
        }
    }

    /// Sockets that stay keep the TLS that they have, with other certificates.
    fn renewed_tls(&self, newer: Option<Tls>, plan: &Plan) -> Option<Tls> {
        let (Some(known), Some(newer)) = (&self.tls, newer.clone()) else { return newer };
        let is_self_signed =
            |plan: &Plan| plan.tls.as_ref().is_some_and(|tls| tls.certificates.is_empty());
        // Clients that came to trust a certificate that was made here go on doing so.
        if !(is_self_signed(plan) && is_self_signed(&self.plan)) {
            known.renew(newer);
        }
        Some(known.clone())
    }

    /// Says what a process cannot change of itself.
    fn say_what_waits(&self, plan: &Plan) {
        let former = &self.plan;
        let changed = [
            ("workers", plan.workers != former.workers),
            ("log", print::log(&plan.log) != print::log(&former.log)),
            ("status", self.status.is_none() && plan.status.list != former.status.list),
            ("user", plan.identity.user != former.identity.user),
            ("group", plan.identity.group != former.identity.group),
            ("umask", plan.umask != former.umask),
            ("pid_file", plan.pid_file != former.pid_file),
            ("backlog", plan.limits.backlog != former.limits.backlog),
            ("reuse_port", plan.limits.reuse_port != former.limits.reuse_port),
        ];
        let changed: Vec<_> =
            changed.iter().filter(|(_, is)| *is).map(|(name, _)| format!("`{name}`")).collect();
        if !changed.is_empty() {
            let names = changed.join(", ");
            log::warn!("what changed in {names} counts from the next start or upgrade");
        }
    }
}
