//! The plan in effect, with everything that is open for it.

use std::sync::Arc;

use tokio::sync::watch;

use crate::config::Plan;
use crate::logs::{LogPlan, OpenLogs};
use crate::open::Opened;
use crate::sockets::{ListenPlan, ServedSocket};

/// The plan in effect, with everything that is open for it. The process, its workers and the status
/// endpoint share this value, and a reload replaces it as a whole.
pub(crate) struct ActivePlan {
    pub(crate) plan: Plan,
    pub(crate) opened: Opened,
    pub(crate) sockets: Vec<ServedSocket>,
    pub(crate) logs: Arc<OpenLogs>,
}

/// Sends the active plan to the workers and to the status endpoint.
pub(crate) type PlanSender = watch::Sender<Arc<ActivePlan>>;

/// Receives the active plan.
pub(crate) type PlanReceiver = watch::Receiver<Arc<ActivePlan>>;

impl Plan {
    /// Returns the destinations of the logs.
    pub(crate) fn logs(&self) -> LogPlan<'_> {
        let routes = self.hosts.iter().flat_map(|host| &host.routes);
        let streams = self.streams.iter().map(|stream| &stream.settings.value);
        LogPlan {
            log: &self.log,
            of_routes: routes.filter_map(|it| it.options.access_log.logs()).flatten().collect(),
            of_streams: streams.filter_map(|stream| stream.access_log.as_ref()).collect(),
            tracing: self.tracing.as_ref(),
        }
    }

    /// Returns the addresses to listen on.
    pub(crate) fn listening(&self) -> ListenPlan<'_> {
        ListenPlan {
            plain: &self.top.listen,
            tls: self.tls.as_ref().map(|tls| &tls.listen),
            status: &self.status.listen,
            streams: &self.streams,
            limits: &self.limits,
        }
    }
}
